//! Work that is begun ahead of its turn.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction,
    backup::{BackupActionOutput, BackupItemAction},
};
use backup_core::api::Backup;
use serde_json::{Value, json};

use super::harness::{Setup, bound_claim, cluster, frozen, item};
use crate::hooks::tests::fake::FakePods;

/// Records its calls for claims.
#[derive(Default)]
struct Slow(Mutex<Vec<String>>);

impl Slow {
    fn note(&self, what: &str, claim: &Value) {
        self.0.lock().unwrap().push(format!(
            "{what} {}",
            claim["metadata"]["name"].as_str().unwrap()
        ));
    }

    fn asked(&self, what: &str) -> Vec<String> {
        let asked = self.0.lock().unwrap();
        let names = asked
            .iter()
            .filter_map(|line| line.strip_prefix(what))
            .map(|name| name.trim().to_owned());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl ItemAction for Slow {
    fn name(&self) -> &'static str {
        "x/slow"
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo {
            included_resources: vec!["persistentvolumeclaims".to_owned()],
            ..AppliesTo::default()
        }
    }
}

#[async_trait]
impl BackupItemAction for Slow {
    async fn begin(&self, claim: &Value, _: &Backup) {
        self.note("begin", claim);
    }

    async fn end_begun(&self) -> Vec<String> {
        self.0.lock().unwrap().push("end".to_owned());
        vec!["one stays".to_owned()]
    }

    async fn execute(&self, claim: &Value, _: &Backup) -> Result<BackupActionOutput, ActionError> {
        // Gives begun work time to run.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        self.note("execute", claim);
        Ok(BackupActionOutput::default())
    }
}

fn with_claim(mut pod: Value, claim: &str) -> Value {
    pod["spec"]["volumes"] = json!([{ "persistentVolumeClaim": { "claimName": claim } }]);
    pod
}

async fn collected(pods: Vec<Value>, claims: &[&str]) -> (Arc<Slow>, super::harness::Outcome) {
    let slow = Arc::new(Slow::default());
    let claims = claims
        .iter()
        .map(|name| bound_claim(name, &format!("pv-{name}")))
        .collect();
    let api = cluster()
        .with_list("/api/v1/pods", pods)
        .with_list("/api/v1/persistentvolumeclaims", claims);
    let setup = Setup {
        spec: json!({ "includedResources": ["pods", "persistentvolumeclaims"] }),
        api,
        pods: Arc::new(FakePods::running(&["hooked"])),
        blocks: Some(Vec::new()),
        actions: vec![slow.clone()],
        page_size: Some(10),
        ..Setup::default()
    };
    let outcome = setup.collect().await;
    (slow, outcome)
}

#[tokio::test(start_paused = true)]
async fn claims_and_those_of_pods_without_commands_are_begun_before_their_turn() {
    let names = ["one", "two", "three", "four", "five"];
    let pods = names[..3]
        .iter()
        .map(|name| with_claim(item("a", name), name))
        .collect();
    let (slow, outcome) = collected(pods, &names).await;
    let all = ["five", "four", "one", "three", "two"];
    assert_eq!(
        (slow.asked("begin"), slow.asked("execute")),
        (all.map(str::to_owned).into(), all.map(str::to_owned).into())
    );
    let order = slow.0.lock().unwrap().clone();
    let at = |line: &str| order.iter().position(|one| one == line).unwrap();
    assert!(
        at("begin three") < at("execute one") && at("begin five") < at("execute four"),
        "{order:?}"
    );
    assert_eq!(
        order.last().unwrap(),
        "end",
        "what was not executed is ended"
    );
    assert_eq!(outcome.errors, ["one stays"]);
    assert_eq!(outcome.names().len(), 8, "each once: {:?}", outcome.names());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_begun_for_claims_of_pods_with_commands_also_where_they_share_them() {
    let pods = vec![
        with_claim(item("a", "beside"), "shared"),
        with_claim(item("a", "alone"), "own"),
        with_claim(frozen("hooked"), "shared"),
    ];
    let (slow, outcome) = collected(pods, &["shared", "own"]).await;
    assert_eq!(slow.asked("begin"), ["own"]);
    assert_eq!(slow.asked("execute"), ["own", "shared"]);
    assert_eq!(outcome.names().len(), 5, "{:?}", outcome.names());
}

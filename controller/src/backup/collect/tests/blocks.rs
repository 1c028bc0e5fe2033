//! Items that belong together.

use std::sync::Arc;

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, ItemId,
    backup::{BackupActionOutput, ItemBlockAction},
};
use backup_core::api::Backup;
use backup_testkit::{FakeApi, Fault};
use serde_json::{Value, json};

use super::harness::{Setup, bound_claim, cluster, frozen, id, item};
use crate::hooks::{exec::ExecError, tests::fake::FakePods};

/// Relates a ConfigMap to the pod named in its field `with`.
struct Together(AppliesTo);

impl ItemAction for Together {
    fn name(&self) -> &'static str {
        "x/together"
    }

    fn applies_to(&self) -> AppliesTo {
        self.0.clone()
    }
}

#[async_trait]
impl ItemBlockAction for Together {
    async fn related(&self, item: &Value, _: &Backup) -> Result<Vec<ItemId>, ActionError> {
        match item["with"].as_str() {
            Some("error") => Err(ActionError::Retryable {
                action: "x/together".into(),
                reason: "no idea".into(),
            }),
            with => Ok(with.into_iter().map(|name| id("pods", "a", name)).collect()),
        }
    }
}

fn mounting(name: &str, claims: &[&str]) -> Value {
    let mut pod = frozen(name);
    let volumes = claims
        .iter()
        .map(|claim| json!({ "persistentVolumeClaim": { "claimName": claim } }));
    pod["spec"]["volumes"] = volumes.collect();
    pod
}

/// Pods with the claims that they mount, and volumes.
fn shared(pods: &[(&str, &[&str])]) -> FakeApi {
    let names = ["data", "log"];
    let claims = names.map(|name| bound_claim(name, &format!("pv-{name}")));
    let volumes = names.map(|name| json!({ "metadata": { "name": format!("pv-{name}") } }));
    cluster()
        .with_list(
            "/api/v1/pods",
            pods.iter()
                .map(|(name, claims)| mounting(name, claims))
                .collect(),
        )
        .with_list("/api/v1/persistentvolumeclaims", claims.to_vec())
        .with_list("/api/v1/persistentvolumes", volumes.to_vec())
}

fn setup(api: FakeApi, pods: &Arc<FakePods>, spec: Value) -> Setup {
    let applies_to = AppliesTo {
        included_resources: vec!["configmaps".to_owned()],
        ..AppliesTo::default()
    };
    let plugins: Vec<Arc<dyn ItemBlockAction>> = vec![Arc::new(Together(applies_to))];
    Setup {
        spec,
        api,
        pods: Arc::clone(pods),
        blocks: Some(plugins),
        ..Setup::default()
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_share_a_claim_are_frozen_together() {
    let api = shared(&[
        ("one", &["data"]),
        ("other", &[]),
        ("two", &["data", "log"]),
        ("three", &["log"]),
    ]);
    let pods = Arc::new(FakePods::running(&["one", "other", "two", "three"]));
    let spec =
        json!({ "includedResources": ["pods", "persistentvolumeclaims", "persistentvolumes"] });
    let mut setup = setup(api, &pods, spec);
    // Related items of a pod of the block are in the block.
    setup.actions = vec![super::actions::action("x/asks", "pods", |pod| {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let claims = volumes.iter().map(|volume| {
            id(
                "persistentvolumeclaims",
                "a",
                volume["persistentVolumeClaim"]["claimName"]
                    .as_str()
                    .unwrap(),
            )
        });
        Ok(BackupActionOutput {
            additional: claims.collect(),
            ..BackupActionOutput::default()
        })
    })];
    let outcome = setup.collect().await;
    assert_eq!(
        pods.ran(),
        [
            "one freeze",
            "two freeze",
            "three freeze",
            "one thaw",
            "two thaw",
            "three thaw",
            "other freeze",
            "other thaw",
        ]
    );
    assert_eq!(
        outcome.names(),
        [
            "persistentvolumeclaims/a/data",
            "pods/a/one",
            "persistentvolumes/pv-data",
            "persistentvolumeclaims/a/log",
            "pods/a/two",
            "persistentvolumes/pv-log",
            "pods/a/three",
            "pods/a/other",
        ]
    );
    assert!(
        outcome.errors.is_empty() && outcome.warnings.is_empty(),
        "{:?}",
        outcome.errors
    );
    assert!(outcome.pending.is_empty());
    let reads = |path: &str| {
        outcome
            .paths
            .iter()
            .filter(|asked| asked.ends_with(path))
            .count()
    };
    assert_eq!(
        (reads("claims/data"), reads("pv-log"), reads("pods/two")),
        (1, 1, 1),
        "{:?}",
        outcome.paths
    );
    assert_eq!(reads("/namespaces/a/pods"), 1, "{:?}", outcome.paths);
}

#[tokio::test(start_paused = true)]
async fn a_failed_command_drops_its_pod_and_all_pods_are_thawed() {
    let fails = |pod: &str, command: &str| match (pod, command) {
        ("two", "freeze") => Err(ExecError::Failed {
            reason: "exit code 1".into(),
            output: String::new(),
        }),
        _ => Ok(String::new()),
    };
    let pods = Arc::new(FakePods::running(&["one", "two"]).answering(fails));
    let api = shared(&[("one", &["data"]), ("two", &["data"])]);
    let spec =
        json!({ "includedResources": ["pods", "persistentvolumeclaims", "persistentvolumes"] });
    let outcome = setup(api, &pods, spec).collect().await;
    assert_eq!(
        pods.ran(),
        ["one freeze", "two freeze", "one thaw", "two thaw"]
    );
    let names = outcome.names();
    assert!(
        names.contains(&"pods/a/one") && names.contains(&"persistentvolumeclaims/a/data"),
        "{names:?}"
    );
    assert!(!names.contains(&"pods/a/two"), "{names:?}");
    assert!(
        outcome
            .errors
            .iter()
            .any(|error| error.contains("a/two is not in this backup"))
    );
    assert!(outcome.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_plugin_names_is_in_the_block_if_the_filters_let_it() {
    let with = |name: &str, with: &str| {
        let mut map = item("a", name);
        map["with"] = json!(with);
        map
    };
    let api = || {
        let maps = vec![
            with("with-db", "db"),
            with("with-error", "error"),
            with("with-ghost", "ghost"),
        ];
        // The pod is not listed before the items that name it.
        shared(&[("db", &[])])
            .with_list("/api/v1/configmaps", maps)
            .with_fault(|request| (request.path == "/api/v1/pods").then(|| Fault::list(&[])))
    };
    let pods = Arc::new(FakePods::running(&["db"]));
    let outcome = setup(
        api(),
        &pods,
        json!({ "includedResources": ["pods", "configmaps"] }),
    )
    .collect()
    .await;
    let expected = [
        "configmaps/a/with-db",
        "pods/a/db",
        "configmaps/a/with-error",
        "configmaps/a/with-ghost",
    ];
    assert_eq!(outcome.names()[..4], expected);
    assert_eq!(pods.ran(), ["db freeze", "db thaw"]);
    assert!(
        outcome.warnings[0].contains("ghost") && outcome.warnings.len() == 1,
        "{:?}",
        outcome.warnings
    );
    assert_says!(outcome.errors[0], "x/together: no idea");
    assert_eq!(outcome.errors.len(), 1);

    let pods = Arc::new(FakePods::running(&["db"]));
    let outcome = setup(api(), &pods, json!({ "includedResources": ["configmaps"] }))
        .collect()
        .await;
    assert!(!outcome.names().contains(&"pods/a/db") && pods.ran().is_empty());
}

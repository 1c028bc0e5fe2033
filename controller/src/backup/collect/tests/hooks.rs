//! Commands around the backup of pods.

use std::sync::Arc;

use backup_actions::backup::BackupActionOutput;
use backup_testkit::FakeApi;
use serde_json::{Value, json};

use super::{
    super::CollectError,
    harness::{Setup, cancellation, cluster, frozen, id, item, pod},
};
use crate::hooks::{exec::ExecError, tests::fake::FakePods};

fn with_pods(pods: Vec<Value>) -> FakeApi {
    cluster().with_list("/api/v1/pods", pods)
}

fn spec() -> Value {
    json!({ "includedResources": ["pods", "configmaps"] })
}

fn hooked(api: FakeApi, pods: FakePods) -> (Arc<FakePods>, Setup) {
    let pods = Arc::new(pods);
    (
        Arc::clone(&pods),
        Setup {
            spec: spec(),
            api,
            pods,
            ..Setup::default()
        },
    )
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_written_between_its_commands_with_related_items() {
    let api = with_pods(vec![frozen("db"), item("a", "plain")]);
    let (pods, mut setup) = hooked(api, FakePods::running(&["db"]));
    let (order, seen) = (
        Arc::new(std::sync::Mutex::new(Vec::new())),
        Arc::clone(&pods),
    );
    let noted = Arc::clone(&order);
    setup.actions = vec![super::actions::action("x/asks", "pods", move |_| {
        noted.lock().unwrap().extend(seen.ran());
        let additional = vec![id("configmaps", "a", "two")];
        Ok(BackupActionOutput {
            additional,
            ..BackupActionOutput::default()
        })
    })];
    let outcome = setup.collect().await;
    assert_eq!(
        outcome.names()[..3],
        ["configmaps/a/two", "pods/a/db", "pods/a/plain"]
    );
    assert_eq!(
        *order.lock().unwrap(),
        ["db freeze", "db freeze", "db thaw"],
        "first the pod, then the plain one"
    );
    assert_eq!(pods.ran(), ["db freeze", "db thaw"]);
    assert_eq!(
        (outcome.hooks.hooks_attempted, outcome.hooks.hooks_failed),
        (2, 0)
    );
    assert!(outcome.errors.is_empty() && outcome.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_failed_pre_hook_drops_the_pod_and_its_post_hook_is_run() {
    let fails = |_: &str, command: &str| match command {
        "freeze" => Err(ExecError::Failed {
            reason: "exit code 1".into(),
            output: "no disk".into(),
        }),
        _ => Ok(String::new()),
    };
    let (pods, setup) = hooked(
        with_pods(vec![frozen("db")]),
        FakePods::running(&["db"]).answering(fails),
    );
    let outcome = setup.collect().await;
    assert_eq!(
        outcome.names().len(),
        3,
        "the rest is intact: {:?}",
        outcome.names()
    );
    assert!(!outcome.names().contains(&"pods/a/db"));
    assert_eq!(pods.ran(), ["db freeze", "db thaw"]);
    assert_eq!(
        (outcome.hooks.hooks_attempted, outcome.hooks.hooks_failed),
        (2, 1)
    );
    assert!(
        outcome.errors[0].ends_with("exit code 1"),
        "what it printed is not for everyone: {:?}",
        outcome.errors
    );
    assert_says!(outcome.errors[1], "pod a/db is not in this backup");
    assert!(outcome.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_command_may_fail_is_written_with_an_error() {
    let api = with_pods(vec![pod(
        "db",
        &json!({ "pre.hook.backup.velero.io/command": "freeze", "pre.hook.backup.velero.io/on-error": "Continue" }),
    )]);
    let fails = |_: &str, _: &str| Err(ExecError::Unknown("it did not end within 30s".into()));
    let (_, setup) = hooked(api, FakePods::running(&["db"]).answering(fails));
    let outcome = setup.collect().await;
    assert!(outcome.names().contains(&"pods/a/db"));
    assert_says!(outcome.errors[0], "its outcome is unknown");
    assert_eq!(outcome.errors.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn commands_of_a_pod_that_does_not_run_are_not_run() {
    let (mut pending, mut ended) = (frozen("pending"), frozen("ended"));
    pending["status"]["phase"] = json!("Pending");
    ended["status"]["phase"] = json!("Succeeded");
    // The pod was replaced since it was listed.
    let mut replaced = frozen("db");
    replaced["metadata"]["uid"] = json!("another");
    let (pods, setup) = hooked(
        with_pods(vec![pending, ended, replaced]),
        FakePods::running(&["db"]),
    );
    let outcome = setup.collect().await;
    assert!(pods.ran().is_empty());
    assert_eq!(
        outcome
            .names()
            .iter()
            .filter(|name| name.starts_with("pods/"))
            .count(),
        3
    );
    assert_eq!(
        (outcome.warnings.len(), outcome.errors.len()),
        (2, 0),
        "{:?}",
        outcome.warnings
    );
}

#[tokio::test(start_paused = true)]
async fn post_hooks_are_pending_before_the_first_command() {
    let cancellation = cancellation();
    let deleted = cancellation.clone();
    let pods = Arc::new(FakePods::running(&["db"]).answering(move |_, _| {
        deleted.delete();
        Ok(String::new())
    }));
    let setup = Setup {
        spec: spec(),
        api: with_pods(vec![frozen("db")]),
        pods: Arc::clone(&pods),
        actions: vec![super::actions::action("x/any", "pods", |_| {
            Ok(BackupActionOutput::default())
        })],
        ..Setup::default()
    };
    let outcome = setup.collect_until(&cancellation).await;
    assert!(matches!(outcome.result, Err(CollectError::Stopped(_))));
    assert_eq!(pods.ran(), ["db freeze"]);
    let [pending] = &outcome.pending[..] else {
        panic!("{:?}", outcome.pending)
    };
    assert_eq!(
        (pending.pod.as_str(), pending.post[0].command.as_slice()),
        ("db", &["thaw".to_owned()][..])
    );
}

#[tokio::test(start_paused = true)]
async fn hooks_of_the_backup_are_run_in_their_pods() {
    let mut setup = hooked(
        with_pods(vec![pod("db", &json!({}))]),
        FakePods::running(&["db"]),
    );
    setup.1.spec["hooks"] = json!({ "resources": [{
        "name": "h", "includedNamespaces": ["a"],
        "pre": [{ "exec": { "command": ["one"] } }, { "exec": { "command": ["two"] } }],
        "post": [{ "exec": { "command": ["three"] } }],
    }] });
    let outcome = setup.1.collect().await;
    assert_eq!(setup.0.ran(), ["db one", "db two", "db three"]);
    assert_eq!(outcome.hooks.hooks_attempted, 3);
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_the_backup_that_applies_to_no_pod_is_a_warning() {
    for (applies_not, named) in [
        (json!({ "includedNamespaces": ["aa"] }), true),
        (
            json!({ "labelSelector": { "matchLabels": { "app": "typo" } } }),
            true,
        ),
        (json!({ "includedResources": ["deployments"] }), true),
        (json!({ "includedNamespaces": ["a"] }), false),
    ] {
        let mut setup = hooked(
            with_pods(vec![pod("db", &json!({}))]),
            FakePods::running(&["db"]),
        );
        let mut hook = json!({ "name": "h", "pre": [{ "exec": { "command": ["one"] } }] });
        json_patch::merge(&mut hook, &applies_not);
        setup.1.spec["hooks"] = json!({ "resources": [hook] });
        let outcome = setup.1.collect().await;
        assert_eq!(setup.0.ran().is_empty(), named, "{applies_not}");
        let warnings = outcome.warnings.join("; ");
        assert_eq!(
            warnings.contains("hook \"h\" applied to no pod"),
            named,
            "{warnings}"
        );
    }
}

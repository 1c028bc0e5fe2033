//! Hooks of the pods of a restore.

use super::*;

fn pod(name: &str) -> (&'static str, Option<&'static str>, Value) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "namespace": "a", "name": name },
        "spec": { "containers": [{ "name": "main" }] },
    });
    ("pods", Some("a"), pod)
}

fn spec(namespace: &str) -> Value {
    let run = json!([
        { "exec": { "command": ["load"] } },
        { "init": { "initContainers": [{ "name": "warm", "image": "i", "command": ["c"] }] } },
    ]);
    let hook = json!({ "name": "h", "includedNamespaces": [namespace], "postHooks": run });
    json!({ "namespaceMapping": { "a": "z" }, "hooks": { "resources": [hook] } })
}

/// Sets the status of pods as a kubelet does.
async fn start_pods(fake: &FakeApi) {
    loop {
        for (at, found) in fake.under("/api/v1/namespaces/z/pods/") {
            if found.get("status").is_none() {
                let running = json!([{ "name": "main", "state": { "running": {} } }]);
                fake.edit(&at, |pod| {
                    pod["spec"]["nodeName"] = json!("n");
                    pod["status"] = json!({ "phase": "Running", "containerStatuses": running });
                });
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ran(fake: &FakeApi, spec: Value) -> (Vec<String>, Report) {
    let (items, pods) = ([pod("new"), pod("there")], FakePods::default());
    let (claimed, calls) = (Footprint::everything(), fake::calls(fake));
    let world = World {
        pods: Some(&pods),
        ..World::new(fake, &calls, &claimed)
    };
    let (report, done) = tokio::select! {
        done = world.run(&items, spec) => done,
        () = start_pods(fake) => unreachable!("it does not end"),
    };
    done.unwrap();
    (pods.ran(), report)
}

#[tokio::test]
async fn hooks_run_in_pods_that_the_restore_creates_and_in_no_other() {
    let fake = fake::server();
    let there = json!({ "metadata": { "namespace": "z", "name": "there" }, "spec": { "containers": [{ "name": "main" }] } });
    fake.put("/api/v1/namespaces/z/pods/there", there);
    let (ran, report) = ran(&fake, spec("z")).await;
    assert_eq!(ran, ["new load"]);
    let hooks = report.summary().hooks.unwrap();
    assert_eq!(
        (hooks.hooks_attempted, hooks.hooks_failed, report.counts().1),
        (1, 0, 0)
    );
    let new = fake.get("/api/v1/namespaces/z/pods/new").unwrap();
    assert_eq!(new["spec"]["initContainers"][0]["name"], "warm");
}

#[tokio::test]
async fn namespaces_of_hooks_are_those_that_pods_are_restored_into() {
    let fake = fake::server();
    let (ran, report) = ran(&fake, spec("a")).await;
    assert!(ran.is_empty() && report.summary().hooks.is_none());
    let new = fake.get("/api/v1/namespaces/z/pods/new").unwrap();
    assert_eq!(new["spec"].get("initContainers"), None);
}

#[tokio::test]
async fn a_hook_that_applies_to_no_pod_is_a_warning() {
    let mut of_others = spec("z");
    of_others["hooks"]["resources"][0]["includedResources"] = json!(["configmaps"]);
    for (spec, idle) in [(spec("z"), false), (spec("a"), true), (of_others, true)] {
        let (_, report) = ran(&fake::server(), spec).await;
        let warnings = report.into_files().results.warnings.velero;
        assert_eq!(warnings.len(), usize::from(idle), "{warnings:?}");
        let text = "spec.hooks.resources[0]: hook \"h\" applied to no pod of this restore, so nothing of it was run";
        assert!(
            warnings.iter().all(|warning| warning.starts_with(text)),
            "{warnings:?}"
        );
    }
}

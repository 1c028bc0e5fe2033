use serde_json::{Value, json};

use super::*;

const WAIT: Duration = Duration::from_mins(10);

fn pod(annotations: &Value) -> Pod {
    Pod::new(&json!({
        "metadata": { "namespace": "copy", "name": "db-0", "labels": { "app": "db" }, "annotations": annotations },
        "spec": { "containers": [{ "name": "main" }, { "name": "tools" }] },
    }))
    .unwrap()
}

fn hooks(resources: &Value, annotations: &Value) -> Option<PodHooks> {
    let spec: RestoreHooks = serde_json::from_value(json!({ "resources": resources })).unwrap();
    HookRules::new(Some(&spec), WAIT).for_pod(&pod(annotations))
}

#[test]
fn annotations_say_what_is_run_where_and_when() {
    let annotations = json!({
        "post.hook.restore.velero.io/command": r#"["/bin/load", "all"]"#,
        "post.hook.restore.velero.io/container": "tools",
        "post.hook.restore.velero.io/on-error": "Fail",
        "post.hook.restore.velero.io/exec-timeout": "3m",
        "post.hook.restore.velero.io/wait-timeout": "7m",
        "post.hook.restore.velero.io/wait-for-ready": "true",
    });
    let other = json!([{ "name": "r", "postHooks": [{ "exec": { "command": ["other"] } }] }]);
    let found = hooks(&other, &annotations).unwrap();
    let hook = Hook {
        source: "annotation".to_owned(),
        container: "tools".to_owned(),
        command: vec!["/bin/load".to_owned(), "all".to_owned()],
        fails: true,
        timeout: Duration::from_mins(3),
    };
    let expected = ExecHook {
        hook,
        wait: Duration::from_mins(7),
        ready: true,
        number: 0,
    };
    assert_eq!(
        (found.hooks, found.problems),
        (vec![expected], vec![]),
        "and not those of the Restore"
    );
}

#[rstest::rstest]
#[case(json!({ "command": ["x"] }), "main", false, 30, 600, false)]
#[case(json!({ "command": ["x"], "execTimeout": "0s", "waitTimeout": "0s", "container": "" }), "main", false, 30, 600, false)]
#[case(json!({ "command": ["x"], "execTimeout": "100h", "waitTimeout": "5s", "onError": "Fail", "container": "tools",
    "waitForReady": true }), "tools", true, 4 * 3600, 5, true)]
#[case(json!({ "command": ["x"], "onError": "Continue", "waitForReady": false }), "main", false, 30, 600, false)]
fn what_a_hook_leaves_open_is_filled_in(
    #[case] exec: Value,
    #[case] container: &str,
    #[case] fails: bool,
    #[case] seconds: u64,
    #[case] wait: u64,
    #[case] ready: bool,
) {
    let found = hooks(
        &json!([{ "name": "r", "postHooks": [{ "exec": exec }] }]),
        &json!({}),
    )
    .unwrap();
    let [
        ExecHook {
            hook,
            wait: waits,
            ready: is_ready,
            ..
        },
    ] = &found.hooks[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!(
        (hook.container.as_str(), hook.fails, hook.timeout.as_secs()),
        (container, fails, seconds)
    );
    assert_eq!((waits.as_secs(), *is_ready), (wait, ready));
    assert_eq!(hook.source, "hook r");
}

#[rstest::rstest]
#[case(json!({}), true)]
#[case(json!({ "includedNamespaces": ["co*"] }), true)]
#[case(json!({ "includedNamespaces": ["shop"] }), false)]
#[case(json!({ "excludedNamespaces": ["copy"] }), false)]
#[case(json!({ "includedResources": ["pods"] }), true)]
#[case(json!({ "includedResources": ["deployments.apps"] }), false)]
#[case(json!({ "excludedResources": ["po"] }), false)]
#[case(json!({ "labelSelector": { "matchLabels": { "app": "db" } } }), true)]
#[case(json!({ "labelSelector": { "matchLabels": { "app": "web" } } }), false)]
fn a_hook_of_a_restore_selects_pods_by_where_they_are_now(
    #[case] mut rule: Value,
    #[case] selects: bool,
) {
    rule["name"] = json!("r");
    rule["postHooks"] =
        json!([{ "exec": { "command": ["x"] } }, { "init": { "initContainers": [] } }]);
    assert_eq!(hooks(&json!([rule]), &json!({})).is_some(), selects);
}

#[test]
fn hooks_are_numbered_and_those_of_a_container_wait_for_the_same() {
    let rules = json!([
        { "name": "r", "postHooks": [{ "exec": { "command": ["a"] } }, { "exec": { "command": ["b"], "container": "tools" } }] },
        { "name": "s", "postHooks": [{ "exec": { "command": ["c"], "waitForReady": true } }] },
    ]);
    let found = hooks(&rules, &json!({})).unwrap().hooks;
    let found: Vec<_> = found
        .iter()
        .map(|hook| (hook.number, hook.hook.command[0].as_str(), hook.ready))
        .collect();
    assert_eq!(found, [(0, "a", true), (1, "b", false), (2, "c", true)]);
}

#[rstest::rstest]
#[case(json!({ "post.hook.restore.velero.io/command": "x", "post.hook.restore.velero.io/exec-timeout": "soon" }), "30s is meant")]
#[case(json!({ "post.hook.restore.velero.io/command": "x", "post.hook.restore.velero.io/wait-timeout": "-1s" }), "10m0s is meant")]
#[case(json!({ "post.hook.restore.velero.io/command": "x", "post.hook.restore.velero.io/on-error": "Ignore" }), "Continue is meant")]
#[case(json!({ "post.hook.restore.velero.io/command": "x", "post.hook.restore.velero.io/wait-for-ready": "yes" }), "false is meant")]
#[case(json!({ "post.hook.restore.velero.io/container": "main" }), "nothing is run")]
#[case(json!({ "init.hook.restore.velero.io/command": "x" }), "no init container is added")]
#[case(json!({ "init.hook.restore.velero.io/container-image": "i", "init.hook.restore.velero.io/timeout": "x" }), "no limit is meant")]
fn what_cannot_be_read_is_told(#[case] annotations: Value, #[case] says: &str) {
    let found = hooks(&json!([]), &annotations).unwrap();
    let [problem] = &found.problems[..] else {
        panic!("{found:?}")
    };
    let key = annotations.as_object().unwrap().keys().next_back().unwrap();
    assert_says!(problem, says, key.split('/').next().unwrap());
    let has_command = annotations
        .get("post.hook.restore.velero.io/command")
        .is_some();
    assert_eq!(
        found.hooks.len(),
        usize::from(has_command),
        "its default is meant"
    );
}

#[test]
fn a_pod_without_hooks_has_none() {
    assert_eq!(hooks(&json!([]), &json!({ "other": "x" })), None);
    let init = json!({ "init.hook.restore.velero.io/container-image": "i", "init.hook.restore.velero.io/timeout": "30s" });
    assert_eq!(hooks(&json!([]), &init), None);
}

#[test]
fn each_key_of_a_hook_counts_and_another_one_is_told() {
    let with = |prefix: &str, main: &str, key: Option<&str>| {
        let value = match key {
            Some("on-error") => "Fail",
            Some("exec-timeout" | "wait-timeout") => "3m",
            Some("timeout") => "soon",
            Some("wait-for-ready") => "true",
            _ => "tools",
        };
        let mut annotations = json!({ format!("{prefix}{main}"): "x" });
        if let Some(key) = key {
            annotations[format!("{prefix}{key}")] = json!(value);
        }
        hooks(&json!([]), &annotations)
    };
    backup_testkit::assert_each_key_counts(EXEC_KEYS.all(), &[], |key| {
        Ok::<_, String>(format!("{:?}", with(EXEC_HOOK, EXEC_KEYS.main, key)))
    });
    // The container itself is made by the action `velero.io/init-restore-hook`.
    let of_action = ["container-image", "container-name", "command"];
    backup_testkit::assert_each_key_counts(INIT_KEYS.all(), &of_action, |key| {
        Ok::<_, String>(format!("{:?}", with(INIT_HOOK, INIT_KEYS.main, key)))
    });
    for (prefix, keys) in [(EXEC_HOOK, EXEC_KEYS), (INIT_HOOK, INIT_KEYS)] {
        let found = with(prefix, keys.main, Some("time-out")).unwrap();
        assert_says!(found.problems[0], "time-out is none that a hook has");
    }
}

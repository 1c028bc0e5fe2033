use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::hooks::DEFAULT_TIMEOUT;

fn pod(annotations: &Value) -> Pod {
    let pod = json!({
        "metadata": { "namespace": "shop", "name": "db-0", "uid": "u", "labels": { "app": "db" }, "annotations": annotations },
        "spec": { "containers": [{ "name": "main" }, { "name": "tools" }] },
        "status": { "phase": "Running" },
    });
    Pod::new(&pod).unwrap()
}

fn rules(resources: &Value) -> HookRules {
    let hooks: BackupHooks = serde_json::from_value(json!({ "resources": resources })).unwrap();
    HookRules::new(Some(&hooks))
}

fn commands(hooks: &[Hook]) -> Vec<String> {
    hooks.iter().map(|hook| hook.command.join(" ")).collect()
}

#[test]
fn annotations_say_what_is_run_where_and_how_long() {
    let pod = pod(&json!({
        "pre.hook.backup.velero.io/command": r#"["/bin/fsfreeze", "--freeze", "/data"]"#,
        "pre.hook.backup.velero.io/container": "tools",
        "pre.hook.backup.velero.io/on-error": "Continue",
        "pre.hook.backup.velero.io/timeout": "3m",
        "post.hook.backup.velero.io/command": "/bin/thaw",
    }));
    let hooks = HookRules::default().for_pod(&pod);
    let [pre] = &hooks.pre[..] else {
        panic!("{hooks:?}")
    };
    assert_eq!(pre.command, ["/bin/fsfreeze", "--freeze", "/data"]);
    assert_eq!(
        (pre.container.as_str(), pre.fails, pre.timeout),
        ("tools", false, Duration::from_mins(3))
    );
    let [post] = &hooks.post[..] else {
        panic!("{hooks:?}")
    };
    assert_eq!(post.command, ["/bin/thaw"]);
    assert_eq!(
        (post.container.as_str(), post.fails, post.timeout),
        ("main", true, DEFAULT_TIMEOUT)
    );
    assert!(hooks.problems.is_empty());
}

#[test]
fn the_older_spelling_is_a_command_before() {
    let hooks =
        HookRules::default().for_pod(&pod(&json!({ "hook.backup.velero.io/command": "old" })));
    assert_eq!(
        (commands(&hooks.pre), hooks.post.len()),
        (vec!["old".to_owned()], 0)
    );
    let both = json!({ "hook.backup.velero.io/command": "old", "pre.hook.backup.velero.io/command": "new" });
    assert_eq!(
        commands(&HookRules::default().for_pod(&pod(&both)).pre),
        ["new"]
    );
}

#[test]
fn annotations_replace_the_hooks_of_the_backup_pre_or_post() {
    let rules = rules(&json!([{ "name": "r",
        "pre": [{ "exec": { "command": ["a"] } }, { "exec": { "command": ["b"] } }],
        "post": [{ "exec": { "command": ["c"] } }] }]));
    let plain = rules.for_pod(&pod(&json!({})));
    assert_eq!(
        (commands(&plain.pre), commands(&plain.post)),
        (vec!["a".into(), "b".into()], vec!["c".to_owned()])
    );
    assert_eq!(plain.pre[0].source, "hook r");
    let own = rules.for_pod(&pod(&json!({ "pre.hook.backup.velero.io/command": "own" })));
    assert_eq!(
        (commands(&own.pre), commands(&own.post)),
        (vec!["own".to_owned()], vec!["c".to_owned()])
    );
}

#[rstest::rstest]
#[case(json!({}), true)]
#[case(json!({ "includedNamespaces": ["shop"] }), true)]
#[case(json!({ "includedNamespaces": ["sh*"] }), true)]
#[case(json!({ "includedNamespaces": ["other"] }), false)]
#[case(json!({ "excludedNamespaces": ["shop"] }), false)]
#[case(json!({ "includedResources": ["po"] }), true)]
#[case(json!({ "includedResources": ["deployments.apps"] }), false)]
#[case(json!({ "excludedResources": ["pods"] }), false)]
#[case(json!({ "labelSelector": { "matchLabels": { "app": "db" } } }), true)]
#[case(json!({ "labelSelector": { "matchLabels": { "app": "web" } } }), false)]
fn a_hook_of_a_backup_selects_pods(#[case] mut rule: Value, #[case] selects: bool) {
    rule["name"] = json!("r");
    rule["pre"] = json!([{ "exec": { "command": ["x"] } }]);
    assert_eq!(
        !rules(&json!([rule])).for_pod(&pod(&json!({}))).is_empty(),
        selects
    );
}

#[rstest::rstest]
#[case(json!({ "command": ["x"] }), "main", true, 30)]
#[case(json!({ "command": ["x"], "timeout": "0s" }), "main", true, 30)]
#[case(json!({ "command": ["x"], "timeout": "90s", "onError": "Continue", "container": "tools" }), "tools", false, 90)]
#[case(json!({ "command": ["x"], "timeout": "100h", "onError": "Fail", "container": "" }), "main", true, 4 * 3600)]
fn what_a_hook_leaves_open_is_filled_in(
    #[case] exec: Value,
    #[case] container: &str,
    #[case] fails: bool,
    #[case] seconds: u64,
) {
    let hooks =
        rules(&json!([{ "name": "r", "post": [{ "exec": exec }] }])).for_pod(&pod(&json!({})));
    let [hook] = &hooks.post[..] else {
        panic!("{hooks:?}")
    };
    assert_eq!(
        (hook.container.as_str(), hook.fails, hook.timeout.as_secs()),
        (container, fails, seconds)
    );
}

#[test]
fn what_can_not_be_read_is_told_and_its_default_is_meant() {
    let hooks = HookRules::default().for_pod(&pod(&json!({
        "post.hook.backup.velero.io/command": "x",
        "post.hook.backup.velero.io/timeout": "soon",
        "post.hook.backup.velero.io/on-error": "Ignore",
    })));
    assert_eq!(
        (hooks.post[0].timeout, hooks.post[0].fails),
        (DEFAULT_TIMEOUT, true)
    );
    assert_eq!(hooks.problems.len(), 2, "{:?}", hooks.problems);
}

#[test]
fn each_key_of_a_hook_counts_and_another_one_is_told() {
    let with = |prefix: &str, key: Option<&str>| {
        let value = match key {
            Some("command") => "y",
            Some("timeout") => "3m",
            Some("on-error") => "Continue",
            _ => "tools",
        };
        let mut annotations = json!({ format!("{prefix}{KEY}command"): "x" });
        if let Some(key) = key {
            annotations[format!("{prefix}{KEY}{key}")] = json!(value);
        }
        HookRules::default().for_pod(&pod(&annotations))
    };
    for prefix in ["pre.", "post.", ""] {
        backup_testkit::assert_each_key_counts(KEYS.all(), &[], |key| {
            Ok::<_, String>(format!("{:?}", with(prefix, key)))
        });
        let [problem] = with(prefix, Some("timout")).problems.try_into().unwrap();
        assert_says!(problem, "timout is none that a hook has");
    }
}

#[test]
fn what_is_said_of_a_hook_without_a_command_is_told() {
    let annotations = json!({ "pre.hook.backup.velero.io/container": "tools" });
    let alone = json!({ "metadata": { "namespace": "shop", "name": "db-0", "annotations": annotations },
        "spec": { "containers": [{ "name": "main" }] }, "status": { "phase": "Running" } });
    let found = HookRules::default().of_text(&alone.to_string(), &annotations.to_string());
    let (_, hooks) = found.unwrap();
    let [problem] = hooks.problems.try_into().unwrap();
    assert_says!(
        problem,
        "is there without one that ends with command, so nothing is run"
    );
}

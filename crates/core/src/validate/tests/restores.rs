//! Every field of a Restore with every kind of invalid value that its schema allows.

use std::collections::BTreeSet;

use super::*;

mod drills;

/// The spec of a Restore with these fields, from a backup unless they say otherwise.
fn with(fields: &Value) -> Value {
    let mut spec = json!({ "backupName": "b" });
    json_patch::merge(&mut spec, fields);
    spec
}

fn found(spec: Value) -> Vec<Finding> {
    restore(&serde_json::from_value(spec).unwrap())
}

/// A hook with these fields.
fn hook(fields: &Value) -> Value {
    let mut hook = json!({ "name": "h" });
    json_patch::merge(&mut hook, fields);
    json!({ "hooks": { "resources": [hook] } })
}

fn exec(fields: &Value) -> Value {
    let mut exec = json!({ "command": ["true"] });
    json_patch::merge(&mut exec, fields);
    hook(&json!({ "postHooks": [{ "exec": exec }] }))
}

/// A hook with an init container that has these fields.
fn init(fields: &Value) -> Value {
    let mut container = json!({ "name": "i", "image": "busybox", "command": ["true"] });
    json_patch::merge(&mut container, fields);
    hook(&json!({ "postHooks": [{ "init": { "initContainers": [container] } }] }))
}

const HOOK: &str = "spec.hooks.resources[0]";

/// A field, an invalid value, and words of the error.
fn nonsense() -> Vec<(String, Value, &'static str)> {
    let spec = |field: &str, value: Value, words| {
        (format!("spec.{field}"), json!({ field: value }), words)
    };
    let in_hook = |field: &str, hook: Value, words| (format!("{HOOK}.{field}"), hook, words);
    let mut table = vec![
        spec("backupName", Value::Null, "name a backup, or a schedule"),
        spec("backupName", json!(""), "name a backup, or a schedule"),
        spec("backupName", json!(" "), "cannot be the name of a Backup"),
        spec(
            "backupName",
            json!("night*"),
            "cannot be the name of a Backup",
        ),
        spec(
            "backupName",
            json!("../velero/b"),
            "cannot be the name of a Backup",
        ),
        spec(
            "backupName",
            json!("x".repeat(254)),
            "cannot be the name of a Backup",
        ),
        spec(
            "scheduleName",
            json!("s"),
            "cannot be given together with backupName",
        ),
        (
            "spec.scheduleName".into(),
            json!({ "backupName": "", "scheduleName": "S" }),
            "name of a Schedule",
        ),
        (
            "spec.orLabelSelectors".into(),
            json!({ "labelSelector": {}, "orLabelSelectors": [] }),
            "together with labelSelector",
        ),
        spec("existingResourcePolicy", json!("replace"), "is not one of"),
        spec(
            "existingVolumeDataPolicy",
            json!("full"),
            "select claims only",
        ),
        spec(
            "existingVolumeDataPolicy",
            json!("replace"),
            "is not one of",
        ),
        spec("existingResourcePolicy", json!("Update"), "is not one of"),
        spec("existingResourcePolicy", json!(" "), "is not one of"),
        spec("itemOperationTimeout", json!("-1ns"), "is negative"),
        spec("itemOperationTimeout", json!("-2540400h"), "is negative"),
        (
            "spec.uploaderConfig.parallelFilesDownload".into(),
            json!({ "uploaderConfig": { "parallelFilesDownload": -1 } }),
            "negative",
        ),
        in_hook("name", hook(&json!({ "name": "" })), "must not be empty"),
        in_hook("name", hook(&json!({ "name": " " })), "must not be empty"),
        in_hook(
            "labelSelector.matchLabels",
            hook(&json!({ "labelSelector": { "matchLabels": { "-": "x" } } })),
            "not a label key",
        ),
        in_hook(
            "postHooks[0]",
            hook(&json!({ "postHooks": [{}] })),
            "neither exec nor init",
        ),
        in_hook(
            "postHooks[0].exec.container",
            exec(&json!({ "container": " " })),
            "name of a container",
        ),
        in_hook(
            "postHooks[0].exec.container",
            exec(&json!({ "container": "Main*" })),
            "name of a container",
        ),
        in_hook(
            "postHooks[0].exec.command",
            exec(&json!({ "command": [] })),
            "must not be empty",
        ),
        in_hook(
            "postHooks[0].exec.command",
            exec(&json!({ "command": [" ", "x"] })),
            "begin with a program",
        ),
        in_hook(
            "postHooks[0].exec.onError",
            exec(&json!({ "onError": "Ignore" })),
            "is not one of",
        ),
        in_hook(
            "postHooks[0].exec.execTimeout",
            exec(&json!({ "execTimeout": "-1s" })),
            "is negative",
        ),
        in_hook(
            "postHooks[0].exec.waitTimeout",
            exec(&json!({ "waitTimeout": "-1h" })),
            "is negative",
        ),
        in_hook(
            "postHooks[0].init.initContainers",
            hook(&json!({ "postHooks": [{ "init": {} }] })),
            "must not be empty",
        ),
        in_hook(
            "postHooks[0].init.timeout",
            {
                let mut init = init(&json!({}));
                init["hooks"]["resources"][0]["postHooks"][0]["init"]["timeout"] = json!("-1s");
                init
            },
            "is negative",
        ),
        in_hook(
            "postHooks[0].init.initContainers[0]",
            init(&json!({ "name": "" })),
            "has no name",
        ),
        in_hook(
            "postHooks[0].init.initContainers[0]",
            init(&json!({ "image": " " })),
            "has no image",
        ),
        in_hook(
            "postHooks[0].init.initContainers[0]",
            init(&json!({ "command": [] })),
            "has no command",
        ),
        in_hook(
            "postHooks[0].init.initContainers[0]",
            init(&json!({ "image": 5 })),
            "is no container",
        ),
        in_hook(
            "postHooks[0].init.initContainers[0]",
            init(&json!({ "command": "true" })),
            "is no container",
        ),
        in_hook(
            "postHooks[0].init.initContainers[0].name",
            init(&json!({ "name": "My init" })),
            "name of a container",
        ),
        in_hook(
            "postHooks[0].init.initContainers[1].name",
            {
                let one = json!({ "name": "i", "image": "busybox", "command": ["true"] });
                hook(
                    &json!({ "postHooks": [{ "init": { "initContainers": [one.clone(), one] } }] }),
                )
            },
            "of another one",
        ),
    ];
    for (from, to, words) in [
        ("a", "", "name of a namespace"),
        ("a", "B", "name of a namespace"),
        ("a", "team-*", "name of a namespace"),
        ("*", "b", "no globs"),
        ("team-?", "b", "no globs"),
        (" ", "b", "no globs"),
        ("A", "b", "no globs"),
    ] {
        table.push((
            format!("spec.namespaceMapping.{from}"),
            json!({ "namespaceMapping": { from: to } }),
            words,
        ));
    }
    for (objects, field, words) in [
        (json!(["web"]), "spec.includedObjects[0]", "names no object"),
        (
            json!(["pv/a", "shop/deployments/"]),
            "spec.includedObjects[1]",
            "names no object",
        ),
        (
            json!(["Shop/deployments/web"]),
            "spec.includedObjects[0]",
            "name of a namespace",
        ),
        (
            json!(["bank/deployments/web"]),
            "spec.includedObjects[0]",
            "not among the namespaces",
        ),
        (
            json!(vec!["pv/a"; 101]),
            "spec.includedObjects",
            "more than 100",
        ),
    ] {
        let spec = json!({ "includedObjects": objects, "includedNamespaces": ["shop"] });
        table.push((field.to_owned(), spec, words));
    }
    for (fields, words) in [
        (json!({}), "has to name each namespace"),
        (
            json!({ "includedNamespaces": ["*"] }),
            "has to name each namespace",
        ),
        (
            json!({ "includedNamespaces": ["shop", "team-?"] }),
            "has to name each namespace",
        ),
        (
            json!({ "includedNamespaces": [""] }),
            "has to name each namespace",
        ),
        (
            json!({ "includedNamespaces": ["shop"], "includedObjects": ["shop/cm/settings"] }),
            "names objects of the backup",
        ),
        (
            json!({ "includedNamespaces": ["shop"], "includedResources": ["pvc", "Lease", "ep"] }),
            "always kept",
        ),
    ] {
        let mut spec = json!({ "prune": true });
        json_patch::merge(&mut spec, &fields);
        table.push(("spec.prune".to_owned(), spec, words));
    }
    let twice = json!({ "namespaceMapping": { "a": "x", "b": "x" } });
    table.push((
        "spec.namespaceMapping.b".into(),
        twice,
        "needs a target of its own",
    ));
    for (selector, field, words) in [
        (
            json!({ "matchLabels": { "": "x" } }),
            "matchLabels",
            "not a label key",
        ),
        (
            json!({ "matchLabels": { "a/b/c": "x" } }),
            "matchLabels",
            "not a label key",
        ),
        (
            json!({ "matchLabels": { "a": "*" } }),
            "matchLabels",
            "not a label value",
        ),
        (
            json!({ "matchLabels": { "a": "x".repeat(64) } }),
            "matchLabels",
            "not a label value",
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] }),
            "matchExpressions[0]",
            "is not one of",
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }),
            "matchExpressions[0]",
            "not be empty",
        ),
        (
            json!({ "matchExpressions": [{ "key": "", "operator": "Exists" }] }),
            "matchExpressions[0].key",
            "label key",
        ),
        (
            json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["b c"] }] }),
            "matchExpressions[0].values",
            "label value",
        ),
    ] {
        table.push((
            format!("spec.labelSelector.{field}"),
            json!({ "labelSelector": selector }),
            words,
        ));
        table.push((
            format!("spec.orLabelSelectors[0].{field}"),
            json!({ "orLabelSelectors": [selector] }),
            words,
        ));
    }
    for field in ["resourceModifier", "resourcePolicy"] {
        for (reference, part, words) in [
            (
                json!({ "kind": "Secret", "name": "x" }),
                "kind",
                "name a ConfigMap",
            ),
            (
                json!({ "kind": "", "name": "x" }),
                "kind",
                "name a ConfigMap",
            ),
            (
                json!({ "kind": "ConfigMap", "name": "" }),
                "name",
                "name of a ConfigMap",
            ),
            (
                json!({ "kind": "ConfigMap", "name": "X*" }),
                "name",
                "name of a ConfigMap",
            ),
        ] {
            table.push((
                format!("spec.{field}.{part}"),
                json!({ field: reference }),
                words,
            ));
        }
    }
    for (lists, path) in [
        ("", "spec"),
        ("restoreStatus", "spec.restoreStatus"),
        ("hooks", HOOK),
    ] {
        let place = |value: Value| match lists {
            "" => value,
            "hooks" => hook(&value),
            parent => json!({ parent: value }),
        };
        for list in ["includedResources", "excludedResources"] {
            for (items, words) in [
                (json!([""]), "is empty"),
                (json!([" "]), "is empty"),
                (json!(["pods,secrets"]), "more than one name"),
                (json!(["pods/log"]), "has a character"),
                (json!(["{pods"]), "without a }"),
                (json!(["[p"]), "without a ]"),
            ] {
                table.push((
                    format!("{path}.{list}"),
                    place(json!({ list: items })),
                    words,
                ));
            }
        }
        let both = json!({ "includedResources": ["pods"], "excludedResources": ["pods"] });
        table.push((
            format!("{path}.excludedResources"),
            place(both),
            "remove it from one of them",
        ));
        let star = json!({ "includedResources": ["*", "pods"] });
        table.push((
            format!("{path}.includedResources"),
            place(star),
            "already means all",
        ));
        if lists == "restoreStatus" {
            let star = json!({ "excludedResources": ["*", "pods"] });
            table.push((
                format!("{path}.excludedResources"),
                place(star),
                "already means all",
            ));
            let all = json!({ "includedResources": ["pods"], "excludedResources": ["*"] });
            table.push((
                format!("{path}.includedResources"),
                place(all),
                "must be empty",
            ));
            continue;
        }
        let all = json!({ "excludedResources": ["*"] });
        table.push((
            format!("{path}.excludedResources"),
            place(all),
            "would leave nothing",
        ));
        for list in ["includedNamespaces", "excludedNamespaces"] {
            for (items, words) in [
                (json!([" "]), "name of a namespace"),
                (json!(["Shop"]), "name of a namespace"),
                (json!(["a.b"]), "name of a namespace"),
                (json!(["a**"]), "more than one *"),
                (json!(["{a,b}"]), "has a character"),
                (json!(["[a"]), "without a ]"),
            ] {
                table.push((
                    format!("{path}.{list}"),
                    place(json!({ list: items })),
                    words,
                ));
            }
        }
        let both = json!({ "includedNamespaces": ["a"], "excludedNamespaces": ["a"] });
        table.push((
            format!("{path}.excludedNamespaces"),
            place(both),
            "remove it from one of them",
        ));
        let star = json!({ "includedNamespaces": ["*", "a"] });
        table.push((
            format!("{path}.includedNamespaces"),
            place(star),
            "already means all",
        ));
        let all = json!({ "excludedNamespaces": ["*"] });
        table.push((
            format!("{path}.excludedNamespaces"),
            place(all),
            "would leave nothing",
        ));
    }
    table.push(spec(
        "includedResources",
        json!(["nodes"]),
        "cannot be restored",
    ));
    table.extend(drills::nonsense());
    table
}

#[test]
fn each_nonsense_in_a_restore_is_one_error_that_names_its_field() {
    for (field, fields, words) in nonsense() {
        let findings = found(with(&fields));
        let [finding] = findings.as_slice() else {
            panic!("{fields}: {findings:?}")
        };
        assert_eq!(finding.field, field, "{fields}: {finding}");
        assert!(finding.message.contains(words), "{fields}: {finding}");
    }
}

/// Every field of the schema: one that is neither a boolean nor in the table was forgotten.
#[test]
fn every_field_of_a_restore_has_its_nonsense() {
    let crd = crate::api::crd::all()
        .into_iter()
        .find(|crd| crd.spec.names.kind == "Restore")
        .unwrap();
    let schema = serde_json::to_value(crd).unwrap();
    let spec = &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let fields: BTreeSet<String> = nonsense().into_iter().map(|(field, ..)| field).collect();
    let mut missing = Vec::new();
    leaves("spec", spec, &mut |path| {
        if !fields.iter().any(|field| field.starts_with(path)) {
            missing.push(path.to_owned());
        }
    });
    // Only ConfigMaps are read, whatever their group. The other two are booleans in their parents.
    missing.retain(|path| !path.ends_with(".apiGroup"));
    assert_eq!(missing, [""; 0]);
}

/// The paths of all fields except booleans, with the first item of each list.
fn leaves(path: &str, schema: &Value, leaf: &mut impl FnMut(&str)) {
    let selector = path.ends_with("abelSelector") || path.ends_with("LabelSelectors[0]");
    match schema["type"].as_str() {
        Some("boolean") => {}
        Some("object") if schema["properties"].is_object() && !selector => {
            for (name, property) in schema["properties"].as_object().unwrap() {
                leaves(&format!("{path}.{name}"), property, leaf);
            }
        }
        Some("array") if schema["items"]["type"] == "object" => {
            leaves(&format!("{path}[0]"), &schema["items"], leaf);
        }
        _ => leaf(path),
    }
}

#[test]
fn all_nonsense_of_a_restore_is_found_at_once() {
    let selector = json!({ "matchLabels": { "a": "b c" } });
    let lists = json!({
        "includedNamespaces": ["Shop"], "excludedNamespaces": ["*"],
        "includedResources": [""], "excludedResources": ["pods/log"],
    });
    let mut hook = json!({
        "name": "",
        "labelSelector": selector,
        "postHooks": [
            {},
            { "exec": { "container": "A", "command": [], "onError": "x", "execTimeout": "-1s", "waitTimeout": "-1s" } },
            { "init": { "initContainers": [{ "name": "A" }], "timeout": "-1s" } },
        ],
    });
    json_patch::merge(&mut hook, &lists);
    let mut spec = json!({
        "backupName": "B", "scheduleName": "S",
        "namespaceMapping": { "*": "B" },
        "labelSelector": selector, "orLabelSelectors": [selector],
        "restoreStatus": { "includedResources": [""], "excludedResources": ["a,b"] },
        "hooks": { "resources": [hook] },
        "existingResourcePolicy": "x",
        "itemOperationTimeout": "-1s",
        "resourceModifier": { "kind": "Secret", "name": "" },
        "resourcePolicy": { "kind": "Secret", "name": "" },
        "uploaderConfig": { "parallelFilesDownload": -1 },
    });
    json_patch::merge(&mut spec, &lists);
    let all: BTreeSet<String> = found(spec.clone())
        .into_iter()
        .map(|finding| finding.field)
        .collect();
    let fields = [
        "spec.backupName",
        "spec.scheduleName",
        "spec.includedNamespaces",
        "spec.excludedNamespaces",
        "spec.includedResources",
        "spec.excludedResources",
        "spec.namespaceMapping.*",
        "spec.labelSelector.matchLabels",
        "spec.orLabelSelectors",
        "spec.orLabelSelectors[0].matchLabels",
        "spec.restoreStatus.includedResources",
        "spec.restoreStatus.excludedResources",
        "spec.existingResourcePolicy",
        "spec.itemOperationTimeout",
        "spec.resourceModifier.kind",
        "spec.resourceModifier.name",
        "spec.resourcePolicy.kind",
        "spec.resourcePolicy.name",
        "spec.uploaderConfig.parallelFilesDownload",
    ];
    let of_hook = [
        "name",
        "labelSelector.matchLabels",
        "includedNamespaces",
        "excludedNamespaces",
        "includedResources",
        "excludedResources",
        "postHooks[0]",
        "postHooks[1].exec.container",
        "postHooks[1].exec.command",
        "postHooks[1].exec.onError",
        "postHooks[1].exec.execTimeout",
        "postHooks[1].exec.waitTimeout",
        "postHooks[2].init.timeout",
        "postHooks[2].init.initContainers[0]",
        "postHooks[2].init.initContainers[0].name",
    ];
    let of_hook = of_hook.iter().map(|field| format!("{HOOK}.{field}"));
    let expected: BTreeSet<String> = fields
        .iter()
        .map(ToString::to_string)
        .chain(of_hook)
        .collect();
    assert_eq!(all, expected);

    // Also if another part cannot be decoded, wherever it is.
    for (pointer, field) in [
        ("/itemOperationTimeout", "spec.itemOperationTimeout"),
        (
            "/hooks/resources/0/postHooks/1/exec/execTimeout",
            "spec.hooks.resources[0].postHooks[1].exec.execTimeout",
        ),
    ] {
        let mut odd = spec.clone();
        *odd.pointer_mut(pointer).unwrap() = json!("soon");
        let findings = raw_restore(&json!({ "spec": odd }));
        assert_eq!(
            (
                findings[0].field.as_str(),
                findings[0].message.contains("not a duration")
            ),
            (field, true)
        );
        let found: BTreeSet<String> = findings.into_iter().map(|finding| finding.field).collect();
        assert_eq!(found, expected);
    }
    // A hook without a command cannot be checked further; other parts can.
    spec["hooks"]["resources"][0]["postHooks"][1]["exec"] = json!({});
    let findings = raw_restore(&json!({ "spec": spec }));
    let found: BTreeSet<String> = findings.into_iter().map(|finding| finding.field).collect();
    let command = format!("{HOOK}.postHooks[1].exec.command");
    assert_eq!(
        found,
        fields
            .iter()
            .map(ToString::to_string)
            .chain([command])
            .collect()
    );
}

#[test]
fn all_reasons_against_a_removal_are_found_at_once() {
    let fields =
        json!({ "prune": true, "includedObjects": ["pv/a"], "includedResources": ["pvc"] });
    let all = found(with(&fields));
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().all(|finding| finding.field == "spec.prune"));
}

/// Unusual but valid values, which Velero accepts too.
#[rstest::rstest]
#[case::no_wait(json!({ "itemOperationTimeout": "0s" }))]
#[case::as_long_as_can_be_said(json!({ "itemOperationTimeout": "2562047h47m16.854775807s" }))]
#[case::named_twice(json!({ "includedNamespaces": ["a", "a"], "includedResources": ["pods", "pods"] }))]
#[case::in_no_namespace(json!({ "includedNamespaces": [""] }))]
#[case::onto_itself(json!({ "namespaceMapping": { "a": "a" } }))]
#[case::no_policy(json!({ "existingResourcePolicy": "" }))]
#[case::no_removal(json!({ "prune": false, "includedObjects": ["pv/a"] }))]
#[case::a_removal_in_one_namespace(json!({ "prune": true, "includedNamespaces": ["shop"],
    "namespaceMapping": { "shop": "copy" }, "existingResourcePolicy": "update" }))]
#[case::a_removal_of_some_types(json!({ "prune": true, "includedNamespaces": ["shop"],
    "includedResources": ["pvc", "configmaps"] }))]
#[case::every_status(json!({ "restoreStatus": {} }))]
#[case::every_label(json!({ "labelSelector": {} }))]
#[case::an_empty_uploader(json!({ "uploaderConfig": {} }))]
#[case::a_hook_without_commands(json!({ "hooks": { "resources": [{ "name": "h" }] } }))]
#[case::the_first_container(json!({ "hooks": { "resources": [{ "name": "h", "postHooks": [
    { "exec": { "container": "", "command": ["true"], "execTimeout": "0s" } } ] }] } }))]
#[case::any_spelling_of_the_kind(json!({ "resourceModifier": { "kind": "configMap", "name": "m" } }))]
fn a_restore_may_say(#[case] fields: Value) {
    assert_eq!(found(with(&fields)), []);
}

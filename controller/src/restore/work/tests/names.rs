//! Specs with names that the backup does not hold, or that select nothing.

use super::*;

fn items() -> [(&'static str, Option<&'static str>, Value); 5] {
    let mut named = definition("gizmos").2;
    named["spec"] = json!({ "group": "example.com", "scope": "Namespaced",
        "names": { "plural": "gizmos", "kind": "Gizmo", "singular": "gizmo", "shortNames": ["gz"] },
        "versions": [{ "name": "v1", "served": true, "storage": true }] });
    [
        stored_item("configmaps", "v1 ConfigMap", "a/one"),
        stored_item("pods", "v1 Pod", "b/p"),
        stored_item("gizmos.example.com", "example.com/v1 Gizmo", "a/g"),
        stored_item(
            "databaserestores.example.com",
            "example.com/v1 DatabaseRestore",
            "a/r",
        ),
        (DEFINITIONS, None, named),
    ]
}

/// Why the restore does not begin, and what it has written.
async fn refusal(items: Items<'_>, spec: &Value) -> (String, Vec<String>) {
    let fake = fake::server();
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let (_, done) = run(&fake, &calls, items, spec.clone(), &claimed, vec![]).await;
    let why = match done {
        Err(RestoreError::Refused(why)) => why,
        other => panic!("{spec}: {other:?}"),
    };
    let writes = fake
        .log()
        .iter()
        .filter(|line| !line.starts_with("GET "))
        .cloned()
        .collect();
    (why, writes)
}

#[tokio::test]
async fn a_name_that_the_backup_does_not_hold_ends_the_restore_before_it_writes() {
    for (spec, expected) in [
        (
            json!({"includedNamespaces": ["aa"]}),
            "namespace \"aa\" is not in backup",
        ),
        (
            json!({"includedNamespaces": ["a", "aa"]}),
            "namespace \"aa\" is not in backup",
        ),
        (
            json!({"namespaceMapping": {"aa": "copy"}}),
            "spec.namespaceMapping.aa: namespace \"aa\" is not in backup",
        ),
        (
            json!({"namespaceMapping": {"aa": "copy"}, "existingResourcePolicy": "update"}),
            "spec.namespaceMapping.aa: namespace \"aa\" is not in backup",
        ),
        (
            json!({"namespaceMapping": {"b": "copy"}, "includedNamespaces": ["a"]}),
            "spec.namespaceMapping.b: namespace \"b\" is not among the namespaces that are restored",
        ),
        (
            json!({"includedResources": ["configmapz"]}),
            "no type is called \"configmapz\"",
        ),
        (
            json!({"includedResources": ["configmaps", "deployment"]}),
            "holds no deployments.apps",
        ),
        (
            json!({"includedObjects": ["a/configmaps/two"]}),
            "a/configmaps/two is not in the backup",
        ),
        (
            json!({"includedObjects": ["a/nonsense/one", "a/configmaps/one"]}),
            "a/nonsense/one is not in the backup",
        ),
        (
            json!({"includedObjects": ["a/configmaps/one"], "excludedResources": ["configmaps"]}),
            "a/configmaps/one is not in the backup, or left out",
        ),
    ] {
        let (why, writes) = refusal(&items(), &spec).await;
        assert!(why.contains(expected), "{spec}: {why}");
        assert_eq!(writes, [""; 0], "{spec}");
    }
}

#[tokio::test]
async fn a_restore_of_nothing_does_not_begin() {
    for (spec, expected) in [
        (
            json!({"includedNamespaces": ["x*"]}),
            "select no item of backup",
        ),
        (
            json!({"labelSelector": {"matchLabels": {"app": "none"}}}),
            "select no item of backup",
        ),
        (
            json!({"includedNamespaces": ["b"], "includedResources": ["configmaps"]}),
            "select no item of backup",
        ),
        (
            json!({"includedResources": ["databaser*"]}),
            "databaserestores.example.com would start work and have to be named in spec.includedResources",
        ),
    ] {
        let (why, writes) = refusal(&items(), &spec).await;
        assert!(why.contains(expected), "{spec}: {why}");
        assert_eq!(writes, [""; 0], "{spec}");
    }
    assert_eq!(
        refusal(&[], &json!({"backupName": "b"})).await.0,
        "backup \"b\" holds no items"
    );
}

#[tokio::test]
async fn a_pattern_without_a_match_is_a_warning() {
    let spec =
        json!({"includedNamespaces": ["a", "x*"], "includedResources": ["configmaps", "*.none"]});
    let (fake, report) = restored(&items(), spec).await;
    assert!(fake.get("/api/v1/namespaces/a/configmaps/one").is_some());
    assert_eq!(report.counts(), (2, 0));
    let warnings = report.into_files().results.warnings.velero;
    assert_says!(warnings[0], "\"x*\" matches no namespace");
    assert_says!(warnings[1], "\"*.none\" matches no type");
}

#[tokio::test]
async fn types_are_called_as_their_definition_in_the_backup_says() {
    for name in ["gz", "Gizmo", "gizmos", "gizmos.example.com"] {
        let (_, report) = restored(&items(), json!({"includedResources": [name]})).await;
        let listed = listed(report);
        let gizmos = listed["example.com/v1/Gizmo"].to_string();
        assert!(gizmos.contains("a/g("), "{name}: {listed}");
        assert_eq!(listed["v1/ConfigMap"], Value::Null, "{name}");
    }
}

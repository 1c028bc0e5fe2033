//! The fields of a Restore that is a drill.

use super::*;

/// Fields of a drill of namespace `shop`, an invalid value of each, and words of the error.
pub(super) fn nonsense() -> Vec<(String, Value, &'static str)> {
    let in_drill = |field: &str, drill: Value, words| {
        let fields = json!({ "includedNamespaces": ["shop"], "includeClusterResources": false,
            "restorePVs": false, "namespaceMapping": { "shop": "drill-0123abcd-shop" }, "drill": drill });
        (format!("spec.drill.{field}"), fields, words)
    };
    let mut table = vec![
        in_drill(
            "quota.pods",
            json!({ "quota": { "pods": "many" } }),
            "is no quantity",
        ),
        in_drill(
            "additionalResources[0]",
            json!({ "additionalResources": ["persistentvolumeclaims"] }),
            "are not restored by a drill",
        ),
        in_drill(
            "readyTimeout",
            json!({ "readyTimeout": "0s" }),
            "is no time to wait",
        ),
    ];
    let job = json!({ "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } } });
    for (field, check, words) in [
        (
            "name",
            json!({ "name": "A b", "job": job }),
            "name of a check",
        ),
        (
            "namespace",
            json!({ "namespace": "db", "job": job }),
            "is not among",
        ),
        (
            "timeout",
            json!({ "timeout": "-1s", "job": job }),
            "is no time to wait",
        ),
        ("job", json!({ "job": {} }), "is no spec of a Job"),
        (
            "resource",
            json!({ "resource": "secrets", "expression": "true" }),
            "are not read by expressions",
        ),
        (
            "expression",
            json!({ "resource": "pods", "expression": "" }),
            "is empty",
        ),
    ] {
        let mut checked = json!({ "name": "a", "namespace": "shop" });
        json_patch::merge(&mut checked, &check);
        table.push(in_drill(
            &format!("checks[0].{field}"),
            json!({ "checks": [checked] }),
            words,
        ));
    }
    table
}

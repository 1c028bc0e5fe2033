//! The status of what is restored.

use super::*;

/// By the spec, or by the object itself; only of what the restore has created.
#[tokio::test]
async fn the_status_of_an_object_is_restored_where_that_is_asked_for() {
    let with = |name: &str, says: Option<&str>| {
        let mut pod = item("v1", "Pod", name);
        pod["status"] = json!({ "phase": "Running" });
        if let Some(says) = says {
            pod["metadata"]["annotations"] = json!({ "velero.io/restore-status": says });
        }
        ("pods", Some("a"), pod)
    };
    let items = [
        with("silent", None),
        with("yes", Some("true")),
        with("no", Some("false")),
        with("what", Some("maybe")),
    ];
    for (status, restored_status) in [
        (json!(null), vec!["yes"]),
        (json!({}), vec!["silent", "yes"]),
        (json!({ "includedResources": ["po"] }), vec!["silent", "yes"]),
        (json!({ "includedResources": ["Pod"] }), vec!["silent", "yes"]),
        (json!({ "excludedResources": ["pods"] }), vec!["yes"]),
    ] {
        let fake = fake::server();
        fake.put("/api/v1/namespaces/a/pods/there", item("v1", "Pod", "there"));
        let there = with("there", Some("true"));
        let report =
            restored_in(&fake, &[&items[..], &[there]].concat(), json!({ "restoreStatus": status })).await;
        assert_eq!(report.counts(), (2, 0), "one has a value that is neither, and one is there");
        let pods = fake.under("/api/v1/namespaces/a/pods/");
        let named = pods.values().filter(|pod| pod["status"]["phase"] == "Running");
        let named: Vec<_> = named.map(|pod| pod["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(named, restored_status, "{status}");
    }
}

#[tokio::test]
async fn a_status_that_is_refused_is_a_warning() {
    let mut pod = item("v1", "Pod", "p");
    pod["status"] = json!({ "phase": "Running" });
    let fake = fake::faulty(|request| {
        let refused = request.path.ends_with("/pods/p/status");
        refused.then(|| Fault::refuse(422, "Invalid", "phase is not for you"))
    });
    let report = restored_in(&fake, &[("pods", Some("a"), pod)], json!({ "restoreStatus": {} })).await;
    assert!(fake.get("/api/v1/namespaces/a/pods/p").is_some());
    assert_eq!(report.counts(), (1, 0));
    let warning = report.into_files().results.warnings.namespaces["a"][0].clone();
    assert!(warning.contains("without its status") && warning.contains("phase is not for you"), "{warning}");
}

//! The status of restored objects.

use super::*;

/// Requested by the spec or by the object itself; only for objects that the restore has created.
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
        (
            json!({ "includedResources": ["po"] }),
            vec!["silent", "yes"],
        ),
        (
            json!({ "includedResources": ["Pod"] }),
            vec!["silent", "yes"],
        ),
        (json!({ "excludedResources": ["pods"] }), vec!["yes"]),
    ] {
        let fake = fake::server();
        fake.put(
            "/api/v1/namespaces/a/pods/there",
            item("v1", "Pod", "there"),
        );
        let there = with("there", Some("true"));
        let report = restored_in(
            &fake,
            &[&items[..], &[there]].concat(),
            json!({ "restoreStatus": status }),
        )
        .await;
        assert_eq!(
            report.counts(),
            (2, 0),
            "one has a value that is neither, and one is there"
        );
        let pods = fake.under("/api/v1/namespaces/a/pods/");
        let named = pods
            .values()
            .filter(|pod| pod["status"]["phase"] == "Running");
        let named: Vec<_> = named
            .map(|pod| pod["metadata"]["name"].as_str().unwrap())
            .collect();
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
    let report = restored_in(
        &fake,
        &[("pods", Some("a"), pod)],
        json!({ "restoreStatus": {} }),
    )
    .await;
    assert!(fake.get("/api/v1/namespaces/a/pods/p").is_some());
    assert_eq!(report.counts(), (1, 0));
    let warning = report.into_files().results.warnings.namespaces["a"][0].clone();
    assert_says!(warning, "without its status", "phase is not for you");
}

#[tokio::test]
async fn a_status_that_is_plain_data_is_restored_or_named() {
    let with = |name: &str, says: Option<&str>| {
        let mut note = item("example.com/v1", "Note", name);
        note["status"] = json!({ "text": "kept" });
        if let Some(says) = says {
            note["metadata"]["annotations"] = json!({ "velero.io/restore-status": says });
        }
        ("notes.example.com", Some("a"), note)
    };
    let items = [
        with("silent", None),
        with("yes", Some("true")),
        with("no", Some("false")),
    ];
    for (status, restored_status, warned) in [
        (json!(null), vec!["yes"], true),
        (
            json!({ "includedResources": ["notes"] }),
            vec!["silent", "yes"],
            false,
        ),
        (
            json!({ "excludedResources": ["notes"] }),
            vec!["yes"],
            false,
        ),
    ] {
        let (fake, report) = restored(&items, json!({ "restoreStatus": status })).await;
        let notes = fake.under("/apis/example.com/v1/namespaces/a/notes/");
        let kept = notes
            .values()
            .filter(|note| note["status"]["text"] == "kept");
        let kept: Vec<_> = kept
            .map(|note| note["metadata"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(kept, restored_status, "{status}");
        let warnings = serde_json::to_string(&report.into_files().results.warnings).unwrap();
        assert_eq!(
            warnings.contains("\\\"silent\\\" was restored without its status"),
            warned,
            "{warnings}"
        );
        assert_eq!(
            warnings.matches("without its status").count(),
            usize::from(warned),
            "{warnings}"
        );
    }
}

#[tokio::test]
async fn a_status_that_an_existing_object_keeps_is_named_where_it_was_asked_for() {
    let pod = |phase: &str| {
        let mut pod = item("v1", "Pod", "p");
        pod["status"] = json!({ "phase": phase });
        pod
    };
    for (spec, there, warnings) in [
        (json!({ "restoreStatus": {} }), "Pending", 1),
        (json!({ "restoreStatus": {} }), "Running", 0),
        (json!({}), "Pending", 0),
    ] {
        let fake = fake::server();
        fake.put("/api/v1/namespaces/a/pods/p", pod(there));
        let report = restored_in(&fake, &[("pods", Some("a"), pod("Running"))], spec.clone()).await;
        assert_eq!(report.counts(), (warnings, 0), "{spec} {there}");
        assert_eq!(
            fake.get("/api/v1/namespaces/a/pods/p").unwrap()["status"]["phase"],
            there
        );
    }
    let fake = fake::server();
    let note = |text: &str| {
        let mut note = item("example.com/v1", "Note", "n");
        note["status"] = json!({ "text": text });
        note
    };
    fake.put("/apis/example.com/v1/namespaces/a/notes/n", note("other"));
    let report = restored_in(
        &fake,
        &[("notes.example.com", Some("a"), note("kept"))],
        json!({}),
    )
    .await;
    assert_eq!(report.counts(), (1, 0), "data that differs");
    let left = report.summary().left;
    assert_eq!(
        (left.left, left.incomplete),
        (1, 0),
        "nothing of what was left was stored: {left}"
    );
}

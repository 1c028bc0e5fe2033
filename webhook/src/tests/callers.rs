//! Authorization of callers, limits on requests, and malformed reviews.

use backup_core::labels::{BREAK_GLASS_ANNOTATION, ON_CONFLICT_ANNOTATION};
use rstest::rstest;

use super::*;

#[tokio::test]
async fn who_does_not_know_the_path_is_told_so_and_nothing_is_read_or_written() {
    let (api, replica) = one_replica();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": creation("Restore", "r", "1", restore_spec())});
    for path in [
        "/",
        "/validate",
        "/validate/",
        &"/validate/0".repeat(7),
        &replica.path[..replica.path.len() - 1],
    ] {
        let (status, answer) = replica.post_to(path, review.to_string().into_bytes()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert_says!(answer["message"].as_str().unwrap(), "registration");
    }
    assert_eq!((api.writes(), ledger_version(&api)), (0, Value::Null));
}

/// Another replica may have changed the path just before the API server went away.
#[tokio::test]
async fn who_comes_by_a_newer_path_while_the_registration_cannot_be_read_may_come_again() {
    for could_read in [false, true] {
        let api = FakeApi::new();
        let (look, mut asked) = mpsc::channel::<oneshot::Sender<bool>>(1);
        tokio::spawn(async move {
            while let Some(caller) = asked.recv().await {
                caller.send(could_read).unwrap();
            }
        });
        let replica = Replica::looking_by(look, &api, Vec::new(), |_| {});
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": creation("Backup", "b", "1", backup_spec())});
        let newer = SecretPaths::make().unwrap();
        for (path, code) in [
            (newer.as_str(), if could_read { 403 } else { 200 }),
            ("/validate", 403),
        ] {
            let (status, answer) = replica.post_to(path, review.to_string().into_bytes()).await;
            assert_eq!(status.as_u16(), code, "{answer}");
            if code == 200 {
                let answer = &answer["response"];
                assert_eq!(
                    (&answer["allowed"], &answer["status"]["code"]),
                    (&json!(false), &json!(503))
                );
                assert!(message(answer).contains("try again"), "{answer}");
            }
        }
        assert_eq!((api.writes(), ledger_version(&api)), (0, Value::Null));
    }
}

#[tokio::test]
async fn a_repeated_creation_does_not_widen_an_entry() {
    let (api, replica) = one_replica();
    replica.run(&api, "Backup", "b", "1", backup_spec()).await;
    activate(&replica.store, &ObjectKey::backup("velero", "b"), "1")
        .await
        .unwrap();
    let queued = |spec: Value| {
        let mut request = creation("Restore", "r", "2", spec);
        request["object"]["metadata"]["annotations"] = json!({ON_CONFLICT_ANNOTATION: "queue"});
        request
    };
    assert!(allowed(&replica.review(queued(restore_spec())).await));
    let entry = async || {
        let ledger = replica.ledger().await;
        ledger
            .entry(&ObjectKey::restore("velero", "r"), "2")
            .unwrap()
            .clone()
    };
    let before = entry().await;
    assert_eq!(before.state, State::Waiting);
    replica
        .review(queued(
            json!({"backupName": "old", "includedNamespaces": ["*"]}),
        ))
        .await;
    let after = entry().await;
    assert_eq!(
        (after.state, &after.footprint),
        (State::Waiting, &before.footprint)
    );
}

#[tokio::test]
async fn a_deletion_wants_nothing_that_its_backup_was_created_with() {
    let (api, replica) = one_replica();
    for annotations in [
        json!({BREAK_GLASS_ANNOTATION: "it burned then"}),
        json!({ON_CONFLICT_ANNOTATION: "queue"}),
        json!({ON_CONFLICT_ANNOTATION: "whatever"}),
    ] {
        let mut request = creation("Backup", "old", "0", backup_spec());
        request["operation"] = json!("DELETE");
        let mut stored = request["object"].take();
        stored["status"] = json!({"phase": "Completed"});
        stored["metadata"]["annotations"] = annotations.clone();
        request["oldObject"] = stored;
        let answer = replica.review(request).await;
        assert!(allowed(&answer), "{annotations}: {answer}");
    }
    assert!(
        !api.requests()
            .iter()
            .any(|request| request.path.contains("subjectaccessreviews"))
    );
}

#[rstest]
#[case::of_no_request(json!(null), "request")]
#[case::without_a_uid_of_its_own(json!({"uid": null}), "uid")]
#[case::without_an_operation(json!({"operation": null}), "operation")]
#[case::with_an_operation_of_tomorrow(json!({"operation": "DREAM"}), "DREAM")]
#[case::whose_kind_is_a_number(json!({"kind": 7}), "7")]
#[tokio::test]
async fn a_malformed_review_is_told_what_is_wrong(#[case] change: Value, #[case] says: &str) {
    let (api, replica) = one_replica();
    let mut request = creation("Backup", "b", "1", backup_spec());
    match change.as_object() {
        Some(fields) => fields
            .iter()
            .for_each(|(name, value)| request[name] = value.clone()),
        None => request = Value::Null,
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let (status, answer) = replica.post(review.to_string().into_bytes()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert_says!(answer["message"].as_str().unwrap(), says);
    assert_eq!(api.writes(), 0);
}

#[tokio::test]
async fn a_review_of_what_is_not_guarded_or_lacks_a_name_is_refused() {
    let (api, replica) = one_replica();
    let mut pod = creation("Backup", "b", "1", backup_spec());
    pod["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    let refused = replica.review(pod).await;
    assert!(
        !allowed(&refused) && message(&refused).contains("Pod"),
        "{refused}"
    );
    for (field, says) in [("uid", "uid"), ("name", "name")] {
        let mut request = creation("Backup", "b", "1", backup_spec());
        request["object"]["metadata"][field] = Value::Null;
        if field == "name" {
            request["name"] = json!("");
        }
        let refused = replica.review(request).await;
        assert_eq!(refused["status"]["code"], 400, "{refused}");
        assert_says!(message(&refused), says);
    }
    assert_eq!(api.writes(), 0);
}

#[tokio::test]
async fn the_longest_name_and_a_hundred_thousand_namespaces_are_decided_on() {
    let (_, replica) = one_replica();
    let names: Vec<String> = (0..100_000).map(|n| format!("n{n}")).collect();
    let spec = json!({"includedNamespaces": names});
    assert!(allowed(
        &replica.create("Backup", &"n".repeat(253), "1", spec).await
    ));
    let other = json!({"backupName": "old", "includedNamespaces": ["unheard-of"]});
    assert!(
        !allowed(&replica.create("Restore", "r", "2", other).await),
        "so many names count as everything"
    );
}

#[tokio::test]
async fn what_is_no_review_gets_a_clear_answer() {
    let (_, replica) = one_replica();
    for (body, says) in [
        (b"hello".to_vec(), "no AdmissionReview"),
        (b"{}".to_vec(), "AdmissionReview"),
        (
            br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.to_vec(),
            "no request",
        ),
        (
            br#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}"#.to_vec(),
            "expected",
        ),
    ] {
        let (status, answer) = replica.post(body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(answer["status"], "Failure");
        assert_says!(answer["message"].as_str().unwrap(), says);
    }
    let (status, answer) = replica.post(vec![b' '; 9 << 20]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
}

#[tokio::test]
async fn a_review_of_three_mebibytes_and_a_thousand_namespaces_is_read() {
    let (_, replica) = one_replica();
    let names: Vec<String> = (0..1000)
        .map(|n| format!("{}-{n:04}", "n".repeat(58)))
        .collect();
    let mut request = creation("Backup", "b", "1", json!({"includedNamespaces": names}));
    request["object"]["metadata"]["annotations"] = json!({"big": "x".repeat(3 << 20)});
    assert!(allowed(&replica.review(request).await));
    let other = json!({"backupName": "old", "includedNamespaces": ["unheard-of"]});
    assert!(
        !allowed(&replica.create("Restore", "r", "2", other).await),
        "so many names count as everything"
    );
}

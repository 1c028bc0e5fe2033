//! The keys to a stored file are fixed when the request for it is created.

use backup_core::labels::{PLAN_ANNOTATION, READ_KEY_ANNOTATION, READ_UID_ANNOTATION};
use backup_tests::people::{EDITOR, People, READER, object, refused};
use kube::api::PostParams;

use crate::prelude::*;

crate::tests! {
    a_key_cannot_be_put_into_the_request_of_another_person,
    only_who_may_restore_may_ask_what_a_restore_would_do,
}

const REFUSAL: &str = "stays as it was when the DownloadRequest was created";

async fn a_key_cannot_be_put_into_the_request_of_another_person(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let requests = cast.objects(EDITOR, "DownloadRequest").await?;
    let annotated =
        |name: &str, value: Value| json!({ "metadata": { "annotations": { name: value } } });
    let target = json!({ "spec": { "target": { "kind": "BackupLog", "name": "nightly" } } });
    let (keyed, plain) = ("read-keyed", "read-plain");
    let mut with_key = target.clone();
    with_key["metadata"] =
        json!({ "annotations": { READ_KEY_ANNOTATION: "its-maker", READ_UID_ANNOTATION: "one" } });
    let post = PostParams::default();
    requests
        .create(&post, &object("DownloadRequest", keyed, &with_key)?)
        .await?;
    requests
        .create(&post, &object("DownloadRequest", plain, &target)?)
        .await?;

    let swap = annotated(READ_KEY_ANNOTATION, json!("somebody-else"));
    eventually("the policy is in force", TIMEOUT, async || {
        refused(requests.dry_patch(keyed, swap.clone()).await, REFUSAL).map(Probe::Ready)
    })
    .await?;
    for (request, change) in [
        (keyed, annotated(READ_KEY_ANNOTATION, Value::Null)),
        (keyed, annotated(READ_UID_ANNOTATION, json!("two"))),
        (keyed, json!({ "metadata": { "annotations": null } })),
        (
            keyed,
            json!({ "spec": { "target": { "kind": "BackupContents" } } }),
        ),
        // A request for a signed URL has no key, and cannot get one.
        (
            plain,
            annotated(READ_KEY_ANNOTATION, json!("somebody-else")),
        ),
    ] {
        refused(requests.dry_patch(request, change).await, REFUSAL)?;
    }
    // All other fields may be changed by any user who may write requests: Velero's own server
    // answers in the status.
    for change in [
        annotated("mine", json!("true")),
        json!({ "metadata": { "labels": { "mine": "true" } } }),
        json!({ "status": { "phase": "Processed" } }),
    ] {
        requests.dry_patch(keyed, change).await?;
    }
    for request in [keyed, plain] {
        requests.delete_object(request).await?;
    }
    Ok(())
}

/// The controller answers with its own rights.
async fn only_who_may_restore_may_ask_what_a_restore_would_do(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let request = |annotation: &str| {
        let of = json!({ "metadata": { "annotations": { annotation: "{}" } },
            "spec": { "target": { "kind": "RestoreResourceList", "name": "r" } } });
        object("DownloadRequest", "read-plan", &of)
    };
    let dry = dry_run();
    let reader = cast.objects(READER, "DownloadRequest").await?;
    eventually("the policy is in force", TIMEOUT, async || {
        let refusal = "needs the right to create Restores";
        refused(
            reader.create(&dry, &request(PLAN_ANNOTATION)?).await,
            refusal,
        )
        .map(Probe::Ready)
    })
    .await?;
    reader.create(&dry, &request("mine")?).await?;
    let editor = cast.objects(EDITOR, "DownloadRequest").await?;
    editor.create(&dry, &request(PLAN_ANNOTATION)?).await?;
    Ok(())
}

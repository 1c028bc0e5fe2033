//! Namespace owners create objects that claim to be no others, and change none.

use backup_tests::people::{CONTROLLER, EDITOR, OWNER, OWNING_EDITOR, People, object, refused};

use crate::prelude::*;

crate::tests! {
    an_owner_creates_nothing_that_claims_to_be_another_object,
    an_owner_changes_and_deletes_nothing,
    nobody_else_is_limited_as_an_owner,
}

const KINDS: [&str; 3] = ["Backup", "Restore", "Schedule"];
const NO_STATUS: &str = "are created without a status";
const NO_MARKS: &str = "are created without labels and annotations of the installation";
const CREATED_ONLY: &str = "are created only; to change or delete";

fn template_metadata(metadata: &Value) -> Value {
    json!({ "spec": { "schedule": "@yearly", "template": { "metadata": metadata } } })
}

async fn an_owner_creates_nothing_that_claims_to_be_another_object(
    world: &mut World,
) -> TestResult {
    let cast = People::of(world).await?;
    let dry = dry_run();
    for kind in KINDS {
        let owner = cast.objects(OWNER, kind).await?;
        let (phase, time) = if kind == "Schedule" {
            ("Enabled", "lastBackup")
        } else {
            ("Completed", "startTimestamp")
        };
        let ended = object(kind, "owned", &json!({ "status": { "phase": phase } }))?;
        eventually("the policy is in force", TIMEOUT, async || {
            refused(owner.create(&dry, &ended).await, NO_STATUS).map(Probe::Ready)
        })
        .await?;
        let of_schedule = json!({ "velero.io/schedule-name": "nightly" });
        for (fields, expected) in [
            (json!({}), None),
            (json!({ "status": {} }), None),
            (
                json!({ "metadata": { "labels": { "team": "shop" } } }),
                None,
            ),
            (
                json!({ "metadata": { "annotations": { "backup-lock/on-conflict": "queue", "example.com/by": "me" } } }),
                None,
            ),
            // Its files would be those of a backup that began at this time.
            (
                json!({ "status": { time: "2026-01-02T03:04:05Z" } }),
                Some(NO_STATUS),
            ),
            (json!({ "status": { "phase": "New" } }), Some(NO_STATUS)),
            // It would count among the backups of that schedule.
            (
                json!({ "metadata": { "labels": of_schedule } }),
                Some(NO_MARKS),
            ),
            (
                json!({ "metadata": { "annotations": { "backup-controller/stored-scope": "{}" } } }),
                Some(NO_MARKS),
            ),
            (
                json!({ "metadata": { "annotations": { "velero.io/resource-timeout": "1s" } } }),
                Some(NO_MARKS),
            ),
            (
                json!({ "metadata": { "annotations": { "backup-lock/holder": "me" } } }),
                Some(NO_MARKS),
            ),
        ] {
            let created = owner.create(&dry, &object(kind, "owned", &fields)?).await;
            match expected {
                None => drop(created.with_context(|| format!("{kind} {fields}"))?),
                Some(needle) => {
                    refused(created, needle).with_context(|| format!("{kind} {fields}"))?;
                }
            }
        }
    }
    let owner = cast.objects(OWNER, "Schedule").await?;
    let mine = template_metadata(&json!({ "labels": { "team": "shop" } }));
    owner
        .create(&dry, &object("Schedule", "owned", &mine)?)
        .await
        .context("labels of the owner's own")?;
    for marks in [
        json!({ "labels": { "velero.io/storage-location": "other" } }),
        json!({ "annotations": { "backup-controller/missing-data": "{}" } }),
    ] {
        let schedule = object("Schedule", "owned", &template_metadata(&marks))?;
        refused(owner.create(&dry, &schedule).await, NO_MARKS)?;
    }
    Ok(())
}

/// With more rights than the role gives, too: who could change the spec of a backup could read the
/// files of others as those of a backup of namespaces that are the owner's.
async fn an_owner_changes_and_deletes_nothing(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    for kind in ["Backup", "Restore"] {
        let ours = cast.objects(CONTROLLER, kind).await?;
        let spec = json!({ "spec": { "includedNamespaces": ["prod"] }, "status": { "phase": "Completed" } });
        ours.create_object(&object(kind, "theirs", &spec)?).await?;
        let owner = cast.objects(OWNING_EDITOR, kind).await?;
        let shop = json!({ "spec": { "includedNamespaces": ["shop"] } });
        eventually("the policy is in force", TIMEOUT, async || {
            let changed = owner.dry_patch("theirs", shop.clone()).await;
            refused(changed, CREATED_ONLY).map(Probe::Ready)
        })
        .await?;
        let cancel = json!({ "metadata": { "annotations": { "backup-controller/cancel": "" } } });
        refused(owner.dry_patch("theirs", cancel).await, CREATED_ONLY)?;
        refused(owner.delete_object("theirs").await, CREATED_ONLY)?;
        let by_role = cast.objects(OWNER, kind).await?;
        refused(by_role.get("theirs").await, "cannot get")?;
        refused(by_role.list_all().await, "cannot list")?;
        refused(by_role.delete_object("theirs").await, "cannot delete")?;
        ours.delete_object("theirs").await?;
    }
    let requests = cast.objects(OWNER, "DownloadRequest").await?;
    // Its answer may be a URL, which opens a file to everyone.
    refused(requests.get("read-1").await, "cannot get")?;
    Ok(())
}

async fn nobody_else_is_limited_as_an_owner(world: &mut World) -> TestResult {
    let cast = People::of(world).await?;
    let labelled = json!({ "metadata": { "labels": { "velero.io/schedule-name": "nightly" } } });
    for who in [EDITOR, CONTROLLER] {
        for kind in ["Backup", "Restore"] {
            let theirs = cast.objects(who, kind).await?;
            theirs
                .create(&dry_run(), &object(kind, "labelled", &labelled)?)
                .await
                .with_context(|| format!("{who}: {kind}"))?;
        }
    }
    let client = world.client.clone();
    let all: Api<DynamicObject> =
        Api::namespaced_with(client, NAMESPACE, &backup_tests::people::velero("Schedule"));
    all.create(&dry_run(), &object("Schedule", "labelled", &labelled)?)
        .await
        .context("an administrator of the cluster has every verb")?;
    Ok(())
}

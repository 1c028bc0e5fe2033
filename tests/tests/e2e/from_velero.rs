//! Unfinished objects of a Velero server in the namespace of our controller, as described in
//! docs/operate/from-velero.md.

use backup_core::labels::BREAK_GLASS_ANNOTATION;
use backup_tests::world::other_cluster::metadata;

use crate::prelude::*;

crate::tests! {
    fields_of_newer_versions_are_kept_and_refused,
    what_velero_left_at_work_is_done_again_or_named,
}

/// An object as Velero has left it.
fn left(kind: &str, name: &str, phase: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "velero.io/v1", "kind": kind,
        "metadata": { "name": name, "annotations": { BREAK_GLASS_ANNOTATION: "it was there before the policies" } },
        "spec": spec, "status": { "phase": phase, "startTimestamp": "2026-01-01T00:00:00Z" } })
}

async fn what_velero_left_at_work_is_done_again_or_named(world: &mut World) -> TestResult {
    let namespace = "left-by-velero";
    world.backed_up(namespace, 2).await?;
    let of_namespace = json!({ "includedNamespaces": [namespace], "storageLocation": "default", "ttl": "720h0m0s" });
    let paused = world.pause_controllers()?;
    for (name, phase) in [
        ("left-in-progress", "InProgress"),
        ("left-waiting", "WaitingForPluginOperations"),
        ("left-finalizing", "Finalizing"),
    ] {
        let backup = paused
            .backups()
            .create_json(left("Backup", name, phase, &of_namespace))
            .await?;
        if phase != "InProgress" {
            // Velero stores the metadata before the operations have ended.
            let mut stored = metadata(name, phase);
            stored["metadata"]["uid"] = backup.uid().into();
            paused.store_backup(BUCKET, name, &stored)?;
        }
    }
    // Each into a separate namespace: of conflicting ones only one could continue.
    for (name, phase) in [
        ("left-restore", "InProgress"),
        ("left-restore-waiting", "WaitingForPluginOperations"),
    ] {
        let spec = json!({ "backupName": namespace, "includedNamespaces": [namespace],
            "namespaceMapping": { namespace: name } });
        paused
            .restores()
            .create_json(left("Restore", name, phase, &spec))
            .await?;
    }
    drop(paused);

    // Objects that have stored nothing are started again from the beginning.
    world
        .backup_ends("left-in-progress", BackupPhase::Completed)
        .await?;
    world
        .restore_ends("left-restore", RestorePhase::Completed)
        .await?;
    // Only the server knew what the waiting ones waited for.
    for (name, phase) in [
        ("left-waiting", BackupPhase::WaitingForPluginOperations),
        ("left-finalizing", BackupPhase::Finalizing),
    ] {
        let reason = world.backup_blocked(name, &phase).await?;
        says(&reason, &["another program has written it"])?;
    }
    let blocked = |restore: &Restore| {
        let reason = restore
            .annotations()
            .get(backup_core::labels::BLOCKED_ANNOTATION);
        reason.is_some_and(|reason| reason.contains("the record of its operations"))
    };
    world
        .restores()
        .wait_until(
            "left-restore-waiting",
            "is blocked",
            Duration::from_mins(1),
            blocked,
        )
        .await?;
    // They disappear when they are deleted. The files stored by Velero are kept.
    for name in ["left-waiting", "left-finalizing"] {
        world.backups().delete_object(name).await?;
        world
            .backups()
            .wait_gone(name, Duration::from_mins(1))
            .await?;
        world
            .s3()?
            .read(BUCKET, &format!("backups/{name}/velero-backup.json"))
            .await?;
    }
    world
        .restores()
        .delete_object("left-restore-waiting")
        .await?;
    world
        .restores()
        .wait_gone("left-restore-waiting", Duration::from_mins(1))
        .await
}

/// The fields are in the definitions, so the API server never drops them, whatever validation the
/// client requests.
async fn fields_of_newer_versions_are_kept_and_refused(world: &mut World) -> TestResult {
    let restore = json!({ "apiVersion": "velero.io/v1", "kind": "Restore", "metadata": { "name": "in-place" },
        "spec": { "backupName": "any", "existingVolumeDataPolicy": "full", "uploaderConfig": { "deleteExtraFiles": true } } });
    let said = match objects_in(&world.client, NAMESPACE, "velero.io/v1", "Restore")
        .create_json(restore)
        .await
    {
        Ok(_) => {
            let refused = world
                .restore_ends("in-place", RestorePhase::FailedValidation)
                .await?;
            refused.status.validation_errors.join("; ")
        }
        Err(refused) => format!("{refused:#}"),
    };
    says(
        &said,
        &[
            "spec.existingVolumeDataPolicy",
            "set includedResources to persistentvolumeclaims",
        ],
    )
}

//! Only the controller has data of volumes moved: who could write a transfer could read the volumes
//! of every namespace.

use backup_tests::people::{
    BREAKER, CONTROLLER, EDITOR, OPERATOR, People, object, refused, velero,
};
use kube::api::{Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    a_forged_transfer_or_repository_is_refused,
    what_is_moved_and_was_moved_is_the_controllers_to_change,
}

const KINDS: [&str; 3] = ["DataUpload", "DataDownload", "BackupRepository"];
const REASON: &str = "backup-lock/break-glass";

/// An object as the controller creates it.
fn wanted(kind: &str, name: &str) -> anyhow::Result<DynamicObject> {
    let spec = match kind {
        "DataUpload" => json!({
            "snapshotType": "CSI", "sourcePVC": "data", "sourceNamespace": "shop",
            "csiSnapshot": { "volumeSnapshot": "s", "storageClass": "fast" },
            "backupStorageLocation": "default", "datamover": "backup-mover", "operationTimeout": "4h",
        }),
        "DataDownload" => json!({
            "targetVolume": { "pvc": "data", "pv": "", "namespace": "shop" }, "snapshotID": "k1",
            "sourceNamespace": "shop", "backupStorageLocation": "default",
            "datamover": "backup-mover", "operationTimeout": "4h",
        }),
        _ => json!({
            "volumeNamespace": "shop", "backupStorageLocation": "default",
            "repositoryType": "restic", "maintenanceFrequency": "24h",
        }),
    };
    let metadata = json!({ "labels": { "velero.io/backup-uid": "u" } });
    object(kind, name, &json!({ "metadata": metadata, "spec": spec }))
}

fn dry() -> PatchParams {
    PatchParams {
        dry_run: true,
        ..PatchParams::default()
    }
}

async fn a_forged_transfer_or_repository_is_refused(world: &mut World) -> anyhow::Result<()> {
    let cast = People::of(world).await?;
    for kind in KINDS {
        let new = wanted(kind, "forged")?;
        let broken = annotated(new.clone(), REASON, "mine");
        let mut ended = new.clone();
        let last_phase = if kind == "BackupRepository" {
            "Ready"
        } else {
            "Completed"
        };
        ended.data["status"] = json!({ "phase": last_phase });
        let editor = cast.objects(EDITOR, kind).await?;
        let refusal = "only backup-controller creates";
        eventually("the policy is in force", TIMEOUT, async || {
            refused(editor.create(&dry_run(), &new).await, refusal).map(Probe::Ready)
        })
        .await?;
        // Neither with a reason, nor as one that has ended.
        for who in [EDITOR, OPERATOR, BREAKER] {
            let theirs = cast.objects(who, kind).await?;
            for forged in [&new, &broken, &ended] {
                refused(theirs.create(&dry_run(), forged).await, refusal)
                    .with_context(|| format!("{who}: {kind}"))?;
            }
            let apply = PatchParams {
                dry_run: true,
                ..PatchParams::apply("pipeline")
            };
            let applied = theirs.patch("forged", &apply, &Patch::Apply(&new)).await;
            refused(applied, refusal).with_context(|| format!("{who} applies a {kind}"))?;
        }
        let ours = cast.objects(CONTROLLER, kind).await?;
        ours.create(&dry_run(), &new)
            .await
            .context("the controller")?;
        let client = world.client.clone();
        let all: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &velero(kind));
        all.create(&dry_run(), &new)
            .await
            .context("an administrator of the cluster")?;
    }
    Ok(())
}

async fn what_is_moved_and_was_moved_is_the_controllers_to_change(
    world: &mut World,
) -> anyhow::Result<()> {
    let cast = People::of(world).await?;
    let records = "only backup-controller changes status, labels and annotations";
    for kind in KINDS {
        let ours = cast.objects(CONTROLLER, kind).await?;
        let editor = cast.objects(EDITOR, kind).await?;
        ours.create_object(&wanted(kind, "changed")?).await?;
        let annotation =
            json!({ "metadata": { "annotations": { "backup-controller/fill": "{}" } } });
        let label = json!({ "metadata": { "labels": { "velero.io/backup-uid": "other" } } });
        let of_kind = match kind {
            "DataUpload" => vec![
                (
                    json!({ "spec": { "sourceNamespace": "secrets" } }),
                    "changes spec.sourceNamespace",
                ),
                (
                    json!({ "spec": { "csiSnapshot": { "volumeSnapshot": "other" } } }),
                    "changes spec.csiSnapshot",
                ),
                (json!({ "status": { "snapshotID": "other" } }), records),
                (annotation, records),
                (label, records),
            ],
            "DataDownload" => vec![
                (
                    json!({ "spec": { "snapshotID": "other" } }),
                    "changes spec.snapshotID",
                ),
                (
                    json!({ "spec": { "nodeOS": "linux" } }),
                    "changes spec.nodeOS",
                ),
                (
                    json!({ "spec": { "datamover": null } }),
                    "changes spec.datamover",
                ),
                (json!({ "status": { "phase": "Completed" } }), records),
                (annotation, records),
                (label, records),
            ],
            _ => vec![
                (
                    json!({ "spec": { "volumeNamespace": "other" } }),
                    "changes spec.volumeNamespace",
                ),
                (json!({ "status": { "phase": "Ready" } }), records),
            ],
        };
        for (change, refusal) in of_kind {
            let change = Patch::Merge(change);
            for who in [EDITOR, BREAKER] {
                let theirs = cast.objects(who, kind).await?;
                eventually("the policy is in force", TIMEOUT, async || {
                    refused(theirs.patch("changed", &dry(), &change).await, refusal)
                        .map(Probe::Ready)
                })
                .await
                .with_context(|| format!("{who}: {kind}"))?;
            }
            ours.patch("changed", &dry(), &change)
                .await
                .with_context(|| format!("the controller: {kind}"))?;
        }
        // What users may change: to stop a transfer, and how often a repository is maintained.
        let allowed = match kind {
            "BackupRepository" => vec![
                json!({ "spec": { "maintenanceFrequency": "12h" } }),
                json!({ "metadata": { "annotations": { "mine": "yes" } } }),
            ],
            _ => vec![json!({ "spec": { "cancel": true } })],
        };
        let finalizer = json!({ "metadata": { "finalizers": ["a/b"] } });
        for change in allowed.into_iter().chain([finalizer]) {
            let change = Patch::Merge(change);
            editor
                .patch("changed", &dry(), &change)
                .await
                .with_context(|| format!("{kind}: {change:?}"))?;
        }
        editor.delete_object("changed").await?;
    }
    Ok(())
}

//! Data of volumes in the bucket: it comes back after everything else of its namespace is lost.

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, BackupPhase, Restore, RestorePhase},
    data_movement::{DATA_MOVER, TRANSFER_LABEL, repository_path},
};
use backup_tests::{
    Skip,
    api::{ApiExt as _, all_objects},
    install::NAMESPACE,
    node::{Node, has_restic},
    snapshots,
    wait::{eventually, when},
    world::BUCKET,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt};

use crate::{
    installation::{SOON, rolled_out},
    steps::{LONG, back_up, lose, moving, restore, uploads_of, while_data_moves},
    writer::{
        CLAIMS, FILES, LARGE, SMALL, create_application, entries, entries_below, has_attribute,
        in_pod, is_same, listing, set_attribute, wait_for_application,
    },
};

/// Backups that the tests make one after another, of the whole namespace, and that are completed.
/// The last one is made in `faults`.
pub(crate) const BACKUPS: [&str; 4] =
    ["files-first", "files-second", "files-third", "files-fourth"];

pub(crate) async fn the_data_of_volumes_comes_back_after_the_namespace_is_lost(
    node: &mut Node,
) -> anyhow::Result<()> {
    create_application(node).await?;
    wait_for_application(node).await?;
    set_attribute(node)?;
    let before = listing(node).await?;

    let [first, ..] = BACKUPS;
    back_up(node, FILES, first).await?;
    nothing_of_movers_is_left(node).await?;

    lose(node, FILES).await?;
    restore(node, first, "files-back").await?;
    wait_for_application(node).await?;
    is_same(&before, &listing(node).await?)?;
    ensure!(has_attribute(node)?, "the extended attribute is gone");
    // Blocks of 512 bytes.
    let blocks = in_pod(node, "stat -c %b /first/sparse").await?;
    ensure!(
        blocks.trim().parse::<u64>()? < 2048,
        "the sparse file has {blocks} blocks"
    );
    claims_are_as_before(node).await?;
    nothing_of_movers_is_left(node).await
}

pub(crate) async fn a_second_backup_stores_only_what_has_changed(
    node: &mut Node,
) -> anyhow::Result<()> {
    const KIB: i64 = 1 << 10;
    let [first, second, ..] = BACKUPS;
    let change = "echo changed > /second/file-1; \
        dd if=/dev/urandom of=/first/new bs=1k count=64";
    in_pod(node, change).await?;
    back_up(node, FILES, second).await?;
    let all = stored_bytes(node, first).await?;
    let changed = stored_bytes(node, second).await?;
    println!("    {all} bytes were stored, then {changed}");
    ensure!(
        all > 20 << 20,
        "the first backup stored {all} bytes of more than 20 MiB"
    );
    ensure!(
        (64 * KIB..1024 * KIB).contains(&changed),
        "the second backup stored {changed} bytes after a change of 64 KiB"
    );
    nothing_of_movers_is_left(node).await
}

/// Without the cluster, apart from its password; the files have not changed since the backup.
pub(crate) async fn restic_reads_what_the_backups_wrote(node: &mut Node) -> anyhow::Result<()> {
    if !has_restic() {
        return Err(Skip("restic is not installed: apt-get install restic").into());
    }
    let [_, second, ..] = BACKUPS;
    node.restic(FILES, &["check", "--read-data"]).await?;
    let folder = node.folder().join("restored-by-restic");
    for claim in [LARGE, SMALL] {
        let tags = format!("backup={second},claim={claim}");
        let target = folder.join(claim).display().to_string();
        let args = ["restore", "latest", "--tag", &tags, "--target", &target];
        node.restic(FILES, &args).await?;
    }
    is_same(&entries(node).await?, &entries_below(&folder).await?)?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Both replicas are killed, so that nothing works on the transfers but the pods with the data
/// mover.
pub(crate) async fn a_controller_that_is_killed_while_data_moves_goes_on(
    node: &mut Node,
) -> anyhow::Result<()> {
    const RESTORE: &str = "files-back-again";
    let [_, _, third, _] = BACKUPS;
    // Random data, as known data is not stored again.
    in_pod(node, "dd if=/dev/urandom of=/first/more bs=1M count=24").await?;
    let before = listing(node).await?;

    let create = [
        "create",
        third,
        "--include-namespaces=files",
        "--snapshot-move-data",
    ];
    kill_while_data_moves(node, "DataUpload", &create).await?;
    let backups: Api<Backup> = Api::namespaced(node.client.clone(), NAMESPACE);
    let completed = |backup: &Backup| backup.phase() == BackupPhase::Completed;
    backups
        .wait_until(third, "is completed", LONG, completed)
        .await?;
    nothing_of_movers_is_left(node).await?;

    lose(node, FILES).await?;
    let name = format!("--name={RESTORE}");
    let create = ["restore", "--from-backup", third, &name];
    kill_while_data_moves(node, "DataDownload", &create).await?;
    let restores: Api<Restore> = Api::namespaced(node.client.clone(), NAMESPACE);
    let completed = |restore: &Restore| restore.phase() == RestorePhase::Completed;
    restores
        .wait_until(RESTORE, "is completed", LONG, completed)
        .await?;
    wait_for_application(node).await?;
    is_same(&before, &listing(node).await?)?;
    claims_are_as_before(node).await?;
    nothing_of_movers_is_left(node).await
}

/// The data itself is removed later, when the repository is maintained.
pub(crate) async fn a_deleted_backup_leaves_no_data_in_the_repository(
    node: &mut Node,
) -> anyhow::Result<()> {
    let plugin = node.kubectl_backup();
    let stored = stored_keys(node, "snapshots/").await?;
    ensure!(stored.len() == BACKUPS.len() * CLAIMS, "{stored:?}");
    for (number, name) in BACKUPS.into_iter().enumerate() {
        plugin
            .succeeds(&["delete", name, "--yes", "--wait", "--timeout=2m"])
            .await?;
        let left = stored_keys(node, "snapshots/").await?;
        let expected = (BACKUPS.len() - number - 1) * CLAIMS;
        ensure!(left.len() == expected, "after {name}: {left:?}");
    }
    let config = stored_keys(node, "config").await?;
    ensure!(config.len() == 1, "the repository is gone: {config:?}");
    nothing_of_movers_is_left(node).await?;
    lose(node, FILES).await
}

/// The keys in the repository that begin so.
pub(crate) async fn stored_keys(node: &Node, prefix: &str) -> anyhow::Result<Vec<String>> {
    let prefix = format!("{}/{prefix}", repository_path(FILES));
    let mut keys = node.s3.keys(BUCKET).await?;
    keys.retain(|key| key.starts_with(&prefix));
    Ok(keys)
}

/// Runs a command while the store is slow, and kills all controllers while data moves.
async fn kill_while_data_moves(node: &Node, kind: &str, command: &[&str]) -> anyhow::Result<()> {
    while_data_moves(node, kind, command, async |_| {
        node.kill_all("/backup-controller")?;
        ensure!(
            moving(node, kind).await?.is_some(),
            "the data had been moved before the controllers were killed"
        );
        Ok(())
    })
    .await?;
    rolled_out(node, "backup-controller").await
}

/// Checks that nothing remains of the work of data movers: neither in the cluster nor in the
/// storage system, which has only the volumes of the application.
pub(crate) async fn nothing_of_movers_is_left(node: &Node) -> anyhow::Result<()> {
    eventually("nothing of data movers is left", SOON, async || {
        let left = left_by_movers(node).await?;
        anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
    })
    .await
}

async fn left_by_movers(node: &Node) -> anyhow::Result<Vec<String>> {
    let client = &node.client;
    let mut left = Vec::new();
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for pod in pods.list_all().await? {
        let mut containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let of_mover = containers.any(|one| {
            let image = one.image.as_deref().unwrap_or_default();
            image.contains(DATA_MOVER)
        });
        if of_mover {
            left.push(format!("Pod {}", pod.name_any()));
        }
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), NAMESPACE);
    for claim in claims.list_all().await? {
        left.push(format!("PersistentVolumeClaim {}", claim.name_any()));
    }
    for kind in ["VolumeSnapshot", "VolumeSnapshotContent"] {
        for object in snapshots::api(client, kind, None).list_all().await? {
            left.push(format!("{kind} {}", object.name_any()));
        }
    }
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volumes = volumes.list_all().await?;
    for volume in &volumes {
        let mut marks = volume.labels().keys().chain(volume.annotations().keys());
        if marks.any(|key| key.starts_with("backup-controller/")) {
            left.push(format!("marks of PersistentVolume {}", volume.name_any()));
        }
    }
    for kind in ["DataUpload", "DataDownload"] {
        let transfers = all_objects(client, "velero.io/v2alpha1", kind);
        for transfer in transfers.list_all().await? {
            if !transfer.finalizers().is_empty() {
                left.push(format!("finalizer of {kind} {}", transfer.name_any()));
            }
        }
    }
    let stored = node.csi.volumes()?;
    if stored.len() != CLAIMS || volumes.len() != CLAIMS {
        left.push(format!(
            "{} PersistentVolumes and the volumes {stored:?}",
            volumes.len()
        ));
    }
    left.extend(
        node.csi
            .snapshots()?
            .into_iter()
            .map(|snapshot| format!("snapshot {}", snapshot.display())),
    );
    Ok(left)
}

/// Checks that the claims are bound to volumes that are theirs and have the reclaim policy of their
/// class.
pub(crate) async fn claims_are_as_before(node: &Node) -> anyhow::Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(node.client.clone(), FILES);
    let volumes: Api<PersistentVolume> = Api::all(node.client.clone());
    let claims = claims.list_all().await?;
    ensure!(claims.len() == CLAIMS, "{claims:?}");
    for claim in claims {
        let status = claim.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        ensure!(phase == Some("Bound"), "{claim:?}");
        let spec = claim.spec.as_ref();
        let volume = spec.and_then(|spec| spec.volume_name.as_deref());
        let volume = volumes.get(volume.context("no volume")?).await?;
        ensure!(
            !volume.labels().contains_key(TRANSFER_LABEL),
            "{:?}",
            volume.metadata
        );
        let spec = volume.spec.context("no spec")?;
        ensure!(
            spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete"),
            "{spec:?}"
        );
        let owner = spec.claim_ref.context("no claim")?;
        ensure!(
            owner.uid == claim.uid() && owner.namespace.as_deref() == Some(FILES),
            "{owner:?}"
        );
    }
    Ok(())
}

/// Bytes that the uploads of a backup have added to the repository.
async fn stored_bytes(node: &Node, backup: &str) -> anyhow::Result<i64> {
    let uploads = uploads_of(node, backup).await?;
    ensure!(uploads.len() == CLAIMS, "{uploads:?}");
    Ok(uploads
        .iter()
        .map(|upload| upload.status.stored.incremental_bytes)
        .sum())
}

//! Two clusters use one bucket at the same time: each sees the other's backups, and neither
//! overwrites them.

use crate::prelude::*;

crate::tests! {
    two_clusters_share_a_bucket_and_never_a_backup,
}

/// Number of pairs of backups with the same name that begin at the same moment.
const ROUNDS: usize = 5;

async fn two_clusters_share_a_bucket_and_never_a_backup(here: &mut World) -> anyhow::Result<()> {
    let there = World::builder()
        .webhooks(1)
        .controller_args(&["--store-validation-frequency=2s"])
        .start()
        .await?;
    let (here, there) = (&*here, &there);
    let (bucket, url) = ("two-clusters", here.s3()?.url());
    here.s3()?.create_bucket(bucket).await?;
    for (world, name) in [(here, "from-here"), (there, "from-there")] {
        world.synced_location(bucket, &url, &json!({})).await?;
        world.config_maps(name, 20).await?;
    }
    let store = async |world: &World, namespace: &str, name: &str| {
        world
            .create_backup(name, into_location(bucket, &[namespace]))
            .await?;
        world.backup_ended(name).await
    };
    let (ours, theirs) = tokio::join!(
        store(here, "from-here", "from-here"),
        store(there, "from-there", "from-there")
    );
    ensure!(ours?.phase() == BackupPhase::Completed && theirs?.phase() == BackupPhase::Completed);

    // Each restores a backup of the other.
    for (world, name) in [(there, "from-here"), (here, "from-there")] {
        world
            .backups()
            .wait_until(name, "is known", TIMEOUT, |_| true)
            .await?;
        let restored = world
            .restore(&format!("{name}-elsewhere"), from_backup(name))
            .await?;
        let items = restored
            .status
            .progress
            .context("no progress")?
            .items_restored;
        ensure!(items >= 20, "{items} items");
    }

    // If two backups of the same name begin at the same moment, one is stored, and the other
    // reports why not.
    for round in 0..ROUNDS {
        let name = format!("same-name-{round}");
        let (ours, theirs) = tokio::join!(
            store(here, "from-here", &name),
            store(there, "from-there", &name)
        );
        let (ours, theirs) = (ours?, theirs?);
        let (stored, other) = if ours.phase() == BackupPhase::Completed {
            (ours, theirs)
        } else {
            (theirs, ours)
        };
        ensure!(
            stored.phase() == BackupPhase::Completed,
            "{:?} {:?}",
            stored.status,
            other.status
        );
        let why = other.status.failure_reason.unwrap_or_default();
        says(&why, &["already exists in object storage"])?;
        let metadata = here
            .s3()?
            .read(bucket, &format!("backups/{name}/velero-backup.json"))
            .await?;
        let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
        ensure!(
            metadata["metadata"]["uid"] == json!(stored.uid()),
            "another's files: {metadata}"
        );
    }

    // A backup deleted by one disappears from the other.
    for (world, other, name) in [(there, here, "from-here"), (here, there, "from-there")] {
        world
            .kubectl_backup()
            .succeeds(&["delete", name, "--confirm"])
            .await?;
        world.backups().wait_gone(name, TIMEOUT).await?;
        other.backups().wait_gone(name, TIMEOUT).await?;
    }
    here.remove_location(bucket).await
}

//! A controller is killed around the operations of a backup: the next one continues them, and no
//! snapshot is taken twice.

use std::collections::BTreeSet;

use backup_store::crash;
use backup_tests::{
    snapshots::{self, Behaviour, SnapshotController},
    world::stored::counts_equal_lists,
};
use kube::api::ListParams;
use object_store::ObjectStoreExt as _;

use crate::prelude::*;

crate::tests! {
    a_crash_around_operations_goes_on_with_the_same_ones,
}

/// Bucket and location; also the namespace for points with small contents.
const PLACE: &str = "operation-crashes";
/// The namespace for points with contents of several parts.
const LARGE: &str = "operation-crashes-large";
/// The points for which `LARGE` is used.
const LATER: &[&str] = &["after-renewal", "after-record", "before-metadata"];
/// Claims in each namespace.
const CLAIMS: usize = 3;
/// Contents above this size have more than one part (bytes).
const PART_BYTES: u64 = 8 << 20;

async fn a_crash_around_operations_goes_on_with_the_same_ones(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let driver = SnapshotController::start(&world.client).await?;
    snapshots::class(
        &world.client,
        "soon",
        Behaviour::Ready(Duration::from_millis(500)),
        true,
    )
    .await?;
    snapshots::class(
        &world.client,
        "later",
        Behaviour::Ready(Duration::from_secs(2)),
        false,
    )
    .await?;
    world.s3()?.create_versioned_bucket(PLACE).await?;
    world.s3_location(PLACE, &world.s3()?.url()).await?;
    world.noise(LARGE, 22).await?;
    for namespace in [PLACE, LARGE] {
        for (name, class) in [("one", "soon"), ("two", "soon"), ("three", "later")] {
            snapshots::claim(&world.client, namespace, name, class).await?;
        }
    }
    for point in crash::OPERATION_POINTS
        .iter()
        .filter(|point| !LATER.contains(point))
    {
        killed_at(world, &driver, PLACE, point)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    for point in LATER {
        killed_at(world, &driver, LARGE, point)
            .await
            .with_context(|| format!("killed at {point}"))?;
    }
    Ok(())
}

async fn killed_at(
    world: &mut World,
    driver: &SnapshotController,
    namespace: &str,
    point: &str,
) -> anyhow::Result<()> {
    let name = format!("at-{point}");
    let before = driver.stored();
    world.crash_at(point).await?;
    let spec = BackupSpec {
        included_namespaces: vec![namespace.to_owned()],
        ..of_place(PLACE)
    };
    let created = world.create_backup(&name, spec).await?;
    world.controllers[0]
        .killed(POINT_TIMEOUT)
        .await
        .context("it was not reached")?;
    let cut = driver.stored();
    let begun = begun(world, &created.uid().unwrap_or_default()).await?;
    ensure!(
        cut.difference(&before).count() == CLAIMS && begun.len() == CLAIMS,
        "{cut:?}, {begun:?}"
    );
    world.controllers[0].restart().await?;

    let backup = world.backup_ends(&name, BackupPhase::Completed).await?;
    let s3 = world.s3()?;
    let entries = is_whole(s3, PLACE, &name, &backup).await?;
    let size = s3
        .bucket(PLACE)?
        .head(&format!("backups/{name}/{name}.tar.gz").into())
        .await?
        .size;
    ensure!(
        size > PART_BYTES || namespace == PLACE,
        "{size} bytes are one part only"
    );
    ensure!(
        driver.stored() == cut,
        "cut {cut:?}, then {:?}",
        driver.stored()
    );
    let operations = counts_equal_lists(s3, PLACE, &name, &backup, &entries).await?;
    ensure!(
        operations == begun,
        "begun as {begun:?}, ended as {operations:?}"
    );
    eventually(
        "no snapshot is left in the cluster",
        Duration::from_secs(20),
        async || {
            let left = self::begun(world, &created.uid().unwrap_or_default()).await?;
            anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
        },
    )
    .await
}

/// Ids of the operations for the snapshots of a backup, from the objects in the cluster.
pub async fn begun(world: &World, uid: &str) -> anyhow::Result<BTreeSet<String>> {
    let api = snapshots::api(&world.client, "VolumeSnapshot", None);
    let params = ListParams::default().labels(&format!("velero.io/backup-uid={uid}"));
    let id = |snapshot: &kube::core::DynamicObject| {
        let time = snapshot
            .creation_timestamp()
            .map(|time| time.0)
            .unwrap_or_default();
        format!(
            "{}/{}/{time}",
            snapshot.namespace().unwrap_or_default(),
            snapshot.name_any()
        )
    };
    Ok(api.list(&params).await?.items.iter().map(id).collect())
}

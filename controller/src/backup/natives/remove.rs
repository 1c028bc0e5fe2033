//! Removing the snapshots of a backup.

use std::collections::BTreeMap;

use backup_core::snapshot::VolumeSnapshot;
use backup_runtime::leader::NotLeader;

use crate::{
    context::Context,
    snapshots::{self, LocationError},
};

/// Deletes snapshots in the storage system; each is tried once. May be done again. What is left, as sentences.
///
/// # Errors
/// This replica may not work any more.
pub async fn remove(ctx: &Context, all: &[VolumeSnapshot]) -> Result<Vec<String>, NotLeader> {
    let mut by_location: BTreeMap<&str, Vec<(&VolumeSnapshot, &str)>> = BTreeMap::new();
    for snapshot in all {
        let id = snapshot.status.provider_snapshot_id.as_str();
        if !id.is_empty() {
            by_location.entry(&snapshot.spec.location).or_default().push((snapshot, id));
        }
    }
    let mut problems = Vec::new();
    for (location, snapshots) in by_location {
        let by = snapshots::open(ctx, location, None).await;
        let by = match by {
            Ok(by) => by,
            Err(error) => {
                let ids: Vec<_> = snapshots.iter().map(|(_, id)| *id).collect();
                problems.push(left(&ids, &error));
                continue;
            }
        };
        for (snapshot, id) in snapshots {
            ctx.cluster.leadership.check()?;
            if let Err(error) = by.delete(id).await {
                problems.push(format!(
                    "snapshot {id} of PersistentVolume {} stays in VolumeSnapshotLocation {location}: {error}",
                    snapshot.spec.persistent_volume_name
                ));
            }
        }
    }
    Ok(problems)
}

fn left(ids: &[&str], error: &LocationError) -> String {
    const SHOWN: usize = 5;
    let more = ids.len().saturating_sub(SHOWN);
    let shown = ids[..ids.len() - more].join(", ");
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("snapshots {shown}{more} stay in the storage system: {error}")
}

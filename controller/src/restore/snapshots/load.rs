//! The snapshots of a backup, and who serves their locations.

use std::collections::BTreeSet;

use backup_core::{api::Restore, snapshot::VolumeSnapshot};
use backup_store::{Location, StoreError};
use kube::ResourceExt as _;

use super::{Noted, Places, Snapshots};
use crate::{
    context::Context,
    snapshots::{self, LocationError},
};
use backup_plugins::PluginLog;

/// Why it is not known what volumes come back from.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file that tells can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It holds something else.
    #[error("a snapshot that is recorded for it can't be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The API server could not be asked.
    #[error(transparent)]
    Location(LocationError),
}

impl LoadError {
    /// Whether it may pass without anyone doing anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Malformed(_) => false,
            Self::Location(error) => error.is_transient(),
        }
    }
}

/// What volumes of a backup come back from, and of which nothing can be made although somebody has tried to snapshot them.
/// What plugins say goes into `log`.
pub async fn load(
    ctx: &Context,
    (store, backup): (&Location, &str),
    restore: &Restore,
    (noted, log): (Noted, &PluginLog),
) -> Result<(Snapshots, Vec<String>), LoadError> {
    let wanted = restore.spec.restore_pvs != Some(false);
    let values = if wanted { store.read_volume_snapshots(backup).await? } else { None };
    let values = values.unwrap_or_default().into_iter();
    let all = values.map(serde_json::from_value).collect::<Result<Vec<VolumeSnapshot>, _>>()?;
    let (usable, failed): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|snapshot| snapshot.usable().is_some());
    let locations: BTreeSet<&str> = usable.iter().map(|one| one.spec.location.as_str()).collect();
    let mut places = Places::new();
    for location in locations {
        let by = match snapshots::open(ctx, location, Some(log)).await {
            Err(error @ LocationError::Api { .. }) if error.is_transient() => {
                return Err(LoadError::Location(error));
            }
            other => other.map_err(|error| error.to_string()),
        };
        places.insert(location.to_owned(), by);
    }
    let failed = failed.into_iter().map(|snapshot| snapshot.spec.persistent_volume_name).collect();
    Ok((Snapshots::new(usable, places, &restore.uid().unwrap_or_default(), noted), failed))
}

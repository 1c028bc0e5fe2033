//! One pass over one location.

use std::time::Duration;

use backup_core::{
    api::BackupStorageLocation,
    sync::{Request, Summary},
};
use backup_runtime::clock::Clock;
use backup_store::Location;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    bring, compare,
    error::Error,
    extras, guard,
    memory::{Remembered, Skip},
    observe, remove,
};
use crate::context::Context;

/// What a pass goes by.
pub(super) struct Pass<'a> {
    pub(super) ctx: &'a Context,
    /// As it was when the pass began.
    pub(super) location: &'a BackupStorageLocation,
    pub(super) store: &'a Location,
    /// When the pass began, on the monotonic clock.
    pub(super) began: Duration,
}

/// Makes a pass. That it could not be made, or not to its end, is said in the summary. Errors: this replica must not write.
pub(super) async fn pass(
    ctx: &Context,
    location: &BackupStorageLocation,
    remembered: &mut Remembered,
    request: Option<&Request>,
) -> Result<Summary, Error> {
    let began = Clock::Boot.now();
    let mut summary = Summary {
        started: Timestamp::now(),
        request: request.map(|request| request.id.clone()),
        ..Summary::default()
    };
    let made = make(ctx, location, remembered, request, began, &mut summary).await;
    if let Err(error) = made {
        if matches!(error, Error::NotLeader(_)) {
            return Err(error);
        }
        tracing::warn!(location = location.name_any(), %error, "the pass did not come to its end");
        summary.error = Some(error.to_string());
    }
    let took = Clock::Boot.now().saturating_sub(began);
    summary.millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    if summary.created + summary.removed > 0 {
        let (created, removed) = (summary.created, summary.removed);
        tracing::info!(
            location = location.name_any(),
            created,
            removed,
            ?took,
            "bucket and cluster compared"
        );
    }
    Ok(summary)
}

async fn make(
    ctx: &Context,
    location: &BackupStorageLocation,
    remembered: &mut Remembered,
    request: Option<&Request>,
    began: Duration,
    summary: &mut Summary,
) -> Result<(), Error> {
    let name = location.name_any();
    let store = ctx.locations.store(location).await?;
    let pass = Pass { ctx, location, store: &store, began };
    // The cluster first: what it says is stored was stored before the listing of the bucket began.
    let cluster = observe::backups(ctx).await?;
    let folders = store.list_backups().await?;
    summary.found = folders.len() as u64;
    let compared = compare::compare(&folders, &cluster, &name);

    for (backup, other) in &compared.conflicts {
        let reason = format!("the cluster has a Backup of this name that is stored in location {other}");
        summary.skip(backup, "conflict", &reason);
    }
    for folder in &compared.foreign {
        summary.skip(folder, "not_a_name", "no Backup can have this name; it is left alone");
    }
    remembered.keep_only(&|folder| compared.missing.binary_search(&folder).is_ok());
    let mut due = Vec::new();
    for folder in &compared.missing {
        match remembered.still(folder, began).filter(|_| request.is_none()) {
            Some(Skip { what, reason, .. }) => summary.skip(folder, what, reason),
            None => due.push((*folder).to_owned()),
        }
    }
    if !due.is_empty() {
        let facts = observe::facts(ctx).await?;
        bring::all(&pass, &facts, due, remembered, summary).await?;
    }
    for backup in &compared.pending {
        extras::resume(&pass, backup, summary).await?;
    }

    if let Some(refusal) =
        guard::refusal(&compared, folders.len(), summary.started, request.and_then(|r| r.remove))
    {
        summary.refused = compared.orphans.len() as u64;
        summary.note_first("refused", &refusal);
        return Ok(());
    }
    for (backup, _) in &compared.orphans {
        remove::orphan(&pass, backup, summary).await?;
    }
    Ok(())
}

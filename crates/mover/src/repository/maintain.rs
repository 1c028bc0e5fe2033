//! Removal of snapshots, and of data that none needs.

use std::time::Duration;

use backup_core::data_movement::MaintainReport;
use rustic_core::{FileType, Id, PruneOptions, jiff::Span};

use super::{Job, Repository, errors::OrMoverError as _, layout::key, session::Session};
use crate::MoverError;

/// What is removed.
#[derive(Clone, Debug)]
pub struct MaintainRequest {
    /// Full ids of snapshots to forget. Those that do not exist are no error.
    pub forget: Vec<String>,
    /// Marks data that no snapshot needs, and removes what was marked long enough ago.
    pub prune: bool,
    /// Time between the mark and the removal. It must be longer than any backup takes: one that
    /// began before the mark may still need the data.
    pub removal_delay: Duration,
}

pub(super) fn maintain(
    repository: &Repository,
    request: &MaintainRequest,
    job: &Job,
) -> Result<MaintainReport, MoverError> {
    let session = Session::new(repository, job, None);
    let mut ids = Vec::new();
    for id in &request.forget {
        let parsed = id.parse::<Id>().map_err(|_| {
            let detail = "it is the whole id of a snapshot: 64 hexadecimal digits";
            MoverError::config(format!("snapshot {id:?}"), detail)
        })?;
        ids.push(parsed);
    }
    // Nothing is removed from a place that is no repository of ours.
    let opened = session.open()?;
    let mut report = MaintainReport::default();
    for id in &ids {
        let object = key(FileType::Snapshot, id);
        // Stores do not say whether there was something to delete.
        if session.objects.size(&object)?.is_some() {
            session.objects.delete(&object)?;
            report.forgotten += 1;
        }
    }
    if !request.prune {
        return Ok(report);
    }
    let mut options = PruneOptions::default();
    options.keep_delete = Span::new()
        .try_milliseconds(i64::try_from(request.removal_delay.as_millis()).unwrap_or(i64::MAX))
        .map_err(|_| MoverError::config("the delay", "it is too long"))?;
    // Never: a backup that runs would lose its data.
    options.instant_delete = false;
    options.early_delete_index = false;
    let plan = opened.prune_plan(&options).ours(session.url())?;
    let stats = &plan.stats;
    report.removed_packs = stats.packs_to_delete.remove;
    report.removed_bytes = stats.size_to_delete.remove;
    report.recovered_packs = stats.packs_to_delete.recover;
    report.orphaned_packs = stats.packs_unref;
    report.marked_packs =
        stats.packs.unused + stats.packs.repack + stats.packs_unref + stats.packs_to_delete.keep;
    let marked = stats.size_sum();
    report.marked_bytes =
        marked.remove + marked.repack + stats.size_unref + stats.size_to_delete.keep;
    job.stop.check()?;
    opened.prune(&options, plan).ours(session.url())?;
    Ok(report)
}

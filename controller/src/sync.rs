//! Compares buckets with the cluster: backups that are only in a bucket are imported into the
//! cluster, and Backups that are gone from their bucket are removed from the cluster.
//!
//! A pass over a location reads the cluster, then lists the bucket, and compares the two
//! (`comparison`). It imports backups that are missing in the cluster (`import`), removes Backups
//! that are gone from the bucket unless these are too many (`pass`), and writes a summary to the
//! location. A problem with one backup is part of the summary; the pass continues.

mod comparison;
mod copies;
mod csi;
mod decide;
mod folder_outcome;
mod gone_backup;
mod import;
mod incomplete_backup;
mod inspection;
mod pass;
mod sanitize;
mod side_objects;
mod skip_cache;
mod watched_backups;

use backup_core::sync::NoteKind;
use std::{sync::Arc, time::Duration};

use backup_client::retry;
use backup_core::{
    api::{BackupStorageLocation, GoDuration},
    event_reason::EventReason,
    labels::{SYNC_ANNOTATION, SYNC_REQUEST_ANNOTATION},
    sync::{Note, Request, Summary},
};
use backup_runtime::{
    Cluster,
    clock::Clock,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::status_patch_in,
    watch,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    backup::Leftovers,
    error::ReconcileError,
    location::{Locations, choose_default, is_available},
    location_requests::{self, WRITE_BUDGET},
    metrics::Metrics,
    recent_deletions::RecentDeletions,
};
use comparison::Comparison;
use decide::Plan;
use pass::Pass;
use skip_cache::LocationCache;

pub(crate) use skip_cache::SkipCache;
pub(crate) use watched_backups::WatchedBackups;

/// Maximum number of locations that are compared concurrently; a slow one does not block the
/// others.
const CONCURRENCY: usize = 16;
/// Time after the start during which other locations wait for the pass over the default one.
const MAX_WAIT_FOR_DEFAULT: Duration = Duration::from_secs(10);
const DEFAULT_CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of Backups that a pass marks as having no files, and of lost copies that it
/// records; the next pass does the others.
const MAX_MARKS_PER_PASS: usize = 500;

pub(crate) struct SyncController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) deletions: RecentDeletions,
    /// For locations without their own period.
    pub(crate) period: GoDuration,
    /// The location of backups that name none, if none is marked as the default.
    pub(crate) default_location: String,
    pub(crate) leftovers: Leftovers,
    /// Time without writes after which an incomplete backup is removed; zero means never.
    pub(crate) incomplete_ttl: Duration,
    /// Start of the process (monotonic clock).
    pub(crate) started: Duration,
    pub(crate) skip_cache: SkipCache,
    pub(crate) watched: WatchedBackups,
    pub(crate) stop: CancellationToken,
}

impl SyncController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health) {
        let keys = watch::keys::<BackupStorageLocation>(&self.cluster, &health, "backup sync");
        let stop = self.stop.clone();
        let controller = Arc::new(self);
        let reconcile = {
            let controller = Arc::clone(&controller);
            move |key| Arc::clone(&controller).reconcile(key)
        };
        tokio::select! {
            () = run_queue("sync", keys, CONCURRENCY, stop, reconcile) => {}
            () = controller.watched.follow(&controller.cluster) => {}
        }
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let found = retry::read(pass::READ_BUDGET, || self.locations.find(&key.name)).await?;
        let Some(location) = found else {
            self.skip_cache.forget(&key.name);
            self.metrics.forget_sync(&key.name);
            return Ok(Action::AwaitChange);
        };
        let last = location.status.last_synced_time.as_ref().map(|time| time.0);
        self.metrics
            .sync_expected(&key.name, decide::every(&location, self.period), last);
        let now = Clock::Boot.now();
        let mut cache = self.skip_cache.get(&location);
        match decide::decide(&location, cache.passed, self.period, now) {
            Plan::Wait(action) => return Ok(action),
            Plan::Sync => {}
        }
        if now.saturating_sub(self.started) < MAX_WAIT_FOR_DEFAULT
            && !self.goes_first(&location).await?
        {
            return Ok(Action::RequeueAfter(DEFAULT_CHECK_INTERVAL));
        }
        // Taken at most once, even if a later step fails: a request may allow removals.
        let request =
            location_requests::take(&self.cluster, &location, SYNC_REQUEST_ANNOTATION).await?;
        let mut summary = Summary {
            started: Timestamp::now(),
            request: request.as_ref().map(|request| request.id.clone()),
            ..Summary::default()
        };
        if is_available(&location) {
            self.run_pass(&location, &mut cache, request.as_ref(), &mut summary)
                .await?;
        } else {
            let message = location
                .status
                .message
                .as_deref()
                .unwrap_or("it was not validated yet");
            summary.error = Some(format!("the location is not available: {message}"));
        }
        self.publish(&location, &summary).await?;
        // Counted from the end: otherwise the next pass would begin at once after a long one, and
        // its summary would replace the answer to a request before it was read.
        let ended = Clock::Boot.now();
        cache.passed = Some(ended);
        self.skip_cache.put(&location, cache);
        Ok(
            match decide::decide(&location, Some(ended), self.period, ended) {
                Plan::Wait(action) => action,
                Plan::Sync => Action::RequeueAfter(decide::MIN_INTERVAL),
            },
        )
    }

    /// Whether this location may be compared now: if two hold a backup of the same name, the
    /// cluster has that of the default one.
    async fn goes_first(&self, location: &BackupStorageLocation) -> Result<bool, ReconcileError> {
        let all = retry::read(pass::READ_BUDGET, || self.locations.all()).await?;
        let default = choose_default(&all, &self.default_location);
        let default = all.iter().find(|other| Some(other.name_any()) == default);
        Ok(default.is_none_or(|default| {
            default.name_any() == location.name_any()
                || !is_available(default)
                || decide::every(default, self.period).is_none()
                || self.skip_cache.has_passed(default)
        }))
    }

    /// Makes a pass. An error is part of the summary, unless this replica must not write.
    async fn run_pass(
        &self,
        location: &BackupStorageLocation,
        cache: &mut LocationCache,
        request: Option<&Request>,
        summary: &mut Summary,
    ) -> Result<(), ReconcileError> {
        let began = Clock::Boot.now();
        let name = location.name_any();
        match self
            .compare_and_apply(location, cache, request, began, summary)
            .await
        {
            Ok(()) => {}
            Err(error @ ReconcileError::NotLeader(_)) => return Err(error),
            Err(error) => {
                tracing::warn!(location = name, category = error.category(), %error, "the pass did not end");
                summary.error = Some(error.to_string());
            }
        }
        let took = Clock::Boot.now().saturating_sub(began);
        summary.millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let created = summary.created;
        let removed = summary.removed;
        if created + removed > 0 {
            tracing::info!(
                location = name,
                created,
                removed,
                ?took,
                "bucket and cluster compared"
            );
        }
        Ok(())
    }

    async fn compare_and_apply(
        &self,
        location: &BackupStorageLocation,
        cache: &mut LocationCache,
        request: Option<&Request>,
        began: Duration,
        summary: &mut Summary,
    ) -> Result<(), ReconcileError> {
        let store = self.locations.store(location).await?;
        let pass = Pass {
            cluster: &self.cluster,
            locations: &self.locations,
            deletions: &self.deletions,
            leftovers: &self.leftovers,
            incomplete_ttl: self.incomplete_ttl,
            stop: &self.stop,
            location,
            store: &store,
            began,
        };
        // The cluster first: a backup that it shows as stored was stored before the listing of the
        // bucket began. A user who requests a pass, or has just changed the location, expects it to
        // see the state at that time.
        let watched = if request.is_some() || cache.passed.is_none() {
            None
        } else {
            self.watched.get()
        };
        let backups = match watched {
            Some(backups) => backups,
            None => comparison::cluster_backups(&self.cluster).await?,
        };
        let folders = store.list_backups().await?;
        summary.found = folders.len() as u64;
        let compared = Comparison::of(&folders, &backups, &location.name_any());
        for folder in &compared.foreign {
            summary.skip(
                folder,
                NoteKind::InvalidName,
                "no Backup can have this name; it is left alone",
            );
        }
        cache.retain(&|folder| {
            let conflicts = &compared.conflicts;
            compared.missing.binary_search(&folder).is_ok()
                || conflicts
                    .binary_search_by(|(name, _)| (*name).cmp(folder))
                    .is_ok()
        });
        Box::pin(copies::adopt_or_report(
            &pass,
            &compared.conflicts,
            cache,
            summary,
            request.is_some(),
        ))
        .await?;
        let mut due = Vec::new();
        for folder in &compared.missing {
            match cache.skip_now(folder, began).filter(|_| request.is_none()) {
                Some(skip) => summary.skip(folder, skip.what.clone(), &skip.reason),
                None => due.push((*folder).to_owned()),
            }
        }
        if !due.is_empty() {
            import::import_all(&pass, due, cache, summary).await?;
        }
        for backup in &compared.pending {
            side_objects::resume(&pass, backup, summary).await?;
        }
        for backup in compared.lost_copies.iter().take(MAX_MARKS_PER_PASS) {
            pass::renew_copy(&pass, backup, summary).await?;
        }

        inspection::inspect(
            &pass,
            &compared.with_folder,
            &mut cache.inspected,
            summary.started,
        )
        .await?;
        let agreed = request.and_then(|request| request.remove);
        if let Some(refusal) = compared.removal_refusal(folders.len(), summary.started, agreed) {
            summary.refused = compared.orphans.len() as u64;
            summary.note_first(NoteKind::RemovalRefused, &refusal);
            // They are kept, and a mark tells users that they have no files.
            let unmarked = compared.orphans.iter().filter(|(_, known)| !known.marked);
            for (backup, _) in unmarked.take(MAX_MARKS_PER_PASS) {
                pass::mark_files(&pass, backup, Some(summary.started)).await?;
            }
            return Ok(());
        }
        for (backup, _) in &compared.orphans {
            pass::remove_orphan(&pass, backup, summary).await?;
        }
        Ok(())
    }

    /// Writes the summary, and the time of a completed pass, unless the location points elsewhere
    /// by now.
    async fn publish(
        &self,
        location: &BackupStorageLocation,
        summary: &Summary,
    ) -> Result<(), ReconcileError> {
        let before = location.annotations().get(SYNC_ANNOTATION);
        let before: Summary = before
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default();
        self.emit_changes(location, &before, summary);
        self.metrics.synced(&location.name_any(), summary);
        let mut patch =
            json!({ "metadata": { "annotations": { SYNC_ANNOTATION: summary.annotation() } } });
        if summary.error.is_none() {
            patch["status"]["lastSyncedTime"] = json!(Time(summary.started));
        }
        let Cluster { leadership, .. } = &self.cluster;
        status_patch_in(
            &self.cluster.api(),
            leadership,
            WRITE_BUDGET,
            location,
            |current| (current.spec == location.spec).then(|| patch.clone()),
        )
        .await?;
        Ok(())
    }

    /// Emits events about changes since the last pass.
    fn emit_changes(&self, location: &BackupStorageLocation, before: &Summary, now: &Summary) {
        let events = &self.cluster.events;
        let name = location.name_any();
        if let Some(error) = now
            .error
            .as_ref()
            .filter(|error| before.error.as_ref() != Some(error))
        {
            events.warning(location, EventReason::NotSynced, error);
        }
        if now.refused > 0 && now.refused != before.refused {
            let refused = now.refused;
            let why =
                first_note(now, &NoteKind::RemovalRefused).map_or("", |note| note.reason.as_str());
            let note = format!(
                "{refused} Backups were not removed from the cluster: {why}. If they are to go, run `kubectl backup locations sync \
                 {name} --accept-removals={refused}`"
            );
            events.warning(location, EventReason::RemovalRefused, &note);
        }
        if now.created > 0 || now.removed > 0 {
            let note = format!(
                "{} Backups were created and {} removed",
                now.created, now.removed
            );
            events.normal(location, EventReason::Synced, &note);
        }
        if now.pruned > 0 {
            let note = format!(
                "{} folders of backups that never ended were removed from the bucket",
                now.pruned
            );
            events.normal(location, EventReason::FoldersPruned, &note);
        }
        if now.skipped_as(&NoteKind::Stray) > before.skipped_as(&NoteKind::Stray) {
            let note = format!(
                "{} folders in the bucket hold no finished backup, and nothing writes to them: `kubectl backup locations sync {name}` \
                 shows them",
                now.skipped_as(&NoteKind::Stray)
            );
            events.warning(location, EventReason::IncompleteBackups, &note);
        }
        let conflicts = now.skipped_as(&NoteKind::Conflict);
        if conflicts > before.skipped_as(&NoteKind::Conflict) {
            let example = first_note(now, &NoteKind::Conflict)
                .map(|note| format!("; {}: {}", note.name, note.reason));
            let example = example.unwrap_or_default();
            let note =
                format!("{conflicts} backups have names that another location uses{example}");
            events.warning(location, EventReason::NamesConflict, &note);
        }
    }
}

fn first_note<'a>(summary: &'a Summary, what: &NoteKind) -> Option<&'a Note> {
    summary.notes.iter().find(|note| note.what == *what)
}

//! Follows the Backups and gives each one that needs it a job.
//!
//! Only Backups that have not ended are kept. Which may start is derived from their phases each time (`queue`).

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_core::api::{Backup, BackupPhase};
use backup_lock::Footprint;
use backup_runtime::{
    backoff::Backoff,
    retry::{self, PatchOutcome},
    watch::{Undecodable, WatchEvent},
};
use kube::ResourceExt as _;
use tokio::{
    sync::Semaphore,
    task::{Id, JoinError, JoinSet},
    time::Instant,
};
use tracing::Instrument as _;

use super::{
    finalizer, patches,
    queue::{self, Ticket, Turn},
    undecodable,
    worker::Worker,
};
use crate::job::cancellation::Cancellation;
use crate::{
    context::Context,
    job::operations::{self, poller::PollConfig},
    metrics::stored::StoredBackups,
};

mod entry;

use entry::Entry;

/// Before a job that failed is given again.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(1) };

/// Gives jobs.
pub struct Dispatcher {
    ctx: Context,
    /// Backups that have not ended, by name.
    entries: HashMap<String, Entry>,
    jobs: JoinSet<End>,
    running: HashMap<Id, Job>,
    permits: Arc<Semaphore>,
    config: PollConfig,
    /// For the gauges about all Backups, those that have ended among them.
    stored: StoredBackups,
    /// Whether all Backups are known: before that nobody can tell whose turn it is.
    listed: bool,
}

struct Job {
    name: String,
    uid: String,
    task: Task,
}

enum Task {
    Turn,
    Work(Cancellation),
    /// Of one that can't be decoded, so it has no entry.
    Refusal,
}

/// How a job ended.
enum End {
    /// What it was for is done; a turn knows what the Backup is now.
    Done(Option<Box<Backup>>),
    /// The Backup is not there any more.
    Gone,
    /// To be done again later.
    Failed,
}

impl Dispatcher {
    /// Without any Backup yet.
    pub fn new(ctx: Context) -> Self {
        let permits = Arc::new(Semaphore::new(slots(&ctx)));
        let config = operations::poll_config(&ctx);
        Self {
            ctx,
            entries: HashMap::new(),
            jobs: JoinSet::new(),
            running: HashMap::new(),
            permits,
            config,
            stored: StoredBackups::default(),
            listed: false,
        }
    }

    /// Something was seen in the watch.
    pub fn touched(&mut self, event: WatchEvent<Backup>) {
        let metrics = &self.ctx.metrics;
        match &event {
            WatchEvent::Applied(backup) => self.stored.applied(backup, metrics),
            WatchEvent::Deleted(key) => self.stored.gone(&key.name, metrics),
            WatchEvent::Undecodable(bad) => self.stored.gone(&bad.name, metrics),
            WatchEvent::Listed => self.stored.listed(metrics),
        }
        match event {
            WatchEvent::Applied(backup) => self.applied(backup),
            WatchEvent::Deleted(key) => {
                self.pull_reins(&key.name, None);
                self.entries.remove(&key.name);
            }
            WatchEvent::Undecodable(bad) => self.refuse(bad),
            WatchEvent::Listed => {
                // The list delivered all that exist: an entry that it did not touch is gone, with a deletion that was
                // missed while the watch was down.
                let gone: Vec<String> = self
                    .entries
                    .iter_mut()
                    .filter_map(|(name, entry)| (!entry.take_touched()).then(|| name.clone()))
                    .collect();
                for name in gone {
                    self.pull_reins(&name, None);
                    self.entries.remove(&name);
                }
                self.listed = true;
            }
        }
    }

    fn applied(&mut self, backup: Backup) {
        let name = backup.name_any();
        let uid = backup.uid().unwrap_or_default();
        self.pull_reins(&name, Some(&uid));
        if backup.metadata.deletion_timestamp.is_some() {
            self.pull_reins(&name, None);
        }
        if backup.is_cancelled() {
            self.workers(&name)
                .filter(|(of, _)| *of == uid)
                .for_each(|(_, cancellation)| cancellation.cancel());
        }
        if backup.phase().is_terminal() && !finalizer::is_on(&backup) {
            self.entries.remove(&name);
            return;
        }
        let known = self.entries.get(&name).filter(|entry| entry.uid() == uid);
        if known.is_none_or(|entry| entry.backup.phase() != backup.phase()) {
            self.tell_unknown(&backup);
        }
        match self.entries.get_mut(&name) {
            Some(entry) if entry.uid() == uid => entry.update(backup),
            _ => {
                let mut entry = Entry::new(backup);
                // One that could not be read for a while may still have its worker.
                entry.busy = self.running.values().any(|job| job.occupies(&name, &uid));
                self.entries.insert(name, entry);
            }
        }
    }

    /// A phase that this version does not know: nothing is read into it, nothing is stored or patched, and people are told.
    fn tell_unknown(&self, backup: &Backup) {
        if let BackupPhase::Unknown(phase) = backup.phase() {
            let note = format!(
                "phase {phase:?} is not known to this version: nothing is done with this backup; a newer version, or whoever \
                 wrote the phase, has to go on with it"
            );
            tracing::warn!(backup = backup.name_any(), phase, "{note}");
            self.ctx.cluster.events.warning(backup, "UnknownPhase", &note);
        }
    }

    /// Tells the worker of this name to leave off; with `keep`, only if it works for another uid.
    fn pull_reins(&self, name: &str, keep: Option<&str>) {
        self.workers(name)
            .filter(|(uid, _)| keep != Some(*uid))
            .for_each(|(_, cancellation)| cancellation.delete());
    }

    /// The workers of this name, each by the uid that it works for.
    fn workers(&self, name: &str) -> impl Iterator<Item = (&str, &Cancellation)> {
        self.running.values().filter(move |job| job.name == name).filter_map(|job| match &job.task {
            Task::Work(cancellation) => Some((job.uid.as_str(), cancellation)),
            _ => None,
        })
    }

    /// Waits for a job to end; none if there is none.
    pub async fn job_ended(&mut self) -> Option<()> {
        let (id, end) = match self.jobs.join_next_with_id().await? {
            Ok((id, end)) => (id, end),
            Err(error) => (error.id(), badly(&error)),
        };
        let Some(job) = self.running.remove(&id) else { return Some(()) };
        let entry = self.entries.get_mut(&job.name).filter(|entry| job.occupies(&job.name, entry.uid()));
        let Some(entry) = entry else { return Some(()) };
        entry.busy = false;
        match end {
            End::Done(backup) => {
                entry.failures = 0;
                entry.not_before = None;
                match backup {
                    Some(backup) => entry.update(*backup),
                    // A worker that is done leaves an end, which the watch will show; a second one in between is harmless.
                    None => entry.not_before = Some(Instant::now() + RETRY.first),
                }
            }
            End::Gone => {
                self.entries.remove(&job.name);
            }
            End::Failed => {
                entry.failures += 1;
                entry.not_before = Some(Instant::now() + RETRY.delay(entry.failures));
            }
        }
        Some(())
    }

    /// When something that waits is due.
    pub fn wake(&self) -> Option<Instant> {
        self.entries.values().filter(|entry| !entry.busy).filter_map(|entry| entry.not_before).min()
    }

    /// Gives every job that is due.
    pub fn dispatch(&mut self) {
        let now = Instant::now();
        let mut due = Vec::new();
        for (name, entry) in &mut self.entries {
            if entry.not_before.is_some_and(|at| at <= now) {
                entry.not_before = None;
            }
            if !entry.busy && entry.not_before.is_none() && entry.needs_worker() {
                due.push((name.clone(), entry.uid().to_owned()));
            }
        }
        for (name, uid) in due {
            self.work(&name, &uid);
        }
        if self.listed {
            for (name, turn) in self.turns() {
                self.take_turn(&name, turn);
            }
        }
    }

    fn turns(&self) -> Vec<(String, Turn)> {
        let tickets: Vec<Ticket<'_>> = self.entries.iter().map(|(name, entry)| entry.ticket(name)).collect();
        queue::turns(&tickets, slots(&self.ctx))
    }

    fn work(&mut self, name: &str, uid: &str) {
        let cancellation = Cancellation::new(self.ctx.cluster.leadership.clone(), self.ctx.stop.clone());
        if self.entries.get(name).is_some_and(|entry| entry.backup.is_cancelled()) {
            cancellation.cancel();
        }
        let (ctx, permits) = (self.ctx.clone(), Arc::clone(&self.permits));
        let worker = Worker::new(ctx, name, uid, cancellation.clone(), permits, self.config.clone());
        let span = tracing::info_span!("backup", name);
        let job = async move {
            // Boxed: the future of a whole backup is large.
            Box::pin(worker.run()).await;
            End::Done(None)
        };
        let handle = self.jobs.spawn(job.instrument(span));
        self.started(handle.id(), name, uid, Task::Work(cancellation));
    }

    fn take_turn(&mut self, name: &str, turn: Turn) {
        let Some(entry) = self.entries.get(name) else { return };
        let (ctx, backup, uid) = (self.ctx.clone(), Arc::clone(&entry.backup), entry.uid().to_owned());
        let handle = self.jobs.spawn(async move {
            match retry::status_patch(&ctx.cluster, &*backup, |now| patches::turn(now, turn)).await {
                Ok(PatchOutcome::Written(backup)) => End::Done(Some(Box::new(backup))),
                Ok(PatchOutcome::Gone) => End::Gone,
                // The watch will show what it has become.
                Ok(PatchOutcome::Stale) => End::Failed,
                Err(error) => {
                    tracing::warn!(backup = backup.name_any(), %error, "a turn in the queue could not be written");
                    End::Failed
                }
            }
        });
        self.started(handle.id(), name, &uid, Task::Turn);
    }

    /// What can't be decoded has no turn. A worker that it has got notices by itself.
    fn refuse(&mut self, bad: Undecodable) {
        self.entries.remove(&bad.name);
        let is_this = |job: &Job| matches!(job.task, Task::Refusal) && job.uid == bad.uid;
        if self.running.values().any(is_this) {
            return;
        }
        let (ctx, name, uid) = (self.ctx.clone(), bad.name.clone(), bad.uid.clone());
        let handle = self.jobs.spawn(async move {
            let mut failures = 0;
            while let Err(error) = undecodable::refuse(&ctx, &bad).await {
                failures += 1;
                tracing::warn!(name = bad.name, %error, "a Backup that can not be read could not be refused");
                tokio::select! {
                    () = tokio::time::sleep(RETRY.delay(failures)) => {}
                    () = ctx.stop.cancelled() => break,
                }
            }
            End::Done(None)
        });
        self.started(handle.id(), &name, &uid, Task::Refusal);
    }

    fn started(&mut self, id: Id, name: &str, uid: &str, task: Task) {
        let job = Job { name: name.to_owned(), uid: uid.to_owned(), task };
        if let Some(entry) = self.entries.get_mut(name).filter(|entry| job.occupies(name, entry.uid())) {
            entry.busy = true;
        }
        self.running.insert(id, job);
    }
}

impl Job {
    /// Whether no other job may be given to the Backup of this name and uid meanwhile.
    fn occupies(&self, name: &str, uid: &str) -> bool {
        !matches!(self.task, Task::Refusal) && self.name == name && self.uid == uid
    }
}

fn slots(ctx: &Context) -> usize {
    usize::from(ctx.args.concurrent_backups).max(1)
}

/// A job that panicked is given again, like one that failed.
fn badly(error: &JoinError) -> End {
    tracing::error!(%error, "a job for a Backup ended badly");
    End::Failed
}

#[cfg(test)]
mod tests;

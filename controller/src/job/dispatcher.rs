//! Follows the objects of a kind and gives each one that needs it a job.
//!
//! Only objects that have not ended are kept. Their phases decide each time which of them may
//! start.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_client::backoff::Backoff;
use backup_core::{
    event_reason::EventReason,
    phase::{Phase as _, Stage},
};
use backup_runtime::{
    health::Health,
    retry::{self, PatchOutcome},
    watch::{self, Decoded, Undecodable, WatchEvent},
};
use futures::StreamExt as _;
use kube::ResourceExt as _;
use tokio::{
    sync::Semaphore,
    task::{Id, JoinError, JoinSet},
    time::Instant,
};
use tracing::Instrument as _;

use super::{
    JobContext,
    cancellation::Cancellation,
    finalizers,
    lifecycle::{Lifecycle, Ticket},
    object::JobObject as _,
    undecodable,
    worker::Worker,
};
use crate::metrics::stored::Stored as _;

mod entry;

use entry::Entry;

/// Backoff before a failed job is started again.
const RETRY_BACKOFF: Backoff = Backoff {
    first: Duration::from_secs(1),
    cap: Duration::from_mins(1),
};
/// Time for workers to stop cleanly after the process was asked to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) struct Dispatcher<L: Lifecycle> {
    ctx: JobContext,
    kind: Arc<L>,
    /// Objects that have not ended, by name.
    entries: HashMap<String, Entry<L>>,
    /// Objects that cannot be decoded, by name, while a worker that read them before still runs.
    undecodable: HashMap<String, Undecodable>,
    jobs: JoinSet<End<L::Object>>,
    running: HashMap<Id, Job>,
    permits: Arc<Semaphore>,
    /// For the gauges about all objects, including those that have ended.
    gauges: L::Gauges,
    /// True once the initial list is complete. No turns are given before that.
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
    /// For an object that cannot be decoded, so it has no entry.
    Refusal,
}

enum End<O> {
    /// The job has succeeded; a turn returns the current object.
    Done(Option<Box<O>>),
    Gone,
    Failed,
}

/// Runs the objects of a kind until the process is asked to end. `part` is the name of this loop in
/// the health of the process.
pub(crate) async fn run<L: Lifecycle>(
    ctx: JobContext,
    kind: impl Into<Arc<L>>,
    health: Health,
    part: &'static str,
) {
    health.expect(part);
    let mut dispatcher = Dispatcher::new(ctx.clone(), kind);
    let mut events = std::pin::pin!(watch::objects::<L::Object>(&ctx.cluster));
    loop {
        let wake = dispatcher.wake();
        tokio::select! {
            () = ctx.stop.cancelled() => break,
            Some(event) = events.next() => {
                let listed = matches!(event, WatchEvent::Listed(_));
                dispatcher.touched(event);
                if listed {
                    health.ready(part);
                }
            }
            Some(()) = dispatcher.job_ended() => {}
            () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => {}
        }
        dispatcher.dispatch();
    }
    if tokio::time::timeout(DRAIN_TIMEOUT, async {
        while dispatcher.job_ended().await.is_some() {}
    })
    .await
    .is_err()
    {
        tracing::info!("{part} are left to be taken up again after the restart");
    }
}

impl<L: Lifecycle> Dispatcher<L> {
    pub(crate) fn new(ctx: JobContext, kind: impl Into<Arc<L>>) -> Self {
        let kind = kind.into();
        let permits = Arc::new(Semaphore::new(kind.slots()));
        Self {
            ctx,
            kind,
            entries: HashMap::new(),
            undecodable: HashMap::new(),
            jobs: JoinSet::new(),
            running: HashMap::new(),
            permits,
            gauges: L::Gauges::default(),
            listed: false,
        }
    }

    pub(crate) fn touched(&mut self, event: WatchEvent<Decoded<L::Object>>) {
        self.gauges.touched(&event, &self.ctx.metrics);
        match event {
            WatchEvent::Applied(Ok(object)) => self.applied(object),
            WatchEvent::Applied(Err(bad)) => {
                self.entries.remove(&bad.name);
                self.undecodable.insert(bad.name.clone(), *bad);
            }
            WatchEvent::Deleted(key) => self.gone(&key.name),
            WatchEvent::Listed(names) => {
                let entries = self.entries.keys();
                let gone: Vec<String> = entries
                    .filter(|name| !names.contains(*name))
                    .cloned()
                    .collect();
                for name in gone {
                    self.gone(&name);
                }
                self.listed = true;
            }
        }
    }

    fn gone(&mut self, name: &str) {
        self.stop_workers(name, None);
        self.entries.remove(name);
        self.undecodable.remove(name);
    }

    fn applied(&mut self, object: L::Object) {
        let name = object.name_any();
        let uid = object.uid().unwrap_or_default();
        self.undecodable.remove(&name);
        self.stop_workers(&name, Some(&uid));
        if object.is_deleting() {
            self.stop_workers(&name, None);
        }
        if object.is_cancelled() {
            self.workers(&name)
                .filter(|(of, _)| *of == uid)
                .for_each(|(_, cancellation)| cancellation.cancel());
        }
        // A worker writes no end while it works: another program did.
        if object.stage().is_terminal() {
            self.workers(&name)
                .filter(|(of, _)| *of == uid)
                .for_each(|(_, cancellation)| cancellation.fence().object_ended());
        }
        if object.stage().is_terminal() && !finalizers::is_held::<L>(&object) {
            self.entries.remove(&name);
            return;
        }
        let known = self.entries.get(&name).filter(|entry| entry.uid() == uid);
        if known.is_none_or(|entry| entry.object.phase() != object.phase()) {
            self.report_unknown(&object);
        }
        let known = self.entries.get_mut(&name);
        if let Some(entry) = known.filter(|entry| entry.uid() == uid) {
            entry.update(object);
            return;
        }
        let mut entry = Entry::new(object);
        // An object that could not be decoded for a while may still have its worker.
        entry.busy = self.running.values().any(|job| job.occupies(&name, &uid));
        self.entries.insert(name, entry);
    }

    /// Reports a phase that this version does not know. The object is neither stored nor patched.
    fn report_unknown(&self, object: &L::Object) {
        let phase = object.phase();
        if phase.stage() == Stage::Unknown {
            let noun = L::KIND.noun();
            let note = format!(
                "phase {:?} is not known to this version: nothing is done with this {noun}; a newer version, or the program \
                 that wrote the phase, has to go on with it",
                phase.to_string()
            );
            tracing::warn!(name = object.name_any(), %phase, "{note}");
            self.ctx
                .cluster
                .events
                .warning(object, EventReason::UnknownPhase, &note);
        }
    }

    /// Stops the worker of this name; with `keep`, only if it works for another uid.
    fn stop_workers(&self, name: &str, keep: Option<&str>) {
        self.workers(name)
            .filter(|(uid, _)| keep != Some(*uid))
            .for_each(|(_, cancellation)| cancellation.delete());
    }

    /// The workers of this name, each with the uid it works for.
    fn workers(&self, name: &str) -> impl Iterator<Item = (&str, &Cancellation)> {
        self.running
            .values()
            .filter(move |job| job.name == name)
            .filter_map(|job| match &job.task {
                Task::Work(cancellation) => Some((job.uid.as_str(), cancellation)),
                _ => None,
            })
    }

    /// Waits for a job to end; `None` if there is none.
    pub(crate) async fn job_ended(&mut self) -> Option<()> {
        let (id, end) = match self.jobs.join_next_with_id().await? {
            Ok((id, end)) => (id, end),
            Err(error) => (error.id(), panicked(&error)),
        };
        let Some(job) = self.running.remove(&id) else {
            return Some(());
        };
        let entry = self
            .entries
            .get_mut(&job.name)
            .filter(|entry| job.occupies(&job.name, entry.uid()));
        let Some(entry) = entry else { return Some(()) };
        entry.busy = false;
        match end {
            End::Done(object) => {
                entry.failures = 0;
                entry.not_before = None;
                match object {
                    Some(object) => entry.update(*object),
                    // The watch will show the end that the worker has written; another worker
                    // before that is harmless.
                    None => entry.not_before = Some(Instant::now() + RETRY_BACKOFF.first),
                }
            }
            End::Gone => {
                self.entries.remove(&job.name);
            }
            End::Failed => {
                entry.failures += 1;
                entry.not_before = Some(Instant::now() + RETRY_BACKOFF.delay(entry.failures));
            }
        }
        Some(())
    }

    /// When the next delayed entry is due.
    pub(crate) fn wake(&self) -> Option<Instant> {
        self.entries
            .values()
            .filter(|entry| !entry.busy)
            .filter_map(|entry| entry.not_before)
            .min()
    }

    pub(crate) fn dispatch(&mut self) {
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
        // A worker that read the object before must end first.
        let refused: Vec<String> = self
            .undecodable
            .values()
            .filter(|bad| !self.has_job(bad))
            .map(|bad| bad.name.clone())
            .collect();
        for bad in refused
            .iter()
            .filter_map(|name| self.undecodable.remove(name))
            .collect::<Vec<_>>()
        {
            self.refuse(bad);
        }
        if self.listed {
            for (name, turn) in self.turns() {
                self.take_turn(&name, turn);
            }
        }
    }

    /// Whether a job of this object still runs.
    fn has_job(&self, object: &Undecodable) -> bool {
        self.running
            .values()
            .any(|job| job.name == object.name && job.uid == object.uid)
    }

    fn turns(&self) -> Vec<(String, L::Turn)> {
        let tickets: Vec<Ticket<'_>> = self
            .entries
            .iter()
            .map(|(name, entry)| entry.ticket(name))
            .collect();
        L::turns(&tickets, self.kind.slots())
    }

    fn work(&mut self, name: &str, uid: &str) {
        let cancellation =
            Cancellation::new(self.ctx.cluster.leadership.clone(), self.ctx.stop.clone());
        let worker = Worker::new(
            self.ctx.clone(),
            Arc::clone(&self.kind),
            name,
            uid,
            cancellation.clone(),
            Arc::clone(&self.permits),
        );
        if let Some(entry) = self.entries.get_mut(name) {
            entry.yields = Arc::clone(&worker.yields);
        }
        // Not `name`: a span has its own name, so the field would appear twice in a line.
        let span = tracing::info_span!("job", kind = L::KIND.noun(), object = name);
        let job = async move {
            // Boxed: the future of a whole backup is large.
            Box::pin(worker.run()).await;
            End::Done(None)
        };
        let handle = self.jobs.spawn(job.instrument(span));
        self.started(handle.id(), name, uid, Task::Work(cancellation));
    }

    fn take_turn(&mut self, name: &str, turn: L::Turn) {
        let Some(entry) = self.entries.get(name) else {
            return;
        };
        let ctx = self.ctx.clone();
        let object = Arc::clone(&entry.object);
        let uid = entry.uid().to_owned();
        let handle = self.jobs.spawn(async move {
            match retry::status_patch(&ctx.cluster, &*object, |now| L::turn_patch(now, turn)).await {
                Ok(PatchOutcome::Written(object)) => End::Done(Some(Box::new(object))),
                Ok(PatchOutcome::Gone) => End::Gone,
                // The watch will show the new state of the object.
                Ok(PatchOutcome::Stale) => End::Failed,
                Err(error) => {
                    tracing::warn!(name = object.name_any(), %error, "a turn in the queue could not be written");
                    End::Failed
                }
            }
        });
        self.started(handle.id(), name, &uid, Task::Turn);
    }

    /// Undecodable objects have no turn in a queue.
    fn refuse(&mut self, bad: Undecodable) {
        let ctx = self.ctx.clone();
        let name = bad.name.clone();
        let uid = bad.uid.clone();
        let handle = self.jobs.spawn(async move {
            let mut failures = 0;
            while let Err(error) = undecodable::refuse::<L>(&ctx, &bad).await {
                failures += 1;
                tracing::warn!(name = bad.name, %error, "an object that cannot be read could not be refused");
                tokio::select! {
                    () = tokio::time::sleep(RETRY_BACKOFF.delay(failures)) => {}
                    () = ctx.stop.cancelled() => break,
                }
            }
            End::Done(None)
        });
        self.started(handle.id(), &name, &uid, Task::Refusal);
    }

    fn started(&mut self, id: Id, name: &str, uid: &str, task: Task) {
        let job = Job {
            name: name.to_owned(),
            uid: uid.to_owned(),
            task,
        };
        if let Some(entry) = self
            .entries
            .get_mut(name)
            .filter(|entry| job.occupies(name, entry.uid()))
        {
            entry.busy = true;
        }
        self.running.insert(id, job);
    }
}

impl Job {
    /// Whether no other job may be started for the object of this name and uid meanwhile.
    fn occupies(&self, name: &str, uid: &str) -> bool {
        !matches!(self.task, Task::Refusal) && self.name == name && self.uid == uid
    }
}

/// A job that panicked is started again, like one that failed.
fn panicked<O>(error: &JoinError) -> End<O> {
    tracing::error!(%error, "a job has panicked");
    End::Failed
}

#[cfg(test)]
mod tests;

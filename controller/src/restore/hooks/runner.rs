//! Runs the hooks of all pods of a restore, concurrently with the rest of its work.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use backup_actions::restore::json::{self, Object};
use backup_client::backoff::Backoff;
use backup_core::labels;
use backup_store::{Scope, StoreError};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{Semaphore, mpsc::Receiver},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    WHEN,
    journal::{HookId, HookJournal, PriorHook},
    pod_hooks::PodHooksRun,
    rules::PodHooks,
};
use crate::{
    hooks::{
        Hook,
        exec::{Executor, GatedExecutor},
    },
    job::cancellation::StopReason,
    restore::{calls::Calls, report::Report, work::STOP_TIMEOUT},
};

/// Maximum number of concurrent commands.
const MAX_CONCURRENT_COMMANDS: usize = 16;
/// Maximum number of concurrent reads of pods.
const MAX_CONCURRENT_READS: usize = 4;
/// Interval between two reads of a pod.
const READ_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    cap: Duration::from_secs(5),
};
/// Minimum interval per waiting pod: all pods together are read at most 50 times a second.
const MIN_INTERVAL_PER_POD: Duration = Duration::from_millis(20);

/// The executor of hooks, and the journal that records them.
#[derive(Clone, Copy)]
pub(crate) struct HookContext<'a> {
    pub(crate) executor: &'a dyn Executor,
    pub(crate) journal: &'a HookJournal,
}

/// Why hooks stop.
#[derive(Debug)]
pub(super) enum HookStop {
    /// The work has to stop.
    Work(StopReason),
    /// This attempt has failed; the next one continues.
    Attempt,
    /// The journal cannot be written.
    Journal(StoreError),
}

impl From<StopReason> for HookStop {
    fn from(reason: StopReason) -> Self {
        Self::Work(reason)
    }
}

/// State shared by the hooks of all pods.
pub(crate) struct HookRunner<'a> {
    pub(super) context: HookContext<'a>,
    pub(super) calls: &'a Calls,
    pub(super) report: &'a Report,
    patience: Duration,
    /// Value of the label on pods of this restore.
    label: String,
    /// Cancelled once the attempt has failed.
    failed: CancellationToken,
    pub(super) commands: Semaphore,
    pub(super) looks: Semaphore,
    waiting: AtomicU32,
}

impl<'a> HookRunner<'a> {
    /// `label` is the value of the label on pods of this restore.
    pub(crate) fn new(
        context: HookContext<'a>,
        calls: &'a Calls,
        report: &'a Report,
        patience: Duration,
        label: String,
    ) -> Self {
        Self {
            context,
            calls,
            report,
            patience,
            label,
            failed: CancellationToken::new(),
            commands: Semaphore::new(MAX_CONCURRENT_COMMANDS),
            looks: Semaphore::new(MAX_CONCURRENT_READS),
            waiting: AtomicU32::new(0),
        }
    }

    /// Stops new work of hooks, because this attempt has failed.
    pub(crate) fn fail(&self) {
        self.failed.cancel();
    }

    /// Runs the hooks of all received pods, until the sender is dropped and all hooks have ended.
    /// The number of waiting entries is bounded by the pods of the backup that have hooks; each is
    /// small. Fails if the journal cannot be written.
    pub(crate) async fn run(&self, mut pods: Receiver<PodHooks>) -> Result<(), StoreError> {
        let mut runs = FuturesUnordered::new();
        let mut more = true;
        let mut failed = None;
        while more || !runs.is_empty() {
            tokio::select! {
                pod = pods.recv(), if more => match pod {
                    Some(pod) => runs.push(self.pod(pod)),
                    None => more = false,
                },
                Some(done) = runs.next(), if !runs.is_empty() => if let Err(error) = done {
                    self.fail();
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn pod(&self, hooks: PodHooks) -> Result<(), StoreError> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let done = PodHooksRun::new(self, hooks).run().await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Reports hooks of earlier attempts that this attempt has not reached.
    pub(crate) fn report_left(&self) {
        for (hook, prior) in self.context.journal.left() {
            self.report.hooks_attempted(1);
            self.report_prior(&hook, &prior);
        }
    }

    /// Reports the outcome of a hook of an earlier attempt.
    pub(super) fn report_prior(&self, hook: &HookId, prior: &PriorHook) {
        let HookId {
            namespace,
            pod,
            source,
            container,
            ..
        } = hook;
        // The same wording as for a hook that runs now.
        let of = Hook {
            source: source.clone(),
            container: container.clone(),
            command: Vec::new(),
            fails: false,
            timeout: Duration::ZERO,
        };
        let subject = of.subject(WHEN, namespace, pod);
        match prior {
            PriorHook::Succeeded => {
                self.report.info(&format!("{subject} has run before the restore was taken up again"));
            }
            PriorHook::Failed(why) => self.failed_hook(namespace, format!("{subject} failed: {why}")),
            PriorHook::Unknown => self.failed_hook(
                namespace,
                format!(
                    "{subject} was begun before the restore was taken up again, and what came of it is not known: it is \
                     not run again"
                ),
            ),
        }
    }

    pub(super) fn failed_hook(&self, namespace: &str, error: String) {
        self.report.hook_failed();
        self.report.error(Scope::Namespace(namespace), error);
    }

    pub(super) fn gated(&self) -> GatedExecutor<'_> {
        let Self {
            context,
            calls,
            patience,
            ..
        } = self;
        GatedExecutor {
            executor: context.executor,
            cancellation: calls.cancellation(),
            patience: *patience,
        }
    }

    /// Whether a pod was created by this restore.
    pub(super) fn is_ours(&self, pod: &Object) -> bool {
        json::text(pod, &["metadata", "labels"], labels::RESTORE_NAME) == Some(&self.label)
    }

    /// Must be called before each step.
    pub(super) fn check(&self) -> Result<(), HookStop> {
        if self.failed.is_cancelled() {
            return Err(HookStop::Attempt);
        }
        Ok(self.calls.cancellation().check_new_work()?)
    }

    /// Awaits `wait`, unless new work is forbidden before it ends.
    pub(super) async fn unless_stopped<T>(
        &self,
        wait: impl Future<Output = T>,
    ) -> Result<T, HookStop> {
        tokio::select! {
            biased;
            result = wait => Ok(result),
            stop = self.stopped() => Err(stop),
        }
    }

    /// Resolves when no new work may begin.
    async fn stopped(&self) -> HookStop {
        let cancellation = self.calls.cancellation();
        tokio::select! {
            () = self.failed.cancelled() => HookStop::Attempt,
            reason = cancellation.stopped() => HookStop::Work(reason),
            () = cancellation.cancelled() => HookStop::Work(StopReason::Cancelled),
        }
    }

    /// Resolves when a running command is no longer waited for. After a stop it has `STOP_TIMEOUT`
    /// to end, so that its outcome is known, unless the claim is lost.
    pub(super) async fn cut_off(&self) -> HookStop {
        let stop = self.stopped().await;
        tokio::select! {
            () = tokio::time::sleep(STOP_TIMEOUT) => stop,
            () = self.calls.cancellation().fence().lost() => HookStop::Work(StopReason::ClaimLost),
        }
    }

    /// Pauses before the next read of a pod, until `deadline` at the latest.
    pub(super) async fn pause(&self, looks: u32, deadline: Instant) -> Result<(), HookStop> {
        let pause = READ_BACKOFF
            .delay(looks)
            .max(MIN_INTERVAL_PER_POD * self.waiting.load(Ordering::Relaxed));
        let until = deadline.min(Instant::now() + pause);
        self.unless_stopped(tokio::time::sleep_until(until)).await
    }
}

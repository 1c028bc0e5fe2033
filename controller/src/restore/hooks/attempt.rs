//! What the hooks of all pods share in one attempt at a restore.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use backup_actions::restore::json::{self, Object};
use backup_client::backoff::Backoff;
use backup_core::labels;
use backup_store::Scope;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    WHEN,
    journal::{HookId, HookJournal, PriorHook},
    stop::{HookStop, HookStops},
};
use crate::{
    hooks::{
        Hook,
        exec::{Executor, GatedExecutor},
    },
    restore::{calls::Calls, report::Report},
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

pub(super) struct HookAttempt<'a> {
    pub(super) context: HookContext<'a>,
    pub(super) calls: &'a Calls,
    pub(super) report: &'a Report,
    pub(super) stops: HookStops<'a>,
    patience: Duration,
    /// Value of the label on pods of this restore.
    label: String,
    pub(super) commands: Semaphore,
    pub(super) looks: Semaphore,
    /// Number of pods whose hooks have not ended.
    pub(super) waiting: AtomicU32,
}

impl<'a> HookAttempt<'a> {
    /// `label` is the value of the label on pods of this restore.
    pub(super) fn new(
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
            stops: HookStops::new(calls.cancellation()),
            commands: Semaphore::new(MAX_CONCURRENT_COMMANDS),
            looks: Semaphore::new(MAX_CONCURRENT_READS),
            waiting: AtomicU32::new(0),
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

    /// Pauses before the next read of a pod, until `deadline` at the latest.
    pub(super) async fn pause(&self, looks: u32, deadline: Instant) -> Result<(), HookStop> {
        let pause = READ_BACKOFF
            .delay(looks)
            .max(MIN_INTERVAL_PER_POD * self.waiting.load(Ordering::Relaxed));
        let until = deadline.min(Instant::now() + pause);
        self.stops
            .unless_stopped(tokio::time::sleep_until(until))
            .await
    }
}

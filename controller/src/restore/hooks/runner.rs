//! Runs the hooks of all pods of a restore, concurrently with the rest of its work.

use std::{sync::atomic::Ordering, time::Duration};

use backup_store::StoreError;
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::sync::mpsc::Receiver;

use super::{
    attempt::{HookAttempt, HookContext},
    pod_hooks::PodHooksRun,
    rules::PodHooks,
};
use crate::restore::{calls::Calls, report::Report};

pub(crate) struct HookRunner<'a>(HookAttempt<'a>);

impl<'a> HookRunner<'a> {
    /// `label` is the value of the label on pods of this restore.
    pub(crate) fn new(
        context: HookContext<'a>,
        calls: &'a Calls,
        report: &'a Report,
        patience: Duration,
        label: String,
    ) -> Self {
        Self(HookAttempt::new(context, calls, report, patience, label))
    }

    /// Stops new work of hooks, because this attempt has failed.
    pub(crate) fn fail(&self) {
        self.0.stops.fail();
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
        let Self(attempt) = self;
        attempt.waiting.fetch_add(1, Ordering::Relaxed);
        let done = PodHooksRun::new(attempt, hooks).run().await;
        attempt.waiting.fetch_sub(1, Ordering::Relaxed);
        done
    }

    /// Reports hooks of earlier attempts that this attempt has not reached.
    pub(crate) fn report_left(&self) {
        let Self(attempt) = self;
        for (hook, prior) in attempt.context.journal.left() {
            attempt.report.hooks_attempted(1);
            attempt.report_prior(&hook, &prior);
        }
    }
}

//! The hooks of one pod: waits for its containers, and runs them one after the other.

use backup_actions::restore::json::{self, Object};
use backup_client::path;
use backup_core::api::GoDuration;
use backup_store::StoreError;
use tokio::time::Instant;

use super::{
    WHEN,
    attempt::HookAttempt,
    journal::{HookEnd, HookId, PriorHook},
    pod_state::{ContainerState, container_state, ended},
    rules::{ExecHook, PodHooks},
    stop::HookStop,
};
use crate::{
    hooks::exec::{ExecError, run_until_begun},
    job::cancellation::{NotSent, StopReason},
    restore::calls::CallError,
};

/// Minimum timeout of a read: each pod is read at least once.
const MIN_READ_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) struct PodHooksRun<'a> {
    attempt: &'a HookAttempt<'a>,
    namespace: String,
    pod: String,
    /// Uid of the pod that this restore created: no hook runs in another pod of the same name.
    uid: Option<String>,
    /// Hooks that have not run yet, in order.
    hooks: Vec<ExecHook>,
    /// When the pod was restored.
    since: Instant,
}

/// The result of reading the pod.
enum Look {
    Pod(Object),
    /// The pod is gone, replaced or ended; the message says which.
    Gone(String),
    /// The pod could not be read; the message says why.
    Unreadable(String),
}

impl<'a> PodHooksRun<'a> {
    pub(super) fn new(attempt: &'a HookAttempt<'a>, hooks: PodHooks) -> Self {
        let PodHooks {
            namespace,
            pod,
            hooks,
            ..
        } = hooks;
        Self {
            attempt,
            namespace,
            pod,
            uid: None,
            hooks,
            since: Instant::now(),
        }
    }

    /// Runs all hooks, or reports those that are not run. Fails if the journal cannot be written.
    pub(super) async fn run(mut self) -> Result<(), StoreError> {
        match self.hooks_in_turn().await {
            Err(HookStop::Journal(error)) => {
                self.give_up(&format!("it could not be noted: {error}"));
                return Err(error);
            }
            Err(HookStop::Work(reason @ (StopReason::Cancelled | StopReason::ClaimLost))) => {
                self.give_up(&stopped(reason));
            }
            // Hooks that were not run are left to the next attempt.
            Ok(()) | Err(HookStop::Work(_) | HookStop::Attempt) => {}
        }
        Ok(())
    }

    async fn hooks_in_turn(&mut self) -> Result<(), HookStop> {
        let mut looks = 0;
        let subject = format!(
            "pod {}/{} to be ready for its commands",
            self.namespace, self.pod
        );
        let _wait = self.attempt.calls.cancellation().waits().begin(subject);
        while let Some(deadline) = self.hooks.iter().map(|hook| self.since + hook.wait).min() {
            self.attempt.stops.check()?;
            let ran = match self.look(deadline).await? {
                Look::Pod(pod) => self.advance(&pod).await?,
                Look::Gone(why) => {
                    self.give_up(&why);
                    return Ok(());
                }
                Look::Unreadable(why) => {
                    self.expire(|_| Some(why.clone()));
                    false
                }
            };
            // After a command the next hook is checked without a pause.
            looks = if ran { 0 } else { looks + 1 };
            let next = self.hooks.iter().map(|hook| self.since + hook.wait).min();
            if let (false, Some(next)) = (ran, next) {
                self.attempt.pause(looks, next).await?;
            }
        }
        Ok(())
    }

    async fn look(&mut self, deadline: Instant) -> Result<Look, HookStop> {
        let Self {
            attempt,
            namespace,
            pod: name,
            ..
        } = self;
        let collection = path::collection("v1", "pods", Some(namespace));
        let get = async {
            let _turn = attempt.looks.acquire().await;
            attempt.calls.get(&collection, name).await
        };
        let until = deadline.max(Instant::now() + MIN_READ_TIMEOUT);
        let pod = match attempt
            .stops
            .unless_stopped(tokio::time::timeout_at(until, get))
            .await?
        {
            Ok(Ok(Some(pod))) => pod,
            Ok(Ok(None)) => return Ok(Look::Gone("the pod was deleted".to_owned())),
            Ok(Err(CallError::Stopped(reason))) => return Err(reason.into()),
            Ok(Err(error)) => {
                return Ok(Look::Unreadable(format!(
                    "the pod could not be read: {error}"
                )));
            }
            Err(_) => {
                let why = "the pod could not be read: the API server gave no answer in time";
                return Ok(Look::Unreadable(why.to_owned()));
            }
        };
        let uid = json::text(&pod, &["metadata"], "uid").unwrap_or_default();
        let same = match &self.uid {
            Some(known) => known == uid,
            None => self.attempt.is_ours(&pod),
        };
        if !same {
            return Ok(Look::Gone(
                "the pod was replaced by another one of its name".to_owned(),
            ));
        }
        if self.uid.is_none() {
            self.uid = Some(uid.to_owned());
            self.take_over();
        }
        match ended(&pod) {
            Some(phase) => Ok(Look::Gone(format!("the pod has ended before ({phase})"))),
            None => Ok(Look::Pod(pod)),
        }
    }

    /// Removes hooks that an earlier attempt has begun, and reports their outcome.
    fn take_over(&mut self) {
        let mut failed = None;
        let mut hooks = std::mem::take(&mut self.hooks);
        hooks.retain(|hook| {
            let id = self.id(hook);
            let Some(prior) = self.attempt.context.journal.take_prior(&id) else {
                return true;
            };
            self.attempt.report_prior(&id, &prior);
            if hook.hook.fails && prior != PriorHook::Succeeded {
                failed.get_or_insert(id.source);
            }
            false
        });
        self.hooks = hooks;
        if let Some(source) = failed {
            self.give_up_after(&source);
        }
    }

    /// Runs the first hook whose container is up; true if there was one. Otherwise hooks fail whose
    /// container is missing, or whose deadline has passed.
    async fn advance(&mut self, pod: &Object) -> Result<bool, HookStop> {
        if let Some(at) = self
            .hooks
            .iter()
            .position(|hook| hook_state(pod, hook) == ContainerState::Up)
        {
            self.execute(at).await?;
            return Ok(true);
        }
        while let Some(at) = self
            .hooks
            .iter()
            .position(|hook| hook_state(pod, hook) == ContainerState::Missing)
        {
            self.failed(at, "was not run: the pod has no such container");
        }
        self.expire(|hook| match hook_state(pod, hook) {
            ContainerState::Waiting(why) => Some(why),
            ContainerState::Up | ContainerState::Missing => None,
        });
        Ok(false)
    }

    /// Fails hooks whose deadline has passed, if `why` returns a reason.
    fn expire(&mut self, why: impl Fn(&ExecHook) -> Option<String>) {
        let waited = self.since.elapsed();
        while let Some((at, why)) = self.hooks.iter().enumerate().find_map(|(at, hook)| {
            let why = (waited >= hook.wait).then(|| why(hook)).flatten()?;
            Some((at, why))
        }) {
            let Some(ExecHook { wait, ready, .. }) = self.hooks.get(at) else {
                return;
            };
            let state = if *ready { "be ready" } else { "run" };
            let wait = GoDuration::from(*wait);
            let message =
                format!("was not run: {wait} were not enough for the container to {state}: {why}");
            self.failed(at, &message);
        }
    }

    async fn execute(&mut self, at: usize) -> Result<(), HookStop> {
        let Some(hook) = self.hooks.get(at).cloned() else {
            return Ok(());
        };
        let attempt = self.attempt;
        let turn = attempt
            .stops
            .unless_stopped(attempt.commands.acquire())
            .await?;
        attempt.stops.check()?;
        let gated = attempt.gated();
        // Before the journal entry, so that a hook that must not run is not recorded as begun.
        match gated.cancellation.may_write(gated.patience).await {
            Ok(()) => {}
            Err(NotSent::Stopped(reason)) => return Err(reason.into()),
            Err(error @ NotSent::Unconfirmed) => {
                self.failed(at, &format!("was not run: {error}"));
                return Ok(());
            }
        }
        let id = self.id(&hook);
        let journal = attempt.context.journal;
        journal.begin(&id).await.map_err(HookStop::Journal)?;
        let ran = tokio::select! {
            biased;
            ran = run_until_begun(&gated, &self.namespace, &self.pod, &hook.hook) => ran,
            stop = attempt.stops.cut_off() => {
                // No end is recorded: the next attempt must not run it again either.
                let why = match &stop {
                    HookStop::Work(reason) => stopped(*reason),
                    HookStop::Attempt | HookStop::Journal(_) => String::new(),
                };
                self.failed(at, &format!("was running when {why}: what came of it is not known"));
                return Err(stop);
            }
        };
        drop(turn);
        let end = match &ran {
            Ok(_) => HookEnd::Succeeded,
            Err(ExecError::Stopped(_)) => HookEnd::NotRun,
            Err(error) => HookEnd::Failed(error.to_string()),
        };
        if let Err(error) = journal.end(&id, &end).await {
            self.failed(
                at,
                &format!("has ended, and that could not be noted: {error}"),
            );
            return Err(HookStop::Journal(error));
        }
        let subject = hook.hook.subject(WHEN, &self.namespace, &self.pod);
        match ran {
            Err(ExecError::Stopped(reason)) => return Err(reason.into()),
            Ok(output) => {
                let printed = if output.is_empty() {
                    String::new()
                } else {
                    format!(" and printed: {output}")
                };
                attempt.report.info(&format!("{subject} has run{printed}"));
                self.hooks.remove(at);
            }
            Err(error) => {
                self.failed(at, &format!("failed: {error}"));
                if !error.output().is_empty() {
                    attempt
                        .report
                        .info(&format!("{subject} printed: {}", error.output()));
                }
            }
        }
        Ok(())
    }

    /// Reports a hook that failed or is not run. If its `onError` is Fail, the remaining hooks of
    /// the pod are not run either.
    fn failed(&mut self, at: usize, what: &str) {
        let hook = self.hooks.remove(at);
        let subject = hook.hook.subject(WHEN, &self.namespace, &self.pod);
        self.attempt
            .failed_hook(&self.namespace, format!("{subject} {what}"));
        if hook.hook.fails {
            self.give_up_after(&hook.hook.source);
        }
    }

    fn give_up_after(&mut self, failed: &str) {
        self.give_up(&format!(
            "a hook of the pod has failed whose onError is Fail ({failed})"
        ));
    }

    /// Reports all remaining hooks as not run.
    fn give_up(&mut self, why: &str) {
        for hook in std::mem::take(&mut self.hooks) {
            let subject = hook.hook.subject(WHEN, &self.namespace, &self.pod);
            self.attempt
                .failed_hook(&self.namespace, format!("{subject} was not run: {why}"));
        }
    }

    fn id(&self, hook: &ExecHook) -> HookId {
        HookId {
            namespace: self.namespace.clone(),
            pod: self.pod.clone(),
            uid: self.uid.clone().unwrap_or_default(),
            number: hook.number,
            source: hook.hook.source.clone(),
            container: hook.hook.container.clone(),
        }
    }
}

/// The state of the container of a hook.
fn hook_state(pod: &Object, hook: &ExecHook) -> ContainerState {
    container_state(pod, &hook.hook.container, hook.ready)
}

fn stopped(reason: StopReason) -> String {
    match reason {
        StopReason::Cancelled => "the restore was cancelled by a user".to_owned(),
        StopReason::ClaimLost => "the claim of the restore was released".to_owned(),
        other => other.to_string(),
    }
}

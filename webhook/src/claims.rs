//! Claims places in the ledger of a scope.
//!
//! One task per scope and replica takes all waiting requests, decides on them together and writes
//! the ledger once, based on the object from its last write. Only a successful write grants a
//! claim; nothing is refused from memory alone: before a refusal the blocking object is read again,
//! and so is the ledger, unless it was read moments ago and that object is running.

mod batch;
mod decide;

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_lock::{
    LedgerError, ObjectKind, ProtectedProfile, admission::ClaimRequest, ledger::FormatError,
};
use kube::core::{DynamicObject, admission::AdmissionRequest};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{
    admit::denial::{self, Blocker},
    metrics::Metrics,
};

/// Maximum number of requests waiting for one scope; more are refused.
const MAX_WAITING_REQUESTS: usize = 1024;
/// Maximum number of scopes with a running task.
const MAX_SCOPES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Granted,
    /// The claim is in the ledger, and waits there for these.
    Waiting(Vec<Blocker>),
    /// The claim is in the ledger despite conflicts with these.
    Forced(Vec<Blocker>),
    /// These conflict; one of them was just read.
    Blocked(Vec<Blocker>),
    Full(String),
    /// No decision was possible: the message, and after how many seconds clients may retry.
    Trouble(String, u32),
}

/// Seconds after which a client may retry while a ledger is rebuilt.
const REBUILD_SECONDS: u32 = 10;
/// The same where an operator has to act.
const OPERATOR_SECONDS: u32 = 60;

impl Verdict {
    fn trouble(why: &str) -> Self {
        Self::Trouble(denial::not_in_time(why), 1)
    }

    fn not_open(why: &str) -> Self {
        let message = format!(
            "nothing is admitted until the ledger is open, and nothing was: {why}; try again then"
        );
        Self::Trouble(message, REBUILD_SECONDS)
    }

    fn late() -> Self {
        Self::trouble("the ledger could not be written in time")
    }

    /// Why the ledger is unusable, and what ends that: time, or an operator.
    fn of_ledger(error: &LedgerError) -> Self {
        match error {
            LedgerError::Format {
                source: FormatError::Newer { .. },
                ..
            } => Self::Trouble(
                format!(
                    "this backup-webhook is older than the ledger, so nothing was admitted: {error}. Trying again does not help: \
                     apply the newer version of all programs again (docs/operate/upgrade.md)"
                ),
                OPERATOR_SECONDS,
            ),
            error if error.passes_soon() => Self::trouble(&error.to_string()),
            error if error.is_transient() => Self::not_open(&error.to_string()),
            // An API server that has just started refuses requests that it allows moments later.
            error => Self::Trouble(
                format!("backup-webhook cannot use the ledger, so nothing was admitted: {error}"),
                1,
            ),
        }
    }
}

/// A verdict is reached this long before the client stops waiting, so that it still gets the
/// reason. It is more than the rounding of the timer.
const TIME_TO_ANSWER: Duration = Duration::from_millis(20);

struct WaitingRequest {
    request: ClaimRequest,
    /// Time at which the verdict has to be sent.
    deadline: Instant,
    reply: oneshot::Sender<Verdict>,
}

/// The queues of all scopes of a profile; cheap to clone.
#[derive(Clone)]
pub(crate) struct Claims {
    protected: ProtectedProfile,
    metrics: Arc<Metrics>,
    scopes: Arc<Mutex<HashMap<String, mpsc::Sender<WaitingRequest>>>>,
}

impl Claims {
    /// Starts without queues: each is created with the first request for its scope, and ends when
    /// it is idle.
    pub(crate) fn new(protected: ProtectedProfile, metrics: Arc<Metrics>) -> Self {
        Self {
            protected,
            metrics,
            scopes: Arc::default(),
        }
    }

    pub(crate) fn protected(&self) -> &ProtectedProfile {
        &self.protected
    }

    /// The profile's kind for this request; `None` if the profile does not have the kind.
    pub(crate) fn kind_of(&self, request: &AdmissionRequest<DynamicObject>) -> Option<ObjectKind> {
        let profile = &self.protected.profile;
        let group = request.kind.group.as_str();
        let kind = request.kind.kind.as_str();
        let deletes =
            profile.is_velero() && group == profile.group && kind == "DeleteBackupRequest";
        let role = profile.role_of(group, kind).map(ObjectKind::from);
        role.or(deletes.then_some(ObjectKind::DeleteBackupRequest))
    }

    /// Whether there is an installation in the namespace of this request, so that its object needs
    /// a claim.
    pub(crate) fn count(&self, request: &AdmissionRequest<DynamicObject>) -> bool {
        self.protected
            .store
            .objects()
            .count_in(request.namespace.as_deref().unwrap_or_default())
    }

    /// Claims a place, by `deadline` at the latest. A refusal leaves nothing in the ledger, unless
    /// the answer to a write was lost: that claim becomes an orphan and is collected.
    pub(crate) async fn claim(
        &self,
        scope: &str,
        request: ClaimRequest,
        deadline: Instant,
    ) -> Verdict {
        let (reply, verdict) = oneshot::channel();
        let Some(queue) = self.queue(scope) else {
            return Verdict::trouble(&format!(
                "more than {MAX_SCOPES} scopes are being worked on"
            ));
        };
        if queue
            .try_send(WaitingRequest {
                request,
                deadline: deadline.checked_sub(TIME_TO_ANSWER).unwrap_or(deadline),
                reply,
            })
            .is_err()
        {
            return Verdict::trouble(&format!(
                "more than {MAX_WAITING_REQUESTS} requests wait for the ledger"
            ));
        }
        match tokio::time::timeout_at(deadline, verdict).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Verdict::trouble("the replica is shutting down"),
            Err(_) => Verdict::late(),
        }
    }

    /// The verdict that [`Claims::claim`] would give now. Writes nothing and guarantees nothing.
    pub(crate) async fn evaluate(
        &self,
        scope: &str,
        request: ClaimRequest,
        deadline: Instant,
    ) -> Verdict {
        let evaluation = async {
            let store = &self.protected.store;
            let ledger = store.preview(scope).await?;
            let mut collector = self.protected.collector();
            let requests = [request];
            let running = decide::RunningByKey::new();
            let decided = decide::decide(
                &self.protected,
                scope,
                &mut collector,
                &ledger,
                &requests,
                running,
                deadline,
            )
            .await;
            Ok::<_, LedgerError>(decided.verdicts.into_iter().next())
        };
        match tokio::time::timeout_at(deadline, evaluation).await {
            Ok(Ok(Some(verdict))) => verdict,
            Ok(Ok(None)) => Verdict::trouble("no verdict was reached"),
            Ok(Err(error)) => Verdict::of_ledger(&error),
            Err(_) => Verdict::trouble("the API server did not answer in time"),
        }
    }

    /// The queue of a scope; a new one if there is none, or its task has ended.
    fn queue(&self, scope: &str) -> Option<mpsc::Sender<WaitingRequest>> {
        let mut scopes = self.scopes.lock();
        if let Some(known) = scopes.get(scope).filter(|known| !known.is_closed()) {
            return Some(known.clone());
        }
        if scopes.len() >= MAX_SCOPES {
            scopes.retain(|_, known| !known.is_closed());
            if scopes.len() >= MAX_SCOPES {
                return None;
            }
        }
        let (queue, waiting) = mpsc::channel(MAX_WAITING_REQUESTS);
        let task = batch::Task::new(scope, self.protected.clone(), Arc::clone(&self.metrics));
        tokio::spawn(task.run(waiting));
        scopes.insert(scope.to_owned(), queue.clone());
        Some(queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_trouble_with_a_ledger_says_what_ends_it() {
        let lease = || "backup-lock-velero".to_owned();
        let format = |source| LedgerError::Format {
            lease: lease(),
            source,
        };
        for (error, seconds, says, says_not) in [
            (
                format(FormatError::Newer { found: 9 }),
                60,
                "apply the newer version",
                "rebuilt",
            ),
            (
                format(FormatError::Unreadable("it was edited".to_owned())),
                10,
                "until the ledger is open",
                "in time",
            ),
            (
                LedgerError::Rebuilding {
                    lease: lease(),
                    grace: Duration::from_mins(2),
                },
                10,
                "being rebuilt",
                "in time",
            ),
            (
                LedgerError::BeingDeleted {
                    lease: lease(),
                    finalizers: vec!["example.com/keep".to_owned()],
                },
                10,
                "is being deleted and kept by the finalizer example.com/keep",
                "in time",
            ),
            (
                LedgerError::Changed { lease: lease() },
                1,
                "could not decide in time",
                "until the ledger is open",
            ),
            (
                LedgerError::TooLarge {
                    lease: lease(),
                    bytes: 1,
                },
                1,
                "cannot use the ledger",
                "try again",
            ),
        ] {
            let Verdict::Trouble(why, after) = Verdict::of_ledger(&error) else {
                panic!("{error}")
            };
            assert!(
                after == seconds && why.contains(says) && !why.contains(says_not),
                "{after} {why}"
            );
        }
    }
}

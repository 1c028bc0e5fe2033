//! Claims places in the ledger of a scope.
//!
//! One task per scope and replica takes all requests that wait, decides on them together and writes the ledger once, on
//! the object that it remembers from its last write. Nothing is granted but by a write that succeeded; nothing is refused
//! from memory alone: before a refusal the object in the way is read freshly, and the ledger, too, unless it was read moments
//! ago and that object is at work.

mod batch;
mod decide;

use std::{collections::HashMap, sync::Arc};

use backup_lock::{ObjectKind, ProtectedProfile, admission::ClaimRequest};
use kube::core::{DynamicObject, admission::AdmissionRequest};
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{admit::denial::Blocker, metrics::Metrics};

/// Requests that wait for one scope at most; more are turned away.
const QUEUE: usize = 1024;
/// Scopes that are worked on at a time, at most.
const MAX_SCOPES: usize = 4096;

#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Granted,
    /// It stands in the ledger, and waits there for these.
    Waiting(Vec<Blocker>),
    /// It stands in the ledger although these are in the way.
    Forced(Vec<Blocker>),
    /// These are in the way; one of them was just read.
    Blocked(Vec<Blocker>),
    Full(String),
    /// It could not be decided; clients may come again after so many seconds.
    Trouble(String, u32),
}

impl Verdict {
    fn trouble(why: &str) -> Self {
        Self::Trouble(why.to_owned(), 1)
    }
}

struct Waiting {
    request: ClaimRequest,
    deadline: Instant,
    reply: oneshot::Sender<Verdict>,
}

/// The queues of all scopes of a profile; cheap to clone.
#[derive(Clone)]
pub(crate) struct Claims {
    protected: ProtectedProfile,
    metrics: Arc<Metrics>,
    scopes: Arc<Mutex<HashMap<String, mpsc::Sender<Waiting>>>>,
}

impl Claims {
    /// No queues yet: each begins with the first request for its scope, and ends when it is idle.
    pub(crate) fn new(protected: ProtectedProfile, metrics: Arc<Metrics>) -> Self {
        Self { protected, metrics, scopes: Arc::default() }
    }

    pub(crate) fn protected(&self) -> &ProtectedProfile {
        &self.protected
    }

    /// What the kind of this request is to the profile; none if the profile does not have the kind.
    pub(crate) fn kind_of(&self, request: &AdmissionRequest<DynamicObject>) -> Option<ObjectKind> {
        let profile = &self.protected.profile;
        let (group, kind) = (request.kind.group.as_str(), request.kind.kind.as_str());
        let deletes = profile.is_velero() && group == profile.group && kind == "DeleteBackupRequest";
        let role = profile.role_of(group, kind).map(ObjectKind::from);
        role.or(deletes.then_some(ObjectKind::DeleteBackupRequest))
    }

    /// Whether an installation works in the namespace of this request, so that its object needs a claim.
    pub(crate) fn count(&self, request: &AdmissionRequest<DynamicObject>) -> bool {
        self.protected.store.objects().count_in(request.namespace.as_deref().unwrap_or_default())
    }

    /// Claims a place, by `deadline` at the latest. After a refusal nothing stands in the ledger, but for a write whose
    /// answer was lost: that becomes an orphan and is collected.
    pub(crate) async fn claim(&self, scope: &str, request: ClaimRequest, deadline: Instant) -> Verdict {
        let (reply, verdict) = oneshot::channel();
        let Some(queue) = self.queue(scope) else {
            return Verdict::trouble(&format!("more than {MAX_SCOPES} scopes are being worked on"));
        };
        if queue.try_send(Waiting { request, deadline, reply }).is_err() {
            return Verdict::trouble(&format!("more than {QUEUE} requests wait for the ledger"));
        }
        match tokio::time::timeout_at(deadline, verdict).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Verdict::trouble("the replica is shutting down"),
            Err(_) => Verdict::trouble("the ledger could not be written in time"),
        }
    }

    /// The verdict that [`Claims::claim`] would give now. Nothing is written, and nothing is promised.
    pub(crate) async fn evaluate(&self, scope: &str, request: ClaimRequest, deadline: Instant) -> Verdict {
        let evaluation = async {
            let store = &self.protected.store;
            let ledger = match store.read(scope).await? {
                Some(stored) => stored.ledger,
                None => Arc::new(store.from_running(scope).await?),
            };
            let mut collector = self.protected.collector();
            let (requests, running) = ([request], decide::Running::new());
            let decided =
                decide::decide(&self.protected, scope, &mut collector, &ledger, &requests, running, deadline)
                    .await;
            Ok::<_, backup_lock::LedgerError>(decided.verdicts.into_iter().next())
        };
        match tokio::time::timeout_at(deadline, evaluation).await {
            Ok(Ok(Some(verdict))) => verdict,
            Ok(Ok(None)) => Verdict::trouble("no verdict was reached"),
            Ok(Err(error)) => Verdict::trouble(&error.to_string()),
            Err(_) => Verdict::trouble("the API server did not answer in time"),
        }
    }

    /// The queue of a scope; a new one if there is none, or its task has ended.
    fn queue(&self, scope: &str) -> Option<mpsc::Sender<Waiting>> {
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
        let (queue, waiting) = mpsc::channel(QUEUE);
        let task = batch::Task::new(scope, self.protected.clone(), Arc::clone(&self.metrics));
        tokio::spawn(task.run(waiting));
        scopes.insert(scope.to_owned(), queue.clone());
        Some(queue)
    }
}

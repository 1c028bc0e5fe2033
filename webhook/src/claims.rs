//! Claims places in the ledger of a scope.
//!
//! One task per scope and replica takes all requests that wait, decides on them together and writes the ledger once, on
//! the object that it remembers from its last write. Nothing is granted but by a write that succeeded; nothing is refused
//! from memory: before a refusal the ledger and the object in the way are read freshly.

mod batch;
mod decide;

use std::{sync::Arc, time::Duration};

use backup_lock::{Collector, Footprint, ObjectKey, lease::LedgerStore};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::{admit::denial::Blocker, metrics::Metrics};

/// Requests that wait for one scope at most; more are turned away.
const QUEUE: usize = 1024;

/// A claim that is wanted.
#[derive(Clone, Debug)]
pub struct Want {
    /// Name of the object.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: String,
    /// What it reads or writes.
    pub footprint: Footprint,
    /// When it was created, for people.
    pub since: String,
}

/// What became of it.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It stands in the ledger.
    Granted,
    /// These are in the way, as they were just read.
    Blocked(Vec<Blocker>),
    /// The ledger can't take it.
    Full(String),
    /// It could not be decided.
    Trouble(String),
}

/// A claim that waits for its verdict.
struct Waiting {
    want: Want,
    deadline: Instant,
    reply: oneshot::Sender<Verdict>,
}

/// The queue of one scope; cheap to clone.
#[derive(Clone)]
pub struct Claims {
    scope: &'static str,
    store: LedgerStore,
    grace: Duration,
    queue: mpsc::Sender<Waiting>,
}

impl Claims {
    /// Starts the task of a scope. It ends when the last clone is gone.
    pub fn start(scope: &'static str, store: LedgerStore, metrics: Arc<Metrics>, grace: Duration) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        tokio::spawn(batch::Task::new(scope, store.clone(), metrics, grace).run(waiting));
        Self { scope, store, grace, queue }
    }

    /// Claims a place, by `deadline` at the latest. After a verdict other than granted, nothing stands in the ledger,
    /// but for a write whose answer was lost: that becomes an orphan and is collected.
    pub async fn claim(&self, want: Want, deadline: Instant) -> Verdict {
        let (reply, verdict) = oneshot::channel();
        if self.queue.try_send(Waiting { want, deadline, reply }).is_err() {
            return Verdict::Trouble(format!("more than {QUEUE} requests wait for the ledger"));
        }
        match tokio::time::timeout_at(deadline, verdict).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(_)) => Verdict::Trouble("the replica is shutting down".to_owned()),
            Err(_) => Verdict::Trouble("the ledger could not be written in time".to_owned()),
        }
    }

    /// The verdict that [`Claims::claim`] would give now. Nothing is written, and nothing is promised.
    pub async fn evaluate(&self, want: Want, deadline: Instant) -> Verdict {
        let evaluation = async {
            let ledger = match self.store.read(self.scope).await? {
                Some(stored) => stored.ledger,
                None => Arc::new(self.store.from_running().await?),
            };
            let mut collector = Collector::new(self.grace);
            let decided = decide::decide(self.store.objects(), &mut collector, &ledger, &[want]).await;
            Ok::<_, backup_lock::LedgerError>(decided.verdicts.into_iter().next())
        };
        match tokio::time::timeout_at(deadline, evaluation).await {
            Ok(Ok(Some(verdict))) => verdict,
            Ok(Ok(None)) => Verdict::Trouble("no verdict was reached".to_owned()),
            Ok(Err(error)) => Verdict::Trouble(error.to_string()),
            Err(_) => Verdict::Trouble("the API server did not answer in time".to_owned()),
        }
    }
}

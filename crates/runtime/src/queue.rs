//! A keyed work queue: one reconcile per object at a time, a bounded number at once, a backoff per
//! object.
//!
//! It differs from `kube::runtime::Controller` where that is insufficient: an object that fails
//! waits longer each time (1 s to 60 s, with jitter) until it succeeds, and occupies no worker
//! meanwhile.

mod schedule;

use std::{collections::HashMap, fmt, future::Future, time::Duration};

use futures::{Stream, StreamExt};
use kube::{Resource, ResourceExt as _};
use tokio::{
    task::{Id, JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use schedule::Schedule;

/// The object of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Empty for objects without one.
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn of<K: Resource>(object: &K) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What to do with an object after its reconcile succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing until it changes.
    AwaitChange,
    /// Reconcile again after this time, or when it changes.
    RequeueAfter(Duration),
}

/// Time for running reconciles to finish after the process is asked to stop. They are then dropped:
/// every step of ours can be resumed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs `reconcile` for every key of `keys`, at most `concurrency` at once and never two for one
/// key. A key that comes while it is being reconciled is reconciled once more. Memory is bounded by
/// the number of objects. Returns when `stop` is cancelled (running reconciles get 20 s) or when
/// `keys` has ended and no work is left.
///
/// A reconcile that panics counts as failed.
pub async fn run_queue<F, Fut, E>(
    name: &'static str,
    keys: impl Stream<Item = Key>,
    concurrency: usize,
    stop: CancellationToken,
    reconcile: F,
) where
    F: Fn(Key) -> Fut,
    Fut: Future<Output = Result<Action, E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    let mut keys = std::pin::pin!(keys.fuse());
    let mut schedule = Schedule::default();
    let mut workers: JoinSet<Result<Action, E>> = JoinSet::new();
    let mut running: HashMap<Id, Key> = HashMap::new();
    let mut open = true;
    loop {
        while workers.len() < concurrency.max(1)
            && let Some(key) = schedule.start(Instant::now())
        {
            let span = tracing::info_span!("reconcile", controller = name, object = %key);
            let handle = workers.spawn(reconcile(key.clone()).instrument(span));
            running.insert(handle.id(), key);
        }
        if !open && workers.is_empty() && schedule.is_empty() {
            return;
        }
        let due = schedule.next_due();
        tokio::select! {
            () = stop.cancelled() => break,
            key = keys.next(), if open => match key {
                Some(key) => schedule.touch(key),
                None => open = false,
            },
            Some(done) = workers.join_next_with_id() => finish(name, &mut schedule, &mut running, done),
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)),
                if due.is_some() && workers.len() < concurrency.max(1) => {}
        }
    }
    let drained = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::info!(
            controller = name,
            "work is left to be resumed after the restart"
        );
    }
}

fn finish<E: fmt::Display>(
    name: &'static str,
    schedule: &mut Schedule,
    running: &mut HashMap<Id, Key>,
    done: Result<(Id, Result<Action, E>), JoinError>,
) {
    let (id, result) = match done {
        Ok((id, result)) => (id, result.map_err(|error| error.to_string())),
        Err(error) => (
            error.id(),
            Err(format!("the reconcile ended badly: {error}")),
        ),
    };
    let Some(key) = running.remove(&id) else {
        return;
    };
    match result {
        Ok(Action::AwaitChange) => schedule.succeeded(&key, None),
        Ok(Action::RequeueAfter(after)) => schedule.succeeded(&key, Some(Instant::now() + after)),
        Err(error) => {
            let delay = schedule.failed(&key, Instant::now());
            tracing::warn!(controller = name, object = %key, error, retry_in = ?delay, "reconcile failed");
        }
    }
}

#[cfg(test)]
mod tests;

//! The task of a scope: takes the waiting requests, decides, writes once, answers.

use std::{sync::Arc, time::Duration};

use backup_lock::{
    Collector, Ledger, ProtectedProfile,
    admission::{Batch, ClaimRequest, REFUSAL_MEMORY, admit_all},
    lease::{self, LedgerError, StoredLedger},
    ledger::{Grant, Refusal},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Verdict, WaitingRequest,
    decide::{RunningByKey, decide, look},
};
use crate::{admit::denial::Blocker, metrics::Metrics};

const MAX_BATCH: usize = 128;
/// From this size on a batch is a burst and waits `GATHER_PAUSE` for more requests: a write of the
/// ledger costs the API server several times as much as that wait (`cargo xtask bench admission`).
const MIN_BURST: usize = 4;
const GATHER_PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of attempts for one batch that fail for another reason than a concurrent write.
const MAX_FAILURES: u32 = 12;
/// A task ends after this time without requests, and its remembered ledger with it.
const IDLE_TIMEOUT: Duration = Duration::from_mins(5);

pub(crate) struct Task {
    scope: String,
    protected: ProtectedProfile,
    metrics: Arc<Metrics>,
    collector: Collector,
    remembered: Option<RememberedLedger>,
}

/// The ledger that this replica last wrote or read: a guess that only a successful write confirms.
struct RememberedLedger {
    stored: StoredLedger,
    /// Time at which that was requested.
    at: Instant,
}

impl Task {
    pub(crate) fn new(scope: &str, protected: ProtectedProfile, metrics: Arc<Metrics>) -> Self {
        let collector = protected.collector();
        Self {
            scope: scope.to_owned(),
            protected,
            metrics,
            collector,
            remembered: None,
        }
    }

    /// Runs until no request has come for [`IDLE_TIMEOUT`]. Requests that come at the last moment
    /// are still answered.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<WaitingRequest>) {
        let mut batch = Vec::with_capacity(MAX_BATCH);
        let mut burst = false;
        loop {
            match timeout(IDLE_TIMEOUT, queue.recv_many(&mut batch, MAX_BATCH)).await {
                Ok(0) => return,
                Ok(_) => {
                    if burst {
                        sleep(GATHER_PAUSE).await;
                        while batch.len() < MAX_BATCH
                            && let Ok(waiting) = queue.try_recv()
                        {
                            batch.push(waiting);
                        }
                    }
                    burst = batch.len() >= MIN_BURST;
                    self.work(std::mem::take(&mut batch)).await;
                }
                Err(_) => queue.close(),
            }
        }
    }

    /// Decides on a batch, with jittered pauses, and never past the latest deadline in it. If
    /// others write the ledger all the time, only the deadline limits the attempts.
    async fn work(&mut self, mut batch: Vec<WaitingRequest>) {
        let mut verdict = Verdict::late();
        let mut tries = 0;
        let mut failures = 0;
        loop {
            // A client that has given up must not get a claim that it will not use.
            batch.retain(|waiting| !waiting.reply.is_closed());
            let now = Instant::now();
            for late in batch.extract_if(.., |waiting| waiting.deadline <= now) {
                send(late, verdict.clone());
            }
            let Some(deadline) = batch.iter().map(|waiting| waiting.deadline).max() else {
                return;
            };
            let requests: Vec<ClaimRequest> = batch
                .iter()
                .map(|waiting| waiting.request.clone())
                .collect();
            match timeout_at(deadline, self.attempt(&requests, deadline)).await {
                Ok(Ok(verdicts)) => return answer(batch, verdicts),
                Ok(Err(error)) => {
                    self.remembered = None;
                    verdict = Verdict::of_ledger(&error);
                    if !error.passes_soon() {
                        break;
                    }
                    match error {
                        LedgerError::Changed { .. } => self.metrics.ledger_conflict(),
                        _ => failures += 1,
                    }
                }
                Err(_) => {
                    self.remembered = None;
                    verdict = Verdict::trouble("the API server did not answer in time");
                    break;
                }
            }
            let pause = lease::pause_after(tries);
            if failures >= MAX_FAILURES || Instant::now() + pause >= deadline {
                break;
            }
            tries += 1;
            sleep(pause).await;
        }
        if let Verdict::Trouble(why, _) = &verdict {
            tracing::warn!(
                scope = self.scope,
                requests = batch.len(),
                why,
                "could not decide"
            );
        }
        let verdicts = vec![verdict; batch.len()];
        answer(batch, verdicts);
    }

    /// One attempt. From memory if that grants everything, or if all are refused because of objects
    /// just read that are running; else from a fresh read of the ledger. Writes if anything
    /// changes: the reads end early enough for that, or their findings would be lost.
    async fn attempt(
        &mut self,
        requests: &[ClaimRequest],
        deadline: Instant,
    ) -> Result<Vec<Verdict>, LedgerError> {
        let mut in_the_way = Vec::new();
        let at = Instant::now();
        let until = at + deadline.saturating_duration_since(at) / 2;
        if let Some(remembered) = self.remembered.take() {
            let known = &remembered.stored;
            let mut ledger = Ledger::clone(&known.ledger);
            let outcomes = admit_all(&mut ledger, requests);
            if outcomes
                .iter()
                .all(|outcome| matches!(outcome, Ok(Grant::Reserved)))
            {
                match self.protected.store.write(known, ledger).await {
                    Ok(written) => {
                        self.remember(written, at);
                        return Ok(vec![Verdict::Granted; requests.len()]);
                    }
                    // Another replica wrote; its ledger is read below.
                    Err(LedgerError::Changed { .. }) => self.metrics.ledger_conflict(),
                    Err(error) => return Err(error),
                }
            } else {
                let all_conflict = outcomes
                    .iter()
                    .all(|outcome| matches!(outcome, Err(Refusal::Conflict(_))));
                if all_conflict
                    && remembered.at.elapsed() < REFUSAL_MEMORY
                    && let Some(verdicts) = self.refuse(known, requests, until).await
                {
                    self.remembered = Some(remembered);
                    return Ok(verdicts);
                }
                in_the_way = Batch::new(&known.ledger, requests).to_read();
            }
        }
        // Objects that probably conflict are read concurrently with the ledger.
        let at = Instant::now();
        let look = look(&self.protected, &self.scope, &in_the_way, until);
        let (fresh, running) = tokio::join!(self.protected.store.open(&self.scope), look);
        let fresh = fresh?;
        let Self {
            protected,
            scope,
            collector,
            ..
        } = self;
        let decided = decide(
            protected,
            scope,
            collector,
            &fresh.ledger,
            requests,
            running,
            until,
        )
        .await;
        let granted = decided.verdicts.iter().any(Verdict::is_granted);
        if granted || decided.ledger != *fresh.ledger {
            let written = self.protected.store.write(&fresh, decided.ledger).await?;
            self.remember(written, at);
            for reason in decided.freed {
                self.metrics.freed(reason.as_str());
            }
        } else {
            self.remembered = Some(RememberedLedger { stored: fresh, at });
        }
        Ok(decided.verdicts)
    }

    /// Refuses all because of stored objects that were just read and run: they conflict in any
    /// state of the ledger. Returns `None` if that does not hold for all, or if the ledger has to
    /// be written.
    async fn refuse(
        &mut self,
        known: &StoredLedger,
        requests: &[ClaimRequest],
        until: Instant,
    ) -> Option<Vec<Verdict>> {
        // A refused restore leaves an intent in the ledger.
        if requests.iter().any(|request| request.intent) {
            return None;
        }
        let ledger = &known.ledger;
        let running = RunningByKey::new();
        let Self {
            protected,
            scope,
            collector,
            ..
        } = self;
        let decided = decide(
            protected, scope, collector, ledger, requests, running, until,
        )
        .await;
        (decided.ledger == **ledger && decided.verdicts.iter().all(Verdict::is_for_work))
            .then_some(decided.verdicts)
    }

    fn remember(&mut self, stored: StoredLedger, at: Instant) {
        self.metrics.ledger_written();
        self.remembered = Some(RememberedLedger { stored, at });
    }
}

impl Verdict {
    fn is_granted(&self) -> bool {
        matches!(self, Self::Granted | Self::Waiting(_) | Self::Forced(_))
    }

    /// Whether this is a refusal because of an object that was read, and is running.
    fn is_for_work(&self) -> bool {
        matches!(self, Self::Blocked(blockers) if blockers.iter().any(is_running))
    }
}

fn is_running(blocker: &Blocker) -> bool {
    blocker.object.as_ref().is_some_and(|object| !object.over)
}

fn answer(batch: Vec<WaitingRequest>, verdicts: Vec<Verdict>) {
    for (waiting, verdict) in batch.into_iter().zip(verdicts) {
        send(waiting, verdict);
    }
}

fn send(waiting: WaitingRequest, verdict: Verdict) {
    // An error means that the client has given up.
    let _ = waiting.reply.send(verdict);
}

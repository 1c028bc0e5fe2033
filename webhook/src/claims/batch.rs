//! The task of a scope: takes what waits, decides, writes once, answers.

use std::{sync::Arc, time::Duration};

use backup_lock::{
    Collector, Ledger, ProtectedProfile,
    admission::{Batch, ClaimRequest, REFUSAL_MEMORY, admit_all},
    lease::{self, LedgerError, Stored},
    ledger::{Grant, Refusal},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    Verdict, Waiting,
    decide::{Running, decide, look},
};
use crate::{admit::denial::Blocker, metrics::Metrics};

const BATCH: usize = 128;
/// A batch of so many is a burst: a moment later more will have come, and a write of the ledger costs the API server
/// several times what it costs to wait for them (`cargo xtask bench admission`).
const BURST: usize = 4;
const GATHER: Duration = Duration::from_millis(2);
/// Maximum number of tries of one batch that fail for another reason than a write by others.
const TRIES: u32 = 12;
/// A task without requests ends after this, and what it remembers with it.
const IDLE: Duration = Duration::from_mins(5);

pub(crate) struct Task {
    scope: String,
    protected: ProtectedProfile,
    metrics: Arc<Metrics>,
    collector: Collector,
    remembered: Option<Remembered>,
}

/// The ledger as this replica wrote or read it last: a guess that only a successful write confirms.
struct Remembered {
    stored: Stored,
    /// When that was asked for.
    at: Instant,
}

impl Task {
    pub(crate) fn new(scope: &str, protected: ProtectedProfile, metrics: Arc<Metrics>) -> Self {
        let collector = protected.collector();
        Self { scope: scope.to_owned(), protected, metrics, collector, remembered: None }
    }

    /// Works until nobody has sent anything for a while. What came at the last moment is worked off.
    pub(crate) async fn run(mut self, mut queue: mpsc::Receiver<Waiting>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut burst = false;
        loop {
            match timeout(IDLE, queue.recv_many(&mut batch, BATCH)).await {
                Ok(0) => return,
                Ok(_) => {
                    if burst {
                        sleep(GATHER).await;
                        while batch.len() < BATCH
                            && let Ok(waiting) = queue.try_recv()
                        {
                            batch.push(waiting);
                        }
                    }
                    burst = batch.len() >= BURST;
                    self.work(std::mem::take(&mut batch)).await;
                }
                Err(_) => queue.close(),
            }
        }
    }

    /// Brings a batch to its verdicts: jittered pauses, and never past the latest deadline in it. Where others write the ledger
    /// all the time, only the deadline bounds the tries.
    async fn work(&mut self, mut batch: Vec<Waiting>) {
        let mut verdict;
        let (mut tries, mut failures) = (0, 0);
        loop {
            // Who has given up must not get a claim that nobody will use.
            batch.retain(|waiting| !waiting.reply.is_closed() && waiting.deadline > Instant::now());
            let Some(deadline) = batch.iter().map(|waiting| waiting.deadline).max() else { return };
            let requests: Vec<ClaimRequest> = batch.iter().map(|waiting| waiting.request.clone()).collect();
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
            if failures >= TRIES || Instant::now() + pause >= deadline {
                break;
            }
            tries += 1;
            sleep(pause).await;
        }
        if let Verdict::Trouble(why, _) = &verdict {
            tracing::warn!(scope = self.scope, requests = batch.len(), why, "could not decide");
        }
        let verdicts = vec![verdict; batch.len()];
        answer(batch, verdicts);
    }

    /// One try. From memory if that grants everything, or if all are refused for what is read to be at work; else from a fresh
    /// read of the ledger. A write if anything changes: the reads end early enough for it, or what they found would be lost.
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
            let granted = |outcome: &Result<Grant, _>| matches!(outcome, Ok(Grant::Reserved));
            let outcomes = admit_all(&mut ledger, requests);
            if outcomes.iter().all(granted) {
                match self.protected.store.write(known, ledger).await {
                    Ok(written) => {
                        self.remember(written, at);
                        return Ok(vec![Verdict::Granted; requests.len()]);
                    }
                    // Someone else wrote; what it says now is read below.
                    Err(LedgerError::Changed { .. }) => self.metrics.ledger_conflict(),
                    Err(error) => return Err(error),
                }
            } else {
                let refused = |outcome: &Result<Grant, _>| matches!(outcome, Err(Refusal::Conflict(_)));
                if outcomes.iter().all(refused)
                    && remembered.at.elapsed() < REFUSAL_MEMORY
                    && let Some(verdicts) = self.refuse(known, requests, until).await
                {
                    self.remembered = Some(remembered);
                    return Ok(verdicts);
                }
                in_the_way = Batch::new(&known.ledger, requests).to_read();
            }
        }
        // Whoever is probably in the way is read beside the ledger.
        let at = Instant::now();
        let look = look(&self.protected, &self.scope, &in_the_way, until);
        let (fresh, running) = tokio::join!(self.protected.store.open(&self.scope), look);
        let fresh = fresh?;
        let Self { protected, scope, collector, .. } = self;
        let decided = decide(protected, scope, collector, &fresh.ledger, requests, running, until).await;
        let granted = decided.verdicts.iter().any(Verdict::is_granted);
        if granted || decided.ledger != *fresh.ledger {
            let written = self.protected.store.write(&fresh, decided.ledger).await?;
            self.remember(written, at);
            for reason in decided.freed {
                self.metrics.freed(reason.as_str());
            }
        } else {
            self.remembered = Some(Remembered { stored: fresh, at });
        }
        Ok(decided.verdicts)
    }

    /// Refuses all for objects that are stored and at work, as they were just read: those are in the way whatever else has
    /// become of the ledger. None if that cannot be said of one, or if the ledger is to be written.
    async fn refuse(
        &mut self,
        known: &Stored,
        requests: &[ClaimRequest],
        until: Instant,
    ) -> Option<Vec<Verdict>> {
        // A refused restore leaves word in the ledger.
        if requests.iter().any(|request| request.intent) {
            return None;
        }
        let (ledger, running) = (&known.ledger, Running::new());
        let Self { protected, scope, collector, .. } = self;
        let decided = decide(protected, scope, collector, ledger, requests, running, until).await;
        (decided.ledger == **ledger && decided.verdicts.iter().all(Verdict::is_for_work))
            .then_some(decided.verdicts)
    }

    fn remember(&mut self, stored: Stored, at: Instant) {
        self.metrics.ledger_written();
        self.remembered = Some(Remembered { stored, at });
    }
}

impl Verdict {
    fn is_granted(&self) -> bool {
        matches!(self, Self::Granted | Self::Waiting(_) | Self::Forced(_))
    }

    /// Whether it is a refusal for an object that was read, and is at work.
    fn is_for_work(&self) -> bool {
        let works = |blocker: &Blocker| blocker.object.as_ref().is_some_and(|object| !object.over);
        matches!(self, Self::Blocked(blockers) if blockers.iter().any(works))
    }
}

fn answer(batch: Vec<Waiting>, verdicts: Vec<Verdict>) {
    for (waiting, verdict) in batch.into_iter().zip(verdicts) {
        // An error means that the request has given up.
        let _ = waiting.reply.send(verdict);
    }
}

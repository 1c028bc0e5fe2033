//! The task of a scope: takes what waits, decides, writes once, answers.

use std::{sync::Arc, time::Duration};

use backup_lock::{
    Collector,
    lease::{self, LedgerError, LedgerStore, Stored},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout_at},
};

use super::{
    Verdict, Waiting, Want,
    decide::{admit_all, decide},
};
use crate::metrics::Metrics;

/// Requests decided by one write at most.
const BATCH: usize = 128;
/// How often one batch is tried.
const TRIES: u32 = 12;

/// What the task keeps between batches.
pub struct Task {
    scope: &'static str,
    store: LedgerStore,
    metrics: Arc<Metrics>,
    collector: Collector,
    /// The ledger as this replica wrote it last: a guess that only a successful write confirms.
    remembered: Option<Stored>,
}

impl Task {
    pub fn new(scope: &'static str, store: LedgerStore, metrics: Arc<Metrics>, grace: Duration) -> Self {
        Self { scope, store, metrics, collector: Collector::new(grace), remembered: None }
    }

    /// Works until no one can send any more.
    pub async fn run(mut self, mut queue: mpsc::Receiver<Waiting>) {
        let mut batch = Vec::with_capacity(BATCH);
        while queue.recv_many(&mut batch, BATCH).await > 0 {
            self.work(std::mem::take(&mut batch)).await;
        }
    }

    /// Brings a batch to its verdicts: bounded tries, jittered pauses, and never past the latest deadline in it.
    async fn work(&mut self, mut batch: Vec<Waiting>) {
        let mut why = "the ledger kept changing".to_owned();
        for tries in 0..TRIES {
            // Who has given up must not get a claim that nobody will use.
            batch.retain(|waiting| !waiting.reply.is_closed() && waiting.deadline > Instant::now());
            let Some(deadline) = batch.iter().map(|waiting| waiting.deadline).max() else { return };
            let wants: Vec<Want> = batch.iter().map(|waiting| waiting.want.clone()).collect();
            match timeout_at(deadline, self.attempt(&wants)).await {
                Ok(Ok(verdicts)) => return answer(batch, verdicts),
                Ok(Err(error)) => {
                    self.remembered = None;
                    why = error.to_string();
                    if !error.is_transient() {
                        break;
                    }
                    if matches!(error, LedgerError::Changed { .. }) {
                        self.metrics.ledger_conflict();
                    }
                }
                Err(_) => {
                    self.remembered = None;
                    break;
                }
            }
            sleep(lease::pause_after(tries)).await;
        }
        tracing::warn!(scope = self.scope, requests = batch.len(), why, "could not decide");
        let verdicts = vec![Verdict::Trouble(why); batch.len()];
        answer(batch, verdicts);
    }

    /// One try. From memory if that grants everything, else from a fresh read; a write if anything is granted or freed.
    async fn attempt(&mut self, wants: &[Want]) -> Result<Vec<Verdict>, LedgerError> {
        if let Some(remembered) = self.remembered.take() {
            let mut ledger = (*remembered.ledger).clone();
            if admit_all(&mut ledger, wants).iter().all(Result::is_ok) {
                match self.store.write(&remembered, ledger).await {
                    Ok(written) => {
                        self.remember(written);
                        return Ok(vec![Verdict::Granted; wants.len()]);
                    }
                    // Someone else wrote; what it says now is read below.
                    Err(LedgerError::Changed { .. }) => self.metrics.ledger_conflict(),
                    Err(error) => return Err(error),
                }
            }
        }
        let fresh = self.store.read_or_create(self.scope).await?;
        let decided = decide(self.store.objects(), &mut self.collector, &fresh.ledger, wants).await;
        let granted = decided.verdicts.iter().any(|verdict| matches!(verdict, Verdict::Granted));
        if granted || !decided.freed.is_empty() {
            let written = self.store.write(&fresh, decided.ledger).await?;
            self.remember(written);
            for reason in decided.freed {
                self.metrics.freed(reason.as_str());
            }
        } else {
            self.remembered = Some(fresh);
        }
        Ok(decided.verdicts)
    }

    fn remember(&mut self, written: Stored) {
        self.metrics.ledger_written();
        self.remembered = Some(written);
    }
}

fn answer(batch: Vec<Waiting>, verdicts: Vec<Verdict>) {
    for (waiting, verdict) in batch.into_iter().zip(verdicts) {
        // An error means that the request has given up.
        let _ = waiting.reply.send(verdict);
    }
}

//! The steps of a controller, as in `job/reconcile.rs` and the store.

use backup_core::phase::Phase as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    Backup, BackupPhase, Backups, Counts, Hand, ImmediatePlan, JobState, Life, Luck, Mistake,
    Operations, Plan, Record, Step, Stored, World, decide, ended, operation, patched, patches,
    records, rests,
};
use crate::{job::kind::JobKind as _, testing::backup};

impl Step {
    /// Whether it changes state that others can see.
    pub(crate) fn writes(&self) -> bool {
        !matches!(
            self,
            Self::Reads | Self::Looks(..) | Self::Asks(..) | Self::Contents | Self::Checks(..)
        )
    }
}

impl Record {
    /// The last renewal of its contents.
    fn renewal(self) -> u8 {
        match self.operations {
            Operations::Ended(renewal) => renewal,
            Operations::None | Operations::Run => 0,
        }
    }
}

impl World {
    /// The next step of a controller, without a fault.
    pub(crate) fn step(&mut self, number: usize, luck: Luck, life: Life) {
        let mistake = life.mistake;
        let worker = self.workers[number].clone();
        let next = match worker.step {
            Step::Reads => self.reads(number),
            Step::Looks(phase, deleting) => self.looks(number, &phase, deleting, mistake),
            Step::Begins => {
                if self.phase == "ReadyToStart" && !self.deleting {
                    "InProgress".clone_into(&mut self.phase);
                    self.workers[number].epoch = self.ledger.epoch;
                    Step::Opens("InProgress".to_owned(), None)
                } else {
                    Step::Reads
                }
            }
            Step::Marks(..)
            | Step::Claims(..)
            | Step::Checks(..)
            | Step::Rests(..)
            | Step::Abandons
            | Step::Destroys
            | Step::LetsGo => self.claims_or_lets_go(number, worker.step, mistake),
            Step::Opens(phase, lost) => self.opens(phase, lost, mistake),
            Step::Collects(phase, record) => {
                self.attempts += 1;
                let attempt = self.attempts;
                self.store.uploads.insert(attempt, 0);
                let failed = luck.failed || BackupPhase::from(phase.as_str()).has_failed_so_far();
                let operations = if luck.operation {
                    Operations::Run
                } else {
                    Operations::None
                };
                let collected = Record {
                    attempt,
                    failed,
                    operations,
                };
                if self.ledger.restoring {
                    self.ledger.torn.insert(attempt);
                }
                if life.restores && mistake != Some(Mistake::TrustsClaim) {
                    Step::Checks(phase, collected, record)
                } else {
                    collects(phase, collected, record, mistake)
                }
            }
            Step::Waits(..)
            | Step::Operates(..)
            | Step::Asks(..)
            | Step::Keeps(..)
            | Step::Renews(..)
            | Step::Renewed(..) => self.operates(number, worker.step, luck, mistake),
            Step::Announces(collected, record) => {
                let next = BackupPhase::finalizing(collected.failed);
                let now = self.phase();
                let object = if mistake == Some(Mistake::AnnouncesDeleted) {
                    backup(now.clone())
                } else {
                    self.object()
                };
                let mut announced = patched(patches::announce(&object, &next, None));
                if mistake == Some(Mistake::AnnouncesAlways)
                    && (now.can_become(&next) || now == next)
                {
                    announced = Some(next.to_string());
                }
                announced = announced.filter(|_| !self.gone);
                if let Some(phase) = announced {
                    self.phase = phase;
                    self.workers[number].hand = Some(Hand::Collected(collected, record));
                    Step::Decides
                } else {
                    self.store.uploads.remove(&collected.attempt);
                    Step::Reads
                }
            }
            Step::Decides => self.decides(number, mistake),
            Step::Contents | Step::Completes | Step::Side | Step::Metadata => {
                self.publishes(number, &worker.step, mistake)
            }
            Step::Ends(stored) => {
                let patch = patches::terminal(&backup(self.phase()), &backup(ended(stored)));
                if let Some(phase) = patched(patch).filter(|_| !self.gone) {
                    self.phase = phase;
                    self.workers[number].hand = None;
                }
                Step::Reads
            }
            Step::Fails => {
                let patch = patches::fail(&self.object(), "why", jiff::Timestamp::UNIX_EPOCH);
                self.phase = patched(patch).unwrap_or_else(|| self.phase.clone());
                Step::Reads
            }
        };
        self.workers[number].step = next;
    }

    /// The Backup as stored in the API server.
    fn object(&self) -> Backup {
        let mut object = backup(self.phase());
        if self.deleting {
            object.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        }
        object
    }

    fn reads(&mut self, number: usize) -> Step {
        if self.gone {
            self.workers[number].hand = None;
            return Step::Reads;
        }
        let deleting = self.deleting;
        let plan = decide::immediate(JobState {
            deleting,
            in_hand: self.workers[number].hand.is_some(),
            ..JobState::of(Backups::KIND, self.phase().stage())
        });
        match plan {
            None => Step::Looks(self.phase.clone(), deleting),
            Some(ImmediatePlan::Finish) => Step::Decides,
            // It has not begun.
            Some(ImmediatePlan::LetGo) => Step::LetsGo,
            // It has ended.
            Some(_) => Step::Reads,
        }
    }

    /// Claims again, releases the claim, or removes the finalizer.
    fn claims_or_lets_go(&mut self, number: usize, step: Step, mistake: Option<Mistake>) -> Step {
        match step {
            Step::Marks(phase, lost) => {
                if self.gone || self.phase().is_terminal() {
                    return Step::Reads;
                }
                self.ledger.marked = true;
                Step::Claims(phase, lost)
            }
            Step::Claims(phase, lost) => {
                if self.gone
                    || self.phase().is_terminal()
                    || rests(&self.phase(), self.ledger.marked)
                {
                    return Step::Reads;
                }
                if self.ledger.restoring {
                    self.ledger.marked = false;
                    return Step::Reads;
                }
                self.ledger.held = true;
                self.workers[number].epoch = self.ledger.epoch;
                Step::Opens(phase, lost)
            }
            Step::Checks(phase, collected, record) => {
                if self.ledger.held && self.ledger.epoch == self.workers[number].epoch {
                    collects(phase, collected, record, mistake)
                } else {
                    Step::Reads
                }
            }
            Step::Rests(collected, record) => {
                self.ledger.marked = false;
                self.workers[number].hand = Some(Hand::Collected(collected, record));
                Step::Decides
            }
            Step::Abandons => self.abandons(number, mistake),
            Step::Destroys => {
                self.destroyed = true;
                Step::LetsGo
            }
            Step::LetsGo => {
                self.gone = true;
                Step::Reads
            }
            _ => Step::Reads,
        }
    }

    /// `Location::abandon_backup`: create-only, like the record of an end.
    fn abandons(&mut self, number: usize, mistake: Option<Mistake>) -> Step {
        let last = self
            .store
            .records
            .last_key_value()
            .map(|(at, record)| (*at, *record));
        if self.store.metadata.is_some() {
            return Step::LetsGo;
        }
        let next = match last {
            None => 1,
            Some((at, record)) => {
                if record.attempt == 0 {
                    return Step::Destroys;
                }
                if record.operations != Operations::Run && self.workers[number].lost != Some(at) {
                    return Step::LetsGo;
                }
                at + 1
            }
        };
        if mistake != Some(Mistake::AbandonsSilently) {
            let record = Record {
                attempt: 0,
                failed: false,
                operations: Operations::None,
            };
            self.store.records.insert(next, record);
        }
        Step::Destroys
    }

    /// The next step of a deletion whose store is unavailable (`backup/leftovers.rs`).
    pub(crate) fn lets_go_without_store(&self, number: usize) -> Step {
        if let Step::Looks(phase, _) = &self.workers[number].step
            && !rests(&BackupPhase::from(phase.as_str()), false)
        {
            Step::Destroys
        } else {
            Step::LetsGo
        }
    }

    pub(crate) fn lets_restores_in(&self) -> bool {
        let over =
            self.phase().is_terminal() || self.gone || rests(&self.phase(), self.ledger.marked);
        over || !self.ledger.held
    }

    /// A restore is admitted, and runs.
    pub(crate) fn restores(&mut self) {
        self.ledger.held = false;
        self.ledger.restoring = true;
        self.ledger.epoch += 1;
        for worker in &self.workers {
            if let Step::Checks(_, collected, _) = &worker.step {
                self.ledger.torn.insert(collected.attempt);
            }
        }
    }

    /// `job/reconcile/operations.rs`.
    fn operates(
        &mut self,
        number: usize,
        step: Step,
        luck: Luck,
        mistake: Option<Mistake>,
    ) -> Step {
        match step {
            // Create-only; the record of another controller is read instead.
            Step::Waits(phase, collected, record) => {
                let first = *self.store.records.entry(record).or_insert(collected) == collected;
                let fails = !first
                    && mistake == Some(Mistake::FailsWhenLate)
                    && Backups::KIND.may_fail(BackupPhase::from(phase.as_str()).stage());
                if fails { Step::Fails } else { Step::Reads }
            }
            Step::Operates(phase, record, at) => {
                let known = self.store.kept.get(&at).copied();
                if !self.shows(&phase, known, record.failed) {
                    Step::Reads
                } else if known.is_some() {
                    Step::Renews(phase, record, at)
                } else {
                    Step::Asks(record, at)
                }
            }
            Step::Asks(record, at) => {
                let failed = *self.operations.entry(record.attempt).or_insert(luck.failed);
                Step::Keeps(record, at, failed)
            }
            // Create-only.
            Step::Keeps(_, at, failed) => {
                self.store.kept.entry(at).or_insert(failed);
                Step::Reads
            }
            Step::Renews(phase, record, at) => {
                let Some(upload) = self.store.uploads.get_mut(&record.attempt) else {
                    self.workers[number].lost = Some(at);
                    return Step::Reads;
                };
                self.renewals += 1;
                *upload = self.renewals;
                let failed = record.failed
                    || self.store.kept.get(&at).is_some_and(|failed| *failed)
                    || BackupPhase::from(phase.as_str()).has_failed_so_far();
                let operations = Operations::Ended(self.renewals);
                Step::Renewed(
                    phase,
                    Record {
                        failed,
                        operations,
                        ..record
                    },
                    at,
                )
            }
            Step::Renewed(phase, record, at) => {
                let known = self.operations.get(&record.attempt).copied();
                if self.shows(&phase, known, record.failed) {
                    self.workers[number].hand = Some(Hand::Collected(record, at + 1));
                }
                Step::Reads
            }
            _ => Step::Reads,
        }
    }

    /// Publishes the phase that results from operations. False if it cannot follow the Backup's
    /// current phase.
    fn shows(&mut self, read: &str, known: Option<bool>, failed: bool) -> bool {
        let read = BackupPhase::from(read);
        let operations = [operation(known)];
        let next = records::phase(Counts::of_all(&operations), i64::from(failed), &read);
        if patches::operations(&backup(read.clone()), &next, &operations).is_none() {
            return true;
        }
        let published = patched(patches::operations(
            &backup(self.phase()),
            &next,
            &operations,
        ));
        let done = published.is_some();
        self.phase = published.unwrap_or_else(|| self.phase.clone());
        done
    }

    fn looks(
        &mut self,
        number: usize,
        phase: &str,
        deleting: bool,
        mistake: Option<Mistake>,
    ) -> Step {
        if deleting && mistake == Some(Mistake::DeletesBlindly) {
            return Step::Destroys;
        }
        let newest = self
            .store
            .records
            .last_key_value()
            .map(|(number, record)| (*number, *record));
        let newest = newest.filter(|(_, record)| record.attempt != 0);
        let lost = self.workers[number].lost;
        let stored = match (self.store.metadata, newest) {
            (Some(metadata), _) => Stored::Ours(ended(metadata).stage(), metadata),
            (None, Some((of, _))) if lost == Some(of) => Stored::Lost(newest),
            (None, Some((of, record)))
                if record.operations == Operations::Run
                    && mistake != Some(Mistake::ForgetsOperations) =>
            {
                Stored::Waiting((of, record))
            }
            (None, Some(recorded)) => Stored::Recorded(recorded),
            (None, None) => Stored::Nothing(None),
        };
        let seen = JobState {
            deleting,
            ..JobState::of(Backups::KIND, BackupPhase::from(phase).stage())
        };
        match decide::next(seen, &[], Some(stored)) {
            Plan::Begin(_) => Step::Begins,
            Plan::LetGo => {
                self.workers[number].hand = None;
                Step::Abandons
            }
            Plan::Work(lost) => {
                if mistake == Some(Mistake::CollectsUnclaimed) {
                    self.workers[number].epoch = self.ledger.epoch;
                    Step::Opens(phase.to_owned(), lost)
                } else if rests(&BackupPhase::from(phase), false) {
                    Step::Marks(phase.to_owned(), lost)
                } else {
                    Step::Claims(phase.to_owned(), lost)
                }
            }
            Plan::Operations((of, record)) => Step::Operates(phase.to_owned(), record, of),
            Plan::Finish((of, record)) => {
                self.workers[number].hand = Some(Hand::Decided(record, of));
                Step::Contents
            }
            Plan::Adopt(metadata) => Step::Ends(Record {
                attempt: 0,
                failed: metadata.failed,
                operations: Operations::None,
            }),
            Plan::Fail { .. } => Step::Fails,
            // Reported to users, and read again later.
            Plan::Look | Plan::Refuse { .. } | Plan::Block { .. } => Step::Reads,
        }
    }

    /// `Location::open_backup`, or `begin_again` after a record that can no longer be finished.
    fn opens(
        &mut self,
        phase: String,
        lost: Option<(u8, Record)>,
        mistake: Option<Mistake>,
    ) -> Step {
        let after = if let Some((of, record)) = lost {
            // Only a record that was just read counts.
            if self
                .store
                .records
                .values()
                .any(|record| record.attempt == 0)
            {
                return Step::Reads;
            }
            for key in [&mut self.store.contents, &mut self.store.side] {
                key.take_if(|attempt| *attempt == record.attempt);
            }
            of
        } else if self.store.metadata.is_none() && self.store.records.is_empty() {
            0
        } else if mistake == Some(Mistake::FailsWhenLate)
            && Backups::KIND.may_fail(BackupPhase::from(phase.as_str()).stage())
        {
            return Step::Fails;
        } else {
            // Another controller is ahead.
            return Step::Reads;
        };
        self.store.uploads.clear();
        Step::Collects(phase, after + 1)
    }

    /// Create-only: an existing record counts.
    fn decides(&mut self, number: usize, mistake: Option<Mistake>) -> Step {
        let (record, at) = match self.workers[number].hand {
            Some(Hand::Collected(record, at)) => (record, at),
            Some(Hand::Decided(..)) => return Step::Contents,
            None => return Step::Reads,
        };
        if mistake == Some(Mistake::NoRecord) {
            self.workers[number].hand = Some(Hand::Decided(record, at));
            return Step::Contents;
        }
        if *self.store.records.entry(at).or_insert(record) == record {
            self.workers[number].hand = Some(Hand::Decided(record, at));
            return Step::Contents;
        }
        self.workers[number].hand = None;
        Step::Reads
    }

    fn publishes(&mut self, number: usize, step: &Step, mistake: Option<Mistake>) -> Step {
        let Some(Hand::Decided(record, at)) = self.workers[number].hand else {
            return Step::Reads;
        };
        let own = Some(record.attempt);
        match step {
            Step::Contents => {
                if self.store.contents.is_none() {
                    return Step::Completes;
                }
                if self.store.contents == own {
                    return Step::Side;
                }
            }
            Step::Completes => {
                if self.store.contents == own {
                    return Step::Side;
                }
                if self.store.uploads.get(&record.attempt) == Some(&record.renewal()) {
                    self.store.uploads.remove(&record.attempt);
                    self.store.contents = own;
                    return Step::Side;
                }
                // The upload is gone, or another controller has put other parts into it.
                self.workers[number].lost = Some(at);
            }
            Step::Side => {
                if mistake == Some(Mistake::EndsFirst) && self.store.side.is_none() {
                    self.store.side = own;
                    return Step::Ends(record);
                }
                if mistake == Some(Mistake::MetadataEarly) && self.store.metadata.is_none() {
                    self.store.metadata = Some(record);
                    return Step::Side;
                }
                if *self.store.side.get_or_insert(record.attempt) == record.attempt {
                    return Step::Metadata;
                }
            }
            Step::Metadata if self.store.contents == own => {
                let stored = *self.store.metadata.get_or_insert(record);
                if stored.failed == record.failed {
                    // Files that are no longer needed are removed.
                    self.store.records.clear();
                    self.store.uploads.clear();
                    self.store.kept.clear();
                    return Step::Ends(stored);
                }
            }
            _ => {}
        }
        // Other bytes, or none: the store is read again.
        if mistake != Some(Mistake::KeepsHand) {
            self.workers[number].hand = None;
        }
        Step::Reads
    }
}

/// The step after a collection.
fn collects(phase: String, collected: Record, record: u8, mistake: Option<Mistake>) -> Step {
    if collected.operations == Operations::Run {
        Step::Waits(phase, collected, record)
    } else if decide::announces(BackupPhase::from(phase.as_str()).stage())
        || mistake == Some(Mistake::AnnouncesAlways)
    {
        Step::Announces(collected, record)
    } else {
        Step::Rests(collected, record)
    }
}

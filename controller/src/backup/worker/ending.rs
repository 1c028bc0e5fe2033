//! How a Backup ends: published, then counted and told, then its claim is free.

use backup_core::api::{Backup, BackupPhase};
use backup_store::{StoreError, crash};
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Next, Start, Trouble, Worker};
use crate::job::cancellation::StopReason;
use crate::{
    backup::{
        finish::{self, Unfinished},
        observe, patches,
        prepare::Facts,
    },
    metrics::Outcome,
};

impl Worker {
    /// Decides what the end is, writes it, and publishes it.
    pub(super) async fn finish(&mut self, backup: &Backup) -> Result<Next, Trouble> {
        self.cancellation.check()?;
        self.may_write(backup).await?;
        let Some(unfinished) = &mut self.unfinished else { return Err(Trouble::Changed) };
        let stored = match unfinished.store(backup, Timestamp::now()).await {
            Ok(stored) => stored,
            Err(error) => return Err(self.not_stored(&error)),
        };
        let bytes = unfinished.bytes();
        self.tidy(&stored).await?;
        crash::point("before-terminal-patch");
        let ended = self.publish(backup, |now| finish::terminal_patch(now, &stored)).await?;
        crash::point("after-terminal-patch");
        self.ctx.metrics.backup_size(ended.schedule().unwrap_or_default(), bytes);
        self.ended(&ended).await
    }

    /// The end could not be written (any more). What is decided stays so, and is tried again.
    fn not_stored(&mut self, error: &StoreError) -> Trouble {
        match error {
            // Gone before it became visible: collected again. The next round finds the record and begins after it.
            StoreError::Lost { .. } => {
                self.lost = self.unfinished.take().as_ref().and_then(Unfinished::record);
                Trouble::Blocked { reason: format!("{error}; it is collected again"), passing: true }
            }
            // Another replica was faster, before or after our record: the next round finds what it has stored. If it is
            // somebody else's, it finds that, too.
            StoreError::Exists { .. } => {
                let decided = self.unfinished.take().is_some_and(|had| had.record().is_some());
                Trouble::Blocked { reason: error.to_string(), passing: !decided }
            }
            _ => Trouble::Blocked { reason: error.to_string(), passing: error.is_transient() },
        }
    }

    /// Publishes what the stored metadata says.
    pub(super) async fn adopt(&mut self, backup: &Backup, metadata: &Backup) -> Result<Next, Trouble> {
        self.tidy(metadata).await?;
        crash::point("before-terminal-patch");
        let ended = self.publish(backup, |now| finish::terminal_patch(now, metadata)).await?;
        crash::point("after-terminal-patch");
        self.ended(&ended).await
    }

    /// To FailedValidation.
    pub(super) async fn refuse(
        &mut self,
        backup: &Backup,
        errors: &[String],
        facts: &Facts,
        start: &Start,
    ) -> Result<Next, Trouble> {
        let patch = |now: &Backup| patches::refuse(now, errors, facts, &start.settings, start.now);
        crash::point("before-refusal-patch");
        let ended = self.publish(backup, patch).await?;
        self.ended(&ended).await
    }

    /// To Failed.
    pub(super) async fn fail(&mut self, backup: &Backup, reason: &str) -> Result<Next, Trouble> {
        self.pay_what_is_owed(backup).await?;
        self.abandon(backup).await?;
        crash::point("before-failure-patch");
        // Not one that another replica has moved on meanwhile.
        let patch = |now: &Backup| {
            (now.phase() == backup.phase()).then(|| patches::fail(now, reason, Timestamp::now())).flatten()
        };
        let ended = self.publish(backup, patch).await?;
        self.ended(&ended).await
    }

    /// After the terminal patch: counts and tells it once, and frees the claim.
    async fn ended(&mut self, backup: &Backup) -> Result<Next, Trouble> {
        self.unfinished = None;
        let schedule = backup.schedule().unwrap_or_default();
        let status = &backup.status;
        let (outcome, note) = match backup.phase() {
            BackupPhase::Completed => (Outcome::Success, "everything is stored".to_owned()),
            BackupPhase::PartiallyFailed => {
                (Outcome::PartialFailure, format!("stored, but {} errors are in its results", status.errors))
            }
            BackupPhase::FailedValidation => {
                (Outcome::ValidationFailure, status.validation_errors.join("; "))
            }
            _ => (Outcome::Failure, status.failure_reason.clone().unwrap_or_default()),
        };
        let (metrics, events) = (&self.ctx.metrics, &self.ctx.cluster.events);
        metrics.backup(outcome, schedule);
        metrics.backup_ended(schedule, &self.name, backup);
        let phase = backup.phase();
        if outcome == Outcome::Success {
            events.normal(backup, phase.as_str(), &note);
        } else {
            events.warning(backup, phase.as_str(), &note);
        }
        tracing::info!(backup = self.name, %phase, errors = status.errors, warnings = status.warnings, note, "backup ended");
        self.release().await
    }

    /// Frees the claim, then lets a Backup go that carries our finalizer.
    pub(super) async fn let_go(&mut self, backup: &Backup) -> Result<Next, Trouble> {
        if let Some(Unfinished::Collected { contents, metadata: None, .. }) = self.unfinished.take() {
            contents.discard().await; // nobody has tried to decide it
        }
        self.pay_what_is_owed(backup).await?;
        if !backup.phase().is_terminal() {
            self.abandon(backup).await?;
        }
        self.release().await?;
        if patches::let_go(backup).is_some() {
            self.publish(backup, patches::let_go).await?;
            if backup.phase().is_terminal() {
                self.ctx.cluster.events.forced_end(backup, backup.phase().as_str());
            }
        }
        Ok(Next::Done)
    }

    /// The Backup is going or gone: the work has stopped, so its claim ends, too.
    pub(super) async fn after_deletion(&mut self) -> Result<Next, Trouble> {
        loop {
            let trouble = match observe::backup(&self.ctx, &self.name).await {
                Ok(Some(backup)) if backup.metadata.uid.as_deref() == Some(&self.uid) => {
                    if backup.metadata.deletion_timestamp.is_none() {
                        // A late message; whoever dispatches looks again.
                        return Ok(Next::Done);
                    }
                    match self.let_go(&backup).await {
                        Ok(done) => return Ok(done),
                        Err(trouble) => trouble,
                    }
                }
                Ok(_) => match self.release().await {
                    Ok(done) => return Ok(done),
                    Err(trouble) => trouble,
                },
                Err(error) => error.into(),
            };
            let passing = match &trouble {
                Trouble::Stopped(_) => return Err(trouble),
                Trouble::Changed => continue,
                Trouble::Blocked { passing, .. } => *passing,
            };
            let delay = self.waiting.next(passing);
            tracing::warn!(backup = self.name, ?trouble, since = ?self.waiting.since(Instant::now()), "letting go failed");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.ctx.stop.cancelled() => return Err(StopReason::ShuttingDown.into()),
            }
        }
    }

    /// Frees the claim. May be repeated; what is missed here is found by the collector of claims.
    pub(super) async fn release(&mut self) -> Result<Next, Trouble> {
        self.ctx.cluster.leadership.check().map_err(StopReason::from)?;
        let released = backup_lock::release(&self.ctx.ledger, &self.key, &self.uid).await;
        match released {
            Ok(_) => Ok(Next::Done),
            Err(error) => Err(Trouble::Blocked { reason: error.to_string(), passing: error.is_transient() }),
        }
    }
}

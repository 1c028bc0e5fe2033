//! What is kept about a Backup that has not ended.

use super::{Arc, Backup, BackupPhase, Footprint, Instant, Ticket, finalizer};

/// A Backup as it was last seen.
pub struct Entry {
    /// The object.
    pub backup: Arc<Backup>,
    footprint: Footprint,
    phase: BackupPhase,
    touched: bool,
    /// Whether a job for it runs.
    pub busy: bool,
    /// Jobs that failed in a row.
    pub failures: u32,
    /// No job before this.
    pub not_before: Option<Instant>,
}

impl Entry {
    pub fn new(backup: Backup) -> Self {
        Self {
            footprint: Footprint::of_backup(&backup.spec),
            phase: backup.phase(),
            backup: Arc::new(backup),
            touched: true,
            busy: false,
            failures: 0,
            not_before: None,
        }
    }

    pub fn uid(&self) -> &str {
        self.backup.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Takes what was seen, unless it is older than what is known: a job's own write may come before the watch.
    pub fn update(&mut self, backup: Backup) {
        self.touched = true;
        if version(&backup) < version(&self.backup) {
            return;
        }
        if self.phase != backup.phase() {
            self.phase = backup.phase();
            self.footprint = Footprint::of_backup(&backup.spec);
            self.failures = 0;
        }
        self.backup = Arc::new(backup);
    }

    /// Whether it was seen since this was asked last.
    pub fn take_touched(&mut self) -> bool {
        std::mem::take(&mut self.touched)
    }

    /// Whether a worker belongs to it: once its turn has come, until it has ended and nothing of the work is left.
    pub fn needs_worker(&self) -> bool {
        let deleting = self.backup.metadata.deletion_timestamp.is_some();
        match &self.phase {
            BackupPhase::Unknown(_) => false,
            BackupPhase::New | BackupPhase::Queued if deleting => finalizer::is_on(&self.backup),
            BackupPhase::New | BackupPhase::Queued => self.backup.is_cancelled(),
            phase if phase.is_terminal() => finalizer::is_on(&self.backup),
            // One that is held by finalizers of others only, and has no worker, has nothing left to be done for it.
            _ => !deleting || finalizer::is_on(&self.backup),
        }
    }

    pub fn ticket<'a>(&'a self, name: &'a str) -> Ticket<'a> {
        Ticket {
            name,
            phase: &self.phase,
            position: self.backup.status.queue_position,
            created: self.backup.metadata.creation_timestamp.as_ref().map(|time| time.0),
            leaving: self.backup.metadata.deletion_timestamp.is_some() || self.backup.is_cancelled(),
            busy: self.busy,
            held_back: self.not_before.is_some(),
            footprint: &self.footprint,
        }
    }
}

/// Resource versions of one kind grow; one that is no number counts as new.
fn version(backup: &Backup) -> u64 {
    backup.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}

//! What backups and restores have in common for the commands.

use backup_core::api::{Backup, BackupPhase, Restore, RestorePhase};
use jiff::Timestamp;

use super::listed::Listed;
use crate::view::{self, description::Verdict};

/// A kind of work that the commands are about: it begins and ends.
pub trait Subject: Listed {
    /// The command that describes one, without the name.
    const DESCRIBE: &'static str;
    /// The command that deletes one, without the name.
    const DELETE: &'static str;

    /// The phase, as the server wrote it.
    fn phase_name(&self) -> String;
    /// Whether its items are being worked on.
    fn is_working(&self) -> bool;
    /// Nothing while it works (or in a phase that we don't know), else whether it is Completed.
    fn ended(&self) -> Option<bool>;
    /// Whether somebody has asked for an early end.
    fn is_cancelled(&self) -> bool;
    /// Why there is nothing to be cancelled any more.
    fn too_late(&self) -> Option<&'static str>;
    /// Items done, of how many.
    fn progress(&self) -> Option<(i64, i64)>;
    /// How it stands.
    fn verdict(&self, now: Timestamp) -> Verdict;
}

impl Subject for Backup {
    const DESCRIBE: &'static str = "kubectl backup describe";
    const DELETE: &'static str = "kubectl backup delete";

    fn phase_name(&self) -> String {
        crate::print::table::plain(self.phase().as_str())
    }

    fn is_working(&self) -> bool {
        self.phase() == BackupPhase::InProgress
    }

    fn ended(&self) -> Option<bool> {
        let phase = self.phase();
        phase.is_terminal().then_some(phase == BackupPhase::Completed)
    }

    fn is_cancelled(&self) -> bool {
        Self::is_cancelled(self)
    }

    fn too_late(&self) -> Option<&'static str> {
        let phase = self.phase();
        let storing = matches!(phase, BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed);
        match (phase.is_terminal(), storing) {
            (true, _) => Some("it has ended"),
            (_, true) => Some("everything is collected, and it is being stored"),
            _ => None,
        }
    }

    fn progress(&self) -> Option<(i64, i64)> {
        self.status.progress.as_ref().map(|progress| (progress.items_backed_up, progress.total_items))
    }

    fn verdict(&self, now: Timestamp) -> Verdict {
        view::backup::verdict(self, now)
    }
}

impl Subject for Restore {
    const DESCRIBE: &'static str = "kubectl backup restore describe";
    const DELETE: &'static str = "kubectl backup restore delete";

    fn phase_name(&self) -> String {
        crate::print::table::plain(self.phase().as_str())
    }

    fn is_working(&self) -> bool {
        self.phase() == RestorePhase::InProgress
    }

    fn ended(&self) -> Option<bool> {
        let phase = self.phase();
        phase.is_terminal().then_some(phase == RestorePhase::Completed)
    }

    fn is_cancelled(&self) -> bool {
        Self::is_cancelled(self)
    }

    fn too_late(&self) -> Option<&'static str> {
        let phase = self.phase();
        let storing = matches!(phase, RestorePhase::Finalizing | RestorePhase::FinalizingPartiallyFailed);
        match (phase.is_terminal(), storing) {
            (true, _) => Some("it has ended"),
            (_, true) => Some("everything is restored, and its results are being stored"),
            _ => None,
        }
    }

    fn progress(&self) -> Option<(i64, i64)> {
        self.status.progress.as_ref().map(|progress| (progress.items_restored, progress.total_items))
    }

    fn verdict(&self, now: Timestamp) -> Verdict {
        view::restore::verdict(self, now)
    }
}

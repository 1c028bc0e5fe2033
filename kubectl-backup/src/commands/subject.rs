//! What backups and restores have in common for the commands.

use std::fmt::Debug;

use backup_core::api::{Backup, BackupPhase, Restore, RestorePhase};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    error::About,
    print::style::Style,
    view::{self, description::Verdict, list},
};

/// A kind that the commands are about.
pub trait Subject:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + 'static
{
    /// Kind in lower case.
    const KIND: &'static str;
    /// Plural, as in the API.
    const PLURAL: &'static str;
    /// The command that describes one, without the name.
    const DESCRIBE: &'static str;
    /// The command that deletes one, without the name.
    const DELETE: &'static str;
    /// Headers of `get`, wide.
    const HEADERS: &'static [&'static str];
    /// How many of them are shown unless wide.
    const NARROW: usize;
    /// Which of them is the status.
    const STATUS_COLUMN: usize;

    /// A row of `get`.
    fn row(&self, now: Timestamp, style: Style) -> Vec<String>;
    /// The phase, as the server wrote it.
    fn phase_name(&self) -> String;
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
    /// The spec as JSON.
    fn spec(&self) -> serde_json::Value;

    /// For messages about a request.
    fn about<'a>(verb: &'static str, name: &'a str) -> About<'a> {
        About { verb, kind: Self::KIND, plural: Self::PLURAL, name }
    }
}

impl Subject for Backup {
    const KIND: &'static str = "backup";
    const PLURAL: &'static str = "backups";
    const DESCRIBE: &'static str = "kubectl backup describe";
    const DELETE: &'static str = "kubectl backup delete";
    const HEADERS: &'static [&'static str] = &list::BACKUP_HEADERS;
    const NARROW: usize = list::BACKUP_NARROW;
    const STATUS_COLUMN: usize = 1;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        list::backup(self, now, style)
    }

    fn phase_name(&self) -> String {
        crate::print::table::plain(self.phase().as_str())
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

    fn spec(&self) -> serde_json::Value {
        serde_json::to_value(&self.spec).unwrap_or_default()
    }
}

impl Subject for Restore {
    const KIND: &'static str = "restore";
    const PLURAL: &'static str = "restores";
    const DESCRIBE: &'static str = "kubectl backup restore describe";
    const DELETE: &'static str = "kubectl backup restore delete";
    const HEADERS: &'static [&'static str] = &list::RESTORE_HEADERS;
    const NARROW: usize = list::RESTORE_NARROW;
    const STATUS_COLUMN: usize = 2;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        list::restore(self, now, style)
    }

    fn phase_name(&self) -> String {
        crate::print::table::plain(self.phase().as_str())
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

    fn spec(&self) -> serde_json::Value {
        serde_json::to_value(&self.spec).unwrap_or_default()
    }
}

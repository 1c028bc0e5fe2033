//! The reasons of the events that the programs write. docs/operate/reference.md lists them, written
//! from here.

use crate::phase::Stage;

macro_rules! event_reasons {
    ($($reason:ident on $kinds:literal: $meaning:literal,)+) => {
        /// The reason of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum EventReason {
            $(#[doc = $meaning] $reason,)+
        }

        impl EventReason {
            /// All reasons, in alphabetical order.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// The reason in the event object.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => stringify!($reason),)+
                }
            }

            /// The kinds of objects that have such events.
            pub fn kinds(self) -> &'static str {
                match self {
                    $(Self::$reason => $kinds,)+
                }
            }

            /// What such an event tells a user.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$reason => $meaning,)+
                }
            }
        }
    };
}

event_reasons! {
    AmbiguousSchedule on "Schedule": "Velero's two cron libraries run it at other times, or one refuses it; how they differ",
    Available on "BackupStorageLocation": "it can be used",
    BackupCreated on "Schedule": "a Backup was made for a time",
    Blocked on "Backup, BackupRepository, DataUpload, Restore, Secret": "it waits for something that has to be corrected; it continues by itself",
    BreakGlass on "Backup, Restore": "it was admitted in spite of a conflict; who asked, and the reason given",
    Completed on "Backup, Restore": "it has ended, and everything was saved or restored",
    Copied on "Backup": "it was copied into another location; which",
    CopyFailed on "Backup": "it could not be copied into another location; why, and that it is tried again",
    CopyRemoved on "Backup": "the time of one of its copies is over, and its files were removed",
    Damaged on "BackupRepository": "data of volumes is missing or was changed in the bucket; which backups cannot be restored whole, or that a check is under way",
    DeletesDenied on "BackupStorageLocation": "backups can be stored there and not deleted",
    DrillFailed on "Backup": "a drill of it has failed; why, and where to read more",
    DrillPassed on "Backup": "a drill has restored it; how long that took, how many items, and how many checks passed",
    Enabled on "Schedule": "it is valid; the next three times",
    Expired on "Backup": "its retention time is over; its deletion is requested",
    Failed on "Backup, Restore": "it has ended without a usable result",
    FailedValidation on "Backup, Restore, Schedule": "it was refused; every field that is wrong",
    FilesNotRemoved on "Restore": "it was deleted, and its files are still in the store",
    FoldersPruned on "BackupStorageLocation": "folders of backups that never ended were removed",
    ForcedEnd on "Backup, Restore": "a user with break-glass ended it while it was in progress",
    ForcedRelease on "Backup, Restore, Lease": "`kubectl backup locks release` took its claim; who, and why",
    IncompleteBackups on "BackupStorageLocation": "folders in it hold no finished backup",
    NamesConflict on "BackupStorageLocation": "backups in it have names that another location uses",
    NoConditionalWrites on "BackupStorageLocation": "the store overwrites an existing key; the controller checks each key before it writes",
    NotDefault on "BackupStorageLocation": "another location was made the default later",
    NotDeleted on "Backup, DeleteBackupRequest": "it could not be deleted",
    NotSynced on "BackupStorageLocation": "it could not be compared with the cluster",
    ObjectLock on "BackupStorageLocation, Backup, DeleteBackupRequest": "object lock is on, or keeps what is to be deleted; until when",
    OldVersionsKept on "BackupStorageLocation, Backup": "a permission to remove old versions is missing",
    PartiallyFailed on "Backup, Restore": "it has ended, and something is missing",
    PartlySynced on "Backup": "it was imported, and some of its objects were not",
    PasswordRotated on "Secret": "the password of the repositories was rotated to this stage; what to do next",
    PostHookNotRun on "Backup": "a post hook could not be run: its application may still be frozen",
    Refused on "Schedule": "the creation of its Backup was refused; it is retried",
    RemovalRefused on "BackupStorageLocation": "more than half of its backups are gone; nothing is removed until a user agrees",
    RetentionStopped on "BackupStorageLocation": "too many of its backups have expired at once; none is removed until a user agrees",
    Skipped on "Schedule": "no Backup is made for a time; which, and why",
    SnapshotsNotRemoved on "Backup, DataUpload": "one of its snapshots, which no backup needs, could not be removed",
    Started on "Backup, Restore": "it has started",
    Synced on "BackupStorageLocation": "how many Backups were created and removed",
    Unavailable on "BackupRepository, BackupStorageLocation": "it cannot be used, and why",
    Unclaimed on "Backup, Restore": "it runs without a claim, beside others",
    UnknownPhase on "Backup, Restore": "a newer version wrote its phase; it counts as running",
    Unreadable on "any of `velero.io`": "it cannot be decoded; the field",
    VerificationFailed on "Backup": "a scheduled verification has found files that are missing, damaged or changed; the first one, and what to do",
    Waiting on "Restore, DeleteBackupRequest": "what it waits for; it starts when that has ended",
}

impl EventReason {
    /// The reason for the end of a Backup or Restore in this stage.
    pub fn of_end(stage: Stage) -> Self {
        match stage {
            Stage::Completed => Self::Completed,
            Stage::PartiallyFailed => Self::PartiallyFailed,
            Stage::FailedValidation => Self::FailedValidation,
            _ => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_sorted_as_the_page_shows_them() {
        assert!(EventReason::ALL.is_sorted_by_key(|reason| reason.as_str()));
    }
}

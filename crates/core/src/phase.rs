//! Phases: which are active, which are terminal, and which may follow which.
//!
//! The graph is Velero's (v1.18: `pkg/controller/backup*_controller.go`, `restore*_controller.go`).
//! It has no cycle, so an observer that misses steps still sees a forward move.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::api::{BackupPhase, RestorePhase};

/// The stage of a Backup or a Restore: the common meaning of their phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not processed yet.
    New,
    /// Waits for its place in the queue (backups only).
    Queued,
    /// May start (backups only).
    ReadyToStart,
    InProgress,
    /// All items are done, operations are still running.
    WaitingForOperations {
        failed: bool,
    },
    Finalizing {
        failed: bool,
    },
    Completed,
    PartiallyFailed,
    Failed,
    FailedValidation,
    /// Being removed (backups only).
    Deleting,
    /// A phase of a newer version.
    Unknown,
}

impl Stage {
    /// The stages that may directly follow this one.
    fn steps(self) -> &'static [Self] {
        match self {
            // Straight to InProgress: a Restore, and a Backup of Velero before 1.18, which has no
            // queue.
            Self::New => &[Self::Queued, Self::InProgress, Self::FailedValidation],
            Self::Queued => &[Self::ReadyToStart],
            Self::ReadyToStart => &[Self::InProgress, Self::FailedValidation],
            Self::InProgress => &[
                Self::WaitingForOperations { failed: false },
                Self::WaitingForOperations { failed: true },
                Self::Finalizing { failed: false },
                Self::Finalizing { failed: true },
                Self::Failed,
            ],
            Self::WaitingForOperations { failed: false } => &[
                Self::WaitingForOperations { failed: true },
                Self::Finalizing { failed: false },
                Self::PartiallyFailed,
            ],
            Self::WaitingForOperations { failed: true } => {
                &[Self::Finalizing { failed: true }, Self::PartiallyFailed]
            }
            Self::Finalizing { failed: false } => {
                &[Self::Finalizing { failed: true }, Self::Completed]
            }
            Self::Finalizing { failed: true } => &[Self::PartiallyFailed],
            Self::Completed | Self::PartiallyFailed | Self::Failed | Self::FailedValidation => {
                &[Self::Deleting]
            }
            Self::Deleting | Self::Unknown => &[],
        }
    }

    /// Whether all items are done, and only operations and the last files remain. The files stored
    /// so far are not at their final keys yet.
    pub fn is_past_items(self) -> bool {
        matches!(
            self,
            Self::WaitingForOperations { .. } | Self::Finalizing { .. }
        )
    }

    /// Whether it still works and is already published as failed. It must not end as Completed,
    /// even if a later attempt has no errors.
    pub fn has_failed_so_far(self) -> bool {
        matches!(
            self,
            Self::WaitingForOperations { failed: true } | Self::Finalizing { failed: true }
        )
    }

    /// Whether the work is over. Deleting counts: only the removal is still running.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed
                | Self::PartiallyFailed
                | Self::Failed
                | Self::FailedValidation
                | Self::Deleting
        )
    }

    /// Whether `next` can follow, in one step or several. No stage follows itself, only Deleting
    /// follows a terminal one, and nothing is known about unknown ones.
    pub fn can_become(self, next: Self) -> bool {
        self.steps()
            .iter()
            .any(|step| *step == next || step.can_become(next))
    }
}

/// The phases of Backups and of Restores, for code that handles both.
pub trait Phase:
    Clone + Eq + Hash + Debug + Display + Serialize + DeserializeOwned + Send + Sync + 'static
{
    const IN_PROGRESS: Self;
    const FAILED: Self;
    const FAILED_VALIDATION: Self;

    fn stage(&self) -> Stage;

    /// The phase for this stage. `None` if the kind has none, and for [`Stage::Unknown`].
    fn of(stage: Stage) -> Option<Self>;

    /// All items are done, operations are still running; `failed`: there was a failure so far.
    fn waiting_for_operations(failed: bool) -> Self;

    /// Results are being stored; `failed`: there was a failure so far.
    fn finalizing(failed: bool) -> Self;

    /// Everything is stored; `failed`: there was a failure.
    fn ended(failed: bool) -> Self;
}

/// Implements [`Phase`] for an enum with the phases of both kinds, and some of its own that are
/// named like their stages.
macro_rules! phase {
    ($phase:ident { $($own:ident),* }) => {
        impl Phase for $phase {
            const IN_PROGRESS: Self = Self::InProgress;
            const FAILED: Self = Self::Failed;
            const FAILED_VALIDATION: Self = Self::FailedValidation;

            fn stage(&self) -> Stage {
                match self {
                    Self::New => Stage::New,
                    Self::InProgress => Stage::InProgress,
                    Self::WaitingForPluginOperations => Stage::WaitingForOperations { failed: false },
                    Self::WaitingForPluginOperationsPartiallyFailed => {
                        Stage::WaitingForOperations { failed: true }
                    }
                    Self::Finalizing => Stage::Finalizing { failed: false },
                    Self::FinalizingPartiallyFailed => Stage::Finalizing { failed: true },
                    Self::Completed => Stage::Completed,
                    Self::PartiallyFailed => Stage::PartiallyFailed,
                    Self::Failed => Stage::Failed,
                    Self::FailedValidation => Stage::FailedValidation,
                    $(Self::$own => Stage::$own,)*
                    Self::Unknown(_) => Stage::Unknown,
                }
            }

            fn of(stage: Stage) -> Option<Self> {
                Self::known().find(|phase| phase.stage() == stage)
            }

            fn waiting_for_operations(failed: bool) -> Self {
                if failed {
                    Self::WaitingForPluginOperationsPartiallyFailed
                } else {
                    Self::WaitingForPluginOperations
                }
            }

            fn finalizing(failed: bool) -> Self {
                if failed { Self::FinalizingPartiallyFailed } else { Self::Finalizing }
            }

            fn ended(failed: bool) -> Self {
                if failed { Self::PartiallyFailed } else { Self::Completed }
            }
        }

        impl $phase {
            /// See [`Stage::is_past_items`].
            pub fn is_past_items(&self) -> bool {
                self.stage().is_past_items()
            }

            /// See [`Stage::has_failed_so_far`].
            pub fn has_failed_so_far(&self) -> bool {
                self.stage().has_failed_so_far()
            }

            /// See [`Stage::is_terminal`].
            pub fn is_terminal(&self) -> bool {
                self.stage().is_terminal()
            }

            /// Whether it works or still may. An unknown phase counts as active.
            pub fn is_active(&self) -> bool {
                !self.is_terminal()
            }

            /// See [`Stage::can_become`].
            pub fn can_become(&self, next: &Self) -> bool {
                self.stage().can_become(next.stage())
            }
        }
    };
}

phase!(BackupPhase {
    Queued,
    ReadyToStart,
    Deleting
});
phase!(RestorePhase {});

#[cfg(test)]
mod tests {
    use super::*;

    fn backups() -> Vec<BackupPhase> {
        BackupPhase::known().collect()
    }

    fn restores() -> Vec<RestorePhase> {
        RestorePhase::known().collect()
    }

    fn found_again_by_its_stage<P: Phase>(phases: Vec<P>) {
        for phase in phases {
            assert_eq!(P::of(phase.stage()), Some(phase));
        }
    }

    #[test]
    fn every_phase_is_found_again_by_its_stage() {
        found_again_by_its_stage(backups());
        found_again_by_its_stage(restores());
        assert_eq!(BackupPhase::of(Stage::Unknown), None);
        assert_eq!(RestorePhase::of(Stage::Deleting), None);
    }

    fn never_goes_back<P: Phase>(phases: &[P]) {
        for from in phases {
            for to in phases {
                let (there, back) = (
                    from.stage().can_become(to.stage()),
                    to.stage().can_become(from.stage()),
                );
                assert!(!(there && back), "{from} and {to}");
            }
        }
    }

    #[test]
    fn neither_a_backup_nor_a_restore_ever_goes_back() {
        never_goes_back(&backups());
        never_goes_back(&restores());
    }

    #[test]
    fn a_terminal_backup_can_only_be_deleted() {
        for from in backups().into_iter().filter(BackupPhase::is_terminal) {
            for to in backups() {
                let expected = to == BackupPhase::Deleting && from != BackupPhase::Deleting;
                assert_eq!(from.can_become(&to), expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_terminal_restore_stays_what_it_is() {
        for from in restores().into_iter().filter(RestorePhase::is_terminal) {
            assert!(restores().iter().all(|to| !from.can_become(to)), "{from}");
        }
    }

    fn leads_to_an_end<P: Phase>(phases: &[P]) {
        for from in phases.iter().filter(|phase| !phase.stage().is_terminal()) {
            let mut ends = phases
                .iter()
                .map(P::stage)
                .filter(|stage| stage.is_terminal());
            assert!(ends.any(|end| from.stage().can_become(end)), "{from}");
        }
    }

    #[test]
    fn every_active_phase_leads_to_an_end() {
        leads_to_an_end(&backups());
        leads_to_an_end(&restores());
    }

    #[test]
    fn what_has_partially_failed_is_never_completed() {
        for stage in [
            Stage::WaitingForOperations { failed: true },
            Stage::Finalizing { failed: true },
            Stage::PartiallyFailed,
        ] {
            assert!(
                !BackupPhase::of(stage)
                    .unwrap()
                    .can_become(&BackupPhase::Completed),
                "{stage:?}"
            );
            assert!(
                !RestorePhase::of(stage)
                    .unwrap()
                    .can_become(&RestorePhase::Completed),
                "{stage:?}"
            );
        }
    }

    #[test]
    fn a_skipped_step_is_still_forward() {
        assert!(BackupPhase::New.can_become(&BackupPhase::Completed));
        assert!(BackupPhase::Queued.can_become(&BackupPhase::Failed));
        assert!(RestorePhase::New.can_become(&RestorePhase::PartiallyFailed));
        assert!(!BackupPhase::Completed.can_become(&BackupPhase::Finalizing));
    }

    #[test]
    fn an_unknown_phase_counts_as_active() {
        assert!(BackupPhase::from("Resting").is_active());
        assert!(RestorePhase::from("Resting").is_active());
        assert!(!BackupPhase::from("Resting").can_become(&BackupPhase::Completed));
    }
}

//! Phases: which ones still work, which are an end, and which may follow which.
//!
//! The graph is Velero's (v1.18: `pkg/controller/backup*_controller.go`, `restore*_controller.go`). It has no circle, so
//! an observer that misses steps still sees a forward move.

use std::{
    fmt::{Debug, Display},
    hash::Hash,
};

use serde::{Serialize, de::DeserializeOwned};

use crate::api::{BackupPhase, RestorePhase};

/// Where a Backup or a Restore is in its life: what their phases have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Not looked at yet.
    New,
    /// Waits for its place in the queue (backups only).
    Queued,
    /// May start (backups only).
    ReadyToStart,
    InProgress,
    /// All items are done, operations still run.
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
    /// The stages that may come directly after this one.
    fn steps(self) -> &'static [Self] {
        match self {
            // Straight to InProgress: a Restore, and a Backup of Velero before 1.18, which has no queue.
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
            Self::Finalizing { failed: false } => &[Self::Finalizing { failed: true }, Self::Completed],
            Self::Finalizing { failed: true } => &[Self::PartiallyFailed],
            Self::Completed | Self::PartiallyFailed | Self::Failed | Self::FailedValidation => {
                &[Self::Deleting]
            }
            Self::Deleting | Self::Unknown => &[],
        }
    }

    /// Whether all items are done, and what remains are operations and the last files. What is stored so far is not in its
    /// place yet.
    pub fn is_past_items(self) -> bool {
        matches!(self, Self::WaitingForOperations { .. } | Self::Finalizing { .. })
    }

    /// Whether it works on with something already published as failed. It must not end as Completed, also when a later
    /// attempt meets no error.
    pub fn has_failed_so_far(self) -> bool {
        matches!(self, Self::WaitingForOperations { failed: true } | Self::Finalizing { failed: true })
    }

    /// Whether the work is over. Deleting counts: only the removal is still going on.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::PartiallyFailed | Self::Failed | Self::FailedValidation | Self::Deleting
        )
    }

    /// Whether `next` lies ahead, in one step or several. No stage lies ahead of itself, nothing but Deleting ahead of a
    /// terminal one, and nothing is known about unknown ones.
    pub fn can_become(self, next: Self) -> bool {
        self.steps().iter().any(|step| *step == next || step.can_become(next))
    }
}

/// The phases of Backups and of Restores, for code that is about both.
pub trait Phase:
    Clone + Eq + Hash + Debug + Display + Serialize + DeserializeOwned + Send + Sync + 'static
{
    const IN_PROGRESS: Self;
    const FAILED: Self;
    const FAILED_VALIDATION: Self;

    fn stage(&self) -> Stage;

    /// The phase of this meaning. `None` if the kind has none, and for [`Stage::Unknown`].
    fn of(stage: Stage) -> Option<Self>;

    /// All items are done, operations still run; `failed`: something has failed so far.
    fn waiting_for_operations(failed: bool) -> Self;

    /// Results are being stored; `failed`: something has failed so far.
    fn finalizing(failed: bool) -> Self;

    /// Everything is stored; `failed`: something has failed.
    fn ended(failed: bool) -> Self;
}

/// A phase enum that has the phases of both kinds, and some of its own that are named like their stages.
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

            /// Whether it works or still may. A phase that this version does not know counts as active.
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

phase!(BackupPhase { Queued, ReadyToStart, Deleting });
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
                let (there, back) =
                    (from.stage().can_become(to.stage()), to.stage().can_become(from.stage()));
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
            let mut ends = phases.iter().map(P::stage).filter(|stage| stage.is_terminal());
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
            assert!(!BackupPhase::of(stage).unwrap().can_become(&BackupPhase::Completed), "{stage:?}");
            assert!(!RestorePhase::of(stage).unwrap().can_become(&RestorePhase::Completed), "{stage:?}");
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

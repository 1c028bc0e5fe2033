//! Phases: which ones still work, which are an end, and which may follow which.
//!
//! The graph is Velero's (v1.18: `pkg/controller/backup*_controller.go`, `restore*_controller.go`). It has no circle, so
//! an observer that misses steps still sees a forward move.

use crate::api::{BackupPhase, RestorePhase};

impl BackupPhase {
    /// The phases that may come directly after this one.
    fn steps(&self) -> &'static [Self] {
        match self {
            // Straight to InProgress: Velero before 1.18, which has no queue.
            Self::New => &[Self::Queued, Self::InProgress, Self::FailedValidation],
            Self::Queued => &[Self::ReadyToStart],
            Self::ReadyToStart => &[Self::InProgress, Self::FailedValidation],
            Self::InProgress => &[
                Self::WaitingForPluginOperations,
                Self::WaitingForPluginOperationsPartiallyFailed,
                Self::Finalizing,
                Self::FinalizingPartiallyFailed,
                Self::Failed,
            ],
            Self::WaitingForPluginOperations => {
                &[Self::WaitingForPluginOperationsPartiallyFailed, Self::Finalizing, Self::PartiallyFailed]
            }
            Self::WaitingForPluginOperationsPartiallyFailed => {
                &[Self::FinalizingPartiallyFailed, Self::PartiallyFailed]
            }
            Self::Finalizing => &[Self::FinalizingPartiallyFailed, Self::Completed],
            Self::FinalizingPartiallyFailed => &[Self::PartiallyFailed],
            Self::Completed | Self::PartiallyFailed | Self::Failed | Self::FailedValidation => {
                &[Self::Deleting]
            }
            Self::Deleting | Self::Unknown(_) => &[],
        }
    }

    /// Whether all items are collected, and what is left are operations and the last files. What is stored so far is not in its
    /// place yet.
    pub fn is_past_items(&self) -> bool {
        matches!(
            self,
            Self::WaitingForPluginOperations
                | Self::WaitingForPluginOperationsPartiallyFailed
                | Self::Finalizing
                | Self::FinalizingPartiallyFailed
        )
    }

    /// Whether the work of the backup is over. Deleting counts: only its removal is still going on.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Completed | Self::PartiallyFailed | Self::Failed | Self::FailedValidation | Self::Deleting
        )
    }

    /// Whether the backup works or still may. A phase that this version does not know counts as active.
    pub fn is_active(&self) -> bool {
        !self.is_terminal()
    }

    /// Whether `next` lies ahead, in one step or several. No phase lies ahead of itself, nothing but Deleting ahead of a
    /// terminal one, and nothing is known about unknown ones.
    pub fn can_become(&self, next: &Self) -> bool {
        self.steps().iter().any(|step| step == next || step.can_become(next))
    }
}

impl RestorePhase {
    /// The phases that may come directly after this one.
    fn steps(&self) -> &'static [Self] {
        match self {
            Self::New => &[Self::InProgress, Self::FailedValidation],
            Self::InProgress => &[
                Self::WaitingForPluginOperations,
                Self::WaitingForPluginOperationsPartiallyFailed,
                Self::Finalizing,
                Self::FinalizingPartiallyFailed,
                Self::Failed,
            ],
            Self::WaitingForPluginOperations => {
                &[Self::WaitingForPluginOperationsPartiallyFailed, Self::Finalizing]
            }
            Self::WaitingForPluginOperationsPartiallyFailed => &[Self::FinalizingPartiallyFailed],
            Self::Finalizing => &[Self::FinalizingPartiallyFailed, Self::Completed],
            Self::FinalizingPartiallyFailed => &[Self::PartiallyFailed],
            Self::Completed
            | Self::PartiallyFailed
            | Self::Failed
            | Self::FailedValidation
            | Self::Unknown(_) => &[],
        }
    }

    /// Whether all items are restored, and what is left are operations and the last files. What is stored so far is not in its
    /// place yet.
    pub fn is_past_items(&self) -> bool {
        matches!(
            self,
            Self::WaitingForPluginOperations
                | Self::WaitingForPluginOperationsPartiallyFailed
                | Self::Finalizing
                | Self::FinalizingPartiallyFailed
        )
    }

    /// Whether the work of the restore is over.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Completed | Self::PartiallyFailed | Self::Failed | Self::FailedValidation)
    }

    /// Whether the restore works or still may. A phase that this version does not know counts as active.
    pub fn is_active(&self) -> bool {
        !self.is_terminal()
    }

    /// Whether `next` lies ahead, in one step or several. No phase lies ahead of itself, nothing ahead of a terminal one,
    /// and nothing is known about unknown ones.
    pub fn can_become(&self, next: &Self) -> bool {
        self.steps().iter().any(|step| step == next || step.can_become(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup_phases() -> Vec<BackupPhase> {
        BackupPhase::KNOWN.iter().map(|p| BackupPhase::from(*p)).collect()
    }

    fn restore_phases() -> Vec<RestorePhase> {
        RestorePhase::KNOWN.iter().map(|p| RestorePhase::from(*p)).collect()
    }

    #[test]
    fn a_backup_never_goes_back() {
        for from in backup_phases() {
            for to in backup_phases() {
                assert!(!(from.can_become(&to) && to.can_become(&from)), "{from} and {to}");
            }
        }
    }

    #[test]
    fn a_restore_never_goes_back() {
        for from in restore_phases() {
            for to in restore_phases() {
                assert!(!(from.can_become(&to) && to.can_become(&from)), "{from} and {to}");
            }
        }
    }

    #[test]
    fn a_terminal_backup_can_only_be_deleted() {
        for from in backup_phases().into_iter().filter(BackupPhase::is_terminal) {
            for to in backup_phases() {
                let expected = to == BackupPhase::Deleting && from != BackupPhase::Deleting;
                assert_eq!(from.can_become(&to), expected, "{from} to {to}");
            }
        }
    }

    #[test]
    fn a_terminal_restore_stays_what_it_is() {
        for from in restore_phases().into_iter().filter(RestorePhase::is_terminal) {
            assert!(restore_phases().iter().all(|to| !from.can_become(to)), "{from}");
        }
    }

    #[test]
    fn every_active_phase_leads_to_an_end() {
        for from in backup_phases().into_iter().filter(BackupPhase::is_active) {
            assert!(backup_phases().iter().any(|to| to.is_terminal() && from.can_become(to)), "{from}");
        }
        for from in restore_phases().into_iter().filter(RestorePhase::is_active) {
            assert!(restore_phases().iter().any(|to| to.is_terminal() && from.can_become(to)), "{from}");
        }
    }

    #[test]
    fn what_has_partially_failed_is_never_completed() {
        for phase in [
            BackupPhase::WaitingForPluginOperationsPartiallyFailed,
            BackupPhase::FinalizingPartiallyFailed,
            BackupPhase::PartiallyFailed,
        ] {
            assert!(!phase.can_become(&BackupPhase::Completed), "{phase}");
        }
        for phase in [
            RestorePhase::WaitingForPluginOperationsPartiallyFailed,
            RestorePhase::FinalizingPartiallyFailed,
            RestorePhase::PartiallyFailed,
        ] {
            assert!(!phase.can_become(&RestorePhase::Completed), "{phase}");
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

use backup_core::{
    api::{BackupPhase, RestorePhase},
    phase::Phase as _,
};

use super::*;
use crate::{backup::Backups, job::lifecycle::Lifecycle as _, restore::Restores};

const ACTIVE: [BackupPhase; 6] = [
    BackupPhase::ReadyToStart,
    BackupPhase::InProgress,
    BackupPhase::WaitingForPluginOperations,
    BackupPhase::WaitingForPluginOperationsPartiallyFailed,
    BackupPhase::Finalizing,
    BackupPhase::FinalizingPartiallyFailed,
];
const ENDED: [BackupPhase; 5] = [
    BackupPhase::Completed,
    BackupPhase::PartiallyFailed,
    BackupPhase::Failed,
    BackupPhase::FailedValidation,
    BackupPhase::Deleting,
];

fn seen<'a>(phase: &BackupPhase, stored: Option<&'a StoredState>) -> JobState<'a> {
    JobState::of(Backups::KIND, phase.stage(), stored)
}

fn stored(uid: &str, phase: &BackupPhase) -> StoredState {
    if uid == "mine" {
        StoredState::Ours(phase.stage())
    } else {
        StoredState::Others {
            uid: uid.to_owned(),
        }
    }
}

#[test]
fn every_phase_has_an_owner_after_a_restart() {
    for (phase, plan) in [
        (BackupPhase::New, Plan::Wait),
        (BackupPhase::Queued, Plan::Wait),
        (BackupPhase::ReadyToStart, Plan::Begin),
        (BackupPhase::InProgress, Plan::Work),
        (BackupPhase::Finalizing, Plan::Work),
        (BackupPhase::FinalizingPartiallyFailed, Plan::Work),
    ] {
        assert_eq!(
            next(seen(&phase, Some(&StoredState::Nothing))),
            plan,
            "{phase}"
        );
    }
}

#[test]
fn a_cancelled_backup_that_has_not_begun_fails_and_any_other_goes_on_to_its_end() {
    for phase in [
        BackupPhase::New,
        BackupPhase::Queued,
        BackupPhase::ReadyToStart,
    ] {
        let plan = next(JobState {
            cancelled: true,
            ..seen(&phase, None)
        });
        assert!(matches!(plan, Plan::Fail { .. }), "{phase}: {plan:?}");
        let plan = next(JobState {
            cancelled: true,
            deleting: true,
            ..seen(&phase, None)
        });
        assert_eq!(plan, Plan::LetGo, "{phase}");
    }
    for phase in ACTIVE
        .into_iter()
        .filter(|phase| *phase != BackupPhase::ReadyToStart)
    {
        for stored in [
            None,
            Some(&StoredState::Nothing),
            Some(&StoredState::Recorded),
            Some(&StoredState::Waiting),
        ] {
            let plan = next(seen(&phase, stored));
            assert_eq!(
                next(JobState {
                    cancelled: true,
                    ..seen(&phase, stored)
                }),
                plan,
                "{phase}"
            );
        }
    }
}

#[test]
fn operations_that_are_not_known_are_not_taken_for_none() {
    use BackupPhase as P;
    for phase in [
        P::WaitingForPluginOperations,
        P::WaitingForPluginOperationsPartiallyFailed,
    ] {
        let plan = next(seen(&phase, Some(&StoredState::Nothing)));
        assert!(
            matches!(&plan, Plan::Block { reason } if reason.contains("is not in the store")),
            "{plan:?}"
        );
        assert_eq!(
            next(seen(&phase, Some(&StoredState::Waiting))),
            Plan::Operations
        );
    }
}

#[test]
fn stored_metadata_of_this_uid_is_adopted_in_every_active_phase() {
    let ours = stored("mine", &BackupPhase::PartiallyFailed);
    for phase in ACTIVE {
        for in_hand in [false, true] {
            let plan = next(JobState {
                in_hand,
                ..seen(&phase, Some(&ours))
            });
            assert_eq!(plan, Plan::Adopt);
        }
    }
}

#[test]
fn what_is_recorded_is_finished_by_whoever_finds_it_in_every_active_phase() {
    for phase in ACTIVE {
        assert_eq!(
            next(seen(&phase, Some(&StoredState::Recorded))),
            Plan::Finish,
            "{phase}"
        );
    }
}

#[test]
fn what_is_recorded_and_gone_is_collected_again() {
    for phase in ACTIVE {
        let again = if phase == BackupPhase::ReadyToStart {
            Plan::Begin
        } else {
            Plan::Work
        };
        for stored in [StoredState::Recorded, StoredState::Waiting] {
            let plan = next(JobState {
                lost: true,
                ..seen(&phase, Some(&stored))
            });
            assert_eq!(plan, again, "{phase}");
        }
    }
}

#[test]
fn operations_that_are_recorded_are_gone_on_with() {
    for phase in ACTIVE
        .into_iter()
        .filter(|phase| *phase != BackupPhase::ReadyToStart)
    {
        assert_eq!(
            next(seen(&phase, Some(&StoredState::Waiting))),
            Plan::Operations,
            "{phase}"
        );
    }
}

#[test]
fn metadata_of_another_uid_fails_the_backup_and_says_so() {
    let others = stored("theirs", &BackupPhase::Completed);
    for phase in ACTIVE {
        let plan = next(seen(&phase, Some(&others)));
        let reason = match plan {
            Plan::Fail { reason } if phase.can_become(&BackupPhase::Failed) => reason,
            Plan::Block { reason } if !phase.can_become(&BackupPhase::Failed) => reason,
            other => panic!("{phase}: {other:?}"),
        };
        assert!(
            reason.starts_with("backup already exists in object storage")
                && reason.contains("theirs"),
            "{reason}"
        );
    }
}

#[test]
fn metadata_that_is_not_an_end_is_not_adopted() {
    for (phase, stored_phase) in [
        (BackupPhase::InProgress, BackupPhase::Finalizing),
        (
            BackupPhase::FinalizingPartiallyFailed,
            BackupPhase::Completed,
        ),
        (
            BackupPhase::InProgress,
            BackupPhase::Unknown("Later".to_owned()),
        ),
    ] {
        let plan = next(seen(&phase, Some(&stored("mine", &stored_phase))));
        assert!(matches!(plan, Plan::Block { .. }), "{phase}: {plan:?}");
    }
}

#[test]
fn an_ended_backup_is_never_moved_again() {
    let ours = stored("mine", &BackupPhase::Completed);
    for phase in ENDED {
        for deleting in [false, true] {
            let plan = next(JobState {
                deleting,
                in_hand: true,
                ..seen(&phase, Some(&ours))
            });
            assert_eq!(plan, Plan::Free, "{phase}");
        }
    }
}

#[test]
fn an_unknown_phase_uploads_and_patches_nothing() {
    let phase = BackupPhase::Unknown("Later".to_owned());
    for stored in [
        StoredState::Nothing,
        stored("mine", &BackupPhase::Completed),
        StoredState::Recorded,
        StoredState::Waiting,
    ] {
        for (deleting, in_hand) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(
                next(JobState {
                    deleting,
                    in_hand,
                    ..seen(&phase, Some(&stored))
                }),
                Plan::Wait
            );
        }
    }
}

#[test]
fn findings_refuse_a_backup_before_it_starts_and_not_later() {
    let findings = [
        "spec.ttl: must not be negative".to_owned(),
        "spec.storageLocation: is read-only".to_owned(),
    ];
    let plan = next(JobState {
        findings: &findings,
        ..seen(&BackupPhase::ReadyToStart, None)
    });
    assert_eq!(
        plan,
        Plan::Refuse {
            validation_errors: findings.to_vec()
        }
    );
    assert_eq!(
        next(JobState {
            findings: &findings,
            ..seen(&BackupPhase::InProgress, None)
        }),
        Plan::Look
    );
}

#[test]
fn nothing_is_collected_before_somebody_has_looked_into_the_store() {
    for phase in ACTIVE {
        assert_eq!(next(seen(&phase, None)), Plan::Look, "{phase}");
    }
}

#[test]
fn contents_in_hand_are_finished_not_collected_again() {
    for stored in [
        None,
        Some(&StoredState::Nothing),
        Some(&StoredState::Recorded),
        Some(&StoredState::Waiting),
    ] {
        for phase in [
            BackupPhase::InProgress,
            BackupPhase::Finalizing,
            BackupPhase::FinalizingPartiallyFailed,
        ] {
            assert_eq!(
                next(JobState {
                    in_hand: true,
                    ..seen(&phase, stored)
                }),
                Plan::Finish,
                "{phase}"
            );
        }
    }
}

#[test]
fn a_deleted_backup_is_let_go_unless_it_is_committed_and_then_it_is_finished_first() {
    use BackupPhase as P;
    let completed = StoredState::Ours(Stage::Completed);
    for phase in [P::New, P::Queued, P::ReadyToStart] {
        assert_eq!(
            next(JobState {
                deleting: true,
                ..seen(&phase, None)
            }),
            Plan::LetGo,
            "{phase}"
        );
    }
    for phase in ACTIVE.into_iter().filter(|phase| *phase != P::ReadyToStart) {
        for in_hand in [false, true] {
            for (stored, lost, plan) in [
                (None, false, Plan::Look),
                (Some(&StoredState::Nothing), false, Plan::LetGo),
                (Some(&StoredState::Waiting), false, Plan::LetGo),
                (Some(&StoredState::Recorded), false, Plan::Finish),
                (Some(&StoredState::Recorded), true, Plan::LetGo),
                (
                    Some(&StoredState::Others {
                        uid: "x".to_owned(),
                    }),
                    false,
                    Plan::LetGo,
                ),
                // Written by another program: not changed.
                (Some(&StoredState::Ours(Stage::New)), false, Plan::LetGo),
            ] {
                let seen = JobState {
                    deleting: true,
                    in_hand,
                    lost,
                    ..seen(&phase, stored)
                };
                assert_eq!(next(seen), plan, "{phase} {stored:?} {lost}");
            }
        }
    }
    let adopts = seen(&P::Finalizing, Some(&completed));
    assert_eq!(
        next(JobState {
            deleting: true,
            ..adopts
        }),
        Plan::Adopt
    );
    // No end, or one that cannot follow the phase: another program has written it.
    for (phase, stored) in [
        (P::InProgress, P::Finalizing.stage()),
        (P::FinalizingPartiallyFailed, Stage::Completed),
    ] {
        let stored = StoredState::Ours(stored);
        assert_eq!(
            next(JobState {
                deleting: true,
                ..seen(&phase, Some(&stored))
            }),
            Plan::LetGo,
            "{phase}"
        );
    }
}

#[test]
fn every_phase_of_a_restore_has_an_owner_after_a_restart() {
    use RestorePhase as P;
    for (phase, plan) in [
        (P::New, Plan::Begin),
        (P::InProgress, Plan::Work),
        (P::Finalizing, Plan::Work),
        (P::FinalizingPartiallyFailed, Plan::Work),
        (P::Completed, Plan::Free),
        (P::PartiallyFailed, Plan::Free),
        (P::Failed, Plan::Free),
        (P::FailedValidation, Plan::Free),
        (P::Unknown("Later".to_owned()), Plan::Wait),
    ] {
        assert_eq!(
            next(JobState::of(
                Restores::KIND,
                phase.stage(),
                Some(&StoredState::Nothing)
            )),
            plan,
            "{phase}"
        );
    }
    for phase in [
        P::WaitingForPluginOperations,
        P::WaitingForPluginOperationsPartiallyFailed,
    ] {
        let plan = next(JobState::of(
            Restores::KIND,
            phase.stage(),
            Some(&StoredState::Waiting),
        ));
        assert_eq!(plan, Plan::Operations, "{phase}");
        let plan = next(JobState::of(
            Restores::KIND,
            phase.stage(),
            Some(&StoredState::Nothing),
        ));
        assert!(matches!(plan, Plan::Block { .. }), "{phase}: {plan:?}");
    }
}

#[test]
fn a_restore_begins_before_the_store_is_read_and_its_findings_end_it_at_any_time() {
    let restore = |phase: RestorePhase| JobState::of(Restores::KIND, phase.stage(), None);
    assert_eq!(next(restore(RestorePhase::New)), Plan::Begin);
    assert_eq!(next(restore(RestorePhase::InProgress)), Plan::Look);
    let findings = ["backup \"b\" was deleted".to_owned()];
    let plan = next(JobState {
        findings: &findings,
        ..restore(RestorePhase::New)
    });
    assert_eq!(
        plan,
        Plan::Refuse {
            validation_errors: findings.to_vec()
        }
    );
    for phase in [RestorePhase::InProgress, RestorePhase::Finalizing] {
        let plan = next(JobState {
            findings: &findings,
            ..restore(phase)
        });
        assert_eq!(
            plan,
            Plan::Fail {
                reason: findings[0].clone()
            }
        );
    }
}

#[test]
fn a_deleted_restore_is_let_go_and_never_started() {
    for phase in [
        RestorePhase::New,
        RestorePhase::InProgress,
        RestorePhase::Unknown("Later".to_owned()),
    ] {
        let plan = next(JobState {
            deleting: true,
            ..JobState::of(Restores::KIND, phase.stage(), None)
        });
        assert_eq!(plan, Plan::LetGo, "{phase}");
    }
}

use backup_core::{
    api::{BackupPhase, RestorePhase},
    phase::Phase as _,
};

use super::*;
use crate::{backup::Backups, job::kind::JobKind as _, restore::Restores};

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

type Stored = super::Stored<(), (), (), ()>;
type Plan = super::Plan<(), (), (), ()>;

const NOTHING: Stored = Stored::Nothing(());
const LOST: Stored = Stored::Lost(());
const RECORDED: Stored = Stored::Recorded(());
const WAITING: Stored = Stored::Waiting(());

#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Immediate(ImmediatePlan),
    Then(Plan),
}

use Decision::{Immediate, Then};

fn decide(seen: JobState, stored: Option<Stored>) -> Decision {
    immediate(seen).map_or_else(|| Then(next(seen, &[], stored)), Immediate)
}

fn seen(phase: &BackupPhase) -> JobState {
    JobState::of(Backups::KIND, phase.stage())
}

fn stored(uid: &str, phase: &BackupPhase) -> Stored {
    if uid == "mine" {
        Stored::Ours(phase.stage(), ())
    } else {
        Stored::Others {
            uid: uid.to_owned(),
        }
    }
}

#[test]
fn every_phase_has_an_owner_after_a_restart() {
    for (phase, plan) in [
        (BackupPhase::New, Immediate(ImmediatePlan::Wait)),
        (BackupPhase::Queued, Immediate(ImmediatePlan::Wait)),
        (BackupPhase::ReadyToStart, Then(Plan::Begin(Some(NOTHING)))),
        (BackupPhase::InProgress, Then(Plan::Work(()))),
        (BackupPhase::Finalizing, Then(Plan::Work(()))),
        (BackupPhase::FinalizingPartiallyFailed, Then(Plan::Work(()))),
    ] {
        assert_eq!(decide(seen(&phase), Some(NOTHING)), plan, "{phase}");
    }
}

#[test]
fn a_cancelled_backup_that_has_not_begun_fails_and_any_other_goes_on_to_its_end() {
    for phase in [
        BackupPhase::New,
        BackupPhase::Queued,
        BackupPhase::ReadyToStart,
    ] {
        let plan = immediate(JobState {
            cancelled: true,
            ..seen(&phase)
        });
        assert!(
            matches!(plan, Some(ImmediatePlan::Fail { .. })),
            "{phase}: {plan:?}"
        );
        let plan = immediate(JobState {
            cancelled: true,
            deleting: true,
            ..seen(&phase)
        });
        assert_eq!(plan, Some(ImmediatePlan::LetGo), "{phase}");
    }
    for phase in ACTIVE
        .into_iter()
        .filter(|phase| *phase != BackupPhase::ReadyToStart)
    {
        for stored in [None, Some(NOTHING), Some(RECORDED), Some(WAITING)] {
            let plan = decide(seen(&phase), stored.clone());
            assert_eq!(
                decide(
                    JobState {
                        cancelled: true,
                        ..seen(&phase)
                    },
                    stored
                ),
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
        let plan = decide(seen(&phase), Some(NOTHING));
        assert!(
            matches!(&plan, Then(Plan::Block { reason }) if reason.contains("is not in the store")),
            "{plan:?}"
        );
        assert_eq!(
            decide(seen(&phase), Some(WAITING)),
            Then(Plan::Operations(()))
        );
    }
}

#[test]
fn stored_metadata_of_this_uid_is_adopted_in_every_active_phase() {
    let ours = stored("mine", &BackupPhase::PartiallyFailed);
    for phase in ACTIVE {
        for in_hand in [false, true] {
            let seen = JobState {
                in_hand,
                ..seen(&phase)
            };
            assert_eq!(next(seen, &[], Some(ours.clone())), Plan::Adopt(()));
        }
    }
}

#[test]
fn what_is_recorded_is_finished_by_whoever_finds_it_in_every_active_phase() {
    for phase in ACTIVE {
        assert_eq!(
            decide(seen(&phase), Some(RECORDED)),
            Then(Plan::Finish(())),
            "{phase}"
        );
    }
}

#[test]
fn what_is_recorded_and_gone_is_collected_again() {
    for phase in ACTIVE {
        let again = if phase == BackupPhase::ReadyToStart {
            Plan::Begin(Some(LOST))
        } else {
            Plan::Work(())
        };
        assert_eq!(decide(seen(&phase), Some(LOST)), Then(again), "{phase}");
    }
}

#[test]
fn operations_that_are_recorded_are_gone_on_with() {
    for phase in ACTIVE
        .into_iter()
        .filter(|phase| *phase != BackupPhase::ReadyToStart)
    {
        assert_eq!(
            decide(seen(&phase), Some(WAITING)),
            Then(Plan::Operations(())),
            "{phase}"
        );
    }
}

#[test]
fn metadata_of_another_uid_fails_the_backup_and_says_so() {
    let others = stored("theirs", &BackupPhase::Completed);
    for phase in ACTIVE {
        let plan = decide(seen(&phase), Some(others.clone()));
        let reason = match plan {
            Then(Plan::Fail { reason }) if phase.can_become(&BackupPhase::Failed) => reason,
            Then(Plan::Block { reason }) if !phase.can_become(&BackupPhase::Failed) => reason,
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
        let plan = decide(seen(&phase), Some(stored("mine", &stored_phase)));
        assert!(
            matches!(plan, Then(Plan::Block { .. })),
            "{phase}: {plan:?}"
        );
    }
}

#[test]
fn an_ended_backup_is_never_moved_again() {
    for phase in ENDED {
        for deleting in [false, true] {
            let plan = immediate(JobState {
                deleting,
                in_hand: true,
                ..seen(&phase)
            });
            assert_eq!(plan, Some(ImmediatePlan::Free), "{phase}");
        }
    }
}

#[test]
fn an_unknown_phase_uploads_and_patches_nothing() {
    let phase = BackupPhase::Unknown("Later".to_owned());
    for (deleting, in_hand) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(
            immediate(JobState {
                deleting,
                in_hand,
                ..seen(&phase)
            }),
            Some(ImmediatePlan::Wait)
        );
    }
}

#[test]
fn findings_refuse_a_backup_before_it_starts_and_not_later() {
    let findings = [
        "spec.ttl: must not be negative".to_owned(),
        "spec.storageLocation: is read-only".to_owned(),
    ];
    let plan: Plan = next(seen(&BackupPhase::ReadyToStart), &findings, None);
    assert_eq!(
        plan,
        Plan::Refuse {
            validation_errors: findings.to_vec()
        }
    );
    let plan: Plan = next(seen(&BackupPhase::InProgress), &findings, None);
    assert_eq!(plan, Plan::Look);
}

#[test]
fn nothing_is_collected_before_somebody_has_looked_into_the_store() {
    for phase in ACTIVE {
        assert_eq!(decide(seen(&phase), None), Then(Plan::Look), "{phase}");
    }
}

#[test]
fn contents_in_hand_are_finished_not_collected_again() {
    for phase in [
        BackupPhase::InProgress,
        BackupPhase::Finalizing,
        BackupPhase::FinalizingPartiallyFailed,
    ] {
        assert_eq!(
            immediate(JobState {
                in_hand: true,
                ..seen(&phase)
            }),
            Some(ImmediatePlan::Finish),
            "{phase}"
        );
    }
}

#[test]
fn a_deleted_backup_is_let_go_unless_it_is_committed_and_then_it_is_finished_first() {
    use BackupPhase as P;
    for phase in [P::New, P::Queued, P::ReadyToStart] {
        assert_eq!(
            immediate(JobState {
                deleting: true,
                ..seen(&phase)
            }),
            Some(ImmediatePlan::LetGo),
            "{phase}"
        );
    }
    for phase in ACTIVE.into_iter().filter(|phase| *phase != P::ReadyToStart) {
        for in_hand in [false, true] {
            for (stored, plan) in [
                (None, Plan::Look),
                (Some(NOTHING), Plan::LetGo),
                (Some(WAITING), Plan::LetGo),
                (Some(RECORDED), Plan::Finish(())),
                (Some(LOST), Plan::LetGo),
                (
                    Some(Stored::Others {
                        uid: "x".to_owned(),
                    }),
                    Plan::LetGo,
                ),
                // Written by another program: not changed.
                (Some(Stored::Ours(Stage::New, ())), Plan::LetGo),
            ] {
                let seen = JobState {
                    deleting: true,
                    in_hand,
                    ..seen(&phase)
                };
                assert_eq!(
                    decide(seen, stored.clone()),
                    Then(plan),
                    "{phase} {stored:?}"
                );
            }
        }
    }
    // No end, or one that cannot follow the phase: another program has written it.
    for (phase, stored, plan) in [
        (P::Finalizing, Stage::Completed, Plan::Adopt(())),
        (P::InProgress, P::Finalizing.stage(), Plan::LetGo),
        (P::FinalizingPartiallyFailed, Stage::Completed, Plan::LetGo),
    ] {
        let seen = JobState {
            deleting: true,
            ..seen(&phase)
        };
        let stored = Stored::Ours(stored, ());
        assert_eq!(decide(seen, Some(stored)), Then(plan), "{phase}");
    }
}

#[test]
fn every_phase_of_a_restore_has_an_owner_after_a_restart() {
    use RestorePhase as P;
    let free = Immediate(ImmediatePlan::Free);
    for (phase, plan) in [
        (P::New, Then(Plan::Begin(Some(NOTHING)))),
        (P::InProgress, Then(Plan::Work(()))),
        (P::Finalizing, Then(Plan::Work(()))),
        (P::FinalizingPartiallyFailed, Then(Plan::Work(()))),
        (P::Completed, free.clone()),
        (P::PartiallyFailed, free.clone()),
        (P::Failed, free.clone()),
        (P::FailedValidation, free),
        (
            P::Unknown("Later".to_owned()),
            Immediate(ImmediatePlan::Wait),
        ),
    ] {
        let seen = JobState::of(Restores::KIND, phase.stage());
        assert_eq!(decide(seen, Some(NOTHING)), plan, "{phase}");
    }
    for phase in [
        P::WaitingForPluginOperations,
        P::WaitingForPluginOperationsPartiallyFailed,
    ] {
        let seen = JobState::of(Restores::KIND, phase.stage());
        let plan = decide(seen, Some(WAITING));
        assert_eq!(plan, Then(Plan::Operations(())), "{phase}");
        let plan = decide(seen, Some(NOTHING));
        assert!(
            matches!(plan, Then(Plan::Block { .. })),
            "{phase}: {plan:?}"
        );
    }
}

#[test]
fn a_restore_begins_before_the_store_is_read_and_its_findings_end_it_at_any_time() {
    let restore = |phase: RestorePhase| JobState::of(Restores::KIND, phase.stage());
    assert_eq!(
        decide(restore(RestorePhase::New), None),
        Then(Plan::Begin(None))
    );
    assert_eq!(
        decide(restore(RestorePhase::InProgress), None),
        Then(Plan::Look)
    );
    let findings = ["backup \"b\" was deleted".to_owned()];
    let plan: Plan = next(restore(RestorePhase::New), &findings, None);
    assert_eq!(
        plan,
        Plan::Refuse {
            validation_errors: findings.to_vec()
        }
    );
    for phase in [RestorePhase::InProgress, RestorePhase::Finalizing] {
        let plan: Plan = next(restore(phase), &findings, None);
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
        let plan = immediate(JobState {
            deleting: true,
            ..JobState::of(Restores::KIND, phase.stage())
        });
        assert_eq!(plan, Some(ImmediatePlan::LetGo), "{phase}");
    }
}

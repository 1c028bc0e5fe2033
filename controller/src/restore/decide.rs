//! What to do about one Restore that nobody works on now: the queue never looks at one twice at once. Pure.

use backup_core::{api::RestorePhase, operation::Counts};

/// What is known about a Restore.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The published phase.
    pub phase: &'a RestorePhase,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether the finalizer of the work is on it.
    pub guarded: bool,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Validate, claim, and run.
    Start,
    /// Run again what an earlier process left unfinished. Running again is idempotent.
    Resume,
    /// The work is over: free the claim and take the finalizer off.
    Free,
    /// Nothing.
    Rest,
}

/// Decides the next step.
pub fn next(seen: Seen<'_>) -> Step {
    use RestorePhase as P;
    let free = if seen.guarded { Step::Free } else { Step::Rest };
    if seen.deleting {
        return free;
    }
    match seen.phase {
        P::New => Step::Start,
        P::InProgress
        | P::WaitingForPluginOperations
        | P::WaitingForPluginOperationsPartiallyFailed
        | P::Finalizing
        | P::FinalizingPartiallyFailed => Step::Resume,
        P::Completed | P::PartiallyFailed | P::Failed | P::FailedValidation => free,
        // A phase of a newer version: not ours to move.
        P::Unknown(_) => Step::Rest,
    }
}

/// The phase while operations run: derived from them and the errors so far, and never better than it was.
pub fn operating(operations: Counts, errors: i64, before: &RestorePhase) -> RestorePhase {
    let failed = errors > 0 || operations.failed > 0 || had_failed(before);
    match (operations.all_ended(), failed) {
        (false, false) => RestorePhase::WaitingForPluginOperations,
        (false, true) => RestorePhase::WaitingForPluginOperationsPartiallyFailed,
        (true, false) => RestorePhase::Finalizing,
        (true, true) => RestorePhase::FinalizingPartiallyFailed,
    }
}

/// The phase while the results are stored, given how many errors there are.
pub fn finalizing(errors: i64) -> RestorePhase {
    if errors > 0 { RestorePhase::FinalizingPartiallyFailed } else { RestorePhase::Finalizing }
}

/// The phase once the results are stored.
pub fn ended(errors: i64) -> RestorePhase {
    if errors > 0 { RestorePhase::PartiallyFailed } else { RestorePhase::Completed }
}

/// Whether a restore in this phase waits for operations.
pub fn waits(phase: &RestorePhase) -> bool {
    matches!(
        phase,
        RestorePhase::WaitingForPluginOperations | RestorePhase::WaitingForPluginOperationsPartiallyFailed
    )
}

/// Whether a restore found in this phase had already published that something failed. It must not end as `Completed`
/// when running it again meets no error (the phase only moves forward).
pub fn had_failed(phase: &RestorePhase) -> bool {
    matches!(
        phase,
        RestorePhase::FinalizingPartiallyFailed | RestorePhase::WaitingForPluginOperationsPartiallyFailed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(phase: &RestorePhase, deleting: bool, guarded: bool) -> Step {
        next(Seen { phase, deleting, guarded })
    }

    #[test]
    fn every_phase_has_an_owner_after_a_restart() {
        for (phase, expected) in [
            (RestorePhase::New, Step::Start),
            (RestorePhase::InProgress, Step::Resume),
            (RestorePhase::WaitingForPluginOperations, Step::Resume),
            (RestorePhase::WaitingForPluginOperationsPartiallyFailed, Step::Resume),
            (RestorePhase::Finalizing, Step::Resume),
            (RestorePhase::FinalizingPartiallyFailed, Step::Resume),
            (RestorePhase::Completed, Step::Free),
            (RestorePhase::PartiallyFailed, Step::Free),
            (RestorePhase::Failed, Step::Free),
            (RestorePhase::FailedValidation, Step::Free),
            (RestorePhase::Unknown("Later".to_owned()), Step::Rest),
        ] {
            assert_eq!(step(&phase, false, true), expected, "{phase}");
        }
    }

    #[test]
    fn a_terminal_restore_is_never_started_again() {
        for phase in [
            RestorePhase::Completed,
            RestorePhase::PartiallyFailed,
            RestorePhase::Failed,
            RestorePhase::FailedValidation,
        ] {
            assert_eq!(step(&phase, false, false), Step::Rest, "{phase}");
        }
    }

    #[test]
    fn the_phase_follows_from_operations_and_never_gets_better() {
        use RestorePhase as P;
        let counts = |attempted, completed, failed| Counts { attempted, completed, failed };
        for (operations, errors, before, expected) in [
            (counts(2, 1, 0), 0, P::InProgress, P::WaitingForPluginOperations),
            (counts(2, 0, 1), 0, P::InProgress, P::WaitingForPluginOperationsPartiallyFailed),
            (counts(1, 0, 0), 1, P::InProgress, P::WaitingForPluginOperationsPartiallyFailed),
            (counts(2, 2, 0), 0, P::WaitingForPluginOperations, P::Finalizing),
            (counts(2, 1, 1), 0, P::WaitingForPluginOperations, P::FinalizingPartiallyFailed),
            // A patch that said so before is not taken back.
            (counts(1, 1, 0), 0, P::WaitingForPluginOperationsPartiallyFailed, P::FinalizingPartiallyFailed),
        ] {
            assert_eq!(operating(operations, errors, &before), expected, "{operations:?} {errors}");
        }
    }

    #[test]
    fn a_deleted_restore_is_let_go_and_never_started() {
        assert_eq!(step(&RestorePhase::InProgress, true, true), Step::Free);
        assert_eq!(step(&RestorePhase::New, true, false), Step::Rest);
    }
}

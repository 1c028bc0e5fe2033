//! Decides the next step for one Backup or Restore. Pure: takes what was read, returns a plan.

use backup_core::phase::Stage;

use super::kind::Kind;

/// What the object store holds under the object's name, with the data that the plans need: `S` to
/// start the work, `R` to finish a record, `A` to continue with operations, `E` to publish an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored<S, R, A, E> {
    /// Nothing of this name has ended there.
    Nothing(S),
    /// A record of this object whose data is gone from the store: uploaded, never visible, and
    /// removed.
    Lost(S),
    /// A record of this object: every byte of its end is known; files may be missing under their
    /// final keys.
    Recorded(R),
    /// A record of this object: its items are done, and its operations were still running.
    Waiting(A),
    /// The end of this very object, with this stage: it is done, whatever phase the cluster shows.
    Ours(Stage, E),
    /// The end of another object with this name.
    Others { uid: String },
}

/// What is known about an object before anything else is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobState {
    pub kind: Kind,
    /// Stage of the phase, read freshly.
    pub stage: Stage,
    pub deleting: bool,
    /// After the object has begun, a cancellation only brings its end forward; it is no step by
    /// itself.
    pub cancelled: bool,
    /// Whether this process has done all the work, or holds the record, and only has to write the
    /// end.
    pub in_hand: bool,
}

#[cfg(test)]
impl JobState {
    /// An object that is neither deleted nor cancelled, in this stage.
    pub(crate) fn of(kind: Kind, stage: Stage) -> Self {
        Self {
            kind,
            stage,
            deleting: false,
            cancelled: false,
            in_hand: false,
        }
    }
}

/// A plan for which nothing else has to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImmediatePlan {
    /// Nothing to do here: the queue decides, or the phase belongs to a newer version.
    Wait,
    /// The object was cancelled before it has begun: to `Failed`.
    Fail { reason: String },
    /// Write the end that this process has in hand, and publish it. The write will show whether
    /// another replica was faster.
    Finish,
    /// Its deletion was requested, and nothing of it can be committed: abandon it, free the claim,
    /// remove the finalizers.
    LetGo,
    /// The object has ended: free the claim if it is still held.
    Free,
}

/// A plan for an object that was prepared; the data is that of [`Stored`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan<S, R, A, E> {
    /// Look at the store.
    Look,
    /// The object is invalid: to `FailedValidation`.
    Refuse {
        /// All errors; each names its field.
        validation_errors: Vec<String>,
    },
    /// The object cannot run at all: to `Failed`.
    Fail {
        reason: String,
    },
    /// Begin; what the store holds stays known.
    Begin(Option<Stored<S, R, A, E>>),
    Work(S),
    /// The items are done: poll the operations until they have ended.
    Operations(A),
    /// Write what is missing, and publish the end.
    Finish(R),
    /// The object is done: publish what is stored.
    Adopt(E),
    /// The object can neither continue nor fail: reported on the object, and retried slowly.
    Block {
        reason: String,
    },
    /// Its deletion was requested, and nothing of it is committed: abandon it, free the claim,
    /// remove the finalizers.
    LetGo,
}

/// The plan that follows from the object alone; `None` if more has to be read.
pub(crate) fn immediate(seen: JobState) -> Option<ImmediatePlan> {
    let JobState { kind, stage, .. } = seen;
    if stage.is_terminal() {
        return Some(ImmediatePlan::Free);
    }
    if stage == Stage::Unknown && !(seen.deleting && kind.is_let_go_in_unknown_phase()) {
        return Some(ImmediatePlan::Wait);
    }
    let not_begun = matches!(stage, Stage::New | Stage::Queued | Stage::ReadyToStart);
    if seen.deleting {
        let may_be_finished = kind.outlives_deletion() && !not_begun;
        return (!may_be_finished).then_some(ImmediatePlan::LetGo);
    }
    if not_begun && seen.cancelled {
        return Some(ImmediatePlan::Fail {
            reason: kind.cancelled().to_owned(),
        });
    }
    if kind.waits_for_turn(stage) {
        return Some(ImmediatePlan::Wait);
    }
    seen.in_hand.then_some(ImmediatePlan::Finish)
}

/// The plan for an object that has no [`immediate`] one. `findings`: why it cannot start or
/// continue; `stored` is `None` before the store was read.
pub(crate) fn next<S, R, A, E>(
    seen: JobState,
    findings: &[String],
    stored: Option<Stored<S, R, A, E>>,
) -> Plan<S, R, A, E> {
    let JobState { kind, stage, .. } = seen;
    let starts = stage == kind.start();
    if !seen.deleting {
        if starts && !findings.is_empty() {
            return Plan::Refuse {
                validation_errors: findings.to_vec(),
            };
        }
        if kind.is_validated_again() && !findings.is_empty() {
            return Plan::Fail {
                reason: findings.join("; "),
            };
        }
        if kind.is_claimed_first() && starts {
            return Plan::Begin(stored);
        }
    }
    let Some(stored) = stored else {
        return Plan::Look;
    };
    if seen.deleting {
        return if_committed(stage, stored);
    }
    match stored {
        Stored::Others { uid } if kind.may_fail(stage) => Plan::Fail {
            reason: taken(kind, &uid),
        },
        Stored::Others { uid } => Plan::Block {
            reason: taken(kind, &uid),
        },
        Stored::Ours(stored, end) => adopt(kind, stage, stored, end),
        Stored::Recorded(record) => Plan::Finish(record),
        stored if starts => Plan::Begin(Some(stored)),
        Stored::Waiting(awaiting) => Plan::Operations(awaiting),
        // Never "no operations": they are unknown, and may run.
        Stored::Nothing(_) if matches!(stage, Stage::WaitingForOperations { .. }) => Plan::Block {
            reason: format!(
                "the record of its operations, and of what was done before them, is not in the store; bring it back, or \
                 delete the {}",
                kind.noun()
            ),
        },
        Stored::Nothing(start) | Stored::Lost(start) => Plan::Work(start),
    }
}

/// The plan for a deleted object: only what is committed is finished.
fn if_committed<S, R, A, E>(stage: Stage, stored: Stored<S, R, A, E>) -> Plan<S, R, A, E> {
    match stored {
        Stored::Ours(stored, end) if stored.is_terminal() && stage.can_become(stored) => {
            Plan::Adopt(end)
        }
        Stored::Recorded(record) => Plan::Finish(record),
        _ => Plan::LetGo,
    }
}

fn adopt<S, R, A, E>(kind: Kind, stage: Stage, stored: Stage, end: E) -> Plan<S, R, A, E> {
    if stored.is_terminal() && stage.can_become(stored) {
        return Plan::Adopt(end);
    }
    Plan::Block {
        reason: format!(
            "the stored metadata of this {} says an end that cannot follow its phase: another program has written it; it \
             was left as it is",
            kind.noun()
        ),
    }
}

fn taken(kind: Kind, uid: &str) -> String {
    let noun = kind.noun();
    let uid = if uid.is_empty() { "unknown" } else { uid };
    format!(
        "{noun} already exists in object storage: another {noun} of this name (uid {uid}) is stored there and was left as \
         it is; delete that one, or use another name"
    )
}

/// Whether work that began in this stage sets the phase to Finalizing before its end is recorded.
/// In later stages only the record decides: another replica may have recorded another outcome, and
/// a phase cannot be reverted.
pub(crate) fn announces(stage: Stage) -> bool {
    !matches!(stage, Stage::Finalizing { .. })
}

#[cfg(test)]
mod tests;

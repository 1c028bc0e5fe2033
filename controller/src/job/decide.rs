//! Decides the next step for one Backup or Restore. Pure: takes what was read, returns a plan.

use backup_core::phase::Stage;

/// What the object store holds under the object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredState {
    /// Nothing of this name has ended there.
    Nothing,
    /// The end of this very object, with this stage: it is done, whatever phase the cluster shows.
    Ours(Stage),
    /// A record of this object: every byte of its end is known; files may be missing under their
    /// final keys.
    Recorded,
    /// A record of this object: its items are done, and its operations were still running.
    Waiting,
    /// The end of another object with this name.
    Others { uid: String },
}

/// Properties of all objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub noun: &'static str,
    /// Backups (`true`): queued by us, claimed after the store was checked. Restores (`false`):
    /// claimed first, before anything else is read, and started as soon as the claim is active.
    pub queued: bool,
    /// Failure reason if cancelled before it begins.
    pub cancelled: &'static str,
    /// Failure reason of an object that the ledger refuses before it has begun.
    pub refused: &'static str,
}

impl Kind {
    /// The stage in which work starts.
    pub(crate) fn start(self) -> Stage {
        if self.queued {
            Stage::ReadyToStart
        } else {
            Stage::New
        }
    }

    /// Whether an object in this stage may still end as Failed. In later stages its contents may be
    /// in the store.
    pub(crate) fn may_fail(self, stage: Stage) -> bool {
        stage == self.start() || stage == Stage::InProgress
    }
}

/// What is known about an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobState<'a> {
    pub kind: Kind,
    /// Stage of the phase, read freshly.
    pub stage: Stage,
    pub deleting: bool,
    /// After the object has begun, a cancellation only brings its end forward; it is no step by
    /// itself.
    pub cancelled: bool,
    /// Why the object cannot start or continue.
    pub findings: &'a [String],
    /// `None` before the store was read.
    pub stored: Option<&'a StoredState>,
    /// Whether this process has done all the work, or holds the record, and only has to write the
    /// end.
    pub in_hand: bool,
    /// Whether the data of the record is gone from the store: uploaded, never visible, and removed.
    pub lost: bool,
}

#[cfg(test)]
impl<'a> JobState<'a> {
    /// An object that is neither deleted nor cancelled, in this stage and with this state in the
    /// store.
    pub(crate) fn of(kind: Kind, stage: Stage, stored: Option<&'a StoredState>) -> Self {
        let (deleting, cancelled, findings, in_hand, lost) = (false, false, &[][..], false, false);
        Self {
            kind,
            stage,
            deleting,
            cancelled,
            findings,
            stored,
            in_hand,
            lost,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing to do here: the queue decides, or the phase belongs to a newer version.
    Wait,
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
    Begin,
    Work,
    /// The items are done: poll the operations until they have ended.
    Operations,
    /// Write what is missing, and publish the end.
    Finish,
    /// The object is done: publish what is stored.
    Adopt,
    /// The object can neither continue nor fail: reported on the object, and retried slowly.
    Block {
        reason: String,
    },
    /// Its deletion was requested, and nothing of it is committed: abandon it, free the claim,
    /// remove the finalizers.
    LetGo,
    /// The object has ended: free the claim if it is still held.
    Free,
}

pub(crate) fn next(seen: JobState<'_>) -> Plan {
    let JobState { kind, stage, .. } = seen;
    let start = kind.start();
    if stage.is_terminal() {
        return Plan::Free;
    }
    match stage {
        Stage::Unknown if !seen.deleting || kind.queued => return Plan::Wait,
        _ if seen.deleting => return let_go(seen),
        Stage::New | Stage::Queued | Stage::ReadyToStart if seen.cancelled => {
            return Plan::Fail {
                reason: kind.cancelled.to_owned(),
            };
        }
        Stage::New | Stage::Queued if stage != start => return Plan::Wait,
        _ if stage == start && !seen.findings.is_empty() => {
            return Plan::Refuse {
                validation_errors: seen.findings.to_vec(),
            };
        }
        _ if !kind.queued && !seen.findings.is_empty() => {
            return Plan::Fail {
                reason: seen.findings.join("; "),
            };
        }
        _ if stage == start && !kind.queued => return Plan::Begin,
        _ => {}
    }
    match seen.stored {
        None if !seen.in_hand => Plan::Look,
        // The write will show whether another replica was faster.
        None | Some(StoredState::Nothing | StoredState::Recorded | StoredState::Waiting)
            if seen.in_hand =>
        {
            Plan::Finish
        }
        Some(StoredState::Others { uid }) if kind.may_fail(stage) => Plan::Fail {
            reason: taken(kind, uid),
        },
        Some(StoredState::Others { uid }) => Plan::Block {
            reason: taken(kind, uid),
        },
        Some(StoredState::Ours(end)) => adopt(kind, stage, *end),
        Some(StoredState::Recorded) if !seen.lost => Plan::Finish,
        Some(StoredState::Waiting) if !seen.lost && stage != start => Plan::Operations,
        _ if stage == start => Plan::Begin,
        // Never "no operations": they are unknown, and may run.
        Some(StoredState::Nothing) if matches!(stage, Stage::WaitingForOperations { .. }) => {
            Plan::Block {
                reason: format!(
                    "the record of its operations, and of what was done before them, is not in the store; bring it back, or \
                 delete the {}",
                    kind.noun
                ),
            }
        }
        _ => Plan::Work,
    }
}

/// Deleting a Backup deletes nothing that is committed: that is finished first. The files of a
/// restore are removed with it.
fn let_go(seen: JobState<'_>) -> Plan {
    let JobState { kind, stage, .. } = seen;
    let may_be_committed =
        kind.queued && !matches!(stage, Stage::New | Stage::Queued | Stage::ReadyToStart);
    match seen.stored {
        None if may_be_committed => Plan::Look,
        Some(StoredState::Ours(end)) if end.is_terminal() && stage.can_become(*end) => Plan::Adopt,
        Some(StoredState::Recorded) if !seen.lost => Plan::Finish,
        _ => Plan::LetGo,
    }
}

fn adopt(kind: Kind, stage: Stage, stored: Stage) -> Plan {
    if stored.is_terminal() && stage.can_become(stored) {
        return Plan::Adopt;
    }
    Plan::Block {
        reason: format!(
            "the stored metadata of this {} says an end that cannot follow its phase: another program has written it; it \
             was left as it is",
            kind.noun
        ),
    }
}

fn taken(kind: Kind, uid: &str) -> String {
    let noun = kind.noun;
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

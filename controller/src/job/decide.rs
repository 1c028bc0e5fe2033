//! What to do next about one Backup or Restore. Pure: what was read comes in, a plan comes out.

use backup_core::phase::Stage;

/// What the object store holds under the object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// No end: nothing of this name was ever finished there.
    Nothing,
    /// The end of this very object, which has this stage: it is done, whatever the cluster says.
    Ours(Stage),
    /// A record of this object: every byte of its end is known, and some may be missing under their final keys.
    Recorded,
    /// A record of this object: its items are done, and operations went on.
    Waiting,
    /// The end of another object of this name.
    Others { uid: String },
}

/// What is the same for all objects of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub noun: &'static str,
    /// Whether they wait for their turn before they are ready to start, and are claimed once the store was looked at. Others
    /// start as soon as they are claimed, which comes before everything else that is read.
    pub queued: bool,
    /// Why one fails that was cancelled in time.
    pub cancelled: &'static str,
    /// Why one fails that the ledger refuses before it has begun.
    pub refused: &'static str,
}

impl Kind {
    /// The stage in which work starts.
    pub(crate) fn start(self) -> Stage {
        if self.queued { Stage::ReadyToStart } else { Stage::New }
    }

    /// Whether an object in this stage may still end as Failed. Later its contents may be in the store.
    pub(crate) fn may_fail(self, stage: Stage) -> bool {
        stage == self.start() || stage == Stage::InProgress
    }
}

/// What is known about an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    pub kind: Kind,
    /// Of the phase, read freshly.
    pub stage: Stage,
    pub deleting: bool,
    /// Once it has begun, a cancellation makes its end come early, and is no step of its own.
    pub cancelled: bool,
    /// Why it cannot start, or go on.
    pub findings: &'a [String],
    /// `None` before the store was looked at.
    pub stored: Option<&'a Stored>,
    /// Whether this process has done everything, or holds the record, and has only the end to write.
    pub in_hand: bool,
    /// Whether what the record says was found to be gone from the store: uploaded, never visible, and removed.
    pub lost: bool,
}

#[cfg(test)]
impl<'a> Seen<'a> {
    /// An object without a request by a person, of which nothing but this is known.
    pub(crate) fn of(kind: Kind, stage: Stage, stored: Option<&'a Stored>) -> Self {
        let (deleting, cancelled, findings, in_hand, lost) = (false, false, &[][..], false, false);
        Self { kind, stage, deleting, cancelled, findings, stored, in_hand, lost }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing here: the queue decides, or the phase is of a newer version.
    Wait,
    Look,
    /// It cannot run as it is: to `FailedValidation`.
    Refuse {
        /// Everything that is wrong, each naming its field.
        validation_errors: Vec<String>,
    },
    /// It cannot run at all: to `Failed`.
    Fail {
        reason: String,
    },
    Begin,
    Work,
    /// Its items are done: poll its operations until they have ended.
    Operations,
    /// Write what is missing, and publish the end.
    Finish,
    /// It is done: publish what is stored.
    Adopt,
    /// It cannot go on and may not fail any more either: reported on the object, and tried again slowly.
    Block {
        reason: String,
    },
    /// Its deletion was asked for, and nothing of it is committed: abandon it, free the claim, let it go.
    LetGo,
    /// It has ended: free the claim if it is still held.
    Free,
}

pub(crate) fn next(seen: Seen<'_>) -> Plan {
    let Seen { kind, stage, .. } = seen;
    let start = kind.start();
    if stage.is_terminal() {
        return Plan::Free;
    }
    match stage {
        Stage::Unknown if !seen.deleting || kind.queued => return Plan::Wait,
        _ if seen.deleting => return let_go(seen),
        Stage::New | Stage::Queued | Stage::ReadyToStart if seen.cancelled => {
            return Plan::Fail { reason: kind.cancelled.to_owned() };
        }
        Stage::New | Stage::Queued if stage != start => return Plan::Wait,
        _ if stage == start && !seen.findings.is_empty() => {
            return Plan::Refuse { validation_errors: seen.findings.to_vec() };
        }
        _ if !kind.queued && !seen.findings.is_empty() => {
            return Plan::Fail { reason: seen.findings.join("; ") };
        }
        _ if stage == start && !kind.queued => return Plan::Begin,
        _ => {}
    }
    match seen.stored {
        None if !seen.in_hand => Plan::Look,
        // Whether another replica was faster is found out by writing.
        None | Some(Stored::Nothing | Stored::Recorded | Stored::Waiting) if seen.in_hand => Plan::Finish,
        Some(Stored::Others { uid }) if kind.may_fail(stage) => Plan::Fail { reason: taken(kind, uid) },
        Some(Stored::Others { uid }) => Plan::Block { reason: taken(kind, uid) },
        Some(Stored::Ours(end)) => adopt(kind, stage, *end),
        Some(Stored::Recorded) if !seen.lost => Plan::Finish,
        Some(Stored::Waiting) if !seen.lost && stage != start => Plan::Operations,
        _ if stage == start => Plan::Begin,
        // Never "no operations": what they were is not known, and they may run.
        Some(Stored::Nothing) if matches!(stage, Stage::WaitingForOperations { .. }) => Plan::Block {
            reason: format!(
                "the record of its operations, and of what was done before them, is not in the store; bring it back, or \
                 delete the {}",
                kind.noun
            ),
        },
        _ => Plan::Work,
    }
}

/// The deletion of a Backup deletes nothing that is committed: that is finished first. A restore has its files removed with it.
fn let_go(seen: Seen<'_>) -> Plan {
    let Seen { kind, stage, .. } = seen;
    let may_be_committed = kind.queued && !matches!(stage, Stage::New | Stage::Queued | Stage::ReadyToStart);
    match seen.stored {
        None if may_be_committed => Plan::Look,
        Some(Stored::Ours(end)) if end.is_terminal() && stage.can_become(*end) => Plan::Adopt,
        Some(Stored::Recorded) if !seen.lost => Plan::Finish,
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

/// Whether work that began in this stage is announced before its end is recorded: the object becomes Finalizing. Later the
/// record decides alone: another replica may have one with another outcome, and a phase cannot be taken back.
pub(crate) fn announces(stage: Stage) -> bool {
    !matches!(stage, Stage::Finalizing { .. })
}

#[cfg(test)]
mod tests;

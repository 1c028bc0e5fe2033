//! What to do about one Backup. Pure: everything that was read comes in, a plan comes out.

use backup_core::{
    api::{Backup, BackupPhase},
    validate::Finding,
};
use backup_store::FoundBackup as Found;

/// What the object store holds under the backup's name.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// No metadata: no backup of this name was ever finished there.
    Nothing,
    /// The metadata of this very object: the backup is done, whatever the cluster says.
    Ours(Box<Backup>),
    /// A record of this object: every byte of its end is decided, and some may be missing under their final keys.
    Recorded,
    /// A record of this object: its items are collected, and operations went on.
    Waiting,
    /// The metadata of another object of this name.
    Others {
        /// Uid of that object; empty if it has none.
        uid: String,
    },
}

impl Stored {
    /// Compares what was found with the uid of the object. Records are only ever found of that uid.
    pub fn of(found: &Found, uid: &str) -> Self {
        match found {
            Found::Nothing => Self::Nothing,
            Found::Committed(_) => Self::Recorded,
            Found::Awaiting(_) => Self::Waiting,
            Found::Stored(backup) if backup.metadata.uid.as_deref() == Some(uid) => {
                Self::Ours(backup.clone())
            }
            Found::Stored(backup) => Self::Others { uid: backup.metadata.uid.clone().unwrap_or_default() },
        }
    }
}

/// What is known about a Backup.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The phase, read freshly.
    pub phase: &'a BackupPhase,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether its cancellation was asked for. Once it has begun, that makes its end come early, and is no step of its own.
    pub cancelled: bool,
    /// What validation found; looked at only before the start.
    pub findings: &'a [Finding],
    /// What is stored; none if nobody has looked (before validation has passed).
    pub stored: Option<&'a Stored>,
    /// Whether this process has collected everything, or holds the record, and has only the end to write.
    pub in_hand: bool,
    /// Whether what the record says was found to be gone from the store: uploaded, never visible, and removed.
    pub lost: bool,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Nothing here: the queue decides, or the phase is not ours to move.
    Wait,
    /// Look into the object store and decide again.
    Look,
    /// It can't run as it is: to `FailedValidation`.
    Refuse {
        /// Everything that is wrong, each naming its field.
        validation_errors: Vec<String>,
    },
    /// It can't run at all: to `Failed`.
    Fail {
        /// Why, for people.
        reason: String,
    },
    /// To `InProgress`, then collect.
    Begin,
    /// Nobody works on it: collect from the start.
    Resume,
    /// Its items are collected: see its operations to their end.
    Operations,
    /// Write what is missing, and publish the end.
    Finish,
    /// It is done: publish what the stored metadata says.
    Adopt {
        /// The stored metadata.
        metadata: Box<Backup>,
    },
    /// It can't go on and may not fail any more either: told where people look, and tried again slowly.
    Block {
        /// Why, for people.
        reason: String,
    },
    /// Its deletion was asked for: leave off, free the claim, let it go.
    LetGo,
    /// It has ended: free the claim if it is still held.
    Free,
}

/// Decides the next step.
pub fn next(seen: Seen<'_>) -> Plan {
    use BackupPhase as P;
    match seen.phase {
        P::Completed | P::PartiallyFailed | P::Failed | P::FailedValidation | P::Deleting => {
            return Plan::Free;
        }
        P::Unknown(_) => return Plan::Wait,
        _ if seen.deleting => return Plan::LetGo,
        P::New | P::Queued | P::ReadyToStart if seen.cancelled => {
            return Plan::Fail { reason: "never started: it was cancelled".to_owned() };
        }
        P::New | P::Queued => return Plan::Wait,
        P::ReadyToStart if !seen.findings.is_empty() => {
            return Plan::Refuse {
                validation_errors: seen.findings.iter().map(ToString::to_string).collect(),
            };
        }
        P::ReadyToStart
        | P::InProgress
        | P::WaitingForPluginOperations
        | P::WaitingForPluginOperationsPartiallyFailed
        | P::Finalizing
        | P::FinalizingPartiallyFailed => {}
    }
    match (seen.stored, seen.phase) {
        (None, _) if !seen.in_hand => Plan::Look,
        // Whether another replica was faster is found out by writing.
        (None | Some(Stored::Nothing | Stored::Recorded | Stored::Waiting), _) if seen.in_hand => {
            Plan::Finish
        }
        (Some(Stored::Others { uid }), phase) if may_fail(phase) => Plan::Fail { reason: taken(uid) },
        (Some(Stored::Others { uid }), _) => Plan::Block { reason: taken(uid) },
        (Some(Stored::Ours(metadata)), phase) => adopt(phase, metadata),
        (Some(Stored::Recorded), _) if !seen.lost => Plan::Finish,
        (Some(Stored::Waiting), phase) if !seen.lost && *phase != P::ReadyToStart => Plan::Operations,
        (_, P::ReadyToStart) => Plan::Begin,
        // Never "no operations": what they were is not known, and they may run.
        (
            Some(Stored::Nothing),
            P::WaitingForPluginOperations | P::WaitingForPluginOperationsPartiallyFailed,
        ) => Plan::Block {
            reason: "the record of what was collected, and of the operations that were started, is not in the store; \
                     bring it back, or delete the backup"
                .to_owned(),
        },
        _ => Plan::Resume,
    }
}

/// Whether a backup in this phase may still end as `Failed`. Later its contents may be in the store.
pub fn may_fail(phase: &BackupPhase) -> bool {
    matches!(phase, BackupPhase::ReadyToStart | BackupPhase::InProgress)
}

fn adopt(phase: &BackupPhase, metadata: &Backup) -> Plan {
    let stored = metadata.phase();
    if stored.is_terminal() && phase.can_become(&stored) {
        return Plan::Adopt { metadata: Box::new(metadata.clone()) };
    }
    Plan::Block {
        reason: format!(
            "the stored metadata of this backup says {stored}, which can't follow {phase}: another program has written \
             it; it was left as it is"
        ),
    }
}

fn taken(uid: &str) -> String {
    format!(
        "backup already exists in object storage: another backup of this name (uid {}) is stored there and was left as \
         it is; delete that one, or use another name",
        if uid.is_empty() { "unknown" } else { uid }
    )
}

/// Whether a collection that began in this phase is announced before its end is decided: the Backup becomes Finalizing.
/// Later the record decides alone: another replica may have one with another outcome, and a phase can't be taken back.
pub fn announces(phase: &BackupPhase) -> bool {
    !matches!(phase, BackupPhase::Finalizing | BackupPhase::FinalizingPartiallyFailed)
}

/// The phase while everything is stored, given how many errors there are.
pub fn finalizing(errors: i64) -> BackupPhase {
    if errors > 0 { BackupPhase::FinalizingPartiallyFailed } else { BackupPhase::Finalizing }
}

/// The phase once everything is stored.
pub fn ended(errors: i64) -> BackupPhase {
    if errors > 0 { BackupPhase::PartiallyFailed } else { BackupPhase::Completed }
}

/// Whether a backup found in this phase had already published that something is missing. It must not end as `Completed`
/// because collecting again met no error: the phase only moves forward.
pub fn had_failed(phase: &BackupPhase) -> bool {
    matches!(
        phase,
        BackupPhase::FinalizingPartiallyFailed | BackupPhase::WaitingForPluginOperationsPartiallyFailed
    )
}

#[cfg(test)]
mod tests;

//! Refusals. Each message stands alone: kubectl prints nothing else.
//!
//! What each status does to clients was measured. 403 Forbidden is printed as it is and never retried; 409 makes server-side
//! apply advise `--force-conflicts`, AlreadyExists makes the API server try eight times, 422 hides the message. 503 with
//! `retryAfterSeconds` makes clients try again by themselves.

use std::time::Duration;

use backup_core::validate::Finding;
use backup_lock::{Claim, Footprint, ObjectKey, ObjectKind, observe::Observed};
use kube::core::{
    GroupVersionKind, Status,
    response::{StatusCause, StatusDetails},
};

/// Seconds after which trying again may make sense, as a hint to programs.
const TRY_AGAIN_SECONDS: u32 = 30;
/// Causes listed at most.
const MAX_CAUSES: usize = 10;

/// A claim in the way, and its object as it was just read; none: not stored.
#[derive(Clone, Debug)]
pub struct Blocker {
    /// The claim.
    pub claim: Claim,
    /// The object of that name.
    pub object: Option<Observed>,
}

impl Blocker {
    /// Who it is, what it does and since when.
    fn describe(&self, grace: Duration) -> String {
        let key = &self.claim.key;
        match &self.object {
            Some(object) if object.new => {
                format!("{key} is about to start (phase New, created {})", object.created)
            }
            Some(object) => {
                let deleting = if object.deleting { ", being deleted" } else { "" };
                format!("{key} is running (phase {}, created {}{deleting})", object.phase, object.created)
            }
            None => {
                format!(
                    "{key} was admitted at {} and is not stored yet (if it never is, its place is free after {} s)",
                    self.claim.since(),
                    grace.as_secs()
                )
            }
        }
    }

    fn reason(&self) -> &'static str {
        match (self.claim.key.kind, self.object.is_some()) {
            (ObjectKind::Backup, true) => "BackupInProgress",
            (ObjectKind::Restore, true) => "RestoreInProgress",
            (ObjectKind::Backup, false) => "BackupReserved",
            (ObjectKind::Restore, false) => "RestoreReserved",
        }
    }

    fn cause(&self, grace: Duration) -> StatusCause {
        let uids: Vec<&str> = self.claim.entries.iter().map(|entry| entry.uid.as_str()).collect();
        let epoch = self.claim.entries.iter().map(|entry| entry.epoch).max().unwrap_or_default();
        StatusCause {
            reason: self.reason().to_owned(),
            message: format!(
                "{}; uid {}, {} ({}), epoch {epoch}",
                self.describe(grace),
                uids.join(", "),
                self.claim.state(),
                touches(&self.claim),
            ),
            field: "spec.includedNamespaces".to_owned(),
        }
    }
}

/// Someone else holds what this asks for: who, in which phase, since when, and what to type next.
pub fn conflict(key: &ObjectKey, footprint: &Footprint, blockers: &[Blocker], grace: Duration) -> Status {
    let Some(first) = blockers.first() else { return trouble("the claim in the way could not be named") };
    let holder = &first.claim.key;
    let more = match blockers.len() - 1 {
        0 => String::new(),
        n => format!(", and {n} more in its way"),
    };
    let message = format!(
        "{key} ({footprint}) can't be created now: {}{more}; it holds {}. Nothing was stored. \
         See `{}`, and create it again when that has ended",
        first.describe(grace),
        touches(&first.claim),
        describe_command(holder),
    );
    let causes = blockers.iter().take(MAX_CAUSES).map(|blocker| blocker.cause(grace)).collect();
    forbidden(key, &message, causes, TRY_AGAIN_SECONDS)
}

/// The ledger can't take more.
pub fn full(key: &ObjectKey, why: &str) -> Status {
    forbidden(key, &format!("{key} can't be created now: {why}"), Vec::new(), TRY_AGAIN_SECONDS)
}

/// The object is not valid: every field at once.
pub fn invalid(key: &ObjectKey, findings: &[Finding]) -> Status {
    let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let cause = |finding: &Finding| StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message: finding.message.clone(),
        field: finding.field.clone(),
    };
    let causes = findings.iter().map(cause).collect();
    forbidden(key, &format!("{key} is not valid: {}", all.join("; ")), causes, 0)
}

/// What has ended can't begin again.
pub fn revival(key: &ObjectKey, old: &str, new: &str) -> Status {
    let kind = key.kind;
    let message = format!(
        "{key} has ended ({old}) and can't become {new} again; create a new {kind} under another name instead"
    );
    let cause = StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!("was {old}, may not become {new}"),
        field: "status.phase".to_owned(),
    };
    forbidden(key, &message, vec![cause], 0)
}

/// A kind that this webhook should never be asked about.
pub fn not_guarded(kind: &GroupVersionKind) -> Status {
    malformed(&format!(
        "backup-webhook knows Backup and Restore of velero.io, not {} of {:?}; check the rules of the \
         ValidatingWebhookConfiguration",
        kind.kind, kind.group
    ))
}

/// A review that makes no sense.
pub fn malformed(message: &str) -> Status {
    Status::failure(message, "BadRequest").with_code(400)
}

/// Our own trouble: clients try again by themselves.
pub fn trouble(message: &str) -> Status {
    let message =
        format!("backup-webhook could not decide in time, so nothing was admitted: {message}; try again");
    Status::failure(&message, "ServiceUnavailable").with_code(503).with_details(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 1,
    })
}

fn forbidden(key: &ObjectKey, message: &str, causes: Vec<StatusCause>, retry_after_seconds: u32) -> Status {
    Status::failure(message, "Forbidden").with_code(403).with_details(StatusDetails {
        name: key.name.clone(),
        group: "velero.io".to_owned(),
        kind: key.kind.plural().to_owned(),
        uid: String::new(),
        causes,
        retry_after_seconds,
    })
}

fn touches(claim: &Claim) -> String {
    let mut all: Vec<String> = claim.entries.iter().map(|entry| entry.footprint.to_string()).collect();
    all.dedup();
    all.join(" and ")
}

fn describe_command(key: &ObjectKey) -> String {
    let noun = match key.kind {
        ObjectKind::Backup => "",
        ObjectKind::Restore => "restore ",
    };
    format!("kubectl backup {noun}describe {} --namespace {}", key.name, key.namespace)
}

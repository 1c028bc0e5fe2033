//! Refusals. Each message must be complete by itself: kubectl prints nothing else.
//!
//! The effect of each status on clients was measured. 403 Forbidden is printed verbatim and never
//! retried; 409 makes server-side apply advise `--force-conflicts`, AlreadyExists makes the API
//! server try eight times, 422 hides the message. 503 with `retryAfterSeconds` makes clients retry
//! by themselves.

use backup_core::{
    labels::{BREAK_GLASS_ANNOTATION, INSTALLATIONS_ANNOTATION, ON_CONFLICT_ANNOTATION},
    profile::{Profile, ScopeRule, published::UnusableProfile},
    text::shortened,
    validate::Finding,
};
use backup_lock::{
    Claim, Footprint, ObjectKey, ObjectKind, Registration, State,
    claim::Word,
    observe::{ObservedObject, resource},
};
use jiff::{SignedDuration, Timestamp};
use kube::core::{
    GroupVersionKind, Status,
    response::{StatusCause, StatusDetails},
};

use crate::restore_rights::MissingRights;

/// Seconds after which a retry may make sense, as a hint to programs.
const TRY_AGAIN_SECONDS: u32 = 30;
/// The same for clients that retry by themselves; they try about ten times.
const WAIT_SECONDS: u32 = 10;
const MAX_CAUSES: usize = 10;
/// Maximum length of a message about unusable profiles (characters).
const MAX_MESSAGE_CHARS: usize = 2000;

/// A claim in the way, its object as just read, and when the claim ends by time alone.
#[derive(Clone, Debug)]
pub(crate) struct Blocker {
    /// The claim, with the entries that are in the way.
    pub claim: Claim,
    /// The object of that name; `None` if it is not stored.
    pub object: Option<ObservedObject>,
    /// Latest time of its end, where time alone ends it.
    pub free_at: Timestamp,
}

impl Blocker {
    /// Describes the claim: its object, what that does and since when.
    pub(crate) fn describe(&self) -> String {
        let key = &self.claim.key;
        let since = to_the_second(self.claim.since());
        let free_at = time_of_day(self.free_at);
        let note = self
            .claim
            .entries
            .iter()
            .map(|entry| entry.note.as_str())
            .find(|note| !note.is_empty());
        match (self.claim.state(), &self.object) {
            (State::Intent, _) => {
                let word = self
                    .claim
                    .entries
                    .first()
                    .map(|entry| entry.word)
                    .unwrap_or_default();
                let (came, end) = match word {
                    Word::Insisting => (", and comes again", ""),
                    Word::Refused => (
                        "",
                        ", and no longer than 30 s after what was in its way has ended",
                    ),
                    Word::Expected | Word::Remembered => ("", ""),
                };
                format!(
                    "{key} was refused at {since}{came}: new backups of what it needs are kept out until {free_at} at the \
                     latest{end}"
                )
            }
            (State::Settling, Some(object)) if object.held => {
                format!(
                    "{key} was ended by hand, and its worker may still write; its place is free once that has stopped, by {free_at}"
                )
            }
            (State::Settling, _) => {
                format!(
                    "{key} has ended, and what it worked on is given time to settle, until {free_at} at the latest"
                )
            }
            (State::Collected, None) => {
                format!(
                    "{key} was requested at {since} and was never stored; restores are kept out until {free_at} at the \
                     latest, in case it still comes"
                )
            }
            (_, _) if key.kind == ObjectKind::Hold => {
                format!(
                    "{key} is in force since {since} ({})",
                    note.unwrap_or("no reason was given")
                )
            }
            (State::Waiting, Some(object)) => {
                format!(
                    "{key} waits for its turn (phase {}, created {})",
                    object.phase, object.created
                )
            }
            (_, Some(object)) if key.kind == ObjectKind::Deletion => {
                format!("{key} is under way (phase {})", object.phase)
            }
            (_, Some(object)) if object.new => {
                format!(
                    "{key} is about to start (phase New, created {})",
                    object.created
                )
            }
            (_, Some(object)) if matches!(object.phase.as_str(), "Queued" | "ReadyToStart") => {
                format!(
                    "{key} has not begun (phase {}, created {})",
                    object.phase, object.created
                )
            }
            (_, Some(object)) => {
                let deleting = if object.deleting {
                    ", being deleted"
                } else {
                    ""
                };
                format!(
                    "{key} is running (phase {}, created {}{deleting})",
                    object.phase, object.created
                )
            }
            (_, None) => format!(
                "{key} was requested at {since} and was not stored so far; unless it still comes, its place is free by {free_at}"
            ),
        }
    }

    fn reason(&self) -> &'static str {
        match (self.claim.key.kind, self.claim.state()) {
            (ObjectKind::Hold, _) => "Held",
            (ObjectKind::Deletion | ObjectKind::DeleteBackupRequest, _) => "DeletionInProgress",
            (_, State::Intent) => "RestoreExpected",
            (_, State::Settling) => "Settling",
            (ObjectKind::Restore, State::Waiting) => "RestoreWaiting",
            (ObjectKind::Backup, _) if self.object.is_some() => "BackupInProgress",
            (ObjectKind::Restore, _) if self.object.is_some() => "RestoreInProgress",
            (ObjectKind::Backup, _) => "BackupReserved",
            (ObjectKind::Restore, _) => "RestoreReserved",
        }
    }

    fn cause(&self, field: &str) -> StatusCause {
        let uids: Vec<&str> = self
            .claim
            .entries
            .iter()
            .map(|entry| entry.uid.as_str())
            .collect();
        let epoch = self
            .claim
            .entries
            .iter()
            .map(|entry| entry.epoch)
            .max()
            .unwrap_or_default();
        StatusCause {
            reason: self.reason().to_owned(),
            message: format!(
                "{}; uid {}, {} ({}), epoch {epoch}",
                self.describe(),
                uids.join(", "),
                self.claim.state(),
                touches(&self.claim),
            ),
            field: field.to_owned(),
        }
    }
}

/// A request that is refused because of a conflict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConflictingRequest<'a> {
    pub group: &'a str,
    pub key: &'a ObjectKey,
    pub footprint: &'a Footprint,
    /// Whether the scope is one database cluster, so that footprints are meaningless.
    pub whole_scope: bool,
    /// Whether the request could ask to be queued, ahead of backups that have not started.
    pub may_queue: bool,
}

/// Another object holds a conflicting claim: its name, phase and age, and the command to type next.
/// With `wait`, clients retry by themselves.
pub(crate) fn conflict(asked: ConflictingRequest<'_>, blockers: &[Blocker], wait: bool) -> Status {
    let Some(first) = blockers.first() else {
        return trouble("the claim in the way could not be named", 1);
    };
    let more = match blockers.len() - 1 {
        0 => String::new(),
        n => format!(", and {n} more in its way"),
    };
    let ConflictingRequest {
        group,
        key,
        footprint,
        whole_scope,
        may_queue,
    } = asked;
    let (act, nothing) = match key.kind {
        ObjectKind::Deletion => ("done", "Nothing was deleted"),
        _ => ("created", "Nothing was stored"),
    };
    let (wants, holds) = if whole_scope || key.kind.is_deletion() {
        (String::new(), String::new())
    } else {
        (
            format!(" ({footprint})"),
            format!("; it holds {}", touches(&first.claim)),
        )
    };
    let next = if first.claim.state() == State::Intent {
        // If the refused restore was given up, its intent can be dropped at once.
        format!(
            "Try again then, or drop that with `{}`",
            release_command(&first.claim.key)
        )
    } else if first.object.is_none() && first.claim.key.kind != ObjectKind::Hold {
        // There is no object to describe.
        format!(
            "Try again then, or, if you know that it does not come, release its place with `{}`",
            release_command(&first.claim.key)
        )
    } else {
        format!(
            "See `{}`, and try again when that has ended",
            next_command(group, &first.claim.key)
        )
    };
    let queue = if may_queue {
        format!(
            "; or create the restore with the annotation {ON_CONFLICT_ANNOTATION}: queue: it starts when its turn comes, before \
             backups that have not begun"
        )
    } else {
        String::new()
    };
    let message = format!(
        "{key}{wants} can't be {act} now: {}{more}{holds}. {nothing}. {next}{queue}",
        first.describe()
    );
    let field = match (whole_scope, key.kind) {
        (true, _) => "spec",
        (_, ObjectKind::DeleteBackupRequest) => "spec.backupName",
        (_, ObjectKind::Deletion) => "metadata.name",
        _ => "spec.includedNamespaces",
    };
    let causes = blockers
        .iter()
        .take(MAX_CAUSES)
        .map(|blocker| blocker.cause(field))
        .collect();
    if wait {
        let mut status = forbidden(group, key, &message, causes, WAIT_SECONDS);
        status.code = 429;
        "TooManyRequests".clone_into(&mut status.reason);
        return status;
    }
    forbidden(group, key, &message, causes, TRY_AGAIN_SECONDS)
}

/// A warning for an object that is admitted despite a conflict.
pub(crate) fn warning(key: &ObjectKey, blockers: &[Blocker], what: &str) -> String {
    let first = blockers.first().map(Blocker::describe).unwrap_or_default();
    let more = if blockers.len() > 1 {
        format!(", and {} more", blockers.len() - 1)
    } else {
        String::new()
    };
    format!("{key} {what}: {first}{more}")
}

/// The warning about an object in a namespace without an installation.
pub(crate) fn elsewhere(kind: &str, namespace: &str) -> String {
    format!(
        "no installation works in namespace {namespace}, so nothing runs this {kind}, and it has no place in the lock: \
         create it in the namespace of an installation. To install one here, add {namespace} to the annotation \
         {INSTALLATIONS_ANNOTATION} of ValidatingWebhookConfiguration {} first",
        Registration::NAME
    )
}

pub(crate) fn full(group: &str, key: &ObjectKey, why: &str) -> Status {
    let act = if key.kind == ObjectKind::Deletion {
        "done"
    } else {
        "created"
    };
    forbidden(
        group,
        key,
        &format!("{key} can't be {act} now: {why}"),
        Vec::new(),
        TRY_AGAIN_SECONDS,
    )
}

/// Another stored object has the name: the API server's own answer, so that clients treat it alike.
pub(crate) fn exists(profile: &Profile, key: &ObjectKey) -> Status {
    let plural = resource(profile, key.kind)
        .map(|resource| resource.plural)
        .unwrap_or_default();
    let group = &profile.group;
    let name = &key.name;
    let message = format!("{plural}.{group} {name:?} already exists");
    Status::failure(&message, "AlreadyExists")
        .with_code(409)
        .with_details(StatusDetails {
            name: name.clone(),
            group: group.clone(),
            kind: plural,
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        })
}

pub(crate) fn invalid(group: &str, key: &ObjectKey, findings: &[Finding]) -> Status {
    let (message, causes) = not_valid(&key.to_string(), findings);
    forbidden(group, key, &message, causes, 0)
}

pub(crate) fn invalid_schedule(
    group: &str,
    namespace: &str,
    name: &str,
    findings: &[Finding],
) -> Status {
    let (message, causes) = not_valid(&format!("Schedule {namespace}/{name}"), findings);
    forbidden_named(group, "schedules", name, &message, causes, 0)
}

/// The message and the causes of a refusal for these findings.
fn not_valid(what: &str, findings: &[Finding]) -> (String, Vec<StatusCause>) {
    let all: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let message = format!("{what} is not valid: {}", all.join("; "));
    let causes = findings
        .iter()
        .map(|finding| invalid_field(&finding.field, &finding.message))
        .collect();
    (message, causes)
}

/// The object does not name its scope.
pub(crate) fn no_scope(profile: &Profile, key: &ObjectKey) -> Status {
    let (field, kind) = match &profile.scope {
        ScopeRule::Field { backup, restore } => match key.kind {
            ObjectKind::Restore => (restore.as_str(), profile.restore.kind.as_str()),
            _ => (backup.as_str(), profile.backup.kind.as_str()),
        },
        ScopeRule::Cluster => ("spec", "object"),
    };
    let message = format!(
        "{kind} {}/{} does not name its database cluster in {field}, so nothing can be kept apart for it: set {field}",
        key.namespace, key.name
    );
    forbidden(
        &profile.group,
        key,
        &message,
        vec![invalid_field(field, "is required")],
        0,
    )
}

/// An annotation about conflicts has an unknown value.
pub(crate) fn unknown_wish(group: &str, key: &ObjectKey, found: &str, can_queue: bool) -> Status {
    let known = if can_queue {
        "deny, queue or wait"
    } else {
        "deny or wait"
    };
    let message = format!(
        "the annotation {ON_CONFLICT_ANNOTATION} of {key} is {found:?}; it can be {known} here"
    );
    let field = format!("metadata.annotations[{ON_CONFLICT_ANNOTATION}]");
    forbidden(
        group,
        key,
        &message,
        vec![invalid_field(&field, &format!("can be {known}"))],
        0,
    )
}

/// The user asks for admission despite a conflict, but lacks the permission.
pub(crate) fn may_not_break(group: &str, key: &ObjectKey, user: &str) -> Status {
    let message = format!(
        "{key} carries the annotation {BREAK_GLASS_ANNOTATION}, which {user:?} may not use in namespace {}: that needs \
         the verb break-glass on locks.velero.io (ClusterRole backup-break-glass). Take the annotation off, or ask \
         someone who may",
        key.namespace
    );
    let field = format!("metadata.annotations[{BREAK_GLASS_ANNOTATION}]");
    forbidden(
        group,
        key,
        &message,
        vec![invalid_field(&field, "is not allowed for this user")],
        0,
    )
}

/// The controller would do what the author may not do directly; `act` is what the author wants,
/// such as `create Backup velero/b`.
pub(crate) fn lacks_rights(
    group: &str,
    plural: &str,
    name: &str,
    act: &str,
    user: &str,
    lacking: &MissingRights,
) -> Status {
    let MissingRights {
        field,
        rights,
        instead,
    } = lacking;
    let message = format!(
        "{user:?} may not {act}: its items are read and written with the controller's rights, and {user:?} may not {rights}. \
         Either {instead}, or ask someone who may"
    );
    let cause = invalid_field(field, &format!("needs the right to {rights}"));
    forbidden_named(group, plural, name, &message, vec![cause], 0)
}

/// A namespace owner asks to read what the owner could not create; `act` is what the owner wants,
/// such as `read files of Backup velero/b`.
pub(crate) fn may_not_read(
    group: &str,
    name: &str,
    act: &str,
    user: &str,
    lacking: &MissingRights,
) -> Status {
    let rights = &lacking.rights;
    let message = format!(
        "{user:?} may not {act}: that takes the right to {rights}, which {user:?} does not have. Ask someone who may"
    );
    not_for_owners(group, "downloadrequests", name, "spec.target", &message)
}

/// A namespace owner asks for something that owners do not get; `field` is the cause.
pub(crate) fn not_for_owners(
    group: &str,
    plural: &str,
    name: &str,
    field: &str,
    message: &str,
) -> Status {
    let causes = vec![invalid_field(field, message)];
    forbidden_named(group, plural, name, message, causes, 0)
}

/// A Restore may remove what its author may not delete; `rights` are the missing ones.
pub(crate) fn lacks_deletion(group: &str, key: &ObjectKey, user: &str, rights: &str) -> Status {
    let message = format!(
        "{user:?} may not have {key} remove objects (spec.prune), which the controller does with its own rights: {user:?} may not \
         {rights}. Either unset spec.prune, include only types that {user:?} may delete, or ask someone who may"
    );
    let cause = invalid_field("spec.prune", &format!("needs the right to {rights}"));
    forbidden(group, key, &message, vec![cause], 0)
}

/// The target of an object cannot be changed after its creation.
pub(crate) fn moved(group: &str, key: &ObjectKey) -> Status {
    let message = format!(
        "what {key} is about can't be changed; create a new {} under another name instead",
        key.kind
    );
    forbidden(
        group,
        key,
        &message,
        vec![invalid_field("spec", "may not change to another target")],
        0,
    )
}

/// A running object would come to touch more.
pub(crate) fn grows(group: &str, key: &ObjectKey, old: &Footprint, new: &Footprint) -> Status {
    let message = format!(
        "{key} was admitted for {old} and can't be changed to touch {new}: others may run there. Create a new {} for \
         that instead",
        key.kind
    );
    forbidden(
        group,
        key,
        &message,
        vec![invalid_field("spec", &format!("may not grow beyond {old}"))],
        0,
    )
}

fn invalid_field(field: &str, message: &str) -> StatusCause {
    StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message: message.to_owned(),
        field: field.to_owned(),
    }
}

pub(crate) fn revival(group: &str, key: &ObjectKey, old: &str, new: &str) -> Status {
    let kind = key.kind;
    let message = format!(
        "{key} has ended ({old}) and can't become {new} again; create a new {kind} under another name instead"
    );
    let cause = invalid_field("status.phase", &format!("was {old}, may not become {new}"));
    forbidden(group, key, &message, vec![cause], 0)
}

/// A kind that this webhook should never get requests for, or whose profile is unusable.
pub(crate) fn not_guarded(kind: &GroupVersionKind, unusable: &[UnusableProfile]) -> Status {
    if !unusable.is_empty() {
        let why: Vec<&str> = unusable
            .iter()
            .map(|profile| profile.why.as_str())
            .collect();
        let message = format!(
            "backup-webhook cannot judge {} of {:?}, because a profile cannot be used: {}. Correct the file until `kubectl backup \
             profiles check` takes it, and restart backup-webhook",
            kind.kind,
            kind.group,
            why.join("; ")
        );
        // Another replica may have read a usable file.
        return Status::failure(
            &shortened(&message, MAX_MESSAGE_CHARS),
            "ServiceUnavailable",
        )
        .with_code(503);
    }
    malformed(&format!(
        "backup-webhook does not guard {} of {:?}; check the rules of the ValidatingWebhookConfiguration and --guard",
        kind.kind, kind.group
    ))
}

pub(crate) fn malformed(message: &str) -> Status {
    Status::failure(message, "BadRequest").with_code(400)
}

/// The message if a retry may bring a decision.
pub(crate) fn not_in_time(why: &str) -> String {
    format!("backup-webhook could not decide in time, so nothing was admitted: {why}; try again")
}

/// An error of our own: clients retry by themselves, after this number of seconds.
pub(crate) fn trouble(message: &str, seconds: u32) -> Status {
    Status::failure(message, "ServiceUnavailable")
        .with_code(503)
        .with_details(StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: seconds,
        })
}

/// The reason of a refusal, one of the fixed words of this file: from the first cause, or from the
/// status if it has no cause. There is one word for each kind of conflict, and for each invalid
/// field.
pub(crate) fn reason(status: &Status) -> &str {
    let cause = status
        .details
        .as_ref()
        .and_then(|details| details.causes.first());
    match cause {
        Some(cause) => &cause.reason,
        // A full ledger is the only refusal by 403 without a cause.
        None if status.code == 403 => "LedgerFull",
        None => &status.reason,
    }
}

fn forbidden(
    group: &str,
    key: &ObjectKey,
    message: &str,
    causes: Vec<StatusCause>,
    retry_after_seconds: u32,
) -> Status {
    forbidden_named(
        group,
        plural(key.kind),
        &key.name,
        message,
        causes,
        retry_after_seconds,
    )
}

fn forbidden_named(
    group: &str,
    plural: &str,
    name: &str,
    message: &str,
    causes: Vec<StatusCause>,
    retry_after_seconds: u32,
) -> Status {
    Status::failure(message, "Forbidden")
        .with_code(403)
        .with_details(StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: plural.to_owned(),
            uid: String::new(),
            causes,
            retry_after_seconds,
        })
}

/// A time in the near future, rounded up to the second: `09:00:12Z`.
fn time_of_day(at: Timestamp) -> String {
    let up = SignedDuration::from_nanos(999_999_999);
    at.checked_add(up)
        .unwrap_or(at)
        .strftime("%H:%M:%SZ")
        .to_string()
}

/// A time of a claim, for messages: `2026-11-21T09:00:00Z`.
fn to_the_second(time: &str) -> String {
    time.split_once('.')
        .map_or_else(|| time.to_owned(), |(seconds, _)| format!("{seconds}Z"))
}

fn touches(claim: &Claim) -> String {
    let mut all: Vec<String> = claim
        .entries
        .iter()
        .map(|entry| entry.footprint.to_string())
        .collect();
    all.dedup();
    all.join(" and ")
}

fn plural(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Backup | ObjectKind::Deletion => "backups",
        ObjectKind::Restore => "restores",
        ObjectKind::DeleteBackupRequest => "deletebackuprequests",
        ObjectKind::Hold => "locks",
    }
}

/// The command that releases a claim by force.
fn release_command(key: &ObjectKey) -> String {
    let ObjectKey {
        kind,
        namespace,
        name,
    } = key;
    let kind = kind.as_str().to_lowercase();
    format!("kubectl backup locks release {kind}/{namespace}/{name} --reason=TEXT")
}

/// The command that shows more about the blocking object.
fn next_command(group: &str, key: &ObjectKey) -> String {
    let ObjectKey {
        namespace, name, ..
    } = key;
    match key.kind {
        ObjectKind::Backup | ObjectKind::Restore if group != "velero.io" => {
            "kubectl backup locks".to_owned()
        }
        ObjectKind::Backup => format!("kubectl backup describe {name} --namespace {namespace}"),
        ObjectKind::Restore => {
            format!("kubectl backup restore describe {name} --namespace {namespace}")
        }
        ObjectKind::Deletion | ObjectKind::DeleteBackupRequest | ObjectKind::Hold => {
            format!("kubectl backup locks --namespace {namespace}")
        }
    }
}

#[cfg(test)]
mod tests;

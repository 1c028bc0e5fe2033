//! Decides on a request from the request alone (pure); whether it gets a claim is decided by the
//! ledger.

pub(crate) mod denial;
#[cfg(test)]
mod tests;

use backup_core::{
    labels::{BREAK_GLASS_ANNOTATION, ON_CONFLICT_ANNOTATION, SCHEDULE_NAME},
    profile::{OnConflict, Profile},
    validate::{self, Finding},
};
use backup_lock::{ObjectKey, ObjectKind, observe::ObservedObject};
use kube::{
    ResourceExt as _,
    core::{
        DynamicObject, Status,
        admission::{AdmissionRequest, Operation},
    },
};
use serde_json::Value;

#[derive(Debug)]
pub(crate) enum Decision {
    /// Passes without a claim.
    Pass,
    /// Refused, for any state of the ledger.
    Refuse(Box<Status>),
    Claim(Box<WantedClaim>),
    /// Passes if it does not touch more than before.
    Change(Box<Change>),
}

#[derive(Clone, Debug)]
pub(crate) struct WantedClaim {
    pub key: ObjectKey,
    /// The final uid, also in the review of a creation.
    pub uid: String,
    pub scope: String,
    pub spec: Value,
    /// Creation time, as RFC 3339.
    pub since: String,
    pub dry_run: bool,
    pub on_conflict: OnConflict,
    /// The author's reason to be admitted despite any conflict.
    pub break_glass: Option<String>,
    /// The resourceVersion of the ended object that is to be revived; empty if there is none.
    pub revives: String,
    /// The schedule in its label, unverified.
    pub schedule: Option<String>,
}

/// A change of an object's spec before or while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub key: ObjectKey,
    pub old: Value,
    pub new: Value,
}

/// Decides on a request about an object of this kind.
///
/// Updates are checked for two things only: ended objects must stay ended, and running objects must
/// not come to touch more. All other updates pass, or objects could become undeletable.
pub(crate) fn decide(
    profile: &Profile,
    kind: ObjectKind,
    request: &AdmissionRequest<DynamicObject>,
) -> Decision {
    match request.operation {
        Operation::Create => create(profile, kind, request),
        Operation::Update => update(profile, kind, request),
        Operation::Delete => delete(profile, kind, request),
        Operation::Connect => Decision::Pass,
    }
}

fn create(
    profile: &Profile,
    kind: ObjectKind,
    request: &AdmissionRequest<DynamicObject>,
) -> Decision {
    let Some(object) = &request.object else {
        return refuse(denial::malformed("the review of a creation has no object"));
    };
    let seen = seen(profile, kind, request, object);
    if seen.uid.is_empty() || seen.key.name.is_empty() {
        return refuse(denial::malformed(
            "the review of a creation has no name or no uid; was this registered as a mutating webhook?",
        ));
    }
    if seen.over && !seen.rests {
        return Decision::Pass;
    }
    let findings = findings(profile, kind, object);
    if !findings.is_empty() {
        return refuse(denial::invalid(&profile.group, &seen.key, &findings));
    }
    claim(profile, seen, &wishes(object, None), request.dry_run)
}

fn update(
    profile: &Profile,
    kind: ObjectKind,
    request: &AdmissionRequest<DynamicObject>,
) -> Decision {
    let (Some(object), Some(before)) = (&request.object, &request.old_object) else {
        return refuse(denial::malformed(
            "the review of an update lacks the object or the old one",
        ));
    };
    let new = seen(profile, kind, request, object);
    let old = seen(profile, kind, request, before);
    // A backup or restore that was released early claims again by itself before it resumes.
    if old.over && !new.over && !old.rests {
        let revived = kind
            .role()
            .is_some_and(|role| profile.may_revive(role, &before.data, &object.data));
        if !revived {
            return refuse(denial::revival(
                &profile.group,
                &new.key,
                &old.phase,
                &new.phase,
            ));
        }
        if old.version.is_empty() {
            return refuse(denial::malformed(
                "the old object in the review of an update has no resourceVersion",
            ));
        }
        let mut decision = claim(profile, new, &wishes(object, Some(before)), request.dry_run);
        if let Decision::Claim(claiming) = &mut decision {
            claiming.revives = old.version;
        }
        return decision;
    }
    if old.over || new.over || old.spec == new.spec {
        return Decision::Pass;
    }
    if new.scope != old.scope || kind == ObjectKind::DeleteBackupRequest {
        return refuse(denial::moved(&profile.group, &new.key));
    }
    let findings = undecodable(profile, kind, object);
    if !findings.is_empty() && undecodable(profile, kind, before).is_empty() {
        return refuse(denial::invalid(&profile.group, &new.key, &findings));
    }
    Decision::Change(Box::new(Change {
        key: new.key,
        old: old.spec,
        new: new.spec,
    }))
}

/// The deletion of a backup that could be restored from needs a claim, or a restore could start
/// meanwhile. All other deletions pass: they end work, and claims follow from what is stored. A
/// DELETE carries no annotations, and the backup's annotations are from its creator, not from the
/// deleter: to delete beside a restore, users break the glass on a DeleteBackupRequest.
fn delete(
    profile: &Profile,
    kind: ObjectKind,
    request: &AdmissionRequest<DynamicObject>,
) -> Decision {
    let Some(object) = request
        .old_object
        .as_ref()
        .filter(|_| profile.is_velero() && kind == ObjectKind::Backup)
    else {
        return Decision::Pass;
    };
    let mut old = seen(profile, kind, request, object);
    // deletecollection has no name in the request, so the object's own name is used.
    old.key.kind = ObjectKind::Deletion;
    let restorable = matches!(old.phase.as_str(), "Completed" | "PartiallyFailed");
    if !restorable || old.deleting || old.key.name.is_empty() || old.uid.is_empty() {
        return Decision::Pass;
    }
    claim(profile, old, &Wishes::default(), request.dry_run)
}

/// What the request asks for in annotations and labels.
#[derive(Default)]
struct Wishes<'a> {
    on_conflict: Option<&'a str>,
    break_glass: Option<&'a str>,
    schedule: Option<&'a String>,
}

/// The wishes of a request that writes this object over another one. Unchanged annotations are not
/// wishes of this request.
fn wishes<'a>(object: &'a DynamicObject, before: Option<&DynamicObject>) -> Wishes<'a> {
    Wishes {
        on_conflict: new_annotation(object, before, ON_CONFLICT_ANNOTATION),
        break_glass: new_annotation(object, before, BREAK_GLASS_ANNOTATION),
        schedule: object.labels().get(SCHEDULE_NAME),
    }
}

/// The value of an annotation, unless the object before has the same.
fn new_annotation<'a>(
    object: &'a DynamicObject,
    before: Option<&DynamicObject>,
    name: &str,
) -> Option<&'a str> {
    let value = object.annotations().get(name)?;
    let is_old = before.is_some_and(|before| before.annotations().get(name) == Some(value));
    (!is_old).then_some(value.as_str())
}

fn claim(profile: &Profile, seen: ObservedObject, wishes: &Wishes<'_>, dry_run: bool) -> Decision {
    let Some(scope) = seen.scope else {
        return refuse(denial::no_scope(profile, &seen.key));
    };
    let policy = &profile.policy;
    let usual = match seen.key.kind {
        ObjectKind::Restore => policy.on_conflict_restore,
        _ => policy.on_conflict_backup,
    };
    let can_wait = profile.engine && seen.key.kind == ObjectKind::Restore;
    let on_conflict = match wishes.on_conflict.unwrap_or_default() {
        "" => {
            if usual == OnConflict::Queue && !can_wait {
                OnConflict::Deny
            } else {
                usual
            }
        }
        "deny" => OnConflict::Deny,
        "wait" => OnConflict::Wait,
        "queue" if can_wait => OnConflict::Queue,
        other => {
            return refuse(denial::unknown_wish(
                &profile.group,
                &seen.key,
                other,
                can_wait,
            ));
        }
    };
    let break_glass = wishes
        .break_glass
        .map(str::trim)
        .filter(|reason| !reason.is_empty());
    Decision::Claim(Box::new(WantedClaim {
        key: seen.key,
        uid: seen.uid,
        scope,
        spec: seen.spec,
        since: seen.created,
        dry_run,
        on_conflict,
        break_glass: break_glass.map(|reason| reason.chars().take(200).collect()),
        revives: String::new(),
        schedule: wishes.schedule.cloned(),
    }))
}

/// An object of a request, under the name in the request, which is always set; with generateName
/// the object's name may be set by now.
fn seen(
    profile: &Profile,
    kind: ObjectKind,
    request: &AdmissionRequest<DynamicObject>,
    object: &DynamicObject,
) -> ObservedObject {
    let namespace = request
        .namespace
        .as_ref()
        .or(object.metadata.namespace.as_ref())
        .cloned()
        .unwrap_or_default();
    let name = Some(&request.name)
        .filter(|name| !name.is_empty())
        .or(object.metadata.name.as_ref())
        .cloned()
        .unwrap_or_default();
    ObservedObject::named(profile, kind, &namespace, &name, object)
}

/// Every reason to refuse a creation without looking at the cluster, all at once. Where another
/// operator does the work, only what this operator cannot decode; for other kinds, nothing is
/// checked.
fn findings(profile: &Profile, kind: ObjectKind, object: &DynamicObject) -> Vec<Finding> {
    if !profile.is_velero() || !profile.engine {
        return undecodable(profile, kind, object);
    }
    match kind {
        ObjectKind::Backup => validate::raw_backup(&object.data),
        ObjectKind::Restore => validate::raw_restore(&object.data),
        _ => undecodable(profile, kind, object),
    }
}

/// Reasons to refuse an update. The checks of a creation would refuse values that the controller
/// writes when it starts (the backup of a schedule beside its name, namespaces that exclude
/// themselves), and the controller checks a changed spec before it starts.
fn undecodable(profile: &Profile, kind: ObjectKind, object: &DynamicObject) -> Vec<Finding> {
    if !profile.is_velero() {
        return Vec::new();
    }
    match kind {
        ObjectKind::Backup => validate::undecodable_backup(&object.data),
        ObjectKind::Restore => validate::undecodable_restore(&object.data),
        _ => Vec::new(),
    }
}

fn refuse(status: Status) -> Decision {
    Decision::Refuse(Box::new(status))
}

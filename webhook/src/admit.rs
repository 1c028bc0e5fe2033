//! What to do with a request. Pure: looks at the request alone; whether a claim can be had is decided by the ledger.

pub mod denial;
#[cfg(test)]
mod tests;

use backup_core::validate::{self, Finding};
use backup_lock::{ObjectKey, ObjectKind, observe::Observed};
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, Operation},
};
use serde_json::Value;

/// The decision on a request.
#[derive(Debug)]
pub enum Decision {
    /// It may pass and needs no claim.
    Pass,
    /// It is refused, whatever the ledger says.
    Refuse(Box<Status>),
    /// It may pass if it gets its claim.
    Claim(Claiming),
}

/// A claim to be made.
#[derive(Clone, Debug)]
pub struct Claiming {
    /// Name of the object.
    pub key: ObjectKey,
    /// Its uid: of a creation too, it is the final one.
    pub uid: String,
    /// Its spec.
    pub spec: Value,
    /// When it was created, as RFC 3339.
    pub since: String,
    /// Whether nothing may be written.
    pub dry_run: bool,
}

/// The kind that a request is about, if we guard it.
pub fn guarded_kind(request: &AdmissionRequest<DynamicObject>) -> Option<ObjectKind> {
    match (request.kind.group.as_str(), request.kind.kind.as_str()) {
        ("velero.io", "Backup") => Some(ObjectKind::Backup),
        ("velero.io", "Restore") => Some(ObjectKind::Restore),
        _ => None,
    }
}

/// Decides on a request.
///
/// Updates are looked at for one thing only: that what has ended stays so. All else passes, or objects could become
/// undeletable.
pub fn decide(request: &AdmissionRequest<DynamicObject>) -> Decision {
    let Some(kind) = guarded_kind(request) else {
        return refuse(denial::not_guarded(&request.kind));
    };
    match request.operation {
        Operation::Create => create(kind, request),
        Operation::Update => update(kind, request),
        Operation::Delete | Operation::Connect => Decision::Pass,
    }
}

fn create(kind: ObjectKind, request: &AdmissionRequest<DynamicObject>) -> Decision {
    let Some(object) = &request.object else {
        return refuse(denial::malformed("the review of a creation has no object"));
    };
    let mut seen = Observed::of(kind, object);
    // With generateName the object's own name is filled in by now; the request's always is.
    if !request.name.is_empty() {
        seen.key.name.clone_from(&request.name);
    }
    if let Some(namespace) = &request.namespace {
        seen.key.namespace.clone_from(namespace);
    }
    if seen.uid.is_empty() || seen.key.name.is_empty() {
        return refuse(denial::malformed(
            "the review of a creation has no name or no uid; was this registered as a mutating webhook?",
        ));
    }
    if seen.over {
        return Decision::Pass;
    }
    let findings = findings(kind, object);
    if !findings.is_empty() {
        return refuse(denial::invalid(&seen.key, &findings));
    }
    Decision::Claim(Claiming {
        key: seen.key,
        uid: seen.uid,
        spec: seen.spec,
        since: seen.created,
        dry_run: request.dry_run,
    })
}

fn update(kind: ObjectKind, request: &AdmissionRequest<DynamicObject>) -> Decision {
    let (Some(object), Some(old)) = (&request.object, &request.old_object) else {
        return refuse(denial::malformed("the review of an update lacks the object or the old one"));
    };
    let (new, old) = (Observed::of(kind, object), Observed::of(kind, old));
    if old.over && !new.over {
        refuse(denial::revival(&new.key, &old.phase, &new.phase))
    } else {
        Decision::Pass
    }
}

/// Everything wrong that can be told without the cluster, all at once.
fn findings(kind: ObjectKind, object: &DynamicObject) -> Vec<Finding> {
    match kind {
        ObjectKind::Backup => validate::raw_backup(&object.data),
        ObjectKind::Restore => validate::raw_restore(&object.data),
    }
}

fn refuse(status: Status) -> Decision {
    Decision::Refuse(Box::new(status))
}

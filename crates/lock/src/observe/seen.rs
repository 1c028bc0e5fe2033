//! The state of an object as its stored fields show it.

use backup_core::{
    labels::{
        BACKUP_WORK_FINALIZER, COLLECTS_AGAIN_ANNOTATION, DELETION_RESTS_ANNOTATION,
        RESTORE_WORK_FINALIZER,
    },
    profile::Profile,
};
use kube::{
    ResourceExt,
    api::{DynamicObject, ObjectMeta},
};
use serde_json::Value;

use crate::{
    claim::{ObjectKey, ObjectKind, State, VELERO_SCOPE},
    transition::ObservedState,
};

/// A stored object, reduced to what the lock needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedObject {
    pub key: ObjectKey,
    pub uid: String,
    /// Its resourceVersion.
    pub version: String,
    /// The scope it belongs to; `None` if unknown.
    pub scope: Option<String>,
    /// Its phase, in words; unset is New.
    pub phase: String,
    /// Whether this version knows that phase. An unknown one counts as active.
    pub known: bool,
    /// It needs no claim: its work has ended, will never begin, or its claim was released early.
    pub over: bool,
    /// Its claim is released early; it may claim again.
    pub rests: bool,
    pub new: bool,
    pub deleting: bool,
    /// A user has written its terminal phase while it was running: its worker may not have stopped.
    pub held: bool,
    /// When it was created, as RFC 3339.
    pub created: String,
    pub spec: Value,
}

impl ObservedObject {
    /// Reads the state from an object, including objects that cannot be decoded into their type.
    pub fn of(profile: &Profile, kind: ObjectKind, object: &DynamicObject) -> Self {
        Self::named(
            profile,
            kind,
            &object.namespace().unwrap_or_default(),
            &object.name_any(),
            object,
        )
    }

    /// The same for an object whose name is known from another source.
    pub fn named(
        profile: &Profile,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        object: &DynamicObject,
    ) -> Self {
        let data = &object.data;
        let (scope, phase, known, over, new) = if let Some(role) = kind.role() {
            let whole = profile
                .scope_is_in_metadata(role)
                .then(|| with_metadata(name, object));
            let scope = profile.scope_of(role, namespace, whole.as_ref().unwrap_or(data));
            let over = profile.is_over(role, data) || profile.engine && was_let_go(kind, object);
            let new = !profile.has_begun(role, data);
            (
                scope,
                profile.phase(role, data),
                profile.is_known_phase(role, data),
                over,
                new,
            )
        } else {
            let phase = data
                .pointer("/status/phase")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let over = kind == ObjectKind::DeleteBackupRequest && phase == "Processed";
            (
                Some(VELERO_SCOPE.to_owned()),
                phase,
                true,
                over,
                matches!(phase, "" | "New"),
            )
        };
        let rests = !over && rests(profile, kind, phase, object);
        // Our controller removes its finalizer in the write of the terminal phase.
        let held = over && profile.engine && has_worker(kind, object);
        Self {
            key: ObjectKey::new(kind, namespace, name),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version().unwrap_or_default(),
            scope,
            phase: if phase.is_empty() {
                "New".to_owned()
            } else {
                phase.to_owned()
            },
            known,
            over: over || rests,
            rests,
            new,
            deleting: object.metadata.deletion_timestamp.is_some(),
            held,
            created: object
                .creation_timestamp()
                .map(|time| time.0.to_string())
                .unwrap_or_default(),
            spec: data.get("spec").cloned().unwrap_or(Value::Null),
        }
    }
}

/// The object as one JSON value, with its metadata, which [`DynamicObject`] keeps apart.
fn with_metadata(name: &str, object: &DynamicObject) -> Value {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        ..object.metadata.clone()
    };
    let mut whole = object.data.as_object().cloned().unwrap_or_default();
    whole.insert(
        "metadata".to_owned(),
        serde_json::to_value(metadata).unwrap_or_default(),
    );
    Value::Object(whole)
}

/// Whether an object of our own engine is being deleted and has no worker (stopped, or never
/// started): a deleted object is not begun, and a worker keeps its finalizer until it has stopped.
/// Other programs' finalizers are not work.
fn was_let_go(kind: ObjectKind, object: &DynamicObject) -> bool {
    let works = matches!(kind, ObjectKind::Backup | ObjectKind::Restore);
    works && object.metadata.deletion_timestamp.is_some() && !has_worker(kind, object)
}

/// Whether an object of our own engine carries the finalizer of its worker.
fn has_worker(kind: ObjectKind, object: &DynamicObject) -> bool {
    let work = match kind {
        ObjectKind::Backup => BACKUP_WORK_FINALIZER,
        ObjectKind::Restore => RESTORE_WORK_FINALIZER,
        ObjectKind::DeleteBackupRequest | ObjectKind::Deletion | ObjectKind::Hold => return false,
    };
    object.finalizers().iter().any(|name| name == work)
}

/// Whether the claim of begun work may be released early. A waiting deletion only waits for its
/// store: there may be more of these than a ledger holds, and the phase of the backup keeps
/// restores out. A backup of our own engine has collected everything, and only the upload to its
/// store remains.
fn rests(profile: &Profile, kind: ObjectKind, phase: &str, object: &DynamicObject) -> bool {
    let annotations = object.annotations();
    match kind {
        ObjectKind::DeleteBackupRequest => {
            phase == "InProgress" && annotations.contains_key(DELETION_RESTS_ANNOTATION)
        }
        ObjectKind::Backup => {
            profile.engine
                && matches!(phase, "Finalizing" | "FinalizingPartiallyFailed")
                && !annotations.contains_key(COLLECTS_AGAIN_ANNOTATION)
        }
        ObjectKind::Restore | ObjectKind::Deletion | ObjectKind::Hold => false,
    }
}

impl ObservedObject {
    /// The state of its entry when it is adopted without one.
    pub fn state(&self) -> State {
        if self.new {
            State::Reserved
        } else {
            State::Active
        }
    }
}

impl ObservedState {
    /// The fields that entries are judged by.
    pub fn of(object: Option<&ObservedObject>, settled: bool) -> Self {
        let Some(object) = object else {
            return Self {
                settled,
                ..Self::default()
            };
        };
        Self {
            uid: Some(object.uid.clone()),
            version: object.version.clone(),
            over: object.over,
            deleting: object.deleting,
            settled: settled && !object.held,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_deletion_is_over_when_it_is_answered_and_while_it_rests() {
        for (phase, annotation, over) in [
            (None, None, false),
            // Set by a user who tries to bypass the lock.
            (None, Some(DELETION_RESTS_ANNOTATION), false),
            (Some("New"), Some(DELETION_RESTS_ANNOTATION), false),
            (Some("InProgress"), None, false),
            (Some("InProgress"), Some("backup-controller/other"), false),
            (Some("InProgress"), Some(DELETION_RESTS_ANNOTATION), true),
            (Some("Processed"), None, true),
        ] {
            let mut object =
                json!({ "metadata": { "name": "d", "namespace": "velero", "uid": "u" } });
            if let Some(phase) = phase {
                object["status"] = json!({ "phase": phase });
            }
            if let Some(annotation) = annotation {
                object["metadata"]["annotations"] = json!({ annotation: "true" });
            }
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let seen =
                ObservedObject::of(&Profile::velero(), ObjectKind::DeleteBackupRequest, &object);
            assert_eq!(seen.over, over, "{phase:?} {annotation:?}");
        }
    }

    #[test]
    fn an_end_that_a_person_wrote_is_held_by_the_worker() {
        for (phase, finalizer, engine, held) in [
            ("Failed", Some(RESTORE_WORK_FINALIZER), true, true),
            ("Failed", Some(RESTORE_WORK_FINALIZER), false, false),
            ("Failed", Some(BACKUP_WORK_FINALIZER), true, false),
            ("Failed", None, true, false),
            ("InProgress", Some(RESTORE_WORK_FINALIZER), true, false),
        ] {
            let object = json!({ "status": { "phase": phase },
                "metadata": { "name": "r", "namespace": "velero", "uid": "u", "finalizers": finalizer.map(|one| [one]) } });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let profile = Profile {
                engine,
                ..Profile::velero()
            };
            let seen = ObservedObject::of(&profile, ObjectKind::Restore, &object);
            assert_eq!(seen.held, held, "{phase} {finalizer:?} {engine}");
        }
    }

    #[test]
    fn a_backup_of_our_engine_rests_once_everything_is_collected() {
        for (phase, annotation, engine, rests) in [
            ("InProgress", None, true, false),
            ("WaitingForPluginOperations", None, true, false),
            ("Finalizing", None, true, true),
            ("FinalizingPartiallyFailed", None, true, true),
            (
                "FinalizingPartiallyFailed",
                Some(COLLECTS_AGAIN_ANNOTATION),
                true,
                false,
            ),
            ("Finalizing", Some(COLLECTS_AGAIN_ANNOTATION), true, false),
            // Velero's server still reads items in this phase.
            ("Finalizing", None, false, false),
            ("Finalizing", Some("backup-controller/other"), true, true),
        ] {
            let mut object = json!({
                "metadata": { "name": "b", "namespace": "velero", "uid": "u" }, "status": { "phase": phase },
            });
            if let Some(annotation) = annotation {
                object["metadata"]["annotations"] = json!({ annotation: "true" });
            }
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            let profile = Profile {
                engine,
                ..Profile::velero()
            };
            let seen = ObservedObject::of(&profile, ObjectKind::Backup, &object);
            assert_eq!(
                (seen.rests, seen.over),
                (rests, rests),
                "{phase} {annotation:?} {engine}"
            );
        }
    }
}

//! The finalizers of a Backup or Restore.

use backup_core::labels::BLOCKED_ANNOTATION;
use kube::Resource;
use serde_json::{Value, json};

use super::{kind::JobKind, object::JobObject as _};

pub(crate) fn has(object: &impl Resource, name: &str) -> bool {
    object
        .meta()
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == name)
}

/// The work finalizer: a deleted object keeps its claim until its worker has stopped.
pub(crate) fn work<L: JobKind>() -> &'static str {
    L::FINALIZERS.first().copied().unwrap_or_default()
}

/// Whether we have something left to do before the object may be deleted.
pub(crate) fn is_held<L: JobKind>(object: &L::Object) -> bool {
    let deleting = object.meta().deletion_timestamp.is_some();
    has(object, work::<L>()) || (deleting && L::FINALIZERS.iter().any(|name| has(object, name)))
}

pub(crate) fn with<L: JobKind>(object: &impl Resource) -> Vec<String> {
    let mut all = object.meta().finalizers.clone().unwrap_or_default();
    all.extend(
        L::FINALIZERS
            .iter()
            .filter(|name| !has(object, name))
            .map(|name| (*name).to_owned()),
    );
    all
}

pub(crate) fn without(object: &impl Resource, names: &[&str]) -> Vec<String> {
    let others = object.meta().finalizers.iter().flatten();
    others
        .filter(|name| !names.contains(&name.as_str()))
        .cloned()
        .collect()
}

/// Patch that adds our finalizers; `None` if the object has them, has ended or is being deleted.
pub(crate) fn added<L: JobKind>(object: &L::Object) -> Option<Value> {
    let wanted = with::<L>(object);
    (object.meta().finalizers.as_ref() != Some(&wanted)
        && !object.stage().is_terminal()
        && !object.is_deleting())
    .then(|| json!({ "metadata": { "finalizers": wanted } }))
}

/// Patch that removes finalizers; `None` if the object has none of them.
pub(crate) fn removed(object: &impl Resource, names: &[&str]) -> Option<Value> {
    let rest = without(object, names);
    (rest.len() < object.meta().finalizers.as_ref().map_or(0, Vec::len))
        .then(|| json!({ "metadata": { "finalizers": rest } }))
}

/// Metadata patch for an ended object: removes the work finalizer and the "blocked" annotation.
pub(crate) fn ended_metadata<L: JobKind>(object: &impl Resource) -> Value {
    let mut metadata = json!({ "annotations": { BLOCKED_ANNOTATION: null } });
    let work = work::<L>();
    if has(object, work) {
        metadata["finalizers"] = json!(without(object, &[work]));
    }
    metadata
}

//! Errors in the spec of a Restore that removes objects (`spec.prune`).

use super::Findings;
use crate::{
    api::RestoreSpec,
    resources::{builtin_types, is_never_pruned},
    selection::is_glob,
};

const FIELD: &str = "spec.prune";

pub(super) fn check(spec: &RestoreSpec, found: &mut Findings) {
    if spec.prune != Some(true) {
        return;
    }
    let namespaces = &spec.included_namespaces;
    if namespaces.is_empty()
        || namespaces
            .iter()
            .any(|name| name.is_empty() || is_glob(name))
    {
        found.say(
            FIELD,
            "removes objects, so spec.includedNamespaces has to name each namespace, without wildcards",
        );
    }
    if !spec.included_objects.is_empty() {
        found.say(
            FIELD,
            "removes nothing beside spec.includedObjects, which names objects of the backup; unset one of them",
        );
    }
    let types = &spec.included_resources;
    if !types.is_empty() && types.iter().all(|name| is_kept(name)) {
        let types = types.join(", ");
        found.say(
            FIELD,
            format!("removes nothing of {types}: objects of these types are always kept; unset it, or include other resources"),
        );
    }
}

/// Whether nothing with this name of a type is ever removed.
fn is_kept(name: &str) -> bool {
    let mut types = builtin_types(name).peekable();
    types.peek().is_some() && types.all(|of_type| is_never_pruned(&of_type.group_resource()))
}

//! Errors in the spec of a Restore.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Container;
use serde::Deserialize as _;

use super::{Finding, Findings, drill::restore_drill, lists::Lists, prune, selectors};
use crate::{
    api::{
        RestoreSpec,
        common::HookErrorMode,
        restore::{ExecRestoreHook, InitRestoreHook, RestoreHooks},
    },
    data_movement::InPlaceRestore,
    names::{is_dns_label, is_object_name},
    resources::{CLAIMS, NON_RESTORABLE, VOLUMES, builtin_types},
    selection::{IncludesExcludes, ObjectName},
};

/// Maximum number of objects that a Restore lists individually.
const MAX_OBJECTS: usize = 100;

/// All errors in the spec of a Restore that can be found without the cluster.
pub fn restore(spec: &RestoreSpec) -> Vec<Finding> {
    let mut found = Findings::default();
    source(spec, &mut found);
    for item in spec
        .included_resources
        .iter()
        .filter(|item| NON_RESTORABLE.contains(&item.as_str()))
    {
        found.say(
            "spec.includedResources",
            format!("{item:?} cannot be restored; remove it"),
        );
    }
    Lists::of(
        "Resources",
        &spec.included_resources,
        &spec.excluded_resources,
    )
    .check(&mut found);
    Lists::of(
        "Namespaces",
        &spec.included_namespaces,
        &spec.excluded_namespaces,
    )
    .check_namespaces(&mut found);
    if let Some(status) = &spec.restore_status {
        Lists::of(
            "Resources",
            &status.included_resources,
            &status.excluded_resources,
        )
        .in_field("spec.restoreStatus")
        .check_scoped(&mut found);
    }
    included_objects(spec, &mut found);
    namespace_mapping(spec, &mut found);
    selectors::check(
        spec.label_selector.as_ref(),
        spec.or_label_selectors.as_ref(),
        &mut found,
    );
    if let Some(policy) = spec.existing_resource_policy.as_deref()
        && !["", "none", "update"].contains(&policy)
    {
        let message = format!("{policy:?} is not one of \"none\" and \"update\"");
        found.say("spec.existingResourcePolicy", message);
    }
    prune::check(spec, &mut found);
    volume_data(spec, &mut found);
    found.not_negative("spec.itemOperationTimeout", spec.item_operation_timeout);
    found.is_config_map("spec.resourceModifier", spec.resource_modifier.as_ref());
    found.is_config_map("spec.resourcePolicy", spec.resource_policy.as_ref());
    if let Some(given) = &spec.hooks {
        hooks(given, &mut found);
    }
    restore_drill(spec, &mut found);
    found.0
}

/// Data is written into a volume that exists only if no pod uses it. So such a restore brings no
/// pods along, nor objects that make some.
fn volume_data(spec: &RestoreSpec, found: &mut Findings) {
    let policy = spec.existing_volume_data_policy.as_deref();
    let in_place = InPlaceRestore::of(policy);
    if let Some(policy) = policy
        && in_place.is_none()
        && !["", "none"].contains(&policy)
    {
        found.say(
            "spec.existingVolumeDataPolicy",
            format!("{policy:?} is not one of \"none\", \"full\" and \"incremental\""),
        );
    }
    if let Some(in_place) = in_place {
        in_place_restore(spec, in_place, found);
    }
    let Some(config) = &spec.uploader_config else {
        return;
    };
    if config.parallel_files_download < 0 {
        found.say(
            "spec.uploaderConfig.parallelFilesDownload",
            "must not be negative",
        );
    }
    if config.delete_extra_files == Some(true) && in_place.is_none() {
        found.say(
            "spec.uploaderConfig.deleteExtraFiles",
            "changes nothing, as volumes that exist are left alone: unset it, or set \
             spec.existingVolumeDataPolicy to \"full\" or \"incremental\"",
        );
    }
}

fn in_place_restore(spec: &RestoreSpec, in_place: InPlaceRestore, found: &mut Findings) {
    let field = "spec.existingVolumeDataPolicy";
    let policy = in_place.as_str();
    if spec.restore_pvs == Some(false) {
        let message = format!("{policy:?} restores data, and spec.restorePVs is false; unset one");
        found.say(field, message);
    }
    if !selects_only_claims(spec) {
        let message = format!(
            "{policy:?} needs volumes that no pod uses, so this Restore has to select claims only: set \
             includedResources to persistentvolumeclaims, and restore other items by another Restore"
        );
        found.say(field, message);
    }
}

/// Whether only claims and volumes can be selected.
fn selects_only_claims(spec: &RestoreSpec) -> bool {
    let objects = &spec.included_objects;
    let by_object = objects
        .iter()
        .all(|text| ObjectName::parse(text).is_some_and(|object| is_volume_type(object.of_type)));
    let types = &spec.included_resources;
    let by_type = types.iter().all(|name| is_volume_type(name));
    !objects.is_empty() && by_object || !types.is_empty() && by_type
}

fn is_volume_type(name: &str) -> bool {
    builtin_types(name)
        .any(|of_type| [CLAIMS, VOLUMES].contains(&of_type.group_resource().as_str()))
}

/// Requires either a backup or a schedule. A prepared Restore has both, as the server fills in the
/// other one; it is not validated again.
fn source(spec: &RestoreSpec, found: &mut Findings) {
    let has_backup = is_given(spec.backup_name.as_deref());
    let has_schedule = is_given(spec.schedule_name.as_deref());
    if has_backup && has_schedule {
        let message = "cannot be given together with backupName; remove one of them";
        found.say("spec.scheduleName", message);
    } else if !has_backup && !has_schedule {
        found.say(
            "spec.backupName",
            "name a backup, or a schedule in scheduleName",
        );
    }
    let names = [
        ("backupName", "Backup", &spec.backup_name),
        ("scheduleName", "Schedule", &spec.schedule_name),
    ];
    for (field, kind, name) in names {
        if let Some(name) = name
            .as_deref()
            .filter(|name| !name.is_empty() && !is_object_name(name))
        {
            found.say(
                format!("spec.{field}"),
                format!("{name:?} cannot be the name of a {kind}"),
            );
        }
    }
}

fn is_given(name: Option<&str>) -> bool {
    name.is_some_and(|name| !name.is_empty())
}

/// Each must name one object in a restored namespace.
fn included_objects(spec: &RestoreSpec, found: &mut Findings) {
    if spec.included_objects.len() > MAX_OBJECTS {
        let message = format!(
            "{} are more than {MAX_OBJECTS}; select by types and labels",
            spec.included_objects.len()
        );
        return found.say("spec.includedObjects", message);
    }
    let namespaces = IncludesExcludes::new(&spec.included_namespaces, &spec.excluded_namespaces);
    for (at, text) in spec.included_objects.iter().enumerate() {
        let field = format!("spec.includedObjects[{at}]");
        let Some(object) = ObjectName::parse(text) else {
            found.say(
                field,
                format!("{text:?} names no object; expected NAMESPACE/TYPE/NAME or TYPE/NAME"),
            );
            continue;
        };
        if let Some(namespace) = object.namespace {
            if !is_dns_label(namespace) {
                found.say(
                    field,
                    format!("{namespace:?} cannot be the name of a namespace"),
                );
            } else if !namespaces.includes(namespace) {
                found.say(
                    field,
                    format!("{namespace:?} is not among the namespaces that are restored"),
                );
            }
        }
    }
}

/// Each must map a name to a name, and each target must have only one source (our own rules: Velero
/// ignores an invalid source, fails when it creates the namespace, and restores objects of several
/// namespaces over one another).
fn namespace_mapping(spec: &RestoreSpec, found: &mut Findings) {
    let mut sources = BTreeMap::new();
    for (from, to) in &spec.namespace_mapping {
        let field = format!("spec.namespaceMapping.{from}");
        if !is_dns_label(from) {
            found.say(
                field.clone(),
                format!(
                    "{from:?} cannot be the name of a namespace; a mapping takes names and no globs"
                ),
            );
        }
        if !is_dns_label(to) {
            found.say(field, format!("{to:?} cannot be the name of a namespace"));
        } else if let Some(other) = sources.insert(to, from) {
            found.say(
                field,
                format!(
                    "{other:?} is mapped to {to:?}, too; each namespace needs a target of its own"
                ),
            );
        }
    }
}

/// Velero checks only the init containers, at each pod (`internal/hook/item_hook_handler.go`,
/// v1.18); a hook that is invalid in another way is ignored there, or fails in each of its pods.
fn hooks(hooks: &RestoreHooks, found: &mut Findings) {
    for (at, hook) in hooks.resources.iter().enumerate() {
        let field = format!("spec.hooks.resources[{at}]");
        if hook.name.trim().is_empty() {
            found.say(
                format!("{field}.name"),
                "must not be empty: errors name the hook by it",
            );
        }
        Lists::of(
            "Namespaces",
            &hook.included_namespaces,
            &hook.excluded_namespaces,
        )
        .in_field(&field)
        .check_namespaces(found);
        Lists::of(
            "Resources",
            &hook.included_resources,
            &hook.excluded_resources,
        )
        .in_field(&field)
        .check(found);
        if let Some(selector) = &hook.label_selector {
            selectors::check_one(&format!("{field}.labelSelector"), selector, found);
        }
        for (at, hook) in hook.post_hooks.iter().enumerate() {
            let field = format!("{field}.postHooks[{at}]");
            if hook.exec.is_none() && hook.init.is_none() {
                found.say(
                    &field,
                    "has neither exec nor init; give one of them, or remove it",
                );
            }
            if let Some(exec) = &hook.exec {
                exec_hook(&format!("{field}.exec"), exec, found);
            }
            if let Some(init) = &hook.init {
                init_hook(&format!("{field}.init"), init, found);
            }
        }
    }
}

fn exec_hook(field: &str, exec: &ExecRestoreHook, found: &mut Findings) {
    // An empty name means the first container.
    if let Some(container) = exec
        .container
        .as_deref()
        .filter(|name| !name.is_empty() && !is_dns_label(name))
    {
        found.say(
            format!("{field}.container"),
            format!("{container:?} cannot be the name of a container"),
        );
    }
    match exec.command.first().map(|program| program.trim()) {
        None => found.say(format!("{field}.command"), "must not be empty"),
        Some("") => {
            found.say(
                format!("{field}.command"),
                "must begin with a program, not with an empty text",
            );
        }
        Some(_) => {}
    }
    if let Some(HookErrorMode::Unknown(mode)) = &exec.on_error {
        found.say(
            format!("{field}.onError"),
            format!("{mode:?} is not one of \"Continue\" and \"Fail\""),
        );
    }
    found.not_negative(&format!("{field}.execTimeout"), exec.exec_timeout);
    found.not_negative(&format!("{field}.waitTimeout"), exec.wait_timeout);
}

fn init_hook(field: &str, init: &InitRestoreHook, found: &mut Findings) {
    found.not_negative(&format!("{field}.timeout"), init.timeout);
    if init.init_containers.is_empty() {
        found.say(format!("{field}.initContainers"), "must not be empty");
    }
    let mut names = BTreeSet::new();
    for (at, container) in init.init_containers.iter().enumerate() {
        let field = format!("{field}.initContainers[{at}]");
        let missing: Vec<&str> = ["name", "image", "command"]
            .into_iter()
            .filter(|key| is_empty(&container[*key]))
            .collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            found.say(
                &field,
                format!("has no {missing}; an init container needs name, image and command"),
            );
        }
        if let Err(error) = Container::deserialize(container) {
            found.say(&field, format!("is no container: {error}"));
        }
        let Some(name) = container["name"].as_str().filter(|name| !name.is_empty()) else {
            continue;
        };
        if !is_dns_label(name) {
            found.say(
                format!("{field}.name"),
                format!("{name:?} cannot be the name of a container"),
            );
        } else if !names.insert(name) {
            found.say(
                format!("{field}.name"),
                format!("{name:?} is the name of another one, too"),
            );
        }
    }
}

/// Whether a value is absent, or an empty text or list.
fn is_empty(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::String(text) => text.trim().is_empty(),
        serde_json::Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

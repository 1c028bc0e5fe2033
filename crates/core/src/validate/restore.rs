//! What can be wrong in the spec of a Restore.

use std::collections::BTreeMap;

use super::{Finding, Findings, lists::Lists, selectors};
use crate::{
    api::{RestoreSpec, restore::RestoreHooks},
    names::is_dns_label,
    resources::NON_RESTORABLE,
};

/// Everything wrong in the spec of a Restore that can be found without the cluster.
pub fn restore(spec: &RestoreSpec) -> Vec<Finding> {
    let mut found = Findings::default();
    source(spec, &mut found);
    for item in spec.included_resources.iter().filter(|item| NON_RESTORABLE.contains(&item.as_str())) {
        found.say("spec.includedResources", format!("{item:?} can not be restored; remove it"));
    }
    Lists::of("Resources", &spec.included_resources, &spec.excluded_resources).check(&mut found);
    Lists::of("Namespaces", &spec.included_namespaces, &spec.excluded_namespaces)
        .check_namespaces(&mut found);
    if let Some(status) = &spec.restore_status {
        Lists::of("Resources", &status.included_resources, &status.excluded_resources)
            .in_field("spec.restoreStatus")
            .check_scoped(&mut found);
    }
    namespace_mapping(spec, &mut found);
    selectors::check(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref(), &mut found);
    if let Some(policy) = spec.existing_resource_policy.as_deref()
        && !["", "none", "update"].contains(&policy)
    {
        let message = format!("{policy:?} is not one of \"none\" and \"update\"");
        found.say("spec.existingResourcePolicy", message);
    }
    found.not_negative("spec.itemOperationTimeout", spec.item_operation_timeout);
    found.is_config_map("spec.resourceModifier", spec.resource_modifier.as_ref());
    found.is_config_map("spec.resourcePolicy", spec.resource_policy.as_ref());
    if let Some(config) = &spec.uploader_config
        && config.parallel_files_download < 0
    {
        found.say("spec.uploaderConfig.parallelFilesDownload", "must not be negative");
    }
    if let Some(given) = &spec.hooks {
        hooks(given, &mut found);
    }
    found.0
}

/// A backup or a schedule, not both. A prepared Restore has both, as the server fills in the other one; it is not
/// validated again.
fn source(spec: &RestoreSpec, found: &mut Findings) {
    let given = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    match (given(&spec.backup_name), given(&spec.schedule_name)) {
        (false, false) => {
            found.say("spec.backupName", "name a backup, or a schedule in scheduleName");
        }
        (true, true) => {
            let message = "can not be given together with backupName; remove one of them";
            found.say("spec.scheduleName", message);
        }
        _ => {}
    }
}

/// Targets must be names, each of one source only (our own rules: Velero fails when it creates the namespace, and restores objects
/// of several namespaces over one another).
fn namespace_mapping(spec: &RestoreSpec, found: &mut Findings) {
    let mut sources = BTreeMap::new();
    for (from, to) in &spec.namespace_mapping {
        let field = || format!("spec.namespaceMapping.{from}");
        if !is_dns_label(to) {
            found.say(field(), format!("{to:?} can not be the name of a namespace"));
        } else if let Some(other) = sources.insert(to, from) {
            found.say(
                field(),
                format!("{other:?} is mapped to {to:?}, too; each namespace needs a target of its own"),
            );
        }
    }
}

fn hooks(hooks: &RestoreHooks, found: &mut Findings) {
    for (at, hook) in hooks.resources.iter().enumerate() {
        let field = format!("spec.hooks.resources[{at}]");
        if let Some(selector) = &hook.label_selector {
            selectors::check_one(&format!("{field}.labelSelector"), selector, found);
        }
        for (at, hook) in hook.post_hooks.iter().enumerate() {
            let field = format!("{field}.postHooks[{at}]");
            if let Some(exec) = &hook.exec {
                if exec.command.is_empty() {
                    found.say(format!("{field}.exec.command"), "must not be empty");
                }
                found.not_negative(&format!("{field}.exec.execTimeout"), exec.exec_timeout);
                found.not_negative(&format!("{field}.exec.waitTimeout"), exec.wait_timeout);
            }
            let Some(init) = &hook.init else { continue };
            found.not_negative(&format!("{field}.init.timeout"), init.timeout);
            for (at, container) in init.init_containers.iter().enumerate() {
                let missing: Vec<&str> = ["name", "image", "command"]
                    .into_iter()
                    .filter(|key| is_empty(&container[*key]))
                    .collect();
                if !missing.is_empty() {
                    let missing = missing.join(", ");
                    found.say(
                        format!("{field}.init.initContainers[{at}]"),
                        format!("has no {missing}; an init container needs name, image and command"),
                    );
                }
            }
        }
    }
}

/// Whether a value is absent, or an empty text or list.
fn is_empty(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => true,
        serde_json::Value::String(text) => text.is_empty(),
        serde_json::Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

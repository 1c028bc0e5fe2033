//! What can be wrong in the spec of a Restore.

use super::{Finding, is_config_map, lists::Lists, not_negative, selectors};
use crate::{
    api::{RestoreSpec, restore::RestoreHooks},
    names::is_namespace_name,
    resources::NON_RESTORABLE,
};

/// Everything wrong in the spec of a Restore that can be found without the cluster.
pub fn restore(spec: &RestoreSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    source(spec, &mut findings);
    for item in spec.included_resources.iter().filter(|item| NON_RESTORABLE.contains(&item.as_str())) {
        findings
            .push(Finding::new("spec.includedResources", format!("{item:?} can not be restored; remove it")));
    }
    Lists {
        included: ("includedResources", &spec.included_resources),
        excluded: ("excludedResources", &spec.excluded_resources),
    }
    .check(&mut findings);
    Lists {
        included: ("includedNamespaces", &spec.included_namespaces),
        excluded: ("excludedNamespaces", &spec.excluded_namespaces),
    }
    .check_namespaces(&mut findings);
    namespace_mapping(spec, &mut findings);
    selectors::check(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref(), &mut findings);
    if let Some(policy) = spec.existing_resource_policy.as_deref()
        && !["", "none", "update"].contains(&policy)
    {
        let message = format!("{policy:?} is not one of \"none\" and \"update\"");
        findings.push(Finding::new("spec.existingResourcePolicy", message));
    }
    not_negative("spec.itemOperationTimeout", spec.item_operation_timeout, &mut findings);
    is_config_map("spec.resourceModifier", spec.resource_modifier.as_ref(), &mut findings);
    is_config_map("spec.resourcePolicy", spec.resource_policy.as_ref(), &mut findings);
    if let Some(config) = &spec.uploader_config
        && config.parallel_files_download < 0
    {
        findings.push(Finding::new("spec.uploaderConfig.parallelFilesDownload", "must not be negative"));
    }
    if let Some(given) = &spec.hooks {
        hooks(given, &mut findings);
    }
    findings
}

/// A backup or a schedule, not both. A prepared Restore has both, as the server fills in the other one; it is not
/// validated again.
fn source(spec: &RestoreSpec, findings: &mut Vec<Finding>) {
    let given = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    match (given(&spec.backup_name), given(&spec.schedule_name)) {
        (false, false) => {
            findings.push(Finding::new("spec.backupName", "name a backup, or a schedule in scheduleName"));
        }
        (true, true) => {
            let message = "can not be given together with backupName; remove one of them";
            findings.push(Finding::new("spec.scheduleName", message));
        }
        _ => {}
    }
}

/// Targets must be names (our own rule: Velero only fails when it creates the namespace).
fn namespace_mapping(spec: &RestoreSpec, findings: &mut Vec<Finding>) {
    for (from, to) in spec.namespace_mapping.iter().filter(|(_, to)| !is_namespace_name(to)) {
        let message = format!("{to:?} can not be the name of a namespace");
        findings.push(Finding::new(format!("spec.namespaceMapping.{from}"), message));
    }
}

fn hooks(hooks: &RestoreHooks, findings: &mut Vec<Finding>) {
    for (at, hook) in hooks.resources.iter().enumerate() {
        let field = format!("spec.hooks.resources[{at}]");
        if let Some(selector) = &hook.label_selector {
            selectors::check_one(&format!("{field}.labelSelector"), selector, findings);
        }
        for (at, hook) in hook.post_hooks.iter().enumerate() {
            let field = format!("{field}.postHooks[{at}]");
            if let Some(exec) = &hook.exec {
                if exec.command.is_empty() {
                    findings.push(Finding::new(format!("{field}.exec.command"), "must not be empty"));
                }
                not_negative(&format!("{field}.exec.execTimeout"), exec.exec_timeout, findings);
                not_negative(&format!("{field}.exec.waitTimeout"), exec.wait_timeout, findings);
            }
            let Some(init) = &hook.init else { continue };
            not_negative(&format!("{field}.init.timeout"), init.timeout, findings);
            for (at, container) in init.init_containers.iter().enumerate() {
                let missing: Vec<&str> = ["name", "image", "command"]
                    .into_iter()
                    .filter(|key| is_empty(&container[*key]))
                    .collect();
                if !missing.is_empty() {
                    findings.push(Finding::new(
                        format!("{field}.init.initContainers[{at}]"),
                        format!(
                            "has no {}; an init container needs name, image and command",
                            missing.join(", ")
                        ),
                    ));
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

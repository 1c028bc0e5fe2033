//! What can be wrong in the spec of a Backup.

use super::{Finding, is_config_map, lists::Lists, not_negative, selectors};
use crate::{
    api::{BackupSpec, backup::BackupHooks},
    resources::{uses_combined_fields, uses_scoped_fields},
};

/// Everything wrong in the spec of a Backup that can be found without the cluster.
pub fn backup(spec: &BackupSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    resources(spec, &mut findings);
    Lists {
        included: ("includedNamespaces", &spec.included_namespaces),
        excluded: ("excludedNamespaces", &spec.excluded_namespaces),
    }
    .check_namespaces(&mut findings);
    selectors::check(spec.label_selector.as_ref(), spec.or_label_selectors.as_ref(), &mut findings);
    not_negative("spec.ttl", spec.ttl, &mut findings);
    not_negative("spec.csiSnapshotTimeout", spec.csi_snapshot_timeout, &mut findings);
    not_negative("spec.itemOperationTimeout", spec.item_operation_timeout, &mut findings);
    is_config_map("spec.resourcePolicy", spec.resource_policy.as_ref(), &mut findings);
    if let Some(config) = &spec.uploader_config
        && config.parallel_files_upload < 0
    {
        findings.push(Finding::new("spec.uploaderConfig.parallelFilesUpload", "must not be negative"));
    }
    if let Some(given) = &spec.hooks {
        hooks(given, &mut findings);
    }
    findings
}

fn resources(spec: &BackupSpec, findings: &mut Vec<Finding>) {
    if uses_combined_fields(spec) && uses_scoped_fields(spec) {
        findings.push(Finding::new(
            "spec",
            "includedResources, excludedResources and includeClusterResources can not be given together with the \
             filters for cluster-scoped and namespace-scoped resources; use only one kind",
        ));
    }
    Lists {
        included: ("includedResources", &spec.included_resources),
        excluded: ("excludedResources", &spec.excluded_resources),
    }
    .check(findings);
    Lists {
        included: ("includedClusterScopedResources", &spec.included_cluster_scoped_resources),
        excluded: ("excludedClusterScopedResources", &spec.excluded_cluster_scoped_resources),
    }
    .check_scoped(findings);
    Lists {
        included: ("includedNamespaceScopedResources", &spec.included_namespace_scoped_resources),
        excluded: ("excludedNamespaceScopedResources", &spec.excluded_namespace_scoped_resources),
    }
    .check_scoped(findings);
}

fn hooks(hooks: &BackupHooks, findings: &mut Vec<Finding>) {
    for (at, hook) in hooks.resources.iter().enumerate() {
        let field = format!("spec.hooks.resources[{at}]");
        if let Some(selector) = &hook.label_selector {
            selectors::check_one(&format!("{field}.labelSelector"), selector, findings);
        }
        for (list, hooks) in [("pre", &hook.pre), ("post", &hook.post)] {
            for (at, hook) in hooks.iter().enumerate() {
                let field = format!("{field}.{list}[{at}].exec");
                if hook.exec.command.is_empty() {
                    findings.push(Finding::new(format!("{field}.command"), "must not be empty"));
                }
                not_negative(&format!("{field}.timeout"), hook.exec.timeout, findings);
            }
        }
    }
}

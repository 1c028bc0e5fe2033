//! Errors in the spec of a Backup.

use super::{Finding, Findings, copies, lists::Lists, selectors};
use crate::{
    api::{
        BackupSpec,
        backup::{BackupHooks, BackupType},
        common::HookErrorMode,
    },
    resources::{uses_combined_fields, uses_scoped_fields},
};

/// All errors in the spec of a Backup that can be found without the cluster.
pub fn backup(spec: &BackupSpec) -> Vec<Finding> {
    let mut found = Findings::default();
    resources(spec, &mut found);
    Lists::of(
        "Namespaces",
        &spec.included_namespaces,
        &spec.excluded_namespaces,
    )
    .check_namespaces(&mut found);
    selectors::check(
        spec.label_selector.as_ref(),
        spec.or_label_selectors.as_ref(),
        &mut found,
    );
    found.not_negative("spec.ttl", spec.ttl);
    found.not_negative("spec.csiSnapshotTimeout", spec.csi_snapshot_timeout);
    found.not_negative("spec.itemOperationTimeout", spec.item_operation_timeout);
    copies::check(
        "spec.copies",
        &spec.copies,
        spec.storage_location.as_deref(),
        &mut found,
    );
    found.is_config_map("spec.resourcePolicy", spec.resource_policy.as_ref());
    if let Some(config) = &spec.uploader_config
        && config.parallel_files_upload < 0
    {
        found.say(
            "spec.uploaderConfig.parallelFilesUpload",
            "must not be negative",
        );
    }
    match &spec.backup_type {
        // A snapshot always contains the whole volume.
        None | Some(BackupType::Full) => {}
        Some(BackupType::Incremental) => found.say(
            "spec.backupType",
            "\"Incremental\" is not supported: each snapshot is one of the whole volume; unset it",
        ),
        Some(BackupType::Unknown(other)) => {
            found.say(
                "spec.backupType",
                format!("{other:?} is not one of {}", BackupType::KNOWN.join(", ")),
            );
        }
    }
    if let Some(given) = &spec.hooks {
        hooks(given, &mut found);
    }
    found.0
}

fn resources(spec: &BackupSpec, found: &mut Findings) {
    if uses_combined_fields(spec) && uses_scoped_fields(spec) {
        found.say(
            "spec",
            "includedResources, excludedResources and includeClusterResources can not be given together with the \
             filters for cluster-scoped and namespace-scoped resources; use only one kind",
        );
    }
    Lists::of(
        "Resources",
        &spec.included_resources,
        &spec.excluded_resources,
    )
    .check(found);
    Lists::of(
        "ClusterScopedResources",
        &spec.included_cluster_scoped_resources,
        &spec.excluded_cluster_scoped_resources,
    )
    .check_scoped(found);
    Lists::of(
        "NamespaceScopedResources",
        &spec.included_namespace_scoped_resources,
        &spec.excluded_namespace_scoped_resources,
    )
    .check_scoped(found);
}

fn hooks(hooks: &BackupHooks, found: &mut Findings) {
    for (at, hook) in hooks.resources.iter().enumerate() {
        let field = format!("spec.hooks.resources[{at}]");
        if let Some(selector) = &hook.label_selector {
            selectors::check_one(&format!("{field}.labelSelector"), selector, found);
        }
        for (list, hooks) in [("pre", &hook.pre), ("post", &hook.post)] {
            for (at, hook) in hooks.iter().enumerate() {
                let field = format!("{field}.{list}[{at}].exec");
                if hook.exec.command.is_empty() {
                    found.say(format!("{field}.command"), "must not be empty");
                }
                if let Some(HookErrorMode::Unknown(mode)) = &hook.exec.on_error {
                    let known = HookErrorMode::KNOWN.join(", ");
                    found.say(
                        format!("{field}.onError"),
                        format!("{mode:?} is not one of {known}"),
                    );
                }
                found.not_negative(&format!("{field}.timeout"), hook.exec.timeout);
            }
        }
    }
}

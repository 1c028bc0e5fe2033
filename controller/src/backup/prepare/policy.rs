//! The resource policy that a Backup names.

use std::collections::BTreeMap;

use backup_core::{
    api::BackupSpec,
    resource_policy::{self, ResourcePolicy},
    validate::{Finding, uses_combined_filters},
};

const FIELD: &str = "spec.resourcePolicy";

/// What is wrong with it. `data` is that of its ConfigMap, if there is one.
pub fn findings(spec: &BackupSpec, data: Option<&BTreeMap<String, String>>) -> Vec<Finding> {
    match read(spec, data) {
        Ok(Some(policy)) if !policy.types.is_empty() && uses_combined_filters(spec) => vec![Finding::new(
            format!("{FIELD}: includeExcludePolicy"),
            "can not be used with includedResources, excludedResources or includeClusterResources; use the filters for \
             cluster-scoped and namespace-scoped resources",
        )],
        Ok(_) => Vec::new(),
        Err(findings) => findings,
    }
}

/// The policy; none if the Backup names none.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(
    spec: &BackupSpec,
    data: Option<&BTreeMap<String, String>>,
) -> Result<Option<ResourcePolicy>, Vec<Finding>> {
    match (&spec.resource_policy, data) {
        (None, _) => Ok(None),
        // Found by the rules that need no cluster.
        (Some(reference), _) if !reference.kind.eq_ignore_ascii_case("configmap") => Ok(None),
        (Some(reference), None) => Err(vec![Finding::new(
            format!("{FIELD}.name"),
            format!("there is no ConfigMap {:?} in the namespace of this Backup", reference.name),
        )]),
        (Some(_), Some(data)) => resource_policy::read(data).map(Some),
    }
}

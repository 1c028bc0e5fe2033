//! ConfigMaps that users write for backups and restores, in the namespace of the installation.

use std::{collections::BTreeMap, time::Duration};

use backup_client::retry;
use backup_core::{
    api::common::LocalReference,
    names::is_object_name,
    validate::{self, Finding},
};
use backup_runtime::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// A reference to the ConfigMap of this name, in the form of a spec.
pub(crate) fn reference(name: &str) -> LocalReference {
    LocalReference {
        kind: "ConfigMap".to_owned(),
        name: name.to_owned(),
        ..LocalReference::default()
    }
}

/// Reads the ConfigMap that a spec names in `field`; `None` if it names none. The error lists
/// everything that is wrong.
pub(crate) fn read<T>(
    field: &str,
    reference: Option<&LocalReference>,
    data: Option<&BTreeMap<String, String>>,
    read: impl FnOnce(&BTreeMap<String, String>) -> Result<T, Vec<Finding>>,
) -> Result<Option<T>, Vec<Finding>> {
    let Some(reference) = reference else {
        return Ok(None);
    };
    let wrong = validate::config_map(field, reference);
    if !wrong.is_empty() {
        return Err(wrong);
    }
    match data {
        None => Err(vec![Finding::new(
            // A flag holds the name itself.
            if field.starts_with("--") {
                field.to_owned()
            } else {
                format!("{field}.name")
            },
            format!(
                "there is no ConfigMap {:?} in the namespace of this installation",
                reference.name
            ),
        )]),
        Some(data) => read(data).map(Some),
    }
}

/// The data of the ConfigMap that a spec names; `None` if it names none, or the ConfigMap does not
/// exist.
pub(crate) async fn data(
    cluster: &Cluster,
    reference: Option<&LocalReference>,
) -> Result<Option<BTreeMap<String, String>>, kube::Error> {
    // An invalid name counts as a missing ConfigMap; the API server would answer differently.
    let Some(name) = reference
        .map(|reference| reference.name.as_str())
        .filter(|name| is_object_name(name))
    else {
        return Ok(None);
    };
    let api: Api<ConfigMap> = cluster.api();
    let map = retry::read(RETRY_BUDGET, || api.get_opt(name)).await?;
    Ok(map.map(|map| map.data.unwrap_or_default()))
}

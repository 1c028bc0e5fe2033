//! ConfigMaps that people write for backups and restores, in the namespace of the installation.

use std::{collections::BTreeMap, time::Duration};

use backup_core::{api::common::LocalReference, names::is_object_name};
use backup_runtime::{Cluster, retry};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

const BUDGET: Duration = Duration::from_secs(30);

/// The data of the ConfigMap that a spec names; none if it names none, or there is none.
pub(crate) async fn data(
    cluster: &Cluster,
    reference: Option<&LocalReference>,
) -> Result<Option<BTreeMap<String, String>>, kube::Error> {
    // A name that no object can have is that of none; the API server would not say so.
    let Some(name) = reference.map(|reference| reference.name.as_str()).filter(|name| is_object_name(name))
    else {
        return Ok(None);
    };
    let api: Api<ConfigMap> = cluster.api();
    let map = retry::read(BUDGET, || api.get_opt(name)).await?;
    Ok(map.map(|map| map.data.unwrap_or_default()))
}

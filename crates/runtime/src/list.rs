//! Fresh lists, read page by page; only requested parts are kept.

use std::time::Duration;

use backup_client::{paging, retry};
use backup_core::api::NamespacedKind;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};

use crate::Cluster;

/// Time limit for the retries of one page.
const PAGE_BUDGET: Duration = Duration::from_secs(10);

/// Lists the objects of a kind in the namespace of the installation, all or those with some labels,
/// and keeps the results of `keep`. The objects are read as plain JSON, so that one that does not
/// fit the kind is included. The list is fresh: it comes from etcd, not from a cache. Errors: if a
/// page cannot be read within 10 s.
pub async fn raw<K: NamespacedKind, T>(
    cluster: &Cluster,
    selector: &str,
    keep: impl Fn(DynamicObject) -> Option<T>,
) -> Result<Vec<T>, kube::Error> {
    let api: &Api<DynamicObject> = &Api::namespaced_with(
        cluster.client.clone(),
        &cluster.namespace,
        &ApiResource::erase::<K>(&()),
    );
    let mut params = ListParams::default().limit(cluster.page_size);
    if !selector.is_empty() {
        params = params.labels(selector);
    }
    paging::collect(
        params,
        |page| async move { retry::read(PAGE_BUDGET, || api.list(&page)).await },
        keep,
    )
    .await
}

/// Decodes an object, delivered as plain JSON, as one of its kind.
pub fn decode<K: NamespacedKind>(object: &DynamicObject) -> serde_json::Result<K> {
    serde_json::from_value(serde_json::to_value(object)?)
}

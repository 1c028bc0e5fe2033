//! Deletes exactly one object, and no other with its name.

use backup_client::errors::{is_conflict, is_gone};
use backup_core::api::NamespacedKind;
use kube::{
    ResourceExt as _,
    api::{DeleteParams, Preconditions},
};

use crate::{Cluster, retry::WRITE_TIMEOUT};

/// Deletes an object of the installation, with its uid as precondition. Returns whether this call
/// deleted it: an object that is already gone is no error. Finalizers may still hold it afterwards.
pub async fn delete<K: NamespacedKind>(cluster: &Cluster, object: &K) -> Result<bool, kube::Error> {
    with(
        cluster,
        object,
        Preconditions {
            uid: object.uid(),
            resource_version: None,
        },
    )
    .await
}

/// Like [`delete`], with the resourceVersion as precondition, too: an object that has changed
/// meanwhile stays, without an error.
pub async fn delete_unchanged<K: NamespacedKind>(
    cluster: &Cluster,
    object: &K,
) -> Result<bool, kube::Error> {
    let preconditions = Preconditions {
        uid: object.uid(),
        resource_version: object.resource_version(),
    };
    with(cluster, object, preconditions).await
}

async fn with<K: NamespacedKind>(
    cluster: &Cluster,
    object: &K,
    preconditions: Preconditions,
) -> Result<bool, kube::Error> {
    let name = object.name_any();
    let params = DeleteParams::default().preconditions(preconditions);
    let api = cluster.api::<K>();
    match cluster
        .leadership
        .write(WRITE_TIMEOUT, api.delete(&name, &params))
        .await
    {
        Ok(_) => Ok(true),
        // A conflict: another object has the name, so ours is gone; or ours has changed since it
        // was read.
        Err(error) if is_gone(&error, &name) || is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

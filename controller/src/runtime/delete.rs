//! Deleting an object, that object and no other of its name.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, Preconditions},
};
use serde::de::DeserializeOwned;

use super::retry::{is_conflict, is_gone};
use crate::context::Context;

/// Deletes an object of the installation, with its uid as precondition. That it is gone already is success. Finalizers
/// may still hold it afterwards.
///
/// # Errors
/// If the API server could not be asked or refused.
pub async fn delete<K>(ctx: &Context, object: &K) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
{
    as_first(ctx, object).await.map(drop)
}

/// The same; whether it was this call that deleted it, and nobody before.
///
/// # Errors
/// If the API server could not be asked or refused.
pub async fn as_first<K>(ctx: &Context, object: &K) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
{
    with(ctx, object, Preconditions { uid: object.uid(), resource_version: None }).await
}

/// The same with the resourceVersion as precondition, too: an object that has changed meanwhile stays, without an error.
///
/// # Errors
/// If the API server could not be asked or refused.
pub async fn as_seen<K>(ctx: &Context, object: &K) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
{
    let preconditions = Preconditions { uid: object.uid(), resource_version: object.resource_version() };
    with(ctx, object, preconditions).await.map(drop)
}

async fn with<K>(ctx: &Context, object: &K, preconditions: Preconditions) -> Result<bool, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
{
    let name = object.name_any();
    let params = DeleteParams::default().preconditions(preconditions);
    match ctx.api::<K>().delete(&name, &params).await {
        Ok(_) => Ok(true),
        // A conflict: another object has the name, so ours is gone; or it is not what was seen.
        Err(error) if is_gone(&error, &name) || is_conflict(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

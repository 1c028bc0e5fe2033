//! Access to the objects of one installation.

use std::{fmt::Debug, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::{events::Events, leader::Leadership};

/// The API server, the namespace of the installation, and the right to write there. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// It does not retry by itself: see [`crate::retry`].
    pub client: Client,
    pub namespace: String,
    pub leadership: Leadership,
    pub events: Events,
    /// How long [`crate::retry::status_patch`] tries.
    pub patch_budget: Duration,
    pub page_size: u32,
}

/// A kind of objects that are in a namespace, known when this is compiled.
pub trait NamespacedKind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> NamespacedKind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

impl Cluster {
    /// The objects of a kind in the namespace of the installation.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

//! Access to the objects of one installation.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};

use crate::{events::Events, leader::Leadership};

/// The API server, the namespace of the installation, and the leadership needed to write there.
/// Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// It has no retries of its own: see [`crate::retry`].
    pub client: Client,
    pub namespace: String,
    pub leadership: Leadership,
    pub events: Events,
    /// Time limit for the retries of [`crate::retry::status_patch`].
    pub patch_budget: Duration,
    pub page_size: u32,
}

impl Cluster {
    /// The objects of a kind in the namespace of the installation.
    pub fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

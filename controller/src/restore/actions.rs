//! Built-in changes per kind: one file per topic. Source: Velero `pkg/restore/actions`, v1.18.

mod binding;
mod cluster;
mod job;
mod pod;
mod secret;
mod service;
mod service_account;
mod volume;

use super::{json::Object, transform::Rules};

/// Why an item of this kind is left out, or `None`.
pub fn skip_reason(item: &Object, group_resource: &str, rules: &Rules) -> Option<&'static str> {
    match group_resource {
        "pods" => pod::skip_reason(item),
        "jobs.batch" => job::skip_reason(item),
        "secrets" => secret::skip_reason(item),
        "configmaps" => cluster::skip_config_map(item),
        "apiservices.apiregistration.k8s.io" => cluster::skip_api_service(item),
        "persistentvolumes" => volume::skip_reason(item, rules),
        _ => None,
    }
}

/// Rewrites what is particular to the kind.
pub fn rewrite(item: &mut Object, group_resource: &str, rules: &Rules) {
    match group_resource {
        "pods" => pod::rewrite(item),
        "jobs.batch" => job::rewrite(item),
        "secrets" => secret::rewrite(item),
        "services" => service::rewrite(item, rules.preserve_node_ports),
        "serviceaccounts" => service_account::rewrite(item),
        "persistentvolumes" => volume::rewrite_volume(item, rules),
        "persistentvolumeclaims" => volume::rewrite_claim(item, rules),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            binding::rewrite(item, rules);
        }
        "namespaces" => cluster::rewrite_namespace(item, rules),
        "customresourcedefinitions.apiextensions.k8s.io" => cluster::rewrite_definition(item),
        _ => {}
    }
}

pub use volume::{is_kept as volume_is_kept, volume_of_claim};

//! Endpoints and EndpointSlices: the addresses of pods. Those managed by a controller for a Service
//! are skipped: addresses of the backup lead to pods that are gone, or to the pods of the original
//! of a copy. Those that a user wrote are restored.

use serde_json::Value;

use super::{
    json::{self, Object},
    rules::RestoreRules,
};

pub(crate) const SLICES: &str = "endpointslices.discovery.k8s.io";
/// The controllers of a cluster: one for Services with a selector, one for Endpoints that a user
/// wrote.
const SLICE_CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];
/// Since Kubernetes 1.33.
const CONTROLLER: &str = "endpoint-controller";

pub(crate) fn skip(item: &Object) -> Option<&'static str> {
    managed(item, "endpoints.kubernetes.io/managed-by", &[CONTROLLER])
}

pub(crate) fn skip_slice(item: &Object) -> Option<&'static str> {
    managed(
        item,
        "endpointslice.kubernetes.io/managed-by",
        &SLICE_CONTROLLERS,
    )
}

fn managed(item: &Object, label: &str, controllers: &[&str]) -> Option<&'static str> {
    json::text(item, &["metadata", "labels"], label)
        .is_some_and(|by| controllers.contains(&by))
        .then_some("the cluster makes it from its Service")
}

pub(crate) fn rewrite(item: &mut Object, rules: &RestoreRules) {
    let subsets = json::list_mut(item, &[], "subsets").into_iter().flatten();
    for subset in subsets.filter_map(Value::as_object_mut) {
        for addresses in ["addresses", "notReadyAddresses"] {
            follow(json::list_mut(subset, &[], addresses), rules);
        }
    }
}

pub(crate) fn rewrite_slice(item: &mut Object, rules: &RestoreRules) {
    follow(json::list_mut(item, &[], "endpoints"), rules);
}

/// Updates the `targetRef` of each address to the target namespace, and removes the old object's
/// uid from it.
fn follow(addresses: Option<&mut Vec<Value>>, rules: &RestoreRules) {
    for address in addresses
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        let Some(target) = json::object_mut(address, &["targetRef"]) else {
            continue;
        };
        target.remove("uid");
        target.remove("resourceVersion");
        let namespace =
            json::text(target, &[], "namespace").map(|source| rules.target(source).to_owned());
        if let Some(namespace) = namespace {
            target.insert("namespace".to_owned(), namespace.into());
        }
    }
}

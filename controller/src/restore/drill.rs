//! What a drill leaves out, and what it changes in items, so that it has no effects outside of its
//! scratch namespaces. Pure.

use backup_actions::restore::json::{self, Object};
use backup_core::{
    api::{DrillSettings, Restore},
    resources::CLAIMS,
};
use serde_json::{Map, Value, json};

/// Types whose objects have no effects outside of their namespace once they are isolated. Operators
/// act on custom resources, so these are not among them.
const ISOLATED_TYPES: [&str; 20] = [
    "configmaps",
    "controllerrevisions.apps",
    "cronjobs.batch",
    "daemonsets.apps",
    "deployments.apps",
    "endpoints",
    "endpointslices.discovery.k8s.io",
    "horizontalpodautoscalers.autoscaling",
    "jobs.batch",
    "leases.coordination.k8s.io",
    "limitranges",
    "poddisruptionbudgets.policy",
    "pods",
    "podtemplates",
    "replicasets.apps",
    "replicationcontrollers",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "secrets",
    "serviceaccounts",
];
const SERVICES: &str = "services";
const STATEFUL_SETS: &str = "statefulsets.apps";
const NETWORK_POLICIES: &str = "networkpolicies.networking.k8s.io";
const QUOTAS: &str = "resourcequotas";

/// Fields of a Service by which it is reached from outside of the cluster.
const OUTSIDE_FIELDS: [&str; 7] = [
    "allocateLoadBalancerNodePorts",
    "externalIPs",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "loadBalancerClass",
    "loadBalancerIP",
    "loadBalancerSourceRanges",
];
/// Prefix of annotations by which names are published outside of the cluster.
const PUBLISHED_NAMES: &str = "external-dns.alpha.kubernetes.io/";
/// Volumes of pods that a claim is made for, or that need one.
const CLAIMED_VOLUMES: [&str; 2] = ["ephemeral", "persistentVolumeClaim"];

/// The rules of a drill for items.
#[derive(Clone, Copy, Debug)]
pub(super) struct Isolation<'a>(&'a DrillSettings);

impl<'a> Isolation<'a> {
    /// `None` if the Restore is no drill.
    pub(super) fn of(restore: &'a Restore) -> Option<Self> {
        let drill = restore.spec.drill.as_ref()?;
        Some(Self(&drill.settings))
    }

    pub(super) fn settings(self) -> &'a DrillSettings {
        self.0
    }

    /// Why an item of this type is left out; `None` if it is restored. A plugin may ask for an item
    /// that no filter selects.
    pub(super) fn left_out(
        self,
        group_resource: &str,
        namespace: Option<&str>,
    ) -> Option<&'static str> {
        if namespace.is_none() {
            return Some("a drill restores nothing that is cluster-scoped");
        }
        let is_isolated = ISOLATED_TYPES.contains(&group_resource)
            || [SERVICES, STATEFUL_SETS].contains(&group_resource);
        let named = &self.0.additional_resources;
        if is_isolated || named.iter().any(|name| name == group_resource) {
            return None;
        }
        Some(match group_resource {
            CLAIMS => "a drill restores no volumes: its pods get empty ones",
            NETWORK_POLICIES => "a drill has a policy of its own, which allows less",
            QUOTAS => "a drill has a quota of its own",
            _ => "a drill leaves out types that may have effects outside of its namespaces",
        })
    }
}

/// Changes an item so that it has no effects outside of its namespace. Idempotent.
pub(super) fn isolate(object: &mut Object) {
    let api_version = json::text(object, &[], "apiVersion").unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = json::text(object, &[], "kind").unwrap_or_default();
    match (group, kind) {
        ("", "Service") => isolate_service(object),
        ("", "Pod") => empty_volumes(object, &["spec"]),
        ("", "PodTemplate") => empty_volumes(object, &["template", "spec"]),
        ("", "ReplicationController") | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet") => {
            empty_volumes(object, &["spec", "template", "spec"]);
        }
        ("apps", "StatefulSet") => isolate_stateful_set(object),
        ("batch", "Job") => {
            json::set(object, &["spec"], "suspend", Value::Bool(true));
            empty_volumes(object, &["spec", "template", "spec"]);
        }
        ("batch", "CronJob") => {
            json::set(object, &["spec"], "suspend", Value::Bool(true));
            let of_pods = ["spec", "jobTemplate", "spec", "template", "spec"];
            empty_volumes(object, &of_pods);
        }
        _ => {}
    }
}

fn isolate_service(service: &mut Object) {
    if let Some(annotations) = inner(service, &["metadata", "annotations"]) {
        annotations.retain(|name, _| !name.starts_with(PUBLISHED_NAMES));
    }
    let Some(spec) = inner(service, &["spec"]) else {
        return;
    };
    if let Some(Value::String(of_type)) = spec.get_mut("type")
        && ["LoadBalancer", "NodePort"].contains(&of_type.as_str())
    {
        "ClusterIP".clone_into(of_type);
    }
    for field in OUTSIDE_FIELDS {
        spec.remove(field);
    }
    for port in list(spec, "ports") {
        port.remove("nodePort");
    }
}

/// The claims that it would make become empty volumes of its pods.
fn isolate_stateful_set(set: &mut Object) {
    let templates = inner(set, &["spec"]).and_then(|spec| spec.remove("volumeClaimTemplates"));
    let names: Vec<String> = templates
        .iter()
        .filter_map(Value::as_array)
        .flatten()
        .filter_map(|template| Some(template["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    let of_pods = ["spec", "template", "spec"];
    if !names.is_empty()
        && let Some(spec) = inner(set, &of_pods)
    {
        let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            // The volume of a template takes the place of one with its name.
            volumes.retain(|one| !names.iter().any(|name| one["name"] == name.as_str()));
            volumes.extend(names.iter().map(|name| empty_volume(name)));
        }
        remove_devices(spec, &names);
    }
    empty_volumes(set, &of_pods);
}

/// Replaces volumes that need a claim by empty ones, in the spec of pods at this path.
fn empty_volumes(object: &mut Object, path: &[&str]) {
    let Some(spec) = inner(object, path) else {
        return;
    };
    let mut emptied = Vec::new();
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let is_claimed = CLAIMED_VOLUMES.iter().any(|kind| !volume[*kind].is_null());
        if is_claimed && let Some(name) = volume["name"].as_str().map(str::to_owned) {
            *volume = empty_volume(&name);
            emptied.push(name);
        }
    }
    remove_devices(spec, &emptied);
}

fn empty_volume(name: &str) -> Value {
    json!({ "name": name, "emptyDir": {} })
}

/// Removes these volumes from the block devices of containers: an empty volume is none.
fn remove_devices(spec: &mut Object, volumes: &[String]) {
    for containers in ["containers", "initContainers"] {
        for container in list(spec, containers) {
            if let Some(Value::Array(devices)) = container.get_mut("volumeDevices") {
                devices.retain(|one| !volumes.iter().any(|name| one["name"] == name.as_str()));
            }
        }
    }
}

/// The object at this path.
fn inner<'a>(object: &'a mut Object, path: &[&str]) -> Option<&'a mut Object> {
    let mut here = object;
    for step in path {
        here = here.get_mut(*step)?.as_object_mut()?;
    }
    Some(here)
}

/// The objects in a list.
fn list<'a>(
    object: &'a mut Object,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> + use<'a> {
    let items = object.get_mut(key).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)] // tables read better with values

    use rstest::rstest;

    use super::*;

    fn drill(additional: &[&str]) -> Restore {
        let spec = json!({ "drill": { "additionalResources": additional } });
        Restore::new("r", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn what_may_have_effects_elsewhere_is_left_out_unless_it_is_named() {
        let restore = drill(&["certificates.cert-manager.io"]);
        let isolation = Isolation::of(&restore).unwrap();
        for restored in [
            "configmaps",
            "services",
            "statefulsets.apps",
            "cronjobs.batch",
            "certificates.cert-manager.io",
        ] {
            assert_eq!(isolation.left_out(restored, Some("a")), None, "{restored}");
        }
        for (left_out, why) in [
            ("persistentvolumeclaims", "no volumes"),
            ("networkpolicies.networking.k8s.io", "policy of its own"),
            ("resourcequotas", "quota of its own"),
            ("ingresses.networking.k8s.io", "effects outside"),
            ("gateways.gateway.networking.k8s.io", "effects outside"),
            ("issuers.cert-manager.io", "effects outside"),
            ("volumesnapshots.snapshot.storage.k8s.io", "effects outside"),
        ] {
            assert_says!(isolation.left_out(left_out, Some("a")).unwrap(), why);
        }
        let role = isolation.left_out("clusterroles.rbac.authorization.k8s.io", None);
        assert_says!(role.unwrap(), "cluster-scoped");
        let other = Restore::default();
        assert!(Isolation::of(&other).is_none());
    }

    #[test]
    fn the_types_are_sorted() {
        assert!(ISOLATED_TYPES.is_sorted());
    }

    #[rstest]
    #[case::balanced(
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "annotations": {
                "external-dns.alpha.kubernetes.io/hostname": "shop.example.com", "team": "a" } },
            "spec": { "type": "LoadBalancer", "loadBalancerIP": "192.0.2.1", "externalIPs": ["192.0.2.2"],
                "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001, "ports": [{ "port": 80, "nodePort": 30000 }] } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "annotations": { "team": "a" } },
            "spec": { "type": "ClusterIP", "ports": [{ "port": 80 }] } })
    )]
    #[case::headless(
        json!({ "apiVersion": "v1", "kind": "Service", "spec": { "clusterIP": "None" } }),
        json!({ "apiVersion": "v1", "kind": "Service", "spec": { "clusterIP": "None" } })
    )]
    #[case::job(
        json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": { "suspend": false } }),
        json!({ "apiVersion": "batch/v1", "kind": "Job", "spec": { "suspend": true } })
    )]
    #[case::cron_job(
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "spec": { "schedule": "@daily" } }),
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "spec": { "schedule": "@daily", "suspend": true } })
    )]
    #[case::pod_with_volumes(
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "volumes": [
                { "name": "data", "persistentVolumeClaim": { "claimName": "data" } }, { "name": "own", "ephemeral": {} },
                { "name": "settings", "configMap": { "name": "settings" } }],
            "containers": [{ "name": "c", "volumeDevices": [{ "name": "data", "devicePath": "/dev/x" }] }] } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "volumes": [
                { "name": "data", "emptyDir": {} }, { "name": "own", "emptyDir": {} },
                { "name": "settings", "configMap": { "name": "settings" } }],
            "containers": [{ "name": "c", "volumeDevices": [] }] } })
    )]
    #[case::deployment(
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": { "volumes": [
            { "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } } } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": { "template": { "spec": { "volumes": [
            { "name": "data", "emptyDir": {} }] } } } })
    )]
    #[case::stateful_set(
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
            "volumeClaimTemplates": [{ "metadata": { "name": "data" } }],
            "template": { "spec": { "volumes": [{ "name": "tmp", "emptyDir": {} }],
                "containers": [{ "name": "c", "volumeDevices": [{ "name": "data" }, { "name": "other" }] }] } } } }),
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
            "template": { "spec": { "volumes": [{ "name": "tmp", "emptyDir": {} }, { "name": "data", "emptyDir": {} }],
                "containers": [{ "name": "c", "volumeDevices": [{ "name": "other" }] }] } } } })
    )]
    #[case::stateful_set_without_volumes(
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
            "volumeClaimTemplates": [{ "metadata": { "name": "data" } }], "template": { "spec": {} } } }),
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {
            "template": { "spec": { "volumes": [{ "name": "data", "emptyDir": {} }] } } } })
    )]
    #[case::of_another_group(
        json!({ "apiVersion": "serving.knative.dev/v1", "kind": "Service", "spec": { "type": "LoadBalancer" } }),
        json!({ "apiVersion": "serving.knative.dev/v1", "kind": "Service", "spec": { "type": "LoadBalancer" } })
    )]
    #[case::malformed(
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "volumes": {}, "containers": [1] } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "volumes": {}, "containers": [1] } })
    )]
    fn an_item_is_kept_within_its_namespace(#[case] item: Value, #[case] expected: Value) {
        let mut object = item.as_object().unwrap().clone();
        for _ in 0..2 {
            isolate(&mut object);
            assert_eq!(Value::Object(object.clone()), expected);
        }
    }
}

//! What a drill leaves out, and what it changes in items, so that it has no effects outside of its
//! scratch namespaces. Pure.

pub(super) mod volumes;

use std::collections::BTreeSet;

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
pub(super) struct Isolation<'a> {
    restore: &'a Restore,
    settings: &'a DrillSettings,
}

impl<'a> Isolation<'a> {
    /// `None` if the Restore is no drill.
    pub(super) fn of(restore: &'a Restore) -> Option<Self> {
        let drill = restore.spec.drill.as_ref()?;
        Some(Self {
            restore,
            settings: &drill.settings,
        })
    }

    pub(super) fn settings(self) -> &'a DrillSettings {
        self.settings
    }

    /// Why an item of this type is left out; `None` if it is restored. A plugin may ask for an item
    /// that no filter selects.
    pub(super) fn left_out(
        self,
        group_resource: &str,
        namespace: Option<&str>,
    ) -> Option<&'static str> {
        if self.settings.volumes && volumes::brings_data(group_resource, namespace) {
            return None;
        }
        if namespace.is_none() {
            return Some("a drill restores nothing that is cluster-scoped");
        }
        let is_isolated = ISOLATED_TYPES.contains(&group_resource)
            || [SERVICES, STATEFUL_SETS].contains(&group_resource);
        let named = &self.settings.additional_resources;
        if is_isolated || named.iter().any(|name| name == group_resource) {
            return None;
        }
        Some(match group_resource {
            CLAIMS => {
                "a drill without spec.drill.volumes restores no volumes: its pods get empty ones"
            }
            NETWORK_POLICIES => "a drill has a policy of its own, which allows less",
            QUOTAS => "a drill has a quota of its own",
            _ => "a drill leaves out types that may have effects outside of its namespaces",
        })
    }

    /// Why this object is not created although its type is restored; `None` if it is created.
    pub(super) fn refuses(self, group_resource: &str, object: &Object) -> Option<&'static str> {
        volumes::refusal(group_resource, object, self.restore)
    }

    /// Changes an item so that it has no effects outside of its namespace. `claims` are the claims
    /// that are restored with their data into that namespace, `own` is the namespace of the
    /// installation. Idempotent.
    pub(super) fn isolate(self, object: &mut Object, claims: &BTreeSet<&str>, own: &str) {
        let api_version = json::text(object, &[], "apiVersion").unwrap_or_default();
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let kind = json::text(object, &[], "kind").unwrap_or_default();
        match (group, kind) {
            ("", "Service") => isolate_service(object),
            ("", "Pod") => empty_volumes(object, &["spec"], claims),
            ("", "PodTemplate") => empty_volumes(object, &["template", "spec"], claims),
            ("", "ReplicationController") | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet") => {
                empty_volumes(object, &["spec", "template", "spec"], claims);
            }
            ("apps", "StatefulSet") => isolate_stateful_set(object, claims),
            ("batch", "Job") => {
                json::set(object, &["spec"], "suspend", Value::Bool(true));
                empty_volumes(object, &["spec", "template", "spec"], claims);
            }
            ("batch", "CronJob") => {
                json::set(object, &["spec"], "suspend", Value::Bool(true));
                let of_pods = ["spec", "jobTemplate", "spec", "template", "spec"];
                empty_volumes(object, &of_pods, claims);
            }
            ("snapshot.storage.k8s.io", "VolumeSnapshotContent") => {
                volumes::isolate_content(object, self.restore, own);
            }
            _ => {}
        }
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

/// The claims that it would make become empty volumes of its pods, unless those of all its pods are
/// restored with their data.
fn isolate_stateful_set(set: &mut Object, claims: &BTreeSet<&str>) {
    let own = volumes::PodClaims::of(set);
    let templates = inner(set, &["spec"]).and_then(|spec| spec.remove("volumeClaimTemplates"));
    let templates = templates.iter().filter_map(Value::as_array).flatten();
    let (kept, emptied): (Vec<&Value>, Vec<&Value>) =
        templates.partition(|template| own.are_all_in(claims, template));
    let names: Vec<String> = emptied
        .into_iter()
        .filter_map(|template| Some(template["metadata"]["name"].as_str()?.to_owned()))
        .collect();
    if !kept.is_empty() {
        json::set(set, &["spec"], "volumeClaimTemplates", json!(kept));
    }
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
    empty_volumes(set, &of_pods, claims);
}

/// Replaces volumes that need a claim by empty ones, in the spec of pods at this path; those of
/// these claims stay.
fn empty_volumes(object: &mut Object, path: &[&str], claims: &BTreeSet<&str>) {
    let Some(spec) = inner(object, path) else {
        return;
    };
    let mut emptied = Vec::new();
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
        let is_restored = claim.is_some_and(|claim| claims.contains(claim));
        let is_claimed = CLAIMED_VOLUMES.iter().any(|kind| !volume[*kind].is_null());
        if is_claimed
            && !is_restored
            && let Some(name) = volume["name"].as_str().map(str::to_owned)
        {
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
    fn a_drill_of_volumes_restores_claims_and_their_snapshots() {
        let spec = json!({ "drill": { "volumes": true } });
        let restore = Restore::new("r", serde_json::from_value(spec).unwrap());
        let isolation = Isolation::of(&restore).unwrap();
        let [snapshots, contents] = ["volumesnapshots", "volumesnapshotcontents"]
            .map(|plural| format!("{plural}.snapshot.storage.k8s.io"));
        for (restored, namespace) in [
            (CLAIMS, Some("a")),
            (snapshots.as_str(), Some("a")),
            (contents.as_str(), None),
        ] {
            assert_eq!(isolation.left_out(restored, namespace), None, "{restored}");
        }
        for left_out in ["persistentvolumes", "storageclasses.storage.k8s.io"] {
            assert_says!(
                isolation.left_out(left_out, None).unwrap(),
                "cluster-scoped"
            );
        }
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
        isolated(item, &[], &expected);
    }

    /// Checks what becomes of an item where these claims are restored.
    fn isolated(item: Value, claims: &[&str], expected: &Value) {
        let restore = drill(&[]);
        let isolation = Isolation::of(&restore).unwrap();
        let claims = claims.iter().copied().collect();
        let mut object = item.as_object().unwrap().clone();
        for _ in 0..2 {
            isolation.isolate(&mut object, &claims, "velero");
            assert_eq!(Value::Object(object.clone()), *expected);
        }
    }

    #[test]
    fn claims_that_are_restored_stay_in_pods() {
        let claim =
            |name: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
        let empty = |name: &str| json!({ "name": name, "emptyDir": {} });
        let pod = |logs: Value, devices: Value| {
            json!({ "apiVersion": "v1", "kind": "Pod", "spec": { "volumes": [claim("data"), logs],
                "containers": [{ "name": "c", "volumeDevices": devices }] } })
        };
        let all = json!([{ "name": "data" }, { "name": "logs" }]);
        let expected = pod(empty("logs"), json!([{ "name": "data" }]));
        isolated(pod(claim("logs"), all), &["data"], &expected);
    }

    #[test]
    fn a_stateful_set_makes_only_claims_that_are_restored() {
        let template = |name: &str| json!({ "metadata": { "name": name } });
        let set = |templates: Value, volumes: Value| {
            json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
                "spec": { "replicas": 2, "volumeClaimTemplates": templates,
                    "template": { "spec": { "volumes": volumes } } } })
        };
        let item = set(json!([template("data"), template("logs")]), json!([]));
        let expected = set(
            json!([template("data")]),
            json!([{ "name": "logs", "emptyDir": {} }]),
        );
        let claims = ["data-db-0", "data-db-1", "logs-db-0"];
        isolated(item, &claims, &expected);
    }
}

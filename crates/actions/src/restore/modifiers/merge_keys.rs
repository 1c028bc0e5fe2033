//! The lists of Kubernetes' own types that a strategic merge patch merges, and their merge keys:
//! `x-kubernetes-patch-merge-key` and `x-kubernetes-patch-strategy` in the OpenAPI documents
//! (1.33). Every other list is replaced.

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListMerge {
    /// Its items are objects, identified by this field.
    Key(&'static str),
    /// Its items are unique values.
    Values,
}

use ListMerge::{Key, Values};

/// API groups whose types are covered here.
const GROUPS: [&str; 19] = [
    "",
    "admissionregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Fields of `metadata`, at any depth.
const METADATA: [(&str, ListMerge); 2] = [("ownerReferences", Key("uid")), ("finalizers", Values)];

/// Fields of a pod's spec.
const POD: [(&str, ListMerge); 9] = [
    ("containers", Key("name")),
    ("initContainers", Key("name")),
    ("ephemeralContainers", Key("name")),
    ("volumes", Key("name")),
    ("imagePullSecrets", Key("name")),
    ("hostAliases", Key("ip")),
    ("topologySpreadConstraints", Key("topologyKey")),
    ("resourceClaims", Key("name")),
    ("schedulingGates", Key("name")),
];

/// Fields of a container.
const CONTAINER: [(&str, ListMerge); 4] = [
    ("ports", Key("containerPort")),
    ("env", Key("name")),
    ("volumeMounts", Key("mountPath")),
    ("volumeDevices", Key("devicePath")),
];

/// Fields of a single kind.
const KINDS: [(&str, &str, ListMerge); 12] = [
    ("Service", "spec.ports", Key("port")),
    ("ServiceAccount", "secrets", Key("name")),
    ("MutatingWebhookConfiguration", "webhooks", Key("name")),
    (
        "MutatingWebhookConfiguration",
        "webhooks.matchConditions",
        Key("name"),
    ),
    ("ValidatingWebhookConfiguration", "webhooks", Key("name")),
    (
        "ValidatingWebhookConfiguration",
        "webhooks.matchConditions",
        Key("name"),
    ),
    (
        "ValidatingAdmissionPolicy",
        "spec.matchConditions",
        Key("name"),
    ),
    ("ValidatingAdmissionPolicy", "spec.variables", Key("name")),
    (
        "MutatingAdmissionPolicy",
        "spec.matchConditions",
        Key("name"),
    ),
    ("MutatingAdmissionPolicy", "spec.variables", Key("name")),
    ("CSINode", "spec.drivers", Key("name")),
    ("Node", "spec.podCIDRs", Values),
];

/// Whether this API group is covered.
pub(super) fn is_known(api_version: &str) -> bool {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    GROUPS.contains(&group)
}

/// How the list at a path in an object of this kind is merged; `None` if it is replaced. Paths have
/// no indices: `spec.containers.env`.
pub(super) fn of(kind: &str, path: &str) -> Option<ListMerge> {
    if let Some((parent, last)) = path.rsplit_once('.')
        && (parent == "metadata" || parent.ends_with(".metadata"))
    {
        return find(&METADATA, last);
    }
    let pod = match kind {
        "Pod" => "spec.",
        "PodTemplate" => "template.spec.",
        "CronJob" => "spec.jobTemplate.spec.template.spec.",
        _ => "spec.template.spec.",
    };
    if let Some(in_pod) = path.strip_prefix(pod)
        && makes_pods(kind)
    {
        return match in_pod.split_once('.') {
            None => find(&POD, in_pod),
            Some(("containers" | "initContainers" | "ephemeralContainers", inside)) => {
                find(&CONTAINER, inside)
            }
            Some(_) => None,
        };
    }
    KINDS
        .iter()
        .find(|(of, at, _)| *of == kind && *at == path)
        .map(|(_, _, merge)| *merge)
}

/// Whether the object at a path is replaced instead of merged.
pub(super) fn is_replaced(kind: &str, path: &str) -> bool {
    (kind, path) == ("PodDisruptionBudget", "spec.selector")
}

fn makes_pods(kind: &str) -> bool {
    let kinds = [
        "Pod",
        "PodTemplate",
        "CronJob",
        "Job",
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "ReplicationController",
    ];
    kinds.contains(&kind)
}

fn find(table: &[(&str, ListMerge)], name: &str) -> Option<ListMerge> {
    table
        .iter()
        .find(|(of, _)| *of == name)
        .map(|(_, merge)| *merge)
}

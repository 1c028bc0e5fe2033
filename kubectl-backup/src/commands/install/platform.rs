//! The platform of a cluster, and what its nodes are for. Pure.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;

/// A platform whose clusters have something in common that an installation depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    Eks,
    Gke,
    GkeAutopilot,
    Aks,
    OpenShift,
    K3s,
    Kind,
    Other,
}

/// Platforms by a part of the version that their API servers report.
const BY_VERSION: [(&str, Platform); 3] = [
    ("-eks-", Platform::Eks),
    ("-gke.", Platform::Gke),
    ("+k3s", Platform::K3s),
];
/// Prefix of the names of nodes that GKE Autopilot makes.
const AUTOPILOT_NODE: &str = "gk3-";
/// Label of nodes of AKS.
const AKS_LABEL: &str = "kubernetes.azure.com/cluster";
/// Prefix of the provider ID of nodes of kind.
const KIND_PROVIDER: &str = "kind://";
/// Label of nodes of EKS Auto Mode, and its value. Pods there have addresses of the VPC, which no
/// DaemonSet shows.
const EKS_COMPUTE_LABEL: &str = "eks.amazonaws.com/compute-type";
const EKS_AUTO: &str = "auto";
const CONTROL_PLANE_LABELS: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
const OS_LABEL: &str = "kubernetes.io/os";
/// Prefixes of taints by which Kubernetes marks a state of the node that passes, such as a drain.
const PASSING_TAINTS: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

impl Platform {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Eks => "EKS",
            Self::Gke => "GKE",
            Self::GkeAutopilot => "GKE Autopilot",
            Self::Aks => "AKS",
            Self::OpenShift => "OpenShift",
            Self::K3s => "k3s",
            Self::Kind => "kind",
            Self::Other => "an unknown platform",
        }
    }

    /// Recognizes the platform. OpenShift goes first, as it also runs on the machines of clouds;
    /// nodes go before the version, as Autopilot has the version of GKE.
    pub(super) fn of(version: &str, nodes: &[NodeFacts], is_openshift: bool) -> Self {
        if is_openshift {
            return Self::OpenShift;
        }
        let of_version = BY_VERSION
            .iter()
            .find(|(part, _)| version.contains(part))
            .map(|(_, platform)| *platform);
        let of_nodes = nodes.iter().find_map(|node| node.platform);
        of_nodes.or(of_version).unwrap_or(Self::Other)
    }
}

/// The facts about a node that choices depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// Whether pods of the programs can be scheduled there, unless a state that passes keeps them
    /// away.
    pub(super) takes_pods: bool,
    pub(super) is_control_plane: bool,
    /// Whether its pods certainly have addresses of the VPC of EKS.
    pub(super) is_in_vpc: bool,
    /// The platform that its fields show.
    pub(super) platform: Option<Platform>,
}

impl NodeFacts {
    pub(super) fn of(node: &Node) -> Self {
        let labels = node.labels();
        let spec = node.spec.as_ref();
        let mut taints = spec
            .and_then(|spec| spec.taints.as_ref())
            .into_iter()
            .flatten();
        let is_tainted = taints.any(|taint| {
            let is_passing = PASSING_TAINTS
                .iter()
                .any(|prefix| taint.key.starts_with(prefix));
            taint.effect != "PreferNoSchedule" && !is_passing
        });
        let is_linux = labels.get(OS_LABEL).is_some_and(|os| os == "linux");
        let provider = spec.and_then(|spec| spec.provider_id.as_deref());
        let platform = if provider.is_some_and(|id| id.starts_with(KIND_PROVIDER)) {
            Some(Platform::Kind)
        } else if labels.contains_key(AKS_LABEL) {
            Some(Platform::Aks)
        } else if node.name_any().starts_with(AUTOPILOT_NODE) {
            Some(Platform::GkeAutopilot)
        } else {
            None
        };
        Self {
            takes_pods: is_linux && !is_tainted,
            is_control_plane: CONTROL_PLANE_LABELS
                .iter()
                .any(|label| labels.contains_key(*label)),
            is_in_vpc: labels
                .get(EKS_COMPUTE_LABEL)
                .is_some_and(|kind| kind == EKS_AUTO),
            platform,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(over: &Value) -> NodeFacts {
        let mut node = json!({ "metadata": { "name": "a", "labels": { OS_LABEL: "linux" } } });
        json_patch::merge(&mut node, over);
        NodeFacts::of(&serde_json::from_value(node).unwrap())
    }

    fn tainted(key: &str, effect: &str) -> bool {
        let taint = json!({ "key": key, "effect": effect });
        !node(&json!({ "spec": { "taints": [taint] } })).takes_pods
    }

    #[test]
    fn nodes_that_never_take_pods_do_not_count() {
        assert!(node(&json!({})).takes_pods);
        let windows = json!({ "metadata": { "labels": { OS_LABEL: "windows" } } });
        assert!(!node(&windows).takes_pods);
        for (key, effect, expected) in [
            (CONTROL_PLANE_LABELS[0], "NoSchedule", true),
            ("nvidia.com/gpu", "NoExecute", true),
            ("nvidia.com/gpu", "PreferNoSchedule", false),
            ("node.kubernetes.io/unschedulable", "NoSchedule", false),
            ("node.kubernetes.io/not-ready", "NoExecute", false),
        ] {
            assert_eq!(tainted(key, effect), expected, "{key}:{effect}");
        }
    }

    #[test]
    fn a_node_shows_the_platform_by_its_fields() {
        for (over, expected) in [
            (json!({}), None),
            (
                json!({ "spec": { "providerID": "kind://docker/kind/kind-control-plane" } }),
                Some(Platform::Kind),
            ),
            (
                json!({ "metadata": { "labels": { AKS_LABEL: "MC_rg_one_westeurope" } } }),
                Some(Platform::Aks),
            ),
            (
                json!({ "metadata": { "name": "gk3-one-pool-2-8dfdba9e-p4zv" } }),
                Some(Platform::GkeAutopilot),
            ),
            (
                json!({ "spec": { "providerID": "aws:///eu-central-1a/i-0aa" } }),
                None,
            ),
        ] {
            assert_eq!(node(&over).platform, expected, "{over}");
        }
    }

    #[test]
    fn the_platform_is_recognized_by_version_nodes_and_definitions() {
        let kind = NodeFacts {
            platform: Some(Platform::Kind),
            ..NodeFacts::default()
        };
        let autopilot = NodeFacts {
            platform: Some(Platform::GkeAutopilot),
            ..NodeFacts::default()
        };
        let none: &[NodeFacts] = &[];
        for (version, nodes, is_openshift, expected) in [
            ("v1.33.4-eks-ba24e9c", none, false, Platform::Eks),
            ("v1.33.2-gke.1240000", none, false, Platform::Gke),
            (
                "v1.33.2-gke.1240000",
                &[autopilot],
                false,
                Platform::GkeAutopilot,
            ),
            ("v1.33.1+k3s1", none, false, Platform::K3s),
            ("v1.34.0", &[kind], false, Platform::Kind),
            ("v1.31.9+38674d3", none, true, Platform::OpenShift),
            ("v1.34.4", none, false, Platform::Other),
            ("", none, false, Platform::Other),
        ] {
            assert_eq!(
                Platform::of(version, nodes, is_openshift),
                expected,
                "{version}"
            );
        }
    }
}

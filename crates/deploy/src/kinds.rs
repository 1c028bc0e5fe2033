//! The installed kinds: their API paths, and the order of installation and removal.

/// Stages of an installation, in this order. Removal starts with the registrations, so that no
/// creation waits for a webhook that is gone, continues with policies and programs, and ends with
/// rights: a program needs them until it has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Namespace and definitions.
    Once,
    /// Accounts, permissions, and priorities of the programs.
    Rights,
    /// Admission policies.
    Policies,
    /// Workloads and related objects.
    Programs,
    /// Registrations of the webhook, once a replica can answer.
    Registrations,
}

impl Stage {
    /// All stages, in the order of installation.
    pub const ALL: [Self; 5] = [
        Self::Once,
        Self::Rights,
        Self::Policies,
        Self::Programs,
        Self::Registrations,
    ];
    /// The stages in the order of removal.
    pub const REMOVAL: [Self; 4] = [
        Self::Registrations,
        Self::Policies,
        Self::Programs,
        Self::Rights,
    ];

    /// Its name in progress messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "definitions",
            Self::Rights => "rights",
            Self::Policies => "policies",
            Self::Programs => "programs",
            Self::Registrations => "registrations",
        }
    }
}

/// An installed kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Name of the kind, such as `Deployment`.
    pub kind: &'static str,
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version in the group.
    pub version: &'static str,
    /// Name in paths, such as `deployments`.
    pub plural: &'static str,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The stage in which it is applied.
    pub stage: Stage,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

/// All kinds of `deploy/`.
pub const KINDS: [Kind; 20] = [
    of("Namespace", "", "v1", "namespaces", false, Stage::Once),
    of(
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        false,
        Stage::Once,
    ),
    of(
        "ServiceAccount",
        "",
        "v1",
        "serviceaccounts",
        true,
        Stage::Rights,
    ),
    of("Role", RBAC, "v1", "roles", true, Stage::Rights),
    of(
        "RoleBinding",
        RBAC,
        "v1",
        "rolebindings",
        true,
        Stage::Rights,
    ),
    of(
        "ClusterRole",
        RBAC,
        "v1",
        "clusterroles",
        false,
        Stage::Rights,
    ),
    of(
        "ClusterRoleBinding",
        RBAC,
        "v1",
        "clusterrolebindings",
        false,
        Stage::Rights,
    ),
    of(
        "PriorityClass",
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        false,
        Stage::Rights,
    ),
    of(
        "PriorityLevelConfiguration",
        FLOW,
        "v1",
        "prioritylevelconfigurations",
        false,
        Stage::Rights,
    ),
    of(
        "FlowSchema",
        FLOW,
        "v1",
        "flowschemas",
        false,
        Stage::Rights,
    ),
    of(
        "ValidatingAdmissionPolicy",
        ADMISSION,
        "v1",
        "validatingadmissionpolicies",
        false,
        Stage::Policies,
    ),
    of(
        "ValidatingAdmissionPolicyBinding",
        ADMISSION,
        "v1",
        "validatingadmissionpolicybindings",
        false,
        Stage::Policies,
    ),
    of(
        "Deployment",
        "apps",
        "v1",
        "deployments",
        true,
        Stage::Programs,
    ),
    of("Service", "", "v1", "services", true, Stage::Programs),
    of(
        "PodDisruptionBudget",
        "policy",
        "v1",
        "poddisruptionbudgets",
        true,
        Stage::Programs,
    ),
    of("ConfigMap", "", "v1", "configmaps", true, Stage::Programs),
    of(
        "NetworkPolicy",
        "networking.k8s.io",
        "v1",
        "networkpolicies",
        true,
        Stage::Programs,
    ),
    of(
        "PrometheusRule",
        "monitoring.coreos.com",
        "v1",
        "prometheusrules",
        true,
        Stage::Programs,
    ),
    of(
        "PodMonitor",
        "monitoring.coreos.com",
        "v1",
        "podmonitors",
        true,
        Stage::Programs,
    ),
    of(
        "ValidatingWebhookConfiguration",
        ADMISSION,
        "v1",
        "validatingwebhookconfigurations",
        false,
        Stage::Registrations,
    ),
];

const fn of(
    kind: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    namespaced: bool,
    stage: Stage,
) -> Kind {
    Kind {
        kind,
        group,
        version,
        plural,
        namespaced,
        stage,
    }
}

/// The kind with this name; `None` if it is not installed.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.kind == name)
}

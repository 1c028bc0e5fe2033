//! The kinds that are installed: where they are in the API, and in which order they come and go.

/// When an object is applied, in this order. Removal begins at the registrations, so that no creation hangs on a webhook that is
/// gone, goes on with policies and programs, and ends with rights: a program that stops still needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Namespace and definitions.
    Once,
    /// Accounts, rights, and places of the programs.
    Rights,
    /// Admission policies.
    Policies,
    /// Workloads and what belongs to them.
    Programs,
    /// Registrations of the webhook, when a replica can answer.
    Registrations,
}

impl Stage {
    /// In the order in which they are applied.
    pub const ALL: [Self; 5] =
        [Self::Once, Self::Rights, Self::Policies, Self::Programs, Self::Registrations];
    /// In the order in which they are removed.
    pub const REMOVAL: [Self; 4] = [Self::Registrations, Self::Policies, Self::Programs, Self::Rights];

    /// What it is called where progress is shown.
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

/// A kind that is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Such as `Deployment`.
    pub kind: &'static str,
    /// Group of the API; empty for the core.
    pub group: &'static str,
    /// Version in the group.
    pub version: &'static str,
    /// Name in paths, such as `deployments`.
    pub plural: &'static str,
    /// Whether its objects lie in a namespace.
    pub namespaced: bool,
    /// When it is applied.
    pub stage: Stage,
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const FLOW: &str = "flowcontrol.apiserver.k8s.io";

/// All kinds of `deploy/`.
pub const KINDS: [Kind; 19] = [
    of("Namespace", "", "v1", "namespaces", false, Stage::Once),
    of(
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        false,
        Stage::Once,
    ),
    of("ServiceAccount", "", "v1", "serviceaccounts", true, Stage::Rights),
    of("Role", RBAC, "v1", "roles", true, Stage::Rights),
    of("RoleBinding", RBAC, "v1", "rolebindings", true, Stage::Rights),
    of("ClusterRole", RBAC, "v1", "clusterroles", false, Stage::Rights),
    of("ClusterRoleBinding", RBAC, "v1", "clusterrolebindings", false, Stage::Rights),
    of("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", false, Stage::Rights),
    of("PriorityLevelConfiguration", FLOW, "v1", "prioritylevelconfigurations", false, Stage::Rights),
    of("FlowSchema", FLOW, "v1", "flowschemas", false, Stage::Rights),
    of("ValidatingAdmissionPolicy", ADMISSION, "v1", "validatingadmissionpolicies", false, Stage::Policies),
    of(
        "ValidatingAdmissionPolicyBinding",
        ADMISSION,
        "v1",
        "validatingadmissionpolicybindings",
        false,
        Stage::Policies,
    ),
    of("Deployment", "apps", "v1", "deployments", true, Stage::Programs),
    of("Service", "", "v1", "services", true, Stage::Programs),
    of("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", true, Stage::Programs),
    of("ConfigMap", "", "v1", "configmaps", true, Stage::Programs),
    of("PrometheusRule", "monitoring.coreos.com", "v1", "prometheusrules", true, Stage::Programs),
    of("PodMonitor", "monitoring.coreos.com", "v1", "podmonitors", true, Stage::Programs),
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
    Kind { kind, group, version, plural, namespaced, stage }
}

/// What is known of a kind.
pub fn kind(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.kind == name)
}

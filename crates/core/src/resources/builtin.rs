//! The names of Kubernetes' own types, for clients that cannot ask a cluster.

/// A type of Kubernetes, or of its snapshot controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinType {
    /// API group; empty is the core group.
    pub group: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
}

/// Kind, plural and short names.
type Names = (&'static str, &'static str, &'static [&'static str]);

/// As `kubectl api-resources` lists them (Kubernetes 1.34). The lower-case kind is the singular
/// name.
const TYPES: &[(&str, &[Names])] = &[
    (
        "",
        &[
            ("ComponentStatus", "componentstatuses", &["cs"]),
            ("ConfigMap", "configmaps", &["cm"]),
            ("Endpoints", "endpoints", &["ep"]),
            ("Event", "events", &["ev"]),
            ("LimitRange", "limitranges", &["limits"]),
            ("Namespace", "namespaces", &["ns"]),
            ("Node", "nodes", &["no"]),
            ("PersistentVolume", "persistentvolumes", &["pv"]),
            ("PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"]),
            ("Pod", "pods", &["po"]),
            ("PodTemplate", "podtemplates", &[]),
            ("ReplicationController", "replicationcontrollers", &["rc"]),
            ("ResourceQuota", "resourcequotas", &["quota"]),
            ("Secret", "secrets", &[]),
            ("Service", "services", &["svc"]),
            ("ServiceAccount", "serviceaccounts", &["sa"]),
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", &[]),
            (
                "MutatingAdmissionPolicyBinding",
                "mutatingadmissionpolicybindings",
                &[],
            ),
            (
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
                &[],
            ),
            (
                "ValidatingAdmissionPolicy",
                "validatingadmissionpolicies",
                &[],
            ),
            (
                "ValidatingAdmissionPolicyBinding",
                "validatingadmissionpolicybindings",
                &[],
            ),
            (
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                &[],
            ),
        ],
    ),
    (
        "apiextensions.k8s.io",
        &[(
            "CustomResourceDefinition",
            "customresourcedefinitions",
            &["crd", "crds"],
        )],
    ),
    (
        "apiregistration.k8s.io",
        &[("APIService", "apiservices", &[])],
    ),
    (
        "apps",
        &[
            ("ControllerRevision", "controllerrevisions", &[]),
            ("DaemonSet", "daemonsets", &["ds"]),
            ("Deployment", "deployments", &["deploy"]),
            ("ReplicaSet", "replicasets", &["rs"]),
            ("StatefulSet", "statefulsets", &["sts"]),
        ],
    ),
    (
        "autoscaling",
        &[(
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            &["hpa"],
        )],
    ),
    (
        "batch",
        &[("CronJob", "cronjobs", &["cj"]), ("Job", "jobs", &[])],
    ),
    (
        "certificates.k8s.io",
        &[(
            "CertificateSigningRequest",
            "certificatesigningrequests",
            &["csr"],
        )],
    ),
    ("coordination.k8s.io", &[("Lease", "leases", &[])]),
    (
        "discovery.k8s.io",
        &[("EndpointSlice", "endpointslices", &[])],
    ),
    ("events.k8s.io", &[("Event", "events", &["ev"])]),
    (
        "flowcontrol.apiserver.k8s.io",
        &[
            ("FlowSchema", "flowschemas", &[]),
            (
                "PriorityLevelConfiguration",
                "prioritylevelconfigurations",
                &[],
            ),
        ],
    ),
    (
        "networking.k8s.io",
        &[
            ("Ingress", "ingresses", &["ing"]),
            ("IngressClass", "ingressclasses", &[]),
            ("IPAddress", "ipaddresses", &["ip"]),
            ("NetworkPolicy", "networkpolicies", &["netpol"]),
            ("ServiceCIDR", "servicecidrs", &[]),
        ],
    ),
    ("node.k8s.io", &[("RuntimeClass", "runtimeclasses", &[])]),
    (
        "policy",
        &[("PodDisruptionBudget", "poddisruptionbudgets", &["pdb"])],
    ),
    (
        "rbac.authorization.k8s.io",
        &[
            ("ClusterRole", "clusterroles", &[]),
            ("ClusterRoleBinding", "clusterrolebindings", &[]),
            ("Role", "roles", &[]),
            ("RoleBinding", "rolebindings", &[]),
        ],
    ),
    (
        "resource.k8s.io",
        &[
            ("DeviceClass", "deviceclasses", &[]),
            ("ResourceClaim", "resourceclaims", &[]),
            ("ResourceClaimTemplate", "resourceclaimtemplates", &[]),
            ("ResourceSlice", "resourceslices", &[]),
        ],
    ),
    (
        "scheduling.k8s.io",
        &[("PriorityClass", "priorityclasses", &["pc"])],
    ),
    (
        "snapshot.storage.k8s.io",
        &[
            ("VolumeSnapshot", "volumesnapshots", &["vs"]),
            (
                "VolumeSnapshotClass",
                "volumesnapshotclasses",
                &["vsclass", "vsclasses"],
            ),
            (
                "VolumeSnapshotContent",
                "volumesnapshotcontents",
                &["vsc", "vscs"],
            ),
        ],
    ),
    (
        "storage.k8s.io",
        &[
            ("CSIDriver", "csidrivers", &[]),
            ("CSINode", "csinodes", &[]),
            ("CSIStorageCapacity", "csistoragecapacities", &[]),
            ("StorageClass", "storageclasses", &["sc"]),
            ("VolumeAttachment", "volumeattachments", &[]),
            ("VolumeAttributesClass", "volumeattributesclasses", &["vac"]),
        ],
    ),
];

/// The built-in types with this name, in any case: `configmaps`, `ConfigMap`, `cm`, `deploy.apps`,
/// `deployments.v1.apps`.
pub fn builtin_types(name: &str) -> impl Iterator<Item = BuiltinType> {
    let name = name.to_ascii_lowercase();
    let all = TYPES.iter().flat_map(|(group, types)| {
        types.iter().map(|(kind, plural, short)| BuiltinType {
            group,
            kind,
            plural,
            short,
        })
    });
    all.filter(move |one| {
        let (head, rest) = name
            .split_once('.')
            .map_or((name.as_str(), None), |(head, rest)| (head, Some(rest)));
        one.is_called(head) && rest.is_none_or(|rest| is_group(one.group, rest))
    })
}

/// Whether the part after the name of a type is its group, or a version with its group.
fn is_group(group: &str, rest: &str) -> bool {
    rest == group
        || rest
            .split_once('.')
            .is_some_and(|(version, other)| is_version(version) && other == group)
        || group.is_empty() && is_version(rest)
}

fn is_version(text: &str) -> bool {
    text.strip_prefix('v')
        .is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit()))
}

impl BuiltinType {
    /// Whether it has this name; `head` is in lower case, and without a group.
    fn is_called(&self, head: &str) -> bool {
        self.plural == head || self.kind.eq_ignore_ascii_case(head) || self.short.contains(&head)
    }

    /// `deployments.apps`.
    pub fn group_resource(&self) -> String {
        super::group_resource(self.plural, self.group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("cm", &["configmaps"])]
    #[case("ConfigMap", &["configmaps"])]
    #[case("deploy", &["deployments.apps"])]
    #[case("deploy.apps", &["deployments.apps"])]
    #[case("deployments.v1.apps", &["deployments.apps"])]
    #[case("pods.v1", &["pods"])]
    #[case("deploy.extensions", &[])]
    #[case("pods.x", &[])]
    #[case("ev", &["events", "events.events.k8s.io"])]
    #[case("netpol", &["networkpolicies.networking.k8s.io"])]
    #[case("crd", &["customresourcedefinitions.apiextensions.k8s.io"])]
    #[case("widgets", &[])]
    #[case("", &[])]
    fn builtin_types_are_known_by_each_of_their_names(
        #[case] name: &str,
        #[case] expected: &[&str],
    ) {
        let found: Vec<String> = builtin_types(name)
            .map(|one| one.group_resource())
            .collect();
        assert_eq!(found, expected);
    }
}

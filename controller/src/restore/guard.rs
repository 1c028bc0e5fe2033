//! What a restore never writes, whatever it was asked for. Pure.
//!
//! Objects that start work when they appear, and the objects that this installation itself lives on: restored, they
//! would run again, free what is held, or lock everybody out.

use backup_core::resources::DEFINITIONS;

/// Kinds of `velero.io` that start work, or answer a request, when they appear.
const WORK: [&str; 11] = [
    "backups.velero.io",
    "restores.velero.io",
    "deletebackuprequests.velero.io",
    "downloadrequests.velero.io",
    "serverstatusrequests.velero.io",
    "podvolumebackups.velero.io",
    "podvolumerestores.velero.io",
    "datauploads.velero.io",
    "datadownloads.velero.io",
    "resticrepositories.velero.io",
    "backuprepositories.velero.io",
];

/// Whether no item of this type is restored.
pub(super) fn keeps_type(group_resource: &str) -> bool {
    WORK.contains(&group_resource)
}

/// Names of the objects of this installation, and what they begin with: ledgers, the leader's Lease, the registration and
/// the certificate of the webhook, policies, workloads with their accounts and rules.
const OURS: [&str; 3] = ["backup-lock", "backup-webhook", "backup-controller"];

/// Why this object is not restored, or `None`. `namespace` is where it would go, `own` the namespace of the installation.
pub(super) fn keeps(
    group_resource: &str,
    namespace: Option<&str>,
    name: &str,
    own: &str,
) -> Option<&'static str> {
    let here = namespace.is_none_or(|namespace| namespace == own);
    let of_velero = match group_resource {
        DEFINITIONS => name.ends_with(".velero.io"),
        other => namespace == Some(own) && other.ends_with(".velero.io"),
    };
    let kept = here && is_ours(name) || of_velero || keeps_type(group_resource);
    kept.then_some("a restore never writes what this installation works with")
}

fn is_ours(name: &str) -> bool {
    let rest = OURS.iter().find_map(|own| name.strip_prefix(own));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_never_writes_what_the_installation_lives_on() {
        for (resource, namespace, name) in [
            ("leases.coordination.k8s.io", Some("velero"), "backup-lock-velero"),
            ("leases.coordination.k8s.io", Some("velero"), "backup-controller"),
            ("secrets", Some("velero"), "backup-webhook-tls"),
            ("validatingwebhookconfigurations.admissionregistration.k8s.io", None, "backup-webhook"),
            ("validatingadmissionpolicies.admissionregistration.k8s.io", None, "backup-lock-ledger"),
            ("clusterrolebindings.rbac.authorization.k8s.io", None, "backup-controller"),
            ("roles.rbac.authorization.k8s.io", Some("velero"), "backup-webhook"),
            ("deployments.apps", Some("velero"), "backup-controller"),
            ("pods", Some("velero"), "backup-webhook-6f7d8-abcde"),
            ("customresourcedefinitions.apiextensions.k8s.io", None, "backups.velero.io"),
            ("backups.velero.io", Some("velero"), "b"),
            ("backups.velero.io", Some("elsewhere"), "b"),
            ("deletebackuprequests.velero.io", Some("elsewhere"), "b"),
            ("schedules.velero.io", Some("velero"), "nightly"),
        ] {
            assert!(keeps(resource, namespace, name, "velero").is_some(), "{resource} {namespace:?} {name}");
        }
    }

    #[test]
    fn only_those_are_left_out() {
        for (resource, namespace, name) in [
            ("leases.coordination.k8s.io", Some("app"), "backup-lock-velero"),
            ("leases.coordination.k8s.io", Some("velero"), "other"),
            ("secrets", Some("velero"), "cloud-credentials"),
            ("secrets", Some("app"), "backup-webhook-tls"),
            ("configmaps", Some("velero"), "x"),
            ("deployments.apps", Some("app"), "backup-controller"),
            ("clusterroles.rbac.authorization.k8s.io", None, "backup-controllers"),
            ("schedules.velero.io", Some("elsewhere"), "nightly"),
            ("customresourcedefinitions.apiextensions.k8s.io", None, "widgets.example.com"),
            ("validatingwebhookconfigurations.admissionregistration.k8s.io", None, "other"),
        ] {
            assert_eq!(keeps(resource, namespace, name, "velero"), None, "{resource} {namespace:?} {name}");
        }
    }
}

//! Objects that a restore never writes, whatever its spec says. Pure.
//!
//! These start work when they are created, or are needed by this installation itself: restored,
//! they would run again, free claims, or lock all users out.

use backup_actions::restore::json::{self, Object};
use backup_core::{
    cluster::INSTALLATION,
    data_movement::PASSWORD_SECRET,
    labels::PART_OF,
    resources::{DEFINITIONS, NAMESPACES},
};

/// Kinds of `velero.io` that start work, or answer a request, when they are created.
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

/// Names, and prefixes of names, of the objects of this installation: ledgers, the leader's Lease,
/// the registration and the certificate of the webhook, policies, workloads with their accounts,
/// rules and pods, and the rights of profiles.
const OURS: [&str; 4] = [
    "backup-lock",
    "backup-webhook",
    "backup-controller",
    "backup-profile",
];

/// Further exact names: everything else that `deploy/` installs, the profiles, the credentials of
/// stores, and the password of the repositories of volume data.
const ALSO_OURS: [&str; 23] = [
    "backup-alerts",
    "backup-break-glass",
    "backup-cluster-viewer",
    "backup-dashboard",
    "backup-engine-phases",
    "backup-guard-ends",
    "backup-mover",
    "backup-operator",
    "backup-owner",
    "backup-owners",
    "backup-percona-pg-ends",
    "backup-percona-ps-ends",
    "backup-percona-psmdb-ends",
    "backup-percona-pxc-ends",
    "backup-profiles",
    "backup-programs",
    "backup-read-keys",
    "backup-reader",
    "backup-restorer",
    "backup-viewer",
    "backup-volume-data",
    "cloud-credentials",
    PASSWORD_SECRET,
];

pub(super) const WHY: &str = "a restore never writes what this installation works with";

/// Why this object is not restored, or `None`. `namespace` is its target, `own` the namespace of
/// the installation. Names are checked because a forged backup can omit the label; the label also
/// covers objects that users have added.
pub(super) fn keeps_object(
    group_resource: &str,
    namespace: Option<&str>,
    object: &Object,
    own: &str,
) -> Option<&'static str> {
    let name = json::text(object, &["metadata"], "name").unwrap_or_default();
    keeps(group_resource, namespace, name, own)
        .or_else(|| is_labelled(object, namespace, own).then_some(WHY))
}

/// Whether an object, of the backup or in the cluster, has the label of the installation.
pub(super) fn is_labelled(object: &Object, namespace: Option<&str>, own: &str) -> bool {
    is_here(namespace, own)
        && json::text(object, &["metadata", "labels"], PART_OF) == Some(INSTALLATION)
}

fn is_here(namespace: Option<&str>, own: &str) -> bool {
    namespace.is_none_or(|namespace| namespace == own)
}

fn keeps(
    group_resource: &str,
    namespace: Option<&str>,
    name: &str,
    own: &str,
) -> Option<&'static str> {
    let here = is_here(namespace, own);
    let of_velero = match group_resource {
        DEFINITIONS => name.ends_with(".velero.io"),
        NAMESPACES => name == own,
        other => namespace == Some(own) && other.ends_with(".velero.io"),
    };
    let kept = here && is_ours(name) || of_velero || keeps_type(group_resource);
    kept.then_some(WHY)
}

fn is_ours(name: &str) -> bool {
    let rest = OURS.iter().find_map(|own| name.strip_prefix(own));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) || ALSO_OURS.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_restore_never_writes_what_the_installation_lives_on() {
        for (resource, namespace, name) in [
            (
                "leases.coordination.k8s.io",
                Some("velero"),
                "backup-lock-velero",
            ),
            (
                "leases.coordination.k8s.io",
                Some("velero"),
                "backup-controller",
            ),
            ("secrets", Some("velero"), "backup-webhook-tls"),
            (
                "validatingwebhookconfigurations.admissionregistration.k8s.io",
                None,
                "backup-webhook",
            ),
            (
                "validatingadmissionpolicies.admissionregistration.k8s.io",
                None,
                "backup-lock-ledger",
            ),
            (
                "clusterrolebindings.rbac.authorization.k8s.io",
                None,
                "backup-controller",
            ),
            (
                "roles.rbac.authorization.k8s.io",
                Some("velero"),
                "backup-webhook",
            ),
            ("deployments.apps", Some("velero"), "backup-controller"),
            ("pods", Some("velero"), "backup-webhook-6f7d8-abcde"),
            (
                "customresourcedefinitions.apiextensions.k8s.io",
                None,
                "backups.velero.io",
            ),
            ("backups.velero.io", Some("velero"), "b"),
            ("backups.velero.io", Some("elsewhere"), "b"),
            ("deletebackuprequests.velero.io", Some("elsewhere"), "b"),
            ("schedules.velero.io", Some("velero"), "nightly"),
            ("secrets", Some("velero"), "cloud-credentials"),
            ("secrets", Some("velero"), "velero-repo-credentials"),
            ("serviceaccounts", Some("velero"), "backup-mover"),
            ("configmaps", Some("velero"), "backup-profiles"),
            ("namespaces", None, "velero"),
        ] {
            assert!(
                keeps(resource, namespace, name, "velero").is_some(),
                "{resource} {namespace:?} {name}"
            );
        }
    }

    #[test]
    fn only_those_are_left_out() {
        for (resource, namespace, name) in [
            (
                "leases.coordination.k8s.io",
                Some("app"),
                "backup-lock-velero",
            ),
            ("leases.coordination.k8s.io", Some("velero"), "other"),
            ("secrets", Some("app"), "cloud-credentials"),
            ("secrets", Some("velero"), "cloud-credentials-of-somebody"),
            (
                "clusterroles.rbac.authorization.k8s.io",
                None,
                "backup-viewers",
            ),
            ("namespaces", None, "app"),
            ("secrets", Some("app"), "backup-webhook-tls"),
            ("configmaps", Some("velero"), "x"),
            ("deployments.apps", Some("app"), "backup-controller"),
            (
                "clusterroles.rbac.authorization.k8s.io",
                None,
                "backup-controllers",
            ),
            ("schedules.velero.io", Some("elsewhere"), "nightly"),
            (
                "customresourcedefinitions.apiextensions.k8s.io",
                None,
                "widgets.example.com",
            ),
            (
                "validatingwebhookconfigurations.admissionregistration.k8s.io",
                None,
                "other",
            ),
        ] {
            assert_eq!(
                keeps(resource, namespace, name, "velero"),
                None,
                "{resource} {namespace:?} {name}"
            );
        }
    }

    #[test]
    fn what_carries_the_label_is_left_out_where_the_installation_is() {
        let labelled = |value: &str| {
            let object = json!({ "metadata": { "name": "x", "labels": { "app.kubernetes.io/part-of": value } } });
            object.as_object().unwrap().clone()
        };
        for (namespace, value, kept) in [
            (Some("velero"), "backup", true),
            (None, "backup", true),
            (Some("app"), "backup", false),
            (Some("velero"), "shop", false),
        ] {
            let why = keeps_object("secrets", namespace, &labelled(value), "velero");
            assert_eq!(why.is_some(), kept, "{namespace:?} {value}");
        }
        assert_eq!(
            keeps_object("secrets", None, &Object::new(), "velero"),
            None
        );
    }

    /// A forged backup can omit the label, so every object must be known by name, too.
    #[test]
    fn everything_in_deploy_has_the_label_and_is_known_by_name() {
        let (mut folders, mut objects) = (
            vec![concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy").into()],
            0,
        );
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir::<std::path::PathBuf>(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    // The chart holds the same objects, `krew` holds none, and `gitops` patches
                    // objects of Argo CD and Flux.
                    let is_other = ["chart", "krew", "gitops"]
                        .iter()
                        .any(|name| path.ends_with(name));
                    folders.extend((!is_other).then_some(path));
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
                    objects += usize::from(is_protected(&object, &path));
                }
            }
        }
        assert!(objects > 40, "only {objects} objects were found");
    }

    /// Checks an object of a manifest; false if it is not an object of the cluster.
    fn is_protected(object: &Value, path: &std::path::Path) -> bool {
        let (kind, metadata) = (
            object["kind"].as_str().unwrap_or_default(),
            &object["metadata"],
        );
        let is_part = ["Kustomization", "Component", "ReplacementTransformer"].contains(&kind);
        if is_part || kind.is_empty() {
            return false;
        }
        let what = format!("{kind} {} in {}", metadata["name"], path.display());
        let group = object["apiVersion"]
            .as_str()
            .unwrap()
            .split_once('/')
            .map(|(group, _)| format!(".{group}"));
        let resource = format!("{}s{}", kind.to_lowercase(), group.unwrap_or_default());
        let name = metadata["name"].as_str().unwrap();
        assert!(
            metadata["labels"][PART_OF] == INSTALLATION,
            "{what} has no label"
        );
        assert!(
            keeps(&resource, metadata["namespace"].as_str(), name, "velero").is_some(),
            "{what} can be restored"
        );
        true
    }
}

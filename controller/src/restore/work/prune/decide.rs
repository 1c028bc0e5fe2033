//! Which objects of a restored namespace are removed (`spec.prune`), and whether any is. Pure.

use std::collections::HashSet;

use backup_actions::restore::{
    existing::is_going,
    json::{self, Object},
};
use backup_core::{
    labels::EXCLUDE_FROM_BACKUP, resources::holds_data, selection::LabelFilter, text::counted,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::restore::guard;

/// Annotation of the token of a service account.
const TOKEN_ANNOTATION: &str = "kubernetes.io/service-account.name";

/// Objects that the cluster creates in each namespace, by type and name.
const OF_EACH_NAMESPACE: [(&str, &str); 3] = [
    ("configmaps", "kube-root-ca.crt"),
    ("configmaps", "openshift-service-ca.crt"),
    ("serviceaccounts", "default"),
];

/// The state of a restore whose items are done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RestoreState {
    pub(super) has_errors: bool,
    /// Number of operations that still run, such as transfers of volume data.
    pub(super) operations: usize,
    /// Whether too many items have another name or type than in the backup.
    pub(super) too_many_renamed: bool,
}

/// Why a restore removes nothing, whatever its namespaces hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PruneRefusal {
    /// Reported as a warning: the errors are reported already.
    Errors,
    Operations(usize),
    Renamed,
}

impl PruneRefusal {
    pub(super) fn message(&self) -> String {
        let why = match self {
            Self::Errors => {
                "the restore has errors, and what exists may be needed in place of what was not restored; restore again once their \
                 causes are gone"
                    .to_owned()
            }
            Self::Operations(running) => format!(
                "{} of the restore still ran when its items were done; restore again with spec.prune once it is Completed",
                counted(*running, "operation")
            ),
            Self::Renamed => {
                "resource modifiers or plugins have renamed too many items; restore fewer types at a time".to_owned()
            }
        };
        format!("nothing was removed (spec.prune): {why}")
    }
}

/// Whether a restore in this state removes nothing, and why.
pub(super) fn refusal(state: RestoreState) -> Option<PruneRefusal> {
    if state.has_errors {
        Some(PruneRefusal::Errors)
    } else if state.operations > 0 {
        Some(PruneRefusal::Operations(state.operations))
    } else {
        state.too_many_renamed.then_some(PruneRefusal::Renamed)
    }
}

/// An object in the cluster that the backup does not have.
#[derive(Clone, Copy)]
pub(super) struct LiveObject<'a> {
    pub(super) group_resource: &'a str,
    pub(super) namespace: &'a str,
    /// Its metadata, at least.
    pub(super) object: &'a Object,
}

/// The facts that decide about the objects of one namespace.
pub(super) struct PruneRules<'a> {
    /// The namespace of the installation.
    pub(super) own: &'a str,
    /// Creation time of the Restore, by the API server; `None` in a plan, whose Restore is still to
    /// come.
    pub(super) restore_created: Option<Timestamp>,
    /// Start of the backup, if it is of this very namespace: it left out what is older.
    pub(super) backup_started: Option<Timestamp>,
    /// The label selectors of the backup.
    pub(super) backup_labels: &'a LabelFilter,
    /// Uids of objects with which data would be removed.
    pub(super) data_owners: &'a HashSet<String>,
}

/// The decision about an object that the backup does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Remove,
    /// Kept, as objects like it always are.
    Keep,
    /// Kept for a reason that the user sees.
    KeepBecause(&'static str),
}

pub(super) fn fate(live: LiveObject<'_>, rules: &PruneRules<'_>) -> Fate {
    let LiveObject {
        group_resource,
        namespace,
        object,
    } = live;
    if is_going(object) || is_owned(object) || is_of_the_cluster(group_resource, object) {
        return Fate::Keep;
    }
    if let Some(why) = guard::keeps_object(group_resource, Some(namespace), object, rules.own) {
        return Fate::KeepBecause(why);
    }
    reason_to_keep(group_resource, object, rules).map_or(Fate::Remove, Fate::KeepBecause)
}

/// Whether another object owns it: then the cluster removes it with that object.
fn is_owned(object: &Object) -> bool {
    let owners = json::object(object, &["metadata"]).and_then(|of| of.get("ownerReferences"));
    owners
        .and_then(Value::as_array)
        .is_some_and(|owners| !owners.is_empty())
}

/// Whether the cluster creates it in each namespace, or with a service account.
fn is_of_the_cluster(group_resource: &str, object: &Object) -> bool {
    let name = json::text(object, &["metadata"], "name").unwrap_or_default();
    OF_EACH_NAMESPACE.contains(&(group_resource, name))
        || group_resource == "secrets"
            && json::text(object, &["metadata", "annotations"], TOKEN_ANNOTATION).is_some()
}

fn reason_to_keep(
    group_resource: &str,
    object: &Object,
    rules: &PruneRules<'_>,
) -> Option<&'static str> {
    if holds_data(group_resource) {
        return Some("its data would be lost");
    }
    let version = text(object, "resourceVersion");
    let Some(uid) = text(object, "uid").filter(|_| version.is_some()) else {
        return Some("it has no uid or no version");
    };
    if rules.data_owners.contains(uid) {
        return Some("claims or snapshots belong to it, and their data would be lost with it");
    }
    let created = text(object, "creationTimestamp");
    let Some(created) = created.and_then(|at| at.parse::<Timestamp>().ok()) else {
        return Some("its creation time is unknown");
    };
    if rules.restore_created.is_some_and(|since| created >= since) {
        return Some("it was created after the restore");
    }
    if rules.backup_started.is_some_and(|since| created < since) {
        return Some("it is older than the backup, which has left it out");
    }
    if json::text(object, &["metadata", "labels"], EXCLUDE_FROM_BACKUP) == Some("true") {
        return Some("its label keeps it out of backups");
    }
    let is_covered = rules.backup_labels.selects(|| json::labels(object));
    (!is_covered).then_some("the label selector of the backup does not select it")
}

fn text<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    json::text(object, &["metadata"], field)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OWN: &str = "velero";

    /// An object of March, between a backup of February and a restore of April.
    #[allow(clippy::needless_pass_by_value)] // reads better where it is called
    fn object(change: Value) -> Object {
        let mut object = json!({"metadata": {"name": "extra", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-03-01T00:00:00Z", "labels": {"app": "shop"}}});
        json_patch::merge(&mut object, &json!({"metadata": change}));
        object.as_object().unwrap().clone()
    }

    fn decided(group_resource: &str, namespace: &str, change: Value) -> Fate {
        let rules = PruneRules {
            own: OWN,
            restore_created: Some("2026-04-01T00:00:00Z".parse().unwrap()),
            backup_started: Some("2026-02-01T00:00:00Z".parse().unwrap()),
            backup_labels: &LabelFilter::of(
                &serde_json::from_value(json!({"matchLabels": {"app": "shop"}})).unwrap(),
                &None,
            ),
            data_owners: &["owner-of-a-claim".to_owned()].into(),
        };
        let live = LiveObject {
            group_resource,
            namespace,
            object: &object(change),
        };
        fate(live, &rules)
    }

    #[rstest::rstest]
    #[case::config_map("configmaps", json!({}))]
    #[case::bare_pod("pods", json!({}))]
    #[case::custom("widgets.example.com", json!({}))]
    #[case::account("serviceaccounts", json!({"name": "robot"}))]
    #[case::secret("secrets", json!({"annotations": {"other": "x"}}))]
    #[case::as_old_as_the_backup("configmaps", json!({"creationTimestamp": "2026-02-01T00:00:00Z"}))]
    #[case::just_before_the_restore("configmaps", json!({"creationTimestamp": "2026-03-31T23:59:59Z"}))]
    #[case::with_a_finalizer("configmaps", json!({"finalizers": ["example.com/x"]}))]
    #[case::no_owners("configmaps", json!({"ownerReferences": []}))]
    #[case::label_of_another_meaning("configmaps", json!({"labels": {"velero.io/exclude-from-backup": "false"}}))]
    fn other_objects_are_removed(#[case] group_resource: &str, #[case] change: Value) {
        assert_eq!(decided(group_resource, "shop", change), Fate::Remove);
    }

    #[rstest::rstest]
    #[case::controlled("pods", json!({"ownerReferences": [{"kind": "ReplicaSet", "uid": "r", "controller": true}]}))]
    #[case::owned("ciliumendpoints.cilium.io", json!({"ownerReferences": [{"kind": "Pod", "uid": "p"}]}))]
    #[case::claim_of_a_stateful_set("persistentvolumeclaims", json!({"ownerReferences": [{"kind": "StatefulSet", "uid": "s"}]}))]
    #[case::going("configmaps", json!({"deletionTimestamp": "2026-03-02T00:00:00Z"}))]
    #[case::root_ca("configmaps", json!({"name": "kube-root-ca.crt"}))]
    #[case::service_ca("configmaps", json!({"name": "openshift-service-ca.crt"}))]
    #[case::default_account("serviceaccounts", json!({"name": "default"}))]
    #[case::token("secrets", json!({"annotations": {"kubernetes.io/service-account.name": "default"}}))]
    fn objects_of_others_are_kept_in_silence(#[case] group_resource: &str, #[case] change: Value) {
        assert_eq!(decided(group_resource, "shop", change), Fate::Keep);
    }

    #[rstest::rstest]
    #[case::claim("persistentvolumeclaims", json!({}), "data would be lost")]
    #[case::snapshot("volumesnapshots.snapshot.storage.k8s.io", json!({}), "data would be lost")]
    #[case::owner_of_a_claim("clusters.example.com", json!({"uid": "owner-of-a-claim"}), "claims or snapshots belong to it")]
    #[case::new("configmaps", json!({"creationTimestamp": "2026-04-02T00:00:00Z"}), "after the restore")]
    #[case::as_new_as_the_restore("configmaps", json!({"creationTimestamp": "2026-04-01T00:00:00Z"}), "after the restore")]
    #[case::old("configmaps", json!({"creationTimestamp": "2026-01-31T23:59:59Z"}), "older than the backup")]
    #[case::no_time("configmaps", json!({"creationTimestamp": null}), "creation time")]
    #[case::no_uid("configmaps", json!({"uid": null}), "no uid")]
    #[case::no_version("configmaps", json!({"resourceVersion": null}), "no version")]
    #[case::excluded("configmaps", json!({"labels": {"velero.io/exclude-from-backup": "true"}}), "keeps it out of backups")]
    #[case::not_selected("configmaps", json!({"labels": {"app": "bank"}}), "label selector of the backup")]
    #[case::backup("backups.velero.io", json!({}), "installation")]
    fn an_object_is_kept_for_a_reason(
        #[case] group_resource: &str,
        #[case] change: Value,
        #[case] words: &str,
    ) {
        let Fate::KeepBecause(why) = decided(group_resource, "shop", change) else {
            panic!("{group_resource} is not kept");
        };
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn objects_of_the_installation_are_kept() {
        for (group_resource, change) in [
            ("secrets", json!({"name": "cloud-credentials"})),
            (
                "leases.coordination.k8s.io",
                json!({"name": "backup-lock-velero"}),
            ),
            (
                "configmaps",
                json!({"labels": {"app.kubernetes.io/part-of": "backup"}}),
            ),
        ] {
            let fate = decided(group_resource, OWN, change);
            assert_eq!(fate, Fate::KeepBecause(guard::WHY), "{group_resource}");
        }
    }

    /// A plan has no Restore yet, and a backup of another namespace has not left anything out here.
    #[test]
    fn times_that_say_nothing_keep_nothing() {
        for created in ["2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"] {
            let rules = PruneRules {
                own: OWN,
                restore_created: None,
                backup_started: None,
                backup_labels: &LabelFilter::default(),
                data_owners: &HashSet::new(),
            };
            let live = LiveObject {
                group_resource: "configmaps",
                namespace: "shop",
                object: &object(json!({"creationTimestamp": created})),
            };
            assert_eq!(fate(live, &rules), Fate::Remove, "{created}");
        }
    }

    #[test]
    fn a_restore_that_is_not_whole_removes_nothing() {
        let whole = RestoreState::default();
        assert_eq!(refusal(whole), None);
        for (state, words) in [
            (
                RestoreState {
                    has_errors: true,
                    operations: 1,
                    ..whole
                },
                "has errors",
            ),
            (
                RestoreState {
                    operations: 2,
                    ..whole
                },
                "2 operations",
            ),
            (
                RestoreState {
                    too_many_renamed: true,
                    ..whole
                },
                "renamed",
            ),
        ] {
            let message = refusal(state).unwrap().message();
            assert!(
                message.starts_with("nothing was removed") && message.contains(words),
                "{message}"
            );
        }
    }
}

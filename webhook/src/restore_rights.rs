//! Checks whether the author of a Restore may do directly what it does (`--check-restore-rights`):
//! our controller writes with its own permissions, which equal an administrator's.

use std::collections::BTreeSet;

use backup_lock::footprint::Footprint;
use k8s_openapi::api::authentication::v1::UserInfo;
use serde_json::Value;

use crate::authorization::{Authorization, right};

/// Namespaces in which a restore reads and writes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Every namespace, or cluster-scoped objects; the field of the spec that causes it, and how to
    /// limit it.
    Cluster {
        field: &'static str,
        instead: &'static str,
    },
    Namespaces(BTreeSet<String>),
}

/// The permissions that a user lacks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MissingRights {
    pub field: String,
    /// What the user may not do, as `get and list secrets in namespace shop`.
    pub rights: String,
    pub instead: String,
}

/// The spec of the same restore without a mapping: its footprint is what the restore reads.
pub(crate) fn unmapped(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("namespaceMapping");
    }
    spec
}

/// Cluster-scoped objects are included with others (volumes, roles of an account) unless they are
/// excluded explicitly.
pub(crate) fn reach(spec: &Value, written: &Footprint, read: &Footprint) -> Reach {
    if spec["includeClusterResources"] != Value::Bool(false) {
        return Reach::Cluster {
            field: "spec.includeClusterResources",
            instead: "set spec.includeClusterResources to false",
        };
    }
    match (written.names(), read.names()) {
        (Some(written), Some(read)) => Reach::Namespaces(written.union(read).cloned().collect()),
        _ => Reach::Cluster {
            field: "spec.includedNamespaces",
            instead: "name each namespace in spec.includedNamespaces, without wildcards",
        },
    }
}

/// The permission that a user who may not do everything in the cluster lacks for a restore of this
/// reach; `None` if none is missing.
pub(crate) async fn lacking(
    authorization: &Authorization,
    user: &UserInfo,
    reach: Reach,
) -> Result<Option<MissingRights>, String> {
    let namespaces = match reach {
        Reach::Cluster { field, instead } => {
            return Ok(Some(MissingRights {
                field: field.to_owned(),
                rights: everything_in("the whole cluster"),
                instead: instead.to_owned(),
            }));
        }
        Reach::Namespaces(namespaces) => namespaces,
    };
    let rights = namespaces.iter().map(|name| right("*", "*", "*", name));
    let lacking = authorization.lacking(user, rights.collect()).await?;
    if lacking.is_empty() {
        return Ok(None);
    }
    let s = if lacking.len() == 1 { "" } else { "s" };
    let names = lacking.into_iter().filter_map(|right| right.namespace);
    let names = names.collect::<Vec<_>>().join(", ");
    Ok(Some(MissingRights {
        field: "spec.includedNamespaces".to_owned(),
        rights: everything_in(&format!("namespace{s} {names}")),
        instead: "leave them out".to_owned(),
    }))
}

/// The right to do everything; `place` names the namespaces or the cluster.
fn everything_in(place: &str) -> String {
    format!("do everything (verb * on resource *.*) in {place}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_restore_reads_and_what_it_writes_both_count() {
        let footprint = |names: &[&str]| Footprint::namespaces(names.iter().copied());
        let field = |spec: Value, written: &Footprint, read: &Footprint| match reach(
            &spec, written, read,
        ) {
            Reach::Cluster { field, .. } => field.to_owned(),
            Reach::Namespaces(names) => Vec::from_iter(names).join(" "),
        };
        let alone = json!({ "includeClusterResources": false });
        let (mine, prod) = (footprint(&["mine"]), footprint(&["prod"]));
        for (spec, written, read, expected) in [
            (&alone, &mine, &mine, "mine"),
            (&alone, &mine, &prod, "mine prod"),
            (&json!({}), &mine, &mine, "spec.includeClusterResources"),
            (
                &json!({ "includeClusterResources": true }),
                &mine,
                &mine,
                "spec.includeClusterResources",
            ),
            (
                &alone,
                &footprint(&["team-*"]),
                &mine,
                "spec.includedNamespaces",
            ),
            (
                &alone,
                &mine,
                &Footprint::everything(),
                "spec.includedNamespaces",
            ),
        ] {
            assert_eq!(
                field(spec.clone(), written, read),
                expected,
                "{spec} {written} {read}"
            );
        }
    }

    #[test]
    fn a_restore_reads_what_it_maps_from() {
        let spec =
            json!({ "includedNamespaces": ["prod"], "namespaceMapping": { "prod": "mine" } });
        assert_eq!(unmapped(&spec), json!({ "includedNamespaces": ["prod"] }));
    }
}

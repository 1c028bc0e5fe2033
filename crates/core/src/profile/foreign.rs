//! Other sources about an operator's restores: its own Lease, and the health of the database
//! cluster.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Predicate, duration};

/// Placeholder for the database cluster in the name of a Lease.
pub(super) const CLUSTER: &str = "{cluster}";

/// The operator's own Lease that says that a restore is running. It is in the namespace of the
/// database cluster. The lock respects it while its holder exists and is active, and never writes
/// it.
///
/// `spec.holderIdentity` is `<name>|<uid>` of the restore (Percona Operator for MySQL,
/// `pkg/k8s/lease.go`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForeignLease {
    /// Name of the Lease, with `{cluster}` for the name of the database cluster.
    pub name: String,
}

impl ForeignLease {
    pub fn name_for(&self, cluster: &str) -> String {
        self.name.replace(CLUSTER, cluster)
    }

    /// Name and uid of the restore that holds the Lease. `None` for any other text: its holder is
    /// then unknown.
    pub fn holder(identity: &str) -> Option<(&str, &str)> {
        let (name, uid) = identity.split_once('|')?;
        (!name.is_empty() && !uid.is_empty() && !uid.contains('|')).then_some((name, uid))
    }
}

/// Condition on the database cluster for releasing the place of a restore that is over. A backup
/// releases it at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReleaseRule {
    /// The kind of the database cluster. The object has the name of the scope's database cluster
    /// and is in the same namespace.
    pub target: Target,
    /// The condition. A database cluster that is gone has nothing left to protect.
    pub when: Predicate,
    /// Maximum wait, from the end of the restore. Then the place is freed anyway, so that a
    /// database cluster that never becomes healthy can be restored again.
    #[serde(with = "duration")]
    pub within: Duration,
}

/// A kind of object to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_a_name_and_a_uid() {
        assert_eq!(
            ForeignLease::holder("restore1|u-1"),
            Some(("restore1", "u-1"))
        );
        for text in ["", "restore1", "|", "restore1|", "|u-1", "a|b|c"] {
            assert_eq!(ForeignLease::holder(text), None, "{text}");
        }
    }

    #[test]
    fn a_lease_is_named_after_its_database_cluster() {
        let lease = ForeignLease {
            name: "restore-lock-{cluster}".into(),
        };
        assert_eq!(lease.name_for("cluster1"), "restore-lock-cluster1");
    }
}

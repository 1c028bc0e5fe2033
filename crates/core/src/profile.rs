//! Profiles: the data about an operator that the lock needs.
//!
//! A profile names an operator's backup and restore kinds, the fields of an object that show that
//! its work is over, and which objects conflict. It is a YAML file (`core/profiles/*.yaml` are
//! built in); each operator has its own file. Everything here is pure: objects are passed as stored
//! JSON, in any version of the kind.
//!
//! In doubt an object counts as active and as conflicting: an unknown phase, a status that is no
//! text, a missing field.

mod builtin;
mod check;
mod duration;
mod foreign;
mod path;
mod policy;
mod predicate;
pub mod published;
mod read;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::resources::group_resource;
pub use foreign::{ForeignLease, ReleaseRule, Target};
pub use policy::{Mode, OnConflict, Policy};
pub(crate) use predicate::MAX_DEPTH;
pub use predicate::Predicate;
pub use read::{ProfileError, ProfileSet, RefusedProfile};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Profile {
    /// Short name, unique among the profiles: a DNS label such as `percona-ps`.
    pub name: String,
    pub group: String,
    /// API version that the field paths refer to. Rules of the webhook use `matchPolicy:
    /// Equivalent`, so that the API server converts objects of other versions before they are
    /// judged.
    pub version: String,
    /// Whether our controller can do the work of these kinds itself. Only Velero's.
    #[serde(default)]
    pub engine: bool,
    /// ServiceAccount of the operator. A policy that comes with the profile's registration lets
    /// only this account end work. Empty: unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// Which objects can conflict.
    pub scope: ScopeRule,
    pub backup: KindRule,
    pub restore: KindRule,
    #[serde(default)]
    pub policy: Policy,
    /// The operator's own Lease that says that a restore is running. It is read, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_lease: Option<ForeignLease>,
    /// Condition for releasing the place of a restore that is over. `None`: it is released at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseRule>,
}

/// Name of the only profile whose work our controller can do.
pub(crate) const ENGINE: &str = "velero";

impl Profile {
    /// Whether this is the profile of Velero's kinds, whichever controller works on them.
    pub fn is_velero(&self) -> bool {
        self.name == ENGINE
    }
}

/// Which objects share a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum ScopeRule {
    /// All of them: one scope for the Kubernetes cluster, named by the group. Within it, conflicts
    /// depend on the namespaces that an object reads or writes.
    #[default]
    Cluster,
    /// The objects of one namespace that name the same database cluster.
    Field {
        /// Path of the field of a backup that names the database cluster.
        backup: String,
        /// Path of the field of a restore that names the database cluster.
        restore: String,
    },
}

/// One of a profile's two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Role {
    Backup,
    Restore,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
        })
    }
}

/// How the objects of one kind show their state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindRule {
    /// The kind, such as `PerconaServerMySQLBackup`.
    pub kind: String,
    /// The resource's name in URLs and rules, such as `perconaservermysqlbackups`.
    pub plural: String,
    /// Whether the status is written through `<plural>/status`. Then rules need that path, too.
    pub status_subresource: bool,
    /// Path of the text with the state of the work, such as `status.state`. Empty if the kind has
    /// none (conditions or other fields then show the end).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Phases in which the operator has not begun. A missing phase always counts as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initial: Vec<String>,
    /// Phases in which the operator works. Only to distinguish known from unknown: every object
    /// that is not over is active.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<String>,
    /// Condition that is true as soon as the work is over.
    pub over: Predicate,
    /// Revivals that the operator does automatically. Each claims again. Any other is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revivals: Vec<Revival>,
}

/// A change from an end back to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Revival {
    /// The phase that looked final.
    pub from: String,
    /// The phases that may follow it. An empty text means no phase.
    pub to: Vec<String>,
}

impl Profile {
    pub fn rule(&self, role: Role) -> &KindRule {
        match role {
            Role::Backup => &self.backup,
            Role::Restore => &self.restore,
        }
    }

    /// The types of the two kinds, as `plural.group`.
    pub fn types(&self) -> [String; 2] {
        [&self.backup, &self.restore].map(|rule| group_resource(&rule.plural, &self.group))
    }

    /// Which of the two kinds this is; `None` if neither.
    pub fn role_of(&self, group: &str, kind: &str) -> Option<Role> {
        [Role::Backup, Role::Restore]
            .into_iter()
            .find(|role| self.group == group && self.rule(*role).kind == kind)
    }

    /// The database cluster that an object names: text of 1 to 253 bytes without control
    /// characters. `None` if the field is missing, empty or no such text, or if the scope is the
    /// whole Kubernetes cluster.
    pub fn cluster_of<'a>(&self, role: Role, object: &'a Value) -> Option<&'a str> {
        let ScopeRule::Field { backup, restore } = &self.scope else {
            return None;
        };
        let path = if role == Role::Backup {
            backup
        } else {
            restore
        };
        let name = path::at(object, path)?.as_str()?;
        (!name.is_empty() && name.len() <= 253 && !name.chars().any(char::is_control))
            .then_some(name)
    }

    /// Whether the database cluster is named by metadata of an object, such as a label or the
    /// object's own name.
    pub fn scope_is_in_metadata(&self, role: Role) -> bool {
        match &self.scope {
            ScopeRule::Cluster => false,
            ScopeRule::Field { backup, restore } => (if role == Role::Backup {
                backup
            } else {
                restore
            })
            .starts_with("metadata."),
        }
    }

    /// The scope that an object belongs to: the group (`velero.io`), or
    /// `<profile>/<namespace>/<database cluster>`.
    ///
    /// `None` if the object does not name its database cluster. The lock cannot protect such an
    /// object, and the operator's reaction (an error, a default) is unknown: the webhook refuses it
    /// as invalid.
    pub fn scope_of(&self, role: Role, namespace: &str, object: &Value) -> Option<String> {
        match &self.scope {
            ScopeRule::Cluster => Some(self.group.clone()),
            ScopeRule::Field { .. } => {
                if namespace.is_empty() {
                    return None;
                }
                let cluster = self.cluster_of(role, object)?;
                Some(format!("{}/{namespace}/{cluster}", self.name))
            }
        }
    }

    /// Whether the object's work is over. Only for stored objects: a requested state is no end.
    pub fn is_over(&self, role: Role, object: &Value) -> bool {
        self.rule(role).over.holds(object)
    }

    /// The object's phase; empty if it has none or it is no text.
    pub fn phase<'a>(&self, role: Role, object: &'a Value) -> &'a str {
        self.rule(role).phase_of(object)
    }

    /// Whether the object shows that the operator has begun: it has a phase, and not an initial
    /// one. For a kind without phases this is unknown, and every object counts as begun.
    ///
    /// `false` is no guarantee. Only our own engine waits before it works; other operators start on
    /// sight, and may write a phase later (Percona Operator for MySQL pauses the database and
    /// creates the restore's Job before it leaves the empty state:
    /// `pkg/controller/psrestore/controller.go`).
    pub fn has_begun(&self, role: Role, object: &Value) -> bool {
        let kind = self.rule(role);
        let phase = kind.phase_of(object);
        kind.phase.is_empty()
            || !(phase.is_empty() || kind.initial.iter().any(|initial| initial == phase))
    }

    /// Whether the profile knows the object's phase. An unknown phase counts as active, and is
    /// reported, because the operator may be newer than the profile and the object may never end.
    pub fn is_known_phase(&self, role: Role, object: &Value) -> bool {
        let kind = self.rule(role);
        if kind.phase.is_empty() {
            return true;
        }
        match path::at(object, &kind.phase) {
            None | Some(Value::Null) => true,
            Some(Value::String(phase)) => {
                phase.is_empty()
                    || kind
                        .initial
                        .iter()
                        .chain(&kind.active)
                        .any(|known| known == phase)
                    || kind.over.holds(object)
            }
            Some(_) => false,
        }
    }

    /// Whether this change is a revival that the operator may make. `false` if the change is no
    /// revival: `old` was not over, or `new` still is.
    pub fn may_revive(&self, role: Role, old: &Value, new: &Value) -> bool {
        let kind = self.rule(role);
        let from = kind.phase_of(old);
        let to = kind.phase_of(new);
        kind.over.holds(old)
            && !kind.over.holds(new)
            && self.is_known_phase(role, new)
            && kind
                .revivals
                .iter()
                .any(|way| way.from == from && way.to.iter().any(|next| next == to))
    }
}

impl KindRule {
    /// The phase of an object of this kind; empty if it has none or it is no text.
    fn phase_of<'a>(&self, object: &'a Value) -> &'a str {
        path::at(object, &self.phase)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

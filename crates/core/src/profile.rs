//! Profiles: what the lock has to know about an operator, as data.
//!
//! A profile names an operator's backup and restore kinds, how an object of them tells that its work is over, and which
//! objects get in each other's way. It is a YAML file (`core/profiles/*.yaml` are built in); another operator is another
//! file. Everything here is pure: objects come in as JSON as they are stored, whatever version of the kind they are of.
//!
//! In doubt an object counts as active and as in the way: a phase that no profile knows, a status that is no text, a
//! field that is missing.

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
    /// Version whose fields the paths mean. Rules of the webhook use `matchPolicy: Equivalent`, so that the API server
    /// converts objects of other versions before they are judged.
    pub version: String,
    /// Whether our controller can do the work of these kinds itself. Only Velero's.
    #[serde(default)]
    pub engine: bool,
    /// ServiceAccount under which the operator works. A policy that comes with the profile's registration lets only it end
    /// work. Empty: nothing is known of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// Which objects get in each other's way.
    pub scope: ScopeRule,
    pub backup: KindRule,
    pub restore: KindRule,
    #[serde(default)]
    pub policy: Policy,
    /// A Lease of the operator's own that says a restore works. It is read, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreign_lease: Option<ForeignLease>,
    /// What must hold before a restore that is over gives up its place. None: it gives it up at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<ReleaseRule>,
}

/// Name of the one profile whose work our controller can do.
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
    /// All of them: one scope for the Kubernetes cluster, named by the group. Inside it the namespaces that an object
    /// reads or writes decide.
    #[default]
    Cluster,
    /// Those of one namespace that name the same database cluster.
    Field {
        /// Path of the field of a backup that names the database cluster.
        backup: String,
        /// Path of the field of a restore that names the database cluster.
        restore: String,
    },
}

/// Which of a profile's two kinds is meant.
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

/// How objects of one kind tell what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KindRule {
    /// The kind, such as `PerconaServerMySQLBackup`.
    pub kind: String,
    /// The resource's name in URLs and rules, such as `perconaservermysqlbackups`.
    pub plural: String,
    /// Whether the status is written through `<plural>/status`. Then rules need that path, too.
    pub status_subresource: bool,
    /// Path of the text that tells how far the work is, such as `status.state`. Empty where the kind has none (the end
    /// is then told by conditions or other fields).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Phases in which the operator has not begun. No phase at all always is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initial: Vec<String>,
    /// Phases in which the operator works. Only for telling known from unknown: whatever is not over is active.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active: Vec<String>,
    /// What holds as soon as the work is over.
    pub over: Predicate,
    /// Ways back to life that the operator takes by itself. Each claims again. Any other is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revivals: Vec<Revival>,
}

/// A way from an end back to work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Revival {
    /// The phase that looked like an end.
    pub from: String,
    /// The phases that may follow it. An empty text is no phase at all.
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

    /// Which of the two kinds this is, if any.
    pub fn role_of(&self, group: &str, kind: &str) -> Option<Role> {
        let is = |role: Role| (self.group == group && self.rule(role).kind == kind).then_some(role);
        is(Role::Backup).or_else(|| is(Role::Restore))
    }

    /// The database cluster that an object names: text of 1 to 253 bytes without control characters. None where the
    /// field is missing, empty or no such text, and where the scope is the whole Kubernetes cluster.
    pub fn cluster_of<'a>(&self, role: Role, object: &'a Value) -> Option<&'a str> {
        let ScopeRule::Field { backup, restore } = &self.scope else { return None };
        let path = if role == Role::Backup { backup } else { restore };
        let name = path::at(object, path)?.as_str()?;
        (!name.is_empty() && name.len() <= 253 && !name.chars().any(char::is_control)).then_some(name)
    }

    /// Whether the database cluster is named by metadata of an object, such as a label, or the name of a cluster itself.
    pub fn scope_is_in_metadata(&self, role: Role) -> bool {
        match &self.scope {
            ScopeRule::Cluster => false,
            ScopeRule::Field { backup, restore } => {
                (if role == Role::Backup { backup } else { restore }).starts_with("metadata.")
            }
        }
    }

    /// The scope that an object belongs to: the group (`velero.io`), or `<profile>/<namespace>/<database cluster>`.
    ///
    /// None if the object does not say which database cluster it is about. Nothing can be kept apart for such an object,
    /// and what the operator would make of it (an error, a default) cannot be known: the webhook refuses it as invalid.
    pub fn scope_of(&self, role: Role, namespace: &str, object: &Value) -> Option<String> {
        match &self.scope {
            ScopeRule::Cluster => Some(self.group.clone()),
            ScopeRule::Field { .. } if namespace.is_empty() => None,
            ScopeRule::Field { .. } => {
                self.cluster_of(role, object).map(|cluster| format!("{}/{namespace}/{cluster}", self.name))
            }
        }
    }

    /// Whether the object's work is over. Only what is stored may be asked: a wish is no end.
    pub fn is_over(&self, role: Role, object: &Value) -> bool {
        self.rule(role).over.holds(object)
    }

    /// The object's phase; empty if it has none or it is no text.
    pub fn phase<'a>(&self, role: Role, object: &'a Value) -> &'a str {
        self.rule(role).phase_of(object)
    }

    /// Whether the object says that the operator has taken it up: it has a phase, and not an initial one. Where the kind
    /// has no phases nobody can tell, and every object counts as begun.
    ///
    /// False is no promise. Only our own engine waits for anything before it works; other operators start on sight, and
    /// may write a phase later (Percona Operator for MySQL pauses the database and creates the restore's Job before it
    /// leaves the empty state: `pkg/controller/psrestore/controller.go`).
    pub fn has_begun(&self, role: Role, object: &Value) -> bool {
        let kind = self.rule(role);
        let phase = kind.phase_of(object);
        kind.phase.is_empty() || !(phase.is_empty() || kind.initial.iter().any(|initial| initial == phase))
    }

    /// Whether the profile knows the object's phase. One that it does not know counts as active; it is to be reported,
    /// for the operator may be newer than the profile and the object may never end.
    pub fn is_known_phase(&self, role: Role, object: &Value) -> bool {
        let kind = self.rule(role);
        match path::at(object, &kind.phase) {
            _ if kind.phase.is_empty() => true,
            None | Some(Value::Null) => true,
            Some(Value::String(phase)) => {
                phase.is_empty()
                    || kind.initial.iter().chain(&kind.active).any(|known| known == phase)
                    || kind.over.holds(object)
            }
            Some(_) => false,
        }
    }

    /// Whether the operator may bring an object that was over back to work in this way. False where nothing comes back
    /// to life: `old` was not over, or `new` still is.
    pub fn may_revive(&self, role: Role, old: &Value, new: &Value) -> bool {
        let kind = self.rule(role);
        let (from, to) = (kind.phase_of(old), kind.phase_of(new));
        kind.over.holds(old)
            && !kind.over.holds(new)
            && self.is_known_phase(role, new)
            && kind.revivals.iter().any(|way| way.from == from && way.to.iter().any(|next| next == to))
    }
}

impl KindRule {
    /// The phase of an object of this kind; empty if it has none or it is no text.
    fn phase_of<'a>(&self, object: &'a Value) -> &'a str {
        path::at(object, &self.phase).and_then(Value::as_str).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

//! The common part of all actions: a name, the items they apply to, item ids, and operations that
//! they may start.

use std::fmt;

use backup_client::errors::{is_transient, plain};
use serde::{Deserialize, Serialize};

pub trait ItemAction: Send + Sync {
    /// Its name, as `domain/name`.
    fn name(&self) -> &str;

    /// The items it applies to. For a restore, namespaces are target namespaces.
    fn applies_to(&self) -> AppliesTo;
}

/// A built-in action that applies to one resource.
pub(crate) trait BuiltInAction: Send + Sync {
    const NAME: &'static str;
    /// As `plural.group`.
    const RESOURCE: &'static str;
    /// Added to the error of a kind that is not served.
    const NOT_SERVED_HINT: &'static str = "; if snapshot.storage.k8s.io/v1 is not served, install the snapshot controller and its definitions";

    fn refuse(reason: impl Into<String>) -> ActionError {
        ActionError::Final {
            action: Self::NAME.to_owned(),
            reason: reason.into(),
        }
    }

    fn failed(doing: &str, error: &kube::Error) -> ActionError {
        let not_served = matches!(error, kube::Error::Api(status) if status.code == 404
            && status.details.as_ref().is_none_or(|details| details.name.is_empty()));
        let hint = if not_served {
            Self::NOT_SERVED_HINT
        } else {
            ""
        };
        let reason = format!("{doing} failed: {}{hint}", plain(error));
        let action = Self::NAME.to_owned();
        if is_transient(error) {
            ActionError::Retryable { action, reason }
        } else {
            ActionError::Final { action, reason }
        }
    }
}

impl<T: BuiltInAction> ItemAction for T {
    fn name(&self) -> &str {
        T::NAME
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::resource(T::RESOURCE)
    }
}

/// The items that an action applies to. Empty lists select everything; an exclude beats an include.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppliesTo {
    /// Resources, as users write them (`pods`, `deployments.apps`, globs).
    pub included_resources: Vec<String>,
    pub excluded_resources: Vec<String>,
    /// Namespaces; cluster-scoped items always match.
    pub included_namespaces: Vec<String>,
    pub excluded_namespaces: Vec<String>,
    /// A label selector as text; empty selects everything.
    pub label_selector: String,
}

impl AppliesTo {
    pub(crate) fn resource(name: &str) -> Self {
        Self::resources(&[name])
    }

    pub(crate) fn resources(names: &[&str]) -> Self {
        let included_resources = names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            included_resources,
            ..Self::default()
        }
    }
}

/// An object by its type and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemId {
    /// `plural`, or `plural.group`.
    pub group_resource: String,
    /// `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    pub name: String,
}

impl ItemId {
    /// The object of this type and name; cluster-scoped without a namespace.
    pub fn new(group_resource: &str, namespace: Option<&str>, name: &str) -> Self {
        Self {
            group_resource: group_resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.group_resource, self.name),
            None => write!(f, "{} {}", self.group_resource, self.name),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationProgress {
    pub completed: bool,
    /// Why it failed; empty if it succeeded.
    pub error: String,
    pub done: i64,
    pub total: i64,
    pub units: String,
    pub description: String,
    /// When it began, and when the action last updated this status.
    pub started: Option<jiff::Timestamp>,
    pub updated: Option<jiff::Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActionError {
    /// A temporary error: a timeout, a process that ended, an unreachable API server.
    #[error("{action}: {reason}")]
    Retryable { action: String, reason: String },
    /// The progress is unknown: the action may have done its work, or may still be running.
    #[error("{action}: {reason}; whether it has started something is not known")]
    Unknown { action: String, reason: String },
    /// A permanent error: no such action, operation or method, or a refusal of the action.
    #[error("{action}: {reason}")]
    Final { action: String, reason: String },
}

/// The answer of an action that never starts an operation.
pub(crate) fn no_operations(action: &str, operation: &str) -> ActionError {
    ActionError::Final {
        action: action.to_owned(),
        reason: format!("it starts no operations, so it does not know {operation:?}"),
    }
}

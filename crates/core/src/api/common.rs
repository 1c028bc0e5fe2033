//! Pieces that several kinds share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::{api_struct, string_enum};

/// Fields that this version does not know, kept for round trips.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// For `skip_serializing_if`: Go's `omitempty`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Decodes `null` as the default value, as Go does.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

api_struct! {
    /// Labels and annotations that a template hands to what is made from it.
    TemplateMetadata {
        /// Labels of the object made from the template.
        labels?: Option<BTreeMap<String, String>>,
        /// Annotations of the object made from the template.
        annotations?: Option<BTreeMap<String, String>>,
    }
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// API group; none is the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// A key of a Secret in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SecretKey {
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
    /// Key in the Secret.
    pub key: String,
    /// Whether the Secret or key may be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
}

api_struct! {
    /// Counts of hooks that ran.
    HookStatus {
        /// Hooks that were started.
        hooks_attempted?: i64,
        /// Hooks that failed.
        hooks_failed?: i64,
    }
}

string_enum! {
    /// What a failing hook does to its item.
    HookErrorMode {
        /// The failure is recorded and the item goes on.
        Continue = "Continue",
        Fail = "Fail",
    }
}

string_enum! {
    /// Where a transfer of volume data is in its life.
    MovePhase {
        New = "New",
        Accepted = "Accepted",
        /// The volume is ready to be read or written.
        Prepared = "Prepared",
        InProgress = "InProgress",
        Canceling = "Canceling",
        Canceled = "Canceled",
        Completed = "Completed",
        Failed = "Failed",
    }
}

api_struct! {
    /// Bytes of a transfer.
    MoveProgress {
        /// Bytes to move; grows while they are counted.
        total_bytes?: i64,
        /// Bytes moved.
        bytes_done?: i64,
    }
}

string_enum! {
    /// Program and repository format of volume data.
    UploaderType {
        Kopia = "kopia",
        Restic = "restic",
        Unset = "",
    }
}

#[allow(clippy::derivable_impls)] // the macro derives for all enums alike, and most have no default
impl Default for UploaderType {
    fn default() -> Self {
        Self::Unset
    }
}

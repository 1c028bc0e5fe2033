//! Pieces that several kinds share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::string_enum;

/// Fields that this version does not know, kept for round trips.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// For `skip_serializing_if`: Go's `omitempty` on a number.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
pub(crate) fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// For `skip_serializing_if`: Go's `omitempty` on a bool.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
pub(crate) fn is_false(b: &bool) -> bool {
    !*b
}

/// Decodes `null` as the default value, as Go does for lists, maps and structs.
pub(crate) fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// Labels and annotations that a template hands to what is made from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TemplateMetadata {
    /// Labels of the object made from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Annotations of the object made from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
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

/// Counts of hooks that ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookStatus {
    /// Hooks that were started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hooks_attempted: i64,
    /// Hooks that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hooks_failed: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// What a failing hook does to its item.
    HookErrorMode {
        /// The failure is recorded and the item goes on.
        Continue = "Continue",
        /// The item fails.
        Fail = "Fail",
    }
}

string_enum! {
    /// Where a transfer of volume data is in its life.
    MovePhase {
        /// Not looked at yet.
        New = "New",
        /// A node has taken it.
        Accepted = "Accepted",
        /// The volume is ready to be read or written.
        Prepared = "Prepared",
        /// Data is moving.
        InProgress = "InProgress",
        /// Being stopped.
        Canceling = "Canceling",
        /// Stopped before its end.
        Canceled = "Canceled",
        /// Done.
        Completed = "Completed",
        /// Ended by an error.
        Failed = "Failed",
    }
}

/// Bytes of a transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoveProgress {
    /// Bytes to move; grows while they are counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_bytes: i64,
    /// Bytes moved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes_done: i64,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Program and repository format of volume data.
    UploaderType {
        /// Kopia.
        Kopia = "kopia",
        /// Restic.
        Restic = "restic",
        /// Not chosen.
        Unset = "",
    }
}

#[allow(clippy::derivable_impls)] // the macro derives for all enums alike, and most have no default
impl Default for UploaderType {
    fn default() -> Self {
        Self::Unset
    }
}

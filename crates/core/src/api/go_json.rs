//! JSON as Go reads and writes it, for the fields of all kinds.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Fields that this version does not know, kept for round trips.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// For `skip_serializing_if`: Go's `omitempty`.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Decodes `null` as the default value, as Go does.
pub fn null_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

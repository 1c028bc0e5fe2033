//! Service accounts: references to generated token Secrets go; those Secrets are not restored.

use serde_json::Value;

use super::json::{self, Object};

/// Drops references to `<account>-token-*`.
pub(crate) fn rewrite(item: &mut Object) {
    let prefix = format!("{}-token-", json::text(item, &["metadata"], "name").unwrap_or_default());
    let Some(secrets) = json::list_mut(item, &[], "secrets") else { return };
    secrets.retain(|s| s.get("name").and_then(Value::as_str).is_none_or(|name| !name.starts_with(&prefix)));
    if secrets.is_empty() {
        item.remove("secrets");
    }
}

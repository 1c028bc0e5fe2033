//! Why an object that is being deleted still exists.

use backup_actions::restore::json::{self, Object};
use serde_json::Value;

/// [`what_holds`] in brackets, to be appended to a message; empty if unknown.
pub(in crate::restore) fn held(object: &Object) -> String {
    what_holds(object)
        .map(|what| format!(" ({what})"))
        .unwrap_or_default()
}

/// Why an object that is being deleted still exists: from its conditions (a namespace) or
/// finalizers.
pub(super) fn what_holds(object: &Object) -> Option<String> {
    let conditions = json::object(object, &["status"]).and_then(|status| status.get("conditions"));
    let conditions: Vec<&str> = conditions
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|condition| condition["status"] == "True")
        .filter_map(|condition| condition["message"].as_str())
        .filter(|message| !message.is_empty())
        .collect();
    if !conditions.is_empty() {
        return Some(conditions.join("; "));
    }
    let finalizers = json::object(object, &["metadata"])?
        .get("finalizers")?
        .as_array()?;
    let finalizers: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
    (!finalizers.is_empty()).then(|| format!("it has finalizers: {}", finalizers.join(", ")))
}

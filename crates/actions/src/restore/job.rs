//! Jobs: the generated selector goes, so that the new Job gets its own.

use super::json::{self, Object};

/// Labels that tie pods to the uid of the old Job.
const GENERATED: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// A Job that was done would run again.
pub(crate) fn skip_reason(item: &Object) -> Option<&'static str> {
    json::text(item, &["status"], "completionTime").map(|_| "the job had completed")
}

/// Removes the generated selector and labels, unless the selector was chosen by a person.
pub(crate) fn rewrite(item: &mut Object) {
    if json::is_true(item, &["spec"], "manualSelector") {
        return;
    }
    json::remove(item, &["spec", "selector", "matchLabels"], &GENERATED);
    if json::object(item, &["spec", "selector"]).is_some_and(Object::is_empty) {
        json::remove(item, &["spec"], &["selector"]);
    }
    json::remove(item, &["spec", "template", "metadata", "labels"], &GENERATED);
    json::remove(item, &["metadata", "labels"], &GENERATED);
}

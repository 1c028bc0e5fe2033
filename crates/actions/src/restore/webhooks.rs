//! `velero.io/admission-webhook-configuration`: `v1beta1` of webhook configurations accepted values
//! of `sideEffects` that `v1` refuses (Velero
//! `pkg/restore/actions/admissionwebhook_config_action.go`, v1.18).

use serde_json::Value;

use super::{
    json::{self, Object},
    mapped_links,
    rules::RestoreRules,
};

pub(crate) const NAME: &str = "velero.io/admission-webhook-configuration";
pub(crate) const TYPES: [&str; 2] = [
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
];
/// Values that `v1` accepts.
const VALID: [&str; 2] = ["None", "NoneOnDryRun"];

/// Also applies the namespace mapping to the Services.
pub(crate) fn rewrite(item: &mut Object, rules: &RestoreRules) {
    let is_v1 = json::text(item, &[], "apiVersion") == Some("admissionregistration.k8s.io/v1");
    let webhooks = json::list_mut(item, &[], "webhooks").into_iter().flatten();
    for webhook in webhooks.filter_map(Value::as_object_mut) {
        mapped_links::map_service(webhook, &["clientConfig", "service"], rules);
        if is_v1
            && json::text(webhook, &[], "sideEffects").is_none_or(|value| !VALID.contains(&value))
        {
            webhook.insert("sideEffects".to_owned(), Value::from("None"));
        }
    }
}

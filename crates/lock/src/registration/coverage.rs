//! Whether the registration makes the API server call a webhook for all requests that the lock must
//! see. Pure.

use std::collections::BTreeMap;

use backup_core::{profile::Profile, resources::group_resource, selection::LabelFilter};
use k8s_openapi::{
    api::admissionregistration::v1::{ValidatingWebhook, ValidatingWebhookConfiguration},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

use super::Registration;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Requests for which a webhook must be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedRequest {
    pub group: String,
    pub plural: String,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
}

impl GuardedRequest {
    /// The requests that start or widen work of a profile, and those that delete a backup that may
    /// be restored.
    pub fn of(profile: &Profile) -> Vec<Self> {
        let kinds = [&profile.backup.plural, &profile.restore.plural];
        let begins = kinds
            .into_iter()
            .flat_map(|plural| ["CREATE", "UPDATE"].map(|verb| Self::new(profile, plural, verb)));
        let goes = [("backups", "DELETE"), ("deletebackuprequests", "CREATE")];
        let goes = goes.into_iter().filter(|_| profile.is_velero());
        begins
            .chain(goes.map(|(plural, verb)| Self::new(profile, plural, verb)))
            .collect()
    }

    fn new(profile: &Profile, plural: &str, operation: &'static str) -> Self {
        Self {
            group: profile.group.clone(),
            plural: plural.to_owned(),
            operation,
        }
    }
}

impl Registration {
    /// Reasons why requests bypass the webhook with this registration, a sentence each.
    /// `namespaces` are the relevant namespaces, with their labels. Conditions (`matchConditions`)
    /// are not judged: only a request shows what they exclude.
    pub fn gaps(
        configuration: &ValidatingWebhookConfiguration,
        requests: &[GuardedRequest],
        namespaces: &BTreeMap<String, Labels>,
    ) -> Vec<String> {
        let webhooks = configuration.webhooks.as_deref().unwrap_or_default();
        let mut gaps: Vec<String> = webhooks
            .iter()
            .filter(|webhook| is_part_of_lock(webhook, requests))
            .flat_map(|webhook| lets_pass(webhook, namespaces))
            .collect();
        for (operation, what) in [
            ("CREATE", "creations"),
            ("UPDATE", "changes"),
            ("DELETE", "deletions"),
        ] {
            let of_operation = requests
                .iter()
                .filter(|request| request.operation == operation);
            let missing: Vec<String> = of_operation
                .filter(|request| !webhooks.iter().any(|webhook| covers(webhook, request)))
                .map(|request| group_resource(&request.plural, &request.group))
                .collect();
            if !missing.is_empty() {
                gaps.push(format!(
                    "{what} of {} do not pass the webhook",
                    missing.join(" and ")
                ));
            }
        }
        gaps
    }

    /// Whether judging a selector of the registration needs the labels of namespaces.
    pub fn selects_namespaces(configuration: &ValidatingWebhookConfiguration) -> bool {
        let selectors = configuration
            .webhooks
            .iter()
            .flatten()
            .map(|webhook| &webhook.namespace_selector);
        selectors.flatten().any(|selector| !is_empty(selector))
    }
}

/// A webhook that is called for other things (Schedules) is not part of the lock.
fn is_part_of_lock(webhook: &ValidatingWebhook, requests: &[GuardedRequest]) -> bool {
    let has_rules = webhook
        .rules
        .as_ref()
        .is_some_and(|rules| !rules.is_empty());
    requests.is_empty() || !has_rules || requests.iter().any(|request| covers(webhook, request))
}

fn lets_pass(webhook: &ValidatingWebhook, namespaces: &BTreeMap<String, Labels>) -> Vec<String> {
    let name = &webhook.name;
    let mut gaps = Vec::new();
    if webhook.failure_policy.as_deref() == Some("Ignore") {
        gaps.push(format!(
            "failurePolicy of {name} is Ignore: while the webhook is away, everything passes"
        ));
    }
    if let Some(selector) = webhook
        .namespace_selector
        .as_ref()
        .filter(|selector| !is_empty(selector))
    {
        let filter = LabelFilter::of(&Some(selector.clone()), &None);
        let out = namespaces
            .iter()
            .filter(|(_, labels)| !filter.matches(labels));
        gaps.extend(out.map(|(namespace, _)| {
            format!("namespaceSelector of {name} leaves out namespace {namespace}: there everything passes")
        }));
    }
    if webhook
        .object_selector
        .as_ref()
        .is_some_and(|selector| !is_empty(selector))
    {
        gaps.push(format!(
            "objectSelector of {name} leaves out objects by labels, which their author sets"
        ));
    }
    gaps
}

fn is_empty(selector: &LabelSelector) -> bool {
    LabelFilter::of(&Some(selector.clone()), &None).everything()
}

fn covers(webhook: &ValidatingWebhook, request: &GuardedRequest) -> bool {
    webhook.rules.iter().flatten().any(|rule| {
        contains(rule.api_groups.as_ref(), &request.group)
            && contains(rule.resources.as_ref(), &request.plural)
            && contains(rule.operations.as_ref(), request.operation)
            && rule.scope.as_deref() != Some("Cluster")
    })
}

/// Whether a list of a rule contains this name, or `*`.
fn contains(list: Option<&Vec<String>>, name: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|one| one == name || one == "*"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SHIPPED: &str = include_str!("../../../../deploy/base/webhook.yaml");

    fn shipped() -> Value {
        let documents = SHIPPED
            .split("\n---\n")
            .map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        documents
            .into_iter()
            .find(|one| one["kind"] == "ValidatingWebhookConfiguration")
            .unwrap()
    }

    fn gaps(configuration: &Value) -> String {
        let name = [("kubernetes.io/metadata.name", "velero"), ("team", "a")];
        let labels = name
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let configuration = serde_json::from_value(configuration.clone()).unwrap();
        let requests = GuardedRequest::of(&Profile::velero());
        Registration::gaps(
            &configuration,
            &requests,
            &[("velero".to_owned(), labels)].into(),
        )
        .join("; ")
    }

    #[test]
    fn table_of_registrations() {
        let ignore = "failurePolicy of claims.backup-webhook.velero.io is Ignore: while the webhook is away, everything passes";
        let left_out = "namespaceSelector of claims.backup-webhook.velero.io leaves out namespace velero: there everything passes";
        let objects = "objectSelector of claims.backup-webhook.velero.io leaves out objects by labels, which their author sets";
        let all = "creations of backups.velero.io and restores.velero.io do not pass the webhook; \
                   changes of backups.velero.io and restores.velero.io do not pass the webhook";
        let others = json!({ "matchExpressions": [{ "key": "team", "operator": "NotIn", "values": ["a"] }] });
        let azure =
            json!({ "matchExpressions": [{ "key": "control-plane", "operator": "DoesNotExist" }] });
        for (at, value, expected) in [
            ("/webhooks/0/timeoutSeconds", json!(5), ""),
            ("/webhooks/0/failurePolicy", json!("Ignore"), ignore),
            ("/webhooks/0/namespaceSelector", json!({}), ""),
            ("/webhooks/0/namespaceSelector", azure, ""),
            ("/webhooks/0/namespaceSelector", others, left_out),
            (
                "/webhooks/0/namespaceSelector",
                json!({ "matchLabels": { "guarded": "yes" } }),
                left_out,
            ),
            (
                "/webhooks/0/objectSelector",
                json!({ "matchLabels": { "guarded": "yes" } }),
                objects,
            ),
            // Schedules have no claims.
            ("/webhooks/2/failurePolicy", json!("Ignore"), ""),
            ("/webhooks/0/rules", json!([]), all),
            ("/webhooks/0/rules/0/scope", json!("Cluster"), all),
            (
                "/webhooks/0/rules/0/apiGroups",
                json!(["pxc.percona.com"]),
                all,
            ),
            ("/webhooks/0/rules/0/operations", json!(["*"]), ""),
            (
                "/webhooks/1/rules",
                json!([]),
                "creations of deletebackuprequests.velero.io do not pass the webhook; \
                 deletions of backups.velero.io do not pass the webhook",
            ),
        ] {
            let mut configuration = shipped();
            let (parent, field) = at.rsplit_once('/').unwrap();
            configuration.pointer_mut(parent).unwrap()[field] = value.clone();
            assert_eq!(gaps(&configuration), expected, "{at}: {value}");
        }
        assert!(gaps(&json!({ "webhooks": [] })).contains("creations of backups.velero.io"));
    }
}

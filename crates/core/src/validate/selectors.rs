//! Label selectors.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::Findings;
use crate::names::is_object_name;

/// Checks the two selector fields of a spec: at most one may be set, and the API server must accept
/// each.
pub(super) fn check(
    one: Option<&LabelSelector>,
    any: Option<&Vec<LabelSelector>>,
    found: &mut Findings,
) {
    if one.is_some() && any.is_some() {
        let message = "can not be given together with labelSelector; move that into this list";
        found.say("spec.orLabelSelectors", message);
    }
    if let Some(selector) = one {
        check_one("spec.labelSelector", selector, found);
    }
    for (at, selector) in any.into_iter().flatten().enumerate() {
        check_one(&format!("spec.orLabelSelectors[{at}]"), selector, found);
    }
}

/// Checks one selector by the rules of Kubernetes.
pub(super) fn check_one(field: &str, selector: &LabelSelector, found: &mut Findings) {
    for (key, value) in selector.match_labels.iter().flatten() {
        let field = format!("{field}.matchLabels");
        check_key(&field, key, found);
        check_value(&field, value, found);
    }
    for (at, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let field = format!("{field}.matchExpressions[{at}]");
        check_key(&format!("{field}.key"), &requirement.key, found);
        let values = requirement.values.as_deref().unwrap_or_default();
        let problem = match (requirement.operator.as_str(), values) {
            ("In" | "NotIn", []) => Some("values must not be empty with In and NotIn".to_owned()),
            ("Exists" | "DoesNotExist", [_, ..]) => {
                Some("values must be empty with Exists and DoesNotExist".to_owned())
            }
            ("In" | "NotIn" | "Exists" | "DoesNotExist", _) => None,
            (other, _) => Some(format!(
                "operator {other:?} is not one of In, NotIn, Exists and DoesNotExist"
            )),
        };
        if let Some(message) = problem {
            found.say(&field, message);
        }
        for value in values {
            check_value(&format!("{field}.values"), value, found);
        }
    }
}

/// A label key: an optional DNS name and a slash, then a name.
fn check_key(field: &str, key: &str, found: &mut Findings) {
    let (prefix, name) = key
        .rsplit_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_object_name(prefix))
        || name.is_empty()
        || !is_label_text(name)
    {
        found.say(
            field,
            format!("{key:?} is not a label key such as \"example.com/team\""),
        );
    }
}

fn check_value(field: &str, value: &str, found: &mut Findings) {
    if !is_label_text(value) {
        found.say(
            field,
            format!(
                "{value:?} is not a label value: letters, digits and inner dashes, dots and underscores, at most 63"
            ),
        );
    }
}

/// Whether a text has the characters and length of a label value; an empty text has.
fn is_label_text(text: &str) -> bool {
    let first = text.chars().next();
    let last = text.chars().last();
    text.len() <= 63
        && first.is_none_or(|c| c.is_ascii_alphanumeric())
        && last.is_none_or(|c| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(serde_json::json!({}), &[])]
    #[case(serde_json::json!({ "matchLabels": { "example.com/team": "a.b_c-d", "app": "" } }), &[])]
    #[case(serde_json::json!({ "matchLabels": { "a b": "x" } }), &["s.matchLabels"])]
    #[case(serde_json::json!({ "matchLabels": { "a": "-x" } }), &["s.matchLabels"])]
    #[case(serde_json::json!({ "matchLabels": { "/a": "x" } }), &["s.matchLabels"])]
    #[case(serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["x"] }] }), &[])]
    #[case(serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": "In" }] }), &["s.matchExpressions[0]"])]
    #[case(serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": "Exists", "values": ["x"] }] }), &["s.matchExpressions[0]"])]
    #[case(serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": "in", "values": ["x"] }] }), &["s.matchExpressions[0]"])]
    #[case(serde_json::json!({ "matchExpressions": [{ "operator": "Exists" }] }), &["s.matchExpressions[0].key"])]
    fn a_selector_must_be_one_that_kubernetes_takes(
        #[case] selector: serde_json::Value,
        #[case] fields: &[&str],
    ) {
        let mut found = Findings::default();
        check_one("s", &serde_json::from_value(selector).unwrap(), &mut found);
        assert_eq!(
            found.0.iter().map(|f| f.field.as_str()).collect::<Vec<_>>(),
            fields
        );
    }
}

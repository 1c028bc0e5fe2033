//! Selection by labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// The label selectors of a Backup or Restore: an item passes if it matches one of them, or if
/// there are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelFilter {
    selectors: Vec<LabelSelector>,
}

impl LabelFilter {
    /// From the two fields of a spec. Validation refuses both at once; if both are set, an item
    /// must pass both.
    pub fn of(label_selector: &Option<LabelSelector>, or: &Option<Vec<LabelSelector>>) -> Self {
        let selectors = match (label_selector, or.as_deref()) {
            (None, None | Some([])) => Vec::new(),
            (Some(one), None | Some([])) => vec![one.clone()],
            (None, Some(any)) => any.to_vec(),
            (Some(one), Some(any)) => any.iter().map(|other| both(one, other)).collect(),
        };
        Self { selectors }
    }

    /// Selectors for LIST requests, whose combined results are the selection (an item may be in
    /// several). One empty selector if there is no filter.
    pub fn selectors(&self) -> Vec<String> {
        // A selector that selects everything makes the others redundant.
        if self.everything() {
            return vec![String::new()];
        }
        self.selectors.iter().map(text).collect()
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selectors.is_empty()
            || self
                .selectors
                .iter()
                .any(|selector| selector_matches(selector, labels))
    }

    /// Whether an object is selected; `labels` is called only if needed.
    pub fn selects(&self, labels: impl FnOnce() -> BTreeMap<String, String>) -> bool {
        self.everything() || self.matches(&labels())
    }

    pub fn everything(&self) -> bool {
        self.selectors.is_empty()
            || self
                .selectors
                .iter()
                .any(|selector| text(selector).is_empty())
    }
}

fn both(one: &LabelSelector, other: &LabelSelector) -> LabelSelector {
    let expressions: Vec<LabelSelectorRequirement> =
        [one, other].into_iter().flat_map(requirements).collect();
    LabelSelector {
        match_labels: None,
        match_expressions: Some(expressions),
    }
}

/// All conditions of a selector in the same form.
fn requirements(selector: &LabelSelector) -> Vec<LabelSelectorRequirement> {
    let equal =
        selector
            .match_labels
            .iter()
            .flatten()
            .map(|(key, value)| LabelSelectorRequirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: Some(vec![value.clone()]),
            });
    equal
        .chain(selector.match_expressions.iter().flatten().cloned())
        .collect()
}

/// The selector in the API server's syntax. An unknown operator is kept, so that the server refuses
/// it.
fn text(selector: &LabelSelector) -> String {
    let parts: Vec<String> = requirements(selector)
        .iter()
        .map(|requirement| {
            let key = &requirement.key;
            let values = requirement.values.as_deref().unwrap_or_default();
            match (requirement.operator.as_str(), values) {
                ("In", [value]) => format!("{key}={value}"),
                ("In", values) => format!("{key} in ({})", values.join(",")),
                ("NotIn", values) => format!("{key} notin ({})", values.join(",")),
                ("Exists", _) => key.clone(),
                ("DoesNotExist", _) => format!("!{key}"),
                (other, values) => format!("{key} {other} ({})", values.join(",")),
            }
        })
        .collect();
    parts.join(",")
}

fn selector_matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    requirements(selector).iter().all(|requirement| {
        let value = labels.get(&requirement.key);
        let listed =
            value.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
        match requirement.operator.as_str() {
            "In" => listed,
            // As in Kubernetes: `NotIn` includes objects without the label.
            "NotIn" => !listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(json: serde_json::Value) -> LabelSelector {
        serde_json::from_value(json).unwrap()
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn no_selector_selects_everything_with_one_list() {
        for filter in [
            LabelFilter::of(&None, &None),
            LabelFilter::of(&None, &Some(vec![])),
            LabelFilter::of(&Some(LabelSelector::default()), &None),
        ] {
            assert_eq!(filter.selectors(), [""]);
            assert!(filter.matches(&labels(&[])) && filter.everything());
        }
    }

    #[test]
    fn a_selector_is_written_as_the_api_server_reads_it() {
        let filter = LabelFilter::of(
            &Some(selector(serde_json::json!({
                "matchLabels": { "app": "web" },
                "matchExpressions": [
                    { "key": "tier", "operator": "In", "values": ["a", "b"] },
                    { "key": "env", "operator": "NotIn", "values": ["dev"] },
                    { "key": "owner", "operator": "Exists" },
                    { "key": "old", "operator": "DoesNotExist" },
                ],
            }))),
            &None,
        );
        assert_eq!(
            filter.selectors(),
            ["app=web,tier in (a,b),env notin (dev),owner,!old"]
        );
        assert!(filter.matches(&labels(&[("app", "web"), ("tier", "b"), ("owner", "")])));
        for wrong in [
            labels(&[("app", "web"), ("tier", "b")]),
            labels(&[("app", "web"), ("tier", "c"), ("owner", "")]),
            labels(&[("app", "web"), ("tier", "b"), ("owner", ""), ("env", "dev")]),
            labels(&[("app", "web"), ("tier", "b"), ("owner", ""), ("old", "")]),
        ] {
            assert!(!filter.matches(&wrong), "{wrong:?}");
        }
    }

    #[test]
    fn one_of_several_selectors_is_enough() {
        let or = vec![
            selector(serde_json::json!({ "matchLabels": { "app": "web" } })),
            selector(serde_json::json!({ "matchLabels": { "app": "db" } })),
        ];
        let filter = LabelFilter::of(&None, &Some(or));
        assert_eq!(filter.selectors(), ["app=web", "app=db"]);
        assert!(filter.matches(&labels(&[("app", "db")])));
        assert!(!filter.matches(&labels(&[("app", "queue")])));
    }

    #[test]
    fn both_kinds_of_selectors_at_once_must_both_match() {
        let one = selector(serde_json::json!({ "matchLabels": { "team": "a" } }));
        let or = vec![selector(
            serde_json::json!({ "matchLabels": { "app": "web" } }),
        )];
        let filter = LabelFilter::of(&Some(one), &Some(or));
        assert_eq!(filter.selectors(), ["team=a,app=web"]);
        assert!(!filter.matches(&labels(&[("app", "web")])));
    }

    #[test]
    fn an_unknown_operator_selects_nothing() {
        let filter = LabelFilter::of(
            &Some(selector(
                serde_json::json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] }),
            )),
            &None,
        );
        assert!(!filter.matches(&labels(&[("a", "b")])));
    }
}

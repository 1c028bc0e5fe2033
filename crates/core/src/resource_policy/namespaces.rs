//! Namespaces that a policy includes or excludes by their labels.
//!
//! Velero: `internal/resourcepolicies` after 1.18 (`includedNamespacesByLabel`). Both lists are
//! evaluated independently; how they combine with the names of a spec is decided where a backup is
//! prepared.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::selection::LabelFilter;

/// The selectors of `includeExcludePolicy` for namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceLabels {
    pub included: Vec<LabelSelector>,
    pub excluded: Vec<LabelSelector>,
    /// Whether a namespace must match all selectors of a list, instead of any one.
    pub all: bool,
}

impl NamespaceLabels {
    pub fn is_empty(&self) -> bool {
        self.included.is_empty() && self.excluded.is_empty()
    }

    pub fn includes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_any_or_all(&self.included, labels)
    }

    pub fn excludes(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_any_or_all(&self.excluded, labels)
    }

    fn match_any_or_all(
        &self,
        selectors: &[LabelSelector],
        labels: &BTreeMap<String, String>,
    ) -> bool {
        if self.all {
            !selectors.is_empty() && selectors.iter().all(|selector| matches(selector, labels))
        } else {
            selectors.iter().any(|selector| matches(selector, labels))
        }
    }
}

fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    LabelFilter::of(&Some(selector.clone()), &None).matches(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::parse_selector;

    #[rstest::rstest]
    #[case::one_of_them(&["team=a", "team=b"], false, "team=b", true)]
    #[case::none_of_them(&["team=a", "team=b"], false, "team=c", false)]
    #[case::not_all(&["team=a", "env=prod"], true, "team=a", false)]
    #[case::all(&["team=a", "env=prod"], true, "team=a,env=prod", true)]
    #[case::within_one(&["team=a,env=prod"], false, "team=a", false)]
    #[case::set(&["team in (a, b),!old"], false, "team=b", true)]
    #[case::without(&["team in (a, b),!old"], false, "team=b,old=yes", false)]
    #[case::no_selector(&[], true, "team=a", false)]
    fn a_namespace_matches(
        #[case] selectors: &[&str],
        #[case] all: bool,
        #[case] labels: &str,
        #[case] expected: bool,
    ) {
        let list: Vec<LabelSelector> = selectors
            .iter()
            .map(|text| parse_selector(text).unwrap())
            .collect();
        let labels: BTreeMap<String, String> = labels
            .split(',')
            .map(|label| label.split_once('=').unwrap())
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let included = NamespaceLabels {
            included: list.clone(),
            all,
            ..NamespaceLabels::default()
        };
        assert_eq!(included.includes(&labels), expected);
        assert!(
            !included.excludes(&labels),
            "the lists are looked up on their own"
        );
        let excluded = NamespaceLabels {
            excluded: list,
            all,
            ..NamespaceLabels::default()
        };
        assert_eq!(excluded.excludes(&labels), expected);
    }
}

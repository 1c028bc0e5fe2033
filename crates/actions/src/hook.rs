//! Common parts of backup and restore hooks: the pods that they apply to, and the format of
//! commands in annotations. Pure.

use std::collections::BTreeMap;

use backup_core::{
    resources::full_names,
    selection::{IncludesExcludes, LabelFilter},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The names of pods as users write them. Every cluster serves pods, so discovery is not needed.
const PODS: [&str; 4] = ["pod", "pods", "po", "pods.v1"];

/// The pods that an entry of `spec.hooks.resources` applies to.
#[derive(Clone, Debug)]
pub struct PodSelector {
    namespaces: IncludesExcludes,
    labels: LabelFilter,
}

/// Includes and excludes, as in a spec.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    pub included: &'a [String],
    pub excluded: &'a [String],
}

impl PodSelector {
    /// Returns `None` if the entry applies only to other types: only pods can run a command.
    pub fn new(
        namespaces: Filter<'_>,
        resources: Filter<'_>,
        labels: &Option<LabelSelector>,
    ) -> Option<Self> {
        let includes_pods = IncludesExcludes::new(
            &full_names(resources.included, &resolve_pods),
            &full_names(resources.excluded, &resolve_pods),
        )
        .includes(PODS[1]);
        includes_pods.then(|| Self {
            namespaces: IncludesExcludes::new(namespaces.included, namespaces.excluded),
            labels: LabelFilter::of(labels, &None),
        })
    }

    pub fn matches(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        self.namespaces.includes(namespace) && self.labels.matches(labels)
    }
}

fn resolve_pods(name: &str) -> Option<String> {
    PODS.contains(&name.to_ascii_lowercase().as_str())
        .then(|| PODS[1].to_owned())
}

/// The command of an annotation: a JSON list of texts, or one word without arguments (Velero
/// `internal/hook/item_hook_handler.go`, `parseStringToCommand`, v1.18).
pub fn command(text: &str) -> Vec<String> {
    let listed = text
        .starts_with('[')
        .then(|| serde_json::from_str(text).ok())
        .flatten();
    listed
        .filter(|command: &Vec<String>| !command.is_empty())
        .unwrap_or_else(|| vec![text.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case("sync", &["sync"])]
    #[case("[\"a\", \"b c\"]", &["a", "b c"])]
    #[case("[not json", &["[not json"])]
    #[case("[1, 2]", &["[1, 2]"])]
    #[case("[]", &["[]"])]
    fn a_command_is_a_list_or_one_word(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(command(text), expected);
    }
}

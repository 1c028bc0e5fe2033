//! Namespaces that the resource policy selects by their labels, written into the spec of a Backup
//! when it starts.
//!
//! Velero: `pkg/controller/backup_controller.go` (`mergeNamespacesByLabel`), after 1.18. Selected
//! namespaces replace an empty `includedNamespaces`; `*` still means all, and namespaces excluded
//! by label are excluded from either.

use backup_core::{
    api::BackupSpec, resource_policy::NamespaceLabels, selection::IncludesExcludes,
    validate::Finding,
};

use super::Facts;

const INCLUDED: &str = "spec.resourcePolicy: includeExcludePolicy.includedNamespacesByLabel";
/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;

/// Adds the namespaces. The error says why the backup cannot run with them: a spec that selects
/// fewer namespaces than intended must not become one of all, and one that selects more than its
/// claim covers is unknown to the lock.
pub(super) fn select(
    spec: &mut BackupSpec,
    by_label: &NamespaceLabels,
    facts: &Facts,
) -> Option<Finding> {
    if by_label.is_empty() {
        return None;
    }
    for (name, labels) in &facts.namespaces {
        if by_label.excludes(labels) && !spec.excluded_namespaces.contains(name) {
            spec.excluded_namespaces.push(name.clone());
        }
    }
    if by_label.included.is_empty() {
        return None;
    }
    let given = IncludesExcludes::new(&spec.included_namespaces, &[]);
    let left_out = IncludesExcludes::new(&[], &spec.excluded_namespaces);
    let selected = facts.namespaces.iter().filter(|(name, labels)| {
        by_label.includes(labels)
            && left_out.includes(name)
            && !facts.excluded_namespaces.contains(name)
    });
    let selected: Vec<String> = selected.map(|(name, _)| name.clone()).collect();
    if !spec.included_namespaces.is_empty() {
        let further: Vec<&str> = selected
            .iter()
            .map(String::as_str)
            .filter(|name| !given.includes(name))
            .collect();
        return (!further.is_empty()).then(|| {
            let more = if further.len() > MAX_NAMES { ", and others" } else { "" };
            let names = further.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", ");
            Finding::new(
                INCLUDED,
                format!(
                    "selects {names}{more} besides spec.includedNamespaces; the lock keeps restores away from the namespaces of the \
                     spec only, so name them there, or leave spec.includedNamespaces empty"
                ),
            )
        });
    }
    if selected.is_empty() {
        let message = "selects no namespace now, so nothing would be backed up; label a namespace, or change the selectors";
        return Some(Finding::new(INCLUDED, message));
    }
    spec.included_namespaces = selected;
    None
}

#[cfg(test)]
mod tests {
    use backup_core::selection::parse_selector;
    use serde_json::json;

    use super::*;

    fn facts() -> Facts {
        let namespaces = [
            ("a", "team", "shop"),
            ("b", "team", "shop"),
            ("c", "team", "ops"),
            ("d", "scratch", "yes"),
        ];
        let namespaces = namespaces.map(|(name, key, value)| {
            (name.to_owned(), [(key.to_owned(), value.to_owned())].into())
        });
        Facts {
            namespaces: namespaces.into(),
            excluded_namespaces: vec!["b".to_owned()],
            ..Facts::default()
        }
    }

    fn by_label(included: &[&str], excluded: &[&str]) -> NamespaceLabels {
        let [included, excluded] = [included, excluded].map(|all| {
            all.iter()
                .map(|text| parse_selector(text).unwrap())
                .collect()
        });
        NamespaceLabels {
            included,
            excluded,
            all: false,
        }
    }

    #[rstest::rstest]
    #[case::in_the_place_of_all(json!({}), &["team=shop"], &[], &["a"], &[])]
    #[case::several(json!({}), &["team=shop", "team=ops"], &[], &["a", "c"], &[])]
    #[case::without_those_left_out(json!({}), &["team"], &["team=ops"], &["a"], &["c"])]
    #[case::without_those_of_the_spec(json!({ "excludedNamespaces": ["a*"] }), &["team"], &[], &["c"], &["a*"])]
    #[case::all_but_some(json!({}), &[], &["scratch"], &[], &["d"])]
    #[case::a_star_stays_all(json!({ "includedNamespaces": ["*"] }), &["team=shop"], &["scratch"], &["*"], &["d"])]
    #[case::named_already(json!({ "includedNamespaces": ["a", "c"] }), &["team=shop"], &[], &["a", "c"], &[])]
    fn labels_select_namespaces(
        #[case] spec: serde_json::Value,
        #[case] included: &[&str],
        #[case] excluded: &[&str],
        #[case] expected: &[&str],
        #[case] left_out: &[&str],
    ) {
        let mut spec: BackupSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(
            select(&mut spec, &by_label(included, excluded), &facts()),
            None
        );
        assert_eq!(spec.included_namespaces, expected);
        assert_eq!(spec.excluded_namespaces, left_out);
    }

    #[rstest::rstest]
    #[case::nothing(json!({}), "team=none", "selects no namespace")]
    #[case::only_such_as_exclude_themselves(json!({ "excludedNamespaces": ["a"] }), "team=shop", "selects no namespace")]
    #[case::more_than_its_claim(json!({ "includedNamespaces": ["a"] }), "team", "selects c besides")]
    fn a_selection_that_cannot_be_followed_is_refused(
        #[case] spec: serde_json::Value,
        #[case] included: &str,
        #[case] why: &str,
    ) {
        let mut spec: BackupSpec = serde_json::from_value(spec).unwrap();
        let finding = select(&mut spec, &by_label(&[included], &[]), &facts()).unwrap();
        assert_says!(finding.message, why);
    }
}

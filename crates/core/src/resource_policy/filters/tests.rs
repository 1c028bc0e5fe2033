use super::*;
use crate::resource_policy::{read, read_for_restore};

fn policies(text: &str) -> FilterPolicies {
    let data = [("policy".to_owned(), format!("version: v1\n{text}"))].into();
    let (backup, restore) = (read(&data).unwrap(), read_for_restore(&data).unwrap());
    assert_eq!(backup.filters, restore);
    let resolve = |name: &str| match name {
        "ConfigMap" | "configmaps" | "cm" => Some(("configmaps".to_owned(), Some(true))),
        "Secret" => Some(("secrets".to_owned(), Some(true))),
        "StorageClass" => Some(("storageclasses.storage.k8s.io".to_owned(), Some(false))),
        "Widget" => Some(("widgets.example.com".to_owned(), None)),
        _ => None,
    };
    restore.resolved(&resolve).0
}

fn selects(
    policies: &FilterPolicies,
    item: (&str, Option<&str>, &str),
    labels: &[(&str, &str)],
) -> Option<bool> {
    let (group_resource, namespace, name) = item;
    let labels = || {
        labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    };
    match policies.rule(group_resource, namespace) {
        PolicyRule::None => None,
        PolicyRule::Unlisted => Some(false),
        PolicyRule::Filter(filter) => Some(filter.selects(name, labels)),
    }
}

#[test]
fn a_policy_of_a_namespace_selects_what_it_lists_and_nothing_else() {
    let policies = policies(
        "namespacedFilterPolicies:\n\
         - namespaces: [a]\n  \
           resourceFilters:\n  \
           - {kinds: [ConfigMap], names: ['app-*'], excludedNames: ['*-tmp'], labelSelector: {matchLabels: {app: web}}}\n  \
           - {kinds: [Widget], orLabelSelectors: [{}, {matchLabels: {app: web}}, {matchExpressions: [{key: x, operator: Exists}]}]}\n",
    );
    let web = [("app", "web")];
    for (item, labels, expected) in [
        (("configmaps", Some("a"), "app-1"), &web[..], Some(true)),
        (("configmaps", Some("a"), "app-1"), &[], Some(false)),
        (("configmaps", Some("a"), "app-tmp"), &web, Some(false)),
        (("configmaps", Some("a"), "other"), &web, Some(false)),
        (("widgets.example.com", Some("a"), "w"), &web, Some(true)),
        (
            ("widgets.example.com", Some("a"), "w"),
            &[("x", "")],
            Some(true),
        ),
        (("widgets.example.com", Some("a"), "w"), &[], Some(false)),
        (("secrets", Some("a"), "app-1"), &web, Some(false)),
        (("secrets", Some("b"), "app-1"), &web, None),
        (("storageclasses.storage.k8s.io", None, "app-1"), &web, None),
    ] {
        assert_eq!(
            selects(&policies, item, labels),
            expected,
            "{item:?} {labels:?}"
        );
    }
}

#[test]
fn the_name_of_a_namespace_counts_before_globs_and_of_these_the_first() {
    let policies = policies(
        "namespacedFilterPolicies:\n\
         - {namespaces: ['team-a-*'], resourceFilters: [{kinds: [ConfigMap]}]}\n\
         - {namespaces: ['team-*'], resourceFilters: [{kinds: [Secret]}]}\n\
         - {namespaces: [team-a-prod, other], resourceFilters: [{kinds: ['*']}]}\n",
    );
    for (namespace, maps, secrets) in [
        ("team-a-dev", Some(true), Some(false)),
        ("team-b", Some(false), Some(true)),
        ("team-a-prod", Some(true), Some(true)),
        ("other", Some(true), Some(true)),
        ("free", None, None),
    ] {
        assert_eq!(
            selects(&policies, ("configmaps", Some(namespace), "x"), &[]),
            maps,
            "{namespace}"
        );
        assert_eq!(
            selects(&policies, ("secrets", Some(namespace), "x"), &[]),
            secrets,
            "{namespace}"
        );
    }
}

#[test]
fn types_that_are_listed_are_not_caught_with_all_others() {
    let policies = policies(
        "namespacedFilterPolicies:\n\
         - {namespaces: [a], resourceFilters: [{kinds: [], labelSelector: {matchLabels: {app: web}}}, {kinds: [Secret], names: [s]}]}\n",
    );
    let web = [("app", "web")];
    assert_eq!(
        selects(&policies, ("configmaps", Some("a"), "x"), &web),
        Some(true)
    );
    assert_eq!(
        selects(&policies, ("configmaps", Some("a"), "x"), &[]),
        Some(false)
    );
    assert_eq!(
        selects(&policies, ("secrets", Some("a"), "s"), &[]),
        Some(true)
    );
    assert_eq!(
        selects(&policies, ("secrets", Some("a"), "x"), &web),
        Some(false)
    );
}

#[test]
fn a_policy_of_the_cluster_cuts_down_the_types_that_it_lists() {
    let policies = policies(
        "clusterScopedFilterPolicy: {resourceFilters: [{kinds: [StorageClass], names: ['my-*']}]}\n",
    );
    let class = |name| ("storageclasses.storage.k8s.io", None, name);
    assert_eq!(selects(&policies, class("my-class"), &[]), Some(true));
    assert_eq!(selects(&policies, class("other"), &[]), Some(false));
    assert_eq!(selects(&policies, ("nodes", None, "n"), &[]), None);
}

#[test]
fn names_that_select_nothing_are_said() {
    let data = [(
        "p".to_owned(),
        "version: v1\n\
         clusterScopedFilterPolicy: {resourceFilters: [{kinds: [pods]}]}\n\
         namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: [nodes, po]}, {kinds: [pods, gone]}]}]\n"
            .to_owned(),
    )]
    .into();
    let resolve = |name: &str| match name {
        "pods" | "po" => Some(("pods".to_owned(), Some(true))),
        "nodes" => Some(("nodes".to_owned(), Some(false))),
        _ => None,
    };
    let (_, problems) = read_for_restore(&data).unwrap().resolved(&resolve);
    let expected = [
        "clusterScopedFilterPolicy: pods is namespace-scoped",
        "namespacedFilterPolicies[0]: nodes is cluster-scoped",
        "namespacedFilterPolicies[0]: pods is pods, which is listed before",
        "namespacedFilterPolicies[0]: no resource is called gone",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[rstest::rstest]
#[case::no_namespaces("namespacedFilterPolicies: [{resourceFilters: [{kinds: [Pod]}]}]", &["namespacedFilterPolicies[0].namespaces"])]
#[case::bad_namespace("namespacedFilterPolicies: [{namespaces: ['a|b'], resourceFilters: [{}]}]", &["namespacedFilterPolicies[0].namespaces[0]"])]
#[case::no_filters("namespacedFilterPolicies: [{namespaces: [a]}]", &["namespacedFilterPolicies[0].resourceFilters"])]
#[case::no_cluster_filters("clusterScopedFilterPolicy: {}", &["clusterScopedFilterPolicy.resourceFilters"])]
#[case::same_namespace("namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{}]}, {namespaces: [a], resourceFilters: [{}]}]", &["namespacedFilterPolicies[1].namespaces[0]"])]
#[case::two_catch_alls("namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{}, {kinds: ['*']}]}]", &["namespacedFilterPolicies[0].resourceFilters[1].kinds"])]
#[case::star_among_others("namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{kinds: ['*', Pod]}]}]", &["namespacedFilterPolicies[0].resourceFilters[0].kinds"])]
#[case::names_of_all("namespacedFilterPolicies: [{namespaces: [a], resourceFilters: [{names: [x]}]}]", &["namespacedFilterPolicies[0].resourceFilters[0].names"])]
#[case::all_of_the_cluster("clusterScopedFilterPolicy: {resourceFilters: [{kinds: ['*']}]}", &["clusterScopedFilterPolicy.resourceFilters[0].kinds"])]
#[case::same_kind("clusterScopedFilterPolicy: {resourceFilters: [{kinds: [Node]}, {kinds: [node]}]}", &["clusterScopedFilterPolicy.resourceFilters[1].kinds"])]
#[case::both_selectors("clusterScopedFilterPolicy: {resourceFilters: [{kinds: [Node], labelSelector: {matchLabels: {a: b}}, orLabelSelectors: [{matchLabels: {a: b}}]}]}", &["clusterScopedFilterPolicy.resourceFilters[0].orLabelSelectors"])]
#[case::bad_selector("clusterScopedFilterPolicy: {resourceFilters: [{kinds: [Node], labelSelector: {matchExpressions: [{key: a, operator: Like}]}}]}", &["clusterScopedFilterPolicy.resourceFilters[0].labelSelector.matchExpressions[0]"])]
#[case::unknown_field("clusterScopedFilterPolicy: {resourceFilters: [{kinds: [Node], name: x}]}", &["clusterScopedFilterPolicy.resourceFilters[0].name"])]
fn what_is_wrong_with_a_policy_is_found(#[case] text: &str, #[case] fields: &[&str]) {
    let data = [("p".to_owned(), format!("version: v1\n{text}\n"))].into();
    let found: Vec<String> = read(&data)
        .unwrap_err()
        .into_iter()
        .map(|finding| finding.field)
        .collect();
    let expected: Vec<String> = fields
        .iter()
        .map(|field| format!("spec.resourcePolicy: {field}"))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(read_for_restore(&data).unwrap_err().len(), fields.len());
}

#[test]
fn a_restore_follows_filter_policies_only() {
    let text = "version: v1\nvolumePolicies: [{action: {type: skip}}]\nincludeExcludePolicy: {}\n";
    let found = read_for_restore(&[("p".to_owned(), text.to_owned())].into()).unwrap_err();
    let fields: Vec<&str> = found.iter().map(|finding| finding.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.resourcePolicy: includeExcludePolicy",
            "spec.resourcePolicy: volumePolicies"
        ]
    );
}

#![allow(clippy::needless_pass_by_value)] // tables read better with values

use std::collections::BTreeMap;

use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn data(text: &str) -> BTreeMap<String, String> {
    [("rules.yaml".to_owned(), text.to_owned())].into()
}

fn modifiers(rules: Value) -> ResourceModifiers {
    let text = json!({"version": "v1", "resourceModifierRules": rules}).to_string();
    read(FIELD, &data(&text)).unwrap()
}

/// The fields of the findings in these rules.
fn wrong(text: &str) -> Vec<String> {
    let found = read(FIELD, &data(text)).unwrap_err();
    found
        .iter()
        .map(|finding| {
            finding
                .field
                .trim_start_matches("spec.resourceModifier: ")
                .to_owned()
        })
        .collect()
}

fn object(value: &Value) -> Object {
    value.as_object().unwrap().clone()
}

/// Applies one rule with these patches to one item.
fn modified(kind: &str, patches: Value, item: &Value) -> ModifierOutcome {
    let rules = modifiers(json!([{"conditions": {"groupResource": "**"}, kind: patches}]));
    rules.apply(&object(item), "pods", Some("shop"))
}

fn item() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-1", "labels": {"app": "web", "a/b": "slash", "t~d": "tilde"}},
        "spec": {"replicas": 1, "paused": false, "list": ["a", "b", "c"], "class": "old"},
    })
}

#[rstest]
#[case::add(json!([{"operation": "add", "path": "/spec/new", "value": "x"}]), "/spec/new", json!("x"))]
#[case::add_over(json!([{"operation": "add", "path": "/spec/class", "value": "x"}]), "/spec/class", json!("x"))]
#[case::add_to_list(json!([{"operation": "add", "path": "/spec/list/1", "value": "x"}]), "/spec/list", json!(["a", "x", "b", "c"]))]
#[case::add_at_end(json!([{"operation": "add", "path": "/spec/list/-", "value": "x"}]), "/spec/list", json!(["a", "b", "c", "x"]))]
#[case::remove(json!([{"operation": "remove", "path": "/spec/list/0"}]), "/spec/list", json!(["b", "c"]))]
#[case::replace(json!([{"operation": "replace", "path": "/spec/replicas", "value": "2"}]), "/spec/replicas", json!(2))]
#[case::a_number_in_yaml(json!([{"operation": "replace", "path": "/spec/replicas", "value": 3}]), "/spec/replicas", json!(3))]
#[case::movement(json!([{"operation": "move", "from": "/spec/class", "path": "/spec/moved"}]), "/spec", json!({"replicas": 1, "paused": false, "list": ["a", "b", "c"], "moved": "old"}))]
#[case::copy(json!([{"operation": "copy", "from": "/spec/list/0", "path": "/spec/list/3"}]), "/spec/list", json!(["a", "b", "c", "a"]))]
#[case::test_and_set(json!([{"operation": "test", "path": "/spec/class", "value": "old"}, {"operation": "Replace", "path": "/spec/class", "value": "new"}]), "/spec/class", json!("new"))]
#[case::slash(json!([{"operation": "replace", "path": "/metadata/labels/a~1b", "value": "x"}]), "/metadata/labels/a~1b", json!("x"))]
#[case::tilde(json!([{"operation": "replace", "path": "/metadata/labels/t~0d", "value": "x"}]), "/metadata/labels/t~0d", json!("x"))]
#[case::object(json!([{"operation": "add", "path": "/spec/o", "value": "{\"a\": [1]}"}]), "/spec/o", json!({"a": [1]}))]
#[case::list(json!([{"operation": "add", "path": "/spec/o", "value": "[1, \"2\"]"}]), "/spec/o", json!([1, "2"]))]
#[case::null(json!([{"operation": "add", "path": "/spec/o", "value": "null"}]), "/spec/o", json!(null))]
#[case::truth(json!([{"operation": "add", "path": "/spec/o", "value": "true"}]), "/spec/o", json!(true))]
#[case::quoted_truth(json!([{"operation": "add", "path": "/spec/o", "value": "\"true\""}]), "/spec/o", json!("true"))]
#[case::quoted_number(json!([{"operation": "add", "path": "/spec/o", "value": "\"5\""}]), "/spec/o", json!("5"))]
#[case::quantity(json!([{"operation": "add", "path": "/spec/o", "value": "10Gi"}]), "/spec/o", json!("10Gi"))]
#[case::nothing(json!([{"operation": "add", "path": "/spec/o"}]), "/spec/o", json!(""))]
#[case::escapes(json!([{"operation": "add", "path": "/spec/o", "value": "a\\tb"}]), "/spec/o", json!("a\tb"))]
#[case::inner_quotes(json!([{"operation": "add", "path": "/spec/o", "value": "say \"x\", y"}]), "/spec/o", json!("say \"x\", y"))]
fn json_patches_do_what_they_say(
    #[case] patches: Value,
    #[case] at: &str,
    #[case] expected: Value,
) {
    let made = modified("patches", patches, &item());
    assert_eq!(made.problems, [""; 0]);
    assert_eq!(
        Value::Object(made.item.unwrap()).pointer(at),
        Some(&expected)
    );
}

#[rstest]
#[case::remove_nothing(json!([{"operation": "remove", "path": "/spec/none"}]), "the path is not there")]
#[case::replace_nothing(json!([{"operation": "replace", "path": "/spec/none", "value": "x"}]), "the path is not there")]
#[case::add_into_nothing(json!([{"operation": "add", "path": "/spec/none/x", "value": "x"}]), "the path is not there")]
#[case::add_behind_the_end(json!([{"operation": "add", "path": "/spec/list/9", "value": "x"}]), "the path is not there")]
#[case::copy_nothing(json!([{"operation": "copy", "from": "/none", "path": "/spec/x"}]), "\"from\" is not there")]
#[case::move_into_itself(json!([{"operation": "move", "from": "/spec", "path": "/spec/x"}]), "inside itself")]
#[case::test_in_nothing(json!([{"operation": "test", "path": "/none/x", "value": "x"}]), "what holds the path is not there")]
#[case::the_first_is_undone(json!([{"operation": "remove", "path": "/spec/class"}, {"operation": "remove", "path": "/x"}]), "/x")]
fn a_json_patch_that_does_not_fit_is_a_problem_and_changes_nothing(
    #[case] patches: Value,
    #[case] why: &str,
) {
    let made = modified("patches", patches, &item());
    assert_eq!((made.item, made.problems.len()), (None, 1));
    assert!(
        made.problems[0].starts_with("resourceModifierRules[0] was not followed: "),
        "{:?}",
        made.problems
    );
    assert!(made.problems[0].contains(why), "{:?}", made.problems);
}

#[rstest]
#[case::other_value(json!("x"), "/spec/class")]
#[case::nothing_there(json!("x"), "/spec/none")]
#[case::a_value_is_not_null(json!("null"), "/spec/class")]
fn a_test_that_fails_leaves_the_item_and_is_no_problem(#[case] value: Value, #[case] path: &str) {
    let patches = json!([
        {"operation": "remove", "path": "/spec/list"},
        {"operation": "test", "path": path, "value": value},
    ]);
    assert_eq!(
        modified("patches", patches, &item()),
        ModifierOutcome::default()
    );
}

#[test]
fn what_is_not_there_is_null_for_a_test() {
    let patches = json!([
        {"operation": "test", "path": "/spec/none", "value": "null"},
        {"operation": "add", "path": "/spec/none", "value": "x"},
    ]);
    assert_eq!(
        modified("patches", patches, &item()).item.unwrap()["spec"]["none"],
        "x"
    );
}

#[test]
fn merge_patches_set_replace_and_remove_in_yaml_and_json() {
    let patches = json!([
        {"patchData": "metadata:\n  labels:\n    app: null\n    new: x\nspec:\n  list: [z]\n"},
        {"patchData": "{\"spec\": {\"replicas\": 5, \"class\": null}}"},
    ]);
    let made = modified("mergePatches", patches, &item()).item.unwrap();
    assert_eq!(
        made["metadata"]["labels"],
        json!({"a/b": "slash", "t~d": "tilde", "new": "x"})
    );
    assert_eq!(
        made["spec"],
        json!({"replicas": 5, "paused": false, "list": ["z"]})
    );
}

#[rstest]
#[case("pods", "pods", true)]
#[case("*", "pods", true)]
#[case("*", "deployments.apps", false)]
#[case("**", "deployments.apps", true)]
#[case("*.apps", "deployments.apps", true)]
#[case("*.apps", "deployments.apps.example.com", false)]
#[case("*.*", "pods", false)]
#[case("*.networking.k8s.io", "ingresses.networking.k8s.io", true)]
#[case("p?ds", "pods", true)]
#[case("{pods,services}", "services", true)]
#[case("[ps]*", "secrets", true)]
#[case("[!p]*", "pods", false)]
#[case("deployments", "deployments.apps", false)]
#[case("deploymentsXapps", "deployments.apps", false)]
fn a_group_resource_is_a_pattern_with_dots_between(
    #[case] glob: &str,
    #[case] name: &str,
    #[case] fits: bool,
) {
    assert_eq!(conditions::pattern(glob).unwrap().is_match(name), fits);
}

#[rstest]
#[case::nothing(json!({}), true)]
#[case::namespace(json!({"namespaces": ["shop"]}), true)]
#[case::other_namespace(json!({"namespaces": ["other"]}), false)]
#[case::namespace_glob(json!({"namespaces": ["sh*"]}), true)]
#[case::name(json!({"resourceNameRegex": "^web-\\d$"}), true)]
#[case::part_of_a_name(json!({"resourceNameRegex": "eb"}), true)]
#[case::other_name(json!({"resourceNameRegex": "^eb"}), false)]
#[case::labels(json!({"labelSelector": {"matchLabels": {"app": "web"}}}), true)]
#[case::other_labels(json!({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}), false)]
#[case::value(json!({"matches": [{"path": "/spec/class", "value": "old"}, {"path": "/spec/replicas", "value": "1"}]}), true)]
#[case::other_value(json!({"matches": [{"path": "/spec/class", "value": "old"}, {"path": "/spec/paused", "value": "true"}]}), false)]
#[case::no_value(json!({"matches": [{"path": "/spec/none", "value": "x"}]}), false)]
#[case::no_value_in_nothing(json!({"matches": [{"path": "/none/none", "value": "x"}]}), false)]
#[case::all_but_one(json!({"namespaces": ["shop"], "resourceNameRegex": "x"}), false)]
fn a_rule_applies_where_all_its_conditions_hold(
    #[case] mut conditions: Value,
    #[case] applies: bool,
) {
    conditions["groupResource"] = json!("pods");
    let rules = modifiers(
        json!([{"conditions": conditions, "mergePatches": [{"patchData": "{\"x\": 1}"}]}]),
    );
    assert_eq!(
        rules
            .apply(&object(&item()), "pods", Some("shop"))
            .item
            .is_some(),
        applies
    );
}

#[test]
fn an_item_without_namespace_passes_conditions_of_namespaces() {
    let rules = modifiers(json!([{
        "conditions": {"groupResource": "*.storage.k8s.io", "namespaces": ["shop"]},
        "mergePatches": [{"patchData": "x: 1"}],
    }]));
    assert!(
        rules
            .apply(&object(&item()), "storageclasses.storage.k8s.io", None)
            .item
            .is_some()
    );
}

#[test]
fn conditions_see_the_item_as_it_was_before_all_rules() {
    let rule = |from: &str, to: &str| {
        json!({
            "conditions": {"groupResource": "pods", "matches": [{"path": "/spec/class", "value": from}]},
            "patches": [{"operation": "replace", "path": "/spec/class", "value": to}],
        })
    };
    let classes = |rules: Value| {
        modifiers(rules)
            .apply(&object(&item()), "pods", None)
            .item
            .unwrap()["spec"]["class"]
            .clone()
    };
    assert_eq!(
        classes(json!([rule("old", "new"), rule("new", "newest")])),
        "new"
    );
    assert_eq!(
        classes(json!([rule("old", "new"), rule("old", "newest")])),
        "newest"
    );
    // A rule that cannot be applied does not affect the others.
    let broken = json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "remove", "path": "/x"}]});
    let made = modifiers(json!([rule("old", "new"), broken, rule("old", "last")])).apply(
        &object(&item()),
        "pods",
        None,
    );
    assert_eq!(
        (
            made.item.unwrap()["spec"]["class"].as_str(),
            made.problems.len()
        ),
        (Some("last"), 1)
    );
    assert!(
        made.problems[0].starts_with("resourceModifierRules[1]"),
        "{:?}",
        made.problems
    );
}

#[rstest]
#[case::no_yaml("{", &["spec.resourceModifier"])]
#[case::no_map("- a", &["spec.resourceModifier"])]
#[case::version("version: v2\nresourceModifierRules: [{conditions: {groupResource: pods}, mergePatches: [{patchData: 'a: 1'}]}]", &["version"])]
#[case::no_rules("version: V1", &["resourceModifierRules"])]
#[case::unknown("version: v1\nrules: []", &["rules", "resourceModifierRules"])]
fn a_modifier_that_is_none_is_found_before_the_start(#[case] text: &str, #[case] fields: &[&str]) {
    assert_eq!(wrong(text), fields);
}

#[rstest]
#[case::no_conditions(json!({"mergePatches": [{"patchData": "a: 1"}]}), "conditions.groupResource")]
#[case::namespaces(json!({"conditions": {"groupResource": "namespaces"}, "mergePatches": [{"patchData": "a: 1"}]}), "conditions.groupResource")]
#[case::glob(json!({"conditions": {"groupResource": "[a"}, "mergePatches": [{"patchData": "a: 1"}]}), "conditions.groupResource")]
#[case::regex(json!({"conditions": {"groupResource": "pods", "resourceNameRegex": "(a"}, "mergePatches": [{"patchData": "a: 1"}]}), "conditions.resourceNameRegex")]
#[case::selector(json!({"conditions": {"groupResource": "pods", "labelSelector": {"matchLabels": {"a b": "c"}}}, "mergePatches": [{"patchData": "a: 1"}]}), "conditions.labelSelector.matchLabels")]
#[case::match_path(json!({"conditions": {"groupResource": "pods", "matches": [{"value": "x"}]}, "mergePatches": [{"patchData": "a: 1"}]}), "conditions.matches[0].path")]
#[case::no_patches(json!({"conditions": {"groupResource": "pods"}}), "")]
#[case::two_kinds(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "remove", "path": "/a"}], "mergePatches": [{"patchData": "a: 1"}]}), "")]
#[case::operation(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "set", "path": "/a"}]}), "patches[0].operation")]
#[case::path(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "remove", "path": "a"}]}), "patches[0].path")]
#[case::no_path(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "remove"}]}), "patches[0].path")]
#[case::escape(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "remove", "path": "/a~2"}]}), "patches[0].path")]
#[case::from(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "copy", "path": "/a"}]}), "patches[0].from")]
#[case::value(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "add", "path": "/a", "value": "{x"}]}), "patches[0].value")]
#[case::value_of_objects(json!({"conditions": {"groupResource": "pods"}, "patches": [{"operation": "add", "path": "/a", "value": {"a": 1}}]}), "patches[0].value")]
#[case::merge_data(json!({"conditions": {"groupResource": "pods"}, "mergePatches": [{"patchData": "[1]"}]}), "mergePatches[0].patchData")]
#[case::strategic_data(json!({"conditions": {"groupResource": "pods"}, "strategicPatches": [{"patchData": "a: {"}]}), "strategicPatches[0].patchData")]
#[case::directive(json!({"conditions": {"groupResource": "pods"}, "strategicPatches": [{"patchData": "a: [{$patch: merge}]"}]}), "strategicPatches[0].patchData")]
#[case::unknown(json!({"conditions": {"groupResource": "pods", "names": []}, "mergePatches": [{"patchData": "a: 1"}]}), "conditions.names")]
fn what_is_wrong_in_a_rule_is_found_before_the_start(#[case] rule: Value, #[case] field: &str) {
    let text = json!({"version": "v1", "resourceModifierRules": [rule]}).to_string();
    let field = if field.is_empty() {
        String::new()
    } else {
        format!(".{field}")
    };
    assert_eq!(wrong(&text), [format!("resourceModifierRules[0]{field}")]);
}

#[test]
fn the_example_of_the_documentation_is_a_modifier() {
    let page = include_str!("../../../../../docs/use/modified-restores.md");
    let start = page.find("version: v1\nresourceModifierRules").unwrap();
    let (example, _) = page[start..].split_once("```").unwrap();
    assert_eq!(read(FIELD, &data(example)).unwrap().rules.len(), 3);
}

#[test]
fn a_config_map_has_one_key() {
    let two = ["a", "b"].map(|key| (key.to_owned(), "version: v1".to_owned()));
    for data in [BTreeMap::new(), BTreeMap::from(two)] {
        let found = read(FIELD, &data).unwrap_err();
        assert!(found[0].message.contains("its only key"), "{found:?}");
    }
}

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

#[rstest]
#[case::image(
    json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
    "containers: [{name: b, image: '2'}]",
    json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]})
)]
#[case::new_items_come_first(
    json!({"containers": [{"name": "a"}]}), "containers: [{name: b, x: null}]", json!({"containers": [{"name": "b"}, {"name": "a"}]})
)]
#[case::the_order_of_both(
    json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
    "containers: [{name: c}, {name: a}]",
    json!({"containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}]})
)]
#[case::delete(
    json!({"containers": [{"name": "a"}, {"name": "b"}]}), "containers: [{name: a, $patch: delete}]", json!({"containers": [{"name": "b"}]})
)]
#[case::replace_list(
    json!({"containers": [{"name": "a"}, {"name": "b"}]}),
    "containers: [{$patch: replace}, {name: c}]",
    json!({"containers": [{"name": "c"}]})
)]
#[case::replace_object(
    json!({"securityContext": {"runAsUser": 1, "fsGroup": 2}}),
    "securityContext: {$patch: replace, runAsUser: 5}",
    json!({"securityContext": {"runAsUser": 5}})
)]
#[case::delete_object(json!({"securityContext": {"runAsUser": 1}}), "securityContext: {$patch: delete}", json!({"securityContext": {}}))]
#[case::null(json!({"nodeName": "n", "x": 1}), "nodeName: null", json!({"x": 1}))]
#[case::nested(
    json!({"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}),
    "containers: [{name: a, env: [{name: B, value: '3'}]}]",
    json!({"containers": [{"name": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]}]})
)]
#[case::other_lists_are_replaced(
    json!({"tolerations": [{"key": "a"}], "containers": [{"name": "a", "args": ["x"]}]}),
    "{tolerations: [{key: b}], containers: [{name: a, args: [z]}]}",
    json!({"tolerations": [{"key": "b"}], "containers": [{"name": "a", "args": ["z"]}]})
)]
#[case::retained(
    json!({"volumes": [{"name": "v", "nfs": {"path": "/"}}]}),
    "volumes: [{name: v, $retainKeys: [name, emptyDir], emptyDir: {}}]",
    json!({"volumes": [{"name": "v", "emptyDir": {}}]})
)]
#[case::another_type(json!({"x": [1]}), "x: {y: {z: null, w: 1}}", json!({"x": {"y": {"w": 1}}}))]
fn strategic_patches_merge_as_kubernetes_does(
    #[case] spec: Value,
    #[case] patch: &str,
    #[case] expected: Value,
) {
    let patch = format!("spec:\n  {patch}\n");
    let made = modified(
        "strategicPatches",
        json!([{"patchData": patch}]),
        &pod(spec.clone()),
    );
    assert_eq!(made.problems, [""; 0]);
    assert_eq!(made.item.unwrap()["spec"], expected, "{spec} {patch}");
}

#[test]
fn strategic_patches_merge_finalizers_and_ports_of_services() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "finalizers": ["a/x", "b/x"]},
        "spec": {"ports": [{"port": 80, "name": "http"}, {"port": 443, "name": "https"}]},
    });
    let patch = "metadata: {finalizers: [c/x], $deleteFromPrimitiveList/finalizers: [a/x]}\nspec: {ports: [{port: 443, nodePort: 3}]}";
    let made = modified("strategicPatches", json!([{"patchData": patch}]), &service)
        .item
        .unwrap();
    assert_eq!(made["metadata"]["finalizers"], json!(["c/x", "b/x"]));
    assert_eq!(
        made["spec"]["ports"],
        json!([{"port": 80, "name": "http"}, {"port": 443, "name": "https", "nodePort": 3}])
    );
}

#[test]
fn the_selector_of_a_disruption_budget_is_replaced() {
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"a": "1"}}, "maxUnavailable": 1},
    });
    let patch = "spec: {selector: {matchLabels: {b: '2'}}}";
    let made = modified("strategicPatches", json!([{"patchData": patch}]), &budget)
        .item
        .unwrap();
    assert_eq!(
        made["spec"],
        json!({"selector": {"matchLabels": {"b": "2"}}, "maxUnavailable": 1})
    );
}

#[rstest]
#[case::no_key(pod(json!({"containers": [{"name": "a"}]})), "spec: {containers: [{image: x}]}", "has no name")]
#[case::custom(json!({"apiVersion": "example.com/v1", "kind": "Widget"}), "spec: {a: 1}", "is no type of Kubernetes itself")]
#[case::retained(pod(json!({"a": {}})), "spec: {a: {$retainKeys: [x], y: 1}}", "does not name \"y\"")]
fn a_strategic_patch_that_does_not_fit_is_a_problem(
    #[case] item: Value,
    #[case] patch: &str,
    #[case] why: &str,
) {
    let made = modified("strategicPatches", json!([{"patchData": patch}]), &item);
    assert_eq!(made.item, None);
    assert!(made.problems[0].contains(why), "{:?}", made.problems);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..5).prop_map(Value::from),
        "[a-c]".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("(a|b|name|containers|spec)", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Object> {
    prop::collection::btree_map("(a|b|metadata|spec)", any_json(), 0..4)
        .prop_map(|map| map.into_iter().collect())
}

/// A merge patch keeps the nulls in lists.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let set = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                set.map(|(key, value)| (key.clone(), without_nulls(value)))
                    .collect(),
            )
        }
        Value::Array(list) => list.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

proptest! {
    /// Without lists of objects a strategic patch acts like a merge patch.
    #[test]
    fn a_strategic_patch_is_a_merge_patch_where_no_list_is_merged(item in any_object(), patch in any_object()) {
        let mut item = item;
        item.insert("apiVersion".to_owned(), json!("v1"));
        item.insert("kind".to_owned(), json!("ConfigMap"));
        let mut merged = Value::Object(item.clone());
        ::json_patch::merge(&mut merged, &Value::Object(patch.clone()));
        let mut strategic = Value::Object(item);
        strategic::merge(&mut strategic, &patch, "v1", "ConfigMap").unwrap();
        prop_assert_eq!(without_nulls(&strategic), without_nulls(&merged));
    }

    /// For any item and patch: no panic, and applying a rule twice with a test of the result equals
    /// applying it once.
    #[test]
    fn any_item_can_be_met(item in any_object(), patch in any_object()) {
        let text = Value::Object(patch).to_string();
        for kind in ["mergePatches", "strategicPatches"] {
            let rules = modifiers(json!([{"conditions": {"groupResource": "**"}, kind: [{"patchData": text}]}]));
            let once = rules.apply(&item, "pods", None);
            if let (Some(made), "mergePatches") = (once.item, kind) {
                prop_assert_eq!(rules.apply(&made, "pods", None).item, Some(made));
            }
        }
        let rules = modifiers(json!([{"conditions": {"groupResource": "**"}, "patches": [
            {"operation": "add", "path": "/spec/a", "value": "x"}, {"operation": "remove", "path": "/spec/a"},
            {"operation": "move", "from": "/a", "path": "/b"}, {"operation": "copy", "from": "/b/0", "path": "/b/-"},
        ]}]));
        let made = rules.apply(&item, "pods", None);
        prop_assert_eq!(made.item.is_some(), made.problems.is_empty());
    }
}

#[test]
fn a_rule_of_a_restore_that_applied_to_nothing_is_named() {
    let rule = |group_resource: &str, namespaces: Value| {
        json!({"conditions": {"groupResource": group_resource, "namespaces": namespaces},
            "mergePatches": [{"patchData": "spec: {class: old}"}]})
    };
    let rules = json!([
        rule("pods", json!(["shop"])),
        rule("pod", json!([])),
        rule("pods", json!(["copy"])),
        rule("nodes", json!([])),
    ]);
    let of_restore = modifiers(rules.clone());
    of_restore.apply(&object(&item()), "pods", Some("shop"));
    let idle = of_restore.idle();
    assert_eq!(idle.len(), 3, "{idle:?}");
    assert!(
        idle[0].starts_with("spec.resourceModifier: resourceModifierRules[1] applied to no item"),
        "{idle:?}"
    );
    let text = json!({"version": "v1", "resourceModifierRules": rules}).to_string();
    assert_eq!(
        read(DEFAULT, &data(&text)).unwrap().idle(),
        [""; 0],
        "those for all restores"
    );
}

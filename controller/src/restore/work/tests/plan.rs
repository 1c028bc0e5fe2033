//! A dry run of the work.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_dry_run_says_the_same_and_changes_nothing() {
    let there = [stored_item("configmaps", "v1 ConfigMap", "a/there")];
    let (fake, _) = restored(&there, json!({})).await;
    let mut items = vec![
        stored_item("configmaps", "v1 ConfigMap", "a/new"),
        stored_item("configmaps", "v1 ConfigMap", "b/elsewhere"),
        stored_item("widgets.example.com", "example.com/v1 Widget", "a/w"),
    ];
    items.extend(there);
    let (_, _, mut widgets) = definition("widgets");
    widgets["spec"] = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true}],
    });
    items.push((DEFINITIONS, None, widgets));
    let before = fake.under("/");
    let (claimed, calls) = (Footprint::everything(), fake::dry_calls(&fake));
    let (report, done) = run(&fake, &calls, &items, json!({}), &claimed, vec![]).await;
    done.unwrap();
    assert_eq!(fake.under("/"), before, "something was written");
    assert_eq!(calls.untried().len(), 2, "{:?}", calls.untried());
    let dry = listed(report);
    assert_eq!(
        dry["v1/ConfigMap"],
        json!(["a/new(created)", "a/there(skipped)", "b/elsewhere(created)"])
    );
    assert_eq!(listed(restored_in(&fake, &items, json!({})).await), dry);
}

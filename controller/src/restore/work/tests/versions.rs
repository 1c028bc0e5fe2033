//! The version of its type in which an item is restored.

use super::*;

const WIDGETS: &str = "widgets.example.com";
const V1: &str = "/apis/example.com/v1/namespaces/a/widgets";
const V2: &str = "/apis/example.com/v2/namespaces/a/widgets";

fn definition_of(versions: &[&str]) -> Value {
    let mut definition = definition("widgets").2;
    definition["spec"]["versions"] = versions
        .iter()
        .map(|name| json!({ "name": name, "served": true }))
        .collect();
    definition["status"] = json!({ "conditions": [{ "type": "Established", "status": "True" }] });
    definition
}

/// A widget as stored: in v2, which the cluster of the backup preferred, and in v1.
fn both_versions() -> Vec<(&'static str, Option<&'static str>, Value)> {
    ["v2", "v1"]
        .map(|version| {
            (
                WIDGETS,
                Some("a"),
                item(&format!("example.com/{version}"), "Widget", "w"),
            )
        })
        .into()
}

/// Restores into a cluster that serves widgets in these versions.
async fn restored_with(
    versions: &[&str],
    items: Items<'_>,
    priorities: Option<VersionPriorities>,
) -> (FakeApi, Report) {
    let fake = fake::server();
    fake.put(&format!("{CRDS}/{WIDGETS}"), definition_of(versions));
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let world = World {
        versions: priorities,
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(items, json!({})).await;
    done.unwrap();
    (fake, report)
}

fn created(fake: &FakeApi) -> Vec<String> {
    posts(fake)
        .into_iter()
        .filter(|path| path.contains("widgets"))
        .collect()
}

#[tokio::test]
async fn the_stored_version_is_restored_where_it_is_served() {
    let (fake, _) = restored_with(&["v1", "v2"], &both_versions(), None).await;
    assert_eq!(created(&fake), [V2]);
}

#[tokio::test]
async fn a_version_that_is_not_served_is_replaced_by_one_that_is() {
    let (fake, report) = restored_with(&["v1"], &both_versions(), None).await;
    assert_eq!(
        (created(&fake), report.counts()),
        (vec![V1.to_owned()], (0, 0))
    );
    let stored = fake.get(&format!("{V1}/w")).unwrap();
    assert_eq!(stored["apiVersion"], "example.com/v1");
    assert_eq!(
        listed(report)["example.com/v1/Widget"],
        json!(["a/w(created)"])
    );
}

#[tokio::test]
async fn with_the_feature_the_config_map_or_the_cluster_decides() {
    let text = |versions: &str| {
        let line = format!("{WIDGETS}={versions}");
        VersionPriorities::read(&[("restoreResourcesVersionPriority".to_owned(), line)].into())
    };
    for (served, priorities, created_at) in [
        (["v1", "v2"], VersionPriorities::default(), V1),
        (["v2", "v1"], VersionPriorities::default(), V2),
        (["v2", "v1"], text("v3,v1"), V1),
    ] {
        let (fake, _) = restored_with(&served, &both_versions(), Some(priorities)).await;
        assert_eq!(created(&fake), [created_at]);
    }
}

#[tokio::test]
async fn an_item_that_is_not_stored_in_the_chosen_version_is_restored_in_another() {
    let mut items = both_versions();
    items.push((
        WIDGETS,
        Some("a"),
        item("example.com/v2", "Widget", "only-v2"),
    ));
    let (fake, _) = restored_with(&["v1", "v2"], &items, Some(VersionPriorities::default())).await;
    let mut created = created(&fake);
    created.sort();
    assert_eq!(created, [V1, V2]);
}

#[tokio::test]
async fn a_restored_definition_is_waited_for_in_all_its_versions() {
    let mut items = both_versions();
    items.push((DEFINITIONS, None, definition_of(&["v1", "v2"])));
    let fake = fake::server();
    fake.put(LATE, json!({}));
    let report = restored_in(&fake, &items, json!({})).await;
    assert_eq!(
        (created(&fake), report.counts()),
        (vec![V2.to_owned()], (0, 0))
    );
}

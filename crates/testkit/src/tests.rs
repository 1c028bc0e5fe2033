//! The server in memory, called with the programs' own client.

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Error,
    api::{
        DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent,
        WatchParams,
    },
};
use serde_json::json;

use crate::{FakeApi, Fault};

const MAPS: &str = "/api/v1/namespaces/velero/configmaps";

fn with(names: &[&str]) -> (FakeApi, Api<ConfigMap>) {
    let api = FakeApi::new();
    for name in names {
        let labels = json!({"app": if name.starts_with('a') { "a" } else { "other" }});
        let object = json!({"metadata": {"name": name, "namespace": "velero", "uid": name, "labels": labels}});
        api.put(&format!("{MAPS}/{name}"), object);
    }
    let maps = Api::default_namespaced(api.client());
    (api, maps)
}

fn code(error: Error) -> u16 {
    match error {
        Error::Api(status) => status.code,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn lists_come_in_pages_and_by_labels() {
    let (api, maps) = with(&["a1", "a2", "a3", "b1"]);
    api.put(
        "/api/v1/namespaces/other/configmaps/a4",
        json!({"metadata": {"name": "a4"}}),
    );
    let first = maps
        .list(&ListParams::default().labels("app=a").limit(2))
        .await
        .unwrap();
    // A server does not count the items that match a selector.
    assert_eq!(
        (first.items.len(), first.metadata.remaining_item_count),
        (2, None)
    );
    let counted = maps.list(&ListParams::default().limit(3)).await.unwrap();
    assert_eq!(counted.metadata.remaining_item_count, Some(1));
    let token = first.metadata.continue_.unwrap();
    let second = maps
        .list(
            &ListParams::default()
                .labels("app=a")
                .limit(2)
                .continue_token(&token),
        )
        .await;
    let names: Vec<_> = second
        .unwrap()
        .items
        .into_iter()
        .filter_map(|map| map.metadata.name)
        .collect();
    assert_eq!(names, ["a3"]);
    let (of, not) = (
        ListParams::default().labels("app!=a"),
        ListParams::default().labels("!app"),
    );
    let one = ListParams::default().fields("metadata.name=b1");
    for (params, count) in [(of, 1), (not, 0), (one, 1)] {
        assert_eq!(
            maps.list(&params).await.unwrap().items.len(),
            count,
            "{params:?}"
        );
    }
    assert_eq!(
        Api::<ConfigMap>::all(api.client())
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        5
    );
}

#[tokio::test]
async fn writes_have_preconditions_and_finalizers_hold_what_is_deleted() {
    let (api, maps) = with(&["a1"]);
    let patch = |body| async {
        maps.patch("a1", &PatchParams::default(), &Patch::Merge(body))
            .await
    };
    let old = maps.get("a1").await.unwrap();
    patch(json!({"metadata": {"finalizers": ["f"]}, "data": {"k": "v"}}))
        .await
        .unwrap();
    assert_eq!(
        code(
            maps.replace("a1", &PostParams::default(), &old)
                .await
                .unwrap_err()
        ),
        409
    );
    assert_eq!(
        code(
            patch(json!({"metadata": {"uid": "other"}}))
                .await
                .unwrap_err()
        ),
        409
    );
    let options = DeleteParams::default();
    assert!(maps.delete("a1", &options).await.unwrap().is_left());
    assert!(
        maps.get("a1")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_some()
    );
    patch(json!({"metadata": {"finalizers": null}}))
        .await
        .unwrap();
    assert!(maps.get_opt("a1").await.unwrap().is_none());
    assert_eq!((api.writes(), api.conflicts()), (3, 2));
}

#[tokio::test]
async fn a_watch_shows_what_changes_after_its_version() {
    let (api, maps) = with(&["a1"]);
    let since = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let watch = maps
        .watch(&WatchParams::default().labels("app=a"), &since)
        .await
        .unwrap();
    api.edit(&format!("{MAPS}/a1"), |map| map["data"] = json!({"k": "v"}));
    api.put(&format!("{MAPS}/b1"), json!({"metadata": {"name": "b1"}}));
    api.delete(&format!("{MAPS}/a1"));
    let seen: Vec<_> = watch.take(2).try_collect().await.unwrap();
    assert!(
        matches!(&seen[..], [WatchEvent::Modified(_), WatchEvent::Deleted(_)]),
        "{seen:?}"
    );
}

#[tokio::test]
async fn a_fault_comes_before_the_request_or_takes_its_answer() {
    let (api, maps) = with(&["a1"]);
    let created = ConfigMap {
        metadata: ObjectMeta {
            name: Some("new".to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    api.fault(|_, request| (request.is_write() && request.earlier == 0).then(Fault::lose_answer));
    assert_eq!(
        code(
            maps.create(&PostParams::default(), &created)
                .await
                .unwrap_err()
        ),
        503
    );
    assert_eq!(
        code(
            maps.create(&PostParams::default(), &created)
                .await
                .unwrap_err()
        ),
        409
    );
    api.fault(|_, _| Some(Fault::refuse(403, "Forbidden", "not you")));
    assert_eq!(code(maps.get("a1").await.unwrap_err()), 403);
    api.recover();
    assert!(maps.get("a1").await.is_ok());
    assert_eq!(
        (api.count(&format!("POST {MAPS}")), api.log().len()),
        (2, 4)
    );
}

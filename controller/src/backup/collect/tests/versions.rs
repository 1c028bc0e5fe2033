//! Items in all versions that the cluster serves.

use std::sync::Arc;

use backup_actions::backup::BackupActionOutput;
use backup_testkit::FakeApi;
use serde_json::{Value, json};

use super::{
    actions::action,
    harness::{Outcome, Setup, cluster, id, item},
};

/// Widgets are served in v1 and v1beta1.
fn widgets() -> FakeApi {
    let all = || vec![item("a", "w"), item("b", "w")];
    cluster()
        .with_list("/apis/example.com/v1/widgets", all())
        .with_list("/apis/example.com/v1beta1/widgets", all())
}

fn setup() -> Setup {
    let spec = json!({ "includedResources": ["widgets"], "includeClusterResources": false });
    Setup {
        spec,
        api: widgets(),
        all_versions: true,
        ..Setup::default()
    }
}

const ALL: [&str; 4] = [
    "widgets.example.com/a/w",
    "widgets.example.com/b/w",
    "widgets.example.com/v1beta1/a/w",
    "widgets.example.com/v1beta1/b/w",
];

#[tokio::test(start_paused = true)]
async fn each_served_version_of_an_item_is_stored() {
    let outcome = setup().collect().await;
    assert_eq!(outcome.names(), ALL);
    let versions = outcome
        .sink
        .items
        .iter()
        .map(|(_, item)| item["apiVersion"].as_str().unwrap());
    assert_eq!(
        versions.collect::<Vec<_>>()[1..4],
        [
            "example.com/v1",
            "example.com/v1beta1",
            "example.com/v1beta1"
        ]
    );
    let list = serde_json::to_value(&outcome.result.unwrap().list).unwrap();
    assert_eq!(list["example.com/v1/Widget"], json!(["a/w", "b/w"]));
    assert_eq!(list["example.com/v1beta1/Widget"], json!(["a/w", "b/w"]));

    let outcome = Setup {
        all_versions: false,
        ..setup()
    }
    .collect()
    .await;
    assert_eq!(outcome.names(), ALL[..2]);
}

#[tokio::test(start_paused = true)]
async fn an_ordered_item_is_first_and_written_once_in_each_version() {
    let mut ordered = setup();
    ordered.spec["orderedResources"] = json!({ "widgets": "b/w" });
    ordered.api.put(
        "/apis/example.com/v1/namespaces/b/widgets/w",
        item("b", "w"),
    );
    let outcome = ordered.collect().await;
    assert_eq!(
        outcome.names()[..2],
        ["widgets.example.com/b/w", "widgets.example.com/a/w"]
    );
    assert_eq!((outcome.names().len(), outcome.warnings), (4, vec![]));
}

#[tokio::test(start_paused = true)]
async fn what_an_action_began_on_one_version_says_nothing_of_another() {
    let starts = action("x/starts", "widgets", |_| {
        Ok(BackupActionOutput {
            operation: Some("again".to_owned()),
            ..BackupActionOutput::default()
        })
    });
    let begun = |of: &Value| json!({ "actionBegun": of });
    let item =
        |group_resource| json!({ "action": "x/starts", "item": id(group_resource, "a", "w") });
    let executed = BackupActionOutput {
        operation: Some("op-1".to_owned()),
        ..BackupActionOutput::default()
    };
    let done = json!({ "executed": executed, "at": "2026-01-01T00:00:00Z" });
    let [v1, v1beta1] = [
        item("widgets.example.com"),
        item("widgets.v1beta1.example.com"),
    ];
    let prior = vec![
        begun(&v1),
        json!({ "actionEnded": v1, "started": done }),
        begun(&v1beta1),
    ];
    let outcome = Setup {
        actions: vec![Arc::clone(&starts) as _],
        prior,
        ..setup()
    }
    .collect()
    .await;
    let Outcome {
        result,
        errors,
        sink,
        ..
    } = outcome;
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(!sink.items.iter().any(|(name, _)| name == ALL[2]));
    let operations = result.unwrap().operations;
    assert_eq!(operations[0].operation, "op-1");
    assert_eq!(operations[0].item, id("widgets.example.com", "a", "w"));
    assert!(
        operations
            .iter()
            .all(|operation| operation.item.group_resource == "widgets.example.com")
    );
    assert_eq!(operations.len(), 3);
}

//! Commands of `cargo xtask demo` in a terminal. `cargo xtask generate` makes the recording
//! docs/demo.svg of these transcripts.

use crate::prelude::*;

/// Uid of the first object that the fake API creates.
const UID: &str = "00000001-aaaa-bbbb-cccc-dddddddddddd";
const BEGIN: &str = "2026-11-03T05:14:02Z";
const END: &str = "2026-11-03T05:14:10Z";

/// Number of items of each type.
const ITEMS: [(&str, usize); 5] = [
    ("v1/ConfigMap", 2103),
    ("example.com/v1/shopWidget", 420),
    ("v1/Secret", 420),
    ("v1/Pod", 24),
    ("apps/v1/Deployment", 12),
];
const ITEM_COUNT: usize = 2979;

/// A cluster with the default location and these objects.
async fn cluster(objects: impl IntoIterator<Item = Value>) -> FakeApi {
    let bucket = json!({"spec": {"objectStorage": {"prefix": null}}});
    let api = FakeApi::with([with(location("Available", ""), &bucket)]).await;
    for object in objects {
        api.has(object);
    }
    api
}

/// The commands with their output in a terminal. A carriage return is shown as ␍.
async fn recorded<const N: usize>(api: &FakeApi, lines: [&str; N]) -> String {
    let person = Person::at(api).in_window(96, 24);
    person.types_all(lines).await.replace('\r', "␍")
}

/// The list of items, each with this text after its name.
fn resource_list(outcome: &str) -> Value {
    let list: serde_json::Map<String, Value> = ITEMS
        .iter()
        .map(|(kind, count)| {
            let items: Vec<String> = (0..*count)
                .map(|number| format!("shop-web/item-{number}{outcome}"))
                .collect();
            ((*kind).to_owned(), json!(items))
        })
        .collect();
    list.into()
}

/// The Backup `demo` with this phase and number of items.
fn backup(phase: &str, items: usize) -> Value {
    let progress = json!({"totalItems": ITEM_COUNT, "itemsBackedUp": items});
    let begun = json!({
        "metadata": {"uid": UID, "creationTimestamp": BEGIN},
        "spec": {"storageLocation": "default"},
        "status": {"phase": phase, "startTimestamp": BEGIN, "progress": progress},
    });
    with(new_backup("demo"), &begun)
}

/// The Backup `demo` at its end.
fn backup_at_end() -> Value {
    let end = json!({"status": {"completionTimestamp": END, "expiration": "2026-12-03T05:14:02Z"}});
    with(backup("Completed", ITEM_COUNT), &end)
}

/// The Restore `rescue` with this phase and number of items.
fn restore(phase: &str, items: usize) -> Value {
    let namespaces = ["shop-web", "shop-data", "shop-batch"];
    let progress = json!({"totalItems": ITEM_COUNT, "itemsRestored": items});
    json!({
        "apiVersion": "velero.io/v1", "kind": "Restore",
        "metadata": {"name": "rescue", "namespace": "velero", "uid": UID, "creationTimestamp": BEGIN},
        "spec": {"backupName": "demo", "includedNamespaces": namespaces},
        "status": {"phase": phase, "startTimestamp": BEGIN, "progress": progress},
    })
}

#[tokio::test]
async fn a_backup_in_the_demo() {
    assert_eq!(
        ITEMS.iter().map(|(_, count)| count).sum::<usize>(),
        ITEM_COUNT
    );
    let api = cluster([]).await;
    api.has_file("BackupResourceList", "demo", &resource_list(""))
        .has_file("BackupVolumeInfos", "demo", &json!([]));
    let states = [
        backup("InProgress", 900),
        backup("InProgress", 2400),
        backup_at_end(),
    ];
    api.becomes("/backups/demo", states);
    let lines = ["create demo --wait", "describe demo"];
    assert_snapshot!("backup", recorded(&api, lines).await);
}

#[tokio::test]
async fn a_refusal_in_the_demo() {
    // A test of the webhook compares it with the refusal itself.
    let message = format!(
        "admission webhook \"claims.backup-webhook.velero.io\" denied the request: {}",
        include_str!("refused_restore.txt").trim_end()
    );
    let api = cluster([backup_at_end()]).await;
    api.on_post("/restores", Fault::forbidden(&message));
    let lines = ["create second", "restore demo --name=too-early"];
    assert_snapshot!("refusal", recorded(&api, lines).await);
}

#[tokio::test]
async fn a_restore_in_the_demo() {
    let api = cluster([backup_at_end()]).await;
    api.has_file("RestoreResourceList", "rescue", &resource_list("(created)"))
        .has_file("RestoreVolumeInfo", "rescue", &json!([]));
    let end = json!({"status": {"completionTimestamp": END}});
    let states = [
        restore("InProgress", 800),
        restore("InProgress", 2100),
        with(restore("Completed", ITEM_COUNT), &end),
    ];
    api.becomes("/restores/rescue", states);
    let create =
        "restore demo --name=rescue --include-namespaces=shop-web,shop-data,shop-batch --wait";
    let lines = [create, "restore describe rescue"];
    assert_snapshot!("restore", recorded(&api, lines).await);
}

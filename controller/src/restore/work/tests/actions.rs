//! Actions on items of a restore.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, ItemId,
    restore::{RestoreActionInput, RestoreWait},
};

use super::*;

type Act = dyn Fn(&str) -> RestoreActionOutput + Send + Sync;

/// An action on ConfigMaps, made of a function of their names.
struct Scripted {
    applies_to: AppliesTo,
    act: Box<Act>,
    saw: Mutex<Vec<String>>,
    asked: AtomicUsize,
}

fn action(act: impl Fn(&str) -> RestoreActionOutput + Send + Sync + 'static) -> Arc<Scripted> {
    let applies_to = AppliesTo {
        included_resources: vec!["configmaps".to_owned()],
        included_namespaces: vec!["z".to_owned()],
        ..AppliesTo::default()
    };
    Arc::new(Scripted {
        applies_to,
        act: Box::new(act),
        saw: Mutex::default(),
        asked: AtomicUsize::new(0),
    })
}

impl ItemAction for Scripted {
    fn name(&self) -> &'static str {
        "x/scripted"
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}

#[async_trait]
impl RestoreItemAction for Scripted {
    async fn execute(
        &self,
        given: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let name = json::text(given.item, &["metadata"], "name")
            .unwrap()
            .to_owned();
        assert!(given.item.get("status").is_none() && given.from_backup.contains_key("status"));
        let executed = (self.act)(&name);
        self.saw.lock().push(name);
        tokio::task::yield_now().await;
        Ok(executed)
    }

    async fn are_ready(&self, items: &[ItemId], _: &Restore) -> Result<bool, ActionError> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(items.len() == 1 && asked == 3)
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "status": {}})
}

fn bringing(additional: Vec<ItemId>) -> RestoreActionOutput {
    RestoreActionOutput {
        additional,
        ..RestoreActionOutput::default()
    }
}

/// Restores into the namespace `z`, with an action.
async fn acted(items: Items<'_>, mut spec: Value, action: &Arc<Scripted>) -> (FakeApi, Report) {
    spec["namespaceMapping"] = json!({"a": "z"});
    let (fake, claimed, plugins) = (
        fake::server(),
        Footprint::namespaces(["z"]),
        vec![Arc::clone(action) as _],
    );
    let (report, done) = run(&fake, &fake::calls(&fake), items, spec, &claimed, plugins).await;
    done.unwrap();
    let progress = report.progress();
    assert_eq!(progress.total_items, progress.items_restored);
    (fake, report)
}

fn created(fake: &FakeApi, name: &str) -> Option<Value> {
    fake.get(&format!("/api/v1/namespaces/z/configmaps/{name}"))
}

#[tokio::test]
async fn items_that_ask_for_one_another_are_each_restored_once() {
    let names: Vec<String> = (0..60).map(|n| format!("n{n}")).collect();
    let items: Vec<_> = names
        .iter()
        .map(|name| ("configmaps", Some("a"), map(name)))
        .collect();
    // Cycles of three items, and every item asks for the first.
    let ring = action(|name| {
        let n: usize = name[1..].parse().unwrap();
        let next = n - n % 3 + (n + 1) % 3;
        let wanted = [format!("n{next}"), "n0".to_owned()];
        bringing(
            wanted
                .iter()
                .map(|name| ItemId::new("configmaps", Some("a"), name))
                .collect(),
        )
    });
    let within = tokio::time::timeout(Duration::from_secs(20), acted(&items, json!({}), &ring));
    let (fake, report) = within.await.expect("none waits for ever");
    assert_eq!(report.counts(), (0, 0));
    let mut saw = ring.saw.lock().clone();
    saw.sort();
    let mut expected = names.clone();
    expected.sort();
    assert_eq!(saw, expected);
    assert!(names.iter().all(|name| created(&fake, name).is_some()));
}

/// Velero `pkg/restore/restore.go`, after 1.18.
#[tokio::test]
async fn what_must_come_along_passes_the_filters_of_types_and_not_the_claim() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let items = [
        ("configmaps", Some("a"), map("item")),
        ("configmaps", Some("b"), map("elsewhere")),
        ("pods", Some("a"), pod),
        ("storageclasses.storage.k8s.io", None, class),
        ("nodes", None, node),
    ];
    for (mark, expected) in [("true", true), ("yes", false)] {
        let marking = action(move |name| {
            let mut item = map(name);
            item["metadata"]["annotations"] =
                json!({"restore.velero.io/must-include-additional-items": mark});
            let mut output = bringing(vec![
                ItemId::new("pods", Some("a"), "p"),
                ItemId::new("storageclasses.storage.k8s.io", None, "s"),
                ItemId::new("configmaps", Some("b"), "elsewhere"),
                ItemId::new("nodes", None, "n"),
            ]);
            output.item = item.as_object().cloned();
            output
        });
        let spec = json!({"includedNamespaces": ["a"], "includedResources": ["configmaps"], "includeClusterResources": false});
        let (fake, report) = acted(&items, spec, &marking).await;
        let is_there = |path: &str| fake.get(path).is_some();
        assert_eq!(is_there("/api/v1/namespaces/z/pods/p"), expected, "{mark}");
        assert_eq!(
            is_there("/apis/storage.k8s.io/v1/storageclasses/s"),
            expected,
            "{mark}"
        );
        assert!(
            !is_there("/api/v1/namespaces/b/configmaps/elsewhere"),
            "no claim keeps others away from it"
        );
        assert!(!is_there("/api/v1/nodes/n"), "no restore makes nodes");
        assert_eq!(report.counts(), (0, i64::from(expected)), "{mark}");
        assert_eq!(
            created(&fake, "item").unwrap()["metadata"].get("annotations"),
            None,
            "the mark stays out"
        );
    }
}

#[tokio::test]
async fn a_related_item_is_restored_before_its_item_unless_filtered() {
    let mut item = map("item");
    item["metadata"]["labels"] = json!({"app": "web"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}});
    let items = [
        ("configmaps", Some("a"), item),
        ("configmaps", Some("a"), map("along")),
        ("configmaps", Some("b"), map("elsewhere")),
        ("pods", Some("a"), pod),
        ("storageclasses.storage.k8s.io", None, class),
    ];
    let all = || {
        bringing(vec![
            ItemId::new("configmaps", Some("a"), "along"),
            ItemId::new("configmaps", Some("b"), "elsewhere"),
            ItemId::new("pods", Some("a"), "p"),
            ItemId::new("storageclasses.storage.k8s.io", None, "s"),
        ])
    };
    let brings = action(move |name| {
        if name == "item" {
            all()
        } else {
            RestoreActionOutput::default()
        }
    });
    let spec = |more: Value| {
        let mut spec = json!({
            "labelSelector": {"matchLabels": {"app": "web"}}, "includedNamespaces": ["a"],
            "includedResources": ["configmaps", "storageclasses.storage.k8s.io"],
        });
        json_patch::merge(&mut spec, &more);
        spec
    };
    let (fake, report) = acted(&items, spec(json!({})), &brings).await;
    assert_eq!(report.counts(), (0, 0));
    assert_eq!(
        posts(&fake),
        [
            "/api/v1/namespaces",
            "/api/v1/namespaces/z/configmaps",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/api/v1/namespaces/z/configmaps",
        ]
    );
    assert!(created(&fake, "along").is_some() && created(&fake, "item").is_some());
    // Cluster-scoped items only if they are not excluded.
    let (fake, _) = acted(
        &items,
        spec(json!({"includeClusterResources": false})),
        &brings,
    )
    .await;
    assert!(
        !posts(&fake)
            .iter()
            .any(|path| path.contains("storageclasses"))
    );
    // Nothing goes into a namespace that is not claimed.
    let (fake, report) = acted(&items, spec(json!({"includedNamespaces": null})), &brings).await;
    assert!(
        fake.get("/api/v1/namespaces/b/configmaps/elsewhere")
            .is_none()
    );
    assert_eq!(report.counts(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn an_item_waits_for_what_came_along_but_not_for_ever() {
    for (limit, errors) in [(None, 0), (Some(Duration::from_secs(1)), 1)] {
        let waits = action(move |name| match name {
            "item" => RestoreActionOutput {
                wait: Some(RestoreWait { limit }),
                ..bringing(vec![
                    ItemId::new("configmaps", Some("a"), "along"),
                    ItemId::new("configmaps", Some("a"), "gone"),
                ])
            },
            _ => RestoreActionOutput::default(),
        });
        let items = [
            ("configmaps", Some("a"), map("item")),
            ("configmaps", Some("a"), map("along")),
        ];
        let (fake, report) = acted(&items, json!({}), &waits).await;
        assert_eq!(
            report.counts(),
            (1, errors),
            "what is not in the backup is a warning"
        );
        assert!(
            created(&fake, "item").is_some(),
            "as with Velero it is restored all the same"
        );
        assert_eq!(
            waits.asked.load(Ordering::SeqCst),
            if errors == 0 { 3 } else { 2 }
        );
    }
}

#[tokio::test]
async fn an_item_that_actions_change_is_checked_again() {
    let made = |kind: &str, name: &str| {
        let item = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "elsewhere"}});
        RestoreActionOutput {
            item: item.as_object().cloned(),
            ..RestoreActionOutput::default()
        }
    };
    let changes = action(move |name| match name {
        "renamed" => made("ConfigMap", "other"),
        "pod" => made("Pod", "p"),
        "gadget" => made("Gadget", "g"),
        "path" => made("ConfigMap", "../x"),
        _ => RestoreActionOutput {
            skip: Some("not wanted".to_owned()),
            ..bringing(vec![ItemId::new("configmaps", Some("a"), "no")])
        },
    });
    let names = ["renamed", "pod", "gadget", "path", "skipped"];
    let items = names.map(|name| ("configmaps", Some("a"), map(name)));
    let (fake, report) = acted(&items, json!({}), &changes).await;
    assert_eq!(
        report.counts(),
        (0, 2),
        "a type that is not served, and a name that is none"
    );
    assert!(created(&fake, "other").is_some() && fake.get("/api/v1/namespaces/z/pods/p").is_some());
    assert_eq!(posts(&fake).len(), 3);
    assert_eq!(listed(report)["v1/ConfigMap"][4], "z/skipped(skipped)");
}

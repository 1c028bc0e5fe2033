//! Actions on items of a backup.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, ItemId, OperationProgress,
    backup::{BackupActionOutput, BackupItemAction},
};
use backup_core::api::Backup;
use backup_testkit::{FakeApi, Fault, Request, status};
use serde_json::{Value, json};

use super::harness::{Outcome, Setup, cluster, collect_by, id, item};
use crate::backup::actions::Done;

type Act = dyn Fn(&Value) -> Result<BackupActionOutput, String> + Send + Sync;

/// An action made of a function; records the names of the items that it saw.
pub(super) struct Scripted {
    name: &'static str,
    applies_to: AppliesTo,
    act: Box<Act>,
    saw: Mutex<Vec<String>>,
}

pub(super) fn action(
    name: &'static str,
    resource: &str,
    act: impl Fn(&Value) -> Result<BackupActionOutput, String> + Send + Sync + 'static,
) -> Arc<Scripted> {
    let applies_to = AppliesTo {
        included_resources: vec![resource.to_owned()],
        ..AppliesTo::default()
    };
    Arc::new(Scripted {
        name,
        applies_to,
        act: Box::new(act),
        saw: Mutex::default(),
    })
}

impl ItemAction for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn applies_to(&self) -> AppliesTo {
        self.applies_to.clone()
    }
}

#[async_trait]
impl BackupItemAction for Scripted {
    fn is_executed_once(&self) -> bool {
        self.name == "x/starts"
    }

    async fn execute(&self, item: &Value, _: &Backup) -> Result<BackupActionOutput, ActionError> {
        self.saw
            .lock()
            .unwrap()
            .push(item["metadata"]["name"].as_str().unwrap().to_owned());
        (self.act)(item).map_err(|reason| {
            let action = self.name.to_owned();
            if reason == "unknown" {
                ActionError::Unknown { action, reason }
            } else {
                ActionError::Final { action, reason }
            }
        })
    }

    async fn progress(&self, _: &str, _: &Backup) -> Result<OperationProgress, ActionError> {
        panic!("nobody asks here")
    }

    async fn cancel(&self, _: &str, _: &Backup) -> Result<(), ActionError> {
        panic!("nobody asks here")
    }
}

fn asks_for(
    ids: Vec<ItemId>,
) -> impl Fn(&Value) -> Result<BackupActionOutput, String> + Send + Sync {
    move |_| {
        Ok(BackupActionOutput {
            additional: ids.clone(),
            ..BackupActionOutput::default()
        })
    }
}

fn changes(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Box<Act> {
    Box::new(move |item| {
        let mut item = item.clone();
        change(&mut item);
        Ok(BackupActionOutput {
            item: Some(item),
            ..BackupActionOutput::default()
        })
    })
}

fn pods(names: &[&str]) -> FakeApi {
    cluster().with_list(
        "/api/v1/pods",
        names.iter().map(|name| item("a", name)).collect(),
    )
}

fn spec() -> Value {
    json!({ "includedResources": ["pods", "configmaps"] })
}

#[tokio::test(start_paused = true)]
async fn actions_run_in_the_order_of_their_names_on_the_last_result() {
    let first = action("a/first", "pods", changes(|item| item["step"] = json!(1)));
    let tenfold = |item: &mut Value| item["step"] = json!(item["step"].as_i64().unwrap() * 10);
    let second = action("b/second", "pods", changes(tenfold));
    let outcome = collect_by(spec(), pods(&["p"]), vec![second, first]).await;
    let (name, pod) = &outcome.sink.items[0];
    assert_eq!((name.as_str(), &pod["step"]), ("pods/a/p", &json!(10)));
    assert_eq!(
        (&pod["apiVersion"], &pod["kind"]),
        (&json!("v1"), &json!("Pod"))
    );
    assert_eq!(
        outcome.names().len(),
        4,
        "what no action wants is written, too"
    );
}

#[tokio::test(start_paused = true)]
async fn a_related_item_is_written_before_its_item_and_only_once() {
    let asks = action(
        "x/asks",
        "pods",
        asks_for(vec![id("configmaps", "a", "two")]),
    );
    let outcome = collect_by(spec(), pods(&["p", "q"]), vec![asks]).await;
    assert_eq!(
        outcome.names(),
        [
            "configmaps/a/two",
            "pods/a/p",
            "pods/a/q",
            "configmaps/a/one",
            "configmaps/b/one"
        ]
    );
    let fetched = outcome
        .paths
        .iter()
        .filter(|path| path.ends_with("/configmaps/two"))
        .count();
    assert_eq!((fetched, outcome.errors.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn items_that_ask_for_one_another_end() {
    let down = action(
        "x/down",
        "pods",
        asks_for(vec![id("configmap", "a", "two")]),
    );
    let up = action("x/up", "configmaps", asks_for(vec![id("pods", "a", "p")]));
    let outcome = collect_by(spec(), pods(&["p"]), vec![down, up.clone()]).await;
    assert_eq!(outcome.names()[..2], ["configmaps/a/two", "pods/a/p"]);
    assert_eq!(*up.saw.lock().unwrap(), ["two", "one", "one"]);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[tokio::test(start_paused = true)]
async fn a_row_of_items_that_never_ends_is_cut() {
    let next = |item: &Value| {
        let name = item["metadata"]["name"].as_str().unwrap();
        let additional = vec![id("configmaps", "a", &format!("{name}x"))];
        Ok(BackupActionOutput {
            additional,
            ..BackupActionOutput::default()
        })
    };
    let fault = |request: &Request| {
        let name = request
            .path
            .strip_prefix("/api/v1/namespaces/a/configmaps/")?;
        Some(Fault::Answer(status(200, item("a", name))))
    };
    let api = cluster()
        .with_list("/api/v1/configmaps", vec![item("a", "x")])
        .with_fault(fault);
    let outcome = collect_by(spec(), api, vec![action("x/next", "configmaps", next)]).await;
    assert_eq!(outcome.errors.len(), 1, "{:?}", outcome.errors);
    assert_says!(outcome.errors[0], "in a row");
}

#[tokio::test(start_paused = true)]
async fn a_missing_related_item_is_a_warning_an_unread_one_an_error() {
    let asks = || {
        let ids = vec![
            id("configmaps", "a", "gone"),
            id("configmaps", "a", "secret"),
        ];
        vec![action("x/asks", "pods", asks_for(ids)) as Arc<dyn BackupItemAction>]
    };
    let outcome = collect_by(spec(), pods(&["p"]), asks()).await;
    assert!(outcome.names().contains(&"pods/a/p") && outcome.errors.is_empty());
    assert_says!(outcome.warnings[0], "pods a/p asks for configmaps a/gone");

    let fault = |request: &Request| {
        request
            .path
            .ends_with("/secret")
            .then(|| Fault::refuse(403, "Forbidden", "not for you"))
    };
    let outcome = collect_by(spec(), pods(&["p"]).with_fault(fault), asks()).await;
    assert!(!outcome.names().contains(&"pods/a/p"));
    assert_eq!(outcome.names().len(), 3, "the rest is intact");
    assert_says!(outcome.errors[0], "pods a/p", "not for you");

    let unknown = action("x/asks", "pods", asks_for(vec![id("unicorns", "a", "u")]));
    let outcome = collect_by(spec(), pods(&["p"]), vec![unknown]).await;
    assert_says!(outcome.errors[0], "serves no unicorns");
}

#[tokio::test(start_paused = true)]
async fn an_action_that_fails_costs_its_item_and_nothing_else() {
    let fails = action("x/fails", "pods", |item| {
        match item["metadata"]["name"].as_str() {
            Some("bad") => Err("no disk".to_owned()),
            _ => Ok(BackupActionOutput::default()),
        }
    });
    let outcome = collect_by(spec(), pods(&["bad", "good"]), vec![fails]).await;
    assert!(outcome.names().contains(&"pods/a/good") && !outcome.names().contains(&"pods/a/bad"));
    assert_eq!(
        outcome.errors,
        ["pods a/bad is not in this backup: x/fails: no disk"]
    );
}

#[tokio::test(start_paused = true)]
async fn filters_hold_for_related_items_unless_they_are_required() {
    let ids = vec![
        id("configmaps", "b", "one"),
        id("widgets.example.com", "a", "w"),
    ];
    for (must, expected) in [
        (false, &["pods/a/p"][..]),
        (
            true,
            &["configmaps/b/one", "widgets.example.com/a/w", "pods/a/p"],
        ),
    ] {
        let ids = ids.clone();
        let asks = action("x/asks", "pods", move |item| {
            let mut item = item.clone();
            item["metadata"]["annotations"] = json!({ "keep": "1" });
            if must {
                item["metadata"]["annotations"]["backup.velero.io/must-include-additional-items"] =
                    json!("true");
            }
            Ok(BackupActionOutput {
                item: Some(item),
                additional: ids.clone(),
                ..BackupActionOutput::default()
            })
        });
        let mut excluded = item("b", "one");
        excluded["metadata"]["labels"] = json!({ "velero.io/exclude-from-backup": "true" });
        let api = cluster()
            .with_list("/api/v1/namespaces/a/pods", vec![item("a", "p")])
            .with_object("/api/v1/namespaces/b/configmaps/one", excluded)
            .with_object(
                "/apis/example.com/v1/namespaces/a/widgets/w",
                item("a", "w"),
            );
        let spec = json!({ "includedNamespaces": ["a"], "includedResources": ["pods"] });
        let outcome = collect_by(spec, api, vec![asks]).await;
        let names: Vec<_> = outcome
            .names()
            .into_iter()
            .filter(|name| !name.contains("definitions"))
            .collect();
        assert_eq!(names, expected);
        let (_, pod) = outcome
            .sink
            .items
            .iter()
            .find(|(name, _)| name == "pods/a/p")
            .unwrap();
        assert_eq!(
            pod["metadata"]["annotations"],
            json!({ "keep": "1" }),
            "the sign was meant for us only"
        );
        assert!(outcome.errors.is_empty() && outcome.warnings.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_an_action_marks_is_left_out() {
    let skips = action(
        "x/skips",
        "pods",
        changes(|item| {
            item["metadata"]["annotations"] = json!({ "velero.io/skip-from-backup": "" });
        }),
    );
    let outcome = collect_by(spec(), pods(&["p"]), vec![skips]).await;
    assert!(!outcome.names().contains(&"pods/a/p") && outcome.errors.is_empty());
}

/// The mark is not checked on an item that no action has changed.
#[tokio::test(start_paused = true)]
async fn a_mark_to_leave_out_counts_only_where_an_action_sets_it() {
    let mark = || json!({ "velero.io/skip-from-backup": "" });
    let mut marked = item("a", "marked");
    marked["metadata"]["annotations"] = mark();
    let sets = action(
        "x/sets",
        "configmaps",
        changes(move |item| item["metadata"]["annotations"] = mark()),
    );
    let must = action("x/must", "pods", |item| {
        let mut item = item.clone();
        item["metadata"]["annotations"] =
            json!({ "backup.velero.io/must-include-additional-items": "true" });
        let additional = vec![id("configmaps", "a", "two")];
        Ok(BackupActionOutput {
            item: Some(item),
            additional,
            ..BackupActionOutput::default()
        })
    });
    let api = pods(&["p"]).with_list("/apis/example.com/v1/widgets", vec![marked]);
    let outcome = collect_by(json!({}), api, vec![sets, must]).await;
    assert!(
        outcome.names().contains(&"widgets.example.com/a/marked"),
        "{:?}",
        outcome.names()
    );
    assert!(outcome.names().contains(&"pods/a/p"));
    assert!(
        !outcome
            .names()
            .iter()
            .any(|name| name.starts_with("configmaps")),
        "also of one that is required"
    );
}

#[tokio::test(start_paused = true)]
async fn labels_are_not_asked_of_related_items() {
    let mut pod = item("a", "p");
    pod["metadata"]["labels"] = json!({ "app": "web" });
    let asks = action(
        "x/asks",
        "pods",
        asks_for(vec![id("configmaps", "a", "two")]),
    );
    let mut spec = spec();
    spec["labelSelector"] = json!({ "matchLabels": { "app": "web" } });
    let outcome = collect_by(
        spec,
        cluster().with_list("/api/v1/pods", vec![pod]),
        vec![asks],
    )
    .await;
    assert_eq!(outcome.names(), ["configmaps/a/two", "pods/a/p"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_deleted_is_left_out_also_if_it_is_required() {
    let must = action("x/must", "pods", |item| {
        let mut item = item.clone();
        item["metadata"]["annotations"] =
            json!({ "backup.velero.io/must-include-additional-items": "true" });
        let additional = vec![id("configmaps", "a", "going")];
        Ok(BackupActionOutput {
            item: Some(item),
            additional,
            ..BackupActionOutput::default()
        })
    });
    let mut going = item("a", "going");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let api = pods(&["p"]).with_object("/api/v1/namespaces/a/configmaps/going", going);
    let outcome = collect_by(json!({ "includedResources": ["pods"] }), api, vec![must]).await;
    assert_eq!(outcome.names(), ["pods/a/p"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_failed_is_not_tried_again_for_another() {
    let fails = action("x/fails", "configmaps", |_| Err("no disk".to_owned()));
    let asks = action(
        "x/asks",
        "pods",
        asks_for(vec![id("configmaps", "a", "two")]),
    );
    let outcome = collect_by(spec(), pods(&["p", "q"]), vec![fails.clone(), asks]).await;
    assert_eq!(*fails.saw.lock().unwrap(), ["two", "one", "one"]);
    assert_eq!(outcome.errors.len(), 3, "{:?}", outcome.errors);
    assert_eq!(
        outcome.names(),
        ["pods/a/p", "pods/a/q"],
        "who has asked for it is stored all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn operations_are_recorded_before_and_after_and_returned() {
    let starts = action("x/starts", "pods", |_| {
        let after_operation = vec![id("configmaps", "a", "one")];
        Ok(BackupActionOutput {
            operation: Some("op-1".to_owned()),
            after_operation,
            ..BackupActionOutput::default()
        })
    });
    let outcome = collect_by(spec(), pods(&["p"]), vec![starts]).await;
    assert_eq!(
        outcome.recorded,
        ["x/starts may act on p", "x/starts started op-1 on p"]
    );
    let operations = outcome.result.unwrap().operations;
    let [operation] = operations.as_slice() else {
        panic!("{operations:?}")
    };
    assert_eq!(
        (operation.item.clone(), operation.operation.as_str()),
        (id("pods", "a", "p"), "op-1")
    );
    assert_eq!(operation.after, [id("configmaps", "a", "one")]);
}

/// Runs a collection after an attempt that has begun an action on pod `p`, and ended it if `ended`
/// is set.
async fn after(ended: Option<&Done>) -> (Outcome, Arc<Scripted>) {
    let starts = action("x/starts", "pods", |_| {
        Ok(BackupActionOutput {
            operation: Some("again".to_owned()),
            ..BackupActionOutput::default()
        })
    });
    let of = json!({ "action": "x/starts", "item": id("pods", "a", "p") });
    let mut prior = vec![json!({ "actionBegun": of })];
    prior.extend(ended.map(|done| json!({ "actionEnded": of, "started": done })));
    let setup = Setup {
        spec: spec(),
        api: pods(&["p", "q"]),
        actions: vec![starts.clone()],
        prior,
        ..Setup::default()
    };
    (setup.collect().await, starts)
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_an_earlier_attempt_is_not_started_again() {
    let mut changed = item("a", "p");
    changed["metadata"]["labels"] = json!({ "was": "changed" });
    let executed = BackupActionOutput {
        item: Some(changed),
        operation: Some("op-1".to_owned()),
        additional: vec![id("configmaps", "a", "two")],
        after_operation: vec![id("configmaps", "a", "one")],
    };
    let at = "2026-01-01T00:00:00Z".parse().unwrap();
    let (outcome, starts) = after(Some(&Done { executed, at })).await;
    assert_eq!(*starts.saw.lock().unwrap(), ["q"]);
    assert_eq!(
        outcome.recorded,
        ["x/starts may act on q", "x/starts started again on q"]
    );
    let (_, pod) = outcome
        .sink
        .items
        .iter()
        .find(|(name, _)| name == "pods/a/p")
        .unwrap();
    assert_eq!(pod["metadata"]["labels"]["was"], "changed");
    let operations = outcome.result.unwrap().operations;
    assert_eq!(
        (operations[0].operation.as_str(), operations[0].created),
        ("op-1", at)
    );
    assert_eq!(operations[0].after, [id("configmaps", "a", "one")]);
    assert_eq!(operations.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_action_of_unknown_outcome_is_an_error_and_not_retried() {
    let (outcome, starts) = after(None).await;
    assert_eq!(*starts.saw.lock().unwrap(), ["q"]);
    assert!(!outcome.names().contains(&"pods/a/p") && outcome.names().contains(&"pods/a/q"));
    let [error] = outcome.errors.as_slice() else {
        panic!("{:?}", outcome.errors)
    };
    assert_says!(error, "pods a/p", "earlier try", "not known");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_stays_open_and_a_refusal_does_not() {
    for (reason, told) in [("unknown", 1), ("refused", 2)] {
        let fails = action("x/starts", "pods", move |_| Err(reason.to_owned()));
        let outcome = collect_by(spec(), pods(&["p"]), vec![fails]).await;
        assert_eq!(outcome.recorded.len(), told, "{:?}", outcome.recorded);
        assert!(
            outcome.recorded[0] == "x/starts may act on p"
                && !outcome.names().contains(&"pods/a/p")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_that_was_renamed_is_written_under_its_new_name() {
    let renames = action(
        "x/renames",
        "pods",
        changes(|item| item["metadata"]["name"] = json!("new")),
    );
    let outcome = collect_by(spec(), pods(&["old"]), vec![renames]).await;
    assert!(outcome.names().contains(&"pods/a/new"));
}

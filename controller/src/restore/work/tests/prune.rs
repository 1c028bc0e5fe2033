//! Objects that the backup does not have, and `spec.prune`.

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction,
    restore::{RestoreActionInput, modifiers},
};
use backup_core::api::BackupPhase;
use backup_runtime::leader::Leadership;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::job::cancellation::Cancellation;

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const CLAIMS_OF_A: &str = "/api/v1/namespaces/a/persistentvolumeclaims";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/a/deployments";

/// Stores an object that is younger than the backup and older than the Restore.
#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn put(fake: &FakeApi, collection: &str, name: &str, change: Value) {
    let mut object = json!({"metadata": {"name": name, "uid": format!("uid-{name}"),
        "creationTimestamp": "2025-06-01T00:00:00Z"}});
    json_patch::merge(&mut object, &json!({"metadata": change}));
    fake.put(&format!("{collection}/{name}"), object);
}

#[allow(clippy::needless_pass_by_value)] // reads better where it is called
fn spec(change: Value) -> Value {
    let mut spec = json!({"backupName": "b", "includedNamespaces": ["a"], "prune": true});
    json_patch::merge(&mut spec, &change);
    spec
}

/// One ConfigMap in the backup.
fn kept() -> [(&'static str, Option<&'static str>, Value); 1] {
    [stored_item("configmaps", "v1 ConfigMap", "a/kept")]
}

/// A Completed backup with this selection, of the first of January 2025.
fn backup_of(selection: Value) -> Backup {
    let mut backup = Backup::new("b", serde_json::from_value(selection).unwrap());
    backup.status.phase = Some(BackupPhase::Completed);
    backup.status.start_timestamp = Some(Time("2025-01-01T00:00:00Z".parse().unwrap()));
    backup
}

fn deletions(fake: &FakeApi) -> Vec<String> {
    fake.log()
        .iter()
        .filter_map(|line| line.strip_prefix("DELETE ").map(ToOwned::to_owned))
        .collect()
}

fn is_there(fake: &FakeApi, collection: &str, name: &str) -> bool {
    fake.get(&format!("{collection}/{name}")).is_some()
}

/// The warnings about the whole restore.
fn warnings(report: Report) -> String {
    report.into_files().results.warnings.velero.join("; ")
}

#[tokio::test]
async fn what_the_backup_does_not_have_is_removed_after_all_else() {
    let fake = fake::server();
    put(&fake, MAPS, "extra", json!({}));
    put(&fake, MAPS, "kube-root-ca.crt", json!({}));
    put(&fake, DEPLOYMENTS, "extra", json!({}));
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]);
    let pods = "/api/v1/namespaces/a/pods";
    put(&fake, pods, "owned", json!({"ownerReferences": owner}));
    put(&fake, pods, "bare", json!({}));
    put(&fake, "/api/v1/namespaces/b/configmaps", "extra", json!({}));
    let report = restored_in(&fake, &kept(), spec(json!({}))).await;
    assert_eq!(report.counts(), (0, 0));
    assert_eq!(
        deletions(&fake),
        [
            format!("{DEPLOYMENTS}/extra"),
            format!("{pods}/bare"),
            format!("{MAPS}/extra"),
        ],
        "those that are restored last go first"
    );
    let log = fake.log();
    let first = log.iter().position(|line| line.starts_with("DELETE "));
    let last_write = log.iter().rposition(|line| line.starts_with("POST "));
    assert!(last_write < first, "{log:?}");
    assert!(is_there(&fake, MAPS, "kept") && is_there(&fake, MAPS, "kube-root-ca.crt"));
    assert!(is_there(&fake, pods, "owned"));
    assert!(is_there(&fake, "/api/v1/namespaces/b/configmaps", "extra"));
    for request in fake.requests() {
        if request.method == "DELETE" {
            let conditions = &request.body["preconditions"];
            assert!(
                conditions["uid"].is_string() && conditions["resourceVersion"].is_string(),
                "{}",
                request.body
            );
            assert_eq!(request.body["propagationPolicy"], "Background");
        }
    }
    let progress = report.progress();
    assert_eq!(progress.total_items, progress.items_restored);
    assert_eq!(report.summary().left.removed, 3);
    assert_eq!(
        listed(report)["v1/ConfigMap"],
        json!(["a/extra(removed)", "a/kept(created)"])
    );
}

#[tokio::test]
async fn nothing_is_removed_unless_the_spec_says_so() {
    let fake = fake::server();
    put(&fake, MAPS, "extra", json!({}));
    restored_in(&fake, &kept(), spec(json!({"prune": false}))).await;
    assert!(is_there(&fake, MAPS, "extra"));
}

#[tokio::test]
async fn a_mapping_removes_from_the_target_and_the_original_is_untouched() {
    let fake = fake::server();
    let copies = "/api/v1/namespaces/z/configmaps";
    put(&fake, MAPS, "extra", json!({}));
    // Older than the backup, which knows nothing of this namespace.
    put(
        &fake,
        copies,
        "extra",
        json!({"creationTimestamp": "2024-01-01T00:00:00Z"}),
    );
    let (claimed, calls) = (Footprint::namespaces(["z"]), fake::calls(&fake));
    let world = World {
        backup: backup_of(json!({})),
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world
        .run(&kept(), spec(json!({"namespaceMapping": {"a": "z"}})))
        .await;
    done.unwrap();
    assert_eq!(report.counts(), (0, 0));
    assert!(is_there(&fake, MAPS, "extra"));
    assert!(is_there(&fake, copies, "kept") && !is_there(&fake, copies, "extra"));
}

#[tokio::test]
async fn objects_are_kept_with_their_reasons() {
    let fake = fake::server();
    put(&fake, CLAIMS_OF_A, "cache", json!({}));
    put(
        &fake,
        MAPS,
        "new",
        json!({"creationTimestamp": "2026-01-01T00:00:00Z"}),
    );
    put(
        &fake,
        MAPS,
        "old",
        json!({"creationTimestamp": "2024-12-31T23:59:59Z"}),
    );
    put(
        &fake,
        MAPS,
        "private",
        json!({"labels": {"velero.io/exclude-from-backup": "true"}}),
    );
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let world = World {
        backup: backup_of(json!({})),
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(&kept(), spec(json!({}))).await;
    done.unwrap();
    assert_eq!(deletions(&fake), [""; 0]);
    let said = warnings(report);
    assert_says!(
        said,
        "PersistentVolumeClaim a/cache: its data would be lost"
    );
    assert_says!(said, "ConfigMap a/new: it was created after the restore");
    assert_says!(said, "ConfigMap a/old: it is older than the backup");
    assert_says!(said, "ConfigMap a/private: its label");
}

/// A claim is deleted with its owner, and with the owner of that.
#[tokio::test]
async fn owners_of_claims_are_kept() {
    let fake = fake::server();
    let owned_by = |api_version: &str, kind: &str, name: &str| json!({"ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("uid-{name}")}]});
    let notes = "/apis/example.com/v1/namespaces/a/notes";
    put(
        &fake,
        CLAIMS_OF_A,
        "data",
        owned_by("apps/v1", "Deployment", "db"),
    );
    put(
        &fake,
        DEPLOYMENTS,
        "db",
        owned_by("example.com/v1", "Note", "cluster"),
    );
    put(&fake, DEPLOYMENTS, "web", json!({}));
    put(&fake, notes, "cluster", json!({}));
    put(&fake, notes, "other", json!({}));
    let report = restored_in(&fake, &kept(), spec(json!({}))).await;
    assert!(is_there(&fake, DEPLOYMENTS, "db") && is_there(&fake, notes, "cluster"));
    assert!(!is_there(&fake, DEPLOYMENTS, "web") && !is_there(&fake, notes, "other"));
    assert_says!(
        warnings(report),
        "Note a/cluster: claims or snapshots belong to it"
    );
}

#[tokio::test]
async fn claims_that_cannot_be_read_keep_everything() {
    let fake = fake::faulty(|request| {
        request
            .is("GET", CLAIMS_OF_A)
            .then(|| Fault::refuse(403, "Forbidden", "no"))
    });
    put(&fake, MAPS, "extra", json!({}));
    let report = restored_in(&fake, &kept(), spec(json!({}))).await;
    assert_eq!(report.counts(), (0, 1));
    assert!(is_there(&fake, MAPS, "extra"));
}

#[tokio::test]
async fn a_restore_with_errors_removes_nothing_and_says_so() {
    let fake = fake::server();
    put(&fake, MAPS, "extra", json!({}));
    let items = [
        stored_item("configmaps", "v1 ConfigMap", "a/kept"),
        stored_item("configmaps", "v1 Secret", "a/wrong-kind"),
    ];
    let report = restored_in(&fake, &items, spec(json!({}))).await;
    assert_eq!(report.counts(), (1, 1));
    assert!(is_there(&fake, MAPS, "extra"));
    assert_says!(warnings(report), "nothing was removed (spec.prune)");
}

/// Starts an operation for each item.
struct Starting;

impl ItemAction for Starting {
    fn name(&self) -> &'static str {
        "x/starting"
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo {
            included_resources: vec!["configmaps".to_owned()],
            ..AppliesTo::default()
        }
    }
}

#[async_trait]
impl RestoreItemAction for Starting {
    async fn execute(&self, _: RestoreActionInput<'_>) -> Result<RestoreActionOutput, ActionError> {
        Ok(RestoreActionOutput {
            operation: Some("o".to_owned()),
            ..RestoreActionOutput::default()
        })
    }
}

#[tokio::test]
async fn a_restore_whose_operations_run_removes_nothing_and_says_so() {
    let fake = fake::server();
    put(&fake, MAPS, "extra", json!({}));
    let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
    let plugins: Vec<Arc<dyn RestoreItemAction>> = vec![Arc::new(Starting)];
    let (report, done) = run(&fake, &calls, &kept(), spec(json!({})), &claimed, plugins).await;
    assert_eq!(done.unwrap().len(), 1);
    assert!(is_there(&fake, MAPS, "extra"));
    assert_says!(
        report.into_files().results.errors.velero[0],
        "1 operation of the restore still ran"
    );
}

#[tokio::test]
async fn filters_of_the_restore_and_of_the_backup_both_keep_what_they_leave_out() {
    let labelled = |app: &str| json!({"labels": {"app": app}});
    let by_label = json!({"labelSelector": {"matchLabels": {"app": "web"}}});
    let mut stored = item("v1", "ConfigMap", "kept");
    stored["metadata"]["labels"] = json!({"app": "web"});
    let items = [("configmaps", Some("a"), stored)];
    for (restore, backup) in [
        (by_label.clone(), json!({})),
        (json!({}), by_label),
        (json!({"excludedResources": ["deployments"]}), json!({})),
        (json!({}), json!({"excludedResources": ["deployments"]})),
        (json!({}), json!({"includedResources": ["configmaps"]})),
    ] {
        let fake = fake::server();
        put(&fake, MAPS, "extra", labelled("web"));
        put(&fake, DEPLOYMENTS, "other", labelled("db"));
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let world = World {
            backup: backup_of(backup.clone()),
            ..World::new(&fake, &calls, &claimed)
        };
        let (_, done) = world.run(&items, spec(restore.clone())).await;
        done.unwrap();
        assert_eq!(
            deletions(&fake),
            [format!("{MAPS}/extra")],
            "{restore} {backup}"
        );
    }
}

#[tokio::test]
async fn what_the_backup_was_not_asked_for_is_named() {
    for (selection, words) in [
        (
            json!({"excludedResources": ["deployments"]}),
            "types that the backup was not asked for: deployments.apps",
        ),
        (json!({"includedNamespaces": ["b"]}), ""),
    ] {
        let fake = fake::server();
        put(&fake, DEPLOYMENTS, "extra", json!({}));
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let world = World {
            backup: backup_of(selection),
            ..World::new(&fake, &calls, &claimed)
        };
        let (report, done) = world.run(&kept(), spec(json!({}))).await;
        done.unwrap();
        assert_eq!(deletions(&fake), [""; 0]);
        assert_eq!(report.counts(), (1, 0));
        assert_says!(warnings(report), words);
    }
}

#[tokio::test]
async fn the_namespace_of_the_installation_keeps_everything() {
    let fake = fake::server();
    let maps = "/api/v1/namespaces/velero/configmaps";
    put(&fake, maps, "extra", json!({}));
    let items = [stored_item("configmaps", "v1 ConfigMap", "velero/kept")];
    let spec = spec(json!({"includedNamespaces": ["velero"]}));
    let report = restored_in(&fake, &items, spec).await;
    assert_eq!(report.counts(), (1, 0));
    assert!(is_there(&fake, maps, "extra"));
}

#[tokio::test]
async fn an_object_that_changed_since_it_was_read_is_decided_about_again() {
    type Edit = fn(&FakeApi);
    let at: &str = "/api/v1/namespaces/a/configmaps/extra";
    let cases: [(Edit, bool); 4] = [
        (
            |api| {
                api.edit("/api/v1/namespaces/a/configmaps/extra", |map| {
                    map["data"] = json!({});
                });
            },
            false,
        ),
        (
            |api| {
                api.edit("/api/v1/namespaces/a/configmaps/extra", |map| {
                    map["metadata"]["labels"] = json!({"velero.io/exclude-from-backup": "true"});
                });
            },
            true,
        ),
        (
            |api| {
                let change = json!({"uid": "another", "creationTimestamp": "2026-01-02T00:00:00Z"});
                put(api, MAPS, "extra", change);
            },
            true,
        ),
        (
            |api| api.delete("/api/v1/namespaces/a/configmaps/extra"),
            false,
        ),
    ];
    for (edit, stays) in cases {
        let fake = fake::server();
        put(&fake, MAPS, "extra", json!({}));
        fake.before("DELETE", at, edit);
        let report = restored_in(&fake, &kept(), spec(json!({}))).await;
        assert_eq!(report.counts().1, 0);
        assert_eq!(fake.get(at).is_some(), stays);
    }
}

#[tokio::test]
async fn an_object_that_changes_each_time_is_kept() {
    let fake = fake::server();
    put(&fake, MAPS, "extra", json!({}));
    fake.fault(|api, request| {
        if request.method == "DELETE" {
            api.edit(&request.path, |map| map["data"] = json!({}));
        }
        None
    });
    let report = restored_in(&fake, &kept(), spec(json!({}))).await;
    assert!(is_there(&fake, MAPS, "extra"));
    assert_eq!(deletions(&fake).len(), 4, "it is bounded");
    assert_says!(warnings(report), "it changed each time");
}

#[tokio::test]
async fn an_object_that_cannot_be_removed_is_an_error_and_the_others_go() {
    let fake = fake::faulty(|request| {
        let refused = request.method == "DELETE" && request.path.ends_with("/guarded");
        refused.then(|| Fault::refuse(403, "Forbidden", "a policy says no"))
    });
    put(&fake, MAPS, "guarded", json!({}));
    put(&fake, MAPS, "extra", json!({}));
    let report = restored_in(&fake, &kept(), spec(json!({}))).await;
    assert_eq!(report.counts(), (0, 1));
    assert!(!is_there(&fake, MAPS, "extra"));
    let errors = report.into_files().results.errors;
    assert_eq!(
        errors.namespaces["a"],
        ["ConfigMap \"guarded\" could not be removed: a policy says no"]
    );
}

/// A page holds 100 objects.
#[tokio::test]
async fn many_objects_are_removed_page_by_page() {
    let fake = fake::server();
    // The continue token of this server is an offset, so what is listed may not be removed meanwhile.
    for number in 0..150 {
        let finalizers = json!({"finalizers": ["example.com/held"]});
        put(&fake, MAPS, &format!("extra-{number:03}"), finalizers);
    }
    let report = restored_in(&fake, &kept(), spec(json!({}))).await;
    assert_eq!(report.counts(), (0, 0));
    assert_eq!(report.summary().left.removed, 150);
    let pages = fake
        .requests()
        .into_iter()
        .filter(|request| request.is("GET", MAPS));
    assert_eq!(pages.count(), 2);
}

/// The controller stops after the first type, and the next one takes the restore up again.
#[tokio::test]
async fn a_crash_in_between_is_taken_up_again_and_removes_the_rest() {
    let (fake, stop) = (fake::server(), CancellationToken::new());
    put(&fake, MAPS, "extra", json!({}));
    put(&fake, DEPLOYMENTS, "extra", json!({}));
    let stopping = stop.clone();
    fake.fault(move |_, request| {
        if request.method == "DELETE" {
            stopping.cancel();
        }
        None
    });
    let (claimed, calls) = (Footprint::everything(), fake::calls_until(&fake, stop));
    let (_, done) = run(&fake, &calls, &kept(), spec(json!({})), &claimed, vec![]).await;
    assert!(matches!(
        done,
        Err(RestoreError::Stopped(StopReason::ShuttingDown))
    ));
    assert!(!is_there(&fake, DEPLOYMENTS, "extra") && is_there(&fake, MAPS, "extra"));
    fake.recover();
    let calls = fake::calls(&fake);
    let world = World {
        resumed: true,
        ..World::new(&fake, &calls, &claimed)
    };
    let (report, done) = world.run(&kept(), spec(json!({}))).await;
    done.unwrap();
    assert!(is_there(&fake, MAPS, "kept") && !is_there(&fake, MAPS, "extra"));
    assert_says!(warnings(report), "are not listed");
}

#[tokio::test]
async fn a_cancellation_keeps_what_was_not_removed_yet() {
    let fake = fake::server();
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    put(&fake, MAPS, "extra", json!({}));
    put(&fake, DEPLOYMENTS, "extra", json!({}));
    let user = cancellation.clone();
    fake.fault(move |_, request| {
        if request.method == "DELETE" {
            user.cancel();
        }
        None
    });
    let (claimed, calls) = (Footprint::everything(), fake::calls_of(&fake, cancellation));
    let (report, done) = run(&fake, &calls, &kept(), spec(json!({})), &claimed, vec![]).await;
    done.unwrap();
    assert!(!is_there(&fake, DEPLOYMENTS, "extra") && is_there(&fake, MAPS, "extra"));
    assert_says!(
        report.into_files().results.errors.velero[0],
        "1 object removed, the others were kept"
    );
}

#[tokio::test]
async fn a_plan_names_what_would_be_removed_and_removes_nothing() {
    let fake = fake::server();
    put(&fake, MAPS, "extra", json!({}));
    put(&fake, CLAIMS_OF_A, "cache", json!({}));
    let before = fake.under("/");
    let (claimed, calls) = (Footprint::everything(), fake::dry_calls(&fake));
    let (report, done) = run(&fake, &calls, &kept(), spec(json!({})), &claimed, vec![]).await;
    done.unwrap();
    assert_eq!(fake.under("/"), before);
    assert_eq!(deletions(&fake), [""; 0], "not even as a dry run");
    assert_eq!(report.counts(), (1, 0), "the claim is kept");
    assert_eq!(
        listed(report)["v1/ConfigMap"],
        json!(["a/extra(removed)", "a/kept(created)"])
    );
}

#[tokio::test]
async fn an_item_that_a_modifier_has_renamed_is_not_removed() {
    let fake = fake::server();
    let rules = json!([{"conditions": {"groupResource": "configmaps"},
        "mergePatches": [{"patchData": json!({"metadata": {"name": "other"}}).to_string()}]}]);
    let text = json!({"version": "v1", "resourceModifierRules": rules}).to_string();
    let data = [("k".to_owned(), text)].into();
    for _ in 0..2 {
        let (claimed, calls) = (Footprint::everything(), fake::calls(&fake));
        let world = World {
            modifiers: Some(modifiers::read(modifiers::FIELD, &data).unwrap()),
            ..World::new(&fake, &calls, &claimed)
        };
        let (report, done) = world.run(&kept(), spec(json!({}))).await;
        done.unwrap();
        assert_eq!(report.counts(), (0, 0));
        // As if an earlier restore had created it.
        fake.edit(&format!("{MAPS}/other"), |map| {
            map["metadata"]["creationTimestamp"] = json!("2025-06-01T00:00:00Z");
        });
    }
    assert!(is_there(&fake, MAPS, "other"));
}

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backup_core::{api::GoDuration, labels::BLOCKED_ANNOTATION, resources::RestoreOrder};
use backup_lock::ObjectKey;
use backup_plugins::Host;
use backup_runtime::leader::Leadership;
use backup_store::Limits;
use backup_testkit::Fault;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;
use crate::{
    hooks::tests::fake::FakePods,
    job::{
        cancellation::{Cancellation, StopReason},
        reconcile::Next,
        undecodable,
    },
    restore::{
        ItemMemory, runner,
        tests::fake::{self, FakeApi, backup},
    },
    testing::{self, velero},
    volumes::snapshot_locations::SnapshotLocations,
};

const RESTORE: &str = "/apis/velero.io/v1/namespaces/velero/restores/r";
const BACKUP: &str = "/apis/velero.io/v1/namespaces/velero/backups/b";
const LOCATION: &str = "/apis/velero.io/v1/namespaces/velero/backupstoragelocations/default";
const ITEM: &str = "/api/v1/namespaces/a/configmaps/c";

/// A server with a stored backup of one ConfigMap and a Restore from it, and the folder of their
/// location.
async fn prepared(phase: Option<&str>) -> (FakeApi, tempfile::TempDir, JobContext) {
    let fake = fake::server();
    let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}});
    let (folder, _, location) = backup::stored(&[("configmaps", Some("a"), item)]).await;
    let mut location = serde_json::to_value(location).unwrap();
    location["metadata"]["namespace"] = json!("velero");
    fake.put(LOCATION, location);
    let stored = json!({"storageLocation": "default"});
    fake.put(
        BACKUP,
        velero("Backup", "b", stored, json!({"phase": "Completed"})),
    );
    let status = phase.map_or(json!({}), |phase| json!({"phase": phase}));
    fake.put(
        RESTORE,
        velero("Restore", "r", json!({"backupName": "b"}), status),
    );
    let ctx = JobContext::fake(fake.client());
    (fake, folder, ctx)
}

fn status(fake: &FakeApi) -> Value {
    fake.get(RESTORE).unwrap()["status"].clone()
}

impl Restores {
    fn fake(ctx: &JobContext) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::new(FakePods::default()),
            plugins: Host::none(),
            snapshot_locations: SnapshotLocations {
                cluster: ctx.cluster.clone(),
                plugins: Host::none(),
            },
            installation: "cluster/velero".to_owned(),
            default_item_operation_timeout: GoDuration::from_secs(4 * 3600),
            guarded: Vec::new(),
            slots: 2,
            order: RestoreOrder::default(),
            api_group_versions: true,
            limits: Limits::DEFAULT,
            memory: ItemMemory::new(256 << 20),
            default_modifier: None,
            has_mover: false,
        })
    }
}

fn worker(ctx: &JobContext) -> Worker<Restores> {
    worker_with(ctx, &Arc::new(Semaphore::new(2)))
}

fn worker_with(ctx: &JobContext, permits: &Arc<Semaphore>) -> Worker<Restores> {
    let cancellation = Cancellation::new(Leadership::always(), ctx.stop.clone());
    Worker::new(
        ctx.clone(),
        Restores::fake(ctx),
        "r",
        "uid-r",
        cancellation,
        Arc::clone(permits),
    )
}

/// The result of a worker's step.
#[derive(Debug, PartialEq)]
enum Step {
    Done,
    /// To be retried; the reason.
    Again(String),
}

/// Continues until the Restore has ended, or is blocked.
async fn step(worker: &mut Worker<Restores>) -> Step {
    let mut known = None;
    loop {
        match Box::pin(worker.reconcile(known.take())).await {
            Ok(Next::Done) => return Step::Done,
            Ok(Next::Again(restore)) => known = restore,
            Err(WorkerError::Blocked { reason, retryable }) => {
                worker.report_blocked(&reason, retryable).await;
                return Step::Again(reason);
            }
            Err(error) => return Step::Again(format!("{error:?}")),
        }
    }
}

async fn run(ctx: &JobContext) {
    step(&mut worker(ctx)).await;
}

/// As the dispatcher does with an object that cannot be decoded.
async fn refuse(ctx: &JobContext) {
    undecodable::refuse::<Restores>(ctx, &testing::undecodable("Restore", "r"))
        .await
        .unwrap();
}

/// Whether a request creates a restored object, not the marker of the ledger.
fn is_item(line: &str) -> bool {
    line.starts_with("POST /api/v1/namespaces") && !line.contains("/velero/")
}

async fn claims(ctx: &JobContext) -> usize {
    ctx.ledger
        .read(backup_lock::VELERO_SCOPE)
        .await
        .unwrap()
        .map_or(0, |stored| stored.ledger.len())
}

#[tokio::test]
async fn a_restore_runs_from_new_to_completed_and_gives_its_claim_back() {
    let (fake, folder, ctx) = prepared(None).await;
    let mut worker = worker(&ctx);
    assert_eq!(step(&mut worker).await, Step::Done);
    let restore = fake.get(RESTORE).unwrap();
    assert_eq!(restore["status"]["phase"], "Completed", "{restore}");
    assert_eq!(
        restore["status"]["progress"],
        json!({"totalItems": 2, "itemsRestored": 2})
    );
    assert_eq!(
        restore["metadata"]["finalizers"],
        json!([Restores::FINALIZERS[1]]),
        "its files are there"
    );
    assert!(restore["status"]["completionTimestamp"].is_string());
    assert_eq!(fake.get(ITEM).unwrap()["data"]["k"], "v");
    assert!(
        folder
            .path()
            .join("restores/r/restore-r-results.gz")
            .exists()
    );
    assert_eq!(claims(&ctx).await, 0);
    let log = fake.log();
    let at = |wanted: &str| {
        log.iter()
            .position(|line| line.starts_with(wanted))
            .unwrap()
    };
    assert!(
        at("PUT /apis/coordination.k8s.io") < at(&format!("PATCH {RESTORE}")),
        "claimed before the first write"
    );
    assert!(
        at(&format!("PATCH {RESTORE}")) < log.iter().position(|line| is_item(line)).unwrap(),
        "published before the first item"
    );
    assert_eq!(step(&mut worker).await, Step::Done);
    assert_eq!(
        fake.get(RESTORE).unwrap(),
        restore,
        "a terminal restore is left alone"
    );
}

#[tokio::test]
async fn a_backup_without_items_cannot_be_restored() {
    let (fake, folder, ctx) = prepared(None).await;
    let (empty, ..) = backup::stored(&[]).await;
    for name in ["b.tar.gz", "b-resource-list.json.gz"] {
        let path = |folder: &tempfile::TempDir| folder.path().join("backups/b").join(name);
        std::fs::copy(path(&empty), path(&folder)).unwrap();
    }
    run(&ctx).await;
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["failureReason"]),
        (
            &json!("Failed"),
            &json!("nothing was restored: backup \"b\" holds no items")
        ),
        "{status}"
    );
}

#[tokio::test]
async fn a_restore_found_running_is_resumed_to_the_same_end() {
    for phase in ["InProgress", "Finalizing"] {
        let (fake, _folder, ctx) = prepared(Some(phase)).await;
        run(&ctx).await;
        assert_eq!(status(&fake)["phase"], "Completed", "{phase}");
    }
}

#[tokio::test]
async fn a_restore_whose_location_may_not_be_read_for_a_moment_goes_on_later() {
    for phase in [None, Some("InProgress"), Some("Finalizing")] {
        // For each read of the location.
        for allowed in 0.. {
            let (fake, _folder, ctx) = prepared(phase).await;
            let reads = Arc::new(AtomicUsize::new(0));
            let counter = Arc::clone(&reads);
            fake.fault(move |_, request| {
                let reading = request.path == LOCATION && request.method == "GET";
                (reading && counter.fetch_add(1, Ordering::Relaxed) == allowed).then(|| {
                    Fault::refuse(
                        403,
                        "Forbidden",
                        "it is forbidden: User \"u\" cannot get it",
                    )
                })
            });
            let first = step(&mut worker(&ctx)).await;
            if reads.load(Ordering::Relaxed) <= allowed {
                assert_eq!(first, Step::Done);
                assert!(
                    allowed > 1,
                    "{phase:?}: the location is read more than once"
                );
                break;
            }
            assert!(
                matches!(&first, Step::Again(why) if why.contains("forbidden")),
                "{phase:?}: {first:?}"
            );
            assert_eq!(step(&mut worker(&ctx)).await, Step::Done);
            assert_eq!(
                status(&fake)["phase"],
                "Completed",
                "{phase:?}, after {allowed} reads"
            );
        }
    }
}

#[tokio::test]
async fn a_restore_that_had_failed_items_before_a_restart_never_ends_as_completed() {
    let (fake, _folder, ctx) = prepared(Some("FinalizingPartiallyFailed")).await;
    run(&ctx).await;
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["errors"]),
        (&json!("PartiallyFailed"), &json!(1))
    );
}

/// The journal records what an earlier run has done; its backup may be large, or its store slow.
#[tokio::test]
async fn a_cancelled_restore_that_was_taken_up_again_does_not_wait_for_its_backup() {
    let (fake, folder, ctx) = prepared(Some("InProgress")).await;
    let tarball = folder.path().join("backups/b/b.tar.gz");
    std::fs::remove_file(&tarball).unwrap();
    // Opening the pipe for reading blocks until it is opened for writing.
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&tarball)
            .status()
            .unwrap()
            .success()
    );
    let mut worker = worker(&ctx);
    let cancel = worker.cancellation.clone();
    let cancelled = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let annotations = json!({ backup_core::labels::CANCEL_ANNOTATION: "true" });
        fake.edit(RESTORE, |restore| {
            restore["metadata"]["annotations"] = annotations;
        });
        cancel.cancel();
    };
    let (done, ()) = futures::join!(
        tokio::time::timeout(Duration::from_secs(20), step(&mut worker)),
        cancelled
    );
    // For reading, too: otherwise this would block if no reader has opened it.
    drop(
        std::fs::File::options()
            .read(true)
            .write(true)
            .open(&tarball),
    );
    assert_eq!(done.unwrap(), Step::Done);
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["errors"]),
        (&json!("PartiallyFailed"), &json!(1)),
        "{status}"
    );
}

#[tokio::test]
async fn a_restore_that_names_no_time_for_operations_gets_the_default_and_says_so() {
    // Velero's CLI sends the zero.
    for (timeout, expected) in [
        (Value::Null, "4h0m0s"),
        (json!("0s"), "4h0m0s"),
        (json!("5m"), "5m0s"),
    ] {
        let (fake, _folder, ctx) = prepared(None).await;
        let spec = json!({"backupName": "b", "itemOperationTimeout": timeout});
        fake.put(RESTORE, velero("Restore", "r", spec, json!({})));
        run(&ctx).await;
        assert_eq!(
            fake.get(RESTORE).unwrap()["spec"]["itemOperationTimeout"],
            expected
        );
    }
}

#[tokio::test]
async fn a_restore_that_another_holds_out_fails_without_having_started() {
    let (fake, _folder, ctx) = prepared(None).await;
    let other = velero(
        "Backup",
        "nightly",
        json!({}),
        json!({"phase": "InProgress"}),
    );
    fake.put(
        "/apis/velero.io/v1/namespaces/velero/backups/nightly",
        other,
    );
    step(&mut worker(&ctx)).await;
    let status = status(&fake);
    assert_eq!(status["phase"], "Failed");
    let reason = status["failureReason"].as_str().unwrap();
    assert!(
        reason.starts_with("not started: ") && reason.contains("nightly"),
        "{reason}"
    );
    assert!(fake.get(ITEM).is_none() && status["startTimestamp"].is_null());
}

#[tokio::test]
async fn a_backup_that_is_being_deleted_once_the_claim_stands_is_not_restored() {
    let (fake, _folder, ctx) = prepared(None).await;
    // The deletion is published when the claim is written.
    fake.before("PUT", backup_testkit::LEDGER_PATH, |api| {
        api.edit(BACKUP, |backup| {
            backup["status"]["phase"] = json!("Deleting");
        });
    });
    step(&mut worker(&ctx)).await;
    let status = status(&fake);
    assert_eq!(status["phase"], "FailedValidation", "{status}");
    assert_says!(status["validationErrors"], "is being deleted");
    assert_eq!((fake.get(ITEM), claims(&ctx).await), (None, 0));
}

#[tokio::test]
async fn a_spec_that_is_edited_before_the_start_is_claimed_and_checked_anew() {
    let (fake, _folder, ctx) = prepared(None).await;
    fake.before("PATCH", RESTORE, |api| {
        api.edit(RESTORE, |restore| {
            restore["spec"]["namespaceMapping"] = json!({"a": "z"});
        });
    });
    let mut worker = worker(&ctx);
    assert!(matches!(step(&mut worker).await, Step::Again(_)));
    assert!(status(&fake)["phase"].is_null(), "not started");
    step(&mut worker).await;
    assert_eq!(status(&fake)["phase"], "Completed");
    assert!(fake.get("/api/v1/namespaces/z/configmaps/c").is_some() && fake.get(ITEM).is_none());
}

#[tokio::test]
async fn an_edit_of_a_running_restore_never_leads_it_out_of_its_claim() {
    let (fake, _folder, ctx) = prepared(None).await;
    let only = |namespace: &str| json!({"backupName": "b", "includedNamespaces": [namespace]});
    fake.put(RESTORE, velero("Restore", "r", only("other"), json!({})));
    backup_lock::activate(&ctx.ledger, &ObjectKey::restore("velero", "r"), "uid-r")
        .await
        .unwrap();
    for (spec, says) in [
        (only("a"), "not in what the restore has claimed"),
        (
            json!({"backupName": "b", "includeClusterResources": true}),
            "includeClusterResources",
        ),
    ] {
        fake.put(
            RESTORE,
            velero("Restore", "r", spec, json!({"phase": "InProgress"})),
        );
        step(&mut worker(&ctx)).await;
        let restore = fake.get(RESTORE).unwrap();
        assert_eq!(fake.get(ITEM), None);
        assert_ne!(restore["status"]["phase"], "Completed", "{says}: {restore}");
        let key = ObjectKey::restore("velero", "r");
        fake.put(RESTORE, velero("Restore", "r", only("other"), json!({})));
        backup_lock::activate(&ctx.ledger, &key, "uid-r")
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_restore_that_can_not_end_here_keeps_its_place_and_is_looked_at_again() {
    let (fake, _folder, ctx) = prepared(None).await;
    let other = velero(
        "Backup",
        "nightly",
        json!({}),
        json!({"phase": "InProgress"}),
    );
    fake.put(
        "/apis/velero.io/v1/namespaces/velero/backups/nightly",
        other,
    );
    ctx.ledger.open(backup_lock::VELERO_SCOPE).await.unwrap();
    let before = claims(&ctx).await;
    // It can no longer end as Failed, and the ledger does not let it continue.
    fake.put(
        RESTORE,
        velero(
            "Restore",
            "r",
            json!({"backupName": "b"}),
            json!({"phase": "Finalizing"}),
        ),
    );
    fake.delete("/apis/velero.io/v1/namespaces/velero/backups/b");
    let done = step(&mut worker(&ctx)).await;
    assert!(matches!(done, Step::Again(_)), "{done:?}");
    assert_eq!(status(&fake)["phase"], "Finalizing");
    assert_eq!(claims(&ctx).await, before);
}

#[tokio::test(start_paused = true)]
async fn work_stops_when_its_restore_is_gone_or_was_ended_by_somebody_else() {
    let (fake, _folder, ctx) = prepared(Some("InProgress")).await;
    let restore: Restore = serde_json::from_value(fake.get(RESTORE).unwrap()).unwrap();
    let report = crate::restore::report::Report::new().unwrap();
    let within = Duration::from_secs(10);
    let waits = crate::job::waits::Waits::default();
    let watched = || {
        tokio::time::timeout(
            within,
            runner::show_progress(&ctx.cluster, &restore, &report, &waits),
        )
    };
    assert!(watched().await.is_err(), "it runs");
    let mut ended = velero(
        "Restore",
        "r",
        json!({"backupName": "b"}),
        json!({"phase": "Failed"}),
    );
    ended["metadata"]["resourceVersion"] = json!("99");
    fake.put(RESTORE, ended);
    assert_eq!(watched().await, Ok(StopReason::Deleted));
    fake.delete(RESTORE);
    assert_eq!(watched().await, Ok(StopReason::Deleted));
}

#[tokio::test(start_paused = true)]
async fn what_is_waited_for_is_shown_on_the_restore() {
    let (fake, _folder, ctx) = prepared(Some("InProgress")).await;
    let restore: Restore = serde_json::from_value(fake.get(RESTORE).unwrap()).unwrap();
    let (report, waits) = (
        crate::restore::report::Report::new().unwrap(),
        crate::job::waits::Waits::default(),
    );
    let blocked =
        || fake.get(RESTORE).unwrap()["metadata"]["annotations"][BLOCKED_ANNOTATION].clone();
    let changes = async {
        let wait = waits.begin("namespace \"a\" to be gone");
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(blocked().is_null());
        tokio::time::sleep(Duration::from_secs(3)).await;
        let shown = blocked();
        assert!(
            shown
                .as_str()
                .unwrap()
                .ends_with("Z for namespace \"a\" to be gone"),
            "{shown}"
        );
        drop(wait);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(blocked().is_null());
    };
    tokio::select! {
        () = changes => {}
        reason = runner::show_progress(&ctx.cluster, &restore, &report, &waits) => panic!("{reason}"),
    }
}

#[tokio::test]
async fn a_restore_that_another_engine_began_gets_the_finalizer_before_it_is_resumed() {
    let (fake, _folder, ctx) = prepared(Some("InProgress")).await;
    fake.fault(|api, request| {
        if is_item(&request.line()) {
            let restore = api.get(RESTORE).unwrap();
            assert_eq!(
                restore["metadata"]["finalizers"],
                json!(Restores::FINALIZERS)
            );
        }
        None
    });
    run(&ctx).await;
    assert!(fake.get(ITEM).is_some());
    let finalizers = fake.get(RESTORE).unwrap()["metadata"]["finalizers"].clone();
    assert_eq!(finalizers, json!([Restores::FINALIZERS[1]]));
}

#[tokio::test]
async fn a_running_restore_that_somebody_made_unreadable_keeps_the_finalizers_of_others() {
    let (fake, _folder, ctx) = prepared(None).await;
    let spec = json!({"backupName": "b", "itemOperationTimeout": "tomorrow"});
    for (phase, ends) in [("InProgress", "Failed"), ("OfTomorrow", "OfTomorrow")] {
        let mut restore = velero("Restore", "r", spec.clone(), json!({"phase": phase}));
        restore["metadata"]["finalizers"] = json!([Restores::FINALIZERS[0], "other/one"]);
        fake.put(RESTORE, restore);
        ctx.ledger.open(backup_lock::VELERO_SCOPE).await.unwrap();
        let before = claims(&ctx).await;
        refuse(&ctx).await;
        let restore = fake.get(RESTORE).unwrap();
        assert_eq!(restore["status"]["phase"], ends);
        assert_says!(restore["metadata"]["finalizers"], "other/one");
        assert_eq!(
            claims(&ctx).await,
            if ends == phase { before } else { 0 },
            "{phase}"
        );
        fake.delete("/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero");
        fake.delete("/api/v1/namespaces/velero/configmaps/backup-lock-velero");
    }
}

#[tokio::test]
async fn a_backup_that_is_cut_short_fails_the_restore_before_anything_is_created() {
    let (fake, folder, ctx) = prepared(None).await;
    let tarball = folder.path().join("backups/b/b.tar.gz");
    let bytes = std::fs::read(&tarball).unwrap();
    std::fs::write(&tarball, &bytes[..bytes.len() / 2]).unwrap();
    run(&ctx).await;
    let status = status(&fake);
    assert_eq!(status["phase"], "Failed");
    assert_says!(
        status["failureReason"].as_str().unwrap(),
        "nothing was restored"
    );
    assert!(!fake.log().iter().any(|line| is_item(line)));
}

#[tokio::test]
async fn a_store_that_refuses_the_results_keeps_the_restore_finalizing_with_the_reason() {
    let (fake, folder, ctx) = prepared(None).await;
    // A folder blocks the path of the log.
    let log = folder.path().join("restores/r/restore-r-logs.gz");
    std::fs::create_dir_all(&log).unwrap();
    let mut worker = worker(&ctx);
    assert!(matches!(step(&mut worker).await, Step::Again(_)));
    let restore = fake.get(RESTORE).unwrap();
    assert_eq!(restore["status"]["phase"], "Finalizing");
    assert!(
        restore["metadata"]["annotations"][BLOCKED_ANNOTATION].is_string(),
        "{restore}"
    );
    assert_eq!(claims(&ctx).await, 1, "it still works");
    std::fs::remove_dir(&log).unwrap();
    let posts = || {
        fake.log()
            .iter()
            .filter(|line| line.contains("configmaps"))
            .count()
    };
    let before = posts();
    assert_eq!(step(&mut worker).await, Step::Done);
    let restore = fake.get(RESTORE).unwrap();
    assert_eq!(restore["status"]["phase"], "Completed");
    assert!(restore["metadata"]["annotations"][BLOCKED_ANNOTATION].is_null());
    assert_eq!(
        (posts(), claims(&ctx).await),
        (before, 0),
        "the items are not done again"
    );
}

#[tokio::test]
async fn a_failure_that_was_recorded_before_a_crash_is_published_by_the_next_process() {
    let (fake, _folder, ctx) = prepared(Some("InProgress")).await;
    let restore: Restore = serde_json::from_value(fake.get(RESTORE).unwrap()).unwrap();
    let (_, location) = ctx.locations.open("default").await.unwrap();
    let mut crashed = worker(&ctx);
    assert!(
        Restores::fail(&mut crashed, &restore, "no room", Some(&location))
            .await
            .is_ok()
    );
    drop(crashed);
    assert_eq!(step(&mut worker(&ctx)).await, Step::Done);
    let restore = fake.get(RESTORE).unwrap();
    assert_eq!(
        (
            &restore["status"]["phase"],
            &restore["status"]["failureReason"]
        ),
        (&json!("Failed"), &json!("no room"))
    );
    assert_eq!(claims(&ctx).await, 0);
}

mod copies;
mod deleted;
mod older_versions;
mod operating;
mod refused;
mod released;
mod stored_files;

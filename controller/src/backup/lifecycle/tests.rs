use std::{sync::Arc, time::Duration};

use backup_core::labels::{BLOCKED_ANNOTATION, CANCEL_ANNOTATION};
use backup_lock::VELERO_SCOPE;
use backup_runtime::{leader::Leadership, watch::WatchEvent};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::Instant};

use super::*;
use crate::{
    backup::tests::fake::{BACKUP, Cluster, LEDGER, LOCATION, MARKER, RESTORE},
    job::{cancellation::Cancellation, dispatcher::Dispatcher, kind::JobKind as _},
    testing::{self, claimant, listed, undecodable, velero},
};

mod deleted;
mod operating;
mod resting;

const ITEMS: &str = "/api/v1/configmaps";

fn worker(ctx: &JobContext) -> (Worker<Backups>, Cancellation) {
    let cancellation = Cancellation::new(Leadership::always(), ctx.stop.clone());
    let mut ctx = ctx.clone();
    ctx.polling.clock = backup_runtime::clock::Clock::Tokio(Instant::now());
    let (kind, permits) = (Arc::new(Backups::fake(&ctx)), Arc::new(Semaphore::new(1)));
    (
        Worker::new(ctx, kind, "b", "uid-b", cancellation.clone(), permits),
        cancellation,
    )
}

fn ready(cluster: &Cluster) {
    cluster.change_backup(&json!({"status": {"phase": "ReadyToStart"}}));
}

async fn run(cluster: &Cluster) {
    end(cluster, worker(&cluster.context()).0).await;
}

/// Runs a worker to its end, for at most ten minutes.
async fn end(cluster: &Cluster, worker: Worker<Backups>) {
    let ended = tokio::time::timeout(Duration::from_mins(10), Box::pin(worker.run())).await;
    assert!(ended.is_ok(), "still at work on {}", cluster.get(BACKUP));
}

/// A dispatcher that has seen the Backup.
fn dispatcher(cluster: &Cluster, ctx: &JobContext) -> Dispatcher<Backups> {
    let mut dispatcher = Dispatcher::new(ctx.clone(), Backups::fake(ctx));
    dispatcher.touched(WatchEvent::Applied(Ok(serde_json::from_value(
        cluster.get(BACKUP),
    )
    .unwrap())));
    dispatcher.touched(listed(&["b"]));
    dispatcher
}

/// Number of times that the items were listed.
fn collections(cluster: &Cluster) -> usize {
    cluster.asked(&format!("GET {ITEMS}"))
}

async fn claims(ctx: &JobContext) -> usize {
    ctx.ledger
        .read(VELERO_SCOPE)
        .await
        .unwrap()
        .map_or(0, |stored| stored.ledger.len())
}

/// A running Restore that holds the ledger alone.
async fn restore_holds(cluster: &Cluster) {
    let backup = cluster.get(BACKUP);
    cluster.remove(BACKUP);
    cluster.put(
        RESTORE,
        velero(
            "Restore",
            "r",
            json!({"backupName": "x"}),
            json!({"phase": "InProgress"}),
        ),
    );
    cluster.context().ledger.open(VELERO_SCOPE).await.unwrap();
    cluster.put(BACKUP, backup);
}

/// A terminal phase is published only after the metadata is in the store.
fn metadata_comes_first(cluster: &Cluster, method: &str, path: &str, body: &Value) -> Option<u16> {
    let phase = &body["status"]["phase"];
    if method == "PATCH" && path == BACKUP && (phase == "Completed" || phase == "PartiallyFailed") {
        assert_eq!(cluster.metadata()["status"]["phase"], *phase);
        assert_eq!(
            cluster.metadata()["status"]["completionTimestamp"],
            body["status"]["completionTimestamp"]
        );
        assert!(cluster.file("b.tar.gz").is_file() && cluster.file("b-results.gz").is_file());
    }
    if method == "GET" && path == ITEMS {
        let backup = cluster.get(BACKUP);
        assert!(
            cluster.get(LEDGER).to_string().contains("uid-b"),
            "claimed before it works"
        );
        assert_eq!(backup["metadata"]["finalizers"], json!(Backups::FINALIZERS));
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_backup_goes_from_new_to_completed_and_gives_its_claim_back() {
    let cluster = Cluster::with(metadata_comes_first);
    let ctx = cluster.context();
    let mut dispatcher = dispatcher(&cluster, &ctx);
    let mut phases = Vec::new();
    while phases.last().is_none_or(|last| last != "Completed") {
        dispatcher.dispatch();
        dispatcher.job_ended().await.unwrap();
        phases.push(cluster.phase());
    }
    assert_eq!(phases, ["Queued", "ReadyToStart", "Completed"]);
    let backup = cluster.get(BACKUP);
    assert_eq!(
        backup["status"]["progress"],
        json!({"totalItems": 3, "itemsBackedUp": 3})
    );
    assert_eq!(backup["status"], cluster.metadata()["status"]);
    assert_eq!(backup["metadata"]["finalizers"], json!([]));
    assert_eq!(claims(&ctx).await, 0);
    assert_says!(ctx.metrics.encode(), "velero_backup_success_total");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_refused_makes_the_backup_partially_failed_with_as_many_errors_as_are_listed()
 {
    let cluster = Cluster::with(|cluster, method, path, body| {
        metadata_comes_first(cluster, method, path, body);
        (path == ITEMS).then_some(403)
    });
    ready(&cluster);
    run(&cluster).await;
    let status = &cluster.get(BACKUP)["status"];
    assert_eq!(
        (&status["phase"], &status["errors"]),
        (&json!("PartiallyFailed"), &json!(1))
    );
    let results = results(&cluster);
    assert_eq!(
        (results.errors(), results.warnings()),
        (1, status["warnings"].as_i64().unwrap_or(0))
    );
}

fn results(cluster: &Cluster) -> backup_store::Results {
    let results = std::fs::read(cluster.file("b-results.gz")).unwrap();
    serde_json::from_reader(flate2::read::GzDecoder::new(results.as_slice())).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_was_cancelled_before_it_began_is_not_blamed_on_its_spec() {
    let cluster = Cluster::with(metadata_comes_first);
    ready(&cluster);
    let (worker, cancellation) = worker(&cluster.context());
    cancellation.cancel();
    end(&cluster, worker).await;
    assert_eq!(cluster.phase(), "PartiallyFailed");
    let results = results(&cluster);
    assert_eq!(
        (results.errors(), results.warnings()),
        (1, 0),
        "{results:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_is_cancelled_while_it_begins_never_begins() {
    let cluster = Cluster::with(|cluster, method, path, body| {
        let begins = method == "PATCH" && path == BACKUP && body["status"]["phase"] == "InProgress";
        if begins && cluster.get(BACKUP)["metadata"]["annotations"][CANCEL_ANNOTATION].is_null() {
            let cancelled = json!({"metadata": {"annotations": {CANCEL_ANNOTATION: "true"}}});
            cluster.change_backup(&cancelled);
        }
        None
    });
    ready(&cluster);
    run(&cluster).await;
    let status = &cluster.get(BACKUP)["status"];
    assert_eq!(
        (&status["phase"], &status["failureReason"]),
        (&json!("Failed"), &json!("never started: it was cancelled"))
    );
    assert!(status["startTimestamp"].is_null(), "{status}");
    assert_eq!(collections(&cluster), 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_in_the_last_steps_keeps_it_finalizing_with_the_reason_until_it_recovers()
 {
    for file in ["b-logs.gz", "b-results.gz", "velero-backup.json"] {
        let cluster = Cluster::with(metadata_comes_first);
        ready(&cluster);
        // A folder blocks the path of the file.
        std::fs::create_dir_all(cluster.file(file)).unwrap();
        let ctx = cluster.context();
        let running = tokio::spawn(worker(&ctx).0.run());
        cluster.blocked().await;
        assert_eq!(cluster.phase(), "Finalizing", "{file}");
        assert_eq!(
            claims(&ctx).await,
            0,
            "it needs nothing of the cluster any more"
        );
        assert!(cluster.get(BACKUP)["status"]["completionTimestamp"].is_null());
        std::fs::remove_dir(cluster.file(file)).unwrap();
        cluster
            .until(|cluster| cluster.phase() == "Completed")
            .await;
        running.await.unwrap();
        let backup = cluster.get(BACKUP);
        assert!(
            backup["metadata"]["annotations"][BLOCKED_ANNOTATION].is_null(),
            "{backup}"
        );
        assert_eq!(
            (collections(&cluster), claims(&ctx).await),
            (1, 0),
            "not collected again"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn contents_that_are_removed_before_the_metadata_are_written_again_as_they_were_decided() {
    let cluster = Cluster::with(metadata_comes_first);
    ready(&cluster);
    std::fs::create_dir_all(cluster.file("b-logs.gz")).unwrap();
    let running = tokio::spawn(worker(&cluster.context()).0.run());
    cluster.blocked().await;
    let decided = std::fs::read(cluster.file("b.tar.gz")).unwrap();
    std::fs::remove_file(cluster.file("b.tar.gz")).unwrap();
    std::fs::remove_dir(cluster.file("b-logs.gz")).unwrap();
    cluster
        .until(|cluster| cluster.phase() == "Completed")
        .await;
    running.await.unwrap();
    assert_eq!(std::fs::read(cluster.file("b.tar.gz")).unwrap(), decided);
    assert_eq!(collections(&cluster), 1);
}

#[tokio::test(start_paused = true)]
async fn what_another_process_has_decided_is_finished_and_not_collected_again() {
    for phase in ["InProgress", "Finalizing"] {
        let cluster = Cluster::with(metadata_comes_first);
        ready(&cluster);
        std::fs::create_dir_all(cluster.file("b-results.gz")).unwrap();
        let dying = tokio::spawn(worker(&cluster.context()).0.run());
        cluster.blocked().await;
        dying.abort();
        let _ = dying.await;
        std::fs::remove_dir(cluster.file("b-results.gz")).unwrap();
        let decided = std::fs::read(cluster.file("b.tar.gz")).unwrap();
        cluster.change_backup(&json!({"status": {"phase": phase}}));
        run(&cluster).await;
        assert_eq!(cluster.phase(), "Completed");
        assert_eq!(std::fs::read(cluster.file("b.tar.gz")).unwrap(), decided);
        assert_eq!(collections(&cluster), 1);
        assert_eq!(cluster.get(BACKUP)["status"], cluster.metadata()["status"]);
        let left: Vec<_> = std::fs::read_dir(cluster.file(".private"))
            .unwrap()
            .collect();
        assert_eq!(left.len(), 1, "only the claim is left: {left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_bytes_under_a_final_key_are_shown_and_left_alone_in_both_finalizing_phases() {
    for partly in [false, true] {
        let cluster = Cluster::with(move |cluster, method, path, body| {
            metadata_comes_first(cluster, method, path, body);
            let finalizing = body["status"]["phase"]
                .as_str()
                .is_some_and(|phase| phase.starts_with("Finalizing"));
            if method == "PATCH" && path == BACKUP && finalizing {
                std::fs::write(cluster.file("b-results.gz"), "foreign").unwrap();
            }
            (partly && path == ITEMS).then_some(403)
        });
        ready(&cluster);
        let running = tokio::spawn(worker(&cluster.context()).0.run());
        let reason = cluster.blocked().await;
        assert_says!(reason, "b-results.gz exists already");
        assert_eq!(
            cluster.phase(),
            if partly {
                "FinalizingPartiallyFailed"
            } else {
                "Finalizing"
            }
        );
        assert_eq!(
            std::fs::read(cluster.file("b-results.gz")).unwrap(),
            b"foreign"
        );
        assert!(cluster.metadata().is_null());
        std::fs::remove_file(cluster.file("b-results.gz")).unwrap();
        let end = if partly {
            "PartiallyFailed"
        } else {
            "Completed"
        };
        cluster.until(|cluster| cluster.phase() == end).await;
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn stored_metadata_is_adopted_after_a_crash_before_the_last_patch() {
    let cluster = Cluster::with(metadata_comes_first);
    ready(&cluster);
    run(&cluster).await;
    let ended = cluster.get(BACKUP)["status"].clone();
    for phase in ["InProgress", "Finalizing"] {
        cluster.change_backup(&json!({
            "status": {"phase": phase, "completionTimestamp": null, "progress": null},
            "metadata": {"finalizers": Backups::FINALIZERS},
        }));
        run(&cluster).await;
        assert_eq!(cluster.get(BACKUP)["status"], ended, "{phase}");
        assert_eq!(cluster.get(BACKUP)["metadata"]["finalizers"], json!([]));
    }
    assert_eq!(collections(&cluster), 1, "collected once");
}

#[tokio::test(start_paused = true)]
async fn a_backup_found_running_is_collected_from_the_start_to_the_same_end() {
    for (phase, end) in [
        ("InProgress", "Completed"),
        ("Finalizing", "Completed"),
        // The phase already said that something is missing.
        ("FinalizingPartiallyFailed", "PartiallyFailed"),
    ] {
        let cluster = Cluster::with(metadata_comes_first);
        let status = json!({"phase": phase, "startTimestamp": "2026-01-01T00:00:00Z"});
        cluster.change_backup(&json!({
            "spec": {"storageLocation": "default"}, "status": status, "metadata": {"finalizers": Backups::FINALIZERS},
        }));
        run(&cluster).await;
        assert_eq!(cluster.phase(), end);
        assert_eq!(
            cluster.metadata()["status"]["startTimestamp"],
            "2026-01-01T00:00:00Z"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_a_restore_holds_out_fails_without_having_started() {
    let cluster = Cluster::new();
    ready(&cluster);
    restore_holds(&cluster).await;
    run(&cluster).await;
    let status = &cluster.get(BACKUP)["status"];
    assert_eq!(status["phase"], "Failed");
    let reason = status["failureReason"].as_str().unwrap();
    assert!(
        reason.starts_with("never started: ") && reason.contains("Restore velero/r"),
        "{reason}"
    );
    assert!(status["startTimestamp"].is_null());
    assert!(!cluster.file("").exists() && collections(&cluster) == 0);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_can_not_be_read_does_not_fail_a_backup() {
    let cluster = Cluster::with(|cluster, method, path, _| {
        (method == "GET" && path == LEDGER && cluster.asked(&format!("GET {LEDGER}")) < 10)
            .then_some(403)
    });
    ready(&cluster);
    run(&cluster).await;
    assert_eq!(cluster.phase(), "Completed");
}

#[tokio::test(start_paused = true)]
async fn what_was_collected_without_a_claim_is_not_stored() {
    let taken = Arc::new(std::sync::OnceLock::<[Value; 2]>::new());
    let after = Arc::clone(&taken);
    let cluster = Cluster::with(move |cluster, _, path, _| {
        if path == ITEMS {
            // A user releases the claim by force, and a restore runs.
            let [ledger, restore] = after.get().unwrap().clone();
            cluster.put(LEDGER, ledger);
            cluster.put(RESTORE, restore);
        }
        None
    });
    ready(&cluster);
    restore_holds(&cluster).await;
    taken
        .set([LEDGER, RESTORE].map(|path| cluster.get(path)))
        .unwrap();
    cluster.remove(LEDGER);
    cluster.remove(MARKER);
    cluster.remove(RESTORE);
    run(&cluster).await;
    let status = &cluster.get(BACKUP)["status"];
    assert_eq!(status["phase"], "Failed");
    assert!(
        status["failureReason"]
            .as_str()
            .unwrap()
            .starts_with("could not go on: "),
        "{status}"
    );
    assert!(!cluster.file("b.tar.gz").exists() && cluster.metadata().is_null());
}

#[tokio::test(start_paused = true)]
async fn a_backup_that_can_not_be_decoded_any_more_frees_its_place_and_is_refused_after_an_outage()
{
    let cluster = Cluster::with(|cluster, _, path, _| {
        (path == BACKUP && cluster.asked(&format!("GET {BACKUP}")) < 3).then_some(503)
    });
    ready(&cluster);
    let ctx = cluster.context();
    let mut dispatcher = dispatcher(&cluster, &ctx);
    cluster.change_backup(&json!({"spec": {"ttl": "tomorrow"}}));
    dispatcher.dispatch();
    let bad = Box::new(undecodable("Backup", "b"));
    dispatcher.touched(WatchEvent::Applied(Err(bad)));
    while dispatcher.job_ended().await.is_some() {
        dispatcher.dispatch();
    }
    assert_eq!(cluster.phase(), "FailedValidation");
    assert!(dispatcher.wake().is_none(), "no job is left");
}

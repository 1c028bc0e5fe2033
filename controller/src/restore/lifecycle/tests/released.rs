//! Restores whose claim is released while they run.

use backup_lock::{Ledger, VELERO_SCOPE};
use backup_testkit::Fault;
use tokio::{sync::Notify, time::Instant};

use super::*;

const ITEMS: usize = 800;
/// Latency of each request; with sixteen at a time, all items take 2.5 s.
const LATENCY: Duration = Duration::from_millis(50);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/velero/leases/backup-lock-velero";
const MARKER: &str = "/api/v1/namespaces/velero/configmaps/backup-lock-velero";
const POST: &str = "POST /api/v1/namespaces/a/configmaps";

/// A Restore that takes a while.
async fn slow() -> (FakeApi, tempfile::TempDir, JobContext) {
    let (fake, _, ctx) = prepared(None).await;
    let item = |n: usize| {
        let name = format!("c{n:04}");
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        ("configmaps", Some("a"), map)
    };
    let items: Vec<_> = (0..ITEMS).map(item).collect();
    let (folder, _, location) = backup::stored(&items).await;
    let mut location = serde_json::to_value(location).unwrap();
    location["metadata"]["namespace"] = json!("velero");
    fake.put(LOCATION, location);
    fake.slow(LATENCY);
    (fake, folder, ctx)
}

async fn written(fake: &FakeApi, at_least: usize) {
    while fake.count(POST) < at_least {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn force_release(ctx: &JobContext) {
    let key = ObjectKey::restore("velero", "r");
    let change = |ledger: &mut Ledger| ledger.force_release(&key, "uid-r", "ann: it hangs");
    let until = Instant::now() + Duration::from_secs(5);
    assert!(
        ctx.ledger
            .change(VELERO_SCOPE, until, change)
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn a_restore_stops_within_two_seconds_of_a_release_and_says_so() {
    let (fake, folder, ctx) = slow().await;
    let mut worker = worker(&ctx);
    let (step, within) = tokio::join!(step(&mut worker), async {
        written(&fake, 100).await;
        force_release(&ctx).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        fake.count(POST)
    });
    assert_eq!((step, fake.count(POST)), (Step::Done, within), "it went on");
    assert!(within < ITEMS, "it was done before: this proves nothing");
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["errors"]),
        (&json!("Failed"), &json!(1)),
        "{status}"
    );
    let reason = status["failureReason"].as_str().unwrap();
    for needle in [
        "released by force by ann: it hangs",
        "nothing more was written",
        "801 items",
    ] {
        assert_says!(reason, needle);
    }
    // Its work is reported, as for a restore that has ended normally.
    let list = std::fs::metadata(
        folder
            .path()
            .join("restores/r/restore-r-resource-list.json.gz"),
    )
    .unwrap();
    assert!(list.len() > 100, "{list:?}");
    assert!(
        status["progress"]["itemsRestored"].as_u64().unwrap() >= 100,
        "{status}"
    );
    assert_eq!(claims(&ctx).await, 0);
}

#[tokio::test]
async fn nothing_is_written_while_the_claim_cannot_be_confirmed() {
    let (fake, _folder, mut ctx) = slow().await;
    // As in a cluster: longer than the claim is in doubt, even on a busy machine.
    ctx.resource_timeout = Duration::from_mins(1);
    let mut worker = worker(&ctx);
    let (step, (first, second)) = tokio::join!(step(&mut worker), async {
        written(&fake, 50).await;
        fake.fail(|request| request.method == "GET" && request.path == LEASE);
        tokio::time::sleep(Duration::from_millis(2200)).await;
        let first = fake.count(POST);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let second = fake.count(POST);
        fake.fault(|_, _| None);
        (first, second)
    });
    assert_eq!(first, second, "written without a confirmation");
    assert!(first < ITEMS, "it was done before: this proves nothing");
    assert_eq!(
        (step, status(&fake)["phase"].as_str()),
        (Step::Done, Some("Completed"))
    );
    assert_eq!(fake.count(POST), ITEMS, "each item once");
}

#[tokio::test]
async fn a_restore_goes_on_with_a_new_claim_if_only_the_ledger_was_lost() {
    let (fake, _folder, ctx) = slow().await;
    let mut worker = worker(&ctx);
    let (stopped, ()) = tokio::join!(step(&mut worker), async {
        written(&fake, 50).await;
        fake.delete(MARKER);
        fake.delete(LEASE);
    });
    assert_eq!(
        stopped,
        Step::Again(format!("{:?}", WorkerError::Stopped(StopReason::ClaimLost)))
    );
    assert!(fake.count(POST) < ITEMS);
    assert_eq!(
        (step(&mut worker).await, status(&fake)["phase"].as_str()),
        (Step::Done, Some("Completed"))
    );
    assert_eq!(claims(&ctx).await, 0);
}

#[tokio::test]
async fn a_restore_that_was_released_before_it_began_ends_without_having_started() {
    let (fake, _folder, ctx) = prepared(None).await;
    backup_lock::activate(&ctx.ledger, &ObjectKey::restore("velero", "r"), "uid-r")
        .await
        .unwrap();
    force_release(&ctx).await;
    run(&ctx).await;
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["startTimestamp"]),
        (&json!("Failed"), &Value::Null),
        "{status}"
    );
    assert_eq!(
        status["failureReason"],
        "not started: its claim was released by force by ann: it hangs"
    );
    assert_eq!((fake.get(ITEM), claims(&ctx).await), (None, 0));
}

/// For example while the API server hangs.
#[tokio::test]
async fn a_restore_that_is_released_while_its_beginning_is_written_does_not_begin() {
    let (fake, _folder, ctx) = prepared(None).await;
    let failed = Arc::new(Notify::new());
    let tell = Arc::clone(&failed);
    fake.fault(move |_, request| {
        let begins = request.method == "PATCH" && request.body["status"]["phase"] == "InProgress";
        begins.then(|| {
            tell.notify_one();
            Fault::unavailable()
        })
    });
    let mut worker = worker(&ctx);
    let (stopped, ()) = tokio::join!(step(&mut worker), async {
        failed.notified().await;
        force_release(&ctx).await;
        fake.fault(|_, _| None);
    });
    assert_eq!(stopped, Step::Again("Conflict".to_owned()));
    assert_eq!(step(&mut worker).await, Step::Done);
    let status = status(&fake);
    assert_eq!(
        (&status["phase"], &status["startTimestamp"]),
        (&json!("Failed"), &Value::Null),
        "{status}"
    );
}

/// Its worker was gone when the claim was released; the next worker finds that.
#[tokio::test]
async fn a_restore_that_runs_without_a_claim_is_ended_in_every_phase() {
    for (phase, end) in [
        ("InProgress", "Failed"),
        ("WaitingForPluginOperations", "PartiallyFailed"),
        ("Finalizing", "PartiallyFailed"),
    ] {
        let (fake, _folder, ctx) = prepared(Some(phase)).await;
        backup_lock::activate(&ctx.ledger, &ObjectKey::restore("velero", "r"), "uid-r")
            .await
            .unwrap();
        force_release(&ctx).await;
        assert_eq!(step(&mut worker(&ctx)).await, Step::Done, "{phase}");
        let status = status(&fake);
        assert_eq!(status["phase"], end, "{phase}: {status}");
        assert!(
            status["failureReason"]
                .as_str()
                .unwrap()
                .contains("by ann: it hangs"),
            "{phase}: {status}"
        );
        assert_eq!((fake.get(ITEM), claims(&ctx).await), (None, 0), "{phase}");
    }
}

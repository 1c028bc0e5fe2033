//! Others write the same ledger all the time: a batch is retried as long as its clients wait, and a
//! dry run reports the conflicts of a creation.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_ledger_that_others_change_again_and_again_is_written_within_the_time() {
    let (api, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "first", "0", backup_spec()).await
    ));
    let left = AtomicUsize::new(40);
    api.fault(move |_, request| {
        let writes = request.is("PUT", LEDGER_PATH);
        let loses = writes
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok();
        loses.then(|| Fault::refuse(409, "Conflict", "the object has been modified"))
    });
    let answer = replica.create("Backup", "b", "1", backup_spec()).await;
    assert!(allowed(&answer), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_can_never_be_written_is_told_with_the_reason_in_time() {
    let (api, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "first", "0", backup_spec()).await
    ));
    api.fault(|_, request| {
        request
            .is("PUT", LEDGER_PATH)
            .then(|| Fault::refuse(409, "Conflict", "the object has been modified"))
    });
    // The pauses between the attempts are random: the last one may end at any time before the
    // deadline.
    for round in 0..12 {
        let name = format!("b{round}");
        let start = Instant::now();
        let answer = replica.create("Backup", &name, &name, backup_spec()).await;
        assert_eq!(answer["status"]["code"], 503, "{answer}");
        assert!(
            message(&answer).contains("changed by another writer"),
            "{round}: {answer}"
        );
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_meets_a_lost_ledger_as_a_creation_does() {
    let (api, replica) = one_replica();
    assert!(allowed(
        &replica.create("Backup", "first", "0", backup_spec()).await
    ));
    api.delete(LEDGER_PATH);
    for dry_run in [true, false] {
        let mut request = creation("Backup", "b", "1", backup_spec());
        request["dryRun"] = json!(dry_run);
        let answer = replica.review(request).await;
        assert_eq!(answer["status"]["code"], 503, "{dry_run} {answer}");
    }
}

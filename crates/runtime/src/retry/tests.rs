use std::sync::{Arc, Mutex};

use backup_core::api::{Backup, BackupPhase};
use backup_testkit::{FakeApi, Fault, velero_path};

use super::*;
use crate::{clock::Clock, leader::LEASE_DURATION};

const TEN_MINUTES: Duration = Duration::from_mins(10);

fn path() -> String {
    velero_path("Backup", "nightly")
}

/// An API server with a backup that is finalizing, and that backup as read there.
fn server() -> (FakeApi, Backup) {
    let api = FakeApi::new();
    api.put_velero("Backup", "nightly", "u1", "Finalizing", &json!({}));
    let object = read(&api);
    (api, object)
}

fn read(api: &FakeApi) -> Backup {
    serde_json::from_value(api.get(&path()).unwrap()).unwrap()
}

/// Refuses patches, by the number of earlier ones.
fn refuse(api: &FakeApi, code: impl Fn(usize) -> Option<u16> + Send + Sync + 'static) {
    api.fault(move |_, request| {
        let code = code(request.earlier).filter(|_| request.is_write())?;
        Some(Fault::refuse(code, "", ""))
    });
}

fn tries(api: &FakeApi) -> usize {
    api.count(&format!("PATCH {}", path()))
}

fn complete(current: &Backup) -> Option<Value> {
    (current.phase() == BackupPhase::Finalizing)
        .then(|| json!({"status": {"phase": "Completed", "errors": 0}}))
}

async fn run(
    api: &FakeApi,
    object: &Backup,
    budget: Duration,
) -> Result<PatchOutcome<Backup>, WriteError> {
    let backups = Api::default_namespaced(api.client());
    status_patch_in(&backups, &Leadership::always(), budget, object, complete).await
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_ten_minutes_is_ten_minutes_of_tries_in_small_steps() {
    let (api, object) = server();
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    api.fail(move |_| {
        noted.lock().unwrap().push(Instant::now());
        true
    });
    let started = Instant::now();
    let error = run(&api, &object, TEN_MINUTES).await.unwrap_err();
    assert!(matches!(error, WriteError::Exhausted { .. }), "{error}");
    assert!(
        started.elapsed() >= TEN_MINUTES
            && started.elapsed() < TEN_MINUTES + Duration::from_secs(1)
    );
    let times = times.lock().unwrap();
    // Full delays give 125 attempts, halved ones twice that.
    assert!((120..=260).contains(&times.len()), "{} tries", times.len());
    let longest = times
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .max()
        .unwrap();
    assert!(longest <= Duration::from_millis(5_001), "{longest:?}");
    assert!(
        started + TEN_MINUTES - *times.last().unwrap() < Duration::from_secs(1),
        "the last try is at the end"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_over_within_seconds_of_recovery() {
    let (api, object) = server();
    let began = Instant::now();
    let recovery = Duration::from_secs(433);
    api.fail(move |_| began.elapsed() < recovery);
    assert!(matches!(
        run(&api, &object, TEN_MINUTES).await,
        Ok(PatchOutcome::Written(_))
    ));
    assert!(began.elapsed() < recovery + Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn no_budget_is_one_try() {
    let (api, object) = server();
    api.fail(|_| true);
    assert!(run(&api, &object, Duration::ZERO).await.is_err());
    assert_eq!(tries(&api), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_anew_on_the_object_as_it_is() {
    for (phase, expected) in [("Finalizing", "Completed"), ("Failed", "Failed")] {
        let (api, outdated) = server();
        api.edit(&path(), |object| object["status"]["phase"] = json!(phase));
        let started = Instant::now();
        let outcome = run(&api, &outdated, TEN_MINUTES).await.unwrap();
        assert_eq!(
            started.elapsed(),
            Duration::ZERO,
            "the first conflict says only that it was read long ago"
        );
        assert_eq!(read(&api).phase(), BackupPhase::from(expected));
        match outcome {
            PatchOutcome::Written(written) => {
                assert_eq!((written.phase(), tries(&api)), (BackupPhase::Completed, 2));
            }
            other => assert_eq!((other, phase), (PatchOutcome::Stale, "Failed")),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_counts_as_written_once() {
    let (api, object) = server();
    api.fault(|_, request| (request.is_write() && request.earlier == 0).then(Fault::lose_answer));
    let Ok(PatchOutcome::Written(written)) = run(&api, &object, TEN_MINUTES).await else {
        panic!("not written")
    };
    assert_eq!(written.phase(), BackupPhase::Completed);
    assert_eq!(tries(&api), 1);
}

/// The object is read again before the patch, and that takes most of the lease's remaining time.
#[tokio::test(start_paused = true)]
async fn a_patch_after_a_slow_read_ends_with_the_lease() {
    let (api, outdated) = server();
    api.edit(&path(), |object| {
        object["metadata"]["labels"] = json!({"a": "b"});
    });
    api.fault(|_, request| match (request.is_write(), request.earlier) {
        (true, 0) => None,
        (true, _) => Some(Fault::Hang),
        (false, _) => Some(Fault::Late(Duration::from_secs(9))),
    });
    let clock = Clock::Tokio(Instant::now());
    let leadership = Leadership::elected(clock);
    leadership.renewed(clock.now());
    let (backups, started) = (Api::default_namespaced(api.client()), Instant::now());
    let error = status_patch_in(&backups, &leadership, TEN_MINUTES, &outdated, complete)
        .await
        .unwrap_err();
    assert!(matches!(error, WriteError::NotLeader(_)), "{error}");
    assert_eq!(tries(&api), 2);
    // The only time beyond the lease is the pause before it is checked again.
    let pause = Duration::from_secs(1);
    assert!(
        started.elapsed() <= LEASE_DURATION + pause,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_or_replaced_ends_the_tries() {
    let (api, object) = server();
    api.delete(&path());
    assert_eq!(
        run(&api, &object, TEN_MINUTES).await.unwrap(),
        PatchOutcome::Gone
    );
    api.put_velero("Backup", "nightly", "u2", "Finalizing", &json!({}));
    assert_eq!(
        run(&api, &object, TEN_MINUTES).await.unwrap(),
        PatchOutcome::Gone
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_for_a_while_is_not_an_object_that_is_gone() {
    let (api, object) = server();
    // A 404 that names no object.
    refuse(&api, |tries| (tries < 3).then_some(404));
    assert!(matches!(
        run(&api, &object, TEN_MINUTES).await,
        Ok(PatchOutcome::Written(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_will_never_take_is_not_repeated_but_a_denial_is() {
    for code in [400, 413, 422] {
        let (api, object) = server();
        refuse(&api, move |_| Some(code));
        assert!(
            matches!(
                run(&api, &object, TEN_MINUTES).await,
                Err(WriteError::Refused { .. })
            ),
            "{code}"
        );
        assert_eq!(tries(&api), 1);
    }
    for code in [401, 403, 409, 429, 500, 503] {
        let (api, object) = server();
        refuse(&api, move |tries| (tries < 2).then_some(code));
        assert!(
            matches!(
                run(&api, &object, TEN_MINUTES).await,
                Ok(PatchOutcome::Written(_))
            ),
            "{code}"
        );
    }
}

#[test]
fn a_patch_is_found_in_an_object_that_omits_what_is_empty() {
    let object = json!({"status": {"phase": "Completed", "progress": {"totalItems": 3}}, "metadata": {"labels": {"a": "b"}}});
    for (patch, found) in [
        (
            json!({"status": {"phase": "Completed", "errors": 0, "message": null}}),
            true,
        ),
        (
            json!({"status": {"phase": "Completed", "validationErrors": []}}),
            true,
        ),
        (json!({"metadata": {"labels": {"a": "b"}}}), true),
        (json!({"metadata": {"labels": {"a": null}}}), false),
        (json!({"status": {"phase": "Failed"}}), false),
        (json!({"status": {"errors": 1}}), false),
    ] {
        assert_eq!(contains(&object, &patch), found, "{patch}");
    }
}

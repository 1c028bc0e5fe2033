use std::sync::Mutex;

use backup_core::api::{Backup, BackupPhase, BackupSpec};
use kube::core::Status;

use super::*;

/// An object and how its next requests end.
struct Fake {
    stored: Mutex<Option<Backup>>,
    script: Box<dyn Fn(usize) -> Fault + Send + Sync>,
    patches: Mutex<Vec<Instant>>,
}

enum Fault {
    None,
    Api(u16),
    Down,
    /// Stored, but the answer is lost.
    Lost,
}

impl Fake {
    fn new(stored: &Backup, script: impl Fn(usize) -> Fault + Send + Sync + 'static) -> Self {
        Self { stored: Mutex::new(Some(stored.clone())), script: Box::new(script), patches: Mutex::default() }
    }

    fn tries(&self) -> usize {
        self.patches.lock().unwrap().len()
    }
}

fn api_error(code: u16, reason: &str, name: &str) -> kube::Error {
    let details = json!({"name": name, "kind": "backups"});
    let status: Status = serde_json::from_value(
        json!({"code": code, "reason": reason, "message": reason, "details": details}),
    )
    .unwrap();
    kube::Error::Api(Box::new(status))
}

fn down() -> kube::Error {
    kube::Error::Service("connection refused".into())
}

impl Target<Backup> for Fake {
    async fn read(&self, name: &str) -> Result<Backup, kube::Error> {
        if matches!((self.script)(self.tries()), Fault::Down) && self.tries() > 0 {
            self.patches.lock().unwrap().push(Instant::now());
            return Err(down());
        }
        self.stored.lock().unwrap().clone().ok_or_else(|| api_error(404, "NotFound", name))
    }

    async fn patch(&self, name: &str, patch: &Value) -> Result<Backup, kube::Error> {
        let fault = (self.script)(self.tries());
        self.patches.lock().unwrap().push(Instant::now());
        match fault {
            Fault::Api(code) => return Err(api_error(code, "", "")),
            Fault::Down => return Err(down()),
            Fault::None | Fault::Lost => {}
        }
        let mut stored = self.stored.lock().unwrap();
        let Some(object) = stored.as_mut() else { return Err(api_error(404, "NotFound", name)) };
        if patch["metadata"]["resourceVersion"].as_str() != object.metadata.resource_version.as_deref() {
            return Err(api_error(409, "Conflict", name));
        }
        object.status.phase = patch["status"]["phase"].as_str().map(BackupPhase::from);
        object.metadata.resource_version =
            Some(format!("{}0", object.metadata.resource_version.clone().unwrap()));
        if matches!(fault, Fault::Lost) { Err(down()) } else { Ok(object.clone()) }
    }
}

fn backup(version: &str, phase: &str) -> Backup {
    let mut backup = Backup::new("nightly", BackupSpec::default());
    backup.metadata.uid = Some("u1".to_owned());
    backup.metadata.resource_version = Some(version.to_owned());
    backup.status.phase = Some(phase.into());
    backup
}

fn complete(current: &Backup) -> Option<Value> {
    (current.phase() == BackupPhase::Finalizing)
        .then(|| json!({"status": {"phase": "Completed", "errors": 0}}))
}

const TEN_MINUTES: Duration = Duration::from_mins(10);

async fn run(fake: &Fake, object: &Backup, budget: Duration) -> Result<PatchOutcome<Backup>, WriteError> {
    write(fake, &Leadership::always(), budget, object, complete).await
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_ten_minutes_is_ten_minutes_of_tries_in_small_steps() {
    let object = backup("1", "Finalizing");
    let fake = Fake::new(&object, |_| Fault::Down);
    let started = Instant::now();
    let error = run(&fake, &object, TEN_MINUTES).await.unwrap_err();
    assert!(matches!(error, WriteError::Exhausted { .. }), "{error}");
    assert!(started.elapsed() >= TEN_MINUTES && started.elapsed() < TEN_MINUTES + Duration::from_secs(1));
    let times = fake.patches.lock().unwrap();
    // Full steps are 125 tries, halved ones twice that.
    assert!((120..=260).contains(&times.len()), "{} tries", times.len());
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest <= Duration::from_millis(5_001), "{longest:?}");
    assert!(
        started + TEN_MINUTES - *times.last().unwrap() < Duration::from_secs(1),
        "the last try is at the end"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_over_within_seconds_of_recovery() {
    let object = backup("1", "Finalizing");
    let began = Instant::now();
    let recovery = Duration::from_secs(433);
    let fake =
        Fake::new(&object, move |_| if began.elapsed() < recovery { Fault::Down } else { Fault::None });
    assert!(matches!(run(&fake, &object, TEN_MINUTES).await, Ok(PatchOutcome::Written(_))));
    assert!(began.elapsed() < recovery + Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn no_budget_is_one_try() {
    let object = backup("1", "Finalizing");
    let fake = Fake::new(&object, |_| Fault::Down);
    assert!(run(&fake, &object, Duration::ZERO).await.is_err());
    assert_eq!(fake.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_decided_anew_on_the_object_as_it_is() {
    let outdated = backup("1", "Finalizing");
    let fake = Fake::new(&backup("2", "Finalizing"), |_| Fault::None);
    let Ok(PatchOutcome::Written(written)) = run(&fake, &outdated, TEN_MINUTES).await else {
        panic!("not written")
    };
    assert_eq!(written.phase(), BackupPhase::Completed);
    assert_eq!(fake.tries(), 2);

    let fake = Fake::new(&backup("2", "Failed"), |_| Fault::None);
    assert_eq!(run(&fake, &outdated, TEN_MINUTES).await.unwrap(), PatchOutcome::Stale);
    assert_eq!(fake.stored.lock().unwrap().as_ref().unwrap().phase(), BackupPhase::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_was_lost_counts_as_written_once() {
    let object = backup("1", "Finalizing");
    let fake = Fake::new(&object, |tries| if tries == 0 { Fault::Lost } else { Fault::None });
    let Ok(PatchOutcome::Written(written)) = run(&fake, &object, TEN_MINUTES).await else {
        panic!("not written")
    };
    assert_eq!(written.phase(), BackupPhase::Completed);
    assert_eq!(fake.tries(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_or_replaced_ends_the_tries() {
    let object = backup("1", "Finalizing");
    let fake = Fake::new(&object, |_| Fault::None);
    *fake.stored.lock().unwrap() = None;
    assert_eq!(run(&fake, &object, TEN_MINUTES).await.unwrap(), PatchOutcome::Gone);

    let mut other = backup("2", "Finalizing");
    other.metadata.uid = Some("u2".to_owned());
    let fake = Fake::new(&other, |_| Fault::None);
    assert_eq!(run(&fake, &object, TEN_MINUTES).await.unwrap(), PatchOutcome::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_for_a_while_is_not_an_object_that_is_gone() {
    let object = backup("1", "Finalizing");
    let fake = Fake::new(&object, |tries| if tries < 3 { Fault::Api(404) } else { Fault::None });
    // A 404 that names no object.
    assert!(matches!(run(&fake, &object, TEN_MINUTES).await, Ok(PatchOutcome::Written(_))));
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_will_never_take_is_not_repeated_but_a_denial_is() {
    let object = backup("1", "Finalizing");
    for code in [400, 413, 422] {
        let fake = Fake::new(&object, move |_| Fault::Api(code));
        assert!(matches!(run(&fake, &object, TEN_MINUTES).await, Err(WriteError::Refused { .. })), "{code}");
        assert_eq!(fake.tries(), 1);
    }
    for code in [401, 403, 409, 429, 500, 503] {
        let fake = Fake::new(&object, move |tries| if tries < 2 { Fault::Api(code) } else { Fault::None });
        assert!(matches!(run(&fake, &object, TEN_MINUTES).await, Ok(PatchOutcome::Written(_))), "{code}");
    }
}

#[test]
fn a_patch_is_found_in_an_object_that_omits_what_is_empty() {
    let object = json!({"status": {"phase": "Completed", "progress": {"totalItems": 3}}, "metadata": {"labels": {"a": "b"}}});
    for (patch, found) in [
        (json!({"status": {"phase": "Completed", "errors": 0, "message": null}}), true),
        (json!({"status": {"phase": "Completed", "validationErrors": []}}), true),
        (json!({"metadata": {"labels": {"a": "b"}}}), true),
        (json!({"metadata": {"labels": {"a": null}}}), false),
        (json!({"status": {"phase": "Failed"}}), false),
        (json!({"status": {"errors": 1}}), false),
    ] {
        assert_eq!(contains(&object, &patch), found, "{patch}");
    }
}

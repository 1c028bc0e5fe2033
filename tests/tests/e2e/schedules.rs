//! Backups that are made at given times.

use std::collections::BTreeSet;

use backup_core::{
    api::{
        Schedule,
        schedule::{SchedulePhase, ScheduleStatus},
    },
    cron::Reading,
    labels,
};
use backup_store::crash;
use backup_tests::proxy::Fault;
use jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};

use crate::prelude::*;

crate::tests! {
    a_schedule_makes_one_backup_for_each_of_its_times,
    of_many_missed_runs_at_most_one_is_made_up,
    an_unfinished_backup_keeps_the_next_one_from_being_made,
    a_run_that_the_lock_refuses_is_skipped_with_the_reason,
    a_schedule_that_is_not_valid_says_everything_that_is_wrong,
    a_crash_after_a_scheduled_backup_makes_no_second_one,
}

/// Creates a schedule with these fields.
pub(super) async fn create(world: &World, name: &str, fields: Value) -> anyhow::Result<Schedule> {
    let mut object =
        json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": name } });
    json_patch::merge(&mut object, &fields);
    Ok(world.api::<Schedule>().create_json(object).await?)
}

/// The backups of a schedule, by name.
async fn made(world: &World, schedule: &str) -> Result<Vec<Backup>, kube::Error> {
    let parameters = ListParams::default().labels(&format!("{}={schedule}", labels::SCHEDULE_NAME));
    Ok(world.backups().list(&parameters).await?.items)
}

pub(super) async fn remove(world: &World, schedule: &str) -> anyhow::Result<()> {
    world.api::<Schedule>().delete_object(schedule).await?;
    Ok(())
}

/// Waits until a schedule has made this many backups. Returns all of them.
async fn has_made(world: &World, schedule: &str, count: usize) -> anyhow::Result<Vec<Backup>> {
    eventually(
        &format!("{schedule} has made {count}"),
        TIMEOUT,
        async || {
            let made = made(world, schedule).await?;
            let seen = made.len().to_string();
            Ok::<_, kube::Error>(if made.len() >= count {
                Probe::Ready(made)
            } else {
                Probe::NotYet(seen)
            })
        },
    )
    .await
}

/// Waits until the status of a schedule fulfils a condition.
async fn status(
    world: &World,
    schedule: &str,
    what: &str,
    is_so: impl Fn(&ScheduleStatus) -> bool,
) -> anyhow::Result<ScheduleStatus> {
    let is_so = |schedule: &Schedule| is_so(&schedule.status);
    Ok(world
        .api()
        .wait_until(schedule, what, TIMEOUT, is_so)
        .await?
        .status)
}

/// The slot in the name of a backup.
fn slot(schedule: &str, backup: &Backup) -> anyhow::Result<Timestamp> {
    let name = backup.metadata.name.as_deref().unwrap_or_default();
    let digits = name
        .strip_prefix(&format!("{schedule}-"))
        .context("another name")?;
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", digits)?;
    Ok(jiff::tz::TimeZone::UTC.to_timestamp(time)?)
}

pub(super) fn seconds_ago(seconds: i64) -> Timestamp {
    Timestamp::now() - jiff::SignedDuration::from_secs(seconds)
}

async fn a_schedule_makes_one_backup_for_each_of_its_times(world: &mut World) -> TestResult {
    let name = "often";
    world.config_maps(name, 2).await?;
    let metadata = json!({
        "labels": { "team": "a", "argocd.argoproj.io/instance": "x", "app.kubernetes.io/instance": "x" },
        "annotations": { "why": "a test", "argocd.argoproj.io/tracking-id": "x" },
    });
    let template = json!({ "includedNamespaces": [name], "ttl": "1h" });
    let spec = json!({ "schedule": "@every 4s", "template": template, "useOwnerReferencesInBackup": true });
    let schedule = create(world, name, json!({ "metadata": metadata, "spec": spec })).await?;
    let made = has_made(world, name, 3).await?;
    let mut slots: Vec<Timestamp> = made
        .iter()
        .map(|backup| slot(name, backup))
        .collect::<Result<_, _>>()?;
    slots.sort();
    let created = schedule.metadata.creation_timestamp.context("no time")?.0;
    for slot in &slots {
        let since = slot.as_second() - created.as_second();
        ensure!(
            since > 0 && since % 4 == 0,
            "{slot} is no time of it, which was made at {created}"
        );
    }
    for backup in &made {
        let labels = backup.metadata.labels.clone().unwrap_or_default();
        let keys: BTreeSet<&str> = labels.keys().map(String::as_str).collect();
        ensure!(
            labels["team"] == "a" && !keys.iter().any(|key| key.contains("instance")),
            "{keys:?}"
        );
        let notes = backup.metadata.annotations.clone().unwrap_or_default();
        ensure!(
            notes["why"] == "a test" && !notes.keys().any(|key| key.contains("argocd")),
            "{notes:?}"
        );
        let owner = &backup
            .metadata
            .owner_references
            .as_ref()
            .context("no owner")?[0];
        ensure!(
            Some(&owner.uid) == schedule.metadata.uid.as_ref(),
            "{owner:?}"
        );
        ensure!(
            backup.spec.included_namespaces == [name],
            "{:?}",
            backup.spec
        );
    }
    // One at a time: the first ended before the second was created.
    world
        .backup_ends(
            made[0].metadata.name.as_deref().unwrap_or_default(),
            BackupPhase::Completed,
        )
        .await?;
    ensure!(
        world
            .metric("velero_schedule_expected_interval_seconds{schedule=\"often\"}")
            .await?
            == Some(4.0)
    );
    let last_due = "velero_schedule_last_due_timestamp_seconds{schedule=\"often\"}";
    #[allow(clippy::cast_precision_loss)] // far below 2^52
    let now = Timestamp::now().as_second() as f64;
    let due = world.metric(last_due).await?;
    ensure!(
        due.is_some_and(|due| (-1.0..30.0).contains(&(now - due))),
        "last due at {due:?} of {now}"
    );

    let pause = |paused: bool| Patch::Merge(json!({ "spec": { "paused": paused } }));
    world
        .api::<Schedule>()
        .patch(name, &PatchParams::default(), &pause(true))
        .await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = self::made(world, name).await?.len();
    tokio::time::sleep(Duration::from_secs(9)).await;
    let paused = self::made(world, name).await?.len();
    ensure!(
        paused == before,
        "{} were made while it was paused",
        paused - before
    );
    let due = world.metric(last_due).await?;
    ensure!(due.is_none(), "it is paused, and was last due at {due:?}");
    world
        .api::<Schedule>()
        .patch(name, &PatchParams::default(), &pause(false))
        .await?;
    has_made(world, name, paused + 1).await?;
    remove(world, name).await?;
    eventually("its metrics are gone", TIMEOUT, async || {
        let left = world
            .metric("velero_schedule_expected_interval_seconds{schedule=\"often\"}")
            .await?;
        anyhow::Ok(when(left.is_none(), format!("{left:?}")))
    })
    .await
}

/// None is, if they are to be skipped.
async fn of_many_missed_runs_at_most_one_is_made_up(world: &mut World) -> TestResult {
    world.config_maps("missed", 1).await?;
    let template = json!({ "includedNamespaces": ["missed"] });
    for (name, skip) in [("missed", json!(null)), ("missed-skipped", json!(true))] {
        let spec =
            json!({ "schedule": "0 * * * *", "template": template, "skipImmediately": skip });
        let status = json!({ "lastBackup": seconds_ago(30 * 24 * 3600) });
        create(world, name, json!({ "spec": spec, "status": status })).await?;
    }
    let hour = Timestamp::now().as_second() / 3600 * 3600;
    let made = has_made(world, "missed", 1).await?;
    let found = slot("missed", &made[0])?.as_second();
    ensure!(
        found == hour || found == hour + 3600,
        "{:?} is not the latest of the missed ones",
        made[0].metadata.name
    );
    let after = status(world, "missed", "the slot is noted", |status| {
        status
            .last_backup
            .as_ref()
            .is_some_and(|time| time.0.as_second() == found)
    })
    .await?;
    ensure!(after.phase == Some(SchedulePhase::Enabled), "{after:?}");
    let skipped = status(world, "missed-skipped", "it is skipped", |status| {
        status.last_skipped.is_some()
    })
    .await?;
    let age = Timestamp::now()
        .duration_since(skipped.last_skipped.context("no time")?.0)
        .as_secs();
    ensure!(age < 60, "skipped {age} s ago");
    ensure!(
        world
            .api::<Schedule>()
            .get("missed-skipped")
            .await?
            .spec
            .skip_immediately
            == Some(false),
        "it skips again"
    );
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(
        self::made(world, "missed").await?.len() == 1,
        "more than one was caught up on"
    );
    ensure!(
        self::made(world, "missed-skipped").await?.is_empty(),
        "it was not skipped"
    );
    remove(world, "missed").await?;
    remove(world, "missed-skipped").await
}

async fn an_unfinished_backup_keeps_the_next_one_from_being_made(world: &mut World) -> TestResult {
    let (name, s3) = ("one-by-one", world.s3()?);
    world.config_maps(name, 1).await?;
    s3.front.set(Fault::Stall);
    let spec = json!({ "schedule": "@every 2s", "template": { "includedNamespaces": [name] } });
    create(world, name, json!({ "spec": spec })).await?;
    has_made(world, name, 1).await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let made = made(world, name).await?;
    ensure!(
        made.len() == 1 && made[0].phase().is_active(),
        "{} backups, {}",
        made.len(),
        made[0].phase()
    );
    s3.front.set(Fault::None);
    has_made(world, name, 2).await?;
    remove(world, name).await
}

async fn a_run_that_the_lock_refuses_is_skipped_with_the_reason(world: &mut World) -> TestResult {
    let name = "locked-out";
    world.config_maps(name, 1).await?;
    let plugin = world.kubectl_backup();
    let hold = [
        "locks",
        "hold",
        name,
        "--namespaces=locked-out",
        "--reason=moving disks",
    ];
    plugin.succeeds(&hold).await?;
    let spec = json!({ "schedule": "@every 5s", "template": { "includedNamespaces": [name] } });
    create(world, name, json!({ "spec": spec })).await?;
    status(world, name, "a slot is skipped", |status| {
        status.last_skipped.is_some()
    })
    .await?;
    let note = world
        .api::<Schedule>()
        .get(name)
        .await?
        .metadata
        .annotations
        .unwrap_or_default();
    let note = note
        .get(labels::SKIPPED_ANNOTATION)
        .cloned()
        .unwrap_or_default();
    ensure!(note.contains("moving disks"), "{note:?}");
    ensure!(
        made(world, name).await?.is_empty(),
        "a backup was made against the lock"
    );
    let skips = world
        .metric("velero_schedule_skipped_total{schedule=\"locked-out\"}")
        .await?;
    ensure!(skips >= Some(1.0), "{skips:?}");
    plugin
        .succeeds(&[
            "locks",
            "release",
            "hold/locked-out",
            "--reason=done",
            "--yes",
        ])
        .await?;
    has_made(world, name, 1).await?;
    remove(world, name).await
}

async fn a_schedule_that_is_not_valid_says_everything_that_is_wrong(
    world: &mut World,
) -> TestResult {
    let api = world.api::<Schedule>();
    let spec = json!({ "schedule": "61 * * * *", "template": { "ttl": "-1h" } });
    let spec = json!({ "spec": spec });
    let stores = async || create(world, "wrong", spec.clone()).await.map(Probe::Ready);
    world
        .unregistered(async || eventually("stored without the webhook", TIMEOUT, stores).await)
        .await?;
    let wrong = status(world, "wrong", "it is refused", |status| {
        status.phase == Some(SchedulePhase::FailedValidation)
    })
    .await?;
    let [cron, ttl] = wrong.validation_errors.as_slice() else {
        bail!("{wrong:?}")
    };
    ensure!(
        cron.starts_with("spec.schedule: ") && ttl.starts_with("spec.template.ttl: "),
        "{wrong:?}"
    );
    let usable = "velero_schedule_usable{schedule=\"wrong\"}";
    ensure!(
        world.metric(usable).await? == Some(0.0),
        "no alert would fire"
    );
    create(
        world,
        "both-days",
        json!({ "spec": { "schedule": "0 3 1-7 1 0", "template": {} } }),
    )
    .await?;
    let doctor = world.kubectl_backup().fails(1, &["doctor"]).await?.stdout;
    remove(world, "both-days").await?;
    says(
        &doctor,
        &["both-days: Velero's two libraries read \"0 3 1-7 1 0\" differently"],
    )?;
    says(
        &doctor,
        &["wrong is not valid, so it makes no backups", cron],
    )?;
    // The expression is valid: a due run stays due, so that the mistake does not end an alert about
    // it.
    let hourly = json!({ "spec": { "schedule": "0 * * * *" } });
    api.merge_patch("wrong", hourly).await?;
    let interval = "velero_schedule_expected_interval_seconds{schedule=\"wrong\"}";
    eventually("its interval is known", TIMEOUT, async || {
        let found = world.metric(interval).await?;
        anyhow::Ok(when(found == Some(3600.0), format!("{found:?}")))
    })
    .await?;
    ensure!(
        world.metric(usable).await? == Some(0.0),
        "it has no valid template"
    );
    api.merge_patch(
        "wrong",
        json!({ "spec": { "schedule": "@yearly", "template": { "ttl": "1h" } } }),
    )
    .await?;
    status(world, "wrong", "it is valid", |status| {
        status.phase == Some(SchedulePhase::Enabled) && status.validation_errors.is_empty()
    })
    .await?;
    eventually("the alert ends", TIMEOUT, async || {
        let found = world.metric(usable).await?;
        anyhow::Ok(when(found == Some(1.0), format!("{found:?}")))
    })
    .await?;
    let told = api
        .get("wrong")
        .await?
        .metadata
        .annotations
        .unwrap_or_default()
        .remove(labels::CRON_ANNOTATION);
    // In the time zone of the machine.
    let told = told.context("how it is read is not said")?;
    ensure!(
        told.starts_with("robfig ") && told.parse::<Reading>().is_ok(),
        "{told}"
    );
    remove(world, "wrong").await?;
    // A schedule that typed clients cannot decode.
    let raw = objects_in(&world.client, NAMESPACE, "velero.io/v1", "Schedule");
    let object = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "unreadable" },
        "spec": { "schedule": "@yearly", "template": { "ttl": "tomorrow" } } });
    let stores = async || raw.create_json(object.clone()).await.map(Probe::Ready);
    world
        .unregistered(async || eventually("stored without the webhook", TIMEOUT, stores).await)
        .await?;
    let refused = |schedule: &DynamicObject| {
        let status = &schedule.data["status"];
        let error = status["validationErrors"][0].as_str().unwrap_or_default();
        error.starts_with("spec.template.ttl: ") && status["phase"] == "FailedValidation"
    };
    raw.wait_until("unreadable", "is refused", TIMEOUT, refused)
        .await?;
    raw.delete_object("unreadable").await?;
    Ok(())
}

async fn a_crash_after_a_scheduled_backup_makes_no_second_one(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let name = "killed-once";
    world.config_maps(name, 1).await?;
    world.crash_at(crash::SCHEDULE_POINT).await?;
    let spec = json!({ "schedule": "0 * * * *", "template": { "includedNamespaces": [name] } });
    let yesterday = json!({ "lastBackup": seconds_ago(24 * 3600) });
    create(world, name, json!({ "spec": spec, "status": yesterday })).await?;
    world.controllers[0].killed(POINT_TIMEOUT).await?;
    ensure!(
        made(world, name).await?.len() == 1,
        "it was killed too early"
    );
    let before = world
        .api::<Schedule>()
        .get(name)
        .await?
        .status
        .last_backup
        .context("no time")?;
    world.controllers[0].restart().await?;
    status(world, name, "the slot is noted", |status| {
        status.last_backup.as_ref() > Some(&before)
    })
    .await?;
    ensure!(made(world, name).await?.len() == 1, "a second one was made");
    remove(world, name).await
}

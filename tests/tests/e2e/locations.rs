//! The status of a location is true: whether it can be read and written, with credentials that may change at any time, and what
//! its bucket keeps. It is said where people look, with what to do.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{BackupPhase, BackupStorageLocation, LocationPhase},
    bucket::{Facts, Versions},
    labels::BUCKET_ANNOTATION,
};
use backup_tests::{
    World,
    faulty_s3::{FaultyS3, Mood},
    install::{NAMESPACE, ensure_secret},
    object_store::S3,
    wait::{Probe, eventually, when},
};
use k8s_openapi::api::{core::v1::Secret, events::v1::Event};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    drills::{blocked, noise, of},
    main_job::{backups, create_backup, s3},
    sync::{SOON, locations},
};

crate::tests! {
    a_secret_that_is_mended_makes_its_location_available_within_seconds,
    credentials_that_expire_while_a_backup_is_stored_lose_nothing,
    a_bucket_that_refuses_writes_is_unavailable_and_the_right_is_named,
    a_bucket_that_refuses_deletions_is_available_and_that_is_told,
    versions_and_object_lock_of_a_bucket_are_told_and_nothing_piles_up,
    of_several_default_locations_the_newest_stays_and_the_others_are_told,
    folders_that_do_not_belong_there_are_named_until_they_are_gone,
}

/// What is written to see whether that is allowed.
const PROBE: &str = "backups/.writable";
/// What does not wait for the next validation has come by then.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A location with a bucket of its name, which is validated every hour; not waited for.
async fn apply(world: &World, name: &str, url: &str, more: &Value) -> anyhow::Result<()> {
    let mut spec = json!({
        "provider": "aws", "objectStorage": { "bucket": name }, "validationFrequency": "1h",
        "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
        "credential": { "name": "cloud-credentials", "key": "cloud" },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    world.apply_location(name, spec).await
}

/// Waits until the location is unavailable, with this text in its message.
async fn says(world: &World, name: &str, text: &str) -> anyhow::Result<String> {
    eventually(&format!("location {name} says {text:?}"), AT_ONCE, async || {
        let status = locations(world).get(name).await?.status;
        let message = status.message.clone().unwrap_or_default();
        let told = status.phase == Some(LocationPhase::Unavailable) && message.contains(text);
        Ok::<_, kube::Error>(if told { Probe::Ready(message) } else { Probe::NotYet(format!("{status:?}")) })
    })
    .await
}

async fn available(world: &World, name: &str) -> anyhow::Result<BackupStorageLocation> {
    eventually(&format!("location {name} is available"), AT_ONCE, async || {
        let location = locations(world).get(name).await?;
        let there = location.status.phase == Some(LocationPhase::Available);
        let seen = format!("{:?}", location.status);
        Ok::<_, kube::Error>(if there { Probe::Ready(location) } else { Probe::NotYet(seen) })
    })
    .await
}

fn facts(location: &BackupStorageLocation) -> anyhow::Result<Facts> {
    let annotation = location.annotations().get(BUCKET_ANNOTATION);
    Facts::read(annotation.map(String::as_str)).context("nothing is told of the bucket")
}

async fn patch(world: &World, name: &str, patch: Value) -> anyhow::Result<()> {
    locations(world).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn remove(world: &World, name: &str) -> anyhow::Result<()> {
    locations(world).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits for an Event on a location.
async fn told(world: &World, location: &str, reason: &str) -> anyhow::Result<String> {
    let events: Api<Event> = Api::namespaced(world.client.clone(), NAMESPACE);
    eventually(&format!("{reason} on location {location}"), SOON, async || {
        let list = events.list(&ListParams::default()).await?;
        let found = list.items.into_iter().find(|event| {
            let of = event.regarding.as_ref().and_then(|object| object.name.as_deref());
            of == Some(location) && event.reason.as_deref() == Some(reason)
        });
        let note = found.map(|event| event.note.unwrap_or_default());
        Ok::<_, kube::Error>(note.map_or(Probe::NotYet("no such event".to_owned()), Probe::Ready))
    })
    .await
}

async fn a_secret_that_is_mended_makes_its_location_available_within_seconds(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "mended";
    s3(world)?.create_bucket(name).await?;
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), NAMESPACE);
    let good = S3::credentials();
    let wrong = good.replace(backup_tests::object_store::SECRET, "wrong");
    let credential = json!({ "credential": { "name": name, "key": "cloud" } });
    apply(world, name, &s3(world)?.url(), &credential).await?;
    says(world, name, "Secret mended of spec.credential not found: create it").await?;
    ensure_secret(&world.client, NAMESPACE, name, "other", &good).await?;
    says(world, name, "has no key cloud").await?;
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &wrong).await?;
    says(world, name, "SignatureDoesNotMatch").await?;
    let began = Instant::now();
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &good).await?;
    available(world, name).await?;
    println!("  available {:.1} s after the Secret was mended", began.elapsed().as_secs_f64());

    // The CA's Secret as well.
    let storage = json!({ "bucket": name, "caCertRef": { "name": "mended-ca", "key": "ca.crt" } });
    patch(world, name, json!({ "spec": { "objectStorage": storage } })).await?;
    says(world, name, "Secret mended-ca of spec.objectStorage.caCertRef not found").await?;
    ensure_secret(&world.client, NAMESPACE, "mended-ca", "ca.crt", "no certificate").await?;
    says(world, name, "caCert").await?;
    ensure_secret(&world.client, NAMESPACE, "mended-ca", "ca.crt", &world.webhook_ca).await?;
    available(world, name).await?;

    // A Secret that goes is told, too, and nothing is validated in between.
    let before = available(world, name).await?.status.last_validation_time;
    ensure_secret(&world.client, NAMESPACE, "nobody-uses-this", "cloud", &good).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(available(world, name).await?.status.last_validation_time == before, "it was validated");
    secrets.delete(name, &DeleteParams::default()).await?;
    says(world, name, "not found").await?;
    remove(world, name).await
}

async fn credentials_that_expire_while_a_backup_is_stored_lose_nothing(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "expire-in-use";
    s3(world)?.create_bucket(name).await?;
    let (good, front) = (S3::credentials(), FaultyS3::start(s3(world)?.address()).await?);
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &good).await?;
    let credential = json!({ "credential": { "name": name, "key": "cloud" } });
    apply(world, name, &front.url(), &credential).await?;
    available(world, name).await?;
    noise(world, name, 3).await?;
    front.rule(|asked| if asked.makes_final() { Mood::Answer(403) } else { Mood::Pass });
    create_backup(world, name, of(name)).await?;
    blocked(world, name, &BackupPhase::Finalizing).await?;
    let wrong = good.replace(backup_tests::object_store::SECRET, "expired");
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &wrong).await?;
    says(world, name, "SignatureDoesNotMatch").await?;
    front.calm();
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(backups(world).get(name).await?.phase() == BackupPhase::Finalizing, "not kept");
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &good).await?;
    let ended = world.backup_ended(name).await?;
    ensure!(ended.phase() == BackupPhase::Completed, "{:?}", ended.status);
    remove(world, name).await
}

async fn a_bucket_that_refuses_writes_is_unavailable_and_the_right_is_named(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "no-writes";
    s3(world)?.create_bucket(name).await?;
    let front = FaultyS3::start(s3(world)?.address()).await?;
    front.rule(|asked| if asked.writes() { Mood::Answer(403) } else { Mood::Pass });
    apply(world, name, &front.url(), &json!({ "validationFrequency": "2s" })).await?;
    let message = says(world, name, "s3:PutObject").await?;
    ensure!(message.contains(PROBE) && message.contains("accessMode to ReadOnly"), "{message}");
    // As the message says.
    patch(world, name, json!({ "spec": { "accessMode": "ReadOnly" } })).await?;
    available(world, name).await?;
    let before = front.asked().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let asked = front.asked().split_off(before);
    ensure!(!asked.is_empty() && asked.iter().all(|asked| !asked.writes()), "{asked:?}");
    patch(world, name, json!({ "spec": { "accessMode": "ReadWrite" } })).await?;
    says(world, name, "s3:PutObject").await?;
    front.calm();
    available(world, name).await?;
    // And while it stays as it is, it is not tried with each validation.
    let before = front.asked().len();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = front.asked().split_off(before);
    ensure!(asked.len() >= 2 && asked.iter().all(|asked| asked.query.contains("list-type=2")), "{asked:?}");
    ensure!(s3(world)?.keys(name).await?.is_empty(), "something stays");
    remove(world, name).await
}

async fn a_bucket_that_refuses_deletions_is_available_and_that_is_told(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "no-deletions";
    s3(world)?.create_bucket(name).await?;
    let front = FaultyS3::start(s3(world)?.address()).await?;
    front.rule(|asked| {
        let deletes = asked.method == http::Method::DELETE || asked.query.contains("delete");
        if deletes { Mood::Answer(403) } else { Mood::Pass }
    });
    apply(world, name, &front.url(), &json!({})).await?;
    let location = available(world, name).await?;
    let why = facts(&location)?.not_removable.context("not told")?;
    ensure!(why.contains(PROBE) && why.contains("AccessDenied"), "{why}");
    let note = told(world, name, "NotRemovable").await?;
    ensure!(note.contains("expired"), "{note}");
    // What stays there is no hindrance, neither here nor to a Velero server: it is in no folder of its own.
    ensure!(s3(world)?.keys(name).await? == [PROBE], "{:?}", s3(world)?.keys(name).await?);
    patch(world, name, json!({ "spec": { "validationFrequency": "2h" } })).await?;
    front.calm();
    patch(world, name, json!({ "spec": { "validationFrequency": "3h" } })).await?;
    eventually("it is removed by the next look", AT_ONCE, async || {
        let clean = s3(world)?.keys(name).await?.is_empty();
        let told = facts(&locations(world).get(name).await?)?.not_removable;
        anyhow::Ok(when(clean && told.is_none(), format!("{told:?}")))
    })
    .await?;
    remove(world, name).await
}

async fn versions_and_object_lock_of_a_bucket_are_told_and_nothing_piles_up(
    world: &mut World,
) -> anyhow::Result<()> {
    let url = s3(world)?.url();
    s3(world)?.create_bucket("keeps-nothing").await?;
    s3(world)?.create_versioned_bucket("keeps-versions").await?;
    s3(world)?.create_locked_bucket("keeps-locked").await?;
    for (name, versions, lock, kept) in [
        ("keeps-nothing", Versions::Off, "off", 0),
        ("keeps-versions", Versions::Enabled, "off", 1),
        ("keeps-locked", Versions::Enabled, "on, COMPLIANCE for 1 days by default", 1),
    ] {
        apply(world, name, &url, &json!({})).await?;
        let found = facts(&available(world, name).await?)?;
        ensure!(found.versions == Some(versions) && found.unknown.is_none(), "{name}: {found:?}");
        ensure!(found.lock.as_ref().is_some_and(|found| found.to_string() == lock), "{name}: {found:?}");
        // Each change has it tried again.
        for frequency in ["2h", "3h", "4h"] {
            let before = available(world, name).await?.status.last_validation_time;
            tokio::time::sleep(Duration::from_millis(1100)).await; // times are whole seconds
            patch(world, name, json!({ "spec": { "validationFrequency": frequency } })).await?;
            eventually("it is validated", AT_ONCE, async || {
                let now = locations(world).get(name).await?.status;
                let done = now.phase == Some(LocationPhase::Available) && now.last_validation_time != before;
                Ok::<_, kube::Error>(when(done, format!("{now:?}")))
            })
            .await?;
        }
        let left = s3(world)?.versions(name).await?;
        ensure!(left == vec![(PROBE.to_owned(), false); kept], "{name}: {left:?}");
    }
    // Who may not ask whether versions are kept is told so, and tries again as well.
    let front = FaultyS3::start(s3(world)?.address()).await?;
    front.rule(|asked| if asked.query.contains("versioning") { Mood::Answer(403) } else { Mood::Pass });
    s3(world)?.create_versioned_bucket("keeps-quiet").await?;
    for frequency in ["2h", "3h", "4h"] {
        let before = front.asked().len();
        apply(world, "keeps-quiet", &front.url(), &json!({ "validationFrequency": frequency })).await?;
        eventually("it is looked at closely", AT_ONCE, async || {
            let asked = front.asked().split_off(before);
            anyhow::Ok(when(asked.iter().any(|asked| asked.query.contains("delete")), format!("{asked:?}")))
        })
        .await?;
        let found = facts(&available(world, "keeps-quiet").await?)?;
        let unknown = found.unknown.clone().unwrap_or_default();
        ensure!(unknown.contains("s3:GetBucketVersioning is not granted"), "{found:?}");
    }
    remove(world, "keeps-quiet").await?;
    let note = told(world, "keeps-locked", "ObjectLock").await?;
    ensure!(note.contains("COMPLIANCE for 1 days"), "{note}");
    let shown = world.plugin().run(&["sync", "keeps-locked"]).await?.stdout;
    ensure!(shown.contains("COMPLIANCE for 1 days") && shown.contains("kept"), "{shown}");
    for name in ["keeps-nothing", "keeps-versions", "keeps-locked"] {
        remove(world, name).await?;
    }
    Ok(())
}

async fn of_several_default_locations_the_newest_stays_and_the_others_are_told(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "second-default";
    s3(world)?.create_bucket(name).await?;
    apply(world, name, &s3(world)?.url(), &json!({ "default": true })).await?;
    let result = async {
        let marked = async |name: &str| {
            Ok::<_, kube::Error>(locations(world).get(name).await?.spec.default == Some(true))
        };
        // The old one sees it when it is validated next.
        eventually("one is left", AT_ONCE, async || {
            let (old, new) = (marked("default").await?, marked(name).await?);
            Ok::<_, kube::Error>(when(!old && new, format!("old {old}, new {new}")))
        })
        .await?;
        let note = told(world, "default", "NotDefault").await?;
        ensure!(note.contains("second-default is newer"), "{note}");
        // Set again, it loses again.
        patch(world, "default", json!({ "spec": { "default": true } })).await?;
        eventually("one is left", AT_ONCE, async || {
            let (old, new) = (marked("default").await?, marked(name).await?);
            Ok::<_, kube::Error>(when(!old && new, format!("old {old}, new {new}")))
        })
        .await
    }
    .await;
    remove(world, name).await?;
    patch(world, "default", json!({ "spec": { "default": true } })).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let alone = locations(world).get("default").await?;
    ensure!(alone.spec.default == Some(true), "the only one is not left alone");
    result
}

async fn folders_that_do_not_belong_there_are_named_until_they_are_gone(
    world: &mut World,
) -> anyhow::Result<()> {
    let name = "shared-with-photos";
    s3(world)?.create_bucket(name).await?;
    let files = s3(world)?.files(name);
    let folder = files.join("photos");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("1.jpg"), b"x")?;
    apply(world, name, &s3(world)?.url(), &json!({ "validationFrequency": "2s" })).await?;
    let message = says(world, name, "photos").await?;
    ensure!(message.contains("expected only backups"), "{message}");
    ensure!(!files.join(PROBE).exists(), "it was written to all the same");
    std::fs::remove_dir_all(&folder)?;
    available(world, name).await?;
    remove(world, name).await
}

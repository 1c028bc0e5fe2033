//! The status of a location is true: whether it can be read and written, with credentials that may
//! change at any time, and what its bucket keeps. It is shown to users, with the remedy.

use std::time::Instant;

use backup_core::{
    api::{BackupStorageLocation, LocationPhase},
    bucket::{Facts, Versions},
    labels::BUCKET_ANNOTATION,
};
use backup_tests::{
    faulty_s3::{Asked, Mood},
    install::ensure_secret,
    object_store::{S3, SECRET},
};
use k8s_openapi::api::core::v1::Secret;

use crate::prelude::*;

crate::tests! {
    a_corrected_secret_makes_its_location_available_at_once,
    credentials_that_expire_during_a_backup_lose_nothing,
    a_bucket_that_refuses_writes_is_unavailable_with_the_reason,
    a_bucket_that_refuses_deletions_is_available_and_reported,
    versions_and_object_lock_of_a_bucket_are_reported,
    a_negative_period_is_named_by_its_location,
    of_several_default_locations_the_newest_stays,
    foreign_folders_in_a_bucket_are_named_until_they_are_gone,
    a_location_that_leads_elsewhere_is_unavailable_and_names_the_flag,
}

/// Key that is written to test whether writing is allowed.
const PROBE: &str = "backups/.writable";
/// Time limit for events that do not wait for the next validation.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a location that is validated every hour, without waiting for it.
async fn hourly(world: &World, name: &str, url: &str, more: &Value) -> anyhow::Result<()> {
    let mut fields = json!({ "validationFrequency": "1h" });
    json_patch::merge(&mut fields, more);
    world.apply_s3_location(name, url, &fields).await
}

/// Waits until the location is unavailable, with this text in its message.
async fn says(world: &World, name: &str, text: &str) -> anyhow::Result<String> {
    let message =
        |location: &BackupStorageLocation| location.status.message.clone().unwrap_or_default();
    let says = |location: &BackupStorageLocation| {
        location.status.phase == Some(LocationPhase::Unavailable)
            && message(location).contains(text)
    };
    let location = world
        .locations()
        .wait_until(name, &format!("says {text:?}"), PROMPT_TIMEOUT, says)
        .await?;
    Ok(message(&location))
}

async fn available(world: &World, name: &str) -> anyhow::Result<BackupStorageLocation> {
    world
        .location_in(name, LocationPhase::Available, PROMPT_TIMEOUT)
        .await
}

/// Nothing is sent to a host that would receive the credentials of all locations, and no folder is
/// created on the system.
async fn a_location_that_leads_elsewhere_is_unavailable_and_names_the_flag(
    world: &mut World,
) -> TestResult {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let leads = json!({ "provider": "gcp", "objectStorage": { "bucket": "b" },
        "config": { "storeEndpoint": endpoint }, "validationFrequency": "1h" });
    world.apply_location("leads-elsewhere", leads).await?;
    let message = says(world, "leads-elsewhere", "--allowed-endpoints").await?;
    ensure!(
        message.contains("127.0.0.1") && message.contains("storeEndpoint"),
        "{message}"
    );
    let asked = tokio::time::timeout(Duration::from_millis(200), listener.accept()).await;
    ensure!(asked.is_err(), "the host was asked");
    let folder = "/usr/backups-of-a-test";
    let holds = json!({ "provider": "local", "objectStorage": { "bucket": folder }, "validationFrequency": "1h" });
    world.apply_location("in-the-system", holds).await?;
    says(world, "in-the-system", "--allowed-local-paths").await?;
    ensure!(!std::path::Path::new(folder).exists(), "it was made");
    let fine =
        json!({ "provider": "local", "objectStorage": { "bucket": world.folder().join("fine") } });
    world.apply_location("in-a-folder", fine).await?;
    available(world, "in-a-folder").await?;
    for name in ["leads-elsewhere", "in-the-system", "in-a-folder"] {
        world.remove_location(name).await?;
    }
    Ok(())
}

fn facts(location: &BackupStorageLocation) -> anyhow::Result<Facts> {
    let annotation = location.annotations().get(BUCKET_ANNOTATION);
    Facts::read(annotation.map(String::as_str)).context("nothing is told of the bucket")
}

async fn patch(world: &World, name: &str, patch: Value) -> anyhow::Result<()> {
    world.locations().merge_patch(name, patch).await?;
    Ok(())
}

/// Waits for an Event on a location.
async fn told(world: &World, location: &str, reason: &str) -> anyhow::Result<String> {
    world
        .wait_for_event(reason, |object, _| object.name.as_deref() == Some(location))
        .await
}

async fn a_corrected_secret_makes_its_location_available_at_once(world: &mut World) -> TestResult {
    let name = "mended";
    world.s3()?.create_bucket(name).await?;
    let good = S3::credentials();
    let wrong = good.replace(SECRET, "wrong");
    let credential = json!({ "credential": { "name": name, "key": "cloud" } });
    hourly(world, name, &world.s3()?.url(), &credential).await?;
    says(
        world,
        name,
        "Secret mended of spec.credential not found: create it",
    )
    .await?;
    ensure_secret(&world.client, NAMESPACE, name, "other", &good).await?;
    says(world, name, "has no key cloud").await?;
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &wrong).await?;
    says(world, name, "SignatureDoesNotMatch").await?;
    let began = Instant::now();
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &good).await?;
    available(world, name).await?;
    println!(
        "  available {:.1} s after the Secret was mended",
        began.elapsed().as_secs_f64()
    );

    // The same for the Secret of the CA.
    let storage = json!({ "bucket": name, "caCertRef": { "name": "mended-ca", "key": "ca.crt" } });
    patch(world, name, json!({ "spec": { "objectStorage": storage } })).await?;
    says(
        world,
        name,
        "Secret mended-ca of spec.objectStorage.caCertRef not found",
    )
    .await?;
    ensure_secret(
        &world.client,
        NAMESPACE,
        "mended-ca",
        "ca.crt",
        "no certificate",
    )
    .await?;
    says(world, name, "caCert").await?;
    ensure_secret(
        &world.client,
        NAMESPACE,
        "mended-ca",
        "ca.crt",
        &world.webhook_ca,
    )
    .await?;
    available(world, name).await?;

    // Deleting a Secret is reported, too, and no validation happens in between.
    let before = available(world, name).await?.status.last_validation_time;
    ensure_secret(&world.client, NAMESPACE, "nobody-uses-this", "cloud", &good).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    ensure!(
        available(world, name).await?.status.last_validation_time == before,
        "it was validated"
    );
    world.api::<Secret>().delete_object(name).await?;
    says(world, name, "not found").await?;
    world.remove_location(name).await
}

async fn credentials_that_expire_during_a_backup_lose_nothing(world: &mut World) -> TestResult {
    let name = "expire-in-use";
    world.s3()?.create_bucket(name).await?;
    let (good, front) = (S3::credentials(), world.faulty_s3().await?);
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &good).await?;
    let credential = json!({ "credential": { "name": name, "key": "cloud" } });
    hourly(world, name, &front.url(), &credential).await?;
    available(world, name).await?;
    world.noise(name, 3).await?;
    front.affect(Mood::Answer(403), Asked::makes_final);
    world.create_backup(name, of_place(name)).await?;
    world.backup_blocked(name, &BackupPhase::Finalizing).await?;
    let wrong = good.replace(SECRET, "expired");
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &wrong).await?;
    says(world, name, "SignatureDoesNotMatch").await?;
    front.calm();
    tokio::time::sleep(Duration::from_secs(3)).await;
    ensure!(
        world.backups().get(name).await?.phase() == BackupPhase::Finalizing,
        "not kept"
    );
    ensure_secret(&world.client, NAMESPACE, name, "cloud", &good).await?;
    world.backup_ends(name, BackupPhase::Completed).await?;
    world.remove_location(name).await
}

async fn a_bucket_that_refuses_writes_is_unavailable_with_the_reason(
    world: &mut World,
) -> TestResult {
    let name = "no-writes";
    world.s3()?.create_bucket(name).await?;
    let front = world.faulty_s3().await?;
    front.affect(Mood::Answer(403), Asked::writes);
    hourly(
        world,
        name,
        &front.url(),
        &json!({ "validationFrequency": "2s" }),
    )
    .await?;
    let message = says(world, name, "s3:PutObject").await?;
    ensure!(
        message.contains(PROBE) && message.contains("accessMode to ReadOnly"),
        "{message}"
    );
    // Does what the message says.
    patch(world, name, json!({ "spec": { "accessMode": "ReadOnly" } })).await?;
    available(world, name).await?;
    let before = front.asked().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let asked = front.asked().split_off(before);
    ensure!(
        !asked.is_empty() && asked.iter().all(|asked| !asked.writes()),
        "{asked:?}"
    );
    patch(
        world,
        name,
        json!({ "spec": { "accessMode": "ReadWrite" } }),
    )
    .await?;
    says(world, name, "s3:PutObject").await?;
    front.calm();
    available(world, name).await?;
    // While it is unchanged, writing is not tested at each validation.
    let before = front.asked().len();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = front.asked().split_off(before);
    ensure!(
        asked.len() >= 2
            && asked
                .iter()
                .all(|asked| asked.query.contains("list-type=2")),
        "{asked:?}"
    );
    ensure!(world.s3()?.keys(name).await?.is_empty(), "something stays");
    world.remove_location(name).await
}

async fn a_bucket_that_refuses_deletions_is_available_and_reported(
    world: &mut World,
) -> TestResult {
    let name = "no-deletions";
    world.s3()?.create_bucket(name).await?;
    let front = world.faulty_s3().await?;
    front.affect(Mood::Answer(403), |asked| {
        asked.method == http::Method::DELETE || asked.query.contains("delete")
    });
    hourly(world, name, &front.url(), &json!({})).await?;
    let location = available(world, name).await?;
    let why = facts(&location)?.not_removable.context("not told")?;
    ensure!(why.contains(PROBE) && why.contains("AccessDenied"), "{why}");
    let note = told(world, name, "DeletesDenied").await?;
    ensure!(note.contains("expired"), "{note}");
    // The remaining key does no harm, neither here nor to a Velero server: it is in no folder of a
    // backup.
    ensure!(world.s3()?.keys(name).await? == [PROBE]);
    patch(
        world,
        name,
        json!({ "spec": { "validationFrequency": "2h" } }),
    )
    .await?;
    front.calm();
    patch(
        world,
        name,
        json!({ "spec": { "validationFrequency": "3h" } }),
    )
    .await?;
    eventually(
        "it is removed by the next look",
        PROMPT_TIMEOUT,
        async || {
            let clean = world.s3()?.keys(name).await?.is_empty();
            let told = facts(&world.locations().get(name).await?)?.not_removable;
            anyhow::Ok(when(clean && told.is_none(), format!("{told:?}")))
        },
    )
    .await?;
    world.remove_location(name).await
}

/// No keys accumulate in a bucket that keeps versions.
async fn versions_and_object_lock_of_a_bucket_are_reported(world: &mut World) -> TestResult {
    let url = world.s3()?.url();
    world.s3()?.create_bucket("keeps-nothing").await?;
    world
        .s3()?
        .create_versioned_bucket("keeps-versions")
        .await?;
    world.s3()?.create_locked_bucket("keeps-locked").await?;
    for (name, versions, lock, kept) in [
        ("keeps-nothing", Versions::Off, "off", 0),
        ("keeps-versions", Versions::Enabled, "off", 1),
        (
            "keeps-locked",
            Versions::Enabled,
            "on, COMPLIANCE for 1 days by default",
            1,
        ),
    ] {
        hourly(world, name, &url, &json!({})).await?;
        let found = facts(&available(world, name).await?)?;
        ensure!(
            found.versions == Some(versions) && found.unknown.is_none(),
            "{name}: {found:?}"
        );
        ensure!(
            found
                .lock
                .as_ref()
                .is_some_and(|found| found.to_string() == lock),
            "{name}: {found:?}"
        );
        // Each change triggers another test.
        for frequency in ["2h", "3h", "4h"] {
            let before = available(world, name).await?.status.last_validation_time;
            tokio::time::sleep(Duration::from_millis(1100)).await; // times are whole seconds
            patch(
                world,
                name,
                json!({ "spec": { "validationFrequency": frequency } }),
            )
            .await?;
            let validated = |location: &BackupStorageLocation| {
                let status = &location.status;
                status.phase == Some(LocationPhase::Available)
                    && status.last_validation_time != before
            };
            world
                .locations()
                .wait_until(name, "is validated again", PROMPT_TIMEOUT, validated)
                .await?;
        }
        let left = world.s3()?.versions(name).await?;
        ensure!(
            left == vec![(PROBE.to_owned(), false); kept],
            "{name}: {left:?}"
        );
    }
    // Without the right to read the versioning state, that is reported, and retried as well.
    let front = world.faulty_s3().await?;
    front.affect(Mood::Answer(403), |asked| {
        asked.query.contains("versioning")
    });
    world.s3()?.create_versioned_bucket("keeps-quiet").await?;
    for frequency in ["2h", "3h", "4h"] {
        let before = front.asked().len();
        hourly(
            world,
            "keeps-quiet",
            &front.url(),
            &json!({ "validationFrequency": frequency }),
        )
        .await?;
        let deletes = || {
            front.asked()[before..]
                .iter()
                .any(|asked| asked.query.contains("delete"))
        };
        until("it is looked at closely", PROMPT_TIMEOUT, async || {
            anyhow::Ok(deletes())
        })
        .await?;
        let found = facts(&available(world, "keeps-quiet").await?)?;
        let unknown = found.unknown.clone().unwrap_or_default();
        ensure!(
            unknown.contains("s3:GetBucketVersioning is not granted"),
            "{found:?}"
        );
    }
    world.remove_location("keeps-quiet").await?;
    let note = told(world, "keeps-locked", "ObjectLock").await?;
    ensure!(note.contains("COMPLIANCE for 1 days"), "{note}");
    let shown = world
        .kubectl_backup()
        .run(&["locations", "sync", "keeps-locked"])
        .await?
        .stdout;
    ensure!(
        shown.contains("COMPLIANCE for 1 days") && shown.contains("kept"),
        "{shown}"
    );
    for name in ["keeps-nothing", "keeps-versions", "keeps-locked"] {
        world.remove_location(name).await?;
    }
    Ok(())
}

async fn a_negative_period_is_named_by_its_location(world: &mut World) -> TestResult {
    let name = "negative-period";
    world.s3()?.create_bucket(name).await?;
    hourly(
        world,
        name,
        &world.s3()?.url(),
        &json!({ "backupSyncPeriod": "-5s" }),
    )
    .await?;
    let named = |location: &BackupStorageLocation| {
        let message = location.status.message.as_deref().unwrap_or_default();
        location.status.phase == Some(LocationPhase::Available)
            && message.contains("spec.backupSyncPeriod is negative (-5s), which counts as not set")
    };
    world
        .locations()
        .wait_until(name, "names the period", PROMPT_TIMEOUT, named)
        .await?;
    let told = world.kubectl_backup().run(&["doctor"]).await?.stdout;
    ensure!(
        told.contains("negative-period is Available")
            && told.contains("but spec.backupSyncPeriod is negative"),
        "{told}"
    );
    patch(world, name, json!({ "spec": { "backupSyncPeriod": "5m" } })).await?;
    let mended = |location: &BackupStorageLocation| {
        location
            .status
            .message
            .as_deref()
            .unwrap_or_default()
            .is_empty()
    };
    world
        .locations()
        .wait_until(name, "says nothing", PROMPT_TIMEOUT, mended)
        .await?;
    world.remove_location(name).await
}

async fn of_several_default_locations_the_newest_stays(world: &mut World) -> TestResult {
    let name = "second-default";
    world.s3()?.create_bucket(name).await?;
    hourly(world, name, &world.s3()?.url(), &json!({ "default": true })).await?;
    let result = async {
        let marked = async |name: &str| {
            Ok::<_, kube::Error>(world.locations().get(name).await?.spec.default == Some(true))
        };
        let one_is_left =
            async || Ok::<_, kube::Error>(!marked("default").await? && marked(name).await?);
        // The old one detects it at its next validation.
        until("the newer default is left", PROMPT_TIMEOUT, &one_is_left).await?;
        let note = told(world, "default", "NotDefault").await?;
        ensure!(note.contains("second-default is newer"), "{note}");
        // If it is set again, it is unset again.
        patch(world, "default", json!({ "spec": { "default": true } })).await?;
        until("the newer default is left", PROMPT_TIMEOUT, &one_is_left).await
    }
    .await;
    world.remove_location(name).await?;
    patch(world, "default", json!({ "spec": { "default": true } })).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let alone = world.locations().get("default").await?;
    ensure!(
        alone.spec.default == Some(true),
        "the only one is not left alone"
    );
    result
}

async fn foreign_folders_in_a_bucket_are_named_until_they_are_gone(
    world: &mut World,
) -> TestResult {
    let name = "shared-with-photos";
    world.s3()?.create_bucket(name).await?;
    let files = world.s3()?.files(name);
    let folder = files.join("photos");
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("1.jpg"), b"x")?;
    hourly(
        world,
        name,
        &world.s3()?.url(),
        &json!({ "validationFrequency": "2s" }),
    )
    .await?;
    let message = says(world, name, "photos").await?;
    ensure!(message.contains("expected only backups"), "{message}");
    ensure!(
        !files.join(PROBE).exists(),
        "it was written to all the same"
    );
    std::fs::remove_dir_all(&folder)?;
    available(world, name).await?;
    world.remove_location(name).await
}

//! Bad input gets a clear message with the object and the remedy; other objects are unaffected, and
//! nothing is lost.

use std::path::Path;

use backup_core::api::LocationPhase;
use backup_tests::{
    archive::tarball, binaries::Programs, control_plane::ControlPlane, install::ensure_secret,
    process::Process,
};
use object_store::{ObjectStoreExt as _, path::Path as Key};

use crate::prelude::*;

crate::tests! {
    a_malformed_ttl_is_refused_at_the_door,
    a_negative_ttl_is_refused_and_never_expires,
    a_schedule_is_refused_at_the_door_with_all_reasons,
    a_stored_backup_that_can_not_be_decoded_fails_alone,
    a_bucket_that_does_not_exist_is_named_with_the_remedy,
    a_bucket_that_refuses_is_named_with_the_remedy,
    a_tarball_that_is_cut_short_restores_nothing,
    a_tarball_with_a_path_that_climbs_out_restores_nothing,
    without_a_usable_cluster_the_programs_say_what_is_missing,
}

async fn a_malformed_ttl_is_refused_at_the_door(world: &mut World) -> TestResult {
    match create_with_ttl(world, "malformed", "tomorrow").await {
        Err(kube::Error::Api(status)) => says(&status.message, &["spec.ttl", "tomorrow"]),
        other => bail!("not refused: {other:?}"),
    }
}

/// If it was stored while the webhook was off, the reason is shown on the object.
async fn a_negative_ttl_is_refused_and_never_expires(world: &mut World) -> TestResult {
    match create_with_ttl(world, "negative", "-1h").await {
        Err(kube::Error::Api(status)) => says(&status.message, &["spec.ttl", "-1h"])?,
        other => bail!("not refused: {other:?}"),
    }
    let stores = async || {
        create_with_ttl(world, "negative", "-1h")
            .await
            .map(Probe::Ready)
    };
    let in_time = Duration::from_secs(20);
    world
        .unregistered(async || eventually("stored without the webhook", in_time, stores).await)
        .await?;
    let ended = world.backup_ended("negative").await?;
    ensure!(
        ended.phase() == BackupPhase::FailedValidation,
        "{:?}",
        ended.status
    );
    tokio::time::sleep(Duration::from_secs(2)).await;
    let kept = world
        .backups()
        .get("negative")
        .await
        .context("it was deleted")?;
    raw_backups(world).delete_object("negative").await?;
    ensure!(
        kept.metadata.deletion_timestamp.is_none(),
        "it is deleted: {kept:?}"
    );
    ensure!(kept.status.expiration.is_none(), "{:?}", kept.status);
    says(
        &kept.status.validation_errors.join(""),
        &["spec.ttl", "-1h"],
    )
}

/// A Schedule that was stored while the webhook was off can be corrected step by step.
async fn a_schedule_is_refused_at_the_door_with_all_reasons(world: &mut World) -> TestResult {
    let api = objects_in(&world.client, NAMESPACE, "velero.io/v1", "Schedule");
    let template = json!({ "ttl": "-1h", "csiSnapshotTimeout": "soon", "defaultVolumesToFsBackup": true, "includedNamespaces": ["a"] });
    let wrong = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "refused" },
        "spec": { "schedule": "61 * * * *", "paused": true, "template": template } });
    let all = [
        "spec.schedule",
        "61",
        "spec.template.ttl",
        "spec.template.csiSnapshotTimeout",
        "defaultVolumesToFsBackup",
    ];
    match api.create_json(wrong.clone()).await {
        Err(kube::Error::Api(status)) => says(&status.message, &all)?,
        other => bail!("not refused: {other:?}"),
    }
    let stores = async || api.create_json(wrong.clone()).await.map(Probe::Ready);
    let in_time = Duration::from_secs(20);
    world
        .unregistered(async || eventually("stored without the webhook", in_time, stores).await)
        .await?;
    for patch in [
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "spec": { "schedule": "@yearly" } }),
        json!({ "spec": { "template": { "ttl": "1h", "csiSnapshotTimeout": null } } }),
    ] {
        api.merge_patch("refused", patch.clone())
            .await
            .with_context(|| format!("{patch} is refused"))?;
    }
    match api
        .merge_patch("refused", json!({ "spec": { "schedule": "62 * * * *" } }))
        .await
    {
        Err(kube::Error::Api(status)) => {
            says(&status.message, &["spec.schedule", "62"])?;
            ensure!(
                !status.message.contains("defaultVolumesToFsBackup"),
                "it was there before: {}",
                status.message
            );
        }
        other => bail!("not refused: {other:?}"),
    }
    api.delete_object("refused").await?;
    Ok(())
}

/// Stored while the webhook was off.
async fn a_stored_backup_that_can_not_be_decoded_fails_alone(world: &mut World) -> TestResult {
    let stores = async || {
        create_with_ttl(world, "undecodable", "tomorrow")
            .await
            .map(Probe::Ready)
    };
    let in_time = Duration::from_secs(20);
    world
        .unregistered(async || eventually("stored without the webhook", in_time, stores).await)
        .await?;

    let raw = raw_backups(world);
    let failed = |backup: &DynamicObject| backup.data["status"]["phase"] == "FailedValidation";
    let failed = raw
        .wait_until("undecodable", "has failed", Duration::from_secs(30), failed)
        .await?;
    ensure!(
        failed.data["status"]["validationErrors"]
            .to_string()
            .contains("spec.ttl"),
        "{failed:?}"
    );
    world.config_maps("decodable", 3).await?;
    world.start_backup("decodable").await?;
    let ended = |backup: &DynamicObject| {
        let phase = backup.data["status"]["phase"].as_str().unwrap_or_default();
        !phase.is_empty() && BackupPhase::from(phase).is_terminal()
    };
    let other = raw
        .wait_until("decodable", "has ended", Duration::from_mins(1), ended)
        .await?;
    raw.delete_object("undecodable").await?;
    ensure!(
        other.data["status"]["phase"] == "Completed",
        "another backup ended otherwise: {other:?}"
    );
    Ok(())
}

async fn a_bucket_that_does_not_exist_is_named_with_the_remedy(world: &mut World) -> TestResult {
    let storage = json!({ "objectStorage": { "bucket": "no-such-bucket" } });
    world
        .apply_s3_location("missing", &world.s3()?.url(), &storage)
        .await?;
    let message = unavailable(world, "missing").await?;
    says(&message, &["no-such-bucket", "create"])?;

    let spec = into_location("missing", &["default"]);
    let status = world
        .run_backup("nowhere", spec, BackupPhase::FailedValidation)
        .await?
        .status;
    ensure!(
        status
            .validation_errors
            .iter()
            .any(|error| error.contains("missing")),
        "{status:?}"
    );
    Ok(())
}

async fn a_bucket_that_refuses_is_named_with_the_remedy(world: &mut World) -> TestResult {
    let credentials = "[default]\naws_access_key_id = nobody\naws_secret_access_key = wrong\n";
    ensure_secret(
        &world.client,
        NAMESPACE,
        "wrong-credentials",
        "cloud",
        credentials,
    )
    .await?;
    let more = json!({ "objectStorage": { "bucket": BUCKET }, "credential": { "name": "wrong-credentials" } });
    world
        .apply_s3_location("refused", &world.s3()?.url(), &more)
        .await?;
    let message = unavailable(world, "refused").await?;
    ensure!(
        message.contains(BUCKET) && message.to_lowercase().contains("credential"),
        "{message}"
    );
    ensure!(
        !message.contains("wrong\n") && !message.contains("secret_access_key"),
        "a secret is shown: {message}"
    );
    Ok(())
}

async fn a_tarball_that_is_cut_short_restores_nothing(world: &mut World) -> TestResult {
    world.backed_up("cut", 200).await?;
    let (bucket, key) = (
        world.s3()?.bucket(BUCKET)?,
        Key::from("backups/cut/cut.tar.gz"),
    );
    let whole = bucket.get(&key).await?.bytes().await?;
    bucket
        .put(&key, whole.slice(..whole.len() / 2).into())
        .await?;
    fails_and_restores_nothing(world, "cut", "cut.tar.gz").await
}

async fn a_tarball_with_a_path_that_climbs_out_restores_nothing(world: &mut World) -> TestResult {
    world.backed_up("climbs", 3).await?;
    let bytes = tarball(&[(
        "resources/configmaps/namespaces/climbs/../../../../escaped.json",
        b"{}",
    )])?;
    world
        .s3()?
        .bucket(BUCKET)?
        .put(&"backups/climbs/climbs.tar.gz".into(), bytes.into())
        .await?;
    fails_and_restores_nothing(world, "climbs", "..").await
}

async fn without_a_usable_cluster_the_programs_say_what_is_missing(
    world: &mut World,
) -> TestResult {
    let folder = world.folder().join("unusable");
    std::fs::create_dir_all(&folder)?;
    let garbage = folder.join("garbage.kubeconfig");
    std::fs::write(&garbage, "{ this is: [no kubeconfig")?;
    let nowhere = folder.join("nowhere.kubeconfig");
    std::fs::write(
        &nowhere,
        std::fs::read_to_string(world.plane.admin_kubeconfig())?
            .replace("https://127.0.0.1:", "https://127.0.0.1:1"),
    )?;
    if std::env::var_os("KUBECONFIG_FOR_TESTS").is_some() {
        return Err(Skip("it needs a cluster of its own, without definitions").into());
    }
    let empty = ControlPlane::start(&folder, 1, &[]).await?;

    let programs = Programs::build("dev")?;
    for (kubeconfig, expected) in [
        (
            folder.join("absent.kubeconfig").as_path(),
            ["absent.kubeconfig"; 2],
        ),
        (&garbage, ["garbage.kubeconfig"; 2]),
        (&nowhere, ["does not answer", "reach"]),
        (
            empty.admin_kubeconfig(),
            ["kubectl backup upgrade", "kubectl backup install"],
        ),
    ] {
        let controller = ["--metrics-address=127.0.0.1:0"];
        for (program, args, expected) in [
            (&programs.controller, &controller, expected[0]),
            (&programs.kubectl_backup, &["get"], expected[1]),
        ] {
            let said = ends_with_an_error(program, args, kubeconfig, &folder).await?;
            ensure!(
                said.contains(expected),
                "{} does not say {expected:?} but:\n{said}",
                program.display()
            );
        }
    }
    Ok(())
}

/// Runs a program that should end by itself, with an error. Returns its output.
async fn ends_with_an_error(
    program: &Path,
    args: &[&str],
    kubeconfig: &Path,
    folder: &Path,
) -> anyhow::Result<String> {
    let name =
        format!("bad-{}-{}", program.display(), kubeconfig.display()).replace(['/', '.'], "_");
    let args = args.iter().map(ToString::to_string).collect();
    let mut process = Process::start_program(&name, program, args, kubeconfig, folder)?;
    until("the program ended", Duration::from_mins(1), async || {
        anyhow::Ok(process.has_ended())
    })
    .await?;
    let said = process.log();
    ensure!(!said.contains("panicked"), "a panic: {said}");
    Ok(said)
}

/// The API of Backups that need not be decodable.
fn raw_backups(world: &World) -> Api<DynamicObject> {
    objects_in(&world.client, NAMESPACE, "velero.io/v1", "Backup")
}

async fn create_with_ttl(world: &World, name: &str, ttl: &str) -> kube::Result<DynamicObject> {
    let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": name },
        "spec": { "ttl": ttl, "includedNamespaces": ["default"] } });
    raw_backups(world).create_json(object).await
}

async fn unavailable(world: &World, name: &str) -> anyhow::Result<String> {
    let location = world
        .location_in(name, LocationPhase::Unavailable, Duration::from_mins(1))
        .await?;
    location.status.message.context("no message")
}

async fn fails_and_restores_nothing(
    world: &World,
    name: &str,
    expected: &str,
) -> anyhow::Result<()> {
    world.delete_namespace(name).await?;
    let restore = world
        .run_restore(name, from_backup(name), RestorePhase::Failed)
        .await?;
    let reason = restore.status.failure_reason.context("no reason")?;
    says(&reason, &[expected])?;
    ensure!(
        world.count_config_maps(name).await? == 0,
        "something was restored"
    );
    let stored = world.backups().get(name).await?;
    ensure!(
        stored.phase() == BackupPhase::Completed,
        "the backup itself has changed: {}",
        stored.phase()
    );
    let keys = world.s3()?.keys(BUCKET).await?;
    ensure!(
        keys.contains(&format!("backups/{name}/velero-backup.json")),
        "something stored is lost: {keys:?}"
    );
    Ok(())
}

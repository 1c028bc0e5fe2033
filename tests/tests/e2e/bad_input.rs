//! Bad input gets a clear message that names the object and the remedy; nobody else is affected, and nothing is lost.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec, BackupStorageLocation, LocationPhase, RestorePhase};
use backup_tests::{
    World,
    archive::tarball,
    binaries::Programs,
    control_plane::ControlPlane,
    install::NAMESPACE,
    process::{Process, Spec},
    wait::{Probe, eventually, when},
    world::{
        BUCKET,
        backups::{from_backup, of_namespaces},
    },
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
    core::ApiResource,
};
use object_store::{ObjectStoreExt as _, path::Path as Key};
use serde_json::json;

crate::tests! {
    a_malformed_ttl_is_refused_at_the_door,
    a_stored_backup_that_can_not_be_decoded_fails_alone,
    a_bucket_that_does_not_exist_is_named_with_the_remedy,
    a_bucket_that_refuses_is_named_with_the_remedy,
    a_tarball_that_is_cut_short_restores_nothing,
    a_tarball_with_a_path_that_climbs_out_restores_nothing,
    without_a_usable_cluster_the_programs_say_what_is_missing,
}

async fn a_malformed_ttl_is_refused_at_the_door(world: &mut World) -> anyhow::Result<()> {
    match malformed(world, "malformed").await {
        Err(kube::Error::Api(status)) => {
            ensure!(
                status.message.contains("spec.ttl") && status.message.contains("tomorrow"),
                "{}",
                status.message
            );
            Ok(())
        }
        other => anyhow::bail!("not refused: {other:?}"),
    }
}

/// Stored by someone while the webhook was off.
async fn a_stored_backup_that_can_not_be_decoded_fails_alone(world: &mut World) -> anyhow::Result<()> {
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let mut registration = webhooks.get("backup-webhook").await?;
    webhooks.delete("backup-webhook", &DeleteParams::default()).await?;
    let stored = eventually("stored without the webhook", Duration::from_secs(20), async || {
        anyhow::Ok(match malformed(world, "undecodable").await {
            Ok(_) => Probe::Ready(()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await;
    registration.metadata.resource_version = None;
    registration.metadata.uid = None;
    webhooks.create(&PostParams::default(), &registration).await?;
    stored?;

    let raw: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), NAMESPACE, &ApiResource::erase::<Backup>(&()));
    let failed = eventually("the undecodable backup failed", Duration::from_secs(30), async || {
        let status = raw.get("undecodable").await?.data["status"].clone();
        Ok::<_, kube::Error>(match status["phase"].as_str() {
            Some("FailedValidation") => Probe::Ready(status),
            _ => Probe::NotYet(status.to_string()),
        })
    })
    .await?;
    ensure!(failed["validationErrors"].to_string().contains("spec.ttl"), "{failed}");
    world.config_maps("decodable", 3).await?;
    world.create_backup("decodable", of_namespaces(&["decodable"])).await?;
    let other = raw_ended(&raw, "decodable").await?;
    raw.delete("undecodable", &DeleteParams::default()).await?;
    ensure!(other == "Completed", "another backup ended {other}");
    Ok(())
}

async fn a_bucket_that_does_not_exist_is_named_with_the_remedy(world: &mut World) -> anyhow::Result<()> {
    let url = world.s3()?.url();
    world
        .apply_location(
            "missing",
            json!({ "provider": "aws", "objectStorage": { "bucket": "no-such-bucket" },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
            "credential": { "name": "cloud-credentials", "key": "cloud" } }),
        )
        .await?;
    let message = unavailable(world, "missing").await?;
    ensure!(message.contains("no-such-bucket") && message.contains("create"), "{message}");

    let spec = BackupSpec { storage_location: Some("missing".into()), ..of_namespaces(&["default"]) };
    world.create_backup("nowhere", spec).await?;
    let backup = world.backup_ends("nowhere", BackupPhase::FailedValidation).await?;
    ensure!(
        backup.status.validation_errors.iter().any(|error| error.contains("missing")),
        "{:?}",
        backup.status
    );
    Ok(())
}

async fn a_bucket_that_refuses_is_named_with_the_remedy(world: &mut World) -> anyhow::Result<()> {
    let credentials = "[default]\naws_access_key_id = nobody\naws_secret_access_key = wrong\n";
    backup_tests::install::ensure_secret(&world.client, NAMESPACE, "wrong-credentials", "cloud", credentials)
        .await?;
    let url = world.s3()?.url();
    world
        .apply_location(
            "refused",
            json!({ "provider": "aws", "objectStorage": { "bucket": BUCKET },
            "config": { "region": "us-east-1", "s3ForcePathStyle": "true", "s3Url": url },
            "credential": { "name": "wrong-credentials", "key": "cloud" } }),
        )
        .await?;
    let message = unavailable(world, "refused").await?;
    ensure!(message.contains(BUCKET) && message.to_lowercase().contains("credential"), "{message}");
    ensure!(
        !message.contains("wrong\n") && !message.contains("secret_access_key"),
        "a secret is shown: {message}"
    );
    Ok(())
}

async fn a_tarball_that_is_cut_short_restores_nothing(world: &mut World) -> anyhow::Result<()> {
    world.config_maps("cut", 200).await?;
    world.create_backup("cut", of_namespaces(&["cut"])).await?;
    world.backup_ended("cut").await?;
    let (bucket, key) = (world.s3()?.bucket(BUCKET)?, Key::from("backups/cut/cut.tar.gz"));
    let whole = bucket.get(&key).await?.bytes().await?;
    bucket.put(&key, whole.slice(..whole.len() / 2).into()).await?;
    fails_and_restores_nothing(world, "cut", "cut.tar.gz").await
}

async fn a_tarball_with_a_path_that_climbs_out_restores_nothing(world: &mut World) -> anyhow::Result<()> {
    world.config_maps("climbs", 3).await?;
    world.create_backup("climbs", of_namespaces(&["climbs"])).await?;
    world.backup_ended("climbs").await?;
    let bytes = tarball(&[("resources/configmaps/namespaces/climbs/../../../../escaped.json", b"{}")])?;
    world.s3()?.bucket(BUCKET)?.put(&"backups/climbs/climbs.tar.gz".into(), bytes.into()).await?;
    fails_and_restores_nothing(world, "climbs", "..").await
}

async fn without_a_usable_cluster_the_programs_say_what_is_missing(world: &mut World) -> anyhow::Result<()> {
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
        return Err(crate::Skip("it needs a cluster of its own, without definitions").into());
    }
    let empty = ControlPlane::start(&folder, 1, &[]).await?;

    let programs = Programs::build("dev")?;
    for (kubeconfig, expected) in [
        (folder.join("absent.kubeconfig").as_path(), ["absent.kubeconfig"; 2]),
        (&garbage, ["garbage.kubeconfig"; 2]),
        (&nowhere, ["does not answer", "reach"]),
        (empty.admin_kubeconfig(), ["deploy/crds"; 2]),
    ] {
        let controller = ["--metrics-address=127.0.0.1:0"];
        for (program, args, expected) in
            [(&programs.controller, &controller, expected[0]), (&programs.plugin, &["get"], expected[1])]
        {
            let said = ends_with_an_error(program, args, kubeconfig, &folder).await?;
            ensure!(said.contains(expected), "{} does not say {expected:?} but:\n{said}", program.display());
        }
    }
    Ok(())
}

/// Runs a program that should end by itself, with an error; what it printed.
async fn ends_with_an_error(
    program: &Path,
    args: &[&str],
    kubeconfig: &Path,
    folder: &Path,
) -> anyhow::Result<String> {
    let name = format!("bad-{}-{}", program.display(), kubeconfig.display()).replace(['/', '.'], "_");
    let mut process = Process::start(
        Spec {
            name,
            program: program.to_owned(),
            args: args.iter().map(ToString::to_string).collect(),
            env: BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.display().to_string())]),
        },
        folder,
    )?;
    eventually("the program ended", Duration::from_mins(1), async || {
        anyhow::Ok(match process.check() {
            Ok(()) => Probe::NotYet(process.tail(3)),
            Err(_) => Probe::Ready(()),
        })
    })
    .await?;
    let said = process.log();
    ensure!(!said.contains("panicked"), "a panic: {said}");
    Ok(said)
}

async fn malformed(world: &World, name: &str) -> kube::Result<DynamicObject> {
    let raw: Api<DynamicObject> =
        Api::namespaced_with(world.client.clone(), NAMESPACE, &ApiResource::erase::<Backup>(&()));
    let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": name },
        "spec": { "ttl": "tomorrow", "includedNamespaces": ["default"] } });
    raw.create(&PostParams::default(), &serde_json::from_value(object).map_err(kube::Error::SerdeError)?)
        .await
}

async fn raw_ended(raw: &Api<DynamicObject>, name: &str) -> anyhow::Result<String> {
    eventually(&format!("{name} ended"), Duration::from_mins(1), async || {
        let phase = raw.get(name).await?.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
        Ok::<_, kube::Error>(match backup_core::api::BackupPhase::from(phase.as_str()) {
            known if known.is_terminal() && !phase.is_empty() => Probe::Ready(phase),
            _ => Probe::NotYet(phase),
        })
    })
    .await
}

async fn unavailable(world: &World, name: &str) -> anyhow::Result<String> {
    let api: Api<BackupStorageLocation> = world.api();
    eventually("location unavailable", Duration::from_mins(1), async || {
        let status = api.get(name).await?.status;
        Ok::<_, kube::Error>(match (status.phase, status.message) {
            (Some(LocationPhase::Unavailable), Some(message)) => Probe::Ready(message),
            other => Probe::NotYet(format!("{other:?}")),
        })
    })
    .await
}

async fn fails_and_restores_nothing(world: &World, name: &str, expected: &str) -> anyhow::Result<()> {
    world.delete_namespace(name).await?;
    let spec = from_backup(name);
    world.create_restore(name, spec).await?;
    let restore = world.restore_ends(name, RestorePhase::Failed).await?;
    let reason = restore.status.failure_reason.context("no reason")?;
    ensure!(reason.contains(expected), "{reason}");
    ensure!(world.count_config_maps(name).await? == 0, "something was restored");
    let stored = world.backups().get(name).await?;
    ensure!(stored.phase() == BackupPhase::Completed, "the backup itself has changed: {}", stored.phase());
    eventually("nothing stored is lost", Duration::from_secs(5), async || {
        let keys = world.s3()?.keys(BUCKET).await?;
        anyhow::Ok(when(keys.contains(&format!("backups/{name}/velero-backup.json")), format!("{keys:?}")))
    })
    .await
}

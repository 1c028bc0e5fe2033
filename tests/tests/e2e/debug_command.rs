//! `kubectl backup debug`: the archive's contents, which include no secrets.

use std::{collections::BTreeMap, io::Read as _, os::unix::fs::PermissionsExt as _, path::Path};

use backup_core::api::BackupStorageLocation;
use backup_tests::install;
use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::{Event, Pod};

use crate::prelude::*;

crate::tests! {
    the_archive_for_a_report_has_everything_but_secrets,
    who_may_only_read_gets_an_archive_that_names_the_rest,
}

/// A secret that no archive may contain.
const PLANTED: &str = "correct-horse-battery";

/// Puts a secret wherever there may be one.
async fn plant(world: &World, name: &str) -> anyhow::Result<()> {
    install::ensure_secret(&world.client, NAMESPACE, name, "password", PLANTED).await?;
    let applied = json!({ "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"x\": \"{PLANTED}\"}}") });
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": applied, "labels": { "app.kubernetes.io/name": "backup-controller" } },
        "spec": { "containers": [{ "name": "main", "image": "none", "env": [{ "name": "KEY", "value": PLANTED }] }] },
    }))?;
    world.api::<Pod>().create_object(&pod).await?;
    let location: BackupStorageLocation = serde_json::from_value(json!({
        "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation", "metadata": { "name": name, "annotations": applied },
        "spec": { "provider": "aws", "objectStorage": { "bucket": "none" }, "config": { "region": "eu", "accountKey": PLANTED } },
    }))?;
    world.locations().create_object(&location).await?;
    let event: Event = serde_json::from_value(json!({
        "metadata": { "name": name }, "type": "Warning", "reason": "Planted",
        "message": format!("password={PLANTED} was refused"),
        "involvedObject": { "kind": "Backup", "name": name, "namespace": NAMESPACE },
    }))?;
    world.api::<Event>().create_object(&event).await?;
    Ok(())
}

/// Removes what would disturb other tests.
async fn uproot(world: &World, name: &str) -> anyhow::Result<()> {
    world.api::<Pod>().delete_object(name).await?;
    Ok(world.locations().delete_object(name).await?)
}

/// The files of an archive, by path below its folder.
fn opened(file: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(file)?));
    let mut files = BTreeMap::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text)?;
        files.insert(
            path.split_once('/').context("no folder")?.1.to_owned(),
            text,
        );
    }
    Ok(files)
}

fn is_without_secrets(files: &BTreeMap<String, String>) -> anyhow::Result<()> {
    for (name, text) in files {
        ensure!(!text.contains(PLANTED), "{name} has the secret:\n{text}");
    }
    Ok(())
}

async fn the_archive_for_a_report_has_everything_but_secrets(world: &mut World) -> TestResult {
    let name = "debug-all";
    world.config_maps(name, 3).await?;
    let mut spec = of_namespaces(&[name]);
    spec.hooks = serde_json::from_value(
        json!({ "resources": [{ "name": "dump", "includedNamespaces": ["none"],
        "pre": [{ "exec": { "command": ["mysql", format!("-p{PLANTED}")] } }] }] }),
    )?;
    world.back_up(name, spec).await?;
    plant(world, name).await?;
    let plugin = world.kubectl_backup();
    let file = world.folder().join("debug.tar.gz");
    let output = file.display().to_string();
    let backup = format!("--backup={name}");
    let refused = plugin.fails(2, &["debug", &backup, "-o", &output]).await?;
    says(&refused.stderr, &["refusing to write", "--yes"])?;
    ensure!(!file.exists(), "written without a yes");
    let ran = plugin
        .succeeds(&["debug", &backup, "-o", &output, "--yes"])
        .await?;
    ensure!(ran.stdout.is_empty(), "{}", ran.stdout);
    println!("  an archive is made in {:?}", ran.elapsed);
    ensure!(
        std::fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600,
        "others can read it"
    );
    let files = opened(&file)?;
    is_without_secrets(&files)?;
    for (part, words) in [
        ("version.txt", "backup-controller v"),
        ("doctor.txt", "API server"),
        ("status.txt", "not protected"),
        ("locks.txt", ""),
        ("locations.yaml", "accountKey: REDACTED"),
        ("snapshot-locations.yaml", "kind: List"),
        ("schedules.yaml", "kind: List"),
        ("deployments.yaml", "kind: List"),
        ("events.yaml", "password=REDACTED was refused"),
        ("pods.yaml", "value: REDACTED"),
        ("webhook-configuration.yaml", "path: REDACTED"),
        ("backup/describe.txt", "Completed"),
        ("backup/describe.yaml", "BackupDescription"),
        ("backup/object.yaml", "command: REDACTED"),
        ("backup/log.txt", "level=info"),
        ("backup/results.json", "errors"),
        ("contents.txt", "In it, "),
    ] {
        let text = files
            .get(part)
            .with_context(|| format!("no {part}: {:?}\n{}", files.keys(), ran.stderr))?;
        ensure!(text.contains(words), "{part}: no {words:?} in\n{text}");
        ensure!(
            part == "contents.txt" || ran.stderr.contains(part),
            "{part} is not listed: {}",
            ran.stderr
        );
    }
    // No node runs the pod: its log is empty, or unavailable.
    ensure!(
        files["contents.txt"].contains(&format!("logs/{name}/main.txt")),
        "{}",
        files["contents.txt"]
    );
    let again = plugin.fails(1, &["debug", "-o", &output, "--yes"]).await?;
    says(&again.stderr, &["exists", "--force"])?;
    plugin
        .succeeds(&["debug", "-o", &output, "--yes", "--force"])
        .await?;
    uproot(world, name).await
}

async fn who_may_only_read_gets_an_archive_that_names_the_rest(world: &mut World) -> TestResult {
    let name = "debug-reader";
    world.config_maps(name, 3).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    world
        .restore(name, into_namespace(name, &format!("{name}-too")))
        .await?;
    plant(world, name).await?;
    let file = world.folder().join("debug-reader.tar.gz");
    let output = file.display().to_string();
    let restore = format!("--restore={name}");
    let reader = world.reader().await?;
    let ran = reader
        .succeeds(&["debug", &restore, "-o", &output, "--yes"])
        .await?;
    let files = opened(&file)?;
    is_without_secrets(&files)?;
    for part in [
        "version.txt",
        "locations.yaml",
        "events.yaml",
        "restore/log.txt",
        "restore/describe.txt",
    ] {
        ensure!(files.contains_key(part), "no {part}: {}", ran.stderr);
    }
    let (_, missing) = ran
        .stderr
        .split_once("Not in it:")
        .context("nothing is missing")?;
    for part in [
        "pods.yaml",
        "deployments.yaml",
        "webhook-configuration.yaml",
        "logs",
    ] {
        ensure!(!files.contains_key(part), "{part} is there");
        let line = missing
            .lines()
            .find(|line| line.trim_start().starts_with(part));
        ensure!(
            line.is_some_and(|line| line.contains("forbidden")),
            "{part}: {missing}"
        );
    }
    // An account without rights gets messages about that.
    let stranger = world.kubectl_backup_as("stranger", None).await?;
    let ran = stranger
        .succeeds(&["debug", &restore, "-o", &output, "--yes", "--force"])
        .await?;
    says(&ran.stderr, &["restore/log.txt", "forbidden"])?;
    is_without_secrets(&opened(&file)?)?;
    uproot(world, name).await
}

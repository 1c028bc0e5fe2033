//! `cargo xtask bench cli`: response times of the command, compared with curl and kubectl for the
//! same task.

mod archive;
mod status;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{Backup, DownloadRequest, download_request::DownloadRequestPhase},
    reading::{KEY_HEADER, Key},
};
use backup_tests::{
    World,
    api::ApiExt as _,
    binaries::build_clients,
    install::NAMESPACE,
    kubectl_backup::Ran,
    network,
    world::{BUCKET, downloads::read_request},
};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use kube::{Api, ResourceExt as _, config::Kubeconfig};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{
    stats::Sample,
    table::{Row, Table, Target},
};

/// Maximum ratio between the time of the command and that of the comparison.
const MAX_RATIO: f64 = 1.5;
/// Maximum time for its help (ms).
const MAX_HELP_MILLIS: f64 = 10.0;
/// Maximum memory of the command (MiB).
const MAX_MEMORY_MIB: f64 = 64.0;
/// Number of items and operations of the large backup.
const ITEMS: usize = 10_000;
const OPERATIONS: usize = 1_000;
/// Runs per measurement; the median counts.
const RUNS: usize = 7;
const NAME: &str = "large";
/// Files that `describe --details` reads.
const FILES: [(&str, &str); 4] = [
    ("BackupResults", "results.gz"),
    ("BackupItemOperations", "itemoperations.json.gz"),
    ("BackupResourceList", "resource-list.json.gz"),
    ("BackupVolumeInfos", "volumeinfo.json.gz"),
];

/// Measures in a separate network. It has no internet access, so kubectl is built first.
pub fn run_inside(backups: usize) -> anyhow::Result<()> {
    build_clients()?;
    let backups = format!("--backups={backups}");
    let ended_well = network::run_inside("release", &["bench", "cli", &backups], |line| {
        println!("{line}");
    })?;
    ensure!(ended_well, "it could not be measured; the reason is above");
    Ok(())
}

pub async fn measure(world: &World, backups: usize, table: &mut Table) -> anyhow::Result<()> {
    let person = world.kubectl_backup();
    let api = world.backups();
    let help = middle(async || Ok(person.succeeds(&["--help"]).await?.elapsed)).await?;
    table.row(&Row {
        what: "--help".to_owned(),
        found: format!("{help:.1} ms"),
        beside: "-".to_owned(),
        target: Target::at_most(help, MAX_HELP_MILLIS, " ms"),
    });

    let large = api.create_object(&backup(NAME)?).await?;
    store(world, &large)?;
    let line = ["describe", NAME, "--details"];
    let screen = person.stdout(&line).await?;
    ensure!(
        !screen.contains("unavailable") && screen.lines().count() > ITEMS,
        "{}",
        &screen[..2000]
    );
    let described = middle(async || Ok(person.succeeds(&line).await?.elapsed)).await?;
    let curl = Curl::of(world).await?;
    let fetched = middle(async || curl.fetch(&large).await).await?;
    table.row(&compared(
        format!("describe --details of {ITEMS} items and {OPERATIONS} operations"),
        described,
        "curl",
        fetched,
        "the four files, asked for and fetched by curl at the same time",
    ));

    archive::measure(world, table).await?;

    eprintln!("creating {backups} backups");
    let all = (0..backups).map(async |number| {
        let mut one = backup(&format!("nightly-{number:05}"))?;
        let schedule = number % status::SCHEDULES;
        one.spec.included_namespaces = status::covered(schedule);
        one.labels_mut().insert(
            "velero.io/schedule-name".to_owned(),
            format!("tenants-{schedule:02}"),
        );
        api.create_object(&one).await?;
        anyhow::Ok(())
    });
    stream::iter(all)
        .buffer_unordered(16)
        .try_collect::<()>()
        .await?;
    let kubectl = world.kubectl()?;
    let line = ["get", "backups.velero.io", "-n", NAMESPACE];
    kubectl.succeeds(&line).await?;
    let theirs = middle(async || Ok(kubectl.succeeds(&line).await?.elapsed)).await?;
    let ours = middle(async || Ok(person.succeeds(&["get"]).await?.elapsed)).await?;
    let what = format!("get of {backups} backups");
    let how = "kubectl get, two columns";
    table.row(&compared(what, ours, "kubectl", theirs, how));
    status::measure(world, backups, table).await
}

/// A row with the times of the command and of what it is compared with (milliseconds).
fn compared(what: String, ours: f64, other: &str, theirs: f64, how: &str) -> Row {
    Row {
        what,
        found: format!("{ours:.0} ms, {:.2} times {other}", ours / theirs),
        beside: format!("{theirs:.0} ms: {how}"),
        target: Target::at_most(ours / theirs, MAX_RATIO, " times"),
    }
}

/// The median time of several runs (milliseconds).
async fn middle(run: impl AsyncFn() -> anyhow::Result<Duration>) -> anyhow::Result<f64> {
    let mut times = Sample::default();
    for _ in 0..RUNS {
        times.push(run().await?);
    }
    Ok(times.median())
}

fn backup(name: &str) -> anyhow::Result<Backup> {
    let operations = if name == NAME { OPERATIONS } else { 0 };
    Ok(serde_json::from_value(json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "velero.io/storage-location": "default" } },
        "spec": { "storageLocation": "default", "ttl": "720h0m0s", "includedNamespaces": ["*"], "hooks": {},
            "csiSnapshotTimeout": "10m0s", "itemOperationTimeout": "4h0m0s", "snapshotMoveData": false },
        "status": { "version": 1, "formatVersion": "1.1.0", "phase": "PartiallyFailed", "startTimestamp": "2026-01-01T00:00:00Z",
            "completionTimestamp": "2026-01-01T00:01:00Z", "expiration": "2126-01-01T00:00:00Z", "errors": 20, "warnings": 200,
            "backupItemOperationsAttempted": operations, "backupItemOperationsCompleted": operations,
            "progress": { "totalItems": ITEMS, "itemsBackedUp": ITEMS }, "hookStatus": {} },
    }))?)
}

/// Writes the files of a backup directly into the bucket.
fn store(world: &World, backup: &Backup) -> anyhow::Result<()> {
    world.store_backup(BUCKET, NAME, &serde_json::to_value(backup)?)?;
    let names: Vec<String> = (0..ITEMS / 4)
        .map(|number| format!("namespace-{}/web-{number:05}", number % 40))
        .collect();
    let contents: [Value; 4] = [
        json!({ "errors": { "namespaces": { "shop": result_lines("error", 20) } }, "warnings": { "namespaces": { "shop": result_lines("warning", 200) } } }),
        (0..OPERATIONS)
            .map(|number| operation(backup, number))
            .collect(),
        json!({ "v1/Pod": names, "v1/ConfigMap": names, "v1/Secret": names, "apps/v1/Deployment": names }),
        json!([]),
    ];
    for ((_, file), content) in FILES.iter().zip(contents) {
        world.store_file(BUCKET, NAME, file, &content)?;
    }
    Ok(())
}

/// Lines of a result, of this kind.
fn result_lines(kind: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| {
            format!("{kind} of pods web-{number:05}: something that takes a line to tell")
        })
        .collect()
}

/// An operation of the backup that has ended.
fn operation(backup: &Backup, number: usize) -> Value {
    json!({ "spec": { "backupName": NAME, "backupUID": backup.uid(), "backupItemAction": "example.io/operate", "operationID": format!("operation-{number}"),
            "resourceIdentifier": { "Group": "", "Resource": "persistentvolumeclaims", "Namespace": "shop", "Name": format!("data-{number}") } },
            "status": { "phase": "Completed", "nCompleted": 1000, "nTotal": 1000, "operationUnits": "bytes", "created": "2026-01-01T00:00:01Z", "updated": "2026-01-01T00:00:41Z" } })
}

/// Reads the same files by hand: requests, and curl.
struct Curl {
    api: Api<DownloadRequest>,
    server: String,
    token: String,
}

impl Curl {
    async fn of(world: &World) -> anyhow::Result<Self> {
        let config = Kubeconfig::read_from(world.person("curl", Some("backup-reader")).await?)?;
        let server = config
            .clusters
            .first()
            .and_then(|one| one.cluster.as_ref()?.server.clone());
        let info = serde_json::to_value(&config.auth_infos)?;
        Ok(Self {
            api: world.api(),
            server: server.context("no server")?,
            token: info[0]["user"]["token"]
                .as_str()
                .context("no token")?
                .to_owned(),
        })
    }

    async fn fetch(&self, of: &Backup) -> anyhow::Result<Duration> {
        let start = std::time::Instant::now();
        try_join_all(FILES.map(|(kind, _)| self.file(kind, of))).await?;
        Ok(start.elapsed())
    }

    async fn file(&self, kind: &str, of: &Backup) -> anyhow::Result<()> {
        // A fixed key suffices here: nothing is secret.
        let key = Key::new([7; backup_core::reading::KEY_LENGTH]);
        let request = read_request(kind, &of.name_any(), &of.uid().unwrap_or_default(), &key);
        let name = self.api.create_object(&request).await?.name_any();
        let path = loop {
            let status = self.api.get(&name).await?.status;
            if status.phase == Some(DownloadRequestPhase::Processed) {
                break status.download_url.unwrap_or_default();
            }
            ensure!(
                status.phase != Some(DownloadRequestPhase::Failed),
                "{status:?}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let mut curl = Command::new("curl");
        curl.args(["-sSkf", "-o", "/dev/null", "-H"])
            .arg(format!("Authorization: Bearer {}", self.token))
            .args(["-H", &format!("{KEY_HEADER}: {}", key.as_str())])
            .arg(format!("{}{path}", self.server));
        Ran::of(curl).await?.expect_code(0)?;
        Ok(())
    }
}

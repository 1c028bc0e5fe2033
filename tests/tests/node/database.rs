//! A database that is written to, and a block volume. Both are in one namespace, which is backed
//! up, lost and restored once.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use backup_tests::{
    Skip,
    node::{Node, POSTGRES, POSTGRES_USER, TOOLS, csi::STORAGE_CLASS, loops, postgres_version},
    wait::{Probe, eventually, when},
};
use serde_json::{Value, json};

use crate::{
    installation::SOON,
    steps::{back_up, in_pod_of, lose, restore, wait_for_deployment},
};

/// Namespace of both; also the name of the database's Deployment.
const DATABASE: &str = "database";
/// Name of the Deployment with the block volume, and of its claim.
const DISK: &str = "disk";
const BACKUP: &str = "database-first";

const NO_POSTGRES: Skip =
    Skip("PostgreSQL is not installed: apt-get install postgresql postgresql-contrib");
const NO_LOOPS: Skip = Skip("this machine has no loop devices");

/// Starts the server, after a crash too.
const START: &str = r#"
set -e
if ! [ -e "$PGDATA/PG_VERSION" ]; then
  initdb --data-checksums --no-locale --encoding=UTF8 --username=postgres --auth=trust --wal-segsize=1 --no-sync
fi
# The server in another container has left it; the number may be of another program here.
rm -f "$PGDATA/postmaster.pid"
options="-k /tmp -c listen_addresses= -c shared_buffers=16MB"
if ! pg_ctl start --wait --log=/tmp/log --options="$options"; then
  cat /tmp/log
  exit 1
fi
exec sleep 1000000
"#;

/// Commits a row and the number of rows, again and again, while the container lives. The pause
/// bounds the size.
const WRITE: &str = r#"
set -e
psql --quiet --set=ON_ERROR_STOP=1 <<END
CREATE TABLE rows (number bigint PRIMARY KEY, text text NOT NULL);
CREATE TABLE counter (value bigint NOT NULL);
INSERT INTO counter VALUES (0);
END
psql --command="DO 'BEGIN LOOP
  UPDATE counter SET value = value + 1;
  INSERT INTO rows SELECT value, repeat(md5(value::text), 8) FROM counter;
  COMMIT;
  PERFORM pg_sleep(0.001);
END LOOP; END'" > /tmp/writer 2>&1 &
"#;

/// Number of rows, the first and the last one, and the number that was committed with the last.
const COUNT: &str =
    "SELECT count(*), min(number), max(number), (SELECT value FROM counter) FROM rows";

/// Compares every page with its checksum, tables with their form, and indexes with their tables;
/// the offline check includes what no table refers to.
const CHECK: &str = "set -e
pg_amcheck --all --install-missing --heapallindexed
pg_ctl stop --wait --mode=fast
pg_checksums --check";

/// Prints what the block volume begins with; the rest is zeros.
const CONTENTS: &str = "contents() { seq 1500000; head -c 4194304 /dev/zero; seq 300000; }\n";
/// Size of the block volume (bytes).
const DISK_BYTES: u64 = 32 << 20;

/// The snapshot is of one moment while rows are committed, as after a loss of power.
pub(crate) async fn a_database_that_is_written_to_comes_back_with_all_committed_rows(
    node: &mut Node,
) -> anyhow::Result<()> {
    const MIN_ROWS: u64 = 100;
    let version = postgres_version();
    if version.is_none() && !loops::are_available() {
        return Err(NO_POSTGRES.into());
    }
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": DATABASE } });
    node.apply(&[namespace]).await?;
    if loops::are_available() {
        fill_disk(node).await?;
    }
    let Some(version) = version else {
        // For the test after this one.
        back_up(node, DATABASE, BACKUP).await?;
        lose(node, DATABASE).await?;
        restore(node, BACKUP, "database-back").await?;
        return Err(NO_POSTGRES.into());
    };
    node.import_postgres(&version).await?;
    node.apply(&database()).await?;
    wait_for_deployment(node, DATABASE, DATABASE).await?;
    in_database(node, WRITE).await?;
    let committed = eventually("rows are committed", SOON, async || {
        let rows = rows(node).await?;
        anyhow::Ok(if rows < MIN_ROWS {
            Probe::NotYet(format!("{rows} rows"))
        } else {
            Probe::Ready(rows)
        })
    })
    .await?;
    back_up(node, DATABASE, BACKUP).await?;
    let last = rows(node).await?;
    if last <= committed {
        let log = in_database(node, "cat /tmp/writer").await?;
        bail!("no row was committed during the backup: {log}");
    }
    lose(node, DATABASE).await?;
    restore(node, BACKUP, "database-back").await?;
    wait_for_deployment(node, DATABASE, DATABASE).await?;
    let restored = rows(node).await?;
    println!("    {committed} rows before the backup, {last} after it, {restored} restored");
    ensure!(
        (committed..=last).contains(&restored),
        "{restored} rows came back, of {committed} before and {last} after the backup"
    );
    let log = in_database(node, "cat /tmp/log").await?;
    ensure!(
        log.contains("automatic recovery in progress"),
        "the snapshot was not one of a running server: {log}"
    );
    in_database(node, CHECK).await.map(drop)
}

pub(crate) async fn a_block_volume_comes_back_byte_for_byte(node: &mut Node) -> anyhow::Result<()> {
    let compared = if loops::are_available() {
        compare_disk(node).await
    } else {
        Err(NO_LOOPS.into())
    };
    lose(node, DATABASE).await?;
    compared?;
    eventually(
        "the loop devices are detached",
        Duration::from_secs(10),
        async || {
            let left = loops::attached_files(node.folder())?;
            anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
        },
    )
    .await
}

/// Number of rows of the database. Errors: they are not those that were committed.
async fn rows(node: &Node) -> anyhow::Result<u64> {
    let query = format!("psql --tuples-only --no-align --command='{COUNT}'");
    let text = in_database(node, &query).await?;
    let numbers: Result<Vec<u64>, _> = text.trim().split('|').map(str::parse).collect();
    let numbers = numbers.with_context(|| text.clone())?;
    let [count, first, last, counter] = numbers[..] else {
        bail!("{text}")
    };
    ensure!(
        first == 1 && count == last && count == counter,
        "rows are missing: {text}"
    );
    Ok(count)
}

async fn in_database(node: &Node, script: &str) -> anyhow::Result<String> {
    in_pod_of(node, DATABASE, DATABASE, script).await
}

/// Creates a pod with a block volume, and writes to it.
async fn fill_disk(node: &Node) -> anyhow::Result<()> {
    let pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": DISK, "image": TOOLS, "args": ["sleep", "1000000"],
            "volumeDevices": [{ "name": DISK, "devicePath": "/dev/disk" }] }],
        "volumes": [{ "name": DISK, "persistentVolumeClaim": { "claimName": DISK } }],
    });
    let claim = claim(DISK, "Block", &DISK_BYTES.to_string());
    node.apply(&[claim, deployment(DISK, &pod)]).await?;
    wait_for_deployment(node, DATABASE, DISK).await?;
    let fill = format!("{CONTENTS} contents | dd of=/dev/disk bs=64k conv=fsync");
    in_pod_of(node, DATABASE, DISK, &fill).await.map(drop)
}

async fn compare_disk(node: &Node) -> anyhow::Result<()> {
    wait_for_deployment(node, DATABASE, DISK).await?;
    let compare = format!(
        "{CONTENTS} set -e; contents > /expected; truncate -s {DISK_BYTES} /expected; cmp /expected /dev/disk"
    );
    in_pod_of(node, DATABASE, DISK, &compare).await.map(drop)
}

/// The database: a claim, and a pod with the server.
fn database() -> [Value; 2] {
    let volume = json!([{ "name": "data", "mountPath": "/data" }]);
    let folder = format!(
        "mkdir -p /data/database && chmod 0700 /data/database && chown {POSTGRES_USER}:{POSTGRES_USER} /data/database"
    );
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    let pod = json!({
        "terminationGracePeriodSeconds": 1,
        "initContainers": [{ "name": "folder", "image": POSTGRES, "args": ["sh", "-c", folder],
            "volumeMounts": volume }],
        "containers": [{ "name": DATABASE, "image": POSTGRES, "args": ["sh", "-c", START],
            "env": [variable("PGDATA", "/data/database"), variable("PGHOST", "/tmp"),
                variable("PGUSER", "postgres"), variable("PGDATABASE", "postgres")],
            "securityContext": { "runAsUser": POSTGRES_USER, "runAsGroup": POSTGRES_USER },
            "readinessProbe": { "exec": { "command": ["pg_isready"] }, "periodSeconds": 1 },
            "volumeMounts": volume }],
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }],
    });
    [
        claim("data", "Filesystem", "1Gi"),
        deployment(DATABASE, &pod),
    ]
}

fn claim(name: &str, mode: &str, size: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": DATABASE },
        "spec": { "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
            "storageClassName": STORAGE_CLASS, "resources": { "requests": { "storage": size } } } })
}

fn deployment(name: &str, pod: &Value) -> Value {
    let labels = json!({ "app": name });
    json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": DATABASE },
        "spec": { "replicas": 1, "strategy": { "type": "Recreate" },
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod } } })
}

//! Clients that create objects, one or several at a time, each over its own connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use backup_tests::install::NAMESPACE;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use crate::bench::raw;

pub struct Creation {
    path: String,
    body: String,
}

impl Creation {
    /// A Backup of one of eight namespaces, as if several teams made one each.
    pub fn backup(namespace: &str) -> Self {
        let number = next();
        Self::backup_of(namespace, &format!("app-{}", number % 8))
    }

    pub fn backup_of(namespace: &str, included: &str) -> Self {
        Self::new(
            "velero.io/v1",
            "Backup",
            "backups",
            namespace,
            &json!({ "includedNamespaces": [included] }),
        )
    }

    pub fn restore_of(namespace: &str, included: &str) -> Self {
        let spec = json!({ "backupName": "bench", "includedNamespaces": [included] });
        Self::new("velero.io/v1", "Restore", "restores", namespace, &spec)
    }

    /// A backup of a database cluster: each cluster is a separate scope.
    pub fn cluster_backup(namespace: &str, cluster: &str) -> Self {
        let spec = json!({ "clusterName": cluster, "storageName": "bench" });
        Self::new(
            "ps.percona.com/v1",
            "PerconaServerMySQLBackup",
            "perconaservermysqlbackups",
            namespace,
            &spec,
        )
    }

    fn new(version: &str, kind: &str, plural: &str, namespace: &str, spec: &Value) -> Self {
        let name = format!("bench-{}", next());
        let body = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name }, "spec": spec });
        Self {
            path: format!("/apis/{version}/namespaces/{namespace}/{plural}"),
            body: body.to_string(),
        }
    }

    /// Creates the object. Returns the duration.
    pub async fn send(self, client: &Client) -> kube::Result<Duration> {
        let start = Instant::now();
        raw::send(client, Method::POST, &self.path, self.body.into_bytes()).await?;
        Ok(start.elapsed())
    }

    /// Sends a creation that must be refused. Returns the time until the refusal.
    pub async fn refused(self, client: &Client) -> anyhow::Result<Duration> {
        let start = Instant::now();
        match self.send(client).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(start.elapsed()),
            Err(other) => Err(other).context("expected a refusal"),
            Ok(_) => anyhow::bail!("expected a refusal, but it was created"),
        }
    }
}

fn next() -> usize {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// The results of many creations by several clients; each client waits for an answer before its
/// next creation.
#[derive(Default)]
pub struct Burst {
    /// Durations of successful creations.
    pub took: Vec<Duration>,
    pub elapsed: Duration,
    /// Messages of refusals.
    pub refused: Vec<String>,
}

impl Burst {
    /// Adds the results of a later burst.
    pub fn then(&mut self, other: Self) {
        self.took.extend(other.took);
        self.elapsed += other.elapsed;
        self.refused.extend(other.refused);
    }

    #[allow(clippy::cast_precision_loss)]
    pub fn rate(&self) -> f64 {
        self.took.len() as f64 / self.elapsed.as_secs_f64()
    }
}

/// Makes `count` creations; `creation` gets the number of the client and of its previous creations.
pub async fn burst<F>(clients: &[Client], count: usize, creation: F) -> anyhow::Result<Burst>
where
    F: Fn(usize, usize) -> Creation + Send + Sync + 'static,
{
    let creation = Arc::new(creation);
    let taken = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let tasks: Vec<_> = clients
        .iter()
        .cloned()
        .enumerate()
        .map(|(number, client)| {
            let creation = Arc::clone(&creation);
            let taken = Arc::clone(&taken);
            tokio::spawn(async move {
                let mut took = Vec::new();
                let mut refused = Vec::new();
                let mut made = 0;
                while taken.fetch_add(1, Ordering::Relaxed) < count {
                    match creation(number, made).send(&client).await {
                        Ok(time) => took.push(time),
                        Err(kube::Error::Api(status)) => refused.push(status.message),
                        Err(error) => refused.push(error.to_string()),
                    }
                    made += 1;
                }
                (took, refused)
            })
        })
        .collect();
    let mut burst = Burst::default();
    for task in tasks {
        let (took, refused) = task.await?;
        burst.took.extend(took);
        burst.refused.extend(refused);
    }
    burst.elapsed = start.elapsed();
    Ok(burst)
}

/// A Lease that only the benchmark writes, updated without reading it first: the lowest cost of
/// writing a ledger.
pub struct OwnLease {
    path: String,
    last: Value,
}

impl OwnLease {
    const NAME: &str = "bench-update";

    pub async fn create(client: &Client) -> anyhow::Result<Self> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": Self::NAME }, "spec": {} });
        let created = raw::post(client, &path, &lease).await;
        let path = format!("{path}/{}", Self::NAME);
        let last = match created {
            Err(kube::Error::Api(status)) if status.code == 409 => raw::get(client, &path).await?,
            other => other?,
        };
        let last = serde_json::from_str(&last)?;
        Ok(Self { path, last })
    }

    /// Writes the Lease once, based on the result of the last write.
    pub async fn update(&mut self, client: &Client) -> anyhow::Result<Duration> {
        self.last["spec"]["holderIdentity"] = json!(next().to_string());
        let lease = serde_json::to_vec(&self.last)?;
        let start = Instant::now();
        let text = raw::send(client, Method::PUT, &self.path, lease).await?;
        let took = start.elapsed();
        self.last = serde_json::from_str(&text)?;
        Ok(took)
    }

    /// Does `count` quorum reads in sequence. Returns the total duration.
    pub async fn reads(&self, client: &Client, count: usize) -> anyhow::Result<Duration> {
        let start = Instant::now();
        for _ in 0..count {
            raw::get(client, &self.path).await?;
        }
        Ok(start.elapsed())
    }
}

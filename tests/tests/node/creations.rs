//! Creations that go on while something happens.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use backup_core::api::{Backup, BackupSpec};
use backup_tests::{api::dry_run, control_plane::client_without_retries, install::NAMESPACE, node::Node};
use kube::Api;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Creates Backups one after another, by requests that the webhook decides about and nothing stores.
pub(crate) struct Creations {
    end: CancellationToken,
    running: JoinHandle<Seen>,
}

/// What has become of them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) admitted: usize,
    /// When each that failed was sent, after the beginning, and why it failed.
    pub(crate) failed: Vec<(Duration, String)>,
    /// The longest that one took.
    pub(crate) longest: Duration,
}

impl Creations {
    pub(crate) async fn begin(node: &Node) -> anyhow::Result<Self> {
        let client = client_without_retries(node.plane.admin_kubeconfig()).await?;
        let backups: Api<Backup> = Api::namespaced(client, NAMESPACE);
        let end = CancellationToken::new();
        let running = tokio::spawn(create(backups, end.clone()));
        Ok(Self { end, running })
    }

    pub(crate) async fn end(self) -> anyhow::Result<Seen> {
        self.end.cancel();
        self.running.await.context("the creations broke off")
    }
}

async fn create(backups: Api<Backup>, end: CancellationToken) -> Seen {
    const PAUSE: Duration = Duration::from_millis(40);
    let (mut seen, start) = (Seen::default(), Instant::now());
    let spec = BackupSpec { included_namespaces: vec!["untouched".to_owned()], ..BackupSpec::default() };
    while !end.is_cancelled() {
        let (name, sent) = (format!("while-{}", seen.admitted + seen.failed.len()), start.elapsed());
        match backups.create(&dry_run(), &Backup::new(&name, spec.clone())).await {
            Ok(_) => seen.admitted += 1,
            Err(error) => seen.failed.push((sent, error.to_string())),
        }
        seen.longest = seen.longest.max(start.elapsed().saturating_sub(sent));
        tokio::time::sleep(PAUSE).await;
    }
    seen
}

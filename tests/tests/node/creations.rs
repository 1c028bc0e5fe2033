//! Creations that continue during a disturbance.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec};
use backup_tests::{
    api::ApiExt as _, control_plane::client_without_retries, install::NAMESPACE, node::Node,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Number of concurrent clients, so that the API server has several connections to the webhook.
const CLIENTS: usize = 4;

/// Creates Backups one after another. The webhook decides about each; most are dry runs, since
/// there would be too many to wait for.
pub(crate) struct Creations {
    backups: Api<Backup>,
    end: CancellationToken,
    running: Vec<JoinHandle<Seen>>,
}

/// The results of the creations.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) admitted: usize,
    /// Names of the stored Backups.
    pub(crate) stored: Vec<String>,
    /// When each failed request was sent (since the beginning), and its error.
    pub(crate) failed: Vec<(Duration, String)>,
    /// Longest duration of a request.
    pub(crate) longest: Duration,
}

impl Creations {
    pub(crate) async fn begin(node: &Node) -> anyhow::Result<Self> {
        let client = client_without_retries(node.plane.admin_kubeconfig()).await?;
        let backups: Api<Backup> = Api::namespaced(client, NAMESPACE);
        let end = CancellationToken::new();
        let create = || tokio::spawn(create(backups.clone(), end.clone()));
        let running = (0..CLIENTS).map(|_| create()).collect();
        Ok(Self {
            backups,
            end,
            running,
        })
    }

    /// Ends the creations, and waits until the stored Backups are completed.
    pub(crate) async fn end(self) -> anyhow::Result<Seen> {
        const COMPLETED: Duration = Duration::from_mins(1);
        self.end.cancel();
        let mut seen = Seen::default();
        for client in self.running {
            let one = client.await.context("the creations broke off")?;
            seen.admitted += one.admitted;
            seen.stored.extend(one.stored);
            seen.failed.extend(one.failed);
            seen.longest = seen.longest.max(one.longest);
        }
        seen.failed.sort();
        for name in &seen.stored {
            let completed = |backup: &Backup| backup.phase() == BackupPhase::Completed;
            self.backups
                .wait_until(name, "is completed", COMPLETED, completed)
                .await?;
        }
        println!(
            "    {} Backups created, {} of them stored, {} refused, the longest creation took {:?}",
            seen.admitted,
            seen.stored.len(),
            seen.failed.len(),
            seen.longest
        );
        ensure!(!seen.stored.is_empty(), "nothing was created: {seen:?}");
        Ok(seen)
    }

    /// Like `end`. Errors: a creation failed.
    pub(crate) async fn end_without_failure(self) -> anyhow::Result<()> {
        let seen = self.end().await?;
        ensure!(
            seen.failed.is_empty(),
            "creations failed: {:?}",
            seen.failed
        );
        Ok(())
    }
}

async fn create(backups: Api<Backup>, end: CancellationToken) -> Seen {
    const PAUSE: Duration = Duration::from_millis(20);
    const ONE_IS_STORED_OF: usize = 100;
    let (mut seen, start) = (Seen::default(), Instant::now());
    let spec = BackupSpec {
        included_namespaces: vec!["shop".to_owned()],
        ..BackupSpec::default()
    };
    let mut backup = Backup::new("", spec);
    backup.metadata = ObjectMeta {
        generate_name: Some("while-".to_owned()),
        ..ObjectMeta::default()
    };
    for number in 1.. {
        if end.is_cancelled() {
            break;
        }
        // Includes the first one: under load there may be fewer than a hundred.
        let stored = number % ONE_IS_STORED_OF == 1;
        let how = PostParams {
            dry_run: !stored,
            ..PostParams::default()
        };
        let sent = start.elapsed();
        match backups.create(&how, &backup).await {
            Ok(created) => {
                seen.admitted += 1;
                seen.stored.extend(created.metadata.name.filter(|_| stored));
            }
            Err(error) => seen.failed.push((sent, error.to_string())),
        }
        seen.longest = seen.longest.max(start.elapsed().saturating_sub(sent));
        tokio::time::sleep(PAUSE).await;
    }
    seen
}

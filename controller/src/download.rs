//! DownloadRequests: somebody wants a URL of one file of a backup or restore.
//!
//! The answer opens the file to everybody who has it, so it stands in the request only, never in a log. A request is answered
//! once, stays for ten minutes, as long as the URL is good for, and goes. What cannot be answered is `Failed` at once, with the
//! reason; what may be in a moment is tried again until the request is over.
//!
//! Most requests come in swarms (`velero backup describe` makes several), so what a request is about is read at most once a second
//! (`recent`), and the request itself comes from the watch.
//!
//! A backup or restore whose items are worked on has a log so far, which its worker stores when it is asked for (`flush_requests`).
//!
//! Who can reach the API server and not the store asks for a path of the service proxy instead (`files`).

mod decide;
pub(crate) mod files;
mod observe;
mod recent;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use backup_core::{
    api::{
        DownloadRequest,
        download_request::{DownloadRequestPhase as Phase, DownloadTarget, DownloadTargetKind as Kind},
    },
    reading::{self, Asked},
};
use backup_runtime::{
    Cluster, delete,
    health::Health,
    leader::NotLeader,
    queue::{Action, Key, run_queue},
    retry, watch,
};
use backup_store::is_log;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{error::ReconcileError, job::operations::flush_requests::FlushRequests, location::Locations};
use decide::{Plan, TTL};
use observe::{DownloadController, Subject, Unanswered};

/// Requests that are answered at the same time.
const CONCURRENCY: usize = 16;

/// Requests as the watch has delivered them, until they are looked at.
type Delivered = Arc<Mutex<HashMap<Key, DownloadRequest>>>;

/// What answers need.
#[derive(Clone)]
pub(crate) struct DownloadContext {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) flush_requests: FlushRequests,
    /// Where this controller serves files itself; `None` if it does not.
    pub(crate) files_address: Option<SocketAddr>,
    /// The Service that leads there.
    pub(crate) files_service: String,
}

/// Runs until the process is asked to end.
pub(crate) async fn run(ctx: DownloadContext, health: Health, stop: CancellationToken) {
    let delivered = Delivered::default();
    let watched = Arc::clone(&delivered);
    let observe = move |key: &Key, request: Option<DownloadRequest>| {
        let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
        match request {
            Some(request) => drop(watched.insert(key.clone(), request)),
            None => drop(watched.remove(key)),
        }
    };
    let keys = watch::keys_with::<DownloadRequest>(&ctx.cluster, &health, "download requests", observe);
    let controller = Arc::new(DownloadController::new(ctx));
    run_queue("download", keys, CONCURRENCY, stop, move |key| {
        let watched = delivered.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        Arc::clone(&controller).reconcile(key, watched)
    })
    .await;
}

impl DownloadController {
    async fn reconcile(
        self: Arc<Self>,
        key: Key,
        watched: Option<DownloadRequest>,
    ) -> Result<Action, ReconcileError> {
        // One whose time is over is read again before it is removed.
        let watched = watched.filter(|request| decide::decide(request, Timestamp::now()) != Plan::Remove);
        let request = match watched {
            Some(request) => Some(request),
            None => self.request(&key.name).await?,
        };
        let Some(request) = request else { return Ok(Action::AwaitChange) };
        match decide::decide(&request, Timestamp::now()) {
            Plan::Answer => self.answer(&request).await,
            Plan::Keep(time) => Ok(Action::RequeueAfter(time)),
            Plan::Remove => {
                self.ctx.cluster.leadership.check()?;
                // By uid and resourceVersion: one that changes now is looked at again.
                delete::delete_unchanged(&self.ctx.cluster, &request).await?;
                Ok(Action::AwaitChange)
            }
        }
    }

    /// Writes the URL into the request, or why there is none.
    async fn answer(&self, request: &DownloadRequest) -> Result<Action, ReconcileError> {
        let status = match self.url(request).await? {
            Ok(url) => json!({"phase": Phase::Processed, "downloadURL": url, "message": null}),
            Err(reason) if reason.is_transient() && decide::is_young(request, Timestamp::now()) => {
                return Err(ReconcileError::Postponed(format!("no URL yet: {reason}")));
            }
            Err(reason) => {
                tracing::info!(request = request.name_any(), %reason, "no URL");
                json!({"phase": Phase::Failed, "message": reason.to_string()})
            }
        };
        // Conditional on the resourceVersion, only for a request that nobody has answered.
        retry::status_patch(&self.ctx.cluster, request, |current| {
            matches!(current.status.phase, None | Some(Phase::New)).then(|| {
                let mut status = status.clone();
                status["expiration"] = json!(Time(decide::expiration(Timestamp::now())));
                json!({ "status": status })
            })
        })
        .await?;
        Ok(Action::RequeueAfter(TTL))
    }

    /// The URL; the outer error is this replica's.
    async fn url(&self, request: &DownloadRequest) -> Result<Result<String, Unanswered>, NotLeader> {
        let target = &request.spec.target;
        let wanted = match reading::asked(request) {
            None => self.wanted_by_name(target).await,
            Some(Err(why)) => Err(Unanswered::Nothing(why)),
            Some(Ok(asked)) if self.ctx.files_address.is_some() => {
                return Ok(self.path(request, &asked).await);
            }
            // There is no other way to the file.
            Some(Ok(asked)) => self.wanted_of(&asked.uid, target).await,
        };
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(reason) => return Ok(Err(reason)),
        };
        self.flush(target, &wanted.of).await;
        if (wanted.of.waits || is_growing(target, &wanted.of)) && !wanted.read_only {
            let permit = self.snapshot_permits.acquire().await;
            // A private key is written.
            self.ctx.cluster.leadership.check()?;
            let snapshot = wanted.store.signed_url_of_snapshot(target, &wanted.of.uid, TTL).await;
            drop(permit);
            match snapshot {
                Ok(Some(url)) => return Ok(Ok(url)),
                // Its end is decided, or written already.
                Ok(None) => {}
                Err(error) => return Ok(Err(error.into())),
            }
        }
        Ok(wanted.store.signed_url(target, TTL).await.map_err(Unanswered::from))
    }

    /// Has the operations or the log stored as they are now, if it is these that are asked for and they go on.
    async fn flush(&self, target: &DownloadTarget, of: &Subject) {
        let operations = matches!(target.kind, Kind::BackupItemOperations | Kind::RestoreItemOperations);
        if of.waits && operations || is_growing(target, of) {
            self.ctx.flush_requests.flush(&of.uid).await;
        }
    }

    /// The path under which this controller serves the file to whoever has the key.
    async fn path(&self, request: &DownloadRequest, asked: &Asked) -> Result<String, Unanswered> {
        let target = &request.spec.target;
        let wanted = self.wanted_of(&asked.uid, target).await?;
        self.flush(target, &wanted.of).await;
        Ok(reading::path(&self.ctx.cluster.namespace, &self.ctx.files_service, &request.name_any()))
    }
}

/// Whether this is the log of items that are being worked on.
fn is_growing(target: &DownloadTarget, of: &Subject) -> bool {
    is_log(&target.kind) && !of.waits && !of.over
}

//! DownloadRequests: a client asks for a URL of one file of a backup or restore.
//!
//! The URL gives everybody who has it access to the file, so it is written to the request only,
//! never to a log. A request is answered once, stays for ten minutes, the lifetime of the URL, and
//! is deleted. A request that cannot be answered is `Failed` at once, with the reason; if the cause
//! may be temporary, it is retried until the request expires.
//!
//! Most requests come in bursts (`velero backup describe` makes several), so the subject of a
//! request is read at most once a second (`recent`), and the request itself comes from the watch.
//!
//! A backup or restore whose items are in progress has a partial log, which its worker stores on
//! request (`flush_requests`).
//!
//! Clients that can reach the API server and not the store ask for a path of the service proxy
//! instead (`files`).

mod decide;
pub(crate) mod files;
mod observe;
mod recent;

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use backup_core::{
    api::{
        DownloadRequest,
        download_request::{
            DownloadRequestPhase as Phase, DownloadTarget, DownloadTargetKind as Kind,
        },
    },
    reading::{self, RequestedAnswer},
};
use backup_runtime::{
    Cluster, delete,
    health::Health,
    queue::{Action, Key, run_queue},
    retry, watch,
};
use backup_store::is_log;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ReconcileError, job::operations::flush_requests::FlushRequests, location::Locations,
};
use decide::{Plan, TTL};
use observe::{DownloadController, Subject};

/// Maximum number of requests that are answered concurrently.
const CONCURRENCY: usize = 16;

/// Requests as delivered by the watch, until they are reconciled.
type DeliveredRequests = Arc<Mutex<HashMap<Key, DownloadRequest>>>;

#[derive(Clone)]
pub(crate) struct DownloadContext {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) flush_requests: FlushRequests,
    /// Address at which this controller serves files itself; `None` if it does not.
    pub(crate) files_address: Option<SocketAddr>,
    /// The Service for that address.
    pub(crate) files_service: String,
}

/// Runs until the process is asked to end.
pub(crate) async fn run(ctx: DownloadContext, health: Health, stop: CancellationToken) {
    let delivered = DeliveredRequests::default();
    let watched = Arc::clone(&delivered);
    let keys = watch::keys_with::<DownloadRequest>(
        &ctx.cluster,
        &health,
        "download requests",
        move |key, request| match request {
            Some(request) => _ = watched.lock().insert(key.clone(), request),
            None => _ = watched.lock().remove(key),
        },
    );
    let controller = Arc::new(DownloadController::new(ctx));
    run_queue("download", keys, CONCURRENCY, stop, move |key| {
        let watched = delivered.lock().remove(&key);
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
        // An expired request is read again before it is removed.
        let watched =
            watched.filter(|request| decide::decide(request, Timestamp::now()) != Plan::Remove);
        let request = match watched {
            Some(request) => Some(request),
            None => self.request(&key.name).await?,
        };
        let Some(request) = request else {
            return Ok(Action::AwaitChange);
        };
        match decide::decide(&request, Timestamp::now()) {
            Plan::Answer => self.answer(&request).await,
            Plan::Keep(time) => Ok(Action::RequeueAfter(time)),
            Plan::Remove => {
                self.ctx.cluster.leadership.check()?;
                // By uid and resourceVersion: a request that changes now is reconciled again.
                delete::delete_unchanged(&self.ctx.cluster, &request).await?;
                Ok(Action::AwaitChange)
            }
        }
    }

    /// Writes the URL into the request, or why there is none.
    async fn answer(&self, request: &DownloadRequest) -> Result<Action, ReconcileError> {
        let status = match self.url(request).await {
            Ok(url) => json!({"phase": Phase::Processed, "downloadURL": url, "message": null}),
            Err(error @ ReconcileError::NotLeader(_)) => return Err(error),
            Err(reason) => {
                if reason.is_transient() && decide::is_young(request, Timestamp::now()) {
                    return Err(ReconcileError::Postponed(format!("no URL yet: {reason}")));
                }
                tracing::info!(request = request.name_any(), %reason, "no URL");
                json!({"phase": Phase::Failed, "message": reason.to_string()})
            }
        };
        // Conditional on the resourceVersion, only for a request without an answer.
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

    async fn url(&self, request: &DownloadRequest) -> Result<String, ReconcileError> {
        let target = &request.spec.target;
        let wanted = match reading::asked(request) {
            None => self.wanted_by_name(target).await?,
            Some(asked) => {
                let serves_files = self.ctx.files_address.is_some();
                match asked.map_err(ReconcileError::Impossible)?.wanted {
                    RequestedAnswer::Plan(_) | RequestedAnswer::Objects(_) => {
                        if serves_files {
                            return Ok(self.proxy_path(request));
                        }
                        let why =
                            "this controller answers nothing itself: it has no --files-address";
                        return Err(ReconcileError::Impossible(why.to_owned()));
                    }
                    RequestedAnswer::File { uid } => {
                        let wanted = self.wanted_of(&uid, target).await?;
                        if serves_files {
                            self.flush(target, &wanted.of).await;
                            return Ok(self.proxy_path(request));
                        }
                        // There is no other way to the file.
                        wanted
                    }
                }
            }
        };
        self.flush(target, &wanted.of).await;
        if (wanted.of.waits || is_growing(target, &wanted.of)) && !wanted.read_only {
            let _permit = self.snapshot_permits.acquire().await;
            // Only the leader writes private keys.
            self.ctx.cluster.leadership.check()?;
            // There is none if the end is decided, or written already.
            if let Some(url) = wanted
                .store
                .signed_url_of_snapshot(target, &wanted.of.uid, TTL)
                .await?
            {
                return Ok(url);
            }
        }
        Ok(wanted.store.signed_url(target, TTL).await?)
    }

    /// The path of the service proxy at which this controller serves the file of a request.
    fn proxy_path(&self, request: &DownloadRequest) -> String {
        let DownloadContext {
            cluster,
            files_service,
            ..
        } = &self.ctx;
        reading::path(&cluster.namespace, files_service, &request.name_any())
    }

    /// Has the current operations or log stored, if the target is one of them and still changes.
    async fn flush(&self, target: &DownloadTarget, of: &Subject) {
        let operations = matches!(
            target.kind,
            Kind::BackupItemOperations | Kind::RestoreItemOperations
        );
        if of.waits && operations || is_growing(target, of) {
            self.ctx.flush_requests.flush(&of.uid).await;
        }
    }
}

/// Whether this is the log of items that are in progress.
fn is_growing(target: &DownloadTarget, of: &Subject) -> bool {
    is_log(&target.kind) && !of.waits && !of.over
}

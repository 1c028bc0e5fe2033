//! DownloadRequests: somebody wants a URL of one file of a backup or restore.
//!
//! The answer opens the file to everybody who has it, so it stands in the request only, never in a log. A request is answered
//! once, stays for ten minutes, as long as the URL is good for, and goes. What cannot be answered is `Failed` at once, with the
//! reason; what may be in a moment is tried again until the request is over.
//!
//! Most requests come in swarms (`velero backup describe` makes several), so what a request is about is read at most once a second
//! (`recent`), and the request itself comes from the watch.
//!
//! A backup or restore whose items are worked on has a log so far, which whoever works on it keeps when it is asked for (`so_far`).
//!
//! Who can reach the API server and not the store asks for a path of the service proxy instead (`files`).

mod act;
mod decide;
pub mod files;
mod observe;
mod recent;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use backup_core::api::DownloadRequest;
use backup_runtime::{
    Cluster,
    health::Health,
    queue::{Action, Key, run_queue},
    watch,
};

use tokio_util::sync::CancellationToken;

use crate::{job::operations::flush_requests::FlushRequests, location::Locations};
use decide::Plan;

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
    let noted = Arc::clone(&delivered);
    let note = move |key: &Key, request: Option<DownloadRequest>| {
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        match request {
            Some(request) => drop(noted.insert(key.clone(), request)),
            None => drop(noted.remove(key)),
        }
    };
    let keys = watch::keys_with::<DownloadRequest>(&ctx.cluster, &health, "download requests", note);
    let desk = Arc::new(observe::Desk::new(ctx));
    run_queue("download", keys, CONCURRENCY, stop, move |key| {
        reconcile(Arc::clone(&desk), Arc::clone(&delivered), key)
    })
    .await;
}

async fn reconcile(desk: Arc<observe::Desk>, delivered: Delivered, key: Key) -> Result<Action, act::Error> {
    let noted = delivered.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    let request = match noted {
        Some(request) => request,
        None => match observe::request(&desk.ctx, &key.name).await? {
            Some(request) => request,
            None => return Ok(Action::AwaitChange),
        },
    };
    match decide::decide(&request, jiff::Timestamp::now()) {
        Plan::Answer => act::answer(&desk, &request).await,
        Plan::Keep(time) => Ok(Action::RequeueAfter(time)),
        Plan::Remove => act::remove(&desk.ctx, &key.name).await,
    }
}

//! Answering a request, and removing it when its time is over.

use backup_core::{
    api::{
        DownloadRequest,
        download_request::{DownloadRequestPhase as Phase, DownloadTarget, DownloadTargetKind as Kind},
    },
    reading::{self, Asked},
};
use backup_runtime::{
    delete,
    errors::plain,
    leader::NotLeader,
    queue::Action,
    retry::{self, WriteError},
};
use backup_store::is_log;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::{
    DownloadContext,
    decide::{self, Plan, TTL},
    observe::{self, Desk, Subject, Unanswered},
};

/// Why a request was not dealt with. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("the API server could not be asked: {}", plain(.0))]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    #[error("no URL yet: {0}")]
    NotYet(Unanswered),
}

/// Writes the URL into the request, or why there is none.
pub(super) async fn answer(desk: &Desk, request: &DownloadRequest) -> Result<Action, Error> {
    let status = match url(desk, request).await? {
        Ok(url) => json!({"phase": Phase::Processed, "downloadURL": url, "message": null}),
        Err(reason) if reason.is_transient() && decide::is_young(request, Timestamp::now()) => {
            return Err(Error::NotYet(reason));
        }
        Err(reason) => {
            tracing::info!(request = request.name_any(), %reason, "no URL");
            json!({"phase": Phase::Failed, "message": reason.to_string()})
        }
    };
    // Conditional on the resourceVersion, only for a request that nobody has answered.
    retry::status_patch(&desk.ctx.cluster, request, |current| {
        matches!(current.status.phase, None | Some(Phase::New)).then(|| patch(&status))
    })
    .await?;
    Ok(Action::RequeueAfter(TTL))
}

fn patch(status: &Value) -> Value {
    let mut status = status.clone();
    status["expiration"] = json!(Time(decide::expiration(Timestamp::now())));
    json!({ "status": status })
}

/// The URL; the outer error is this replica's.
async fn url(desk: &Desk, request: &DownloadRequest) -> Result<Result<String, Unanswered>, NotLeader> {
    let target = &request.spec.target;
    let gives_files = desk.ctx.files_address.is_some();
    let wanted = match reading::asked(request) {
        None => desk.wanted_by_name(target).await,
        Some(Err(why)) => Err(Unanswered::Nothing(why)),
        Some(Ok(asked)) if gives_files => return Ok(path(desk, request, &asked).await),
        // There is no other way to the file.
        Some(Ok(asked)) => desk.wanted_of(&asked.uid, target).await,
    };
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(reason) => return Ok(Err(reason)),
    };
    look(desk, target, &wanted.of).await;
    if (wanted.of.waits || is_growing(target, &wanted.of)) && !wanted.read_only {
        let permit = desk.so_far.acquire().await;
        // A private key is written.
        desk.ctx.cluster.leadership.check()?;
        let so_far = wanted.store.signed_url_of_snapshot(target, &wanted.of.uid, TTL).await;
        drop(permit);
        match so_far {
            Ok(Some(url)) => return Ok(Ok(url)),
            // Its end is decided, or written already.
            Ok(None) => {}
            Err(error) => return Ok(Err(error.into())),
        }
    }
    Ok(wanted.store.signed_url(target, TTL).await.map_err(Unanswered::from))
}

/// Has the operations or the log kept as they are now, where it is these that somebody wants and they go on.
async fn look(desk: &Desk, target: &DownloadTarget, of: &Subject) {
    let operations = matches!(target.kind, Kind::BackupItemOperations | Kind::RestoreItemOperations);
    if of.waits && operations || is_growing(target, of) {
        desk.ctx.flush_requests.flush(&of.uid).await;
    }
}

/// Whether this is the log of items that are being worked on.
fn is_growing(target: &DownloadTarget, of: &Subject) -> bool {
    is_log(&target.kind) && !of.waits && !of.over
}

/// The path under which this controller gives the file to whoever has the key.
async fn path(desk: &Desk, request: &DownloadRequest, asked: &Asked) -> Result<String, Unanswered> {
    let target = &request.spec.target;
    let wanted = desk.wanted_of(&asked.uid, target).await?;
    look(desk, target, &wanted.of).await;
    Ok(reading::path(&desk.ctx.cluster.namespace, &desk.ctx.files_service, &request.name_any()))
}

/// Removes a request whose time is over, if that is so now.
pub(super) async fn remove(ctx: &DownloadContext, name: &str) -> Result<Action, Error> {
    let Some(request) = observe::request(ctx, name).await? else { return Ok(Action::AwaitChange) };
    match decide::decide(&request, Timestamp::now()) {
        Plan::Remove => {
            ctx.cluster.leadership.check()?;
            // By uid and resourceVersion: one that changes now is looked at again.
            delete::delete_unchanged(&ctx.cluster, &request).await?;
            Ok(Action::AwaitChange)
        }
        Plan::Keep(time) => Ok(Action::RequeueAfter(time)),
        Plan::Answer => Ok(Action::RequeueAfter(std::time::Duration::from_millis(100))),
    }
}

//! Files for people who can reach the API server and nothing else: they ask by a DownloadRequest, and read through the API
//! server's service proxy. What a Restore would do is answered in the same way (`plan`).
//!
//! The proxy does not tell who asks, so who may read is settled before: creating the request is the permission, and it names the
//! hash of a key that only its maker has (`backup_core::reading`). Who has the key gets one file, once: the request is deleted before
//! the last bytes go. Until then, and for as long as the request lives, a download that was broken off can be gone on with.
//!
//! Every replica serves, as all it needs is in the API server and in the store. What is not allowed is not told apart: no such
//! request, a wrong key, one that was used.

mod decide;
mod plan;
mod pump;

use std::{collections::HashMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    response::Response,
    routing::any,
};
use axum_server::{
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use backup_core::{
    api::DownloadRequest,
    reading::{self, FOLDER, KEY_HEADER, STATUS_KIND},
};
use backup_runtime::{Cluster, delete, errors::plain, leader::Leadership};
use backup_store::{FileIdentity, LookupResult, StoreError, StoredFile};
use http::{
    HeaderMap, Method, StatusCode,
    header::{
        ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE, RANGE,
        RETRY_AFTER,
    },
};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    DownloadContext,
    observe::{DownloadController, Subject, Wanted},
};
use crate::{error::ReconcileError, restore::Planner};
use decide::{Part, Refusal};

/// Readers of whom it is not known yet whether they have the key, and to which location.
const ASKING: usize = 64;
/// Files of one location that are read at the same time. Each takes a connection to the store, and pieces of some 64 KiB.
const READERS: usize = 16;
/// When to come back (seconds).
const AGAIN: u64 = 2;
/// For everything before the first byte.
const OPENING: Duration = Duration::from_secs(20);

/// A refusal: code and sentence.
type Refused = (StatusCode, String);

#[derive(Clone)]
struct Server {
    controller: Arc<DownloadController>,
    asking: Arc<Semaphore>,
    readers: ReaderLimits,
    planner: Planner,
}

/// Serves until the process ends; for ever nothing, if it was not asked for or a Velero server does the work.
pub(crate) async fn serve(ctx: DownloadContext, planner: Planner) -> anyhow::Result<()> {
    let Some(address) = ctx.files_address else {
        return std::future::pending().await;
    };
    let server = Server {
        controller: Arc::new(DownloadController::new(ctx)),
        asking: Arc::new(Semaphore::new(ASKING)),
        readers: ReaderLimits::default(),
        planner,
    };
    let router = Router::new().route(&format!("{FOLDER}/{{request}}"), any(file)).with_state(server);
    tracing::info!(%address, "files can be read");
    axum_server::bind(address)
        // Or the last piece of a file waits until its reader has confirmed the piece before it.
        .acceptor(RustlsAcceptor::new(tls_config()?).acceptor(NoDelayAcceptor))
        .serve(router.into_make_service())
        .await
        .with_context(|| format!("can not listen on {address}: choose another address with --files-address"))
}

async fn file(
    State(server): State<Server>,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let answered = async {
        if method != Method::GET {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "files can only be read: send a GET".to_owned()));
        }
        let Some(key) = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok()) else {
            return Err(not_allowed());
        };
        let opening = open(&server, &name, key, &headers);
        tokio::time::timeout(OPENING, opening).await.unwrap_or_else(|_| {
            let why = format!("API server and store gave no file within {OPENING:?}: try again in a moment");
            Err((StatusCode::SERVICE_UNAVAILABLE, why))
        })
    };
    answered.await.unwrap_or_else(|refused| refusal(&name, &refused))
}

/// From a request to the first byte of its file.
async fn open(server: &Server, name: &str, key: &str, headers: &HeaderMap) -> Result<Response, Refused> {
    let Server { controller, asking, readers, .. } = server;
    let asking = asking.try_acquire().map_err(|_| too_many(ASKING, "readers ask for a file"))?;
    // What a name can't be is not asked for: it would be another path of the API.
    let is_name = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    let request = if is_name { controller.request(name).await } else { Ok(None) };
    let request = request.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, plain(&error)))?;
    let (request, asked) =
        decide::admit(request, key, Timestamp::now()).map_err(|refusal| match refusal {
            Refusal::NotAllowed => not_allowed(),
            Refusal::NotYet => {
                (StatusCode::SERVICE_UNAVAILABLE, "the request is not answered yet".to_owned())
            }
            Refusal::Failed(why) => (StatusCode::FAILED_DEPENDENCY, why),
        })?;
    let uid = match asked.wanted {
        reading::Wanted::Plan(spec) => return plan::answer(server, request, *spec).await,
        reading::Wanted::File { uid } => uid,
    };
    let wanted = controller.wanted_of(&uid, &request.spec.target).await.map_err(|why| unanswered(&why))?;
    let reader = readers
        .acquire(&wanted.location)
        .ok_or_else(|| too_many(READERS, "files of its location are being read"))?;
    drop(asking);
    let file = seek(&request, &wanted).await?;
    answer(controller, request, file, headers, reader).await
}

async fn seek(request: &DownloadRequest, wanted: &Wanted) -> Result<StoredFile, Refused> {
    let (target, subject) = (&request.spec.target, &wanted.of);
    if let Some(failure) = &subject.failure {
        let (name, phase) = (&target.name, &subject.phase);
        let why = format!(
            "restore {name} is {phase}, and what is stored under its name may be another's: {failure}"
        );
        return Err((StatusCode::NOT_FOUND, why));
    }
    let of = FileIdentity { uid: &subject.uid, started: subject.started, ended: subject.over };
    match wanted.store.look_up(target, of).await {
        Ok(LookupResult::Found(file)) => Ok(file),
        Ok(LookupResult::Nothing) => Err((StatusCode::NOT_FOUND, nothing(request, subject))),
        Ok(LookupResult::OfAnother) => {
            let name = &target.name;
            let why = format!(
                "what is stored as {name} is of another backup of this name: it has another uid, and began at another time"
            );
            Err((StatusCode::NOT_FOUND, why))
        }
        Err(error) => Err(unanswered(&error.into())),
    }
}

fn nothing(request: &DownloadRequest, subject: &Subject) -> String {
    let (kind, name) = (request.spec.target.kind.as_str(), &request.spec.target.name);
    if subject.over {
        format!("there is no {kind} of {name} in the store")
    } else {
        let phase = &subject.phase;
        format!(
            "there is no {kind} of {name} yet: it is {phase}, and its files are stored once its items are through"
        )
    }
}

async fn answer(
    controller: &Arc<DownloadController>,
    request: DownloadRequest,
    file: StoredFile,
    headers: &HeaderMap,
    reader: OwnedSemaphorePermit,
) -> Result<Response, Refused> {
    let header = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let version = file.version.as_ref().map(|version| format!("\"{version}\""));
    let part = decide::part(header(RANGE), header(IF_RANGE), version.as_deref(), file.size);
    let mut response = Response::builder().header(CACHE_CONTROL, "no-store");
    let (code, range) = match (part, file.size) {
        (Part::Whole, _) | (_, None) => (StatusCode::OK, None),
        (Part::Of(range), Some(size)) => {
            let last = range.end.saturating_sub(1);
            response = response.header(CONTENT_RANGE, format!("bytes {}-{last}/{size}", range.start));
            (StatusCode::PARTIAL_CONTENT, Some(range))
        }
        (Part::None, Some(size)) => {
            let response = response.header(CONTENT_RANGE, format!("bytes */{size}"));
            return Ok(response
                .status(StatusCode::RANGE_NOT_SATISFIABLE)
                .body(Body::empty())
                .unwrap_or_default());
        }
    };
    if let Some(size) = file.size {
        let length = range.as_ref().map_or(size, |range| range.end - range.start);
        response = response.header(CONTENT_LENGTH, length).header(ACCEPT_RANGES, "bytes");
    } else {
        response = response.header(ACCEPT_RANGES, "none");
    }
    if let Some(version) = version {
        response = response.header(ETAG, version);
    }
    let to_the_end = range.as_ref().is_none_or(|range| Some(range.end) == file.size);
    tracing::info!(
        request = request.metadata.name,
        kind = request.spec.target.kind.as_str(),
        of = request.spec.target.name,
        from = range.as_ref().map_or(0, |range| range.start),
        "a file is read"
    );
    let bytes = file.read(range).await.map_err(|error| unanswered(&error.into()))?;
    let controller = Arc::clone(controller);
    let use_up = async move {
        if !to_the_end {
            return Ok(());
        }
        match use_up(&controller, &request).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the request is used up".to_owned()),
            Err(error) => Err(format!("the request could not be used up: {}", plain(&error))),
        }
    };
    let body = pump::body(bytes, use_up, reader);
    let response = response.status(code).header(CONTENT_TYPE, "application/octet-stream").body(body);
    response.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Deletes a request; false if it is gone already. Every replica gives files: the uid keeps this deletion from another request, so
/// it needs no lease.
async fn use_up(controller: &DownloadController, request: &DownloadRequest) -> Result<bool, kube::Error> {
    let cluster = Cluster { leadership: Leadership::always(), ..controller.ctx.cluster.clone() };
    delete::delete(&cluster, request).await
}

fn too_many(count: usize, what: &str) -> Refused {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{count} {what} at the moment: try again in a moment"))
}

fn not_allowed() -> Refused {
    let why = "this key is invalid, used or expired; create a new DownloadRequest";
    (StatusCode::FORBIDDEN, why.to_owned())
}

/// Only of a file that is not there is it said that it is not found.
fn unanswered(why: &ReconcileError) -> Refused {
    let code = match why {
        _ if why.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
        ReconcileError::Store(StoreError::Corrupt { .. }) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::FAILED_DEPENDENCY,
    };
    (code, why.to_string())
}

/// As the API server says such things, so that its clients understand.
fn refusal(name: &str, (code, message): &Refused) -> Response {
    let passing = *code == StatusCode::SERVICE_UNAVAILABLE;
    let mut details = json!({ "kind": STATUS_KIND, "name": name });
    let mut response = Response::builder()
        .status(*code)
        .header(CONTENT_TYPE, "application/json")
        .header(CACHE_CONTROL, "no-store");
    if passing {
        details["retryAfterSeconds"] = json!(AGAIN);
        response = response.header(RETRY_AFTER, AGAIN);
    }
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(),
        "reason": reason, "message": message, "details": details });
    response.body(Body::from(status.to_string())).unwrap_or_default()
}

/// How many files of each location are being read: one that stands still takes no place from the others. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct ReaderLimits(Arc<Mutex<HashMap<String, Arc<Semaphore>>>>);

impl ReaderLimits {
    /// A place among the readers of this location, if one is free.
    fn acquire(&self, location: &str) -> Option<OwnedSemaphorePermit> {
        let mut all = self.0.lock();
        // Where nobody reads, nothing is kept.
        all.retain(|_, readers| readers.available_permits() < READERS);
        let readers = all.entry(location.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(READERS)));
        Arc::clone(readers).try_acquire_owned().ok()
    }
}

/// A certificate of this process's own. The API server's proxy checks none, so one that others vouch for would gain nothing; it
/// keeps those on the way from reading along.
fn tls_config() -> anyhow::Result<RustlsConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["backup-controller".to_owned()])
        .context("a certificate could not be made")?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|error| anyhow::anyhow!("the key of the certificate can not be used: {error}"))?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    // A connection for each reader: one who goes away, or stands still, is seen, and is in nobody's way.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_location_take_no_place_from_those_of_another() {
        let limits = ReaderLimits::default();
        let mut slow: Vec<_> = (0..READERS).map(|_| limits.acquire("slow")).collect();
        assert!(slow.iter().all(Option::is_some) && limits.acquire("slow").is_none());
        assert!(limits.acquire("fast").is_some());
        slow.pop();
        assert!(limits.acquire("slow").is_some() && limits.acquire("slow").is_some());
        drop(slow);
        drop(limits.acquire("fast"));
        assert_eq!(limits.0.lock().len(), 1, "of those that nobody reads from nothing is kept");
    }
}

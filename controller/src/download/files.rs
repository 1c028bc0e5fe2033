//! Files for clients that can reach the API server only: they create a DownloadRequest, and read
//! through the API server's service proxy. The plan of a Restore is served in the same way
//! (`plan`).
//!
//! The proxy does not pass on the user, so access is decided before: creating the request is the
//! permission (the webhook checks the requests of namespace owners), and it names the hash of a key
//! that only its creator has (`backup_core::reading`). The key gives access to one file, once: the
//! request is deleted before the last bytes are sent. Until then, and while the request lives, an
//! interrupted download can be resumed.
//!
//! Every replica serves, as it needs only the API server and the store. A refusal does not reveal
//! its reason: no such request, a wrong key, a used one.

mod decide;
mod objects;
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
use backup_client::errors::plain;
use backup_core::{
    api::DownloadRequest,
    reading::{self, FOLDER, KEY_HEADER, ReadRequest, STATUS_KIND},
};
use backup_runtime::{Cluster, delete, leader::Leadership};
use backup_store::{FileIdentity, LookupResult, StoreError, StoredFile};
use http::{
    HeaderMap, HeaderName, Method, StatusCode,
    header::{
        ACCEPT_RANGES, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_RANGE,
        RANGE, RETRY_AFTER,
    },
};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::{
    DownloadContext,
    observe::{DownloadController, Subject, WantedFile},
};
use crate::{error::ReconcileError, restore::Planner};
use decide::{Part, Refusal};

/// Maximum number of concurrent requests before authorization.
const MAX_UNAUTHORIZED_REQUESTS: usize = 64;
/// Maximum number of files of one location that are read concurrently. Each takes a connection to
/// the store, and pieces of some 64 KiB.
const MAX_READERS_PER_LOCATION: usize = 16;
/// Value of `Retry-After` (seconds).
const RETRY_AFTER_SECONDS: u64 = 2;
/// Maximum number of concurrent lists of objects.
const MAX_LISTS: usize = 4;
/// Timeout for everything before the first byte.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between two looks at a request that is not answered yet.
const ANSWER_POLL: Duration = Duration::from_millis(200);

/// A refusal: status code and message.
type HttpError = (StatusCode, String);

#[derive(Clone)]
struct Server {
    controller: Arc<DownloadController>,
    asking: Arc<Semaphore>,
    readers: ReaderLimits,
    lists: Arc<Semaphore>,
    planner: Planner,
}

/// Serves until the process ends; serves nothing if --files-address is unset or Velero is the
/// engine.
pub(crate) async fn serve(ctx: DownloadContext, planner: Planner) -> anyhow::Result<()> {
    let Some(address) = ctx.files_address else {
        return std::future::pending().await;
    };
    let server = Server {
        controller: Arc::new(DownloadController::new(ctx)),
        asking: Arc::new(Semaphore::new(MAX_UNAUTHORIZED_REQUESTS)),
        readers: ReaderLimits::default(),
        lists: Arc::new(Semaphore::new(MAX_LISTS)),
        planner,
    };
    let router = Router::new()
        .route(&format!("{FOLDER}/{{request}}"), any(file))
        .with_state(server);
    tracing::info!(%address, "files can be read");
    axum_server::bind(address)
        // Otherwise the last piece of a file waits until its reader has confirmed the piece before
        // it.
        .acceptor(RustlsAcceptor::new(tls_config()?).acceptor(NoDelayAcceptor))
        .serve(router.into_make_service())
        .await
        .with_context(|| {
            format!("can not listen on {address}: choose another address with --files-address")
        })
}

async fn file(
    State(server): State<Server>,
    Path(name): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let answered = async {
        if method != Method::GET {
            return Err((
                StatusCode::METHOD_NOT_ALLOWED,
                "files can only be read: send a GET".to_owned(),
            ));
        }
        let Some(key) = headers.get(KEY_HEADER).and_then(|key| key.to_str().ok()) else {
            return Err(not_allowed());
        };
        let opening = open(&server, &name, key, &headers);
        tokio::time::timeout(OPEN_TIMEOUT, opening)
            .await
            .unwrap_or_else(|_| {
                let why = format!(
                    "API server and store gave no file within {OPEN_TIMEOUT:?}: try again in a moment"
                );
                Err((StatusCode::SERVICE_UNAVAILABLE, why))
            })
    };
    answered
        .await
        .unwrap_or_else(|refused| refusal(&name, &refused))
}

/// From a request to the first byte of its file.
async fn open(
    server: &Server,
    name: &str,
    key: &str,
    headers: &HeaderMap,
) -> Result<Response, HttpError> {
    let Server {
        controller,
        asking,
        readers,
        ..
    } = server;
    let (asking, request, asked) = admitted(controller, asking, name, key).await?;
    let uid = match asked.wanted {
        reading::RequestedAnswer::Plan(spec) => return plan::answer(server, request, *spec).await,
        reading::RequestedAnswer::Objects(query) => {
            return objects::answer(server, request, query).await;
        }
        reading::RequestedAnswer::File { uid } => uid,
    };
    let wanted = controller
        .wanted_of(&uid, &request.spec.target)
        .await
        .map_err(|why| unanswered(&why))?;
    let reader = readers.acquire(&wanted.location).ok_or_else(|| {
        too_many(
            MAX_READERS_PER_LOCATION,
            "files of its location are being read",
        )
    })?;
    drop(asking);
    let file = seek(&request, &wanted).await?;
    answer(controller, request, file, headers, reader).await
}

/// Waits until the request is answered, as its author may not be allowed to read it. The permit
/// counts until access is decided.
async fn admitted<'a>(
    controller: &DownloadController,
    asking: &'a Semaphore,
    name: &str,
    key: &str,
) -> Result<(SemaphorePermit<'a>, DownloadRequest, ReadRequest), HttpError> {
    // An invalid name is not requested: it would be another path of the API.
    let is_name = name
        .bytes()
        .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'));
    loop {
        let permit = asking
            .try_acquire()
            .map_err(|_| too_many(MAX_UNAUTHORIZED_REQUESTS, "readers ask for a file"))?;
        let request = if is_name {
            controller.request(name).await
        } else {
            Ok(None)
        };
        let request = request.map_err(|error| (StatusCode::SERVICE_UNAVAILABLE, plain(&error)))?;
        match decide::admit(request, key, Timestamp::now()) {
            Ok((request, asked)) => return Ok((permit, request, asked)),
            Err(Refusal::NotAllowed) => return Err(not_allowed()),
            Err(Refusal::Failed(why)) => return Err((StatusCode::FAILED_DEPENDENCY, why)),
            Err(Refusal::NotYet) => drop(permit),
        }
        tokio::time::sleep(ANSWER_POLL).await;
    }
}

async fn seek(request: &DownloadRequest, wanted: &WantedFile) -> Result<StoredFile, HttpError> {
    let target = &request.spec.target;
    let subject = &wanted.of;
    if let Some(failure) = &subject.failure {
        let name = &target.name;
        let phase = &subject.phase;
        let why = format!(
            "restore {name} is {phase}, and what is stored under its name may be another's: {failure}"
        );
        return Err((StatusCode::NOT_FOUND, why));
    }
    let of = FileIdentity {
        uid: &subject.uid,
        started: subject.started,
        ended: subject.over,
    };
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
    let kind = request.spec.target.kind.as_str();
    let name = &request.spec.target.name;
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
) -> Result<Response, HttpError> {
    let version = file
        .version
        .as_ref()
        .map(|version| format!("\"{version}\""));
    let part = decide::part(
        header_text(headers, RANGE),
        header_text(headers, IF_RANGE),
        version.as_deref(),
        file.size,
    );
    let mut response = Response::builder().header(CACHE_CONTROL, "no-store");
    let (code, range) = match (part, file.size) {
        (Part::Whole, _) | (_, None) => (StatusCode::OK, None),
        (Part::Of(range), Some(size)) => {
            let last = range.end.saturating_sub(1);
            response = response.header(
                CONTENT_RANGE,
                format!("bytes {}-{last}/{size}", range.start),
            );
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
        response = response
            .header(CONTENT_LENGTH, length)
            .header(ACCEPT_RANGES, "bytes");
    } else {
        response = response.header(ACCEPT_RANGES, "none");
    }
    if let Some(version) = version {
        response = response.header(ETAG, version);
    }
    let to_the_end = range
        .as_ref()
        .is_none_or(|range| Some(range.end) == file.size);
    tracing::info!(
        request = request.metadata.name,
        kind = request.spec.target.kind.as_str(),
        of = request.spec.target.name,
        from = range.as_ref().map_or(0, |range| range.start),
        "a file is read"
    );
    let bytes = file
        .read(range)
        .await
        .map_err(|error| unanswered(&error.into()))?;
    let controller = Arc::clone(controller);
    let use_up = async move {
        if !to_the_end {
            return Ok(());
        }
        match use_up(&controller, &request).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the request is used up".to_owned()),
            Err(error) => Err(format!(
                "the request could not be used up: {}",
                plain(&error)
            )),
        }
    };
    let body = pump::body(bytes, use_up, reader);
    let response = response
        .status(code)
        .header(CONTENT_TYPE, "application/octet-stream")
        .body(body);
    response.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Deletes a request; returns false if it is gone already. Every replica serves files: the uid
/// keeps this deletion from hitting another request, so it needs no lease.
async fn use_up(
    controller: &DownloadController,
    request: &DownloadRequest,
) -> Result<bool, kube::Error> {
    let cluster = Cluster {
        leadership: Leadership::always(),
        ..controller.ctx.cluster.clone()
    };
    delete::delete(&cluster, request).await
}

fn too_many(count: usize, what: &str) -> HttpError {
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{count} {what} at the moment: try again in a moment"),
    )
}

fn not_allowed() -> HttpError {
    let why = "this key is invalid, used or expired; create a new DownloadRequest";
    (StatusCode::FORBIDDEN, why.to_owned())
}

/// 404 is reserved for missing files.
fn unanswered(why: &ReconcileError) -> HttpError {
    let code = if why.is_transient() {
        StatusCode::SERVICE_UNAVAILABLE
    } else if matches!(why, ReconcileError::Store(StoreError::Corrupt { .. })) {
        StatusCode::UNPROCESSABLE_ENTITY
    } else {
        StatusCode::FAILED_DEPENDENCY
    };
    (code, why.to_string())
}

/// In the form of the API server, so that its clients understand.
fn refusal(name: &str, (code, message): &HttpError) -> Response {
    let passing = *code == StatusCode::SERVICE_UNAVAILABLE;
    let mut details = json!({ "kind": STATUS_KIND, "name": name });
    let mut response = Response::builder()
        .status(*code)
        .header(CONTENT_TYPE, "application/json")
        .header(CACHE_CONTROL, "no-store");
    if passing {
        details["retryAfterSeconds"] = json!(RETRY_AFTER_SECONDS);
        response = response.header(RETRY_AFTER, RETRY_AFTER_SECONDS);
    }
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let status = json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(),
        "reason": reason, "message": message, "details": details });
    response
        .body(Body::from(status.to_string()))
        .unwrap_or_default()
}

/// Limits how many files of each location are read: a stalled one takes no place from other
/// locations. Cheap to clone.
#[derive(Clone, Debug, Default)]
struct ReaderLimits(Arc<Mutex<HashMap<String, Arc<Semaphore>>>>);

impl ReaderLimits {
    /// A permit to read from this location, if one is free.
    fn acquire(&self, location: &str) -> Option<OwnedSemaphorePermit> {
        let mut all = self.0.lock();
        // Locations without readers are removed.
        all.retain(|_, readers| readers.available_permits() < MAX_READERS_PER_LOCATION);
        let readers = all
            .entry(location.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(MAX_READERS_PER_LOCATION)));
        Arc::clone(readers).try_acquire_owned().ok()
    }
}

/// A self-signed certificate for this process. The API server's proxy checks none, so a signed one
/// would gain nothing; it prevents eavesdropping on the way.
fn tls_config() -> anyhow::Result<RustlsConfig> {
    let made = rcgen::generate_simple_self_signed(vec!["backup-controller".to_owned()])
        .context("a certificate could not be made")?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
        .map_err(|error| anyhow::anyhow!("the key of the certificate can not be used: {error}"))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    // One connection per reader: a reader that leaves or stalls is noticed, and does not block
    // others.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(RustlsConfig::from_config(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_one_location_take_no_place_from_those_of_another() {
        let limits = ReaderLimits::default();
        let mut slow: Vec<_> = (0..MAX_READERS_PER_LOCATION)
            .map(|_| limits.acquire("slow"))
            .collect();
        assert!(slow.iter().all(Option::is_some) && limits.acquire("slow").is_none());
        assert!(limits.acquire("fast").is_some());
        slow.pop();
        assert!(limits.acquire("slow").is_some() && limits.acquire("slow").is_some());
        drop(slow);
        drop(limits.acquire("fast"));
        assert_eq!(
            limits.0.lock().len(),
            1,
            "of those that nobody reads from nothing is kept"
        );
    }
}

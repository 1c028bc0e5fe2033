//! Authorizes callers: the API server of this cluster, and the other replicas. Both prove
//! themselves by a path that only the registration names, before any review is read. Also limits
//! how much a replica reads concurrently.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_LENGTH},
    middleware::Next,
    response::Response,
};
use parking_lot::RwLock;
use subtle::ConstantTimeEq as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    time::{Instant, timeout},
};

use crate::{
    admission_review::{no_review, try_again},
    peers,
};

/// Time for which a path stays valid after it was last seen in a registration: API servers see a
/// new one within seconds, and the old one may have been told to clients.
const PATH_TTL: Duration = Duration::from_mins(1);
const PREFIX: &str = "/validate/";
/// Length of a secret (bytes).
const SECRET_BYTES: usize = 32;

/// Maximum size of a body (bytes): a review of an update holds two objects, and the API server
/// takes up to 3 MiB for one.
pub(crate) const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Limits on bodies in flight, and on their memory once parsed: together far below the memory limit
/// of deploy/base/webhook.yaml.
const BODIES_KIB: u32 = 16 * 1024;
const REVIEWS_KIB: u32 = 48 * 1024;
/// Timeout for a request to get memory, or for its path to become known.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);

/// The paths in the registrations, now or until recently. All clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretPaths(Arc<RwLock<Vec<KnownPath>>>);

#[derive(Debug)]
struct KnownPath {
    path: String,
    /// Times at which it was first and last seen.
    since: Instant,
    seen: Instant,
}

impl SecretPaths {
    /// Makes a new path.
    pub(crate) fn make() -> anyhow::Result<String> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)
            .map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        Ok(secret.iter().fold(PREFIX.to_owned(), |mut path, byte| {
            // Writing into a string does not fail.
            let _ = write!(path, "{byte:02x}");
            path
        }))
    }

    /// Whether a path has the form of a path from [`SecretPaths::make`].
    pub(crate) fn is_secret(path: &str) -> bool {
        let secret = path.strip_prefix(PREFIX).unwrap_or_default();
        secret.len() == 2 * SECRET_BYTES && secret.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Records that a registration has this path.
    pub(crate) fn saw(&self, path: &str, now: Instant) {
        let mut known = self.0.write();
        known.retain(|known| now < known.seen + PATH_TTL || known.path == path);
        match known.iter_mut().find(|known| known.path == path) {
            Some(known) => known.seen = now,
            None => known.push(KnownPath {
                path: path.to_owned(),
                since: now,
                seen: now,
            }),
        }
    }

    /// Time since this replica first saw the path.
    pub(crate) fn age(&self, path: &str, now: Instant) -> Duration {
        let known = self.0.read();
        let known = known.iter().find(|known| known.path == path);
        known.map_or(Duration::ZERO, |known| {
            now.saturating_duration_since(known.since)
        })
    }

    /// Whether a caller may use this path. Takes the same time for all paths of one length.
    pub(crate) fn contain(&self, path: &str, now: Instant) -> bool {
        let known = self.0.read();
        let good = known.iter().filter(|known| now < known.seen + PATH_TTL);
        good.fold(false, |found, known| {
            found | bool::from(known.path.as_bytes().ct_eq(path.as_bytes()))
        })
    }

    fn newest(&self) -> Option<String> {
        self.0
            .read()
            .iter()
            .max_by_key(|known| known.since)
            .map(|known| known.path.clone())
    }
}

/// Whether the path of a request authorizes its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Given,
    Missing,
    /// The registration cannot be read now.
    Unknown,
}

/// Admits authorized callers within the memory limits. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Callers {
    paths: SecretPaths,
    /// Requests a new look at the registrations; the answer is whether they could be read.
    look: mpsc::Sender<oneshot::Sender<bool>>,
    bodies: Arc<Semaphore>,
    reviews: Arc<Semaphore>,
}

impl Callers {
    pub(crate) fn new(paths: SecretPaths, look: mpsc::Sender<oneshot::Sender<bool>>) -> Self {
        Self {
            paths,
            look,
            bodies: Arc::new(Semaphore::new(BODIES_KIB as usize)),
            reviews: Arc::new(Semaphore::new(REVIEWS_KIB as usize)),
        }
    }

    /// Whether this path authorizes a caller. An unknown path may be newer than the last look at
    /// the registration.
    async fn know(&self, path: &str) -> Proof {
        if self.paths.contain(path, Instant::now()) {
            return Proof::Given;
        }
        let (reply, looked) = oneshot::channel();
        let could_look = match self.look.try_send(reply) {
            Ok(()) => timeout(WAIT_TIMEOUT, looked)
                .await
                .is_ok_and(|looked| looked.unwrap_or(true)),
            Err(error) => matches!(error, mpsc::error::TrySendError::Closed(_)),
        };
        if self.paths.contain(path, Instant::now()) {
            Proof::Given
        } else if could_look || !SecretPaths::is_secret(path) {
            Proof::Missing
        } else {
            Proof::Unknown
        }
    }

    /// The path with which this replica calls another one.
    pub(crate) fn path(&self) -> Option<String> {
        self.paths.newest()
    }

    /// Waits for the memory that a parsed body takes.
    pub(crate) async fn room_for(&self, body: &[u8]) -> Result<OwnedSemaphorePermit, Response> {
        take(&self.reviews, memory_of(body), REVIEWS_KIB).await
    }
}

/// Refuses callers that are neither the API server nor a replica, and requests that are too large,
/// before a body is read. Limits the requests in progress by their memory.
///
/// While the registration cannot be read, a caller may use a newer path than this replica knows. The
/// answer asks it to retry. This needs the body: the API server passes only an answer to the review on
/// to its client. Nothing is decided for it.
pub(crate) async fn admit(
    State(callers): State<Callers>,
    request: Request,
    next: Next,
) -> Response {
    let proof = callers.know(request.uri().path()).await;
    // If this replica refuses, the forwarding replica decides.
    if proof == Proof::Missing || proof == Proof::Unknown && peers::is_forwarded(request.uri()) {
        let why = "this path is not the one in the webhook's registration; only the API server of this cluster may ask";
        return no_review(StatusCode::FORBIDDEN, why);
    }
    let length = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let Some(length) = length else {
        return no_review(
            StatusCode::LENGTH_REQUIRED,
            "the header Content-Length is missing or no number",
        );
    };
    if length > BODY_LIMIT {
        let why = format!("the review has {length} bytes; at most {BODY_LIMIT} are read");
        return no_review(StatusCode::PAYLOAD_TOO_LARGE, &why);
    }
    let _room = match take(&callers.bodies, length, BODIES_KIB).await {
        Ok(room) => room,
        Err(refusal) => return refusal,
    };
    if proof == Proof::Given {
        return next.run(request).await;
    }
    let Ok(body) = axum::body::to_bytes(request.into_body(), BODY_LIMIT).await else {
        return no_review(StatusCode::BAD_REQUEST, "the body could not be read");
    };
    match callers.room_for(&body).await {
        Ok(_room) => try_again(
            &body,
            "the API server does not say which path its registration names",
        ),
        Err(refusal) => refusal,
    }
}

async fn take(
    room: &Arc<Semaphore>,
    bytes: usize,
    of_kib: u32,
) -> Result<OwnedSemaphorePermit, Response> {
    let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    if kib > of_kib {
        let why =
            format!("the review would take {kib} KiB of memory; at most {of_kib} are there for it");
        return Err(no_review(StatusCode::PAYLOAD_TOO_LARGE, &why));
    }
    match timeout(WAIT_TIMEOUT, Arc::clone(room).acquire_many_owned(kib)).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(no_review(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many reviews are being decided on; try again",
        )),
    }
}

/// Maximum memory of a parsed JSON text (bytes): each map has a node with room for eleven fields,
/// each value takes 32 bytes, and lists grow by doubling.
fn memory_of(body: &[u8]) -> usize {
    body.iter().fold(2 * body.len(), |sum, byte| match byte {
        b'{' => sum + 700,
        b',' | b'[' => sum + 64,
        b'"' => sum + 16,
        _ => sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_secret_and_no_two_are_equal() {
        let (one, two) = (SecretPaths::make().unwrap(), SecretPaths::make().unwrap());
        assert_ne!(one, two);
        for (path, secret) in [
            (one.as_str(), true),
            ("", false),
            ("/validate", false),
            ("/validate/", false),
            ("/validate/abc", false),
        ] {
            assert_eq!(SecretPaths::is_secret(path), secret, "{path}");
        }
        let paths = SecretPaths::default();
        assert!(!paths.contain(&one, Instant::now()));
        paths.saw(&one, Instant::now());
        assert!(paths.contain(&one, Instant::now()) && !paths.contain(&two, Instant::now()));
        assert!(
            !paths.contain("", Instant::now())
                && !paths.contain(&one[..one.len() - 1], Instant::now())
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_waits_and_what_never_fits_is_refused() {
        let (look, _) = mpsc::channel(1);
        let callers = Callers::new(SecretPaths::default(), look);
        let nested = vec![b'{'; 100_000];
        assert_eq!(
            callers.room_for(&nested).await.unwrap_err().status(),
            StatusCode::PAYLOAD_TOO_LARGE
        );
        let large = vec![b'x'; BODY_LIMIT];
        let taken = [
            callers.room_for(&large).await.unwrap(),
            callers.room_for(&large).await.unwrap(),
        ];
        let third = callers.room_for(&large).await.unwrap();
        assert_eq!(
            callers.room_for(b"{}").await.unwrap_err().status(),
            StatusCode::SERVICE_UNAVAILABLE
        );
        drop((taken, third));
        assert!(callers.room_for(b"{}").await.is_ok());
    }
}

//! Who may ask: the API server of this cluster, and the other replicas. Both prove it by a path that only the registration
//! names, before anything of a review is read. And how much of what they ask a replica takes in at a time.

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
    peers,
    review::{no_review, try_again},
};

/// How long a path is known after it was seen in a registration for the last time: API servers hear of a new one in seconds, and
/// it may have been told to clients.
const KNOWN: Duration = Duration::from_mins(1);
const PREFIX: &str = "/validate/";
/// Bytes of a secret.
const SECRET: usize = 32;

/// The largest body: a review of an update holds two objects, and the API server takes up to 3 MiB for one.
pub(crate) const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// Bodies in flight, and what becomes of them in memory: together far below the memory limit of deploy/base/webhook.yaml.
const BODIES_KIB: u32 = 16 * 1024;
const REVIEWS_KIB: u32 = 48 * 1024;
/// How long a request waits until there is room for it, or until its path is known.
const PATIENCE: Duration = Duration::from_secs(3);

/// The paths that registrations lead to, or led to a moment ago. All clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretPaths(Arc<RwLock<Vec<Known>>>);

#[derive(Debug)]
struct Known {
    path: String,
    /// First and last time that it was seen.
    since: Instant,
    seen: Instant,
}

impl SecretPaths {
    /// A new one.
    pub(crate) fn make() -> anyhow::Result<String> {
        let mut secret = [0; SECRET];
        getrandom::fill(&mut secret).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        Ok(secret.iter().fold(PREFIX.to_owned(), |mut path, byte| {
            // Writing into a text does not fail.
            let _ = write!(path, "{byte:02x}");
            path
        }))
    }

    /// Whether a path is one that [`SecretPaths::make`] may have made.
    pub(crate) fn is_secret(path: &str) -> bool {
        let secret = path.strip_prefix(PREFIX).unwrap_or_default();
        secret.len() == 2 * SECRET && secret.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// A registration leads there.
    pub(crate) fn saw(&self, path: &str, now: Instant) {
        let mut known = self.0.write();
        known.retain(|known| now < known.seen + KNOWN || known.path == path);
        match known.iter_mut().find(|known| known.path == path) {
            Some(known) => known.seen = now,
            None => known.push(Known { path: path.to_owned(), since: now, seen: now }),
        }
    }

    /// For how long this replica has known it.
    pub(crate) fn age(&self, path: &str, now: Instant) -> Duration {
        let known = self.0.read();
        let known = known.iter().find(|known| known.path == path);
        known.map_or(Duration::ZERO, |known| now.saturating_duration_since(known.since))
    }

    /// Whether a caller may come by it. Takes as long for any path of one length.
    pub(crate) fn contain(&self, path: &str, now: Instant) -> bool {
        let known = self.0.read();
        let good = known.iter().filter(|known| now < known.seen + KNOWN);
        good.fold(false, |found, known| found | bool::from(known.path.as_bytes().ct_eq(path.as_bytes())))
    }

    fn newest(&self) -> Option<String> {
        self.0.read().iter().max_by_key(|known| known.since).map(|known| known.path.clone())
    }
}

/// What a path says about a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    Given,
    Missing,
    /// The registration cannot be read now.
    Unknown,
}

/// Lets in who may ask, as far as there is room. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Callers {
    paths: SecretPaths,
    /// Has the registrations looked at; the answer is whether they could be read.
    look: mpsc::Sender<oneshot::Sender<bool>>,
    bodies: Arc<Semaphore>,
    reviews: Arc<Semaphore>,
}

impl Callers {
    pub(crate) fn new(paths: SecretPaths, look: mpsc::Sender<oneshot::Sender<bool>>) -> Self {
        let room = |kib: u32| Arc::new(Semaphore::new(kib as usize));
        Self { paths, look, bodies: room(BODIES_KIB), reviews: room(REVIEWS_KIB) }
    }

    /// Whether a caller by this path may ask. One that is not known may be newer than the last look at the registration.
    async fn know(&self, path: &str) -> Proof {
        if self.paths.contain(path, Instant::now()) {
            return Proof::Given;
        }
        let (reply, looked) = oneshot::channel();
        let could_look = match self.look.try_send(reply) {
            Ok(()) => timeout(PATIENCE, looked).await.is_ok_and(|looked| looked.unwrap_or(true)),
            Err(error) => matches!(error, mpsc::error::TrySendError::Closed(_)),
        };
        match self.paths.contain(path, Instant::now()) {
            true => Proof::Given,
            false if could_look || !SecretPaths::is_secret(path) => Proof::Missing,
            false => Proof::Unknown,
        }
    }

    /// The path by which this replica asks another one.
    pub(crate) fn path(&self) -> Option<String> {
        self.paths.newest()
    }

    /// Room for what a body becomes when it is read.
    pub(crate) async fn room_for(&self, body: &[u8]) -> Result<OwnedSemaphorePermit, Response> {
        take(&self.reviews, memory_of(body), REVIEWS_KIB).await
    }
}

/// Refuses a caller that did not prove to be the API server or a replica, and what is too large, before a body is read. Lets as much
/// in at a time as there is room for.
///
/// While the registration cannot be read, a caller may know a newer path than this replica. It is told to try again, which takes its
/// body: the API server hands on to its client only what is in an answer to a review. Nothing is decided for it.
pub(crate) async fn admit(State(callers): State<Callers>, request: Request, next: Next) -> Response {
    let proof = callers.know(request.uri().path()).await;
    // Another replica decides itself where this one refuses.
    if proof == Proof::Missing || proof == Proof::Unknown && peers::is_forwarded(request.uri()) {
        let why = "this path is not the one in the webhook's registration; only the API server of this cluster may ask";
        return no_review(StatusCode::FORBIDDEN, why);
    }
    let length =
        request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let Some(length) = length else {
        return no_review(StatusCode::LENGTH_REQUIRED, "the header Content-Length is missing or no number");
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
        Ok(_room) => try_again(&body, "the API server does not say which path its registration names"),
        Err(refusal) => refusal,
    }
}

async fn take(room: &Arc<Semaphore>, bytes: usize, of_kib: u32) -> Result<OwnedSemaphorePermit, Response> {
    let kib = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
    if kib > of_kib {
        let why = format!("the review would take {kib} KiB of memory; at most {of_kib} are there for it");
        return Err(no_review(StatusCode::PAYLOAD_TOO_LARGE, &why));
    }
    match timeout(PATIENCE, Arc::clone(room).acquire_many_owned(kib)).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(no_review(
            StatusCode::SERVICE_UNAVAILABLE,
            "too many reviews are being decided on; try again",
        )),
    }
}

/// Bytes of memory that a JSON text takes once it is read, at most: each map has a node with room for eleven fields, each
/// value 32 bytes, and lists grow by doubling.
fn memory_of(body: &[u8]) -> usize {
    let weigh = |sum: usize, byte: &u8| match byte {
        b'{' => sum + 700,
        b',' | b'[' => sum + 64,
        b'"' => sum + 16,
        _ => sum,
    };
    body.iter().fold(2 * body.len(), weigh)
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
        assert!(!paths.contain("", Instant::now()) && !paths.contain(&one[..one.len() - 1], Instant::now()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_waits_and_what_never_fits_is_refused() {
        let (look, _) = mpsc::channel(1);
        let callers = Callers::new(SecretPaths::default(), look);
        let nested = vec![b'{'; 100_000];
        assert_eq!(callers.room_for(&nested).await.unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
        let large = vec![b'x'; BODY_LIMIT];
        let taken = [callers.room_for(&large).await.unwrap(), callers.room_for(&large).await.unwrap()];
        let third = callers.room_for(&large).await.unwrap();
        assert_eq!(callers.room_for(b"{}").await.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE);
        drop((taken, third));
        assert!(callers.room_for(b"{}").await.is_ok());
    }
}

//! The two servers: reviews over TLS, health and metrics over plain HTTP.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{
        HeaderName, HeaderValue, StatusCode, Version,
        header::{CONNECTION, CONTENT_TYPE},
    },
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{get, post},
};
use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use backup_lock::{ProtectedProfile, VELERO_SCOPE};

use crate::{
    callers::{self, BODY_LIMIT},
    metrics::Metrics,
    review::{self, Webhook},
};

/// Time for which a stopping replica still serves, so that clients leave after an answer
/// ([`ask_to_leave`]).
const LEAVE_GRACE: Duration = Duration::from_secs(2);
/// Timeout for requests in progress after that.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn router(webhook: Webhook) -> Router {
    let callers = webhook.callers.clone();
    Router::new()
        // The path is a secret, which is checked first.
        .fallback(post(review::validate))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(webhook)
        .layer(from_fn_with_state(callers, callers::admit))
}

/// Closes connections with the next answer while this replica is not ready.
///
/// The API server keeps connections to webhooks open, speaks HTTP/1.1 on them, and keeps using one
/// after the Service has lost its endpoint. A server that stops closes idle connections; a request
/// sent at that very moment fails, since clients do not send a POST twice, and the creation with
/// it.
async fn ask_to_leave(
    State(ready): State<Arc<AtomicBool>>,
    request: Request,
    next: Next,
) -> Response {
    let kept = request.version() >= Version::HTTP_2 || ready.load(Ordering::SeqCst);
    let mut response = next.run(request).await;
    if !kept {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

pub(crate) fn leaving_when_not_ready(router: Router, health: &Health) -> Router {
    router.layer(from_fn_with_state(Arc::clone(&health.ready), ask_to_leave))
}

pub(crate) async fn serve(
    address: SocketAddr,
    tls: RustlsConfig,
    router: Router,
    handle: Handle<SocketAddr>,
) -> anyhow::Result<()> {
    tracing::info!(%address, "listening for reviews");
    axum_server::bind(address)
        // Otherwise the last segment of an answer waits until the client has acknowledged the one
        // before.
        .acceptor(RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor))
        .handle(handle)
        .serve(router.into_make_service())
        .await
        .with_context(|| format!("could not serve on --listen {address}"))
}

/// Whether this replica can decide; cheap to clone.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) ready: Arc<AtomicBool>,
    pub(crate) metrics: Arc<Metrics>,
}

pub(crate) fn health_router(health: Health) -> Router {
    async fn readyz(State(health): State<Health>) -> (StatusCode, &'static str) {
        if health.ready.load(Ordering::SeqCst) {
            (StatusCode::OK, "ok")
        } else {
            (
                StatusCode::SERVICE_UNAVAILABLE,
                "the ledger has not been read yet, or this replica is stopping",
            )
        }
    }
    async fn metrics(State(health): State<Health>) -> ([(HeaderName, &'static str); 1], String) {
        let text = health.metrics.text(health.ready.load(Ordering::SeqCst));
        ([(CONTENT_TYPE, backup_metrics::CONTENT_TYPE)], text)
    }
    Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health)
}

pub(crate) async fn serve_health(address: SocketAddr, health: Health) -> anyhow::Result<()> {
    axum_server::bind(address)
        .serve(health_router(health).into_make_service())
        .await
        .with_context(|| format!("could not serve on --health-listen {address}"))
}

/// Ready once Velero's ledger could be read, or created. A ledger that is being rebuilt counts,
/// too: requests get that as the reason.
pub(crate) async fn become_ready(profiles: Vec<ProtectedProfile>, health: Health) {
    loop {
        let Some(protected) = profiles
            .iter()
            .find(|protected| protected.profile.is_velero())
        else {
            return health.ready.store(true, Ordering::SeqCst);
        };
        match protected.store.open(VELERO_SCOPE).await {
            Ok(stored) => {
                tracing::info!(
                    claims = stored.ledger.len(),
                    epoch = stored.ledger.epoch,
                    "ready"
                );
                return health.ready.store(true, Ordering::SeqCst);
            }
            Err(error) if error.is_transient() && !error.passes_soon() => {
                tracing::warn!(%error, "ready, but nothing is granted yet");
                return health.ready.store(true, Ordering::SeqCst);
            }
            Err(error) => {
                tracing::warn!(%error, "not ready: the ledger could not be read; trying again");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits for the signal, then lets clients leave and requests in progress finish.
pub(crate) async fn shut_down_on(
    stop: impl Future<Output = ()>,
    health: Health,
    handle: Handle<SocketAddr>,
) {
    stop.await;
    tracing::info!("stopping");
    health.ready.store(false, Ordering::SeqCst);
    tokio::time::sleep(LEAVE_GRACE).await;
    handle.graceful_shutdown(Some(DRAIN_TIMEOUT));
}

#[cfg(test)]
mod tests {
    use kube::Client;

    use super::*;

    #[tokio::test]
    async fn connections_end_with_an_answer_while_a_replica_stops() {
        for (version, ready, ends) in [
            (Version::HTTP_11, false, true),
            (Version::HTTP_11, true, false),
            // HTTP/2 has its own frame for that, and forbids this header.
            (Version::HTTP_2, false, false),
        ] {
            let health = Health {
                ready: Arc::new(ready.into()),
                metrics: Arc::default(),
            };
            let router = Router::new().fallback(async || "decided");
            let client = Client::new(leaving_when_not_ready(router, &health), "velero");
            let mut request = axum::http::Request::post("/")
                .body(kube::client::Body::empty())
                .unwrap();
            *request.version_mut() = version;
            let answer = client.send(request).await.unwrap();
            let header = answer.headers().get(CONNECTION).map(HeaderValue::as_bytes);
            assert_eq!(
                header,
                ends.then_some(&b"close"[..]),
                "{version:?}, ready: {ready}"
            );
        }
    }
}

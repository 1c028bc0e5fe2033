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
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    middleware::from_fn_with_state,
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

/// How long requests under way may take after a stop was asked for.
const DRAIN: Duration = Duration::from_secs(10);

pub(crate) fn router(webhook: Webhook) -> Router {
    let callers = webhook.callers.clone();
    Router::new()
        // The path is a secret, which is asked for first.
        .fallback(post(review::validate))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(webhook)
        .layer(from_fn_with_state(callers, callers::admit))
}

pub(crate) async fn serve(
    address: SocketAddr,
    tls: RustlsConfig,
    webhook: Webhook,
    handle: Handle<SocketAddr>,
) -> anyhow::Result<()> {
    tracing::info!(%address, "listening for reviews");
    axum_server::bind(address)
        // Or the last piece of an answer waits until its reader has confirmed the piece before it.
        .acceptor(RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor))
        .handle(handle)
        .serve(router(webhook).into_make_service())
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
            (StatusCode::SERVICE_UNAVAILABLE, "the ledger has not been read yet, or this replica is stopping")
        }
    }
    async fn metrics(State(health): State<Health>) -> String {
        health.metrics.text()
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

/// Ready once Velero's ledger could be read, or made. One that is being rebuilt is fine: it says so to those who ask.
pub(crate) async fn become_ready(profiles: Vec<ProtectedProfile>, health: Health) {
    loop {
        let Some(protected) = profiles.iter().find(|protected| protected.profile.is_velero()) else {
            return health.ready.store(true, Ordering::SeqCst);
        };
        match protected.store.open(VELERO_SCOPE).await {
            Ok(stored) => {
                tracing::info!(claims = stored.ledger.len(), epoch = stored.ledger.epoch, "ready");
                return health.ready.store(true, Ordering::SeqCst);
            }
            Err(error) if error.is_transient() && !error.passes_soon() => {
                tracing::warn!(%error, "ready, but nothing is granted yet");
                return health.ready.store(true, Ordering::SeqCst);
            }
            Err(error) => tracing::warn!(%error, "not ready: the ledger could not be read; trying again"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Waits for the signal, then lets what is under way end.
pub(crate) async fn shut_down_on(stop: impl Future<Output = ()>, health: Health, handle: Handle<SocketAddr>) {
    stop.await;
    tracing::info!("stopping");
    health.ready.store(false, Ordering::SeqCst);
    handle.graceful_shutdown(Some(DRAIN));
}

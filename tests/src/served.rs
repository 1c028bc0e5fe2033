//! TLS servers of the kit on free loopback ports, most of them webhooks.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use axum::{Json, Router, extract::Request, middleware::map_request};
use axum_server::{
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use serde_json::Value;

use crate::pki::Identity;

/// Timeout for a server to listen.
const START: Duration = Duration::from_secs(30);

/// A running server that counts its requests; ends when dropped.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    handle: axum_server::Handle<SocketAddr>,
    calls: Arc<AtomicU64>,
}

impl Served {
    pub(crate) async fn start(identity: &Identity, app: Router) -> anyhow::Result<Self> {
        let (tls, handle, calls) = (
            tls(identity).await?,
            axum_server::Handle::new(),
            Arc::default(),
        );
        tokio::spawn(serve(tls, handle.clone(), Arc::clone(&calls), app));
        Self::listening(handle, calls).await
    }

    /// Serves the router of `app` on a separate runtime, so that its answers are not delayed by the
    /// load of the measuring client.
    pub(crate) async fn apart<F>(identity: &Identity, app: F) -> anyhow::Result<Self>
    where
        F: AsyncFnOnce() -> anyhow::Result<Router> + Send + 'static,
    {
        let (tls, handle, calls) = (
            tls(identity).await?,
            axum_server::Handle::new(),
            Arc::default(),
        );
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let (server, counter) = (handle.clone(), Arc::clone(&calls));
        std::thread::Builder::new()
            .name("kit-webhook".to_owned())
            .spawn(move || {
                let ended = runtime
                    .block_on(async move { serve(tls, server, counter, app().await?).await });
                if let Err(error) = ended {
                    eprintln!("a webhook of the kit ended: {error:#}");
                }
            })?;
        Self::listening(handle, calls).await
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of requests so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    async fn listening(
        handle: axum_server::Handle<SocketAddr>,
        calls: Arc<AtomicU64>,
    ) -> anyhow::Result<Self> {
        let wait = tokio::time::timeout(START, handle.listening()).await;
        let address = wait
            .ok()
            .flatten()
            .context("a server of the kit does not listen")?;
        Ok(Self {
            address,
            handle,
            calls,
        })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.shutdown();
    }
}

async fn tls(identity: &Identity) -> anyhow::Result<RustlsConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(RustlsConfig::from_pem_file(&identity.cert, &identity.key).await?)
}

async fn serve(
    tls: RustlsConfig,
    handle: axum_server::Handle<SocketAddr>,
    calls: Arc<AtomicU64>,
    app: Router,
) -> anyhow::Result<()> {
    let app = app.layer(map_request(move |request: Request| {
        calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(request)
    }));
    // As our webhook does, and as Go servers do.
    let acceptor = RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor);
    let server = axum_server::bind("127.0.0.1:0".parse()?)
        .acceptor(acceptor)
        .handle(handle);
    Ok(server.serve(app.into_make_service()).await?)
}

/// The answer of a webhook whose `decide` gets a request and an answer that allows it.
pub(crate) async fn reviewed<D: Future<Output = AdmissionResponse>>(
    review: AdmissionReview<DynamicObject>,
    decide: impl FnOnce(AdmissionRequest<DynamicObject>, AdmissionResponse) -> D,
) -> Json<Value> {
    let answer = match review.try_into() {
        Err(error) => AdmissionResponse::invalid(error),
        Ok(request) => {
            let allowed = AdmissionResponse::from(&request);
            decide(request, allowed).await
        }
    };
    Json(serde_json::to_value(answer.into_review()).unwrap_or_default())
}

/// Turns an answer into a denial.
pub(crate) fn deny(
    mut response: AdmissionResponse,
    code: u16,
    reason: &str,
    why: &str,
) -> AdmissionResponse {
    response.allowed = false;
    response.result = Status::failure(why, reason).with_code(code);
    response
}

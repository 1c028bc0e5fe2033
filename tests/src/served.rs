//! TLS servers of the kit on free loopback ports.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use axum::Router;
use axum_server::{
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};

use crate::pki::Identity;

/// Longest wait until it listens.
const START: Duration = Duration::from_secs(30);

/// A running server; ends when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    address: SocketAddr,
    handle: axum_server::Handle<SocketAddr>,
}

impl Served {
    pub(crate) async fn start(identity: &Identity, app: Router) -> anyhow::Result<Self> {
        let (tls, handle) = (tls(identity).await?, axum_server::Handle::new());
        tokio::spawn(serve(tls, handle.clone(), app));
        Self::listening(handle).await
    }

    /// Serves what `app` makes on a runtime of its own, so that the load of whoever measures does not wait in front of
    /// its answers.
    pub(crate) async fn apart<F>(identity: &Identity, app: F) -> anyhow::Result<Self>
    where
        F: AsyncFnOnce() -> anyhow::Result<Router> + Send + 'static,
    {
        let (tls, handle) = (tls(identity).await?, axum_server::Handle::new());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let server = handle.clone();
        std::thread::Builder::new().name("kit-webhook".to_owned()).spawn(move || {
            let ended = runtime.block_on(async move { serve(tls, server, app().await?).await });
            if let Err(error) = ended {
                eprintln!("a webhook of the kit ended: {error:#}");
            }
        })?;
        Self::listening(handle).await
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    async fn listening(handle: axum_server::Handle<SocketAddr>) -> anyhow::Result<Self> {
        let wait = tokio::time::timeout(START, handle.listening()).await;
        let address = wait.ok().flatten().context("a server of the kit does not listen")?;
        Ok(Self { address, handle })
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
    app: Router,
) -> anyhow::Result<()> {
    // As our webhook does, and any in Go.
    let acceptor = RustlsAcceptor::new(tls).acceptor(NoDelayAcceptor);
    let server = axum_server::bind("127.0.0.1:0".parse()?).acceptor(acceptor).handle(handle);
    Ok(server.serve(app.into_make_service()).await?)
}

//! The serving certificate, read again when its files change.
//!
//! The files are polled: a Secret volume swaps a symlink, which file watches miss.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use tokio::sync::watch;
use x509_parser::pem::Pem;

use crate::metrics::Metrics;

const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The CA of the replicas' certificates, as followed by the registration and the other replicas:
/// certificates, PEM. `None` if another program puts it into the registration, as cert-manager
/// does.
pub(crate) type Authority = Option<Arc<[u8]>>;

/// A certificate chain and its key, PEM.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub cert: Vec<u8>,
    pub key: Vec<u8>,
}

/// Loads the certificate from files that another program renews, and keeps it up to date.
pub(crate) async fn load(
    cert: PathBuf,
    key: PathBuf,
    metrics: Arc<Metrics>,
) -> anyhow::Result<RustlsConfig> {
    let pair = read(&cert, &key).await?;
    let config = config(&pair).await?;
    report_end(&metrics, &pair.cert);
    tokio::spawn(keep_fresh(config.clone(), pair, cert, key, metrics));
    Ok(config)
}

/// Expiry of a certificate.
pub(crate) fn end(pem: &[u8]) -> anyhow::Result<jiff::Timestamp> {
    let cannot = "the certificate can't be read";
    let pem = Pem::iter_from_buffer(pem)
        .next()
        .context(cannot)?
        .context(cannot)?;
    let end = pem
        .parse_x509()
        .context(cannot)?
        .validity()
        .not_after
        .timestamp();
    Ok(jiff::Timestamp::from_second(end)?)
}

/// Measures when a certificate expires. One whose expiry cannot be read is still served.
pub(crate) fn report_end(metrics: &Metrics, cert: &[u8]) {
    match end(cert) {
        Ok(end) => metrics.certificate_ends(end.as_second()),
        Err(error) => tracing::warn!("{error:#}; when it ends is not measured"),
    }
}

/// Follows the file of an authority.
pub(crate) async fn follow_authority(file: PathBuf, authority: watch::Sender<Authority>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        match tokio::fs::read(&file).await {
            Ok(bytes) => {
                authority.send_if_modified(|known| {
                    let is_new = known.as_deref() != Some(&bytes);
                    if is_new {
                        *known = Some(bytes.into());
                    }
                    is_new
                });
            }
            Err(error) => {
                tracing::warn!(%error, file = %file.display(), "the authority can't be read; the old one stays");
            }
        }
    }
}

pub(crate) async fn config(pair: &Pair) -> anyhow::Result<RustlsConfig> {
    RustlsConfig::from_pem(pair.cert.clone(), pair.key.clone())
        .await
        .context(
            "the serving certificate and key can't be used; expected a PEM chain and its PEM key",
        )
}

async fn read(cert: &Path, key: &Path) -> anyhow::Result<Pair> {
    Ok(Pair {
        cert: read_file(cert).await?,
        key: read_file(key).await?,
    })
}

async fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    tokio::fs::read(path)
        .await
        .with_context(|| format!("could not read the TLS file {}", path.display()))
}

/// Reloads changed files. Unusable contents are reported and skipped; the old certificate stays in
/// use.
async fn keep_fresh(
    config: RustlsConfig,
    mut current: Pair,
    cert: PathBuf,
    key: PathBuf,
    metrics: Arc<Metrics>,
) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let next = match read(&cert, &key).await {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!("{error:#}; the certificate in use stays");
                continue;
            }
        };
        if next == current {
            continue;
        }
        match config
            .reload_from_pem(next.cert.clone(), next.key.clone())
            .await
        {
            Ok(()) => {
                tracing::info!("took over a new serving certificate");
                report_end(&metrics, &next.cert);
                current = next;
            }
            // Between two writes the files may not match; the next look finds both complete.
            Err(error) => {
                tracing::warn!(%error, "the new serving certificate can't be used; the old one stays");
            }
        }
    }
}

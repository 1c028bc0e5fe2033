//! The certificate of the server of files.

use std::sync::Arc;

use anyhow::Context as _;
use axum_server::tls_rustls::RustlsConfig;
use rustls::{ServerConfig, pki_types::PrivateKeyDer};

/// A certificate of this process's own. The API server's proxy checks none, so nothing would be gained by one that others vouch
/// for; what it is for is that nobody on the way reads along.
///
/// # Errors
/// No randomness, or no TLS provider.
pub(super) fn config() -> anyhow::Result<RustlsConfig> {
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

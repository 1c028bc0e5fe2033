//! The command line.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Parser;

/// Validating admission webhook that keeps backups and restores apart: it claims a place in the ledger for each one that
/// is created, or refuses it and says who is in the way.
#[derive(Clone, Debug, Parser)]
#[command(name = "backup-webhook", version)]
pub struct Args {
    /// Address for the API server's requests, over TLS.
    #[arg(long, default_value = "0.0.0.0:9443")]
    pub listen: SocketAddr,
    /// Address for /livez, /readyz and /metrics, plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8080")]
    pub health_listen: SocketAddr,
    /// File with the serving certificate chain, PEM. Read again when it changes.
    #[arg(long, required_unless_present = "self_signed_service", conflicts_with = "self_signed_service")]
    pub tls_cert: Option<PathBuf>,
    /// File with its private key, PEM. Read again when it changes.
    #[arg(long, required_unless_present = "self_signed_service", conflicts_with = "self_signed_service")]
    pub tls_key: Option<PathBuf>,
    /// Make a certificate for the Service of this name, keep it in Secret backup-webhook-tls, and put its CA into the
    /// ValidatingWebhookConfiguration backup-webhook.
    #[arg(long, value_name = "SERVICE")]
    pub self_signed_service: Option<String>,
    /// Namespace of the installation; the ledger lives there.
    #[arg(long, default_value = "velero", env = "BACKUP_NAMESPACE")]
    pub namespace: String,
    /// Kubeconfig to use; without it that of the environment, or the pod's own account.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// How long an admitted object keeps its place without having been seen stored, such as 120s.
    #[arg(long, default_value = "120s", value_parser = seconds)]
    pub orphan_grace: Duration,
}

/// A duration as `90s`, `2m`, `500ms`.
fn seconds(text: &str) -> Result<Duration, String> {
    let error = |e: &dyn std::fmt::Display| format!("{text:?} is no duration such as 90s or 2m: {e}");
    let duration: jiff::SignedDuration = text.parse().map_err(|e: jiff::Error| error(&e))?;
    Duration::try_from(duration).map_err(|e| error(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once(&"backup-webhook").chain(args))
    }

    #[test]
    fn a_certificate_comes_from_files_or_is_made() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--tls-cert", "a"]).is_err());
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b", "--self-signed-service", "s"]).is_err());
        assert!(parse(&["--tls-cert", "a", "--tls-key", "b"]).is_ok());
        assert!(parse(&["--self-signed-service", "s"]).is_ok());
    }

    #[test]
    fn the_grace_is_a_duration_with_a_unit() {
        for (text, expected) in [
            ("90s", Some(90_000)),
            ("2m", Some(120_000)),
            ("250ms", Some(250)),
            ("90", None),
            ("-1s", None),
            ("", None),
        ] {
            let parsed = parse(&["--self-signed-service", "s", &format!("--orphan-grace={text}")]);
            assert_eq!(parsed.ok().map(|args| args.orphan_grace.as_millis()), expected, "{text:?}");
        }
    }
}

//! What the HTTP clients of all object stores share.

use std::{collections::BTreeMap, time::Duration};

use object_store::{BackoffConfig, Certificate, ClientOptions, RetryConfig};
use url::Url;

use crate::StoreError;

/// How long one call to the store is retried; after that the error is shown, and the caller decides.
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// How long the server may be silent.
const SILENCE: Duration = Duration::from_mins(1);

/// Options of a client. `ca` is a PEM bundle that is trusted beside the system's; `insecure` trusts everybody.
pub(super) fn options(
    ca: Option<&[u8]>,
    allow_http: bool,
    insecure: bool,
) -> Result<ClientOptions, StoreError> {
    needs_tls_provider()?;
    let mut client = ClientOptions::new()
        .with_allow_http(allow_http)
        .with_allow_invalid_certificates(insecure)
        .with_connect_timeout(Duration::from_secs(10))
        .with_read_timeout(SILENCE)
        .with_timeout_disabled(); // a large tarball takes as long as it takes; silence is what ends a request
    for certificate in certificates(ca)? {
        client = client.with_root_certificate(certificate);
    }
    Ok(client)
}

/// How one call is retried.
pub(super) fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 10,
        retry_timeout: RETRY_BUDGET,
    }
}

/// The HTTP client panics without one; programs install it in `main`.
fn needs_tls_provider() -> Result<(), StoreError> {
    if rustls::crypto::CryptoProvider::get_default().is_some() {
        return Ok(());
    }
    Err(StoreError::Io {
        action: "make an HTTP client".to_owned(),
        detail: "no TLS provider is installed in this process; it is the task of main".to_owned(),
    })
}

fn certificates(ca: Option<&[u8]>) -> Result<Vec<Certificate>, StoreError> {
    let Some(pem) = ca else { return Ok(Vec::new()) };
    let config =
        |message: String| StoreError::Config { field: "spec.objectStorage.caCert".to_owned(), message };
    let bundle = Certificate::from_pem_bundle(pem)
        .map_err(|error| config(format!("it is not a PEM bundle: {error}")))?;
    if bundle.is_empty() {
        return Err(config("it holds no certificate".to_owned()));
    }
    Ok(bundle)
}

/// A bucket or container, which is a plain name. `what` is what the provider calls it.
pub(super) fn bucket(name: &str, what: &str) -> Result<String, StoreError> {
    if !name.is_empty() && !name.contains('/') {
        return Ok(name.to_owned());
    }
    Err(StoreError::Config {
        field: "spec.objectStorage.bucket".to_owned(),
        message: format!(
            "{name:?} is not the name of a {what}; a path inside the {what} goes into spec.objectStorage.prefix"
        ),
    })
}

/// A key of spec.config, unless it is empty.
pub(super) fn set<'a>(config: &'a BTreeMap<String, String>, key: &str) -> Option<&'a str> {
    config.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// A URL in spec.config, if it is set.
pub(super) fn endpoint(config: &BTreeMap<String, String>, key: &str) -> Result<Option<Url>, StoreError> {
    let Some(text) = set(config, key) else { return Ok(None) };
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(Some(url)),
        _ => Err(invalid(key, text, "an http:// or https:// URL")),
    }
}

/// A switch in spec.config, as Go reads it; off if it is not set.
pub(super) fn flag(config: &BTreeMap<String, String>, key: &str) -> Result<bool, StoreError> {
    match config.get(key).map(String::as_str) {
        None | Some("" | "false" | "False" | "FALSE" | "f" | "F" | "0") => Ok(false),
        Some("true" | "True" | "TRUE" | "t" | "T" | "1") => Ok(true),
        Some(other) => Err(invalid(key, other, "true or false")),
    }
}

/// A key of spec.config whose value can't be used.
pub(super) fn invalid(key: &str, value: &str, expected: &str) -> StoreError {
    StoreError::Config {
        field: format!("spec.config[{key}]"),
        message: format!("{value:?} is not valid: expected {expected}"),
    }
}

/// A key of spec.config that this program can't honour, and whose silent loss would matter.
pub(super) fn refuse(config: &BTreeMap<String, String>, key: &str, instead: &str) -> Result<(), StoreError> {
    match set(config, key) {
        None => Ok(()),
        Some(_) => Err(StoreError::Config {
            field: format!("spec.config[{key}]"),
            message: format!("it can not be honoured, and is not silently left out: {instead}"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_honoured_is_refused_and_an_empty_value_is_none() {
        let config = |value: &str| BTreeMap::from([("k".to_owned(), value.to_owned())]);
        assert!(refuse(&config("x"), "k", "do that").unwrap_err().to_string().contains("do that"));
        refuse(&config(""), "k", "do that").unwrap();
        refuse(&config("x"), "other", "do that").unwrap();
        assert_eq!(set(&config(""), "k"), None);
    }

    #[test]
    fn a_bundle_without_a_certificate_is_refused_with_its_field() {
        assert!(certificates(Some(b"nothing")).unwrap_err().to_string().contains("caCert"));
    }
}

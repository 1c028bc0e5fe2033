//! Provider `gcp`: Google Cloud Storage.
//!
//! Has the settings of Velero's plugin for GCP (`velero-plugin-for-gcp`, `object_store.go`, v1.13).

use std::sync::Arc;

use backup_core::api::BackupStorageLocationSpec;
use object_store::gcp::GoogleCloudStorageBuilder;
use serde_json::Value;

use super::{backend::Backend, http_client, settings};
use crate::StoreError;

/// All settings of Velero's plugin, and `insecureSkipTLSVerify`.
const KEYS: [&str; 5] = [
    "kmsKeyName",
    "serviceAccount",
    "storeEndpoint",
    "universeDomain",
    "insecureSkipTLSVerify",
];

/// Checks the settings as far as no credentials are needed.
pub(super) fn check(spec: &BackupStorageLocationSpec, ca: Option<&[u8]>) -> Result<(), StoreError> {
    let config = &spec.config;
    settings::known(spec, ca, &KEYS)?;
    settings::refuse(
        config,
        "universeDomain",
        "have the location served by its plugin (--object-store-plugins=gcp)",
    )?;
    settings::refuse(
        config,
        "kmsKeyName",
        "make the key the bucket's default encryption key (gcloud storage buckets update --default-encryption-key)",
    )
}

pub(super) fn open(
    spec: &BackupStorageLocationSpec,
    secret: Option<&[u8]>,
    ca: Option<&[u8]>,
) -> Result<Backend, StoreError> {
    let bucket = settings::bucket(&spec.object_storage.bucket, "bucket")?;
    let config = &spec.config;
    check(spec, ca)?;
    // serviceAccount names the signer of URLs; here that is the identity that signs in.
    let endpoint = settings::endpoint(config, "storeEndpoint")?;
    let plain = endpoint.as_ref().is_some_and(|url| url.scheme() == "http");
    let options =
        http_client::options(ca, plain, settings::flag(config, "insecureSkipTLSVerify")?)?;
    // Without a Secret: credentials from the environment (workload identity, the metadata server, a
    // key file).
    let builder = match secret {
        Some(secret) => {
            GoogleCloudStorageBuilder::new().with_service_account_key(service_account(secret)?)
        }
        None => GoogleCloudStorageBuilder::from_env(),
    };
    let mut builder = builder
        .with_bucket_name(&bucket)
        .with_retry(http_client::retry())
        .with_client_options(options)
        .with_http_connector(http_client::connector());
    if let Some(endpoint) = &endpoint {
        builder = builder.with_base_url(endpoint.as_str().trim_end_matches('/'));
    }
    // The error's own text may hold parts of the key.
    let store = builder.build().map_err(|_| {
        let message = format!(
            "no client can be made for gs://{bucket}: the Secret's value is expected to be the JSON key of a service \
             account, as Google gives it out"
        );
        StoreError::config("spec.credential", message)
    })?;
    let store = Arc::new(store);
    Ok(Backend {
        endpoint: endpoint.map(|url| url.to_string()),
        signer: Some(store.clone()),
        ..Backend::new(store.clone(), store, format!("gs://{bucket}"))
    })
}

/// The JSON key of a service account. Errors never hold any of its text.
fn service_account(secret: &[u8]) -> Result<String, StoreError> {
    let text =
        std::str::from_utf8(secret).map_err(|_| wrong_secret("the Secret's value is not UTF-8"))?;
    let key: Value =
        serde_json::from_str(text).map_err(|_| wrong_secret("the Secret's value is not JSON"))?;
    if key["type"].is_null() {
        return Ok(text.to_owned());
    }
    match key["type"].as_str() {
        Some("service_account") => Ok(text.to_owned()),
        Some("external_account" | "authorized_user" | "impersonated_service_account") => {
            Err(wrong_secret(
                "credentials of a user or of another identity provider cannot be used from a Secret",
            ))
        }
        _ => Err(wrong_secret("the Secret's value is no Google credential")),
    }
}

fn wrong_secret(message: &str) -> StoreError {
    StoreError::config(
        "spec.credential",
        format!(
            "{message}; expected the JSON key of a service account, or no Secret to use workload identity"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Refused, assert_refused, spec};

    // object_store parses the key only when it signs.
    const KEY: &str = r#"{"type":"service_account","private_key":"TOPSECRET","private_key_id":"1",
        "client_email":"a@b","disable_oauth":true}"#;

    #[test]
    fn every_honoured_setting_makes_a_client() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = [
            ("serviceAccount", "a@b"),
            ("storeEndpoint", "http://127.0.0.1:4443"),
        ];
        let opened = open(&spec("gcp", "b", &config), Some(KEY.as_bytes()), None)
            .ok()
            .unwrap();
        assert_eq!(opened.url, "gs://b");
    }

    #[test]
    fn each_known_setting_is_read_or_refused() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let values = [
            ("storeEndpoint", "http://127.0.0.1:4443"),
            ("insecureSkipTLSVerify", "true"),
        ];
        settings::assert_each_is_read(&spec("gcp", "b", &[]), &KEYS, &values, |spec| {
            open(spec, Some(KEY.as_bytes()), None).map(|backend| format!("{:?}", backend.store))
        });
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is_shown() {
        let table: &[Refused<'_>] = &[
            ("", &[], KEY, "spec.objectStorage.bucket"),
            ("a/b", &[], KEY, "spec.objectStorage.bucket"),
            (
                "b",
                &[("kmsKeyName", "projects/p/k")],
                KEY,
                "spec.config[kmsKeyName]",
            ),
            (
                "b",
                &[("universeDomain", "example.com")],
                KEY,
                "spec.config[universeDomain]",
            ),
            ("b", &[("kmsKey", "k")], KEY, "spec.config[kmsKey]"),
            (
                "b",
                &[("storeEndpoint", "nowhere")],
                KEY,
                "spec.config[storeEndpoint]",
            ),
            ("b", &[], "TOPSECRET", "spec.credential"),
            (
                "b",
                &[],
                r#"{"type":"external_account","x":"TOPSECRET"}"#,
                "spec.credential",
            ),
            (
                "b",
                &[],
                r#"{"type":"service_account","private_key":7,"x":"TOPSECRET"}"#,
                "spec.credential",
            ),
        ];
        assert_refused("gcp", table);
    }
}

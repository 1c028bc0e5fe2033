//! Provider `aws`: S3 and whatever speaks its protocol.
//!
//! The settings are those of Velero's plugin for AWS (`velero-plugin-for-aws`, `object_store.go`, v1.14).

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use backup_core::api::BackupStorageLocationSpec;
use http::{HeaderMap, HeaderValue, header::IF_NONE_MATCH};
use object_store::{
    BackoffConfig, Certificate, ClientOptions, RetryConfig, StaticCredentialProvider,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum},
};
use url::Url;

use super::{Opened, Root, Uploads, credentials};
use crate::StoreError;

/// How long one call to the store is retried; after that the error is shown, and the caller decides.
const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// How long the server may be silent.
const SILENCE: Duration = Duration::from_mins(1);

pub(super) fn open(
    spec: &BackupStorageLocationSpec,
    secret: Option<&[u8]>,
    ca: Option<&[u8]>,
) -> Result<Opened, StoreError> {
    let settings = Settings::of(spec)?;
    needs_tls_provider()?;
    let mut client = ClientOptions::new()
        .with_allow_http(settings.endpoint.as_ref().is_some_and(|endpoint| endpoint.scheme() == "http"))
        .with_allow_invalid_certificates(settings.insecure)
        .with_connect_timeout(Duration::from_secs(10))
        .with_read_timeout(SILENCE)
        .with_timeout_disabled(); // a large tarball takes as long as it takes; silence is what ends a request
    for certificate in certificates(ca)? {
        client = client.with_root_certificate(certificate);
    }
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: 10,
        retry_timeout: RETRY_BUDGET,
    };
    // Without a Secret: what the environment offers (web identity, container or instance role).
    let builder = if secret.is_some() { AmazonS3Builder::new() } else { AmazonS3Builder::from_env() };
    let mut builder = builder
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_virtual_hosted_style_request(settings.virtual_hosted)
        .with_retry(retry)
        .with_client_options(client.clone());
    if let Some(endpoint) = settings.request_endpoint() {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(checksum) = settings.checksum {
        builder = builder.with_checksum_algorithm(checksum);
    }
    if let Some(key) = &settings.kms_key {
        builder = builder.with_sse_kms_encryption(key);
    } else if let Some(encryption) = &settings.encryption {
        let key: AmazonS3ConfigKey = "aws_server_side_encryption"
            .parse()
            .map_err(|error| StoreError::from_store("open", &settings.url(), &error))?;
        builder = builder.with_config(key, encryption);
    }
    if let Some(secret) = secret {
        let credential = credentials::parse(secret, &settings.profile)?;
        builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(credential)));
    }
    let build = |builder: AmazonS3Builder| {
        let built = builder.build().map_err(|error| StoreError::Config {
            field: "spec".to_owned(),
            message: format!("no S3 client can be made for {}: {error}", settings.url()),
        });
        built.map(Arc::new)
    };
    // object_store (0.14) has no way to say it, but every request of this client carries the header, and completing an
    // upload is all that it is used for. A policy that denies overwriting asks for it.
    let only_new = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
    let creating = build(builder.clone().with_client_options(client.with_default_headers(only_new)))?;
    let store = build(builder)?;
    let root = Root {
        url: settings.url(),
        endpoint: settings.endpoint.as_ref().map(ToString::to_string),
        folder: None,
    };
    let uploads = Uploads { store: store.clone(), creating: Some(creating) };
    Ok(Opened { store, uploads, root })
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

/// The settings that we honour. Others are tolerated: plugins of other versions know more.
#[derive(Debug, PartialEq)]
struct Settings {
    bucket: String,
    endpoint: Option<Url>,
    region: String,
    virtual_hosted: bool,
    insecure: bool,
    profile: String,
    checksum: Option<Checksum>,
    encryption: Option<String>,
    kms_key: Option<String>,
}

impl Settings {
    fn of(spec: &BackupStorageLocationSpec) -> Result<Self, StoreError> {
        let bucket = spec.object_storage.bucket.clone();
        if bucket.is_empty() || bucket.contains('/') {
            return Err(StoreError::Config {
                field: "spec.objectStorage.bucket".to_owned(),
                message: format!(
                    "{bucket:?} is not the name of a bucket; a path inside the bucket goes into spec.objectStorage.prefix"
                ),
            });
        }
        let config = &spec.config;
        let set = |key: &str| config.get(key).map(String::as_str).filter(|value| !value.is_empty());
        let endpoint = set("s3Url").map(endpoint).transpose()?;
        let path_style = flag(config, "s3ForcePathStyle")?;
        let numeric = endpoint
            .as_ref()
            .and_then(Url::host_str)
            .is_some_and(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok());
        Ok(Self {
            // A bucket with dots matches no wildcard certificate, and an address has no subdomains.
            virtual_hosted: !path_style && !numeric && !bucket.contains('.'),
            endpoint,
            bucket,
            region: set("region").unwrap_or("us-east-1").to_owned(),
            insecure: flag(config, "insecureSkipTLSVerify")?,
            profile: set("profile").unwrap_or("default").to_owned(),
            checksum: checksum(config.get("checksumAlgorithm").map(String::as_str))?,
            encryption: set("serverSideEncryption").map(ToOwned::to_owned),
            kms_key: set("kmsKeyId").map(ToOwned::to_owned),
        })
    }

    fn url(&self) -> String {
        format!("s3://{}", self.bucket)
    }

    /// The endpoint as object_store wants it: with the bucket in it for virtual-hosted requests.
    fn request_endpoint(&self) -> Option<String> {
        let endpoint = self.endpoint.as_ref()?;
        let mut url = endpoint.clone();
        if self.virtual_hosted
            && let Some(host) = endpoint.host_str()
        {
            url.set_host(Some(&format!("{}.{host}", self.bucket))).ok()?;
        }
        Some(url.as_str().trim_end_matches('/').to_owned())
    }
}

fn endpoint(text: &str) -> Result<Url, StoreError> {
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url),
        _ => Err(invalid("s3Url", text, "an http:// or https:// URL")),
    }
}

fn flag(config: &BTreeMap<String, String>, key: &str) -> Result<bool, StoreError> {
    match config.get(key).map(String::as_str) {
        None | Some("" | "false" | "False" | "FALSE" | "f" | "F" | "0") => Ok(false),
        Some("true" | "True" | "TRUE" | "t" | "T" | "1") => Ok(true),
        Some(other) => Err(invalid(key, other, "true or false")),
    }
}

/// On unless it is set to the empty string: buckets with object lock refuse a PUT without one. The client has SHA-256
/// and CRC-64; the plugin's other algorithms are served by SHA-256, which every bucket that checks at all accepts.
fn checksum(setting: Option<&str>) -> Result<Option<Checksum>, StoreError> {
    match setting {
        Some("") => Ok(None),
        None | Some("SHA256" | "SHA1" | "CRC32" | "CRC32C") => Ok(Some(Checksum::SHA256)),
        Some("CRC64NVME") => Ok(Some(Checksum::CRC64NVME)),
        Some(other) => Err(invalid(
            "checksumAlgorithm",
            other,
            "SHA256, CRC64NVME, CRC32, CRC32C, SHA1, or \"\" for none",
        )),
    }
}

fn invalid(key: &str, value: &str, expected: &str) -> StoreError {
    StoreError::Config {
        field: format!("spec.config[{key}]"),
        message: format!("{value:?} is not valid: expected {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(bucket: &str, config: &[(&str, &str)]) -> BackupStorageLocationSpec {
        let mut spec = BackupStorageLocationSpec { provider: "aws".to_owned(), ..Default::default() };
        bucket.clone_into(&mut spec.object_storage.bucket);
        spec.config = config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        spec
    }

    #[test]
    fn requests_go_where_the_settings_say() {
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], bool, Option<&'a str>);
        let table: [Row<'_>; 7] = [
            ("b", &[], true, None),
            ("b", &[("s3ForcePathStyle", "true"), ("newKey", "x")], false, None),
            ("b", &[("s3Url", "https://s3.example.com/")], true, Some("https://b.s3.example.com")),
            (
                "b",
                &[("s3Url", "https://minio:9000"), ("s3ForcePathStyle", "true")],
                false,
                Some("https://minio:9000"),
            ),
            ("b", &[("s3Url", "http://127.0.0.1:9000")], false, Some("http://127.0.0.1:9000")),
            ("b", &[("s3Url", "http://[::1]:9000")], false, Some("http://[::1]:9000")),
            ("b.c", &[("s3Url", "https://s3.example.com")], false, Some("https://s3.example.com")),
        ];
        for (bucket, config, virtual_hosted, endpoint) in table {
            let settings = Settings::of(&spec(bucket, config)).unwrap();
            assert_eq!(settings.virtual_hosted, virtual_hosted, "{config:?}");
            assert_eq!(settings.request_endpoint().as_deref(), endpoint, "{config:?}");
            assert_eq!((settings.region.as_str(), settings.profile.as_str()), ("us-east-1", "default"));
        }
    }

    #[test]
    fn checksums_are_on_unless_switched_off() {
        for (setting, expected) in [
            (None, Some(Checksum::SHA256)),
            (Some(""), None),
            (Some("CRC32"), Some(Checksum::SHA256)),
            (Some("CRC64NVME"), Some(Checksum::CRC64NVME)),
        ] {
            assert_eq!(checksum(setting).unwrap(), expected);
        }
    }

    #[test]
    fn a_wrong_setting_is_named() {
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
        let table: [Row<'_>; 6] = [
            ("", &[], "spec.objectStorage.bucket"),
            ("a/b", &[], "spec.objectStorage.bucket"),
            ("b", &[("s3Url", "minio:9000")], "spec.config[s3Url]"),
            ("b", &[("s3ForcePathStyle", "yes")], "spec.config[s3ForcePathStyle]"),
            ("b", &[("insecureSkipTLSVerify", "si")], "spec.config[insecureSkipTLSVerify]"),
            ("b", &[("checksumAlgorithm", "MD5")], "spec.config[checksumAlgorithm]"),
        ];
        for (bucket, config, field) in table {
            let error = open(&spec(bucket, config), Some(b""), None).err().unwrap();
            assert_eq!(error.category(), "config");
            assert!(error.to_string().starts_with(field), "{error}");
        }
        assert!(certificates(Some(b"nothing")).unwrap_err().to_string().contains("caCert"));
    }

    #[test]
    fn every_honoured_setting_makes_a_client() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let secret: Option<&[u8]> = Some(b"[p]\naws_access_key_id=a\naws_secret_access_key=b\n");
        let all = [
            ("s3Url", "https://minio:9000"),
            ("publicUrl", "https://elsewhere"),
            ("region", "eu-west-1"),
            ("s3ForcePathStyle", "true"),
            ("insecureSkipTLSVerify", "true"),
            ("profile", "p"),
            ("credentialsFile", "/etc/passwd"),
            ("checksumAlgorithm", ""),
            ("serverSideEncryption", "AES256"),
        ];
        open(&spec("b", &all), secret, None).unwrap();
        open(&spec("b", &[("profile", "p"), ("kmsKeyId", "k")]), secret, None).unwrap();
        open(&spec("b", &[("serverSideEncryption", "aws:kms"), ("profile", "p")]), secret, None).unwrap();
    }
}

//! Provider `aws`: S3 and compatible stores.
//!
//! Has the settings of Velero's plugin for AWS (`velero-plugin-for-aws`, `object_store.go`, v1.14).

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use backup_core::api::BackupStorageLocationSpec;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::header::IF_NONE_MATCH;
use object_store::{
    HeaderMap, HeaderValue, TagSet,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum},
    client::HttpConnector as _,
};
use url::Url;

use super::{
    backend::Backend,
    http_client,
    settings::{self, invalid},
};
use crate::StoreError;

mod bucket;
mod identity;
mod profile;
mod region;

use bucket::S3Bucket;
pub use region::Regions;

/// Region of AWS buckets by default, and the usual name of other stores' only region.
const REGION: &str = "us-east-1";

/// Looks up an environment variable.
type Variables<'a> = dyn Fn(&str) -> Option<String> + Send + Sync + 'a;

fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn region_of_environment(variables: &Variables<'_>) -> Option<String> {
    ["AWS_REGION", "AWS_DEFAULT_REGION"]
        .into_iter()
        .find_map(variables)
}

/// The domain of a region's services.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    }
}

/// Checks the settings as far as no credentials are needed.
pub(super) fn check(spec: &BackupStorageLocationSpec) -> Result<(), StoreError> {
    settings::known(spec, None, &KEYS)?;
    Settings::of(spec, &|_: &str| None).map(drop)
}

pub(super) fn open(
    spec: &BackupStorageLocationSpec,
    secret: Option<&[u8]>,
    ca: Option<&[u8]>,
) -> Result<Backend, StoreError> {
    settings::known(spec, ca, &KEYS)?;
    let settings = Settings::of(spec, &of_process)?;
    let plain = settings
        .endpoint
        .as_ref()
        .is_some_and(|endpoint| endpoint.scheme() == "http");
    let options = http_client::options(ca, plain, settings.insecure)?;
    let from_file = if secret.is_none() {
        credentials_file()?
    } else {
        None
    };
    let secret = secret.or(from_file.as_deref());
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&settings.bucket)
        .with_region(&settings.region)
        .with_virtual_hosted_style_request(settings.virtual_hosted)
        .with_retry(http_client::retry())
        .with_client_options(options.clone())
        .with_endpoint(settings.request_endpoint()?)
        .with_http_connector(http_client::connector());
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
    if let Some(file) = &settings.customer_key {
        builder = builder.with_ssec_encryption(customer_key(file)?);
    }
    let builder = identity::identify(
        builder,
        secret,
        &settings.profile,
        &settings.region,
        &options,
        &of_process,
    )?;
    let url = settings.url();
    let store = build(builder.clone(), &url)?;
    // The other clients share these credentials, so that the headers they add do not reach the
    // token service.
    let builder = builder.with_credentials(store.credentials().clone());
    // object_store (0.14) has no such condition, so every request of this client carries the
    // header; the client only completes uploads. Policies that deny overwriting require it.
    let only_new = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
    let creating = build(
        builder
            .clone()
            .with_client_options(options.clone().with_default_headers(only_new)),
        &url,
    )?;
    let public = settings
        .public
        .as_ref()
        .map(|public| settings.at(public))
        .transpose()?;
    let public = public
        .map(|public| build(builder.with_endpoint(public), &url))
        .transpose()?;
    let bucket = S3Bucket {
        client: http_client::connector()
            .connect(&options)
            .map_err(|error| StoreError::from_store("open", &url, &error))?,
        credentials: store.credentials().clone(),
        region: settings.region.clone(),
        url: settings.bucket_url()?,
    };
    let mut backend = Backend::new(store.clone(), store.clone(), url);
    backend.creating = Some(creating);
    backend.bucket = Some(Arc::new(bucket));
    backend.tags = settings.tags;
    backend.signer = Some(public.unwrap_or(store));
    backend.endpoint = settings.endpoint.as_ref().map(ToString::to_string);
    Ok(backend)
}

/// The client of the store at `url`.
fn build(builder: AmazonS3Builder, url: &str) -> Result<Arc<AmazonS3>, StoreError> {
    let built = builder.build().map_err(|error| {
        StoreError::config(
            "spec",
            format!("no S3 client can be made for {url}: {error}"),
        )
    });
    built.map(Arc::new)
}

/// The credentials file that the environment names, as Velero's deployments do, if it exists.
fn credentials_file() -> Result<Option<Vec<u8>>, StoreError> {
    let Some(file) = std::env::var_os("AWS_SHARED_CREDENTIALS_FILE") else {
        return Ok(None);
    };
    match std::fs::read(&file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io(format!("read {}", file.display()), &error)),
    }
}

/// Reads a key of 32 bytes from a file; returns it in base64, as the client expects.
fn customer_key(file: &str) -> Result<String, StoreError> {
    let key = std::fs::read(file)
        .map_err(|error| wrong_key_file(&format!("{file:?} cannot be read: {error}")))?;
    if key.len() != 32 {
        return Err(wrong_key_file(&format!(
            "{file:?} has {} bytes, a key has 32",
            key.len()
        )));
    }
    Ok(BASE64_STANDARD.encode(key))
}

fn wrong_key_file(message: &str) -> StoreError {
    StoreError::config("spec.config[customerKeyEncryptionFile]", message)
}

/// All settings of Velero's plugin.
const KEYS: [&str; 14] = [
    "region",
    "s3Url",
    "publicUrl",
    "s3ForcePathStyle",
    "insecureSkipTLSVerify",
    "profile",
    "enableSharedConfig",
    "checksumAlgorithm",
    "serverSideEncryption",
    "kmsKeyId",
    "customerKeyEncryptionFile",
    "customerKeyEncryptionSecret",
    "signatureVersion",
    "tagging",
];

/// The supported settings.
/// A credentials file is always read with shared profiles (`enableSharedConfig`).
#[derive(Debug, PartialEq)]
struct Settings {
    bucket: String,
    endpoint: Option<Url>,
    /// The endpoint for readers of signed URLs.
    public: Option<Url>,
    region: String,
    virtual_hosted: bool,
    insecure: bool,
    profile: String,
    checksum: Option<Checksum>,
    encryption: Option<String>,
    kms_key: Option<String>,
    customer_key: Option<String>,
    tags: TagSet,
}

/// The value of a setting; `None` if it is empty.
fn setting(config: &BTreeMap<String, String>, key: &str) -> Option<String> {
    settings::get(config, key).map(ToOwned::to_owned)
}

impl Settings {
    fn of(spec: &BackupStorageLocationSpec, variables: &Variables<'_>) -> Result<Self, StoreError> {
        let bucket = settings::bucket(&spec.object_storage.bucket, "bucket")?;
        let config = &spec.config;
        let endpoint = settings::endpoint(config, "s3Url")?;
        let path_style = settings::flag(config, "s3ForcePathStyle")?;
        settings::flag(config, "enableSharedConfig")?;
        settings::refuse(
            config,
            "customerKeyEncryptionSecret",
            "mount the key and name it in customerKeyEncryptionFile",
        )?;
        if let Some(version) = setting(config, "signatureVersion").filter(|version| version != "4")
        {
            return Err(invalid("signatureVersion", &version, "4"));
        }
        let kms_key = setting(config, "kmsKeyId");
        let customer_key = setting(config, "customerKeyEncryptionFile");
        if customer_key.is_some()
            && (kms_key.is_some() || setting(config, "serverSideEncryption").is_some())
        {
            return Err(StoreError::config(
                "spec.config[customerKeyEncryptionFile]",
                "it goes neither with kmsKeyId nor with serverSideEncryption: set one of them",
            ));
        }
        let numeric = endpoint
            .as_ref()
            .and_then(Url::host_str)
            .is_some_and(|host| host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok());
        Ok(Self {
            // A bucket with dots matches no wildcard certificate, and an address has no subdomains.
            virtual_hosted: !path_style && !numeric && !bucket.contains('.'),
            endpoint,
            public: settings::endpoint(config, "publicUrl")?,
            bucket,
            region: setting(config, "region")
                .or_else(|| region_of_environment(variables))
                .unwrap_or_else(|| REGION.to_owned()),
            insecure: settings::flag(config, "insecureSkipTLSVerify")?,
            profile: setting(config, "profile").unwrap_or_else(|| "default".to_owned()),
            checksum: checksum(config.get("checksumAlgorithm").map(String::as_str))?,
            encryption: setting(config, "serverSideEncryption"),
            kms_key,
            customer_key,
            tags: tags(setting(config, "tagging").as_deref().unwrap_or_default())?,
        })
    }

    fn url(&self) -> String {
        format!("s3://{}", self.bucket)
    }

    fn bucket_url(&self) -> Result<Url, StoreError> {
        let mut url = self.request_endpoint()?;
        if !self.virtual_hosted {
            url = format!("{url}/{}", self.bucket);
        }
        Url::parse(&url).map_err(|_| invalid("s3Url", &url, "an http:// or https:// URL"))
    }

    fn request_endpoint(&self) -> Result<String, StoreError> {
        if let Some(endpoint) = &self.endpoint {
            return self.at(endpoint);
        }
        // object_store (0.14) knows only one domain of AWS.
        let aws = Url::parse(&format!(
            "https://s3.{}.{}",
            self.region,
            domain(&self.region)
        ));
        self.at(&aws.map_err(|_| invalid("region", &self.region, "the name of a region"))?)
    }

    /// An endpoint in object_store's form: with the bucket in it for virtual-hosted requests.
    fn at(&self, endpoint: &Url) -> Result<String, StoreError> {
        let mut url = endpoint.clone();
        if self.virtual_hosted
            && let Some(host) = endpoint.host_str()
        {
            let host = format!("{}.{host}", self.bucket);
            url.set_host(Some(&host)).map_err(|_| {
                let message = format!(
                    "no host can be called {host}: correct the bucket, or set s3ForcePathStyle"
                );
                StoreError::config("spec.objectStorage.bucket", message)
            })?;
        }
        Ok(url.as_str().trim_end_matches('/').to_owned())
    }
}

/// Parses tags from a query: `key=value&key=value`.
fn tags(query: &str) -> Result<TagSet, StoreError> {
    let mut tags = TagSet::default();
    for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
        if key.is_empty() {
            return Err(invalid("tagging", query, "key=value&key=value"));
        }
        tags.push(&key, &value);
    }
    Ok(tags)
}

/// On unless the setting is the empty string: buckets with object lock refuse a PUT without a
/// checksum. The client supports SHA-256 and CRC-64; SHA-256 replaces the plugin's other
/// algorithms, as every bucket that checks accepts it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Refused, assert_refused, spec};

    #[test]
    fn each_known_setting_is_read_or_refused() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let values = [
            ("s3Url", "https://minio:9000"),
            ("publicUrl", "https://minio.example.com"),
            ("s3ForcePathStyle", "true"),
            ("insecureSkipTLSVerify", "true"),
            ("enableSharedConfig", "true"),
            ("checksumAlgorithm", "CRC64NVME"),
            ("serverSideEncryption", "AES256"),
            ("tagging", "a=b"),
        ];
        settings::assert_each_is_read(&spec("aws", "b", &[]), &KEYS, &values, |spec| {
            settings::known(spec, None, &KEYS)?;
            Settings::of(spec, &|_: &str| None).map(|settings| format!("{settings:?}"))
        });
    }

    #[test]
    fn requests_go_where_the_settings_say() {
        type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], bool, &'a str);
        let (path_style, minio) = (("s3ForcePathStyle", "true"), "https://minio:9000");
        let table: [Row<'_>; 8] = [
            ("b", &[], true, "https://b.s3.us-east-1.amazonaws.com"),
            (
                "b",
                &[path_style, ("resticRepoPrefix", "x")],
                false,
                "https://s3.us-east-1.amazonaws.com",
            ),
            (
                "b",
                &[("region", "cn-north-1")],
                true,
                "https://b.s3.cn-north-1.amazonaws.com.cn",
            ),
            (
                "b",
                &[("s3Url", "https://s3.example.com/")],
                true,
                "https://b.s3.example.com",
            ),
            ("b", &[("s3Url", minio), path_style], false, minio),
            (
                "b",
                &[("s3Url", "http://127.0.0.1:9000")],
                false,
                "http://127.0.0.1:9000",
            ),
            (
                "b",
                &[("s3Url", "http://[::1]:9000")],
                false,
                "http://[::1]:9000",
            ),
            (
                "b.c",
                &[("s3Url", "https://s3.example.com")],
                false,
                "https://s3.example.com",
            ),
        ];
        for (bucket, config, virtual_hosted, endpoint) in table {
            let settings = Settings::of(&spec("aws", bucket, config), &|_| None).unwrap();
            assert_eq!(settings.virtual_hosted, virtual_hosted, "{config:?}");
            assert_eq!(settings.request_endpoint().unwrap(), endpoint, "{config:?}");
            let url = settings.bucket_url().unwrap();
            assert!(
                url.path() == format!("/{bucket}")
                    || virtual_hosted && url.host_str().unwrap().starts_with("b.")
            );
            assert_eq!(settings.profile, "default");
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
    fn tags_are_read_as_a_query() {
        let mut expected = TagSet::default();
        expected.push("team", "a&b");
        expected.push("env", "");
        assert_eq!(tags("team=a%26b&env").unwrap(), expected);
        assert_eq!(BASE64_STANDARD.encode([0xfb, 0xff, 1]), "+/8B");
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let (key_file, of_key_file) = (
            ("customerKeyEncryptionFile", "/nowhere"),
            "spec.config[customerKeyEncryptionFile]",
        );
        let table: &[Refused<'_>] = &[
            ("", &[], "", "spec.objectStorage.bucket"),
            ("b", &[("tagging", "=x")], "", "spec.config[tagging]"),
            (
                "b",
                &[("s3url", "https://minio:9000")],
                "",
                "spec.config[s3url]",
            ),
            (
                "b",
                &[("signatureVersion", "1")],
                "",
                "spec.config[signatureVersion]",
            ),
            (
                "b",
                &[("customerKeyEncryptionSecret", "s/k")],
                "",
                "spec.config[customerKeyEncryptionSecret]",
            ),
            ("b", &[key_file], "", of_key_file),
            ("b", &[key_file, ("kmsKeyId", "k")], "", of_key_file),
            ("a/b", &[], "", "spec.objectStorage.bucket"),
            ("a b", &[], "", "spec.objectStorage.bucket"),
            ("b", &[("region", "eu west")], "", "spec.config[region]"),
            ("b", &[("s3Url", "minio:9000")], "", "spec.config[s3Url]"),
            (
                "b",
                &[("s3ForcePathStyle", "yes")],
                "",
                "spec.config[s3ForcePathStyle]",
            ),
            (
                "b",
                &[("insecureSkipTLSVerify", "si")],
                "",
                "spec.config[insecureSkipTLSVerify]",
            ),
            (
                "b",
                &[("checksumAlgorithm", "MD5")],
                "",
                "spec.config[checksumAlgorithm]",
            ),
        ];
        assert_refused("aws", table);
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
            ("checksumAlgorithm", ""),
            ("serverSideEncryption", "AES256"),
            ("tagging", "team=a%26b&env=prod"),
            ("enableSharedConfig", "true"),
            ("signatureVersion", "4"),
        ];
        let key = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key.path(), [7; 32]).unwrap();
        let own = [
            ("customerKeyEncryptionFile", key.path().to_str().unwrap()),
            ("profile", "p"),
        ];
        open(&spec("aws", "b", &own), secret, None).unwrap();
        open(&spec("aws", "b", &all), secret, None).unwrap();
        open(
            &spec("aws", "b", &[("profile", "p"), ("kmsKeyId", "k")]),
            secret,
            None,
        )
        .unwrap();
        open(
            &spec(
                "aws",
                "b",
                &[("serverSideEncryption", "aws:kms"), ("profile", "p")],
            ),
            secret,
            None,
        )
        .unwrap();
    }
}

//! URLs that open one key, for a while, to everybody who has them.

use std::time::Duration;

use http::Method;
use object_store::path::Path;

use super::Location;
use crate::StoreError;

impl Location {
    /// Whether somebody can make URLs.
    pub fn can_sign(&self) -> bool {
        self.inner.signer.is_some() || self.plugin().is_some()
    }

    /// A URL by which everybody who has it can read this key until `ttl` has passed, also if nothing is there yet. It is as
    /// good as a credential: it must not be logged. The store is not asked, unless it is the one to sign (plugins, Google
    /// without a key).
    ///
    /// Errors: [`StoreError::Config`] where nobody can sign.
    pub(crate) async fn sign(&self, key: &Path, ttl: Duration) -> Result<String, StoreError> {
        let signed = match (&self.inner.signer, self.plugin()) {
            (Some(signer), _) => signer.signed_url(Method::GET, key, ttl).await.map(String::from),
            (None, Some(plugin)) => plugin.0.sign(key.as_ref(), ttl).await.map_err(object_store::Error::from),
            (None, None) => {
                return Err(StoreError::Config {
                    field: "spec.provider".to_owned(),
                    message: format!(
                        "there are no URLs for files in {}: read them there, or use a location in an object store",
                        self.url()
                    ),
                });
            }
        };
        signed.map_err(|error| self.failed("sign a URL of", key, &error))
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::{BackupStorageLocation, BackupStorageLocationSpec};

    use super::*;
    use crate::testing::memory;

    fn aws(config: &[(&str, &str)]) -> Location {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut bsl = BackupStorageLocation::new("default", BackupStorageLocationSpec::default());
        bsl.spec.provider = "aws".to_owned();
        bsl.spec.object_storage.bucket = "b".to_owned();
        bsl.spec.object_storage.prefix = Some("p".to_owned());
        bsl.spec.config =
            config.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let secret = b"[default]\naws_access_key_id=AKID\naws_secret_access_key=TOPSECRET\n";
        Location::open(&bsl, Some(secret), None).unwrap()
    }

    #[tokio::test]
    async fn a_url_is_for_where_its_reader_reaches_the_store_and_ends() {
        let inside = ("s3Url", "http://minio.minio.svc:9000");
        for (config, begin) in [
            (vec![], "https://b.s3.us-east-1.amazonaws.com/p/k?"),
            (vec![inside, ("s3ForcePathStyle", "true")], "http://minio.minio.svc:9000/b/p/k?"),
            (
                vec![inside, ("s3ForcePathStyle", "true"), ("publicUrl", "https://s3.example.com")],
                "https://s3.example.com/b/p/k?",
            ),
            (vec![inside, ("publicUrl", "https://s3.example.com/")], "https://b.s3.example.com/p/k?"),
        ] {
            let location = aws(&config);
            assert!(location.can_sign());
            let key = location.layout().prefix().clone().join("k");
            let url = location.sign(&key, Duration::from_mins(10)).await.unwrap();
            assert!(url.starts_with(begin), "{url}");
            assert!(url.contains("X-Amz-Expires=600") && !url.contains("TOPSECRET"), "{url}");
        }
    }

    #[tokio::test]
    async fn where_nobody_can_sign_that_is_said() {
        let location = memory("p");
        assert!(!location.can_sign());
        let error = location.sign(&Path::from("p/k"), Duration::from_mins(10)).await.unwrap_err();
        assert_eq!(error.category(), "config");
    }
}

//! What an S3 bucket is asked beyond its objects: uploads that are not completed, versions, object lock. object_store (0.14)
//! has no words for it, so this signs the few requests itself, with the credentials of its client.

use async_trait::async_trait;
use backup_core::bucket::{ObjectLock, Versions};
use http::{Method, StatusCode};
use md5::{Digest as _, Md5};
use object_store::{
    aws::{AwsAuthorizer, AwsCredentialProvider},
    client::{HttpClient, HttpRequestBody},
    path::Path,
};
use url::Url;

use super::{
    AskBucket,
    versions::{Lock, Page, Trouble, Version},
};
use crate::error::{between, is_final};

/// Asks a bucket.
pub(super) struct S3Bucket {
    pub client: HttpClient,
    pub credentials: AwsCredentialProvider,
    pub region: String,
    /// The bucket.
    pub url: Url,
}

/// Why a question was not answered.
struct Refusal {
    status: Option<StatusCode>,
    code: String,
}

impl Refusal {
    fn of(error: &impl ToString) -> Self {
        Self { status: None, code: error.to_string() }
    }

    /// For people, with the permission that may be missing.
    fn told(self, permission: &str) -> String {
        match self.status {
            Some(status @ (StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED)) => {
                format!("{} {}: {permission} is not granted", status.as_u16(), self.code)
            }
            Some(status) => format!("{} {}", status.as_u16(), self.code),
            None => self.code,
        }
    }
}

impl Refusal {
    /// Whether it may pass, or the permission is missing.
    fn trouble(self, permission: &str) -> Trouble {
        let lasting = self.status.is_some_and(|status| is_final(status.as_u16()) || status.as_u16() == 501);
        let told = self.told(permission);
        if lasting { Trouble::Refused(told) } else { Trouble::Passing(told) }
    }
}

impl S3Bucket {
    /// Asks the bucket one question; the text of the answer.
    async fn ask(&self, query: &[(&str, &str)]) -> Result<String, Refusal> {
        self.ask_of("", query, None).await
    }

    /// Asks about a key, or the bucket if that is empty; with a body to change something.
    async fn ask_of(
        &self,
        key: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<String, Refusal> {
        let mut url = self.url.clone();
        url.query_pairs_mut().extend_pairs(query);
        if !key.is_empty() {
            url.set_path(&format!("{}/{}", url.path().trim_end_matches('/'), in_path(key)));
        }
        // Form encoding says plus for a space, which a signature does not.
        let url = url.as_str().replace('+', "%20");
        let mut request = http::Request::builder().uri(url);
        if let Some(body) = &body {
            let digest = super::s3::base64(&Md5::digest(body));
            request = request.method(Method::POST).header("content-md5", digest);
        }
        let request = request.body(body.map_or_else(HttpRequestBody::empty, HttpRequestBody::from));
        let mut request = request.map_err(|error| Refusal::of(&error))?;
        let credential = self.credentials.get_credential().await.map_err(|error| Refusal::of(&error))?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .try_authorize(&mut request, None)
            .map_err(|error| Refusal::of(&error))?;
        let answer = self.client.execute(request).await.map_err(|error| Refusal::of(&error))?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|error| Refusal::of(&error))?;
        let text = String::from_utf8_lossy(&body);
        if status.is_success() {
            return Ok(text.into_owned());
        }
        let code = between(&text, "<Code>", "</Code>").unwrap_or_default().to_owned();
        Err(Refusal { status: Some(status), code })
    }
}

#[async_trait]
impl AskBucket for S3Bucket {
    async fn uploads(&self, key: &Path) -> Result<Vec<String>, String> {
        let answer = self.ask(&[("prefix", key.as_ref()), ("uploads", "")]).await;
        Ok(ids(&answer.map_err(|refusal| refusal.told("s3:ListBucketMultipartUploads"))?, key))
    }

    async fn versions(&self) -> Result<Versions, String> {
        let answer = self.ask(&[("versioning", "")]).await;
        Ok(versions(&answer.map_err(|refusal| refusal.told("s3:GetBucketVersioning"))?))
    }

    async fn lock(&self) -> Result<ObjectLock, String> {
        match self.ask(&[("object-lock", "")]).await {
            Ok(text) => Ok(lock(&text)),
            // A bucket without it has no such configuration.
            Err(refusal) if refusal.code == "ObjectLockConfigurationNotFoundError" => {
                Ok(ObjectLock::default())
            }
            Err(refusal) => Err(refusal.told("s3:GetBucketObjectLockConfiguration")),
        }
    }

    async fn page(&self, start: &str, after: Option<&(String, String)>) -> Result<Page, Trouble> {
        let mut query = vec![("prefix", start), ("versions", "")];
        if let Some((key, version)) = after {
            query.push(("key-marker", key));
            query.push(("version-id-marker", version));
        }
        let answer = self.ask(&query).await;
        Ok(Page::read(&answer.map_err(|refusal| refusal.trouble("s3:ListBucketVersions"))?))
    }

    async fn remove(&self, versions: &[Version]) -> Result<Vec<(Version, String)>, Trouble> {
        let answer = self.ask_of("", &[("delete", "")], Some(Version::wanted_gone(versions))).await;
        Ok(Version::refused(&answer.map_err(|refusal| refusal.trouble("s3:DeleteObjectVersion"))?, versions))
    }

    async fn lock_of(&self, version: &Version) -> Result<Lock, Trouble> {
        let ask = async |what: &str, right: &str| {
            match self.ask_of(&version.key, &[(what, ""), ("versionId", &version.id)], None).await {
                Ok(text) => Ok(text),
                // It has none, or its bucket can't have any.
                Err(refusal)
                    if refusal.status.is_some_and(|status| matches!(status.as_u16(), 400 | 404 | 405)) =>
                {
                    Ok(String::new())
                }
                Err(refusal) => Err(refusal.trouble(right)),
            }
        };
        let retention = ask("retention", "s3:GetObjectRetention").await?;
        let hold = ask("legal-hold", "s3:GetObjectLegalHold").await?;
        Ok(Lock {
            until: between(&retention, "<RetainUntilDate>", "</RetainUntilDate>")
                .and_then(|at| at.parse().ok()),
            held: between(&hold, "<Status>", "</Status>") == Some("ON"),
        })
    }
}

/// A key as it stands in the path of a URL, in the one way that a signature is made of.
fn in_path(key: &str) -> String {
    let segment = |text: &str| -> String {
        let encoded: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        encoded.replace('+', "%20").replace('*', "%2A").replace("%7E", "~")
    };
    key.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// Ids of the uploads of this very key; one page of them is more than any backup leaves behind.
fn ids(text: &str, key: &Path) -> Vec<String> {
    text.split("<Upload>")
        .skip(1)
        .filter(|upload| between(upload, "<Key>", "</Key>").is_some_and(|of| of == key.as_ref()))
        .filter_map(|upload| between(upload, "<UploadId>", "</UploadId>").map(ToOwned::to_owned))
        .collect()
}

/// A bucket that never kept versions has no status.
fn versions(text: &str) -> Versions {
    match between(text, "<Status>", "</Status>") {
        Some("Enabled") => Versions::Enabled,
        Some(_) => Versions::Suspended,
        None => Versions::Off,
    }
}

fn lock(text: &str) -> ObjectLock {
    let element =
        |name: &str| between(text, &format!("<{name}>"), &format!("</{name}>")).map(ToOwned::to_owned);
    let number = |name: &str| element(name).and_then(|text| text.parse().ok()).filter(|number| *number > 0);
    ObjectLock {
        enabled: element("ObjectLockEnabled").is_some_and(|text| text == "Enabled"),
        mode: element("Mode").filter(|mode| !mode.is_empty()),
        days: number("Days"),
        years: number("Years"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_uploads_of_the_key_are_listed() {
        let text = "<ListMultipartUploadsResult><Bucket>b</Bucket><Upload><Key>p/b.tar.gz</Key><UploadId>1</UploadId>\
                    </Upload><Upload><UploadId>2</UploadId><Key>p/b.tar.gz.old</Key></Upload><Upload>\
                    <UploadId>3</UploadId><Key>p/b.tar.gz</Key></Upload></ListMultipartUploadsResult>";
        assert_eq!(ids(text, &Path::from("p/b.tar.gz")), ["1", "3"]);
        assert!(ids("<Error/>", &Path::from("k")).is_empty());
    }

    #[test]
    fn settings_of_a_bucket_are_read_as_aws_writes_them() {
        let versioning = |inner: &str| {
            format!("<?xml?>\n<VersioningConfiguration xmlns=\"x\">{inner}</VersioningConfiguration>")
        };
        for (inner, expected) in [
            ("", Versions::Off),
            ("<Status>Enabled</Status><MfaDelete>Disabled</MfaDelete>", Versions::Enabled),
            ("<Status>Suspended</Status>", Versions::Suspended),
        ] {
            assert_eq!(versions(&versioning(inner)), expected, "{inner}");
        }
        let table = [
            ("<ObjectLockEnabled>Enabled</ObjectLockEnabled>", "on, no retention by default"),
            (
                "<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode>\
                 <Days>7</Days></DefaultRetention></Rule>",
                "on, GOVERNANCE for 7 days by default",
            ),
            ("", "off"),
        ];
        for (text, expected) in table {
            assert_eq!(lock(text).to_string(), expected);
        }
    }

    #[test]
    fn a_right_that_is_missing_is_named() {
        let refusal = |status: u16, code: &str| Refusal {
            status: StatusCode::from_u16(status).ok(),
            code: code.to_owned(),
        };
        let told = refusal(403, "AccessDenied").told("s3:GetBucketVersioning");
        assert_eq!(told, "403 AccessDenied: s3:GetBucketVersioning is not granted");
        assert_eq!(refusal(501, "NotImplemented").told("x"), "501 NotImplemented");
    }
}

//! Requests to an S3 bucket beyond its objects: incomplete uploads, versions, object lock.
//! object_store (0.14) does not support them, so this signs the few requests itself, with the
//! credentials of its client.

use async_trait::async_trait;
use backup_core::bucket::{ObjectLock, Versions};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Method, Request, header::IF_NONE_MATCH};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use object_store::{
    aws::{AwsAuthorizer, AwsCredentialProvider},
    client::{HttpClient, HttpRequest, HttpRequestBody},
    path::Path,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    error::{AnyError, cause, is_final},
    http_failure::HttpFailure,
    location::{
        bucket_api::{BucketApi, BucketError, FailedRemoval, Lock, Page, PageMarker, Version},
        http_client,
    },
};

/// Characters to encode in the path of a URL for a signature: all but these.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

pub(super) struct S3Bucket {
    pub client: HttpClient,
    pub credentials: AwsCredentialProvider,
    pub region: String,
    pub url: Url,
}

/// The store's answer to a request, if the answer is the cause of the failure.
fn failure(error: &AnyError) -> Option<&HttpFailure> {
    cause(error.as_ref())
}

/// Why a request failed, with the permission that may be missing.
fn refusal(error: &AnyError, permission: &str) -> BucketError {
    let Some((status, code)) =
        failure(error).and_then(|failure| Some((failure.status()?, failure.code())))
    else {
        return BucketError::Retryable(error.to_string());
    };
    match status {
        401 | 403 => BucketError::Refused(format!("{status} {code}: {permission} is not granted")),
        status if is_final(status) || status == 501 => {
            BucketError::Refused(format!("{status} {code}"))
        }
        status => BucketError::Retryable(format!("{status} {code}")),
    }
}

impl S3Bucket {
    async fn ask(&self, query: &[(&str, &str)], permission: &str) -> Result<Answer, BucketError> {
        self.send("", query, None)
            .await
            .map_err(|error| refusal(&error, permission))
    }

    /// Requests a setting of a version; empty if the version has none, or its bucket does not
    /// support it.
    async fn ask_about(
        &self,
        version: &Version,
        what: &str,
        permission: &str,
    ) -> Result<Answer, BucketError> {
        match self
            .send(
                &version.key,
                &[(what, ""), ("versionId", &version.id)],
                None,
            )
            .await
        {
            Err(error)
                if matches!(
                    failure(&error).and_then(HttpFailure::status),
                    Some(400 | 404 | 405)
                ) =>
            {
                Ok(Answer::default())
            }
            answer => answer.map_err(|error| refusal(&error, permission)),
        }
    }

    /// Sends a request for a key, or for the bucket if the key is empty; with a body to change
    /// something.
    async fn send(
        &self,
        key: &str,
        query: &[(&str, &str)],
        body: Option<String>,
    ) -> Result<Answer, AnyError> {
        let mut url = self.url_of(key);
        url.query_pairs_mut().extend_pairs(query);
        // Form encoding encodes a space as a plus sign, a signature does not.
        let mut request = Request::builder().uri(url.as_str().replace('+', "%20"));
        if let Some(body) = &body {
            let digest = BASE64_STANDARD.encode(Md5::digest(body));
            request = request.method(Method::POST).header("content-md5", digest);
        }
        let body = body.map_or_else(HttpRequestBody::empty, HttpRequestBody::from);
        let answer = self.signed(request.body(body)?).await?;
        Ok(quick_xml::de::from_reader(&answer[..])?)
    }

    /// The URL of a key, or of the bucket if the key is empty.
    fn url_of(&self, key: &str) -> Url {
        let mut url = self.url.clone();
        if !key.is_empty() {
            let bucket = url.path().trim_end_matches('/');
            url.set_path(&format!("{bucket}/{}", utf8_percent_encode(key, IN_PATH)));
        }
        url
    }

    /// Signs and sends a request; returns the body of the answer.
    async fn signed(&self, mut request: HttpRequest) -> Result<Bytes, AnyError> {
        let credential = self.credentials.get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region).try_authorize(&mut request, None)?;
        Ok(http_client::body(&self.client, request).await?)
    }
}

#[async_trait]
impl BucketApi for S3Bucket {
    async fn uploads(&self, key: &Path) -> Result<Vec<String>, BucketError> {
        let query = [("prefix", key.as_ref()), ("uploads", "")];
        Ok(self
            .ask(&query, "s3:ListBucketMultipartUploads")
            .await?
            .uploads_of(key))
    }

    async fn versions(&self) -> Result<Versions, BucketError> {
        Ok(self
            .ask(&[("versioning", "")], "s3:GetBucketVersioning")
            .await?
            .versioning())
    }

    async fn lock(&self) -> Result<ObjectLock, BucketError> {
        const NONE: &str = "ObjectLockConfigurationNotFoundError";
        match self.send("", &[("object-lock", "")], None).await {
            Ok(answer) => Ok(answer.lock()),
            Err(error) if failure(&error).is_some_and(|failure| failure.code() == NONE) => {
                Ok(ObjectLock::default())
            }
            Err(error) => Err(refusal(&error, "s3:GetBucketObjectLockConfiguration")),
        }
    }

    async fn page(&self, start: &str, after: Option<&PageMarker>) -> Result<Page, BucketError> {
        let mut query = vec![("prefix", start), ("versions", "")];
        if let Some(after) = after {
            query.push(("key-marker", &after.key));
            query.push(("version-id-marker", &after.version));
        }
        Ok(self.ask(&query, "s3:ListBucketVersions").await?.page())
    }

    async fn remove(&self, versions: &[Version]) -> Result<Vec<FailedRemoval>, BucketError> {
        let answer = match delete_request(versions) {
            Ok(request) => self.send("", &[("delete", "")], Some(request)).await,
            Err(error) => Err(error.into()),
        };
        let answer = answer.map_err(|error| refusal(&error, "s3:DeleteObjectVersion"))?;
        Ok(answer.undeleted(versions))
    }

    async fn lock_of(&self, version: &Version) -> Result<Lock, BucketError> {
        let retention = self
            .ask_about(version, "retention", "s3:GetObjectRetention")
            .await?;
        let hold = self
            .ask_about(version, "legal-hold", "s3:GetObjectLegalHold")
            .await?;
        Ok(Lock {
            until: retention.retain_until_date,
            held: hold.status.as_deref() == Some("ON"),
        })
    }

    async fn copy(&self, bucket: &str, from: &Path, to: &Path) -> Result<bool, BucketError> {
        let source = format!("{bucket}/{}", utf8_percent_encode(from.as_ref(), IN_PATH));
        let request = Request::builder()
            .method(Method::PUT)
            .uri(self.url_of(to.as_ref()).as_str())
            .header("x-amz-copy-source", source)
            // Not every store has this condition, so the caller looks before.
            .header(IF_NONE_MATCH, "*")
            .body(HttpRequestBody::empty());
        let copied = match request {
            Ok(request) => self.signed(request).await,
            Err(error) => Err(error.into()),
        };
        let Err(error) = copied else {
            return Ok(true);
        };
        match failure(&error).and_then(HttpFailure::status) {
            Some(409 | 412) => Ok(true),
            Some(status) if is_final(status) || status == 501 => {
                tracing::debug!(key = %to, %error, "the store does not copy this object; it is transferred");
                Ok(false)
            }
            _ => Err(BucketError::Retryable(error.to_string())),
        }
    }
}

fn delete_request(objects: &[Version]) -> Result<String, quick_xml::SeError> {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Delete<'a> {
        #[serde(rename = "@xmlns")]
        namespace: &'static str,
        quiet: bool,
        object: &'a [Version],
    }
    let namespace = "http://s3.amazonaws.com/doc/2006-03-01/";
    quick_xml::se::to_string(&Delete {
        namespace,
        quiet: true,
        object: objects,
    })
}

/// An answer of S3: each has some of these elements.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Answer {
    /// Of versioning (`None` for a bucket that never kept versions), or of a legal hold.
    status: Option<String>,
    object_lock_enabled: String,
    rule: LockRule,
    retain_until_date: Option<Timestamp>,
    /// Incomplete uploads. A backup never leaves more than one page of them.
    upload: Vec<Upload>,
    version: Vec<Version>,
    delete_marker: Vec<Version>,
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_version_id_marker: Option<String>,
    /// Of a deletion of several keys.
    error: Vec<DeleteError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Upload {
    key: String,
    upload_id: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct LockRule {
    default_retention: DefaultRetention,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct DefaultRetention {
    mode: String,
    days: u64,
    years: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteError {
    key: String,
    version_id: Option<String>,
    #[serde(default)]
    code: String,
}

impl Answer {
    /// Uploads of exactly this key: the prefix of the request matches longer keys, too.
    fn uploads_of(self, key: &Path) -> Vec<String> {
        let own = self
            .upload
            .into_iter()
            .filter(|upload| upload.key == key.as_ref());
        own.map(|upload| upload.upload_id).collect()
    }

    fn versioning(&self) -> Versions {
        match self.status.as_deref() {
            Some("Enabled") => Versions::Enabled,
            Some(_) => Versions::Suspended,
            None => Versions::Off,
        }
    }

    fn lock(self) -> ObjectLock {
        let DefaultRetention { mode, days, years } = self.rule.default_retention;
        ObjectLock {
            enabled: self.object_lock_enabled == "Enabled",
            mode: Some(mode).filter(|mode| !mode.is_empty()),
            days: Some(days).filter(|days| *days > 0),
            years: Some(years).filter(|years| *years > 0),
        }
    }

    fn page(self) -> Page {
        let marks = self.delete_marker.into_iter().map(|mark| Version {
            is_mark: true,
            ..mark
        });
        let next = self
            .next_key_marker
            .zip(self.next_version_id_marker)
            .filter(|_| self.is_truncated);
        Page {
            versions: self.version.into_iter().chain(marks).collect(),
            next: next.map(|(key, version)| PageMarker { key, version }),
        }
    }

    /// The versions that S3 has not removed.
    fn undeleted(self, versions: &[Version]) -> Vec<FailedRemoval> {
        self.error
            .into_iter()
            .filter_map(|error| error.failed_removal(versions))
            .collect()
    }
}

impl DeleteError {
    /// `None` if the error is about none of these versions.
    fn failed_removal(self, versions: &[Version]) -> Option<FailedRemoval> {
        let version = versions.iter().find(|version| self.is_about(version))?;
        Some(FailedRemoval {
            version: version.clone(),
            code: self.code,
        })
    }

    fn is_about(&self, version: &Version) -> bool {
        let is_same_id = self.version_id.as_ref().is_none_or(|id| *id == version.id);
        self.key == version.key && is_same_id
    }
}

#[cfg(test)]
mod tests {
    use http::{StatusCode, Uri};

    use super::*;

    fn read(text: &str) -> Answer {
        quick_xml::de::from_str(text).unwrap()
    }

    #[test]
    fn only_uploads_of_the_key_are_listed() {
        let text = "<ListMultipartUploadsResult><Bucket>b</Bucket><Upload><Key>p/b.tar.gz</Key><UploadId>1</UploadId>\
                    </Upload><Upload><UploadId>2</UploadId><Key>p/b.tar.gz.old</Key></Upload><Upload>\
                    <UploadId>3</UploadId><Key>p/b.tar.gz</Key></Upload></ListMultipartUploadsResult>";
        assert_eq!(read(text).uploads_of(&Path::from("p/b.tar.gz")), ["1", "3"]);
        assert!(read("<Error/>").uploads_of(&Path::from("k")).is_empty());
    }

    #[test]
    fn settings_of_a_bucket_are_read_as_aws_writes_them() {
        let versioning = |inner: &str| {
            format!(
                "<?xml version=\"1.0\"?>\n<VersioningConfiguration xmlns=\"x\">{inner}</VersioningConfiguration>"
            )
        };
        for (inner, expected) in [
            ("", Versions::Off),
            (
                "<Status>Enabled</Status><MfaDelete>Disabled</MfaDelete>",
                Versions::Enabled,
            ),
            ("<Status>Suspended</Status>", Versions::Suspended),
        ] {
            assert_eq!(read(&versioning(inner)).versioning(), expected, "{inner}");
        }
        let table = [
            (
                "<ObjectLockEnabled>Enabled</ObjectLockEnabled>",
                "on, no retention by default",
            ),
            (
                "<ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention><Mode>GOVERNANCE</Mode>\
                 <Days>7</Days></DefaultRetention></Rule>",
                "on, GOVERNANCE for 7 days by default",
            ),
            ("", "off"),
        ];
        for (text, expected) in table {
            let text = format!("<ObjectLockConfiguration>{text}</ObjectLockConfiguration>");
            assert_eq!(read(&text).lock().to_string(), expected);
        }
    }

    #[test]
    fn a_right_that_is_missing_is_named() {
        let told = |status: u16, code: &str| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            let status = StatusCode::from_u16(status).unwrap();
            let failure = HttpFailure::answered(&Uri::from_static("http://s3/b"), status, &body);
            refusal(&AnyError::from(failure), "s3:GetBucketVersioning").to_string()
        };
        let expected = "403 AccessDenied: s3:GetBucketVersioning is not granted";
        assert_eq!(told(403, "AccessDenied"), expected);
        assert_eq!(told(501, "NotImplemented"), "501 NotImplemented");
    }

    #[test]
    fn answers_are_read_and_requests_written_as_s3_has_them() {
        let text = "<?xml version=\"1.0\"?><ListVersionsResult><IsTruncated>true</IsTruncated><NextKeyMarker>a&amp;b</NextKeyMarker>\
                    <NextVersionIdMarker>v1</NextVersionIdMarker><Version><Key>a&amp;b</Key><VersionId>v1</VersionId>\
                    <IsLatest>false</IsLatest><ETag>&quot;x&quot;</ETag></Version><DeleteMarker><Key>a&amp;b</Key>\
                    <VersionId>v2</VersionId><IsLatest>true</IsLatest></DeleteMarker></ListVersionsResult>";
        let page = read(text).page();
        let version = |id: &str, is_mark| Version {
            key: "a&b".to_owned(),
            id: id.to_owned(),
            is_latest: is_mark,
            is_mark,
        };
        assert_eq!(page.versions, [version("v1", false), version("v2", true)]);
        assert_eq!(
            page.next,
            Some(PageMarker {
                key: "a&b".to_owned(),
                version: "v1".to_owned()
            })
        );
        let last = text.replace("true</IsTruncated", "false</IsTruncated");
        assert_eq!(read(&last).page().next, None);
        let asked = delete_request(&page.versions).unwrap();
        assert_says!(
            asked,
            "<Object><Key>a&amp;b</Key><VersionId>v2</VersionId></Object></Delete>"
        );
        let answer = "<DeleteResult><Deleted><Key>a&amp;b</Key><VersionId>v2</VersionId></Deleted><Error><Key>a&amp;b</Key>\
                      <VersionId>v1</VersionId><Code>AccessDenied</Code><Message>m</Message></Error></DeleteResult>";
        let undeleted = FailedRemoval {
            version: version("v1", false),
            code: "AccessDenied".to_owned(),
        };
        assert_eq!(read(answer).undeleted(&page.versions), [undeleted]);
    }
}

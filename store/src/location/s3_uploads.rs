//! The uploads of an S3 bucket that are not completed. object_store (0.14) can't ask for them, so this signs the one request
//! itself, with the credentials of its client.

use async_trait::async_trait;
use http::Method;
use object_store::{
    aws::{AwsAuthorizer, AwsCredentialProvider},
    client::{HttpClient, HttpRequestBody},
    path::Path,
};
use url::Url;

use super::ListUploads;
use crate::error::between;

/// Asks a bucket.
pub(super) struct S3Uploads {
    pub client: HttpClient,
    pub credentials: AwsCredentialProvider,
    pub region: String,
    /// The bucket.
    pub url: Url,
}

#[async_trait]
impl ListUploads for S3Uploads {
    async fn uploads(&self, key: &Path) -> Result<Vec<String>, String> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("prefix", key.as_ref()).append_pair("uploads", "");
        // Form encoding says plus for a space, which a signature does not.
        let url = url.as_str().replace('+', "%20");
        let request = http::Request::builder().method(Method::GET).uri(url).body(HttpRequestBody::empty());
        let mut request = request.map_err(|error| error.to_string())?;
        let credential = self.credentials.get_credential().await.map_err(|error| error.to_string())?;
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .try_authorize(&mut request, None)
            .map_err(|error| error.to_string())?;
        let answer = self.client.execute(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            return Err(format!("{status} {}", between(&text, "<Code>", "</Code>").unwrap_or_default()));
        }
        Ok(ids(&text, key))
    }
}

/// Ids of the uploads of this very key; one page of them is more than any backup leaves behind.
fn ids(text: &str, key: &Path) -> Vec<String> {
    text.split("<Upload>")
        .skip(1)
        .filter(|upload| between(upload, "<Key>", "</Key>").is_some_and(|of| of == key.as_ref()))
        .filter_map(|upload| between(upload, "<UploadId>", "</UploadId>").map(ToOwned::to_owned))
        .collect()
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
}

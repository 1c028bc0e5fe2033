//! The region of an AWS bucket whose location does not name it.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use backup_core::{api::BackupStorageLocation, text::causes};
use http::{Method, Request, StatusCode};
use object_store::client::{HttpClient, HttpConnector as _, HttpRequestBody, ReqwestConnector};
use parking_lot::Mutex;

use super::{REGION, Variables, of_process, region_of_environment};
use crate::{
    StoreError,
    location::{http_client, plugin_of, settings},
};

const HEADER: &str = "x-amz-bucket-region";

/// The regions of buckets, as reported by AWS. Cheap to clone.
///
/// A bucket never moves, and all requests go to one region, so each bucket's region is requested
/// once.
#[derive(Clone, Default)]
pub struct Regions {
    known: Arc<Mutex<HashMap<String, String>>>,
}

impl Regions {
    /// The location with its region. AWS is asked for it if neither the location names it nor its
    /// store is another one (`s3Url`), as Velero's plugin does (`velero-plugin-for-aws`,
    /// `object_store.go`, v1.14). If AWS does not answer with one, the region is that of the
    /// environment (`AWS_REGION`).
    ///
    /// Errors: [`StoreError::Config`] if neither names it, [`StoreError::Unreachable`] without an
    /// answer.
    pub async fn complete<'a>(
        &self,
        location: &'a BackupStorageLocation,
        ca: Option<&[u8]>,
    ) -> Result<Cow<'a, BackupStorageLocation>, StoreError> {
        let config = &location.spec.config;
        let is_known = ["region", "s3Url"]
            .iter()
            .any(|key| settings::get(config, key).is_some());
        if is_known || plugin_of(&location.spec.provider) != "velero.io/aws" {
            return Ok(Cow::Borrowed(location));
        }
        let bucket = settings::bucket(&location.spec.object_storage.bucket, "bucket")?;
        let known = self.known.lock().get(&bucket).cloned();
        let region = if let Some(region) = known {
            region
        } else {
            let options =
                http_client::options(ca, false, settings::flag(config, "insecureSkipTLSVerify")?)?;
            // Not the connector of all clients: a refusal names the region, too.
            let client = ReqwestConnector::default()
                .connect(&options)
                .map_err(|error| StoreError::from_store("open", &bucket, &error))?;
            let region = ask(&client, &bucket, &of_process).await?;
            self.known.lock().insert(bucket, region.clone());
            region
        };
        let mut completed = location.clone();
        completed.spec.config.insert("region".to_owned(), region);
        Ok(Cow::Owned(completed))
    }
}

/// AWS sends the region of a bucket to every client, even if it refuses the request.
async fn ask(
    client: &HttpClient,
    bucket: &str,
    variables: &Variables<'_>,
) -> Result<String, StoreError> {
    // A bucket with dots matches no wildcard certificate.
    let url = if bucket.contains('.') {
        format!("https://s3.{REGION}.amazonaws.com/{bucket}")
    } else {
        format!("https://{bucket}.s3.{REGION}.amazonaws.com")
    };
    let request = Request::builder()
        .method(Method::HEAD)
        .uri(&url)
        .body(HttpRequestBody::empty());
    let request = request.map_err(|error| StoreError::io("ask for a region", error))?;
    let answer = client.execute(request).await;
    let told = answer
        .as_ref()
        .ok()
        .and_then(|answer| answer.headers().get(HEADER)?.to_str().ok());
    if let Some(region) = told
        .map(ToOwned::to_owned)
        .or_else(|| region_of_environment(variables))
    {
        return Ok(region);
    }
    match answer {
        Ok(answer) if answer.status() == StatusCode::NOT_FOUND => {
            Err(StoreError::missing_bucket(format!("bucket {bucket}")))
        }
        Ok(answer) => Err(StoreError::config(
            "spec.config[region]",
            format!(
                "it is missing, and AWS does not tell it ({}): set it",
                answer.status()
            ),
        )),
        Err(error) => Err(StoreError::Unreachable {
            action: "ask for the region of".to_owned(),
            url: format!("s3://{bucket}"),
            detail: format!(
                "{}; set spec.config[region] so that it need not be asked for",
                causes(&error)
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{CannedAnswer, spec};

    #[tokio::test]
    async fn a_region_is_asked_for_once_and_also_a_refusal_tells() {
        type Row<'a> = (
            Option<u16>,
            Option<&'static str>,
            &'a Variables<'a>,
            Result<&'a str, &'a str>,
        );
        let none = |_: &str| None;
        let of_pod = |name: &str| (name == "AWS_REGION").then(|| "eu-south-2".to_owned());
        let told = Some("eu-west-3");
        let table: [Row<'_>; 7] = [
            (Some(200), told, &none, Ok("eu-west-3")),
            (Some(301), told, &none, Ok("eu-west-3")),
            (Some(403), told, &of_pod, Ok("eu-west-3")),
            (Some(403), None, &of_pod, Ok("eu-south-2")),
            (
                Some(403),
                None,
                &none,
                Err("spec.config[region]: it is missing, and AWS does not tell it (403"),
            ),
            (Some(404), None, &none, Err("bucket b does not exist")),
            (
                None,
                None,
                &none,
                Err("could not ask for the region of s3://b: "),
            ),
        ];
        for (status, region, variables, expected) in table {
            let headers = region.map(|region| (HEADER, region));
            let client = HttpClient::new(CannedAnswer {
                status,
                body: "",
                header: headers,
            });
            let told = ask(&client, "b", variables)
                .await
                .map_err(|error| error.to_string());
            match (told, expected) {
                (Ok(told), Ok(expected)) => assert_eq!(told, expected),
                (Err(error), Err(expected)) => assert!(error.starts_with(expected), "{error}"),
                (told, expected) => panic!("{told:?} instead of {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn what_is_known_is_not_asked_for() {
        let regions = Regions::default();
        regions
            .known
            .lock()
            .insert("asked".to_owned(), "eu-west-3".to_owned());
        for (provider, bucket, config, expected) in [
            ("aws", "asked", &[][..], Some("eu-west-3")),
            ("velero.io/aws", "asked", &[], Some("eu-west-3")),
            ("aws", "asked", &[("region", "r")], Some("r")),
            ("aws", "b", &[("s3Url", "http://minio:9000")], None),
            ("gcp", "b", &[], None),
        ] {
            let location = BackupStorageLocation::new("default", spec(provider, bucket, config));
            let completed = regions.complete(&location, None).await.unwrap();
            assert_eq!(
                completed.spec.config.get("region").map(String::as_str),
                expected
            );
        }
    }
}

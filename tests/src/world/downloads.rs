//! Files of backups and restores that users request from the controller by DownloadRequests.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, ensure};
use backup_core::{
    api::{
        DownloadRequest,
        download_request::{
            DownloadRequestPhase, DownloadRequestSpec, DownloadRequestStatus, DownloadTarget,
        },
    },
    labels::{READ_KEY_ANNOTATION, READ_UID_ANNOTATION},
    reading::Key,
};
use kube::{Api, ResourceExt as _};

use super::{BUCKET, World, controllers::POINT_TIMEOUT};
use crate::{
    api::ApiExt as _,
    wait::{eventually, when},
};

/// A request for a file; without a name, one is generated.
pub fn download_request(name: &str, kind: &str, of: &str) -> DownloadRequest {
    let target = DownloadTarget {
        kind: kind.into(),
        name: of.to_owned(),
        ..DownloadTarget::default()
    };
    let mut request = DownloadRequest::new(
        name,
        DownloadRequestSpec {
            target,
            ..DownloadRequestSpec::default()
        },
    );
    if name.is_empty() {
        request.metadata.name = None;
        request.metadata.generate_name = Some(format!("{of}-"));
    }
    request
}

/// A request for a file of the object with this uid, which the holder of the key may read through
/// the API server.
pub fn read_request(kind: &str, of: &str, uid: &str, key: &Key) -> DownloadRequest {
    let mut request = download_request("", kind, of);
    let annotations = [
        (READ_KEY_ANNOTATION.to_owned(), key.hash()),
        (READ_UID_ANNOTATION.to_owned(), uid.to_owned()),
    ];
    request.metadata.annotations = Some(annotations.into());
    request
}

/// Creates a request, and waits until the controller has answered it.
pub async fn answered(
    api: &Api<DownloadRequest>,
    request: &DownloadRequest,
) -> anyhow::Result<DownloadRequest> {
    let name = api.create_object(request).await?.name_any();
    let what = format!("for {:?} is answered", request.spec.target);
    let answered =
        |one: &DownloadRequest| !matches!(one.status.phase, None | Some(DownloadRequestPhase::New));
    api.wait_until(&name, &what, Duration::from_secs(20), answered)
        .await
}

impl World {
    /// Requests a file, and waits for the answer.
    pub async fn ask_for_file(
        &self,
        kind: &str,
        of: &str,
    ) -> anyhow::Result<DownloadRequestStatus> {
        Ok(answered(&self.api(), &download_request("", kind, of))
            .await?
            .status)
    }

    /// The URL that the controller gives for a file; it is valid for ten minutes.
    pub async fn url_of(&self, kind: &str, of: &str) -> anyhow::Result<String> {
        let status = self.ask_for_file(kind, of).await?;
        ensure!(
            status.phase == Some(DownloadRequestPhase::Processed),
            "{kind} of {of}: {status:?}"
        );
        let end = status.expiration.context("no expiration")?.0;
        let left = end.duration_since(jiff::Timestamp::now()).as_secs();
        ensure!((500..=600).contains(&left), "it ends in {left} s");
        status.download_url.context("no URL")
    }

    /// Private keys under a folder with partial files of running work.
    pub async fn partial_files(&self, folder: &str) -> anyhow::Result<BTreeSet<String>> {
        let mut keys: BTreeSet<String> = self.s3()?.keys(BUCKET).await?.into_iter().collect();
        keys.retain(|key| {
            key.starts_with(folder) && key.contains("/.private/") && key.contains("/so-far-")
        });
        Ok(keys)
    }

    /// Waits until there are no partial files, as required once the end is published.
    pub async fn no_partial_files(&self, folder: &str) -> anyhow::Result<()> {
        eventually("partial files are gone", POINT_TIMEOUT, async || {
            let left = self.partial_files(folder).await?;
            anyhow::Ok(when(left.is_empty(), format!("{left:?}")))
        })
        .await
    }
}

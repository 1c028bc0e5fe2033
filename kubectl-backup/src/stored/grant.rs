//! Permission to read a file: requested by a DownloadRequest, and granted as a path of the API
//! server or a URL of the store.

use std::time::Duration;

use backup_client::backoff::Backoff;
use backup_core::{
    api::{
        DownloadRequest,
        download_request::{DownloadRequestPhase, DownloadRequestSpec, DownloadTarget},
    },
    labels::{OBJECTS_ANNOTATION, PLAN_ANNOTATION, READ_KEY_ANNOTATION, READ_UID_ANNOTATION},
    reading::{FOLDER, KEY_LENGTH, Key, PORT, SERVICE, path},
    text::causes,
};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::{
    ResourceExt as _,
    api::{ObjectMeta, PostParams},
    client::Body,
};
use tokio::time::{Instant, sleep};

use crate::{
    error::{Problem, ProblemKind},
    print::plain,
    session::Session,
    stored::{Bytes, ReadError, ReadTarget, StoredFile},
};

/// Timeout for the controller's answer to a request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses between two looks for it.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(30),
    cap: Duration::from_millis(500),
};

pub(super) enum Grant {
    /// From our controller: a path at the API server, and the key for it.
    Path { path: String, key: Key },
    /// From a Velero server: a URL of the bucket that gives the file to anyone. The key is not sent
    /// there.
    Url(String),
}

/// Creates the request, and waits for the answer. The controller deletes the request once it is
/// used or expired.
pub(super) async fn ask(session: &Session, file: &StoredFile<'_>) -> Result<Grant, ReadError> {
    let mut random = [0; KEY_LENGTH];
    let random_source = rustls::crypto::ring::default_provider().secure_random;
    random_source
        .fill(&mut random)
        .map_err(|_| Problem::other("this machine gives no random numbers"))?;
    let key = Key::new(random);
    let (annotation, value) = match file.target {
        ReadTarget::Stored { uid } => (READ_UID_ANNOTATION, uid),
        ReadTarget::Plan { spec } => (PLAN_ANNOTATION, spec),
        ReadTarget::Objects { query } => (OBJECTS_ANNOTATION, query),
    };
    let annotations = [
        (READ_KEY_ANNOTATION.to_owned(), key.hash()),
        (annotation.to_owned(), value.to_owned()),
    ];
    let target = DownloadTarget {
        kind: file.kind.clone(),
        name: file.name.to_owned(),
        ..DownloadTarget::default()
    };
    let mut request = DownloadRequest::new(
        "",
        DownloadRequestSpec {
            target,
            ..DownloadRequestSpec::default()
        },
    );
    request.metadata = ObjectMeta {
        generate_name: Some("read-".to_owned()),
        annotations: Some(annotations.into()),
        ..ObjectMeta::default()
    };
    let name = session
        .create(&request, &PostParams::default())
        .await?
        .name_any();
    let end = Instant::now() + ANSWER_TIMEOUT.min(session.request_timeout);
    for pause in BACKOFF.delays() {
        let status = match session.get::<DownloadRequest>(&name).await {
            Ok(request) => request.status,
            // Namespace owners read no requests; the controller makes them wait for the answer.
            Err(problem) if problem.kind == ProblemKind::Forbidden => {
                let path = path(&session.namespace, SERVICE, &name);
                return Ok(Grant::Path { path, key });
            }
            Err(problem) => return Err(problem.into()),
        };
        match status.phase {
            Some(DownloadRequestPhase::Processed) => {
                let url = status.download_url.unwrap_or_default();
                if is_path(&url, &session.namespace, &name) {
                    return Ok(Grant::Path { path: url, key });
                }
                if file.is_made() {
                    return Err(ReadError::Final(file.not_made()));
                }
                if ["https://", "http://"]
                    .iter()
                    .any(|scheme| url.starts_with(scheme))
                {
                    return Ok(Grant::Url(url));
                }
                let title = file.title();
                let url = plain(&url);
                let message = format!("the server gives {title} by {url:?}, which is no URL");
                return Err(ReadError::Final(Problem::other(message)));
            }
            Some(DownloadRequestPhase::Failed) => {
                let message = plain(&status.message.unwrap_or_default());
                return Err(ReadError::Final(Problem::new(
                    ProblemKind::NotGiven,
                    message,
                )));
            }
            _ => {}
        }
        if Instant::now() >= end {
            break;
        }
        sleep(pause).await;
    }
    let message = format!(
        "the controller has not answered downloadrequest {name:?} within {ANSWER_TIMEOUT:?}"
    );
    let remedy = format!(
        "Check that it runs: kubectl -n {} get pods -l app.kubernetes.io/name=backup-controller",
        session.namespace
    );
    Err(ReadError::Final(
        Problem::new(ProblemKind::Unanswered, message).with_remedy(remedy),
    ))
}

/// Sends a request to a bucket's URL that a Velero server has given, without any credentials for
/// the API server. The error is a sentence without the URL, because the URL gives access to the
/// file.
pub(super) async fn send_to_store(request: Request<Body>) -> Result<Response<Bytes>, String> {
    let (parts, _) = request.into_parts();
    let client = reqwest::Client::builder()
        .build()
        .map_err(unreachable_store)?;
    let sent = client
        .get(parts.uri.to_string())
        .headers(parts.headers)
        .send()
        .await
        .map_err(unreachable_store)?;
    Ok(Response::<reqwest::Body>::from(sent).map(|body| {
        body.map_err(|error| error.without_url().into())
            .boxed_unsync()
    }))
}

fn unreachable_store(error: reqwest::Error) -> String {
    format!(
        "the store cannot be reached: {}",
        causes(&error.without_url())
    )
}

/// Whether this is a path to the file of this request, by a Service of the installation. The key is
/// sent to no other path.
fn is_path(path: &str, namespace: &str, request: &str) -> bool {
    let start = format!("/api/v1/namespaces/{namespace}/services/https:");
    let end = format!(":{PORT}/proxy{FOLDER}/{request}");
    let service = path
        .strip_prefix(&start)
        .and_then(|rest| rest.strip_suffix(&end));
    service.is_some_and(|name| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_goes_to_a_service_of_the_installation_only() {
        let good = backup_core::reading::path("velero", "backup-controller", "read-1");
        assert!(is_path(&good, "velero", "read-1"));
        for (path, namespace, request) in [
            (good.as_str(), "other", "read-1"),
            (&good, "velero", "read-2"),
            (&format!("https://evil{good}"), "velero", "read-1"),
            (&good.replace("https:", "http:"), "velero", "read-1"),
            (
                &good.replace("backup-controller", "a:1/proxy/x?y="),
                "velero",
                "read-1",
            ),
            (&good.replace("backup-controller", ""), "velero", "read-1"),
            ("", "velero", "read-1"),
        ] {
            assert!(!is_path(path, namespace, request), "{path}");
        }
    }
}

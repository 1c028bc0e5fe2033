//! Requests to the API server for single items, with timeouts and bounded retries.
//!
//! While the server accepts no writes, requests are retried until a deadline; a request that fails
//! while others succeed is retried a few times ([`failures`]); a final answer is returned at once.

mod dry_run;
mod failures;
mod go_json;
mod held;
mod removal;
mod server_warnings;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use backup_actions::restore::{
    json::{self, Object},
    stored::{LostFields, WriteRequest},
};
use backup_client::{backoff::Backoff, page::Page, path};
use backup_core::resources::group_resource;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use kube::{
    Client,
    client::Body,
    core::{
        Request,
        params::{GetParams, ListParams, Patch, PatchParams, PostParams},
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::job::cancellation::{Cancellation, NotSent, StopReason};
pub(super) use dry_run::client as dry_client;
use dry_run::{DryRun, Place};
use failures::{Failures, MAX_GRACE, Retry, classify};
pub(super) use held::held;
use held::what_holds;
pub(super) use removal::MetadataPages;
use server_warnings::ServerWarnings;

/// Number of deletions that may time out before no further ones are waited for.
const MAX_TIMED_OUT_WAITS: usize = 16;
/// Interval between reads of an object that is being deleted.
const READ_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(200),
    cap: Duration::from_secs(4),
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Timeout of one request.
    pub(super) request: Duration,
    /// Maximum wait for an unavailable server, or for an object that is being deleted.
    pub(super) patience: Duration,
    /// Maximum time to retry a failing webhook (once per restore), or a server that is unavailable
    /// for some requests only.
    pub(super) grace: Duration,
    /// First and longest pause between two tries.
    pub(super) pause: (Duration, Duration),
    /// Maximum number of tries of a request that fails while others succeed.
    pub(super) tries: u32,
}

impl Pace {
    pub(super) fn with_patience(patience: Duration) -> Self {
        Self {
            request: Duration::from_secs(30),
            patience,
            grace: MAX_GRACE.min(patience),
            pause: (Duration::from_millis(100), Duration::from_secs(5)),
            tries: 5,
        }
    }
}

/// Builds the request for a page of a list.
type PageRequest =
    fn(&Request, &ListParams) -> Result<http::Request<Vec<u8>>, kube::core::request::Error>;

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Stopped(#[from] StopReason),
    /// The server's final answer.
    #[error("{}", .0.message)]
    Refused(Box<kube::core::Status>),
    /// The server's answer, which names a failing webhook.
    #[error(
        "{answer}; webhook {webhook} does not work: repair it or delete its configuration, and restore again"
    )]
    Webhook { webhook: String, answer: String },
    /// No usable answer within `Pace::patience`.
    #[error("the API server gave no usable answer, the last was: {0}")]
    Away(String),
    #[error("the request cannot be made: {0}")]
    Request(String),
    #[error("the answer of the API server cannot be read: {0}")]
    Unreadable(serde_json::Error),
    /// The object was written, but some fields were not stored.
    #[error("the API server has not stored {0}")]
    NotStored(LostFields),
    #[error(transparent)]
    NotSent(NotSent),
}

impl From<NotSent> for CallError {
    fn from(error: NotSent) -> Self {
        match error {
            NotSent::Stopped(reason) => Self::Stopped(reason),
            NotSent::Unconfirmed => Self::NotSent(error),
        }
    }
}

impl CallError {
    /// Returns the error to be reported, or `Err` if the work has to stop.
    pub(super) fn unless_stopped(self) -> Result<Self, StopReason> {
        match self {
            Self::Stopped(reason) => Err(reason),
            error => Ok(error),
        }
    }

    /// Adds the name of the failing webhook, if there is one.
    fn of_webhook(self, retry: Retry) -> Self {
        match (retry, self) {
            (Retry::Webhook(webhook), Self::Refused(status)) => Self::Webhook {
                webhook,
                answer: status.message,
            },
            (_, error) => error,
        }
    }

    /// Whether a conversion webhook failed. For a read of one object this proves that the object
    /// exists.
    pub(super) fn fails_to_convert(&self) -> bool {
        matches!(self, Self::Webhook { webhook, .. } if webhook.starts_with(failures::CONVERTS))
    }

    pub(super) fn is_webhook(&self) -> bool {
        matches!(self, Self::Webhook { .. })
    }

    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_not_found())
    }

    pub(super) fn is_already_exists(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_already_exists())
    }

    /// Whether the object changed between reading and writing.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused(status) if status.is_conflict() && !status.is_already_exists())
    }
}

/// Verb and object of a request.
#[derive(Clone, Copy)]
struct Subject<'a> {
    verb: &'static str,
    collection: &'a str,
    name: Option<&'a str>,
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            plural, namespace, ..
        } = Place::of(self.collection);
        write!(f, "{} {plural}", self.verb)?;
        if let Some(name) = self.name {
            write!(f, " {name:?}")?;
        }
        namespace.map_or(Ok(()), |namespace| write!(f, " in namespace {namespace:?}"))
    }
}

impl Subject<'_> {
    /// The failure cause shared by requests of the same type, if the server fails.
    fn type_cause(&self) -> String {
        let Place { plural, group, .. } = Place::of(self.collection);
        format!("{plural}.{group}")
    }

    /// The failure cause shared by requests of the same API group, if the server does not answer.
    fn group_cause(&self) -> String {
        format!("*.{}", Place::of(self.collection).group)
    }

    /// The failure cause of a request that failed in this way.
    fn cause(&self, retry: &Retry) -> String {
        if *retry == Retry::Away {
            self.group_cause()
        } else {
            self.type_cause()
        }
    }
}

#[derive(Clone)]
pub(super) struct Calls {
    warnings: Arc<ServerWarnings>,
    client: Client,
    cancellation: Cancellation,
    pace: Pace,
    failures: Arc<Failures>,
    waited_in_vain: Arc<AtomicUsize>,
    dry_run: Option<Arc<DryRun>>,
}

impl Calls {
    pub(super) fn new(client: Client, cancellation: Cancellation, pace: Pace) -> Self {
        Self {
            warnings: Arc::default(),
            client,
            cancellation,
            pace,
            failures: Arc::default(),
            waited_in_vain: Arc::default(),
            dry_run: None,
        }
    }

    /// Calls of a dry run; the client must send its writes as dry runs ([`dry_run::client`]). No
    /// object is created, so none is waited for.
    pub(super) fn dry(client: Client, cancellation: Cancellation, pace: Pace) -> Self {
        Self {
            dry_run: Some(Arc::default()),
            ..Self::new(client, cancellation, pace)
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run.is_some()
    }

    /// Messages about items that a dry run could not try.
    pub(super) fn untried(&self) -> Vec<String> {
        self.dry_run
            .as_ref()
            .map(|dry_run| dry_run.notes())
            .unwrap_or_default()
    }

    /// The dry run, if the type or namespace of this collection would only be created by a real
    /// restore.
    fn only_planned(&self, collection: &str) -> Option<&DryRun> {
        self.dry_run
            .as_deref()
            .filter(|dry_run| dry_run.is_new(collection))
    }

    /// Maximum wait for an unavailable server, or for an object that is being deleted.
    pub(super) fn patience(&self) -> Duration {
        self.pace.patience
    }

    /// Checked before every write.
    pub(super) fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Creates an object (never changes an existing one), and returns the fields that the server
    /// did not store; `unmodified` is the object before resource modifiers. The flag is true if an
    /// earlier try of this call may have created it.
    pub(super) async fn create(
        &self,
        collection: &str,
        body: &Object,
        unmodified: Option<&Object>,
    ) -> (Result<LostFields, CallError>, bool) {
        if let Some(dry_run) = self.only_planned(collection) {
            dry_run.untried(collection);
            return (Ok(LostFields::default()), false);
        }
        let bytes = match go_json::to_vec(body) {
            Ok(bytes) => bytes,
            Err(error) => return (Err(CallError::Request(error.to_string())), false),
        };
        let request = Request::new(collection);
        let mut tries = 0;
        let subject = Subject {
            verb: "create",
            collection,
            name: json::text(body, &["metadata"], "name"),
        };
        let result = self
            .call(true, subject, || {
                tries += 1;
                request.create(&PostParams::default(), bytes.clone())
            })
            .await;
        if let (Some(dry_run), Ok(_)) = (&self.dry_run, &result) {
            dry_run.created(collection, body);
        }
        (
            result.and_then(|answer| lost(collection, body, unmodified, &answer)),
            tries > 1,
        )
    }

    pub(super) async fn get(
        &self,
        collection: &str,
        name: &str,
    ) -> Result<Option<Object>, CallError> {
        if self.only_planned(collection).is_some() {
            return Ok(None);
        }
        let request = Request::new(collection);
        let subject = Subject {
            verb: "read",
            collection,
            name: Some(name),
        };
        match self
            .call(false, subject, || {
                request.get(&path::segment(name), &GetParams::default())
            })
            .await
        {
            Ok(answer) => Ok(Some(read(&answer)?)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the current page of a collection from etcd; `from` is the continue token of the page
    /// before.
    pub(super) async fn list(
        &self,
        collection: &str,
        limit: u32,
        from: Option<&str>,
    ) -> Result<Page, CallError> {
        self.page(collection, limit, from, Request::list).await
    }

    /// Reads a page of a collection by this kind of request.
    async fn page(
        &self,
        collection: &str,
        limit: u32,
        from: Option<&str>,
        list: PageRequest,
    ) -> Result<Page, CallError> {
        let request = Request::new(collection);
        let mut params = ListParams::default().limit(limit);
        params.continue_token = from.map(str::to_owned);
        let subject = Subject {
            verb: "list",
            collection,
            name: None,
        };
        read(
            &self
                .call(false, subject, || list(&request, &params))
                .await?,
        )
    }

    /// Merge-patches an object, and returns it with the fields of the patch that the server did not
    /// store. The patch carries a resourceVersion where a concurrent change matters.
    pub(super) async fn patch(
        &self,
        collection: &str,
        name: &str,
        patch: &Object,
        unmodified: Option<&Object>,
    ) -> Result<(Object, LostFields), CallError> {
        let request = Request::new(collection);
        let params = PatchParams::default();
        let subject = Subject {
            verb: "change",
            collection,
            name: Some(name),
        };
        let answer = self
            .call(true, subject, || {
                request.patch(&path::segment(name), &params, &Patch::Merge(patch))
            })
            .await?;
        let now: Object = read(&answer)?;
        let lost = WriteRequest {
            group_resource: &type_of(collection),
            body: patch,
            unmodified,
        }
        .lost(&now);
        Ok((now, lost))
    }

    /// Replaces the whole status of an object, and returns the fields that the server did not
    /// store. For a type without the subresource the object itself is patched.
    pub(super) async fn replace_status(
        &self,
        collection: &str,
        name: &str,
        status: &Value,
    ) -> Result<LostFields, CallError> {
        if self.is_dry_run() {
            // A dry run has not created the object.
            return Ok(LostFields::default());
        }
        let request = Request::new(collection);
        let params = PatchParams::default();
        let patch = PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["status"]),
            value: status.clone(),
        });
        let patch: Patch<()> = Patch::Json(json_patch::Patch(vec![patch]));
        let subject = Subject {
            verb: "write the status of",
            collection,
            name: Some(name),
        };
        let name = path::segment(name);
        let mut written = self
            .call(true, subject, || {
                request.patch_subresource("status", &name, &params, &patch)
            })
            .await;
        if written.as_ref().is_err_and(CallError::is_not_found) {
            written = self
                .call(true, subject, || request.patch(&name, &params, &patch))
                .await;
        }
        let body = Object::from_iter([("status".to_owned(), status.clone())]);
        lost(collection, &body, None, &written?)
    }

    /// Waits until an object that is being deleted is gone or no longer being deleted. Returns the
    /// object read last, which may still be terminating. After `MAX_TIMED_OUT_WAITS` timeouts it
    /// does not wait for others: the same cause is likely to block them.
    pub(super) async fn until_gone(
        &self,
        collection: &str,
        name: &str,
        is_going: impl Fn(&Object) -> bool,
    ) -> Result<Option<Object>, CallError> {
        let deadline = Instant::now() + self.pace.patience;
        let mut looks = 0;
        let Place {
            plural, namespace, ..
        } = Place::of(collection);
        let of = namespace
            .map(|namespace| format!(" of namespace {namespace:?}"))
            .unwrap_or_default();
        let wait = self.cancellation.waits().begin(format!(
            "{plural} {name:?}{of} to be gone, which is being deleted"
        ));
        loop {
            let found = self.get(collection, name).await?;
            if self.is_dry_run() || !found.as_ref().is_some_and(&is_going) {
                return Ok(found);
            }
            if Instant::now() >= deadline
                || self.waited_in_vain.load(Ordering::Relaxed) >= MAX_TIMED_OUT_WAITS
            {
                self.waited_in_vain.fetch_add(1, Ordering::Relaxed);
                return Ok(found);
            }
            if let Some(holds) = found.as_ref().and_then(what_holds) {
                wait.because(holds);
            }
            looks += 1;
            self.cancellation.wait(READ_BACKOFF.delay(looks)).await?;
        }
    }

    /// Sends a request once, and returns the body of the answer.
    async fn send(
        &self,
        request: http::Request<Vec<u8>>,
        subject: &Subject<'_>,
    ) -> Result<Bytes, kube::Error> {
        let (head, body) = self
            .client
            .send(request.map(Body::from))
            .await?
            .into_parts();
        let body = body.collect().await?.to_bytes();
        if !head.status.is_success() {
            let status = serde_json::from_slice::<kube::core::Status>(&body).unwrap_or_else(|_| {
                let text = String::from_utf8_lossy(&body);
                kube::core::Status::failure(&text, "the answer is no status")
                    .with_code(head.status.as_u16())
            });
            return Err(kube::Error::Api(Box::new(status)));
        }
        for warning in head.headers.get_all("warning") {
            self.warnings
                .add(warning.to_str().unwrap_or_default(), subject);
        }
        Ok(body)
    }

    /// Warnings of the server since the last call, for the log. Each warning is returned once.
    pub(super) fn new_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Sends a request until it is answered, and returns the body of the answer.
    async fn call(
        &self,
        write: bool,
        subject: Subject<'_>,
        mut request: impl FnMut() -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Bytes, CallError> {
        let deadline = Instant::now() + self.pace.patience;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(self.pace.pause.0)
            .with_max_delay(self.pace.pause.1)
            .without_max_times()
            .with_jitter()
            .build();
        let waiting = self
            .cancellation
            .waits()
            .begin(format!("the API server to {subject}"));
        let mut tries = self
            .failures
            .tries(&self.pace, self.cancellation.lease_renewal());
        loop {
            if write {
                let left = deadline.saturating_duration_since(Instant::now());
                self.cancellation.may_write(left).await?;
            }
            let request = request().map_err(|error| CallError::Request(error.to_string()))?;
            let limit = self.cancellation.request_timeout(self.pace.request);
            let answer = tokio::select! {
                answer = tokio::time::timeout(limit, self.send(request, &subject)) => answer,
                // A request that still waits at the API server may be cancelled there, too.
                () = self.cancellation.fence().lost() => return Err(StopReason::ClaimLost.into()),
            };
            let (retry, error) = match answer {
                Ok(Ok(body)) => {
                    if write {
                        tries.write_succeeded(|| [subject.type_cause(), subject.group_cause()]);
                    }
                    return Ok(body);
                }
                Ok(Err(error)) => classify(error),
                Err(_) => {
                    let webhooks = if write {
                        "; a webhook that does not answer may hold it"
                    } else {
                        ""
                    };
                    (
                        Retry::Away,
                        CallError::Away(format!("nothing within {limit:.0?}{webhooks}")),
                    )
                }
            };
            let pause = pauses.next().unwrap_or(self.pace.pause.1);
            let lease_renewal = self.cancellation.lease_renewal();
            if !tries.again(&retry, || subject.cause(&retry), lease_renewal, pause) {
                return Err(error.of_webhook(retry));
            }
            waiting.because(error.to_string());
            match self.cancellation.wait(pause).await {
                Ok(()) => {}
                // After a cancellation the request is not retried: this error is its result.
                Err(StopReason::Cancelled) => return Err(error.of_webhook(retry)),
                Err(reason) => return Err(reason.into()),
            }
        }
    }
}

/// Fields of the request that the server did not store.
fn lost(
    collection: &str,
    body: &Object,
    unmodified: Option<&Object>,
    answer: &[u8],
) -> Result<LostFields, CallError> {
    let asked = WriteRequest {
        group_resource: &type_of(collection),
        body,
        unmodified,
    };
    asked.lost_in_answer(answer).map_err(CallError::Unreadable)
}

fn type_of(collection: &str) -> String {
    let Place { plural, group, .. } = Place::of(collection);
    group_resource(plural, group)
}

fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(answer).map_err(CallError::Unreadable)
}

#[cfg(test)]
mod tests;

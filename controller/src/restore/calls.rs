//! Requests to the API server for single items, with time-outs and bounded retries.
//!
//! Four kinds of failure are distinguished: a server that is away or overloaded (retried until a deadline), one that fails (as long
//! as no write has succeeded for that time in the whole restore, then a few times), one that is not ready for this request (a few
//! times), and an answer that will not change (returned at once).

mod dry_run;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder as _, ExponentialBuilder};
use backup_actions::restore::json::Object;
use backup_runtime::{
    backoff::Backoff,
    errors::{is_of_start, plain},
    path,
};
use json_patch::{AddOperation, PatchOperation, jsonptr::PointerBuf};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Client,
    core::{
        Request,
        params::{GetParams, ListParams, Patch, PatchParams, PostParams},
    },
};
use parking_lot::Mutex;
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, value::RawValue};
use tokio::time::Instant;

use crate::job::cancellation::{Cancellation, NotSent, StopReason};
use dry_run::DryRun;
pub(super) use dry_run::client as dry_client;

/// Objects that are waited for in vain before no other one is.
const VAIN_WAITS: usize = 16;
/// Between two looks at an object that is going away.
const LOOKS: Backoff = Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(4) };

#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Longest wait for one answer.
    pub(super) request: Duration,
    /// How long a server that is away, or an object that is going away, is waited for.
    pub(super) patience: Duration,
    /// First and longest pause between two tries.
    pub(super) pause: (Duration, Duration),
    /// Tries of a request that the server is not ready for.
    pub(super) tries: u32,
}

impl Pace {
    pub(super) fn with_patience(patience: Duration) -> Self {
        Self {
            request: Duration::from_secs(30),
            patience,
            pause: (Duration::from_millis(100), Duration::from_secs(5)),
            tries: 5,
        }
    }
}

/// A page of a list. An item that is no object is one of its own.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(default)]
    pub(super) items: Vec<Box<RawValue>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error(transparent)]
    Stopped(#[from] StopReason),
    /// The server's answer, which will not change.
    #[error("{}", .0.message)]
    Refused(Box<kube::core::Status>),
    /// No usable answer within the patience.
    #[error("the API server gave no usable answer, the last was: {0}")]
    Away(String),
    #[error("the request cannot be made: {0}")]
    Request(String),
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
    /// The error again, to be reported, unless the work has to stop.
    pub(super) fn unless_stopped(self) -> Result<Self, StopReason> {
        match self {
            Self::Stopped(reason) => Err(reason),
            error => Ok(error),
        }
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// The server is away or overloaded.
    UntilDeadline,
    /// The server failed. All may fail, as while etcd elects a leader, or this one, for ever, as with a webhook that is broken.
    WhileNothingSucceeds,
    /// The server is not ready for this request.
    FewTimes,
    Never,
}

#[derive(Clone)]
pub(super) struct Calls {
    client: Client,
    cancellation: Cancellation,
    pace: Pace,
    /// Since when the server fails, if no write has succeeded after that.
    failing: Arc<Mutex<Option<Instant>>>,
    waited_in_vain: Arc<AtomicUsize>,
    dry_run: Option<Arc<DryRun>>,
}

impl Calls {
    pub(super) fn new(client: Client, cancellation: Cancellation, pace: Pace) -> Self {
        let (failing, waited_in_vain) = (Arc::default(), Arc::default());
        Self { client, cancellation, pace, failing, waited_in_vain, dry_run: None }
    }

    /// Calls whose writes change nothing, if this client's do not ([`dry_run::client`]): nothing comes into being, so nothing is
    /// waited for.
    pub(super) fn dry(client: Client, cancellation: Cancellation, pace: Pace) -> Self {
        Self { dry_run: Some(Arc::default()), ..Self::new(client, cancellation, pace) }
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run.is_some()
    }

    /// What a dry run could not try, as sentences.
    pub(super) fn untried(&self) -> Vec<String> {
        self.dry_run.as_ref().map(|dry_run| dry_run.notes()).unwrap_or_default()
    }

    /// The dry run, if what this collection needs is not there, as it would only be made by then.
    fn only_planned(&self, collection: &str) -> Option<&DryRun> {
        self.dry_run.as_deref().filter(|dry_run| dry_run.is_new(collection))
    }

    /// How long a server that is away, or an object that is going away, is waited for.
    pub(super) fn patience(&self) -> Duration {
        self.pace.patience
    }

    /// Asked before every write.
    pub(super) fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Creates an object. Create-only: it never changes one that is there. True if an earlier try of this very call may
    /// have created it.
    pub(super) async fn create(&self, collection: &str, body: &Object) -> (Result<(), CallError>, bool) {
        if let Some(dry_run) = self.only_planned(collection) {
            dry_run.untried(collection);
            return (Ok(()), false);
        }
        let bytes = match serde_json::to_vec(body) {
            Ok(bytes) => bytes,
            Err(error) => return (Err(CallError::Request(error.to_string())), false),
        };
        let request = Request::new(collection);
        let mut tries = 0;
        let result = self
            .call::<IgnoredAny>(true, || {
                tries += 1;
                request.create(&PostParams::default(), bytes.clone())
            })
            .await;
        if let (Some(dry_run), Ok(_)) = (&self.dry_run, &result) {
            dry_run.created(collection, body);
        }
        (result.map(|_| ()), tries > 1)
    }

    pub(super) async fn get(&self, collection: &str, name: &str) -> Result<Option<Object>, CallError> {
        if self.only_planned(collection).is_some() {
            return Ok(None);
        }
        let request = Request::new(collection);
        match self.call(false, || request.get(&path::segment(name), &GetParams::default())).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of a collection as it is now in etcd; from where another one ended.
    pub(super) async fn list(
        &self,
        collection: &str,
        limit: u32,
        from: Option<&str>,
    ) -> Result<Page, CallError> {
        let request = Request::new(collection);
        let mut params = ListParams::default().limit(limit);
        params.continue_token = from.map(str::to_owned);
        self.call(false, || request.list(&params)).await
    }

    /// Merge-patches an object. The patch carries a resourceVersion where a change in between matters.
    pub(super) async fn patch(&self, collection: &str, name: &str, patch: &Value) -> Result<(), CallError> {
        let request = Request::new(collection);
        let params = PatchParams::default();
        self.call::<IgnoredAny>(true, || request.patch(&path::segment(name), &params, &Patch::Merge(patch)))
            .await
            .map(|_| ())
    }

    /// Replaces the status of an object, whatever it is. A type without the subresource has it in the object itself.
    pub(super) async fn replace_status(
        &self,
        collection: &str,
        name: &str,
        status: &Value,
    ) -> Result<(), CallError> {
        if self.is_dry_run() {
            // The object is not there.
            return Ok(());
        }
        let (request, params) = (Request::new(collection), PatchParams::default());
        let patch = PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(["status"]),
            value: status.clone(),
        });
        let patch: Patch<()> = Patch::Json(json_patch::Patch(vec![patch]));
        let name = path::segment(name);
        let written = self
            .call::<IgnoredAny>(true, || request.patch_subresource("status", &name, &params, &patch))
            .await;
        let written = match written {
            Err(error) if error.is_not_found() => {
                self.call::<IgnoredAny>(true, || request.patch(&name, &params, &patch)).await
            }
            written => written,
        };
        written.map(|_| ())
    }

    /// Waits until an object that is going away is gone, or does not go any more; what is there then, which may still be going. Once
    /// that happened to many, others are not waited for: what holds those will hardly let go of these.
    pub(super) async fn until_gone(
        &self,
        collection: &str,
        name: &str,
        is_going: impl Fn(&Object) -> bool,
    ) -> Result<Option<Object>, CallError> {
        let deadline = Instant::now() + self.pace.patience;
        let mut looks = 0;
        loop {
            let found = self.get(collection, name).await?;
            if self.is_dry_run() || !found.as_ref().is_some_and(&is_going) {
                return Ok(found);
            }
            if Instant::now() >= deadline || self.waited_in_vain.load(Ordering::Relaxed) >= VAIN_WAITS {
                self.waited_in_vain.fetch_add(1, Ordering::Relaxed);
                return Ok(found);
            }
            looks += 1;
            self.cancellation.wait(LOOKS.delay(looks)).await?;
        }
    }

    async fn call<T: DeserializeOwned>(
        &self,
        write: bool,
        mut request: impl FnMut() -> Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let deadline = Instant::now() + self.pace.patience;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(self.pace.pause.0)
            .with_max_delay(self.pace.pause.1)
            .without_max_times()
            .with_jitter()
            .build();
        let mut failures = 0;
        loop {
            if write {
                let left = deadline.saturating_duration_since(Instant::now());
                self.cancellation.may_write(left).await?;
            }
            let request = request().map_err(|error| CallError::Request(error.to_string()))?;
            let limit = self.cancellation.request_timeout(self.pace.request);
            let answer = tokio::select! {
                answer = tokio::time::timeout(limit, self.client.request::<T>(request)) => answer,
                // One that waits at the API server still may be given up there, too.
                () = self.cancellation.fence().lost() => return Err(StopReason::ClaimLost.into()),
            };
            let (retry, error) = match answer {
                Ok(Ok(value)) => {
                    if write {
                        *self.failing.lock() = None;
                    }
                    return Ok(value);
                }
                Ok(Err(error)) => classify(error),
                Err(_) => (Retry::UntilDeadline, CallError::Away(format!("nothing within {limit:?}"))),
            };
            failures += u32::from(matches!(retry, Retry::FewTimes | Retry::WhileNothingSucceeds));
            let again = match retry {
                Retry::UntilDeadline => true,
                Retry::WhileNothingSucceeds => {
                    let since = *self.failing.lock().get_or_insert_with(Instant::now);
                    failures < self.pace.tries || since.elapsed() < self.pace.patience
                }
                Retry::FewTimes => failures < self.pace.tries,
                Retry::Never => false,
            };
            let pause = pauses.next().unwrap_or(self.pace.pause.1);
            if !again || Instant::now() + pause > deadline {
                return Err(error);
            }
            match self.cancellation.wait(pause).await {
                Ok(()) => {}
                // What is on its way comes to its own end, and that is this.
                Err(StopReason::Cancelled) => return Err(error),
                Err(reason) => return Err(reason.into()),
            }
        }
    }
}

fn classify(error: kube::Error) -> (Retry, CallError) {
    match error {
        kube::Error::Api(status) => {
            let retry = match status.code {
                429 | 502..=504 => Retry::UntilDeadline,
                // A definition that was just established may not be served by every API server yet.
                404 if status.message.contains("could not find the requested resource") => Retry::FewTimes,
                // A conflict on creation is one between the server's own writes (a quota, for example).
                409 if !status.is_already_exists() && !names_version(&status) => Retry::FewTimes,
                500 => Retry::WhileNothingSucceeds,
                403 if is_of_start(&status) => Retry::WhileNothingSucceeds,
                _ => Retry::Never,
            };
            (retry, CallError::Refused(status))
        }
        // The answer came but is not what was asked for: asking again gives the same.
        kube::Error::SerdeError(error) => (Retry::Never, CallError::Request(error.to_string())),
        // The connection failed or broke: the outcome is unknown.
        other => (Retry::UntilDeadline, CallError::Away(plain(&other))),
    }
}

/// Whether a conflict is about the version that the request carried: the caller has to read again.
fn names_version(status: &kube::core::Status) -> bool {
    status.message.contains("the object has been modified") || status.message.contains("Precondition failed")
}

#[cfg(test)]
mod tests;

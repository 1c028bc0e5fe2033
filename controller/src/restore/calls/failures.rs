//! Decides how long a failing request is retried.
//!
//! The decision depends on whether other writes succeed meanwhile: writes of this restore, or
//! renewals of the controller's lease. If none succeeds, the request is retried until
//! `Pace::patience` ends. If others succeed, it is retried a few times and then fails its item. A
//! failing webhook is identified by its name, as the server itself has answered.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use backup_client::errors::{is_of_start, plain};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{CallError, Pace};

/// Maximum time to retry a failing webhook (once per restore), or a server that is unavailable for
/// some requests only.
pub(super) const MAX_GRACE: Duration = Duration::from_secs(30);
/// Prefix of the name of a conversion webhook here; the type follows.
pub(super) const CONVERTS: &str = "that converts ";
/// Maximum number of remembered causes (and webhooks); failures with other causes are retried each
/// time.
const MAX_CAUSES: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The server is unavailable or overloaded.
    Away,
    /// The server failed: for all requests, as while etcd elects a leader, or permanently for this
    /// one.
    Failed,
    /// This webhook fails; the server works.
    Webhook(String),
    /// The server is not ready for this request.
    FewTimes,
    Never,
}

/// Failures and successes in one restore.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Writes that have succeeded.
    successes: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The first failure since which no write has succeeded.
    failing_since: Option<Instant>,
    /// Causes whose retries are used up: another request is sent once. A success with the same
    /// cause removes it.
    given_up: HashSet<String>,
    /// Failing webhooks, with the time of the first failure. Removed when a request succeeds that
    /// had failed by the webhook.
    webhooks: HashMap<String, Instant>,
}

/// Changes with every write that succeeds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Evidence {
    successes: u64,
    lease_renewal: u64,
}

/// The tries of one request.
pub(super) struct Tries<'a> {
    failures: &'a Failures,
    pace: &'a Pace,
    began: Instant,
    seen: Evidence,
    /// Failures that count against `Pace::tries`.
    counted: u32,
    webhook: Option<String>,
}

impl Failures {
    pub(super) fn tries<'a>(&'a self, pace: &'a Pace, lease_renewal: u64) -> Tries<'a> {
        let seen = self.evidence(lease_renewal);
        Tries {
            failures: self,
            pace,
            began: Instant::now(),
            seen,
            counted: 0,
            webhook: None,
        }
    }

    fn evidence(&self, lease_renewal: u64) -> Evidence {
        Evidence {
            successes: self.successes.load(Ordering::Relaxed),
            lease_renewal,
        }
    }
}

impl Tries<'_> {
    /// Records a write that succeeded. `causes` are the causes that its failure would have had.
    pub(super) fn write_succeeded(&self, causes: impl FnOnce() -> [String; 2]) {
        self.failures.successes.fetch_add(1, Ordering::Relaxed);
        let mut inner = self.failures.inner.lock();
        inner.failing_since = None;
        if !inner.given_up.is_empty() {
            for cause in causes() {
                inner.given_up.remove(&cause);
            }
        }
        if let Some(webhook) = &self.webhook {
            inner.webhooks.remove(webhook);
        }
    }

    /// Whether to retry after a failure and a pause. `cause` is shared by requests that would fail
    /// in the same way; webhooks have none.
    pub(super) fn again(
        &mut self,
        retry: &Retry,
        cause: impl FnOnce() -> String,
        lease_renewal: u64,
        pause: Duration,
    ) -> bool {
        let Self { failures, pace, .. } = *self;
        let now = Instant::now();
        let in_time = now + pause <= self.began + pace.patience;
        match retry {
            Retry::Never => false,
            Retry::FewTimes => {
                self.counted += 1;
                in_time && self.counted < pace.tries
            }
            Retry::Webhook(name) => {
                let mut inner = failures.inner.lock();
                let known = inner.webhooks.get(name).copied();
                let since = if let Some(since) = known {
                    since
                } else if inner.webhooks.len() < MAX_CAUSES {
                    inner.webhooks.insert(name.clone(), now);
                    now
                } else {
                    self.began
                };
                self.webhook = Some(name.clone());
                in_time && now.duration_since(since) < pace.grace
            }
            Retry::Away | Retry::Failed => {
                let evidence = failures.evidence(lease_renewal);
                let others_succeed = evidence != self.seen;
                self.seen = evidence;
                let mut inner = failures.inner.lock();
                let since = *inner.failing_since.get_or_insert(now);
                let cause = cause();
                let is_known = inner.given_up.contains(&cause);
                if others_succeed || is_known || now.duration_since(since) >= pace.patience {
                    self.counted += 1;
                }
                // An overloaded server accepts only some requests.
                let in_grace = *retry == Retry::Away && now.duration_since(self.began) < pace.grace;
                let again = in_time && !is_known && (self.counted < pace.tries || in_grace);
                if !again && inner.given_up.len() < MAX_CAUSES {
                    inner.given_up.insert(cause);
                }
                again
            }
        }
    }
}

/// Classifies an error for retries, and returns the error for the results.
pub(super) fn classify(error: kube::Error) -> (Retry, CallError) {
    match error {
        kube::Error::Api(status) => {
            let may_pass = matches!(status.code, 429 | 500..=504);
            if let Some(webhook) = may_pass.then(|| webhook(&status.message)).flatten() {
                return (Retry::Webhook(webhook), CallError::Refused(status));
            }
            let retry = match status.code {
                429 | 502..=504 => Retry::Away,
                // A definition that was just established may not be served by every API server yet.
                404 if status
                    .message
                    .contains("could not find the requested resource") =>
                {
                    Retry::FewTimes
                }
                // A conflict on creation is one between the server's own writes (a quota, for
                // example).
                409 if !status.is_already_exists() && !names_version(&status) => Retry::FewTimes,
                500 => Retry::Failed,
                403 if is_of_start(&status) => Retry::Failed,
                // A quota that has just been made, and that this API server has not seen with its
                // status yet.
                403 if status.message.contains("status unknown for quota") => Retry::FewTimes,
                _ => Retry::Never,
            };
            (retry, CallError::Refused(status))
        }
        // The connection failed or broke: the outcome is unknown.
        other => (Retry::Away, CallError::Away(plain(&other))),
    }
}

/// The webhook that an answer of the API server names: the server could not call it, it refused
/// with a temporary error, or it failed to convert a type (Kubernetes
/// `apiserver/pkg/admission/plugin/webhook/errors/statuserror.go`,
/// `apiserver/pkg/util/webhook/error.go`,
/// `apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`, v1.34).
pub(super) fn webhook(message: &str) -> Option<String> {
    quoted_name(message, "failed calling webhook ")
        .or_else(|| quoted_name(message, "admission webhook "))
        .or_else(|| converting_webhook(message))
}

/// The quoted name that follows this text in a message, in quotes.
fn quoted_name(message: &str, before: &str) -> Option<String> {
    let (_, rest) = message.split_once(before)?;
    let (name, _) = rest.strip_prefix('"')?.split_once('"')?;
    Some(format!("{name:?}"))
}

/// The webhook of a failed conversion, by the type that it converts.
fn converting_webhook(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("conversion webhook for ")?;
    let (of_type, _) = rest.split_once(" failed")?;
    Some(format!("{CONVERTS}{of_type}"))
}

/// Whether a conflict is about the version that the request carried: the caller has to read again.
fn names_version(status: &kube::core::Status) -> bool {
    status.message.contains("the object has been modified")
        || status.message.contains("Precondition failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_webhook_that_fails_is_known_by_its_name() {
        for (message, expected) in [
            (
                "Internal error occurred: failed calling webhook \"mutate.example.com\": failed to call webhook: Post \
                 \"https://engine.policy.svc:443/mutate?timeout=10s\": dial tcp: connect: connection refused",
                Some("\"mutate.example.com\""),
            ),
            (
                "admission webhook \"quota.example.com\" denied the request: try later",
                Some("\"quota.example.com\""),
            ),
            (
                "conversion webhook for acme.example.com/v1, Kind=Gateway failed: Post \"https://x\": EOF",
                Some("that converts acme.example.com/v1, Kind=Gateway"),
            ),
            ("etcdserver: leader changed", None),
            ("failed calling webhook", None),
        ] {
            assert_eq!(webhook(message).as_deref(), expected, "{message}");
        }
    }
}

//! Sends notifications: a POST of JSON with the headers of CloudEvents 1.0 (binary content mode),
//! retried for a limited time.

use std::time::Duration;

use backup_client::{
    backoff::Backoff,
    errors::{found, plain},
};
use backup_core::{notifications::SECRET_KEY, text::causes};
use http::{HeaderValue, StatusCode, header};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use reqwest::{Client, Url, redirect};
use tokio::time::Instant;

use super::decide::Notification;

/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pace of retries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) backoff: Backoff,
    /// Time limit for the retries of one notification.
    pub(super) budget: Duration,
}

impl Pace {
    pub(super) const DEFAULT: Self = Self {
        backoff: Backoff {
            first: Duration::from_secs(1),
            cap: Duration::from_mins(1),
        },
        budget: Duration::from_mins(15),
    };
}

/// Why a notification was not delivered. A sentence without the content of any secret.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct DeliveryError {
    reason: String,
    /// Whether a retry would fail, too.
    is_final: bool,
}

pub(super) struct Sender {
    client: Client,
    url: Url,
    /// The header `ce-source`.
    source: String,
    secrets: Api<Secret>,
    /// Name of the Secret for the authorization.
    secret: Option<String>,
    pace: Pace,
}

impl Sender {
    /// Redirects are not followed: they would lead past the list of allowed hosts. Errors: no HTTP
    /// client can be made.
    pub(super) fn new(
        url: Url,
        source: String,
        secrets: Api<Secret>,
        secret: Option<String>,
        pace: Pace,
    ) -> reqwest::Result<Self> {
        let client = Client::builder()
            .user_agent(concat!("backup-controller/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ATTEMPT_TIMEOUT)
            .build()?;
        Ok(Self {
            client,
            url,
            source,
            secrets,
            secret,
            pace,
        })
    }

    /// Delivers a notification, with retries within the budget.
    pub(super) async fn deliver(&self, notification: &Notification) -> Result<(), DeliveryError> {
        let started = Instant::now();
        let mut tries = 0;
        loop {
            let Err(error) = self.attempt(notification).await else {
                return Ok(());
            };
            tries += 1;
            let waited = started.elapsed();
            if error.is_final || waited >= self.pace.budget {
                let reason = format!("{} (attempt {tries})", error.reason);
                return Err(DeliveryError { reason, ..error });
            }
            tracing::debug!(id = notification.id(), tries, %error, "a notification is sent again");
            let left = self.pace.budget.saturating_sub(waited);
            tokio::time::sleep(self.pace.backoff.delay(tries).min(left)).await;
        }
    }

    async fn attempt(&self, notification: &Notification) -> Result<(), DeliveryError> {
        let body = serde_json::to_vec(&notification.data).map_err(|error| DeliveryError {
            reason: format!("it cannot be encoded: {error}"),
            is_final: true,
        })?;
        let mut request = self
            .client
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header("ce-specversion", "1.0")
            .header("ce-id", notification.id())
            .header("ce-source", &self.source)
            .header("ce-type", notification.event_type())
            .header("ce-subject", notification.subject())
            .header("ce-time", notification.at.to_string())
            .body(body);
        if let Some(authorization) = self.authorization().await? {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        // The path of the URL may be a secret, and is in no message.
        let answer = request.send().await.map_err(|error| DeliveryError {
            reason: format!("no answer: {}", causes(&error.without_url())),
            is_final: false,
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        Err(DeliveryError {
            reason: format!("the answer is {status}"),
            is_final: is_final(status),
        })
    }

    /// The value of the header, read for each attempt, so that a Secret that was replaced counts at
    /// once. `None` without a Secret. It may be created or corrected while attempts go on.
    async fn authorization(&self) -> Result<Option<HeaderValue>, DeliveryError> {
        let Some(name) = &self.secret else {
            return Ok(None);
        };
        let secret = found(self.secrets.get(name).await, name)
            .map_err(|error| unusable(name, &format!("could not be read: {}", plain(&error))))?;
        let Some(secret) = secret else {
            return Err(unusable(name, "does not exist; create it"));
        };
        let value = secret.data.and_then(|mut data| data.remove(SECRET_KEY));
        let Some(value) = value else {
            return Err(unusable(name, "has no key authorization; add it"));
        };
        let value = value.0.trim_ascii();
        if value.is_empty() {
            return Err(unusable(name, "has an empty key authorization; set it"));
        }
        let Ok(mut header) = HeaderValue::from_bytes(value) else {
            let problem = "has a key authorization that cannot be the value of a header";
            return Err(unusable(name, problem));
        };
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

fn unusable(secret: &str, problem: &str) -> DeliveryError {
    DeliveryError {
        reason: format!("Secret {secret} of --notify-secret {problem}"),
        is_final: false,
    }
}

/// Whether the same request would get the same answer: any answer but timeout, throttling and
/// errors of the server.
fn is_final(status: StatusCode) -> bool {
    !(status.is_server_error()
        || matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        ))
}

#[cfg(test)]
mod tests;

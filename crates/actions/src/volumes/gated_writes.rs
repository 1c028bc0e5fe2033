//! Writes to the API server that are only made while this replica leads, and while a gate allows
//! them.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use backup_client::retry;
use backup_core::data_movement::DATA_UPLOADS;
use backup_runtime::{leader::Leadership, retry::WRITE_TIMEOUT};
use serde::Serialize;
use serde_json::Value;

use crate::restore::stored::{LostFields, WriteRequest};

/// Time limit for one request, retries included.
pub(super) const RETRY_BUDGET: Duration = Duration::from_secs(30);

/// Checked before each write, in addition to the leadership. The error says why writing is not
/// allowed.
pub type WriteGate =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

#[derive(Clone)]
pub(super) struct GatedWrites {
    leadership: Leadership,
    gate: Option<WriteGate>,
}

impl GatedWrites {
    pub(super) fn new(leadership: &Leadership) -> Self {
        Self {
            leadership: leadership.clone(),
            gate: None,
        }
    }

    pub(super) fn gated(self, gate: WriteGate) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    /// Sends a write that may be repeated, until it succeeds, fails for good, or its time is over.
    pub(super) async fn send<T, F, Fut>(&self, request: F) -> Result<T, kube::Error>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<T, kube::Error>>,
    {
        retry::read(RETRY_BUDGET, || async {
            if let Some(gate) = &self.gate {
                gate()
                    .await
                    .map_err(|why| kube::Error::Service(why.into()))?;
            }
            self.leadership.write(WRITE_TIMEOUT, request()).await
        })
        .await
    }
}

/// The stored object, if it has everything that was requested.
/// Errors: a webhook or the definition has removed something.
pub(super) fn whole<K: Serialize>(asked: &Value, stored: K) -> Result<K, kube::Error> {
    complete(asked, stored, |request, answer| request.lost(answer))
}

/// The same, for an object that was found: others may have changed values since.
pub(super) fn found_whole<K: Serialize>(asked: &Value, stored: K) -> Result<K, kube::Error> {
    complete(asked, stored, |request, answer| request.absent(answer))
}

fn complete<K: Serialize>(
    asked: &Value,
    stored: K,
    compare: impl FnOnce(WriteRequest<'_>, &serde_json::Map<String, Value>) -> LostFields,
) -> Result<K, kube::Error> {
    let (Value::Object(body), Ok(Value::Object(answer))) = (asked, serde_json::to_value(&stored))
    else {
        return Ok(stored);
    };
    // Any type of custom resources will do, as the rules are the same for all.
    let request = WriteRequest {
        group_resource: DATA_UPLOADS,
        body,
        unmodified: None,
    };
    let lost = compare(request, &answer);
    if lost.is_empty() {
        return Ok(stored);
    }
    let what = format!(
        "the API server stored it without what was asked for: {lost}. Look for a mutating webhook or a definition that takes that away"
    );
    Err(kube::Error::Service(what.into()))
}

//! Writes to the API server that are only made while this replica leads, and while a gate allows
//! them.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use backup_client::retry;
use backup_runtime::{leader::Leadership, retry::WRITE_TIMEOUT};

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

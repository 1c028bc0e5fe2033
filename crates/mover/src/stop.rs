//! The flag that ends an operation early.

use std::sync::Arc;

use tokio::sync::watch;

use crate::MoverError;

/// Ends an operation: set by the user's cancellation, or by the first upload that fails. All loops
/// and waits of the operation look at it. The first reason is kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StopFlag {
    reason: Arc<watch::Sender<Option<MoverError>>>,
}

impl Default for StopFlag {
    fn default() -> Self {
        Self {
            reason: Arc::new(watch::Sender::new(None)),
        }
    }
}

impl StopFlag {
    /// Cancels the operation, for the user.
    pub fn cancel(&self) {
        self.fail(MoverError::Cancelled);
    }

    /// Ends the operation with an error, unless it ends already.
    pub(crate) fn fail(&self, error: MoverError) {
        self.reason.send_if_modified(|reason| {
            let is_first = reason.is_none();
            reason.get_or_insert(error);
            is_first
        });
    }

    /// Why the operation ends.
    pub fn reason(&self) -> Option<MoverError> {
        self.reason.borrow().clone()
    }

    pub(crate) fn is_set(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// Fails if the operation has to end.
    pub(crate) fn check(&self) -> Result<(), MoverError> {
        self.reason().map_or(Ok(()), Err)
    }

    /// Waits until the operation has to end.
    pub async fn stopped(&self) -> MoverError {
        let mut reasons = self.reason.subscribe();
        match reasons.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(MoverError::Cancelled),
            // Not reached: this flag holds the sender.
            Err(_) => MoverError::Cancelled,
        }
    }

    /// The result of `work`, unless the operation has to end before.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, MoverError> {
        tokio::select! {
            biased;
            error = self.stopped() => Err(error),
            done = work => Ok(done),
        }
    }
}

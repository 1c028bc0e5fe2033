//! The Leases of another operator. Their holders were admitted by this webhook and have claims,
//! unless the webhook was off when they were created: only for that rare case they are read, and
//! not for every request.

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_lock::{
    ProtectedProfile,
    observe::{ObserveError, ObservedObject},
};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which a Lease without a holder is assumed to stay so.
const FREE_TTL: Duration = Duration::from_secs(5);
const MAX_SCOPES: usize = 4096;

/// What is known about these Leases; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ExternalLeases {
    /// Scopes whose Lease had no holder, and when that was read.
    free: Arc<Mutex<HashMap<String, Instant>>>,
}

impl ExternalLeases {
    /// The running restore that holds the operator's own Lease of this scope.
    pub(crate) async fn holder(
        &self,
        protected: &ProtectedProfile,
        scope: &str,
    ) -> Result<Option<ObservedObject>, ObserveError> {
        if protected.profile.foreign_lease.is_none() || self.is_free(scope) {
            return Ok(None);
        }
        let read = Instant::now();
        let holder = protected.store.objects().external_holder(scope).await?;
        let mut free = self.free.lock();
        if holder.is_some() {
            free.remove(scope);
        } else {
            if free.len() >= MAX_SCOPES {
                free.clear();
            }
            free.insert(scope.to_owned(), read);
        }
        Ok(holder)
    }

    fn is_free(&self, scope: &str) -> bool {
        self.free
            .lock()
            .get(scope)
            .is_some_and(|read| read.elapsed() < FREE_TTL)
    }
}

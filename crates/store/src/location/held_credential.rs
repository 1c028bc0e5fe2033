//! Credentials that are cached until they are renewed.

use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::error::AnyError;

/// Timeout for requesting a credential.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The credential shared by all requests; `None` until the first one.
pub(super) struct HeldCredential<C>(Mutex<Option<Lasting<C>>>);

/// A credential with its lifetime.
pub(super) struct Lasting<C> {
    pub(super) credential: Arc<C>,
    /// Time from which a new one is requested.
    pub(super) renew: Instant,
    /// Expiry; `None`: usable until there is another one.
    pub(super) end: Option<Instant>,
}

impl<C> Default for HeldCredential<C> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<C> fmt::Debug for HeldCredential<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HeldCredential")
    }
}

impl<C> HeldCredential<C> {
    /// The credential, renewed with `renew` when due. If that fails, the current one is used until
    /// it expires; `of` names its owner in the log.
    pub(super) async fn get(
        &self,
        of: &str,
        renew: impl Future<Output = Result<Lasting<C>, AnyError>>,
    ) -> Result<Arc<C>, AnyError> {
        let mut held = self.0.lock().await;
        let now = Instant::now();
        let usable = held
            .as_ref()
            .filter(|held| held.end.is_none_or(|end| now < end));
        if let Some(usable) = usable.filter(|usable| now < usable.renew) {
            return Ok(Arc::clone(&usable.credential));
        }
        let renewed = timeout(REQUEST_TIMEOUT, renew)
            .await
            .unwrap_or_else(|elapsed| Err(elapsed.into()));
        match (renewed, usable) {
            (Ok(renewed), _) => Ok(Arc::clone(&held.insert(renewed).credential)),
            (Err(error), Some(usable)) => {
                tracing::warn!(of, %error, "the credentials cannot be renewed yet; those at hand are used");
                Ok(Arc::clone(&usable.credential))
            }
            (Err(error), None) => Err(error),
        }
    }
}

impl<C> Lasting<C> {
    /// A credential that expires after `lasts`, and is renewed `margin` before that.
    pub(super) fn until(credential: C, lasts: Duration, margin: Duration) -> Self {
        let now = Instant::now();
        let renew = now + lasts.saturating_sub(margin);
        Self {
            credential: Arc::new(credential),
            renew,
            end: Some(now + lasts),
        }
    }
}

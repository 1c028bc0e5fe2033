//! Who vouches for the certificates of replicas, as it is now: the registration and the other replicas follow it.

use std::sync::Arc;

/// Certificates of authorities, PEM; none if others put them into the registration, as cert-manager does.
pub(crate) type Authority = Option<Arc<[u8]>>;

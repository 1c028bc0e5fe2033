//! Leader election with client-go's semantics (`tools/leaderelection`): one Lease, every write a
//! PUT with resourceVersion, expiry judged by the observer's own clock since the record last
//! changed. The process exits when it loses the lease. Correctness does not depend on it alone:
//! every other write is conditional, too.
//!
//! Unlike in client-go, a missing Lease is not acquired at once: it may have been deleted, and its
//! holder works until it finds out. For the same reason the holder does not recreate it.

mod decide;
#[cfg(test)]
mod election;
mod leadership;
mod lease;

#[cfg(test)]
pub(crate) use leadership::LEASE_DURATION;
pub use leadership::{Leadership, NotLeader};
pub use lease::{Elector, LostLease};

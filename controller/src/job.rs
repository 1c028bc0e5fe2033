//! The life of a Backup or a Restore, implemented once; the differences are in [`kind`],
//! [`patches`] and [`lifecycle`].
//!
//! 1. `dispatcher` follows the watch. It gives each object that needs one a job: a turn of the
//!    queue, a worker, or the refusal of an object that cannot be decoded. Only objects that have
//!    not ended are kept; their phases decide which may start.
//! 2. The `worker` reads the object, asks `decide`, does one step, and reads again (`reconcile`). A
//!    crash between two steps loses nothing: the next worker reads the same object and store.
//! 3. The claim is taken in the ledger before the first write, with a finalizer on the object, so
//!    that a deletion cannot free the claim while the work continues.
//! 4. The work: items are collected or restored. Until its record is in the store, a crash makes it
//!    start again; side effects that must not be repeated (commands in pods, actions of plugins)
//!    are in the `action_journal`.
//! 5. Operations that actions have started are polled (`operations`); each state is stored before
//!    it is published.
//! 6. `pending_end`: one record holds every byte of the end. Any process that finds it publishes
//!    the same bytes.
//! 7. The terminal patch: phase, times and counts as stored; it removes the work finalizer.
//! 8. The claim is released. After a crash before that, the collector of claims releases it.
//!
//! The reason why an object is blocked is reported on the object (`worker/blocked`); the step is
//! retried without limit.

pub(crate) mod action_journal;
pub(crate) mod cancellation;
pub(crate) mod decide;
pub(crate) mod dispatcher;
pub(crate) mod fence;
pub(crate) mod finalizers;
pub(crate) mod journal;
pub(crate) mod kind;
pub(crate) mod lifecycle;
pub(crate) mod log_upload;
pub(crate) mod object;
pub(crate) mod operations;
pub(crate) mod patches;
pub(crate) mod pending_end;
pub(crate) mod reconcile;
pub(crate) mod report;
pub(crate) mod step_journal;
pub(crate) mod undecodable;
pub(crate) mod waits;
pub(crate) mod worker;

use std::{sync::Arc, time::Duration};

use backup_lock::lease::LedgerStore;
use backup_runtime::Cluster;
use tokio_util::sync::CancellationToken;

use crate::{location::Locations, metrics::Metrics};
use operations::poller::PollConfig;

/// Dependencies of jobs of every kind; cheap to clone.
#[derive(Clone)]
pub(crate) struct JobContext {
    pub cluster: Cluster,
    pub ledger: LedgerStore,
    pub locations: Locations,
    pub metrics: Arc<Metrics>,
    pub polling: PollConfig,
    /// Timeout for single resources, writes, and a store before the start: `--resource-timeout`.
    pub resource_timeout: Duration,
    /// Cancelled when the process is asked to end: work stops where it can be resumed.
    pub stop: CancellationToken,
}

#[cfg(test)]
impl JobContext {
    /// For a fake API server: always leader; a patch is given up after two seconds.
    pub(crate) fn fake(client: kube::Client) -> Self {
        let cluster = crate::testing::cluster(client.clone());
        let built_in = backup_actions::backup::built_in(&cluster, false, &Arc::default());
        let operating = backup_actions::restore::operating(&cluster);
        let registry =
            operations::call::Registry::new(built_in, operating, backup_plugins::Host::none());
        Self {
            ledger: LedgerStore::new(client, "velero"),
            locations: crate::testing::locations(&cluster),
            metrics: Arc::new(Metrics::default()),
            polling: PollConfig::new(registry, 16, Duration::from_secs(10)),
            resource_timeout: cluster.patch_budget,
            stop: CancellationToken::new(),
            cluster,
        }
    }
}

//! The types that the cluster serves: some are served only once their servers are restored.

use std::time::Duration;

use backup_core::text::listed;
use futures::{FutureExt as _, future::BoxFuture};
use kube::Client;
use tokio::time::Instant;

use super::{RestoreError, Restoring};
use crate::{
    discovery::{ReadError, ServedTypes},
    restore::{hooks::HookPlanner, namespaces::Namespaces, select::Batch},
};

/// Time for which an API group that was unavailable may be missing, because its server is being
/// replaced.
const MAX_SERVER_REPLACEMENT_TIME: Duration = Duration::from_secs(5);

/// Maximum number of awaited types in a message; others are counted.
const MAX_AWAITED: usize = 5;
/// Interval between two reads of the served types.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(200);

/// Reads the types that the cluster serves now.
pub(in crate::restore) type Discover<'a> =
    Box<dyn Fn() -> BoxFuture<'static, Result<ServedTypes, ReadError>> + Send + Sync + 'a>;

pub(in crate::restore) fn discover(client: &Client) -> Discover<'static> {
    let client = client.clone();
    Box::new(move || {
        let client = client.clone();
        async move { ServedTypes::load(&client).await }.boxed()
    })
}

impl Restoring<'_> {
    /// Restores types that were not served before: their servers may have been restored by now, or
    /// were unavailable for a moment.
    pub(super) async fn restore_served_later(
        &self,
        mut batches: Vec<Batch>,
        namespaces: &Namespaces,
        hooks: &HookPlanner<'_>,
    ) -> Result<(), RestoreError> {
        if batches.is_empty() {
            return Ok(());
        }
        let mut away = None;
        let served = self
            .await_served(|served| awaited_types(&batches, served, &mut away))
            .await?;
        let selection = self.selection(&served)?;
        let restorer = self.restorer(namespaces, hooks, &served, &selection);
        for batch in &mut batches {
            batch.resource = served.by_group_resource(&batch.group_resource).cloned();
            self.batch(batch, &restorer).await?;
        }
        Ok(())
    }

    /// The types that the cluster serves, once none is missing or after `patience`. `missing` names
    /// the awaited types.
    pub(super) async fn await_served(
        &self,
        mut missing: impl FnMut(&ServedTypes) -> Vec<String>,
    ) -> Result<ServedTypes, RestoreError> {
        let deadline = Instant::now() + self.patience;
        let subject = "the API server to serve all types of the backup";
        let wait = self.calls.cancellation().waits().begin(subject);
        loop {
            let served = (self.discover)().await.map_err(RestoreError::Discovery)?;
            let mut missing = missing(&served);
            if missing.is_empty() || Instant::now() >= deadline {
                return Ok(served);
            }
            let total = missing.len();
            missing.truncate(MAX_AWAITED);
            wait.because(format!("it does not serve {} yet", listed(&missing, total)));
            self.calls.cancellation().wait(DISCOVERY_INTERVAL).await?;
        }
    }
}

/// The names of the types that may still be served: all missing ones, while an API group was
/// unavailable a moment ago. `away` is the last time at which one was unavailable.
fn awaited_types(
    batches: &[Batch],
    served: &ServedTypes,
    away: &mut Option<Instant>,
) -> Vec<String> {
    if batches
        .iter()
        .any(|batch| batch.may_still_be_served(served))
    {
        *away = Some(Instant::now());
    }
    if away.is_none_or(|last| last.elapsed() > MAX_SERVER_REPLACEMENT_TIME) {
        return Vec::new();
    }
    let names = batches.iter().map(|batch| batch.group_resource.clone());
    names
        .filter(|name| served.by_group_resource(name).is_none())
        .collect()
}

//! What an action asks for is restored before its item, and waited for where it says so.

use std::time::Duration;

use backup_actions::{
    ActionError, ItemId,
    restore::{RestoreItemAction, RestoreWait},
};
use backup_core::resources::NAMESPACES;
use backup_store::{ItemRef, Scope};
use tokio::time::Instant;

use super::{
    Discover, Work, WorkError,
    pass::{Kind, Pass, Way},
};
use crate::job::cancellation::StopReason;
use crate::restore::{report::About, select::Served as _};

/// Items that bring one another, in one chain.
const DEEPEST: u8 = 20;
/// Between two questions whether what came along is ready.
const ASK: Duration = Duration::from_secs(1);

impl<D: Discover> Pass<'_, D> {
    /// Restores what an action asks for before an item. Whether it is in the cluster. It is subject to the filters of types and
    /// namespaces, but not to those of labels; what the backup does not hold is a warning.
    pub(super) async fn bring(
        &self,
        along: &ItemId,
        about: About<'_>,
        action: &str,
        item: ItemRef,
        depth: u8,
    ) -> Result<bool, WorkError> {
        let Work { contents, report, rules, .. } = self.work;
        let group_resource = &along.group_resource;
        let group_resource = self.served.complete(group_resource).unwrap_or_else(|| group_resource.clone());
        let (source, name) = (along.namespace.as_deref(), along.name.as_str());
        let namespace = source.map(|source| rules.target(source));
        let scope = namespace.map_or(Scope::Cluster, Scope::Namespace);
        let wanted = format!("{}, which {action} asks for before {} {:?},", along, about.kind, about.name);
        let Some(found) = contents.find(&group_resource, source, name) else {
            report.warn(scope, format!("{wanted} is not in the backup"));
            return Ok(false);
        };
        if !self.selection.allows_related(&group_resource, source) {
            report.info(&format!("{wanted} is left out by the filters of the restore"));
            return Ok(false);
        }
        if group_resource == NAMESPACES {
            let target = rules.target(name);
            self.work.ensure(self.namespaces, target).await?;
            return Ok(!self.namespaces.has_failed(target));
        }
        let Some(resource) = self.served.find(&group_resource) else {
            report.warn(scope, format!("{wanted} is of a type that the cluster does not serve"));
            return Ok(false);
        };
        if depth >= DEEPEST {
            let message =
                format!("{wanted} was not restored: {DEEPEST} objects have asked for one another in a row");
            report.error(scope, message);
            return Ok(false);
        }
        if let Some(namespace) = namespace {
            self.work.ensure(self.namespaces, namespace).await?;
        }
        let kind = Kind { group_resource: &group_resource, resource: &resource };
        self.item(kind, found, Way::Along(item, depth + 1)).await
    }

    /// Waits until an action says that what came along is ready. The inner error says why it is not.
    pub(super) async fn wait(
        &self,
        action: &dyn RestoreItemAction,
        wait: RestoreWait,
        there: &[ItemId],
    ) -> Result<Result<(), String>, StopReason> {
        let cancellation = self.work.calls.cancellation();
        let limit = wait.limit.unwrap_or(self.work.patience);
        let deadline = Instant::now() + limit;
        loop {
            let answer = tokio::select! {
                answer = cancellation.unless_cancelled(action.are_ready(there, self.work.restore)) => answer?,
                reason = cancellation.stopped() => return Err(reason),
            };
            let last = match answer {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => format!("{} says that it is not ready", action.name()),
                Err(error @ ActionError::Final { .. }) => return Ok(Err(error.to_string())),
                Err(error) => error.to_string(),
            };
            if Instant::now() + ASK > deadline {
                return Ok(Err(format!("it was waited for {limit:?}; {last}")));
            }
            cancellation.wait(ASK).await?;
        }
    }
}

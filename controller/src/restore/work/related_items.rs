//! Items that an action asks for: restored before its item, and awaited where the action says so.

use std::time::Duration;

use backup_actions::{
    ActionError, ItemId,
    restore::{RestoreItemAction, RestoreWait},
};
use backup_core::{
    resources::{NAMESPACES, NON_RESTORABLE},
    text::listed,
};
use backup_store::Scope;
use tokio::time::Instant;

use super::{
    RestoreError, Restoring,
    item::{CurrentItem, InclusionReason, ItemRestorer, ResourceKind},
};
use crate::job::cancellation::StopReason;

/// Maximum length of a chain of items that ask for one another.
const MAX_DEPTH: u8 = 20;
/// Interval between two checks whether related items are ready.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl ItemRestorer<'_> {
    /// Restores an item that an action asks for before its own; true if it is in the cluster. The
    /// filters of types and namespaces apply, label selectors do not. With `must_include` the
    /// filters of types do not apply either; a namespace outside the claim is an error. An item
    /// that the backup does not hold is a warning.
    pub(super) async fn include_related(
        &self,
        related: &ItemId,
        action: &str,
        current: &CurrentItem<'_>,
        must_include: bool,
    ) -> Result<bool, RestoreError> {
        let Restoring {
            contents,
            report,
            rules,
            ..
        } = self.restoring;
        let CurrentItem {
            about, item, depth, ..
        } = current;
        let group_resource = &related.group_resource;
        let group_resource = self
            .served
            .resolve(group_resource)
            .unwrap_or_else(|| group_resource.clone());
        let source = related.namespace.as_deref();
        let name = related.name.as_str();
        let namespace = source.map(|source| rules.target(source));
        let scope = namespace.map_or(Scope::Cluster, Scope::Namespace);
        let wanted = format!(
            "{related}, which {action} asks for before {} {:?},",
            about.kind, about.name
        );
        let Some(found) = contents.find(&group_resource, source, name) else {
            report.warn(scope, format!("{wanted} is not in the backup"));
            return Ok(false);
        };
        let is_never_restored = self.selection.keeps_type(&group_resource)
            || NON_RESTORABLE.contains(&group_resource.as_str());
        let within = if group_resource == NAMESPACES {
            Some(name)
        } else {
            source
        };
        if must_include
            && !is_never_restored
            && !within.is_none_or(|namespace| self.selection.takes_namespace(namespace))
        {
            report.error(
                scope,
                format!(
                    "{wanted} and says that it must come along, was not restored: its namespace is not one of those that this restore \
                     keeps others away from; restore it together with that namespace"
                ),
            );
            return Ok(false);
        }
        let is_allowed = if must_include {
            !is_never_restored
        } else {
            self.selection.allows_related(&group_resource, source)
        };
        if !is_allowed {
            report.info(&format!(
                "{wanted} is left out by the filters of the restore"
            ));
            return Ok(false);
        }
        if group_resource == NAMESPACES {
            let target = rules.target(name);
            self.restoring.ensure(self.namespaces, target).await?;
            return Ok(!self.namespaces.has_failed(target));
        }
        let Some(resource) = self.served.by_group_resource(&group_resource) else {
            report.error(
                scope,
                format!("{wanted} is not restored: the cluster does not serve its type"),
            );
            return Ok(false);
        };
        if *depth >= MAX_DEPTH {
            let message = format!(
                "{wanted} was not restored: {MAX_DEPTH} objects have asked for one another in a row"
            );
            report.error(scope, message);
            return Ok(false);
        }
        if let Some(namespace) = namespace {
            self.restoring.ensure(self.namespaces, namespace).await?;
        }
        let kind = ResourceKind {
            group_resource: &group_resource,
            resource,
        };
        self.item(
            kind,
            found,
            InclusionReason::Related {
                by: *item,
                depth: depth + 1,
            },
            None,
        )
        .await
    }

    /// Waits until an action says that related items are ready. The inner error says why they are
    /// not.
    pub(super) async fn wait(
        &self,
        action: &dyn RestoreItemAction,
        wait: RestoreWait,
        related: &[ItemId],
    ) -> Result<Result<(), String>, StopReason> {
        if self.restoring.calls.is_dry_run() && !related.is_empty() {
            // The items would exist, and become ready later.
            return Ok(Ok(()));
        }
        let cancellation = self.restoring.calls.cancellation();
        let limit = wait.limit.unwrap_or(self.restoring.patience);
        let deadline = Instant::now() + limit;
        let needed: Vec<String> = related.iter().map(ItemId::to_string).collect();
        let subject = format!(
            "{} to be ready, as action {} asks for",
            listed(needed.get(..3).unwrap_or(&needed), needed.len()),
            action.name()
        );
        let _wait = cancellation.waits().begin(subject);
        loop {
            let answer = tokio::select! {
                answer = cancellation.unless_cancelled(action.are_ready(related, self.restoring.restore)) => answer?,
                reason = cancellation.stopped() => return Err(reason),
            };
            let last = match answer {
                Ok(true) => return Ok(Ok(())),
                Ok(false) => format!("{} says that it is not ready", action.name()),
                Err(error @ ActionError::Final { .. }) => return Ok(Err(error.to_string())),
                Err(error) => error.to_string(),
            };
            if Instant::now() + POLL_INTERVAL > deadline {
                return Ok(Err(format!("it was waited for {limit:?}; {last}")));
            }
            cancellation.wait(POLL_INTERVAL).await?;
        }
    }
}

//! The work of one restore: definitions, namespaces, then every type in its order.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use backup_core::{
    api::RestoreSpec,
    resources::{NAMESPACES, ResourceType},
};
use backup_lock::Footprint;
use backup_store::{Contents, ItemRef, Scope, StoreError};
use futures::{StreamExt as _, TryStreamExt as _, stream};

use super::{
    apply::{self, Applied, Outcome, Policy, Target},
    calls::Calls,
    guard,
    halt::Halt,
    json,
    namespaces::{How, Namespaces},
    report::{About, Report},
    select::{self, Batch, Selection, Served},
    transform::{self, Rules},
};
use crate::runtime::path;

/// Items of a type that are on their way at a time.
const IN_FLIGHT: usize = 16;

/// Why the work did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// It has to stop; it is resumed later.
    #[error(transparent)]
    Halt(#[from] Halt),
    /// What the cluster serves could not be read.
    #[error("what the cluster serves could not be read: {0}")]
    Discovery(String),
    /// The local copy of the backup could not be read.
    #[error(transparent)]
    Contents(#[from] StoreError),
}

/// Finds out what the cluster serves.
pub trait Discover: Sync {
    /// What is served.
    type Found: Served + Send + Sync;
    /// Asks the cluster anew.
    fn load(&self) -> impl Future<Output = Result<Self::Found, String>> + Send;
}

/// One restore.
pub struct Work<'a, D> {
    /// The backup.
    pub contents: &'a Contents,
    /// What to restore.
    pub spec: &'a RestoreSpec,
    /// Requests to the API server.
    pub calls: &'a Calls,
    /// Where outcomes go.
    pub report: &'a Report,
    /// What the cluster serves.
    pub discover: D,
    /// Namespace of the installation.
    pub own: &'a str,
    /// What the right to work is for: nothing is written into another namespace.
    pub claimed: &'a Footprint,
    /// How long a definition, or a namespace that goes away, is waited for.
    pub patience: Duration,
    /// `metadata.creationTimestamp` of the Restore.
    pub created: Option<&'a str>,
    /// Whether an earlier run may have created items.
    pub resumed: bool,
    /// How items are rewritten; the kept volumes are added here.
    pub rules: Rules,
}

impl<D: Discover> Work<'_, D> {
    /// Restores everything that is selected. Running it again is idempotent.
    pub async fn run(mut self) -> Result<(), WorkError> {
        let served = self.discover.load().await.map_err(WorkError::Discovery)?;
        let selection = Selection::new(self.spec, &served);
        let claimed = self.learn_volumes(&selection)?;
        let definitions = selection.definitions(self.contents, &served)?;
        self.report.expect(definitions.len());
        let served = if definitions.is_empty() { served } else { self.definitions(definitions).await? };
        // Names are completed anew: some types are served only now.
        let selection = Selection::new(self.spec, &served);
        let mut batches = selection.batches(self.contents, &served)?;
        self.volumes_of_claims(&selection, &claimed, &mut batches, &served)?;
        self.report.expect(batches.iter().map(|batch| batch.items.len()).sum());
        let mut namespaces = self.namespaces(&selection).await?;
        for batch in &batches {
            self.batch(batch, &mut namespaces).await?;
        }
        Ok(())
    }

    fn policy(&self) -> Policy<'_> {
        Policy {
            rules: &self.rules,
            update: self.spec.existing_resource_policy.as_deref() == Some("update"),
            restore_created: self.created,
            resumed: self.resumed,
        }
    }

    /// Restores the Namespace objects that are selected themselves; others follow when something goes into them.
    async fn namespaces(&self, selection: &Selection) -> Result<Namespaces, WorkError> {
        let mut bodies = Vec::new();
        let mut selected = Vec::new();
        for item in self.contents.items(NAMESPACES) {
            let body = match select::read(self.contents, item) {
                Ok(body) => body,
                Err(error) => {
                    self.report.error(Scope::Cluster, error);
                    continue;
                }
            };
            let Some(name) = json::text(&body, &["metadata"], "name") else { continue };
            if !selection.takes_namespace(name) {
                continue;
            }
            let labels: BTreeMap<String, String> = json::object(&body, &["metadata", "labels"])
                .into_iter()
                .flatten()
                .filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())))
                .collect();
            if selection.takes_empty_namespace(name, &labels) {
                selected.push(self.rules.target(name).to_owned());
            }
            bodies.push(body);
        }
        let mut namespaces = Namespaces::new(bodies, &self.rules);
        for name in selected {
            self.ensure(&mut namespaces, &name).await?;
        }
        Ok(namespaces)
    }

    async fn ensure(&self, namespaces: &mut Namespaces, name: &str) -> Result<(), Halt> {
        let how = How {
            rules: &self.rules,
            patience: self.patience,
            restore_created: self.created,
            resumed: self.resumed,
        };
        let applied = if self.claimed.includes(name) {
            namespaces.ensure(self.calls, name, &how).await?
        } else {
            let why = format!(
                "it is not in what the restore has claimed ({}): its spec, or that of its backup, was changed since; \
                 create a new restore",
                self.claimed
            );
            namespaces.refuse(name, &why)
        };
        if let Some(applied) = applied {
            self.report.expect(1);
            self.report.item(About { api_version: "v1", kind: "Namespace", namespace: None, name }, applied);
        }
        Ok(())
    }

    async fn batch(&self, batch: &Batch, namespaces: &mut Namespaces) -> Result<(), WorkError> {
        let Some(resource) = &batch.resource else {
            self.report.warn(
                Scope::Velero,
                format!(
                    "the cluster does not serve {}: {} items were not restored; install what serves it and restore again",
                    batch.group_resource,
                    batch.items.len()
                ),
            );
            return Ok(());
        };
        if resource.namespaced {
            let sources: BTreeSet<&str> =
                batch.items.iter().filter_map(|item| self.contents.namespace_of(item)).collect();
            for source in sources {
                self.ensure(namespaces, self.rules.target(source)).await?;
            }
        }
        self.report.info(&format!("restoring {} items of {}", batch.items.len(), batch.group_resource));
        self.items(&batch.group_resource, resource, &batch.items, namespaces).await?;
        Ok(())
    }

    /// Restores items of one type, several at a time.
    async fn items(
        &self,
        group_resource: &str,
        resource: &ResourceType,
        items: &[ItemRef],
        namespaces: &Namespaces,
    ) -> Result<(), Halt> {
        stream::iter(items)
            .map(Ok)
            .try_for_each_concurrent(IN_FLIGHT, |item| self.item(group_resource, resource, item, namespaces))
            .await
    }

    async fn item(
        &self,
        group_resource: &str,
        resource: &ResourceType,
        item: &ItemRef,
        namespaces: &Namespaces,
    ) -> Result<(), Halt> {
        self.calls.gate().check()?;
        let namespace = self.contents.namespace_of(item).map(|source| self.rules.target(source));
        let mut object = match select::read(self.contents, item) {
            Ok(object) => object,
            Err(error) => {
                let about = About {
                    api_version: &resource.api_version(),
                    kind: &resource.kind,
                    namespace,
                    name: "?",
                };
                self.report.item(about, Applied::failed(error));
                return Ok(());
            }
        };
        let name = json::text(&object, &["metadata"], "name").unwrap_or_default().to_owned();
        let api_version = json::text(&object, &[], "apiVersion").unwrap_or_default().to_owned();
        let about = About { api_version: &api_version, kind: &resource.kind, namespace, name: &name };
        if let Some(why) = misplaced::why(&object, resource, namespace, &api_version, &name) {
            self.report
                .item(about, Applied::failed(format!("{} {name:?} was not restored: {why}", resource.kind)));
            return Ok(());
        }
        if let Some(why) = guard::keeps(group_resource, namespace, &name, self.own)
            .or_else(|| transform::skip_reason(&object, group_resource, &self.rules))
        {
            self.report.left_out(about, why);
            return Ok(());
        }
        if namespace.is_some_and(|namespace| namespaces.failure(namespace).is_some()) {
            // The namespace itself is the error; its items are only listed.
            self.report.item(about, Applied::quiet(Outcome::Failed));
            return Ok(());
        }
        transform::rewrite(&mut object, group_resource, namespace, &self.rules);
        let collection = path::collection(&api_version, &resource.plural, namespace);
        let target =
            Target { group_resource, kind: &resource.kind, collection: &collection, namespace, name: &name };
        let applied = apply::item(self.calls, target, &object, self.policy()).await?;
        self.report.item(about, applied);
        Ok(())
    }
}

mod definitions;
mod misplaced;
mod volumes;

#[cfg(test)]
mod tests;

//! The work of one restore: definitions, namespaces, then every type in its order.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use backup_core::{
    api::RestoreSpec,
    resources::{NAMESPACES, ResourceType},
};
use backup_store::{Contents, ItemRef, Scope, StoreError};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;

use super::{
    apply::{self, Applied, Outcome, Policy, Target},
    calls::Calls,
    crds::{self, DEFINITIONS},
    guard,
    halt::Halt,
    json::{self, Object},
    namespaces::{How, Namespaces},
    path,
    report::{About, Report},
    select::{self, Batch, Selection, Served},
    transform::{self, Rules},
};

/// Items of a type that are on their way at a time.
const IN_FLIGHT: usize = 16;
/// Between two looks at what is served, while new definitions are waited for.
const LOOK: Duration = Duration::from_millis(200);

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

    /// Restores definitions and waits until they are served. What is served then.
    async fn definitions(&self, items: Vec<ItemRef>) -> Result<D::Found, WorkError> {
        let mut names = Vec::new();
        for item in &items {
            if let Some(name) = select::read(self.contents, item)
                .ok()
                .and_then(|d| Some(json::text(&d, &["metadata"], "name")?.to_owned()))
            {
                names.push(name);
            }
        }
        let resource = ResourceType {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            ..ResourceType::default()
        };
        self.items(DEFINITIONS, &resource, &items, &Namespaces::default()).await?;
        let deadline = Instant::now() + self.patience;
        names.retain(|name| guard::keeps(DEFINITIONS, None, name, self.own).is_none());
        let waits = stream::iter(names).map(|name| async move {
            let result = crds::wait(self.calls, &name, deadline).await?;
            Ok::<_, Halt>((name, result))
        });
        let waited: Vec<_> = waits.buffer_unordered(IN_FLIGHT).try_collect().await?;
        let mut pending = Vec::new();
        for (name, result) in waited {
            match result {
                Ok(()) => pending.push(name),
                Err(error) => self.report.error(Scope::Cluster, error),
            }
        }
        // Established resources appear in discovery a moment later.
        loop {
            let served = self.discover.load().await.map_err(WorkError::Discovery)?;
            if pending.iter().all(|name| served.find(name).is_some()) || Instant::now() >= deadline {
                return Ok(served);
            }
            self.calls.gate().sleep(LOOK).await?;
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
        if let Some(applied) = namespaces.ensure(self.calls, name, &how).await? {
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
        if let Some(why) = misplaced(&object, resource, namespace, &api_version, &name) {
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

/// Why an item can not be what its place in the backup says it is.
fn misplaced(
    object: &Object,
    resource: &ResourceType,
    namespace: Option<&str>,
    api_version: &str,
    name: &str,
) -> Option<String> {
    if !path::is_segment(name) {
        return Some("its name is not one that the API server takes".to_owned());
    }
    if namespace.is_some_and(|namespace| !backup_core::names::is_object_name(namespace)) {
        return Some("its namespace is not one that the API server takes".to_owned());
    }
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let kind = json::text(object, &[], "kind").unwrap_or_default();
    if group != resource.group || kind != resource.kind || !backup_core::names::is_object_name(version) {
        return Some(format!(
            "the backup holds a {api_version} {kind} where a {} {} belongs",
            resource.api_version(),
            resource.kind
        ));
    }
    match (resource.namespaced, namespace) {
        (true, None) => Some("it has no namespace, but its type needs one".to_owned()),
        (false, Some(_)) => Some("it has a namespace, but its type has none".to_owned()),
        _ => None,
    }
}

mod volumes;

#[cfg(test)]
mod tests;

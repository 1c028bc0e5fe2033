//! Definitions of custom resources come first, and are waited for: nothing of their kinds can be created before.

use std::time::Duration;

use backup_core::resources::ResourceType;
use backup_store::{ItemRef, Scope};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;

use super::{Discover, IN_FLIGHT, Work, WorkError};
use crate::restore::{
    crds::{self, DEFINITIONS},
    guard,
    halt::Halt,
    json,
    namespaces::Namespaces,
    select::{self, Served as _},
};

/// Between two looks at what is served, while new definitions are waited for.
const LOOK: Duration = Duration::from_millis(200);

impl<D: Discover> Work<'_, D> {
    /// Restores definitions and waits until they are served. What is served then.
    pub(super) async fn definitions(&self, items: Vec<ItemRef>) -> Result<D::Found, WorkError> {
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
}

//! Definitions of custom resources come first, and are waited for: nothing of their kinds can be created before.

use std::time::Duration;

use backup_actions::restore::json;
use backup_core::resources::ResourceType;
use backup_store::{ItemRef, Scope};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::Instant;

use super::{
    Discover, IN_FLIGHT, Work, WorkError,
    pass::{Kind, Pass, Way},
};
use crate::job::cancellation::StopReason;
use crate::restore::{
    crds::{self, DEFINITIONS},
    select::{self, Served as _},
};

/// Between two looks at what is served, while new definitions are waited for.
const LOOK: Duration = Duration::from_millis(200);

impl<D: Discover> Pass<'_, D> {
    /// Restores definitions and waits until they are served. What is served then.
    pub(super) async fn definitions(&self, items: Vec<ItemRef>) -> Result<D::Found, WorkError> {
        let Work { contents, calls, report, .. } = self.work;
        let resource = ResourceType {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            plural: "customresourcedefinitions".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            ..ResourceType::default()
        };
        let of = Kind { group_resource: DEFINITIONS, resource: &resource };
        let created = stream::iter(items).map(|item| async move {
            calls.cancellation().check_new_work()?;
            let there = self.item(of, item, Way::Selected).await?;
            let name =
                || Some(json::text(&select::read(contents, &item).ok()?, &["metadata"], "name")?.to_owned());
            Ok::<_, WorkError>(if there { name() } else { None })
        });
        // Those that are on their way come to their own end before work stops.
        let names: Vec<Result<Option<String>, WorkError>> =
            created.buffer_unordered(IN_FLIGHT).collect().await;
        let names: Vec<Option<String>> = names.into_iter().collect::<Result<_, _>>()?;
        let names: Vec<String> = names.into_iter().flatten().collect();
        let deadline = Instant::now() + self.work.patience;
        let waits = stream::iter(names).map(|name| async move {
            let result = crds::wait(calls, &name, deadline).await?;
            Ok::<_, StopReason>((name, result))
        });
        let waited: Vec<_> = waits.buffer_unordered(IN_FLIGHT).try_collect().await?;
        let mut pending = Vec::new();
        for (name, result) in waited {
            match result {
                Ok(()) => pending.push(name),
                Err(error) => report.error(Scope::Cluster, error),
            }
        }
        // Established resources appear in discovery a moment later.
        loop {
            let served = self.work.discover.load().await.map_err(WorkError::Discovery)?;
            if pending.iter().all(|name| served.find(name).is_some()) || Instant::now() >= deadline {
                return Ok(served);
            }
            calls.cancellation().wait(LOOK).await?;
        }
    }
}

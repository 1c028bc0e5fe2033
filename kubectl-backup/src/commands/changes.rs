//! What an object became, each time that it changes.

use std::fmt::Debug;

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Error, Resource,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

/// How long one watch lasts (seconds). API servers end those that say more, as those that say nothing.
const LONGEST: u32 = 290;

/// A watch of one object, where one is granted and comes through.
pub(super) struct Changes<K> {
    api: Api<K>,
    params: WatchParams,
    /// What was seen last.
    version: String,
    events: Option<BoxStream<'static, Result<WatchEvent<K>, Error>>>,
    is_refused: bool,
}

impl<K> Changes<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// All that come after this object. Those of another one with its name, too.
    pub(super) fn after(api: Api<K>, object: &K) -> Self {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(LONGEST);
        let version = object.meta().resource_version.clone().unwrap_or_default();
        Self { api, params, version, events: None, is_refused: false }
    }

    /// Waits for the next one; without end if it cannot be seen. A watch that ended is begun again by the next call.
    pub(super) async fn next(&mut self) -> K {
        match self.change().await {
            Some(object) => object,
            None => std::future::pending().await,
        }
    }

    async fn change(&mut self) -> Option<K> {
        if self.is_refused {
            return None;
        }
        let events = match &mut self.events {
            Some(events) => events,
            none => match self.api.watch(&self.params, &self.version).await {
                Ok(events) => none.insert(events.boxed()),
                Err(error) => {
                    self.is_refused = matches!(&error, Error::Api(status) if status.code == 403);
                    return None;
                }
            },
        };
        while let Some(Ok(event)) = events.next().await {
            match event {
                WatchEvent::Bookmark(mark) => self.version = mark.metadata.resource_version,
                // The history since then is gone.
                WatchEvent::Error(_) => "0".clone_into(&mut self.version),
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    self.version = object.meta().resource_version.clone().unwrap_or_default();
                    return Some(object);
                }
            }
        }
        self.events = None;
        None
    }
}

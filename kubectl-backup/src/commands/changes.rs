//! Watches one object and returns it after each change.

use std::fmt::Debug;

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Error, Resource,
    api::{WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;

/// Timeout of one watch request (seconds). API servers may end longer watches.
const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// A watch of one object, if the cluster grants watches and the request succeeds.
pub(super) struct Changes<K> {
    api: Api<K>,
    params: WatchParams,
    /// Resource version of the last event.
    version: String,
    events: Option<BoxStream<'static, Result<WatchEvent<K>, Error>>>,
    is_refused: bool,
}

impl<K> Changes<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Watches all changes after this version of the object, and all changes of a new object with
    /// the same name.
    pub(super) fn after(api: Api<K>, object: &K) -> Self {
        let name = object.meta().name.as_deref().unwrap_or_default();
        let params = WatchParams::default()
            .fields(&format!("metadata.name={name}"))
            .timeout(WATCH_TIMEOUT_SECONDS);
        let version = object.meta().resource_version.clone().unwrap_or_default();
        Self {
            api,
            params,
            version,
            events: None,
            is_refused: false,
        }
    }

    /// Waits for the next change; forever if the object cannot be watched. If a watch has ended,
    /// the next call starts another.
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
                // The history is gone: watch from any version.
                WatchEvent::Error(_) => "0".clone_into(&mut self.version),
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) => {
                    self.version = object.meta().resource_version.clone().unwrap_or_default();
                    return Some(object);
                }
            }
        }
        self.events = None;
        None
    }
}

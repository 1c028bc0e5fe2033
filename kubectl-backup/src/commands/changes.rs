//! Changes of one object, as soon as they are there.

use std::{fmt::Debug, time::Duration};

use futures::{StreamExt as _, stream::BoxStream};
use kube::{
    Api, Error, Resource,
    api::{PartialObjectMeta, WatchEvent, WatchParams},
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

/// What changes again meanwhile is one change, so that a busy object does not mean a request for each of its versions.
const SETTLING: Duration = Duration::from_millis(100);

/// How long one watch lasts (seconds). API servers end those that say more, as those that say nothing.
const LONGEST: u32 = 290;

type Events<K> = BoxStream<'static, Result<WatchEvent<PartialObjectMeta<K>>, Error>>;

/// A watch of one object, where one is granted and comes through.
pub(super) struct Changes<K> {
    api: Api<K>,
    params: WatchParams,
    events: Option<Events<K>>,
    is_refused: bool,
}

impl<K> Changes<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    pub(super) fn of(api: Api<K>, name: &str) -> Self {
        let params = WatchParams::default().fields(&format!("metadata.name={name}")).timeout(LONGEST);
        Self { api, params, events: None, is_refused: false }
    }

    /// Waits for a change; without end if that cannot be seen. A watch that ended is begun again by the next call.
    pub(super) async fn next(&mut self) {
        if self.change().await.is_none() {
            std::future::pending::<()>().await;
        }
        sleep(SETTLING).await;
    }

    async fn change(&mut self) -> Option<()> {
        if self.is_refused {
            return None;
        }
        let events = match &mut self.events {
            Some(events) => events,
            none => match self.api.watch_metadata(&self.params, "0").await {
                Ok(events) => none.insert(events.boxed()),
                Err(error) => {
                    self.is_refused = matches!(&error, Error::Api(status) if status.code == 403);
                    return None;
                }
            },
        };
        while let Some(Ok(event)) = events.next().await {
            if !matches!(event, WatchEvent::Bookmark(_) | WatchEvent::Error(_)) {
                return Some(());
            }
        }
        self.events = None;
        None
    }
}

//! Watches: the changes since a version, and all later ones.

use axum::{
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures::stream;
use serde_json::{Value, json};

use super::FakeApi;
use crate::target::{Selection, Target};

#[derive(Clone)]
pub(crate) struct Event {
    pub(crate) version: u64,
    /// `ADDED`, `MODIFIED` or `DELETED`.
    pub(crate) change: &'static str,
    pub(crate) path: String,
    pub(crate) object: Value,
}

/// The events of a list after a version, for as long as the client reads.
pub(crate) fn watch(api: FakeApi, target: Target, selection: Selection, since: u64) -> Response {
    let events = stream::unfold(since, move |seen| {
        let (api, target, selection) = (api.clone(), target.clone(), selection.clone());
        async move {
            loop {
                // Registered before checking, so that no change is missed between the two.
                let changed = api.inner.changed.notified();
                let mut changed = std::pin::pin!(changed);
                changed.as_mut().enable();
                let next = api
                    .state()
                    .events
                    .iter()
                    .find(|event| event.version > seen)
                    .cloned();
                match next {
                    None => changed.await,
                    Some(event) => {
                        let wanted = target.lists(&event.path) && selection.selects(&event.object);
                        let Event {
                            version,
                            change,
                            object,
                            ..
                        } = event;
                        let line = format!("{}\n", json!({"type": change, "object": object}));
                        let line = if wanted { line } else { String::new() };
                        return Some((Ok::<_, std::io::Error>(line), version));
                    }
                }
            }
        }
    });
    (
        [("content-type", "application/json")],
        Body::from_stream(events),
    )
        .into_response()
}

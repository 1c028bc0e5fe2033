//! Events about the objects of the installation.

use k8s_openapi::api::{
    core::v1::{Event as CoreEvent, ObjectReference},
    events::v1::Event,
};
use kube::{Api, api::ListParams};

use super::World;
use crate::{
    api::ApiExt as _,
    wait::{Probe, TIMEOUT, eventually},
};

impl World {
    /// Waits for an Event with this reason whose object and note fulfil a condition, and returns
    /// the note.
    pub async fn wait_for_event(
        &self,
        reason: &str,
        is_it: impl Fn(&ObjectReference, &str) -> bool,
    ) -> anyhow::Result<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        eventually(&format!("an Event {reason}"), TIMEOUT, async || {
            let mut all = events.list_all().await?;
            all.retain(|event| event.reason.as_deref() == Some(reason));
            let notes = all
                .iter()
                .map(|event| (event.regarding.clone(), event.note.clone()));
            let mut notes =
                notes.map(|(object, note)| (object.unwrap_or_default(), note.unwrap_or_default()));
            let found = notes.find(|(object, note)| is_it(object, note));
            let seen = || {
                Probe::NotYet(format!(
                    "{:?}",
                    all.iter().map(|event| &event.note).collect::<Vec<_>>()
                ))
            };
            Ok::<_, kube::Error>(found.map_or_else(seen, |(_, note)| Probe::Ready(note)))
        })
        .await
    }

    /// Number of times that an Event with this reason was emitted about an object of this name.
    pub async fn count_events(&self, name: &str, reason: &str) -> kube::Result<i32> {
        let of =
            ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        let events = self.api::<CoreEvent>().list(&of).await?;
        Ok(events.iter().map(|event| event.count.unwrap_or(1)).sum())
    }
}

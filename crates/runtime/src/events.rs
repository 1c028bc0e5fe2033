//! Events on objects, for users. Best effort: an Event that cannot be written never fails or delays
//! any work.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_client::{errors::plain, retry::timed};
use backup_core::{
    digest::short_sha256, event_reason::EventReason, labels::BREAK_GLASS_ANNOTATION,
};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use tokio::sync::Semaphore;

/// Maximum number of Events being sent; more are dropped.
const MAX_IN_FLIGHT: usize = 32;
/// Maximum length of a note; the API server refuses longer ones.
const MAX_NOTE_BYTES: usize = 1024;
/// Length of the digest by which notes are told apart (bytes; two hex digits each).
const NOTE_DIGEST_BYTES: usize = 4;

/// Records Events. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    permits: Arc<Semaphore>,
}

impl Events {
    /// Reports as `backup-controller`; `instance` names this process.
    pub fn new(client: Client, instance: &str) -> Self {
        let reporter = Reporter {
            controller: "backup-controller".to_owned(),
            instance: Some(instance.to_owned()),
        };
        Self {
            recorder: Recorder::new(client, reporter),
            permits: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        }
    }

    /// Reports an expected outcome; `note` is a sentence.
    pub fn normal<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: EventReason,
        note: &str,
    ) {
        self.publish(EventType::Normal, object.object_ref(&()), reason, note);
    }

    pub fn warning<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: EventReason,
        note: &str,
    ) {
        self.publish(EventType::Warning, object.object_ref(&()), reason, note);
    }

    /// Like [`Events::warning`], for a reason whose notes differ. Otherwise events with the same
    /// reason count as one, which shows the first note.
    pub fn warning_for_note<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        reason: EventReason,
        note: &str,
    ) {
        let digest = short_sha256(note.as_bytes(), NOTE_DIGEST_BYTES);
        let action = format!("{}-{digest}", reason.as_str());
        let object = object.object_ref(&());
        self.publish_action(EventType::Warning, object, reason, action, note);
    }

    /// Like [`Events::warning`], for an object that is known by reference only (it could not be
    /// decoded).
    pub fn warning_on(&self, object: ObjectReference, reason: EventReason, note: &str) {
        self.publish(EventType::Warning, object, reason, note);
    }

    /// Reports that another program ended the object: this controller removes its finalizer in the
    /// write that ends an object, but `object` has both, an end and the finalizer.
    pub fn forced_end<K: Resource<DynamicType = ()>>(&self, object: &K, phase: &str) {
        self.warning(
            object,
            EventReason::ForcedEnd,
            &forced(object.meta().annotations.as_ref(), phase),
        );
    }

    fn publish(&self, type_: EventType, object: ObjectReference, reason: EventReason, note: &str) {
        let action = reason.as_str().to_owned();
        self.publish_action(type_, object, reason, action, note);
    }

    /// Events with the same reason and action count as one.
    fn publish_action(
        &self,
        type_: EventType,
        object: ObjectReference,
        reason: EventReason,
        action: String,
        note: &str,
    ) {
        let reason = reason.as_str();
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            tracing::debug!(reason, note, "event dropped: too many on their way");
            return;
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(shortened(note)),
            action,
            secondary: None,
        };
        let recorder = self.recorder.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) =
                timed(Duration::from_secs(5), recorder.publish(&event, &object)).await
            {
                tracing::debug!(
                    error = plain(&error),
                    reason = event.reason,
                    "event not recorded"
                );
            }
        });
    }
}

fn forced(annotations: Option<&BTreeMap<String, String>>, phase: &str) -> String {
    let reason = annotations
        .and_then(|all| all.get(BREAK_GLASS_ANNOTATION))
        .map(|reason| reason.trim());
    let why = reason.filter(|reason| !reason.is_empty()).map_or_else(
        || format!("no reason is in {BREAK_GLASS_ANNOTATION}"),
        |reason| format!("the reason given is {reason:?}"),
    );
    format!(
        "another client than backup-controller set it to {phase} while it was at work: {why}; what it has done so far stays"
    )
}

/// At most [`MAX_NOTE_BYTES`], cut between characters.
fn shortened(note: &str) -> String {
    if note.len() <= MAX_NOTE_BYTES {
        return note.to_owned();
    }
    let end = note.floor_char_boundary(MAX_NOTE_BYTES - '…'.len_utf8());
    format!("{}…", &note[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_end_is_told_with_its_reason_or_without_one() {
        let annotations =
            |reason: &str| [(BREAK_GLASS_ANNOTATION.to_owned(), reason.to_owned())].into();
        let told = forced(Some(&annotations(" the disk dies ")), "Failed");
        assert_says!(told, "set it to Failed", "\"the disk dies\"");
        for none in [None, Some(annotations(" "))] {
            assert!(
                forced(none.as_ref(), "Completed").contains("no reason"),
                "{none:?}"
            );
        }
    }

    #[tokio::test]
    async fn another_note_of_the_same_reason_is_another_event() {
        let fake = backup_testkit::FakeApi::new();
        let events = Events::new(fake.client(), "test");
        let object = k8s_openapi::api::core::v1::ConfigMap {
            metadata: kube::api::ObjectMeta {
                name: Some("shop".to_owned()),
                namespace: Some("velero".to_owned()),
                ..kube::api::ObjectMeta::default()
            },
            ..k8s_openapi::api::core::v1::ConfigMap::default()
        };
        for note in ["the password is wrong", "the Secret is missing"] {
            events.warning_for_note(&object, EventReason::Unavailable, note);
            // All are sent once no permit is held.
            let all = u32::try_from(MAX_IN_FLIGHT).unwrap();
            drop(events.permits.acquire_many(all).await.unwrap());
        }
        let log = fake.log();
        let created = log.iter().filter(|line| line.starts_with("POST"));
        assert_eq!(created.count(), 2, "{log:?}");
    }

    #[test]
    fn a_long_note_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let cut = shortened(&"é".repeat(2000));
        assert!(
            cut.len() <= MAX_NOTE_BYTES && cut.ends_with('…'),
            "{}",
            cut.len()
        );
    }
}

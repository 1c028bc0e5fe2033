//! Decides which notifications about a Backup or Restore are due. Pure.

use backup_core::{
    api::{Backup, NamespacedKind, Restore},
    drill::DrillResult,
    labels::{
        DRILLED_ANNOTATION, IMPORTED_ANNOTATION, NOTIFIED_ANNOTATION, VERIFIED_ANNOTATION,
        annotation,
    },
    phase::{Phase as _, Stage},
    text::{counted, plain, shortened},
    verification::Verification,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

/// Maximum age of an event that is reported. Older ones, such as those from before notifications
/// were turned on, are not.
pub(super) const MAX_AGE: SignedDuration = SignedDuration::from_hours(24);
/// Maximum length of a message (characters).
const MAX_MESSAGE_CHARS: usize = 1000;

/// The kinds of events that are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A backup or restore has ended, and is not Completed.
    Ended,
    /// A verification has found faults in the files of a backup.
    VerificationFailed,
    /// A drill of a backup has failed.
    DrillFailed,
}

impl EventKind {
    /// The last part of the event's type and id.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::VerificationFailed => "verification-failed",
            Self::DrillFailed => "drill-failed",
        }
    }
}

/// The body of a notification: the documented form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventData {
    /// `Backup` or `Restore`.
    pub(super) kind: &'static str,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) phase: String,
    /// Name of the schedule; null without one.
    schedule: Option<String>,
    /// Name of the location of a backup; null if it names none.
    location: Option<String>,
    /// Name of the backup that is restored; null for a backup.
    backup: Option<String>,
    errors: i64,
    warnings: i64,
    /// What has happened, in a sentence or a few words.
    message: String,
    /// A command that shows more.
    command: String,
}

/// An event to be reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notification {
    pub(super) event: EventKind,
    pub(super) at: Timestamp,
    pub(super) data: EventData,
}

impl Notification {
    /// Identifies the event: equal in each attempt and each process.
    pub(super) fn id(&self) -> String {
        format!("{}/{}/{}", self.data.uid, self.event.as_str(), self.at)
    }

    /// For example `backup-controller.backup.ended`.
    pub(super) fn event_type(&self) -> String {
        let kind = self.data.kind.to_lowercase();
        format!("backup-controller.{kind}.{}", self.event.as_str())
    }

    /// For example `backups/nightly-20261103030000`.
    pub(super) fn subject(&self) -> String {
        format!("{}s/{}", self.data.kind.to_lowercase(), self.data.name)
    }
}

/// The last event of each kind that was delivered, as in the annotation of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deliveries {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verification_failed: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drill_failed: Option<Timestamp>,
}

impl Deliveries {
    /// Reads the annotation; one that is missing or unreadable has none.
    pub(super) fn of(object: &impl kube::ResourceExt) -> Self {
        let text = annotation(object, NOTIFIED_ANNOTATION);
        text.and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default()
    }

    pub(super) fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    fn last(&self, event: EventKind) -> Option<Timestamp> {
        match event {
            EventKind::Ended => self.ended,
            EventKind::VerificationFailed => self.verification_failed,
            EventKind::DrillFailed => self.drill_failed,
        }
    }

    /// These deliveries and one more; `None` if it is recorded already.
    pub(super) fn with(&self, delivered: &Notification) -> Option<Self> {
        let at = Some(delivered.at);
        if self.last(delivered.event) >= at {
            return None;
        }
        let mut with = self.clone();
        match delivered.event {
            EventKind::Ended => with.ended = at,
            EventKind::VerificationFailed => with.verification_failed = at,
            EventKind::DrillFailed => with.drill_failed = at,
        }
        Some(with)
    }
}

/// A kind of objects that notifications are about.
pub(super) trait Reported: NamespacedKind {
    /// The events of an object, whether they were reported or not.
    fn events(&self) -> Vec<Notification>;
}

/// The events of an object that are to be reported now.
pub(super) fn due<K: Reported>(object: &K, now: Timestamp) -> Vec<Notification> {
    let delivered = Deliveries::of(object);
    let mut events = object.events();
    events
        .retain(|event| now.duration_since(event.at) <= MAX_AGE && delivered.with(event).is_some());
    events
}

impl Reported for Backup {
    fn events(&self) -> Vec<Notification> {
        let status = &self.status;
        let data = |message: String| EventData {
            kind: "Backup",
            namespace: self.namespace().unwrap_or_default(),
            name: self.name_any(),
            uid: self.uid().unwrap_or_default(),
            phase: self.phase().to_string(),
            schedule: self.schedule().map(str::to_owned),
            location: self.spec.storage_location.clone(),
            backup: None,
            errors: status.errors,
            warnings: status.warnings,
            message: message_of(&message),
            command: format!("kubectl backup describe {}", self.name_any()),
        };
        let mut events = Vec::new();
        let times = [
            status.completion_timestamp.as_ref(),
            status.start_timestamp.as_ref(),
        ];
        let ended = first_time(times, self).filter(|_| ended_badly(self.phase().stage()));
        // One that was found in a bucket ended elsewhere.
        let is_imported = annotation(self, IMPORTED_ANNOTATION).is_some();
        if let Some(at) = ended.filter(|_| !is_imported) {
            let reason = status.failure_reason.as_deref();
            let message = reasons(
                &status.validation_errors,
                reason,
                status.errors,
                status.warnings,
            );
            events.push(Notification {
                event: EventKind::Ended,
                at,
                data: data(message),
            });
        }
        let verified = Verification::read(annotation(self, VERIFIED_ANNOTATION));
        if let Some(verified) = verified.filter(|verified| verified.findings > 0) {
            let faults = counted(verified.findings, "fault");
            events.push(Notification {
                event: EventKind::VerificationFailed,
                at: verified.at,
                data: data(format!("{faults} in its stored files: {}", verified.first)),
            });
        }
        let drilled = DrillResult::read(annotation(self, DRILLED_ANNOTATION));
        if let Some(drilled) = drilled.filter(DrillResult::has_failed) {
            events.push(Notification {
                event: EventKind::DrillFailed,
                at: drilled.at,
                data: data(format!("a drill of it has failed: {}", drilled.failure)),
            });
        }
        events
    }
}

impl Reported for Restore {
    /// A drill has none: its failure is an event of the backup.
    fn events(&self) -> Vec<Notification> {
        if self.spec.drill.is_some() {
            return Vec::new();
        }
        let status = &self.status;
        let times = [
            status.completion_timestamp.as_ref(),
            status.start_timestamp.as_ref(),
        ];
        let ended = first_time(times, self).filter(|_| ended_badly(self.phase().stage()));
        let Some(at) = ended else {
            return Vec::new();
        };
        let reason = status.failure_reason.as_deref();
        let message = reasons(
            &status.validation_errors,
            reason,
            status.errors,
            status.warnings,
        );
        let spec = &self.spec;
        vec![Notification {
            event: EventKind::Ended,
            at,
            data: EventData {
                kind: "Restore",
                namespace: self.namespace().unwrap_or_default(),
                name: self.name_any(),
                uid: self.uid().unwrap_or_default(),
                phase: self.phase().to_string(),
                schedule: spec.schedule_name.clone().filter(|name| !name.is_empty()),
                location: None,
                backup: spec.backup_name.clone().filter(|name| !name.is_empty()),
                errors: status.errors,
                warnings: status.warnings,
                message: message_of(&message),
                command: format!("kubectl backup restore describe {}", self.name_any()),
            },
        }]
    }
}

fn ended_badly(stage: Stage) -> bool {
    matches!(
        stage,
        Stage::PartiallyFailed | Stage::Failed | Stage::FailedValidation
    )
}

/// The first of these times that is set, else the creation: an object that was refused has neither
/// start nor end.
fn first_time(times: [Option<&Time>; 2], object: &impl kube::ResourceExt) -> Option<Timestamp> {
    let created = object.meta().creation_timestamp.as_ref();
    let known = times.into_iter().flatten().chain(created).next();
    known.map(|time| time.0)
}

/// Why an object has not ended well.
fn reasons(refusals: &[String], failure: Option<&str>, errors: i64, warnings: i64) -> String {
    if !refusals.is_empty() {
        return refusals.join("; ");
    }
    match failure.filter(|reason| !reason.is_empty()) {
        Some(reason) => reason.to_owned(),
        None => format!(
            "{}, {}",
            counted(errors, "error"),
            counted(warnings, "warning")
        ),
    }
}

fn message_of(text: &str) -> String {
    shortened(&plain(text), MAX_MESSAGE_CHARS)
}

#[cfg(test)]
mod tests {
    use backup_core::api::DrillSpec;
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    const ENDED: &str = "2026-11-03T03:14:12Z";

    fn now() -> Timestamp {
        "2026-11-03T05:00:00Z".parse().unwrap()
    }

    fn backup(patch: &Value) -> Backup {
        let mut object = json!({ "metadata": { "name": "b", "namespace": "velero", "uid": "u",
                "creationTimestamp": "2026-11-03T03:00:00Z" },
            "spec": { "storageLocation": "default" },
            "status": { "phase": "PartiallyFailed", "startTimestamp": "2026-11-03T03:00:05Z",
                "completionTimestamp": ENDED, "errors": 2, "warnings": 1 } });
        json_patch::merge(&mut object, patch);
        serde_json::from_value(object).unwrap()
    }

    fn annotated(key: &str, value: &str) -> Value {
        json!({ "metadata": { "annotations": { key: value } } })
    }

    /// The annotation about a drill with this failure.
    fn drilled(failure: &str) -> String {
        let at = "2026-11-03T04:30:00Z".parse().unwrap();
        DrillResult::of_nothing("r", failure.to_owned(), at).annotation()
    }

    /// Kind and time of each event that is due.
    fn due_events(backup: &Backup) -> Vec<(&'static str, String)> {
        let events = due(backup, now());
        let events = events.iter();
        events
            .map(|one| (one.event.as_str(), one.at.to_string()))
            .collect()
    }

    #[rstest]
    #[case::partial(json!({}), &[("ended", ENDED)])]
    #[case::failed(json!({ "status": { "phase": "Failed" } }), &[("ended", ENDED)])]
    #[case::refused(
        json!({ "status": { "phase": "FailedValidation", "startTimestamp": null, "completionTimestamp": null } }),
        &[("ended", "2026-11-03T03:00:00Z")]
    )]
    #[case::without_an_end(
        json!({ "status": { "phase": "Failed", "completionTimestamp": null } }),
        &[("ended", "2026-11-03T03:00:05Z")]
    )]
    #[case::completed(json!({ "status": { "phase": "Completed" } }), &[])]
    #[case::runs(json!({ "status": { "phase": "FinalizingPartiallyFailed" } }), &[])]
    #[case::deleting(json!({ "status": { "phase": "Deleting" } }), &[])]
    #[case::of_a_newer_version(json!({ "status": { "phase": "Tomorrow" } }), &[])]
    #[case::a_day_ago(json!({ "status": { "completionTimestamp": "2026-11-02T05:00:00Z" } }), &[("ended", "2026-11-02T05:00:00Z")])]
    #[case::earlier(json!({ "status": { "completionTimestamp": "2026-11-02T04:59:59Z" } }), &[])]
    #[case::imported(annotated(IMPORTED_ANNOTATION, ""), &[])]
    #[case::delivered(annotated(NOTIFIED_ANNOTATION, r#"{"ended":"2026-11-03T03:14:12Z"}"#), &[])]
    #[case::an_earlier_one_was_delivered(
        annotated(NOTIFIED_ANNOTATION, r#"{"ended":"2026-11-01T03:14:12Z"}"#),
        &[("ended", ENDED)]
    )]
    #[case::an_unreadable_record(annotated(NOTIFIED_ANNOTATION, "yes"), &[("ended", ENDED)])]
    #[case::damaged(
        json!({ "status": { "phase": "Completed" }, "metadata": { "annotations":
            { VERIFIED_ANNOTATION: r#"{"at":"2026-11-03T04:00:00Z","findings":1,"first":"b-logs.gz: it is missing"}"# } } }),
        &[("verification-failed", "2026-11-03T04:00:00Z")]
    )]
    #[case::damaged_and_delivered(
        json!({ "status": { "phase": "Completed" }, "metadata": { "annotations":
            { VERIFIED_ANNOTATION: r#"{"at":"2026-11-03T04:00:00Z","findings":1}"#,
              NOTIFIED_ANNOTATION: r#"{"verificationFailed":"2026-11-03T04:00:00Z"}"# } } }),
        &[]
    )]
    #[case::drill_failed(
        json!({ "status": { "phase": "Completed" }, "metadata": { "annotations": { DRILLED_ANNOTATION: drilled("no bucket") } } }),
        &[("drill-failed", "2026-11-03T04:30:00Z")]
    )]
    #[case::drill_failed_and_delivered(
        json!({ "status": { "phase": "Completed" }, "metadata": { "annotations": { DRILLED_ANNOTATION: drilled("no bucket"),
            NOTIFIED_ANNOTATION: r#"{"drillFailed":"2026-11-03T04:30:00Z"}"# } } }),
        &[]
    )]
    #[case::drill_succeeded(
        json!({ "status": { "phase": "Completed" }, "metadata": { "annotations": { DRILLED_ANNOTATION: drilled("") } } }),
        &[]
    )]
    #[case::whole(
        json!({ "status": { "phase": "Completed" }, "metadata": { "annotations":
            { VERIFIED_ANNOTATION: r#"{"at":"2026-11-03T04:00:00Z","findings":0}"# } } }),
        &[]
    )]
    fn what_has_ended_badly_or_is_damaged_is_reported_once(
        #[case] patch: Value,
        #[case] expected: &[(&'static str, &'static str)],
    ) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(event, at)| (*event, (*at).to_owned()))
            .collect();
        let mut backup = backup(&patch);
        assert_eq!(due_events(&backup), expected);
        for event in due(&backup, now()) {
            let delivered = Deliveries::of(&backup).with(&event).unwrap();
            assert_eq!(delivered.with(&event), None);
            let annotations = backup.metadata.annotations.get_or_insert_default();
            annotations.insert(NOTIFIED_ANNOTATION.to_owned(), delivered.annotation());
        }
        assert!(due_events(&backup).is_empty());
    }

    #[test]
    fn the_body_says_what_has_happened_to_which_object() {
        let labels = json!({ "metadata": { "labels": { "velero.io/schedule-name": "nightly" } } });
        let event = due(&backup(&labels), now()).remove(0);
        assert_eq!(event.id(), "u/ended/2026-11-03T03:14:12Z");
        assert_eq!(event.event_type(), "backup-controller.backup.ended");
        assert_eq!(event.subject(), "backups/b");
        assert_eq!(
            serde_json::to_value(&event.data).unwrap(),
            json!({ "kind": "Backup", "namespace": "velero", "name": "b", "uid": "u", "phase": "PartiallyFailed",
                "schedule": "nightly", "location": "default", "backup": null, "errors": 2, "warnings": 1,
                "message": "2 errors, 1 warning", "command": "kubectl backup describe b" })
        );
        let refused = json!({ "status": { "phase": "FailedValidation",
            "validationErrors": ["spec.ttl: it is\nnegative", "no location"] } });
        let event = due(&backup(&refused), now()).remove(0);
        assert_eq!(event.data.message, "spec.ttl: it is negative; no location");
    }

    #[test]
    fn a_restore_is_reported_with_its_backup_unless_it_is_a_drill() {
        let restore = |phase: &str| -> Restore {
            let object = json!({ "metadata": { "name": "r", "namespace": "velero", "uid": "u" },
                "spec": { "backupName": "b" },
                "status": { "phase": phase, "completionTimestamp": ENDED, "failureReason": "the backup cannot be read" } });
            serde_json::from_value(object).unwrap()
        };
        let event = due(&restore("Failed"), now()).remove(0);
        assert_eq!(event.event_type(), "backup-controller.restore.ended");
        assert_eq!(event.subject(), "restores/r");
        assert_eq!(event.data.backup.as_deref(), Some("b"));
        assert_eq!(event.data.message, "the backup cannot be read");
        for phase in ["Completed", "InProgress", "New"] {
            assert!(due(&restore(phase), now()).is_empty());
        }
        let mut drill = restore("Failed");
        drill.spec.drill = Some(DrillSpec::default());
        assert!(due(&drill, now()).is_empty());
    }
}

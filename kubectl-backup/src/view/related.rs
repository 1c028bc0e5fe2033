//! Objects and facts related to a workload: its location, events, lock and deletion requests.

use backup_core::api::{Backup, BackupStorageLocation, DeleteBackupRequest};
use backup_lock::{Ledger, ObjectKey, State};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::print::plain;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocationSummary {
    pub(crate) name: String,
    pub(crate) url: String,
    /// Available or Unavailable; null before the first validation.
    pub(crate) phase: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) checked: Option<Timestamp>,
    pub(crate) synced: Option<Timestamp>,
}

impl LocationSummary {
    /// A location, and a backup's folder in it.
    pub(crate) fn of(location: &BackupStorageLocation, backup: &str) -> Self {
        let spec = &location.spec;
        let bucket = spec.object_storage.bucket.trim_end_matches('/');
        let root = match spec.provider.trim_start_matches("velero.io/") {
            "aws" => format!("s3://{bucket}"),
            "gcp" => format!("gs://{bucket}"),
            "azure" => format!("azure://{bucket}"),
            "local" => format!("file://{bucket}"),
            other => format!("{bucket} ({})", plain(other)),
        };
        let prefix = spec
            .object_storage
            .prefix
            .as_deref()
            .unwrap_or_default()
            .trim_matches('/');
        let prefix = if prefix.is_empty() {
            String::new()
        } else {
            format!("/{prefix}")
        };
        let status = &location.status;
        Self {
            name: location.metadata.name.clone().unwrap_or_default(),
            url: plain(&format!("{root}{prefix}/backups/{backup}")),
            phase: status.phase.as_ref().map(|phase| plain(phase.as_str())),
            message: status
                .message
                .as_deref()
                .map(plain)
                .filter(|message| !message.is_empty()),
            checked: status.last_validation_time.as_ref().map(|time| time.0),
            synced: status.last_synced_time.as_ref().map(|time| time.0),
        }
    }

    /// Whether the location was unavailable at its last validation.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.phase.as_deref() == Some("Unavailable")
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunView {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) started: Option<Timestamp>,
    pub(crate) completed: Option<Timestamp>,
}

/// The start of the work, or the creation of the object if there is none.
pub(crate) fn began(backup: &Backup) -> Option<Timestamp> {
    let time = backup
        .status
        .start_timestamp
        .as_ref()
        .or(backup.metadata.creation_timestamp.as_ref());
    time.map(|time| time.0)
}

/// One event, or several with the same text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventView {
    pub(crate) level: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) count: i64,
    pub(crate) last: Option<Timestamp>,
}

/// Events, oldest first; events with the same text are combined.
pub(crate) fn events(events: &[Event]) -> Vec<EventView> {
    let mut all: Vec<EventView> = Vec::new();
    for event in events {
        let level = plain(event.type_.as_deref().unwrap_or("Normal"));
        let reason = plain(event.reason.as_deref().unwrap_or_default());
        let message = plain(event.message.as_deref().unwrap_or_default());
        let series = event.series.as_ref();
        let count = i64::from(
            series
                .and_then(|series| series.count)
                .or(event.count)
                .unwrap_or(1)
                .max(1),
        );
        let last = series.and_then(|series| series.last_observed_time.as_ref().map(|time| time.0));
        let last = last.or(event.last_timestamp.as_ref().map(|time| time.0));
        let last = last.or(event.event_time.as_ref().map(|time| time.0));
        let last = last.or(event
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0));
        let same = all.iter_mut().find(|other| {
            (&other.level, &other.reason, &other.message) == (&level, &reason, &message)
        });
        if let Some(other) = same {
            other.count += count;
            other.last = other.last.max(last);
        } else {
            all.push(EventView {
                level,
                reason,
                message,
                count,
                last,
            });
        }
    }
    all.sort_by_key(|event| event.last);
    all
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeletionView {
    pub(crate) name: String,
    pub(crate) phase: String,
    pub(crate) errors: Vec<String>,
    pub(crate) created: Option<Timestamp>,
}

/// The requests to delete this backup, oldest first.
pub(crate) fn deletions(requests: &[DeleteBackupRequest], backup: &str) -> Vec<DeletionView> {
    let mut all: Vec<DeletionView> = requests
        .iter()
        .filter(|request| request.spec.backup_name == backup)
        .map(|request| DeletionView {
            name: request.metadata.name.clone().unwrap_or_default(),
            phase: plain(
                request
                    .status
                    .phase
                    .as_ref()
                    .map_or("New", |phase| phase.as_str()),
            ),
            errors: request
                .status
                .errors
                .iter()
                .map(|error| plain(error))
                .collect(),
            created: request
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
        })
        .collect();
    all.sort_by_key(|request| request.created);
    all
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LockView {
    /// State of its own claim: Waiting, Reserved or Active, for example.
    pub(crate) claim: Option<String>,
    /// Since when the claim has this state, RFC 3339.
    pub(crate) since: Option<String>,
    /// Claims that conflict with it; if it waits, the claims that come before it.
    pub(crate) in_the_way: Vec<HolderView>,
    /// Holder of the scope, in words, as in `kubectl get lease`.
    pub(crate) holder: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HolderView {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) since: String,
}

/// The state of an object with this name, uid and footprint in a ledger; `None`: the scope has no
/// ledger yet.
pub(crate) fn lock(
    ledger: Option<&Ledger>,
    key: &ObjectKey,
    uid: &str,
    footprint: &backup_lock::Footprint,
) -> LockView {
    let Some(ledger) = ledger else {
        return LockView::default();
    };
    let entry = ledger.entry(key, uid);
    let others = if entry.is_some_and(|entry| entry.state == State::Waiting) {
        ledger.behind(key, uid).holders
    } else {
        ledger.conflicts(key, footprint)
    };
    let in_the_way = others.into_iter().map(|claim| HolderView {
        kind: claim.key.kind.to_string(),
        namespace: plain(&claim.key.namespace),
        name: plain(&claim.key.name),
        state: claim.state().to_string(),
        since: plain(claim.since()),
    });
    LockView {
        claim: entry.map(|entry| entry.state.to_string()),
        since: entry.map(|entry| plain(&entry.since)),
        in_the_way: in_the_way.collect(),
        holder: plain(&ledger.holder()),
    }
}

impl LockView {
    pub(crate) fn is_waiting(&self) -> bool {
        self.claim.as_deref() == Some(State::Waiting.as_str())
    }

    pub(crate) fn is_active(&self) -> bool {
        self.claim.as_deref() == Some(State::Active.as_str())
    }
}

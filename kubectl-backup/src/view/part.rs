//! What is gathered beside the object itself: its location, events, lock and deletion requests.

use backup_core::api::{Backup, BackupStorageLocation, DeleteBackupRequest};
use backup_lock::{Ledger, ObjectKey, State};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::print::table::plain;

/// Something that was fetched, or why it could not be. Never an error of the whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Part<T> {
    /// What was fetched.
    Known(T),
    /// Why it is not there.
    Missing {
        /// The reason, one sentence.
        unavailable: String,
    },
}

impl<T> Part<T> {
    /// A part that could not be fetched.
    pub fn missing(why: impl Into<String>) -> Self {
        Self::Missing { unavailable: why.into() }
    }

    /// The value, if it was fetched.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// The same part of something made from the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Part<U> {
        match self {
            Self::Known(value) => Part::Known(make(value)),
            Self::Missing { unavailable } => Part::Missing { unavailable },
        }
    }
}

/// Where a backup is stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocationView {
    /// Name of the BackupStorageLocation.
    pub name: String,
    /// URL of the backup's folder.
    pub url: String,
    /// Available, Unavailable, or nothing yet.
    pub phase: Option<String>,
    /// Why it can't be used.
    pub message: Option<String>,
    /// When that was last seen.
    pub checked: Option<Timestamp>,
    /// When it was last compared with the cluster.
    pub synced: Option<Timestamp>,
}

impl LocationView {
    /// The folder of a backup in a location.
    pub fn of(location: &BackupStorageLocation, backup: &str) -> Self {
        let spec = &location.spec;
        let bucket = spec.object_storage.bucket.trim_end_matches('/');
        let scheme = match spec.provider.trim_start_matches("velero.io/") {
            "aws" => "s3://",
            "gcp" => "gs://",
            "azure" => "azure://",
            "local" => "file://",
            other => return Self::at(location, &format!("{bucket} ({})", plain(other)), backup),
        };
        Self::at(location, &format!("{scheme}{bucket}"), backup)
    }

    fn at(location: &BackupStorageLocation, root: &str, backup: &str) -> Self {
        let prefix = location.spec.object_storage.prefix.as_deref().unwrap_or_default().trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let status = &location.status;
        Self {
            name: location.metadata.name.clone().unwrap_or_default(),
            url: plain(&format!("{root}{prefix}/backups/{backup}")),
            phase: status.phase.as_ref().map(|phase| plain(phase.as_str())),
            message: status.message.as_deref().map(plain).filter(|message| !message.is_empty()),
            checked: status.last_validation_time.as_ref().map(|time| time.0),
            synced: status.last_synced_time.as_ref().map(|time| time.0),
        }
    }

    /// Whether the location was unusable when it was last looked at.
    pub fn is_unavailable(&self) -> bool {
        self.phase.as_deref() == Some("Unavailable")
    }
}

/// Another run of the same schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// Name of the backup.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub completed: Option<Timestamp>,
}

/// The last of these that began before this one.
pub fn previous(backups: &[Backup], this: &Backup) -> Option<RunView> {
    let began = |backup: &Backup| {
        backup
            .status
            .start_timestamp
            .as_ref()
            .or(backup.metadata.creation_timestamp.as_ref())
            .map(|time| time.0)
    };
    let before =
        backups.iter().filter(|one| one.metadata.uid != this.metadata.uid && began(one) < began(this));
    before.max_by_key(|one| began(one)).map(|one| RunView {
        name: one.metadata.name.clone().unwrap_or_default(),
        phase: plain(one.phase().as_str()),
        started: one.status.start_timestamp.as_ref().map(|time| time.0),
        completed: one.status.completion_timestamp.as_ref().map(|time| time.0),
    })
}

/// One event, or several of the same text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Normal or Warning.
    pub level: String,
    /// The reason, one word.
    pub reason: String,
    /// The text.
    pub message: String,
    /// How often.
    pub count: i64,
    /// When last.
    pub last: Option<Timestamp>,
}

/// Events, those of the same text as one, oldest first.
pub fn events(events: &[Event]) -> Vec<EventView> {
    let mut all: Vec<EventView> = Vec::new();
    for event in events {
        let level = plain(event.type_.as_deref().unwrap_or("Normal"));
        let reason = plain(event.reason.as_deref().unwrap_or_default());
        let message = plain(event.message.as_deref().unwrap_or_default());
        let series = event.series.as_ref();
        let count = i64::from(series.and_then(|series| series.count).or(event.count).unwrap_or(1).max(1));
        let last = [
            series.and_then(|series| series.last_observed_time.as_ref()).map(|time| time.0),
            event.last_timestamp.as_ref().map(|time| time.0),
            event.event_time.as_ref().map(|time| time.0),
            event.metadata.creation_timestamp.as_ref().map(|time| time.0),
        ]
        .into_iter()
        .flatten()
        .next();
        let same = |other: &&mut EventView| {
            (&other.level, &other.reason, &other.message) == (&level, &reason, &message)
        };
        if let Some(other) = all.iter_mut().find(same) {
            other.count += count;
            other.last = other.last.max(last);
        } else {
            all.push(EventView { level, reason, message, count, last });
        }
    }
    all.sort_by_key(|event| event.last);
    all
}

/// A request to delete the backup.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionView {
    /// Name of the DeleteBackupRequest.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// What went wrong.
    pub errors: Vec<String>,
    /// When it was asked for.
    pub created: Option<Timestamp>,
}

/// The requests to delete this backup, oldest first.
pub fn deletions(requests: &[DeleteBackupRequest], backup: &str) -> Vec<DeletionView> {
    let mut all: Vec<DeletionView> = requests
        .iter()
        .filter(|request| request.spec.backup_name == backup)
        .map(|request| DeletionView {
            name: request.metadata.name.clone().unwrap_or_default(),
            phase: plain(request.status.phase.as_ref().map_or("New", |phase| phase.as_str())),
            errors: request.status.errors.iter().map(|error| plain(error)).collect(),
            created: request.metadata.creation_timestamp.as_ref().map(|time| time.0),
        })
        .collect();
    all.sort_by_key(|request| request.created);
    all
}

/// How the object stands to the lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockView {
    /// Its own claim: Waiting, Reserved or Active, for example.
    pub claim: Option<String>,
    /// Since when it has that, RFC 3339.
    pub since: Option<String>,
    /// Others whose claims it could not stand beside; if it waits, those that come before it.
    pub in_the_way: Vec<HolderView>,
    /// Who holds the scope, for people: as in `kubectl get lease`.
    pub holder: String,
}

/// Another claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HolderView {
    /// Backup or Restore.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Reserved or Active.
    pub state: String,
    /// Since when, RFC 3339.
    pub since: String,
}

/// How an object of this name, uid and footprint stands in a ledger; `None` is a scope that nobody has claimed yet.
pub fn lock(
    ledger: Option<&Ledger>,
    key: &ObjectKey,
    uid: &str,
    footprint: &backup_lock::Footprint,
) -> LockView {
    let Some(ledger) = ledger else { return LockView::default() };
    let entry = ledger.entry(key, uid);
    let others = match entry {
        Some(entry) if entry.state == State::Waiting => ledger.behind(key, uid).holders,
        _ => ledger.conflicts(key, footprint),
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
    /// Whether it waits for its turn.
    pub fn is_waiting(&self) -> bool {
        self.claim.as_deref() == Some(State::Waiting.as_str())
    }

    /// Whether it has the right to work.
    pub fn is_active(&self) -> bool {
        self.claim.as_deref() == Some(State::Active.as_str())
    }
}

//! Locations: rows of `locations get` and `locations snapshots`, and the document behind `locations
//! describe`. Pure.

use backup_core::{
    api::{BackupStorageLocation, VolumeSnapshotLocation, backup_storage_location::LocationPhase},
    bucket::Facts,
    labels::{BUCKET_ANNOTATION, annotation},
};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

use super::{
    Columns, TableKind, retention, sync,
    table_kind::{age, dash},
};
use crate::print::{Screen, Style, Tone, ago_or_never, plain};

impl TableKind for BackupStorageLocation {
    const KIND: &'static str = "backupstoragelocation";
    const COLUMNS: Columns = Columns {
        headers: &[
            "NAME",
            "PHASE",
            "PROVIDER",
            "BUCKET/PREFIX",
            "CHECKED",
            "ACCESS",
            "DEFAULT",
            "SYNCED",
            "OBJECT LOCK",
            "MESSAGE",
        ],
        narrow: 7,
        status: 1,
    };

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        let view = describe(self);
        vec![
            view.name,
            style.tone(view.tone, &view.phase),
            view.provider,
            view.place,
            age(view.checked, now),
            view.access,
            if view.is_default {
                "yes".to_owned()
            } else {
                String::new()
            },
            age(view.synced, now),
            view.bucket
                .as_ref()
                .and_then(|facts| facts.lock.as_ref())
                .map_or_else(dash, ToString::to_string),
            view.message.unwrap_or_default(),
        ]
    }
}

impl TableKind for VolumeSnapshotLocation {
    const KIND: &'static str = "volumesnapshotlocation";
    // These locations have no status: no program checks before a backup whether they can be used.
    const COLUMNS: Columns = Columns {
        headers: &["NAME", "PROVIDER", "AGE", "CREDENTIAL", "CONFIG"],
        narrow: 3,
        status: 1,
    };

    /// Shows only the reference to the credential.
    fn row(&self, now: Timestamp, _: Style) -> Vec<String> {
        let spec = &self.spec;
        let credential = spec
            .credential
            .as_ref()
            .map(|secret| format!("{}/{}", secret.name, secret.key));
        let config: Vec<String> = spec
            .config
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        vec![
            self.name_any(),
            plain(&spec.provider),
            age(
                self.metadata.creation_timestamp.as_ref().map(|at| at.0),
                now,
            ),
            credential.map_or_else(dash, |place| plain(&place)),
            plain(&config.join(",")),
        ]
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LocationDescription {
    pub(crate) name: String,
    /// Phase; `New` before the first validation.
    pub(crate) phase: String,
    pub(crate) tone: Tone,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    pub(crate) provider: String,
    pub(crate) place: String,
    pub(crate) access: String,
    /// Whether it is the location for backups that name none.
    pub(crate) is_default: bool,
    pub(crate) checked: Option<Timestamp>,
    pub(crate) synced: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bucket: Option<Facts>,
    /// The problem of the last synchronisation, in short; null if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sync_problem: Option<String>,
    /// That retention has stopped; null if it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retention_problem: Option<String>,
}

pub(crate) fn describe(location: &BackupStorageLocation) -> LocationDescription {
    let spec = &location.spec;
    let status = &location.status;
    let prefix = spec
        .object_storage
        .prefix
        .as_deref()
        .filter(|prefix| !prefix.is_empty());
    let place = [Some(spec.object_storage.bucket.as_str()), prefix]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    let phase = status.phase.as_ref().map(LocationPhase::as_str);
    let pass = sync::location(location).last_pass;
    LocationDescription {
        name: location.name_any(),
        phase: phase.map_or_else(|| "New".to_owned(), plain),
        tone: sync::tone(phase),
        message: status
            .message
            .as_deref()
            .map(plain)
            .filter(|message| !message.is_empty()),
        provider: plain(&spec.provider),
        place: plain(&place.join("/")),
        access: spec
            .access_mode
            .as_ref()
            .map_or_else(|| "ReadWrite".to_owned(), |mode| plain(mode.as_str())),
        is_default: spec.default.unwrap_or_default(),
        checked: status.last_validation_time.as_ref().map(|at| at.0),
        synced: status.last_synced_time.as_ref().map(|at| at.0),
        bucket: Facts::read(annotation(location, BUCKET_ANNOTATION)),
        sync_problem: pass.and_then(|pass| match (&pass.error, pass.refused) {
            (Some(error), _) => Some(plain(error)),
            (None, 0) => None,
            (None, refused) => Some(format!(
                "{refused} Backups are gone from the bucket and were not removed"
            )),
        }),
        retention_problem: retention::stopped(location),
    }
}

impl LocationDescription {
    pub(crate) fn text(&self, now: Timestamp, style: Style) -> String {
        let mark = if self.is_default { "default" } else { "" };
        let phase = style.tone(self.tone, &self.phase);
        let mut screen = Screen::of(style, self.tone, &self.name, &[&phase, mark]);
        screen.lines(self.message.iter().map(|why| style.tone(self.tone, why)));
        screen.line("");
        let mut facts = vec![
            ("Stored in", format!("{} by {}", self.place, self.provider)),
            ("Access", self.access.clone()),
            ("Checked", ago_or_never(self.checked, now)),
        ];
        facts.extend(self.bucket.iter().flat_map(sync::bucket));
        let problem = self
            .sync_problem
            .as_ref()
            .map_or_else(String::new, |why| format!(": {why}"));
        let synced = ago_or_never(self.synced, now);
        facts.push(("Synced", format!("{synced}{problem}")));
        facts.extend(
            self.retention_problem
                .clone()
                .map(|problem| ("Retention", problem)),
        );
        screen.facts(13, facts);
        let next = [
            self.sync_problem.as_ref().map(|_| "sync"),
            self.retention_problem.as_ref().map(|_| "retention"),
        ];
        let mut next = next.into_iter().flatten().peekable();
        if next.peek().is_some() {
            screen.section("NEXT");
        }
        for command in next {
            screen.line(&format!(
                "  kubectl backup locations {command} {}",
                self.name
            ));
        }
        screen.text
    }
}

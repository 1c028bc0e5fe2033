//! Whether a backup can be restored here: one answer for user interfaces, programs and metrics.
//! Pure.
//!
//! It is derived from all known facts about the backup. An unknown fact never counts as good.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::{
    api::{
        Backup, BackupStorageLocation,
        backup_storage_location::{AccessMode, LocationPhase},
    },
    labels::{
        COPY_OF_ANNOTATION, DATA_ELSEWHERE_ANNOTATION, FILES_MISSING_ANNOTATION,
        IMPORTED_ANNOTATION, MISSING_DATA_ANNOTATION, VERIFIED_ANNOTATION, annotation,
    },
    phase::{Phase as _, Stage},
    text::counted,
    verification::Verification,
    volume_data::MissingData,
};

/// Maximum difference between the clocks of the API server and of a controller that is ignored.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Yes,
    /// Part of it is missing; the reasons name the part.
    Partly,
    /// It has not ended.
    Later,
    Unknown,
    No,
}

impl Answer {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::Later => "later",
            Self::Unknown => "unknown",
            Self::No => "no",
        }
    }
}

/// Whether a backup can be restored, and the reasons why not, or why not completely.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Restorability {
    pub answer: Answer,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Whether every item can be restored; data of volumes may be missing, which the reasons say.
    #[serde(skip)]
    pub is_good: bool,
}

/// Knowledge about the files of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// The backup ran here, so its phase was published after its files were stored; or the files
    /// were found at its import.
    Stored,
    /// The object was created with its phase: only a comparison with the bucket shows whether they
    /// exist.
    Unproven,
    /// A check did not find them.
    Missing,
}

/// Known facts about a backup, without its location.
#[derive(Clone, Debug)]
pub struct Evidence {
    stage: Stage,
    is_deleted: bool,
    created: Option<Timestamp>,
    files: Files,
    /// Name of the location; empty if it has none.
    pub location: String,
    /// Locations of its complete copies.
    pub copies: Vec<String>,
    /// When each of them was complete, by its location.
    copied: BTreeMap<String, Timestamp>,
    /// Whether it is a copy: data outside of its files belongs to the original.
    pub(crate) is_copy: bool,
    /// Volumes whose data is not in the backup.
    pub missing: Option<MissingData>,
    /// Volumes whose data only another server can read.
    pub elsewhere: Option<MissingData>,
    pub verified: Option<Verification>,
    /// Whether its progress says that it has no items.
    pub is_empty: bool,
    /// Whether it requests data of volumes in a repository, and no note says which of these volumes
    /// can be read here. Our own backups and imports always have that note.
    asks_for_repository: bool,
    /// Whether damage is known of a repository that has data of its volumes.
    has_damaged_data: bool,
    /// Why its files cannot be used.
    bad_files: Option<String>,
}

/// Known facts about a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Found {
        phase: Option<LocationPhase>,
        /// Start time of the last completed comparison with the cluster.
        synced: Option<Timestamp>,
        is_read_only: bool,
        /// Whether it is marked as the default for backups without a location.
        is_default: bool,
        created: Option<Timestamp>,
    },
    Gone,
    /// It could not be read, with the reason.
    Unread(String),
    /// A restore reads the copy in the location of this name: the files in the backup's own cannot
    /// be used.
    Copied(String),
}

impl Place {
    pub fn of(location: &BackupStorageLocation) -> Self {
        let spec = &location.spec;
        let status = &location.status;
        Self::Found {
            phase: status.phase.clone(),
            synced: status.last_synced_time.as_ref().map(|time| time.0),
            is_read_only: spec.access_mode == Some(AccessMode::ReadOnly),
            is_default: spec.default == Some(true),
            created: location
                .metadata
                .creation_timestamp
                .as_ref()
                .map(|time| time.0),
        }
    }

    /// Why a backup in this location is refused. A location that was not validated yet is tried,
    /// and so is one that could not be read.
    pub fn not_writable(&self) -> Option<NotWritable> {
        match self {
            Self::Found {
                is_read_only: true, ..
            } => Some(NotWritable::ReadOnly),
            Self::Found {
                phase: Some(phase), ..
            } if *phase != LocationPhase::Available => Some(NotWritable::Phase(phase.clone())),
            Self::Found { .. } | Self::Gone | Self::Unread(_) | Self::Copied(_) => None,
        }
    }

    fn is_available(&self) -> bool {
        matches!(
            self,
            Self::Found {
                phase: Some(LocationPhase::Available),
                ..
            }
        )
    }

    /// Whether a restore does not read a backup there: it is gone, or unavailable.
    pub fn is_unusable(&self) -> bool {
        let is_unavailable = matches!(
            self,
            Self::Found {
                phase: Some(LocationPhase::Unavailable),
                ..
            }
        );
        is_unavailable || *self == Self::Gone
    }
}

/// Why a backup cannot be stored in a location that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritable {
    ReadOnly,
    /// Its phase, which is not Available.
    Phase(LocationPhase),
}

/// All locations of an installation, by name; or why they could not be listed.
#[derive(Clone, Debug)]
pub struct Places(pub Result<BTreeMap<String, Place>, String>);

impl Places {
    pub fn of<'a>(locations: impl IntoIterator<Item = &'a BackupStorageLocation>) -> Self {
        let named = locations
            .into_iter()
            .filter_map(|one| Some((one.metadata.name.clone()?, Place::of(one))));
        Self(Ok(named.collect()))
    }

    pub fn find(&self, name: &str) -> Place {
        match &self.0 {
            Ok(all) => all.get(name).cloned().unwrap_or(Place::Gone),
            Err(why) => Place::Unread(why.clone()),
        }
    }

    /// The place that a restore of a backup reads.
    pub fn of_backup(&self, backup: &Evidence) -> Place {
        let own = self.find(&backup.location);
        if backup.is_read_from(&own) {
            return own;
        }
        let mut copies = backup.copies.iter();
        let copy = copies.find(|location| self.find(location).is_available());
        copy.map_or(own, |location| Place::Copied(location.clone()))
    }

    /// The location of backups without one, as the controller chooses it: the newest that is marked
    /// as default. `None` if none is marked: then a flag of the controller names it.
    pub fn default_name(&self) -> Option<&str> {
        let marked = self
            .0
            .as_ref()
            .ok()?
            .iter()
            .filter_map(|(name, place)| match place {
                Place::Found {
                    is_default: true,
                    created,
                    ..
                } => Some((*created, name.as_str())),
                _ => None,
            });
        marked.max().map(|(_, name)| name)
    }
}

impl Evidence {
    pub fn of(backup: &Backup) -> Self {
        let created = backup
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        let started = backup.status.start_timestamp.as_ref().map(|time| time.0);
        // A backup that ran here began after its creation.
        let ran_here = started
            .zip(created)
            .is_some_and(|(started, created)| created.duration_since(started) <= MAX_CLOCK_SKEW);
        let verified = Verification::read(annotation(backup, VERIFIED_ANNOTATION));
        let files = if annotation(backup, FILES_MISSING_ANNOTATION).is_some() {
            Files::Missing
        } else if ran_here
            || verified.is_some()
            || annotation(backup, IMPORTED_ANNOTATION).is_some()
        {
            Files::Stored
        } else {
            Files::Unproven
        };
        let spec = &backup.spec;
        let copies_files = spec
            .default_volumes_to_fs_backup
            .or(spec.default_volumes_to_restic);
        Self {
            stage: backup.phase().stage(),
            is_deleted: backup.metadata.deletion_timestamp.is_some(),
            created,
            files,
            location: backup.spec.storage_location.clone().unwrap_or_default(),
            copies: backup
                .complete_copies()
                .map(|copy| copy.location.clone())
                .collect(),
            copied: backup
                .complete_copies()
                .filter_map(|copy| {
                    let at = copy.completion_timestamp.as_ref()?;
                    Some((copy.location.clone(), at.0))
                })
                .collect(),
            is_copy: annotation(backup, COPY_OF_ANNOTATION).is_some(),
            missing: MissingData::read(annotation(backup, MISSING_DATA_ANNOTATION)),
            elsewhere: MissingData::read(annotation(backup, DATA_ELSEWHERE_ANNOTATION)),
            verified,
            is_empty: backup
                .status
                .progress
                .as_ref()
                .is_some_and(|all| all.total_items == 0 && all.items_backed_up == 0),
            asks_for_repository: (copies_files == Some(true)
                || spec.snapshot_move_data == Some(true))
                && annotation(backup, MISSING_DATA_ANNOTATION).is_none(),
            has_damaged_data: false,
            bad_files: None,
        }
    }

    /// Whether a restore reads the files in its own location, of this state, and not those of a copy,
    /// if there is one.
    pub fn is_read_from(&self, own: &Place) -> bool {
        !own.is_unusable() && self.files != Files::Missing && !self.is_damaged()
    }

    /// Whether the last verification of its files found errors.
    fn is_damaged(&self) -> bool {
        self.verified.as_ref().is_some_and(|last| last.findings > 0)
    }

    /// Records that a check has just found none of its files.
    pub fn finds_no_files(&mut self) {
        self.files = Files::Missing;
    }

    /// Records that one of its files has just been read. Others may be missing, so a mark of the
    /// controller stays.
    pub fn finds_files(&mut self) {
        if self.files == Files::Unproven {
            self.files = Files::Stored;
        }
    }

    /// Records why its files cannot be used, after a failed read.
    pub fn finds_bad_files(&mut self, why: String) {
        self.bad_files = Some(why);
    }

    /// Records that damage is known of a repository that has data of its volumes.
    pub fn finds_damaged_data(&mut self) {
        self.has_damaged_data = true;
    }

    /// `place` is its location; `None` if the caller reports the state of the location separately.
    pub fn judge(&self, place: Option<&Place>) -> Restorability {
        let mut found: Vec<(Answer, String)> = Vec::new();
        let mut add = |answer, reason: String| found.push((answer, reason));
        if let Some((answer, reason)) = self.phase_reason() {
            add(answer, reason.to_owned());
        }
        if matches!(self.stage, Stage::Completed | Stage::PartiallyFailed) {
            self.add_stored(place, &mut add);
        }
        let answer = found
            .iter()
            .map(|(answer, _)| *answer)
            .max()
            .unwrap_or(Answer::Yes);
        let reasons = found
            .into_iter()
            .filter(|(of, _)| *of == answer)
            .map(|(_, reason)| reason)
            .collect();
        let is_good =
            matches!(answer, Answer::Yes | Answer::Partly) && self.stage == Stage::Completed;
        Restorability {
            answer,
            reasons,
            is_good,
        }
    }

    /// The answer that follows from the phase or a deletion, with its reason; `None` if it is good.
    fn phase_reason(&self) -> Option<(Answer, &'static str)> {
        if self.is_deleted {
            return Some((Answer::No, "it is being deleted"));
        }
        match self.stage {
            Stage::Completed => None,
            Stage::PartiallyFailed => Some((Answer::Partly, "all but the items with errors")),
            Stage::Failed => Some((Answer::No, "it failed")),
            Stage::FailedValidation => Some((Answer::No, "it never ran")),
            Stage::Deleting => Some((Answer::No, "it is being deleted")),
            Stage::Unknown => Some((Answer::Unknown, "its phase is not known here")),
            _ => Some((Answer::Later, "once it has ended")),
        }
    }

    /// That a restore reads its copy in this location. The Backup says that the copy is there: its
    /// files are not looked for afterwards.
    fn read_from_copy(&self, location: &str) -> String {
        let text = format!("from its copy in location {location}");
        match self.copied.get(location) {
            Some(at) => format!("{text}, as recorded {}", at.strftime("%Y-%m-%d")),
            None => text,
        }
    }

    /// Adds the reasons for a backup that has ended with files in its bucket.
    fn add_stored(&self, place: Option<&Place>, add: &mut impl FnMut(Answer, String)) {
        let name = &self.location;
        let mut synced = None;
        match place {
            None => {}
            Some(_) if name.is_empty() => add(Answer::Unknown, "it names no location".to_owned()),
            Some(Place::Copied(copy)) => {
                add(Answer::Yes, self.read_from_copy(copy));
            }
            Some(Place::Gone) => add(Answer::No, format!("location {name} does not exist")),
            Some(Place::Unread(why)) => {
                add(
                    Answer::Unknown,
                    format!("location {name} could not be read: {why}"),
                );
            }
            Some(Place::Found {
                phase, synced: at, ..
            }) => {
                synced = *at;
                match phase {
                    Some(LocationPhase::Available) => {}
                    Some(LocationPhase::Unavailable) => {
                        add(Answer::No, format!("location {name} is Unavailable"));
                    }
                    None => add(
                        Answer::Unknown,
                        format!("location {name} was not checked yet"),
                    ),
                    Some(other) => add(Answer::Unknown, format!("location {name} is {other}")),
                }
            }
        }
        // A comparison removes a Backup without files, or marks it.
        let compared = synced
            .zip(self.created)
            .is_some_and(|(synced, created)| synced > created + MAX_CLOCK_SKEW);
        match self.files {
            Files::Stored => {}
            Files::Unproven => {
                if !compared {
                    add(
                        Answer::Unknown,
                        "it was created with its phase, and its files were not looked for yet"
                            .to_owned(),
                    );
                }
            }
            Files::Missing if matches!(place, Some(Place::Copied(_))) => {}
            Files::Missing => add(Answer::No, format!("its files are not in location {name}")),
        }
        if self.is_empty {
            add(Answer::No, "there is nothing in it".to_owned());
        }
        if self.asks_for_repository && self.missing.is_none() && self.elsewhere.is_none() {
            let why = "its volumes may be in a repository, and whether they can be read here is not known";
            add(Answer::Unknown, why.to_owned());
        }
        if let Some(why) = &self.bad_files {
            add(Answer::Unknown, why.clone());
        }
        if let Some(last) = self.verified.as_ref().filter(|_| self.is_damaged()) {
            let findings = last.findings;
            let faults = counted(findings, "fault");
            let text = match place {
                // It may have been made of the same files.
                Some(Place::Copied(copy)) => format!(
                    "{faults} in its files in location {name}, and its copy in location {copy} was not verified"
                ),
                _ => format!("{faults} in its files"),
            };
            add(Answer::Unknown, text);
        }
        if let Some(data) = &self.missing {
            add(
                Answer::Partly,
                format!("without the data of {}", counted(data.missing, "volume")),
            );
        }
        if self.has_damaged_data {
            let why = "the data of its volumes may rely on data that is damaged";
            add(Answer::Partly, why.to_owned());
        }
        if let Some(data) = &self.elsewhere {
            let volumes = counted(data.missing, "volume");
            let place = if self.is_copy {
                "not in this copy"
            } else {
                "where only a Velero server reads it"
            };
            add(Answer::Partly, format!("the data of {volumes} is {place}"));
        }
    }
}

#[cfg(test)]
mod tests;

//! Repositories of volume data: rows of `repositories get`, and how far a rotation of their password
//! is. Pure.

use std::collections::BTreeMap;

use backup_core::{
    api::{
        BackupRepository, backup_repository::BackupRepositoryPhase as Phase, transfer::UploaderType,
    },
    data_movement::repository_path,
    repository_records::{
        DATA_PARTS, DataCheck, KeyChange, KeyWork, PASSWORD_COPIED_ANNOTATION, PasswordRotation,
        ROTATION_REQUEST_ANNOTATION, RotationStage,
    },
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Columns, TableKind,
    table_kind::{age, dash},
};
use crate::print::{Style, Tone, plain};

/// A repository of which damage is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRepository {
    /// Namespace of the volumes.
    pub(crate) namespace: String,
    pub(crate) location: String,
    /// Its folder, as `volumes` shows it.
    pub(crate) folder: String,
    /// What is known, as sentences.
    pub(crate) damage: String,
}

impl DamagedRepository {
    /// `None` if no damage is known.
    pub(crate) fn of(repository: &BackupRepository) -> Option<Self> {
        let damage = DataCheck::of(repository.annotations()).known_damage()?;
        let spec = &repository.spec;
        Some(Self {
            namespace: spec.volume_namespace.clone(),
            location: spec.backup_storage_location.clone(),
            folder: plain(&repository_path(&spec.volume_namespace)),
            damage: plain(&damage),
        })
    }
}

impl TableKind for BackupRepository {
    const KIND: &'static str = "backuprepository";
    const COLUMNS: Columns = Columns {
        headers: &[
            "NAME",
            "VOLUMES IN",
            "LOCATION",
            "PHASE",
            "MAINTAINED",
            "CHECKED",
            "MESSAGE",
            "FORMAT",
            "DATA READ",
            "KEYS",
        ],
        narrow: 7,
        status: 3,
    };

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        let status = &self.status;
        let check = DataCheck::of(self.annotations());
        let phase = status.phase.as_ref().map_or("New", Phase::as_str);
        // Without a maintenance it is the time from which the first one is counted.
        let maintained = status
            .last_maintenance_time
            .as_ref()
            .filter(|_| !status.recent_maintenance.is_empty());
        let read = match check.part {
            0 => dash(),
            part => format!("{part}/{DATA_PARTS}"),
        };
        vec![
            self.name_any(),
            plain(&self.spec.volume_namespace),
            plain(&self.spec.backup_storage_location),
            style.tone(
                tone(status.phase.as_ref(), check.known_damage().is_some()),
                &plain(phase),
            ),
            age(maintained.map(|at| at.0), now),
            age(check.checked, now),
            plain(&message(self, &check)),
            plain(self.spec.repository_type.as_str()),
            read,
            keys(self),
        ]
    }
}

fn tone(phase: Option<&Phase>, is_damaged: bool) -> Tone {
    match phase {
        _ if is_damaged => Tone::Bad,
        Some(Phase::Ready) => Tone::Good,
        Some(Phase::NotReady) => Tone::Bad,
        None | Some(Phase::New) => Tone::Busy,
        Some(Phase::Unknown(_)) => Tone::Unknown,
    }
}

/// The message of the status, and why the last check was not completed.
fn message(repository: &BackupRepository, check: &DataCheck) -> String {
    let mut parts: Vec<String> = repository.status.message.clone().into_iter().collect();
    if check.failed.is_some() {
        parts.push(format!("its last check failed: {}", check.failure));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

/// The last change of its keys.
fn keys(repository: &BackupRepository) -> String {
    let Some(change) = KeyChange::of(repository.annotations()) else {
        return dash();
    };
    let work = match change.work {
        KeyWork::Add => "new password",
        KeyWork::Remove => "previous removed",
    };
    let state = if change.is_done {
        ""
    } else if change.failed.is_some() {
        " (failed)"
    } else {
        " (pending)"
    };
    format!("{work}{state}")
}

/// How far a rotation of the password is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RotationState {
    /// None is under way.
    Idle,
    /// The controller has not begun.
    Requested,
    Stage(RotationStage),
}

impl RotationState {
    /// From the annotations of the Secret.
    pub(crate) fn of(annotations: &BTreeMap<String, String>) -> Self {
        match PasswordRotation::of(annotations) {
            Some(rotation) => {
                let is_copied = annotations.contains_key(PASSWORD_COPIED_ANNOTATION);
                Self::Stage(match rotation.stage {
                    RotationStage::Switched if is_copied => RotationStage::Removing,
                    stage => stage,
                })
            }
            None if annotations.contains_key(ROTATION_REQUEST_ANNOTATION) => Self::Requested,
            None => Self::Idle,
        }
    }

    /// The change of keys that is made of all repositories.
    pub(crate) fn work(self) -> Option<KeyWork> {
        match self {
            Self::Stage(RotationStage::Adding) => Some(KeyWork::Add),
            Self::Stage(RotationStage::Removing) => Some(KeyWork::Remove),
            Self::Idle | Self::Requested | Self::Stage(RotationStage::Switched) => None,
        }
    }

    /// One word for programs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Idle => "none",
            Self::Requested => "requested",
            Self::Stage(RotationStage::Adding) => "adding",
            Self::Stage(RotationStage::Switched) => "switched",
            Self::Stage(RotationStage::Removing) => "removing",
        }
    }
}

/// Number of repositories whose keys were changed, and of all; `secret` is the version of the
/// Secret.
pub(crate) fn changed(
    repositories: &[BackupRepository],
    work: KeyWork,
    secret: &str,
) -> (usize, usize) {
    let ours = repositories
        .iter()
        .filter(|one| one.spec.repository_type != UploaderType::Kopia);
    let changed = ours.clone().filter(|one| {
        let change = KeyChange::of(one.annotations());
        change.is_some_and(|change| change.is_done && change.is_of(work, secret))
    });
    (changed.count(), ours.count())
}

#[cfg(test)]
mod tests {
    use backup_core::repository_records::{KEY_CHANGE_ANNOTATION, ROTATION_ANNOTATION};

    use super::*;

    fn annotations(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = all
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        owned.collect()
    }

    #[test]
    fn the_state_of_a_rotation_is_in_the_annotations_of_the_secret() {
        let stage = |name: &str| format!(r#"{{"stage":"{name}","since":"2026-11-01T12:00:00Z"}}"#);
        let (adding, switched) = (stage("adding"), stage("switched"));
        let copied = (PASSWORD_COPIED_ANNOTATION, "yes");
        for (all, word) in [
            (vec![], "none"),
            (vec![(ROTATION_REQUEST_ANNOTATION, "yes")], "requested"),
            (vec![(ROTATION_ANNOTATION, &adding[..])], "adding"),
            (vec![(ROTATION_ANNOTATION, &switched[..])], "switched"),
            (
                vec![(ROTATION_ANNOTATION, &switched[..]), copied],
                "removing",
            ),
        ] {
            assert_eq!(RotationState::of(&annotations(&all)).word(), word);
        }
    }

    #[test]
    fn only_keys_for_this_secret_count() {
        let repository = |kind: UploaderType, secret: &str, is_done: bool| {
            let mut repository = BackupRepository::default();
            repository.spec.repository_type = kind;
            let change = KeyChange {
                is_done,
                ..KeyChange::requested(KeyWork::Add, secret)
            };
            let text = change.annotation();
            repository.metadata.annotations =
                Some(annotations(&[(KEY_CHANGE_ANNOTATION, &text[..])]));
            repository
        };
        let all = [
            repository(UploaderType::Restic, "u/2", true),
            repository(UploaderType::Restic, "u/2", false),
            repository(UploaderType::Restic, "u/1", true),
            repository(UploaderType::Kopia, "u/2", true),
        ];
        assert_eq!(changed(&all, KeyWork::Add, "u/2"), (1, 3));
        assert_eq!(changed(&all, KeyWork::Remove, "u/2"), (0, 3));
    }
}

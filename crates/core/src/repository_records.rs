//! Records about repositories of volume data, beside the fields of Velero's API: annotations of a
//! BackupRepository, and entries and annotations of the Secret with the password. Pure.
//!
//! The controller writes them, `kubectl backup repositories` shows them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Key of the password that becomes the current one, in the Secret with the password of all
/// repositories.
pub const NEXT_PASSWORD_KEY: &str = "repository-password-next";
/// Key of the password that was the current one until the last rotation, in the same Secret.
pub const PREVIOUS_PASSWORD_KEY: &str = "repository-password-previous";
/// Environment variable of `backup-mover`: the password whose keys are added or removed.
pub const OTHER_PASSWORD_VARIABLE: &str = "BACKUP_REPOSITORY_OTHER_PASSWORD";

/// Annotation of the Secret: a user asks for another password. Any value.
pub const ROTATION_REQUEST_ANNOTATION: &str = "backup-controller/rotate-password";
/// Annotation of the Secret: a user has copied the new password, so the keys of the previous one
/// may be removed. Any value.
pub const PASSWORD_COPIED_ANNOTATION: &str = "backup-controller/password-copied";
/// Annotation of the Secret: how far the rotation of the password is, as [`PasswordRotation`].
pub const ROTATION_ANNOTATION: &str = "backup-controller/password-rotation";
/// Annotation of a BackupRepository: the last check of its data, as [`DataCheck`].
pub const DATA_CHECK_ANNOTATION: &str = "backup-controller/data-check";
/// Annotation of a BackupRepository: a maintenance is to begin now. Any value. Removed when one has
/// ended that began for it.
pub const MAINTENANCE_REQUEST_ANNOTATION: &str = "backup-controller/maintenance-request";
/// Annotation of a BackupRepository: a check of its data is to begin now, as [`CheckRequest`]; any
/// other value has it read the next part of the data. Removed when one has ended that began for it.
pub const CHECK_REQUEST_ANNOTATION: &str = "backup-controller/check-request";
/// Annotation of a BackupRepository: the change of its keys, as [`KeyChange`].
pub const KEY_CHANGE_ANNOTATION: &str = "backup-controller/key-change";

/// Number of checks by which all data is read once: each reads one part.
pub const DATA_PARTS: u8 = 30;

/// The version of an object, such as the Secret with the password. It changes with every write.
pub fn version_of(metadata: &ObjectMeta) -> String {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let version = metadata.resource_version.as_deref().unwrap_or_default();
    format!("{uid}/{version}")
}

/// How far the rotation of the password is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RotationStage {
    /// All repositories get a key of the next password.
    Adding,
    /// The next password is the current one; the rotation waits until a user has copied it.
    Switched,
    /// The keys of the previous password are removed.
    Removing,
}

/// A rotation of the password that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PasswordRotation {
    pub stage: RotationStage,
    /// Begin of the stage.
    pub since: Timestamp,
}

impl PasswordRotation {
    /// `None` if no rotation has begun, or it cannot be read.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        read(annotations, ROTATION_ANNOTATION)
    }

    pub fn annotation(&self) -> String {
        written(self)
    }
}

/// Work on the keys of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KeyWork {
    /// Add a key of the next password.
    Add,
    /// Remove the keys of the previous password.
    Remove,
}

/// A change of the keys of a repository: requested, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyChange {
    pub work: KeyWork,
    /// Version of the Secret for which it was requested.
    pub secret: String,
    #[serde(rename = "done", default)]
    pub is_done: bool,
    /// End of the last attempt that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    /// Why that attempt failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl KeyChange {
    pub fn requested(work: KeyWork, secret: &str) -> Self {
        Self {
            work,
            secret: secret.to_owned(),
            is_done: false,
            failed: None,
            failure: String::new(),
        }
    }

    /// `None` if none was requested, or it cannot be read.
    pub fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        read(annotations, KEY_CHANGE_ANNOTATION)
    }

    /// Whether it is this work for this version of the Secret.
    pub fn is_of(&self, work: KeyWork, secret: &str) -> bool {
        self.work == work && self.secret == secret
    }

    pub fn annotation(&self) -> String {
        written(self)
    }
}

/// The record of the checks of a repository's data. Each check compares the sizes of all packs with
/// the index, walks through all folders, and reads one of [`DATA_PARTS`] parts of the data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DataCheck {
    /// End of the last check that was completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Timestamp>,
    /// Part of the data that it has read, from 1 on; 0 if there was none.
    pub part: u8,
    /// Damage that it has found, as a sentence; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub damage: String,
    /// Ids of packs that are damaged, or that a restore could not read. The next check reads them,
    /// too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged_packs: Vec<String>,
    /// Damage that a transfer has met, as a sentence, until a check has ended that began afterwards;
    /// empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub suspicion: String,
    /// End of a later check that was not completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    /// Why it was not completed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

impl DataCheck {
    /// `None` if there was none, or it cannot be read.
    pub fn known(annotations: &BTreeMap<String, String>) -> Option<Self> {
        read(annotations, DATA_CHECK_ANNOTATION)
    }

    /// The default if there was none, or it cannot be read.
    pub fn of(annotations: &BTreeMap<String, String>) -> Self {
        Self::known(annotations).unwrap_or_default()
    }

    /// What is known of damage, as sentences: what a transfer has met and what the last check has
    /// found. `None` if that is nothing.
    pub fn known_damage(&self) -> Option<String> {
        let known = [&self.suspicion, &self.damage];
        let known: Vec<&str> = known
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(String::as_str)
            .collect();
        (!known.is_empty()).then(|| known.join("; "))
    }

    /// The part of the data that the next check reads.
    pub fn next_part(&self) -> u8 {
        self.part % DATA_PARTS + 1
    }

    pub fn annotation(&self) -> String {
        written(self)
    }
}

/// A request for a check of a repository's data now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CheckRequest {
    /// When it was made: two requests differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether all data is read, instead of one part.
    #[serde(rename = "readData")]
    pub reads_all_data: bool,
}

impl CheckRequest {
    /// A request at this time.
    pub fn new(at: Timestamp, reads_all_data: bool) -> Self {
        Self {
            at: Some(at),
            reads_all_data,
        }
    }

    /// The request in an annotation. One that cannot be read asks for the next part of the data.
    pub fn of(annotation: &str) -> Self {
        serde_json::from_str(annotation).unwrap_or_default()
    }

    pub fn annotation(&self) -> String {
        written(self)
    }
}

fn read<T: DeserializeOwned>(annotations: &BTreeMap<String, String>, name: &str) -> Option<T> {
    serde_json::from_str(annotations.get(name)?).ok()
}

fn written<T: Serialize>(record: &T) -> String {
    // Never fails: there are only strings, numbers and times.
    serde_json::to_string(record).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let at: Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
        let rotation = PasswordRotation {
            stage: RotationStage::Switched,
            since: at,
        };
        let change = KeyChange {
            failed: Some(at),
            failure: "why".to_owned(),
            ..KeyChange::requested(KeyWork::Remove, "u/7")
        };
        let check = DataCheck {
            checked: Some(at),
            part: 3,
            damage: "it is damaged".to_owned(),
            damaged_packs: vec!["ab".repeat(32)],
            ..DataCheck::default()
        };
        let annotations: BTreeMap<String, String> = [
            (ROTATION_ANNOTATION, rotation.annotation()),
            (KEY_CHANGE_ANNOTATION, change.annotation()),
            (DATA_CHECK_ANNOTATION, check.annotation()),
        ]
        .map(|(name, text)| (name.to_owned(), text))
        .into();
        assert_eq!(PasswordRotation::of(&annotations), Some(rotation));
        assert_eq!(KeyChange::of(&annotations), Some(change));
        assert_eq!(DataCheck::of(&annotations), check);
    }

    #[test]
    fn what_cannot_be_read_counts_as_not_recorded() {
        let annotations: BTreeMap<String, String> = [
            (ROTATION_ANNOTATION, r#"{"stage":"tomorrow"}"#),
            (KEY_CHANGE_ANNOTATION, "{}"),
            (DATA_CHECK_ANNOTATION, "no JSON"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into();
        assert_eq!(PasswordRotation::of(&annotations), None);
        assert_eq!(KeyChange::of(&annotations), None);
        assert_eq!(DataCheck::of(&annotations), DataCheck::default());
    }

    #[test]
    fn a_request_that_cannot_be_read_asks_for_one_part_of_the_data() {
        let at: Timestamp = "2026-11-01T12:00:00Z".parse().unwrap();
        let request = CheckRequest::new(at, true);
        assert_eq!(CheckRequest::of(&request.annotation()), request);
        for text in ["", "now", "{}", "[]", r#"{"readData":"yes"}"#] {
            assert!(!CheckRequest::of(text).reads_all_data, "{text}");
        }
    }

    #[test]
    fn damage_is_known_from_a_transfer_and_from_a_check() {
        let known = |suspicion: &str, damage: &str| {
            let check = DataCheck {
                suspicion: suspicion.to_owned(),
                damage: damage.to_owned(),
                ..DataCheck::default()
            };
            check.known_damage()
        };
        assert_eq!(known("", ""), None);
        assert_eq!(known("met", "").as_deref(), Some("met"));
        assert_eq!(known("", "found").as_deref(), Some("found"));
        assert_eq!(known("met", "found").as_deref(), Some("met; found"));
    }

    #[test]
    fn every_part_of_the_data_is_read_once_before_the_first_one_again() {
        let mut check = DataCheck::default();
        let mut parts = Vec::new();
        for _ in 0..=DATA_PARTS {
            check.part = check.next_part();
            parts.push(check.part);
        }
        let mut expected: Vec<u8> = (1..=DATA_PARTS).collect();
        expected.push(1);
        assert_eq!(parts, expected);
    }
}

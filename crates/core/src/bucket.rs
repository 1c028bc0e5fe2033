//! Facts about the bucket of a location, stored in our annotation of a BackupStorageLocation, as
//! Velero's status has no field for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Results of the last detailed check of the bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// Whether it keeps versions; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Versions>,
    /// Its object lock; `None`: unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<ObjectLock>,
    /// Why one of the above is unknown, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// It overwrites existing keys although the request forbids that (`If-None-Match`), so
    /// concurrent writers are kept apart less strictly.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unconditional: bool,
    /// Why objects cannot be removed there, if a removal was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_removable: Option<String>,
}

/// Whether a bucket keeps overwritten and deleted objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Versions {
    Enabled,
    Suspended,
    Off,
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enabled => "kept",
            Self::Suspended => "kept until they were suspended",
            Self::Off => "not kept",
        })
    }
}

/// Object lock of an S3 bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectLock {
    pub enabled: bool,
    /// Default mode, `COMPLIANCE` or `GOVERNANCE`; `None`: only objects that request a lock are
    /// locked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub years: Option<u64>,
}

impl fmt::Display for ObjectLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.enabled {
            return f.write_str("off");
        }
        match (&self.mode, self.days, self.years) {
            (Some(mode), Some(days), _) => write!(f, "on, {mode} for {days} days by default"),
            (Some(mode), None, Some(years)) => write!(f, "on, {mode} for {years} years by default"),
            (Some(mode), None, None) => write!(f, "on, {mode} by default"),
            (None, ..) => f.write_str("on, no retention by default"),
        }
    }
}

impl Facts {
    /// Reads the annotation; `None` if it is missing or unreadable.
    pub fn read(annotation: Option<&str>) -> Option<Self> {
        serde_json::from_str(annotation?).ok()
    }

    /// A description of how writes work, if the store ignores conditions.
    pub fn writes(&self) -> Option<&'static str> {
        self.unconditional.then_some(
            "without conditions, so each key is checked first; clusters that share the bucket need a prefix each",
        )
    }

    pub fn annotation(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_also_by_another_version() {
        let facts = Facts {
            versions: Some(Versions::Enabled),
            lock: Some(ObjectLock {
                enabled: true,
                mode: Some("COMPLIANCE".to_owned()),
                days: Some(30),
                years: None,
            }),
            ..Facts::default()
        };
        assert_eq!(Facts::read(Some(&facts.annotation())), Some(facts.clone()));
        assert_eq!(Facts::read(Some(r#"{"later":{}}"#)), Some(Facts::default()));
        assert_eq!((Facts::read(None), Facts::read(Some("?"))), (None, None));
        let told: Vec<String> = [
            facts.lock.unwrap_or_default(),
            ObjectLock {
                enabled: true,
                ..ObjectLock::default()
            },
            ObjectLock {
                enabled: true,
                mode: Some("GOVERNANCE".to_owned()),
                years: Some(1),
                days: None,
            },
            ObjectLock::default(),
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        assert_eq!(
            told,
            [
                "on, COMPLIANCE for 30 days by default",
                "on, no retention by default",
                "on, GOVERNANCE for 1 years by default",
                "off"
            ]
        );
    }
}

//! Chooses the VolumeSnapshotClass for a claim. Pure.
//!
//! Velero's order (`pkg/util/csi/volume_snapshot.go`, after v1.18): the claim's annotation, the
//! resource policy, the backup's annotation for the driver, the class of the driver with Velero's
//! label, the driver's default class, the driver's only class. As in Velero, a name that is not a
//! class of the driver is skipped.

use std::{collections::BTreeMap, fmt};

use backup_core::labels::csi::{DEFAULT_CLASS, SNAPSHOT_CLASS};
use kube::{ResourceExt as _, core::DynamicObject};

type Annotations = BTreeMap<String, String>;

/// Why no VolumeSnapshotClass can be chosen, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoClass {
    pub why: String,
    pub remedy: String,
}

impl fmt::Display for NoClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

/// Chooses the VolumeSnapshotClass for a claim among all classes of the cluster.
///
/// # Errors
///
/// No class of the driver exists, or several do and none is marked.
pub fn choose<'a>(
    driver: &str,
    claim: &Annotations,
    policy: Option<&str>,
    backup: &Annotations,
    classes: &'a [DynamicObject],
) -> Result<&'a DynamicObject, NoClass> {
    let for_driver = format!("{SNAPSHOT_CLASS}_{}", driver.to_lowercase());
    let chosen = [
        claim.get(SNAPSHOT_CLASS).map(String::as_str),
        policy,
        backup.get(&for_driver).map(String::as_str),
    ];
    let named = chosen.into_iter().flatten().find_map(|name| {
        classes
            .iter()
            .find(|class| class.name_any().eq_ignore_ascii_case(name) && is_of(class, driver))
    });
    if let Some(class) = named {
        return Ok(class);
    }
    let own: Vec<&DynamicObject> = classes
        .iter()
        .filter(|class| driver_of(class) == Some(driver))
        .collect();
    let labelled = own
        .iter()
        .find(|class| class.labels().contains_key(SNAPSHOT_CLASS));
    let marked = labelled.or_else(|| {
        own.iter().find(|class| {
            class
                .annotations()
                .get(DEFAULT_CLASS)
                .is_some_and(|value| value != "false")
        })
    });
    match (marked, own.as_slice()) {
        (Some(class), _) | (None, [class]) => Ok(class),
        (None, []) => Err(NoClass {
            why: format!("there is no VolumeSnapshotClass of the driver {driver}"),
            remedy: "create one, or leave its volumes out by a resource policy or snapshotVolumes: false"
                .to_owned(),
        }),
        (None, several) => Err(NoClass {
            why: format!(
                "there are {} VolumeSnapshotClasses of the driver {driver}, and none is marked",
                several.len()
            ),
            remedy: format!("put the label {SNAPSHOT_CLASS} on the one to use"),
        }),
    }
}

fn driver_of(class: &DynamicObject) -> Option<&str> {
    class.data.get("driver")?.as_str()
}

fn is_of(class: &DynamicObject, driver: &str) -> bool {
    driver_of(class).is_some_and(|own| own.eq_ignore_ascii_case(driver))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(name: &str, driver: &str, label: bool, default: Option<&str>) -> DynamicObject {
        let mut class = json!({ "metadata": { "name": name }, "driver": driver });
        if label {
            class["metadata"]["labels"] = json!({ SNAPSHOT_CLASS: "true" });
        }
        if let Some(value) = default {
            class["metadata"]["annotations"] = json!({ DEFAULT_CLASS: value });
        }
        serde_json::from_value(class).unwrap()
    }

    fn chosen(
        classes: &[DynamicObject],
        claim: Option<&str>,
        policy: Option<&str>,
        backup: Option<&str>,
    ) -> Result<String, NoClass> {
        let annotations = |key: String, value: Option<&str>| -> Annotations {
            value
                .map(|value| (key, value.to_owned()))
                .into_iter()
                .collect()
        };
        let claim = annotations(SNAPSHOT_CLASS.to_owned(), claim);
        let backup = annotations(format!("{SNAPSHOT_CLASS}_disk.example.com"), backup);
        choose("Disk.example.com", &claim, policy, &backup, classes)
            .or_else(|_| choose("disk.example.com", &claim, policy, &backup, classes))
            .map(kube::ResourceExt::name_any)
    }

    #[test]
    fn the_nearest_word_counts() {
        let all = [
            class("other", "other.example.com", true, Some("true")),
            class("plain", "disk.example.com", false, None),
            class("default", "disk.example.com", false, Some("true")),
            class("label", "disk.example.com", true, None),
        ];
        for (claim, policy, backup, expected) in [
            (Some("plain"), Some("default"), Some("default"), "plain"),
            (Some("PLAIN"), None, None, "plain"),
            (None, Some("plain"), Some("default"), "plain"),
            (None, None, Some("plain"), "plain"),
            // A class of another driver, or a missing one, is skipped.
            (Some("other"), Some("plain"), None, "plain"),
            (None, Some("other"), Some("plain"), "plain"),
            (Some("none"), None, None, "label"),
            (None, Some("none"), None, "label"),
            (None, None, Some("none"), "label"),
            (None, None, None, "label"),
        ] {
            let class = chosen(&all, claim, policy, backup).unwrap();
            assert_eq!(class, expected, "{claim:?} {policy:?} {backup:?}");
        }
        assert_eq!(chosen(&all[..3], None, None, None).unwrap(), "default");
        assert_eq!(
            chosen(&all[..2], None, None, None).unwrap(),
            "plain",
            "the only one"
        );
    }

    #[test]
    fn a_guess_is_never_made() {
        let none = [class("other", "other.example.com", true, None)];
        assert!(
            chosen(&none, None, None, None)
                .unwrap_err()
                .remedy
                .contains("create one")
        );
        let two = [
            class("a", "disk.example.com", false, Some("false")),
            class("b", "disk.example.com", false, None),
        ];
        assert!(
            chosen(&two, None, None, None)
                .unwrap_err()
                .why
                .contains("there are 2")
        );
    }
}

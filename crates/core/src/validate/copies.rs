//! Errors in the copies of a Backup or Schedule.

use serde_json::Value;

use super::{Finding, Findings};
use crate::{
    api::{backup::BackupCopy, schedule::ScheduleSpec},
    names::is_object_name,
};

/// Maximum number of copies of a backup.
const MAX_COPIES: usize = 8;
const OF_SCHEDULE: &str = "spec.copies";

/// `own` is the location of the backup itself, if it is known.
pub(super) fn check(field: &str, copies: &[BackupCopy], own: Option<&str>, found: &mut Findings) {
    if copies.len() > MAX_COPIES {
        let count = copies.len();
        found.say(
            field,
            format!("{count} copies are more than the {MAX_COPIES} that a backup may have"),
        );
    }
    for (at, copy) in copies.iter().enumerate() {
        let field = format!("{field}[{at}]");
        let name = &copy.location;
        let wrong = if !is_object_name(name) {
            Some("cannot be the name of a BackupStorageLocation")
        } else if Some(name.as_str()) == own {
            Some("is the location of the backup itself; name another one")
        } else if copies[..at].iter().any(|other| other.location == *name) {
            Some("is named twice; a location has one copy of a backup")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            found.say(format!("{field}.location"), format!("{name:?} {wrong}"));
        }
        found.not_negative(&format!("{field}.ttl"), copy.ttl);
    }
}

/// Adds the errors in the copies of a Schedule.
pub(super) fn and_of_schedule(found: Vec<Finding>, spec: &ScheduleSpec) -> Vec<Finding> {
    let mut all = Findings(found);
    let own = spec.template.storage_location.as_deref();
    check(OF_SCHEDULE, &spec.copies, own, &mut all);
    all.0
}

/// The errors in the copies of a whole Schedule, as JSON.
pub(super) fn raw(object: &Value) -> Vec<Finding> {
    let mut found = Findings::default();
    match decoded(object) {
        Ok(copies) => {
            let own = object["spec"]["template"]["storageLocation"].as_str();
            check(OF_SCHEDULE, &copies, own, &mut found);
        }
        Err(error) => found.0.push(error),
    }
    found.0
}

/// The error of a whole Schedule, as JSON, whose copies cannot be decoded.
pub(super) fn undecodable(object: &Value) -> Option<Finding> {
    decoded(object).err()
}

fn decoded(object: &Value) -> Result<Vec<BackupCopy>, Finding> {
    let copies: Result<Option<Vec<BackupCopy>>, _> =
        serde_json::from_value(object["spec"]["copies"].clone());
    match copies {
        Ok(copies) => Ok(copies.unwrap_or_default()),
        Err(error) => Err(Finding::new(OF_SCHEDULE, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        cron::Dialect,
        validate::{raw_backup, raw_schedule, undecodable_schedule},
    };

    fn said(found: &[super::Finding]) -> Vec<String> {
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_kind_of_nonsense_is_named_with_its_field() {
        let copies = json!([
            { "location": "second", "ttl": "720h" },
            { "location": "Second" },
            { "location": "first" },
            { "location": "second", "ttl": "-1h" },
        ]);
        let expected = [
            "spec.copies[1].location: \"Second\" cannot be the name of a BackupStorageLocation",
            "spec.copies[2].location: \"first\" is the location of the backup itself; name another one",
            "spec.copies[3].location: \"second\" is named twice; a location has one copy of a backup",
        ];
        let backup = json!({ "spec": { "storageLocation": "first", "copies": copies } });
        let found = said(&raw_backup(&backup));
        assert_eq!(found[..3], expected);
        assert!(found[3].starts_with("spec.copies[3].ttl: -1h"), "{found:?}");
        assert_eq!(found.len(), 4);
        let template = json!({ "storageLocation": "first" });
        let schedule =
            json!({ "spec": { "schedule": "@daily", "template": template, "copies": copies } });
        let of_schedule = said(&raw_schedule(&schedule, &[Dialect::Robfig]));
        assert_eq!(of_schedule, found);
        assert_eq!(undecodable_schedule(&schedule), []);
    }

    #[test]
    fn what_is_no_list_of_copies_is_named() {
        for copies in [
            json!("second"),
            json!(["second"]),
            json!([{ "ttl": "1h" }]),
            json!([{ "location": 7 }]),
            json!([{ "location": "second", "ttl": true }]),
        ] {
            let schedule = json!({ "spec": { "schedule": "@daily", "copies": copies } });
            for found in [
                raw_schedule(&schedule, &[Dialect::Robfig]),
                undecodable_schedule(&schedule),
                raw_backup(&json!({ "spec": { "copies": copies } })),
            ] {
                assert_eq!(found.len(), 1, "{copies}: {found:?}");
                assert_eq!(found[0].field, "spec.copies", "{copies}");
            }
        }
        for good in [
            json!(null),
            json!([]),
            json!([{ "location": "second", "ttl": null }]),
        ] {
            let schedule = json!({ "spec": { "schedule": "@daily", "copies": good } });
            assert_eq!(raw_schedule(&schedule, &[Dialect::Robfig]), [], "{good}");
        }
    }

    #[test]
    fn copies_are_bounded() {
        let copies: Vec<_> = (0..9)
            .map(|number| json!({ "location": format!("l{number}") }))
            .collect();
        let found = raw_backup(&json!({ "spec": { "copies": copies } }));
        assert!(found[0].message.starts_with("9 copies are more than the 8"));
        assert_eq!(found.len(), 1);
    }
}

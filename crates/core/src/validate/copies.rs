//! Errors in the copies of a Backup or Schedule.

use serde_json::Value;

use super::{Finding, Findings, keep_rules};
use crate::{
    api::{
        backup::BackupCopy,
        schedule::{ScheduleSpec, ScheduledCopy},
    },
    names::is_object_name,
};

/// Maximum number of copies of a backup.
const MAX_COPIES: usize = 8;
pub(super) const OF_SCHEDULE: &str = "spec.copies";

/// `own` is the location of the backup itself, if it is known.
pub(super) fn check(field: &str, copies: &[&BackupCopy], own: Option<&str>, found: &mut Findings) {
    check_number(field, copies.len(), found);
    for (at, copy) in copies.iter().enumerate() {
        let mut earlier = copies[..at].iter().map(|other| other.location.as_str());
        let is_second = earlier.any(|location| location == copy.location);
        let errors = of_one(&format!("{field}[{at}]"), copy, is_second, own);
        found.0.extend(errors);
    }
}

pub(super) fn check_number(field: &str, count: usize, found: &mut Findings) {
    if count > MAX_COPIES {
        found.say(
            field,
            format!("{count} copies are more than the {MAX_COPIES} that a backup may have"),
        );
    }
}

/// The errors in one copy. `is_second`: an earlier one is in the same location.
pub(super) fn of_one(
    field: &str,
    copy: &BackupCopy,
    is_second: bool,
    own: Option<&str>,
) -> Vec<Finding> {
    let mut found = Findings::default();
    let name = &copy.location;
    let wrong = if !is_object_name(name) {
        Some("cannot be the name of a BackupStorageLocation")
    } else if Some(name.as_str()) == own {
        Some("is the location of the backup itself; name another one")
    } else if is_second {
        Some("is named twice; a location has one copy of a backup")
    } else {
        None
    };
    if let Some(wrong) = wrong {
        found.say(format!("{field}.location"), format!("{name:?} {wrong}"));
    }
    found.not_negative(&format!("{field}.ttl"), copy.ttl);
    found.0
}

/// Adds the errors in the copies of a Schedule.
pub(super) fn and_of_schedule(found: Vec<Finding>, spec: &ScheduleSpec) -> Vec<Finding> {
    let mut all = Findings(found);
    let own = spec.template.storage_location.as_deref();
    let copies: Vec<&BackupCopy> = spec.copies.iter().map(|one| &one.copy).collect();
    check(OF_SCHEDULE, &copies, own, &mut all);
    all.0.extend(keep(&spec.copies));
    all.0
}

/// Errors in the rules of retention of the copies of a Schedule.
pub(super) fn keep(copies: &[ScheduledCopy]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (at, one) in copies.iter().enumerate() {
        let field = format!("{OF_SCHEDULE}[{at}].keep");
        let rules = one.keep.iter();
        found.extend(rules.flat_map(|rules| keep_rules::check(&field, rules)));
    }
    found
}

/// The error of a whole Schedule, as JSON, whose copies cannot be decoded.
pub(super) fn undecodable(object: &Value) -> Option<Finding> {
    decoded(object).err()
}

fn decoded(object: &Value) -> Result<Vec<ScheduledCopy>, Finding> {
    let copies: Result<Option<Vec<ScheduledCopy>>, _> =
        serde_json::from_value(object["spec"]["copies"].clone());
    match copies {
        Ok(copies) => Ok(copies.unwrap_or_default()),
        Err(error) => Err(Finding::new(OF_SCHEDULE, error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        cron::Dialect,
        validate::{raw_backup, raw_schedule, undecodable_schedule},
    };

    fn said(found: &[Finding]) -> Vec<String> {
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
        for (copies, field) in [
            (json!("second"), "spec.copies"),
            (json!({ "location": "second" }), "spec.copies"),
            (json!(["second"]), "spec.copies[0]"),
            (json!([null]), "spec.copies[0]"),
            (json!([{ "ttl": "1h" }]), "spec.copies[0].location"),
            (json!([{ "location": 7 }]), "spec.copies[0].location"),
            (
                json!([{ "location": "second", "ttl": true }]),
                "spec.copies[0].ttl",
            ),
        ] {
            let schedule = json!({ "spec": { "schedule": "@daily", "copies": copies } });
            for found in [
                raw_schedule(&schedule, &[Dialect::Robfig]),
                raw_backup(&json!({ "spec": { "copies": copies } })),
            ] {
                assert_eq!(found.len(), 1, "{copies}: {found:?}");
                assert_eq!(found[0].field, field, "{copies}");
            }
            let found = undecodable_schedule(&schedule);
            assert_eq!(found.len(), 1, "{copies}: {found:?}");
            assert_eq!(found[0].field, "spec.copies", "{copies}");
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
    fn an_undecodable_copy_hides_no_other_error() {
        let copies = json!([
            { "location": 7, "ttl": "-1h" },
            { "location": "second", "ttl": "soon" },
            { "location": "second" },
            "third",
            { "location": "" },
        ]);
        let backup = json!({ "spec": { "copies": copies, "ttl": "-2h" } });
        let fields: Vec<String> = raw_backup(&backup)
            .into_iter()
            .map(|one| one.field)
            .collect();
        assert_eq!(
            fields,
            [
                "spec.ttl",
                "spec.copies[0].location",
                "spec.copies[0].ttl",
                "spec.copies[1].ttl",
                "spec.copies[2].location",
                "spec.copies[3]",
                "spec.copies[4].location",
            ]
        );
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

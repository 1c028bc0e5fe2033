mod copies;

use serde_json::{Value, json};

use super::*;
use crate::{
    api::{BackupStorageLocation, Schedule},
    labels::SCHEDULE_NAME,
};

/// A good backup of this day of March, with a patch.
fn backup(name: &str, schedule: Option<&str>, day: u8, patch: &Value) -> RetentionFacts {
    let began = format!("2026-03-{day:02}T03:00:00Z");
    let labels = schedule.map(|name| json!({ SCHEDULE_NAME: name }));
    let mut object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "creationTimestamp": began, "labels": labels },
        "spec": { "storageLocation": "default", "includedNamespaces": ["shop"] },
        "status": { "phase": "Completed", "startTimestamp": began } });
    json_patch::merge(&mut object, patch);
    RetentionFacts::of(&serde_json::from_value(object).unwrap())
}

fn places(phases: &[(&str, &str)]) -> Places {
    let locations: Vec<BackupStorageLocation> = phases
        .iter()
        .map(|(name, phase)| {
            let spec = json!({ "provider": "aws", "objectStorage": { "bucket": "b" } });
            let object =
                json!({ "metadata": { "name": name }, "spec": spec, "status": { "phase": phase } });
            serde_json::from_value(object).unwrap()
        })
        .collect();
    Places::of(&locations)
}

fn available() -> Places {
    places(&[("default", "Available"), ("other", "Available")])
}

fn schedule(keep: &Value) -> Schedule {
    serde_json::from_value(json!({ "metadata": { "name": "nightly" },
        "spec": { "schedule": "0 3 * * *", "template": {}, "keep": keep } }))
    .unwrap()
}

fn rules(keep: &Value) -> ScheduleRules {
    let mut rules = ScheduleRules::default();
    rules.add("nightly", Ok(&schedule(keep)));
    rules
}

/// The last good backups.
fn last(backups: &[RetentionFacts], places: &Places, leaves: &[&str]) -> Vec<String> {
    let retention = Retention::new(backups, places, |one| leaves.contains(&one.name.as_str()));
    let mut found: Vec<String> = backups
        .iter()
        .filter(|one| retention.is_last_good(&one.name))
        .map(|one| one.name.clone())
        .collect();
    found.sort();
    found
}

#[test]
fn table_of_last_good_backups() {
    let good = json!({});
    let failed = json!({ "status": { "phase": "Failed" } });
    let partly = json!({ "status": { "phase": "PartiallyFailed" } });
    let running = json!({ "status": { "phase": "InProgress" } });
    let leaving = json!({ "metadata": { "deletionTimestamp": "2026-03-20T00:00:00Z" } });
    let files_missing =
        json!({ "metadata": { "annotations": { "backup-controller/files-missing": "x" } } });
    let faulty = json!({ "metadata": { "annotations": { "backup-controller/verified":
        r#"{"at":"2026-03-20T00:00:00Z","findings":2}"# } } });
    let elsewhere = json!({ "spec": { "storageLocation": "other" } });
    let other_scope = json!({ "spec": { "includedNamespaces": ["db"] } });
    for (what, older, newer, expected) in [
        ("two good ones", &good, &good, &["newer"][..]),
        ("a failed one is no replacement", &good, &failed, &["older"]),
        ("nor one with errors", &good, &partly, &["older"]),
        ("nor one that runs", &good, &running, &["older"]),
        ("nor one that is being deleted", &good, &leaving, &["older"]),
        ("nor one without files", &good, &files_missing, &["older"]),
        // In doubt: it is not removed, and replaces none.
        ("nor one with faults", &good, &faulty, &["newer", "older"]),
        ("one in another location is", &good, &elsewhere, &["newer"]),
        (
            "one of something else is not",
            &good,
            &other_scope,
            &["newer", "older"],
        ),
        ("one with errors is not good", &partly, &failed, &[]),
        ("without a good one there is none", &failed, &partly, &[]),
    ] {
        let backups = [
            backup("older", None, 1, older),
            backup("newer", None, 2, newer),
        ];
        assert_eq!(last(&backups, &available(), &[]), expected, "{what}");
    }
}

#[test]
fn the_state_of_a_location_changes_nothing_of_what_lies_in_it() {
    let elsewhere = json!({ "spec": { "storageLocation": "other" } });
    let backups = [
        backup("older", None, 1, &json!({})),
        backup("newer", None, 2, &elsewhere),
    ];
    for (phase, expected) in [
        ("Available", &["newer"][..]),
        // What cannot be restored now replaces no other, and stays.
        ("Unavailable", &["newer", "older"]),
        ("Resting", &["newer", "older"]),
    ] {
        let places = places(&[("default", "Available"), ("other", phase)]);
        assert_eq!(last(&backups, &places, &[]), expected, "{phase}");
        let both = self::places(&[("default", "Unavailable"), ("other", phase)]);
        assert!(last(&backups, &both, &[]).contains(&"newer".to_owned()));
    }
    let gone = places(&[("default", "Available")]);
    assert_eq!(last(&backups, &gone, &[]), ["newer", "older"]);
    // Its copy may go before it.
    let copied = json!({ "spec": { "storageLocation": "other" },
        "status": { "copies": [{ "location": "default", "phase": "Completed" }] } });
    let with_copy = [
        backup("older", None, 1, &json!({})),
        backup("newer", None, 2, &copied),
    ];
    assert_eq!(last(&with_copy, &gone, &[]), ["newer", "older"]);
    // Object lock or read-only: it can be restored all the same.
    let read_only: BackupStorageLocation =
        serde_json::from_value(json!({ "metadata": { "name": "other" },
        "spec": { "provider": "aws", "objectStorage": { "bucket": "b" }, "accessMode": "ReadOnly" }, "status": { "phase": "Available" } }))
        .unwrap();
    let read_only = Places::of([&read_only]);
    assert_eq!(last(&backups, &read_only, &[]), ["newer"]);
}

#[test]
fn one_that_is_about_to_go_replaces_no_other() {
    let backups = [
        backup("a", None, 1, &json!({})),
        backup("b", None, 2, &json!({})),
        backup("c", None, 3, &json!({})),
    ];
    assert_eq!(last(&backups, &available(), &[]), ["c"]);
    assert_eq!(last(&backups, &available(), &["c"]), ["b", "c"]);
    assert_eq!(last(&backups, &available(), &["b", "c"]), ["a", "b", "c"]);
    // Two that began in the same moment: one of them is the last.
    let twins = [
        backup("a", None, 1, &json!({})),
        backup("b", None, 1, &json!({})),
    ];
    assert_eq!(last(&twins, &available(), &[]), ["b"]);
}

fn kept(backups: &[RetentionFacts], rules: &ScheduleRules) -> Vec<String> {
    let places = available();
    let retention = Retention::new(backups, &places, |_| false);
    let mut kept: Vec<String> = retention
        .verdicts(rules)
        .into_iter()
        .filter(|(_, verdict)| verdict.is_kept_by_schedule())
        .map(|(name, _)| name.to_owned())
        .collect();
    kept.sort();
    kept
}

#[test]
fn only_good_backups_of_the_schedule_take_part_and_each_location_by_itself() {
    let nightly = Some("nightly");
    let failed = json!({ "status": { "phase": "Failed" } });
    let partly = json!({ "status": { "phase": "PartiallyFailed" } });
    let elsewhere = json!({ "spec": { "storageLocation": "other" } });
    let faulty = json!({ "metadata": { "annotations": { "backup-controller/verified":
        r#"{"at":"2026-03-20T00:00:00Z","findings":2}"# } } });
    let backups = [
        backup("a", nightly, 1, &json!({})),
        backup("b", nightly, 2, &json!({})),
        backup("c", nightly, 3, &json!({})),
        backup("d-failed", nightly, 4, &failed),
        backup("e-partly", nightly, 5, &partly),
        backup("f-faulty", nightly, 6, &faulty),
        backup("g-weekly", Some("weekly"), 7, &json!({})),
        backup("h-by-hand", None, 7, &json!({})),
        backup("i-elsewhere", nightly, 2, &elsewhere),
    ];
    // In doubt, the faulty one is kept as well, and takes no place.
    let two = ["b", "c", "f-faulty", "i-elsewhere"];
    assert_eq!(kept(&backups, &rules(&json!({ "last": 2 }))), two);
    assert_eq!(kept(&backups, &rules(&json!({ "daily": 2 }))), two);
    assert_eq!(kept(&backups, &rules(&json!(null))), [""; 0]);
    assert_eq!(kept(&backups, &ScheduleRules::default()), [""; 0]);
}

#[test]
fn rules_that_are_not_known_keep_everything() {
    let failed = json!({ "status": { "phase": "Failed" } });
    let backups = [
        backup("a", Some("nightly"), 1, &json!({})),
        backup("b", Some("nightly"), 2, &json!({})),
        backup("c-failed", Some("nightly"), 3, &failed),
        backup("d", Some("weekly"), 3, &json!({})),
    ];
    let mut unreadable = ScheduleRules::default();
    unreadable.add("nightly", Err("it cannot be read".to_owned()));
    assert_eq!(kept(&backups, &unreadable), ["a", "b"]);
    assert_eq!(kept(&backups, &rules(&json!({ "last": -1 }))), ["a", "b"]);
    let places = available();
    let retention = Retention::new(&backups, &places, |_| false);
    let verdicts = retention.verdicts(&unreadable);
    assert_eq!(
        verdicts["a"].unknown_rules.as_deref(),
        Some("it cannot be read")
    );
}

#[test]
fn the_rules_of_a_schedule_that_is_gone_are_those_last_recorded() {
    let noted = |text: &str| json!({ "metadata": { "annotations": { KEEP_ANNOTATION: text } } });
    let (one, two) = (r#"{"rules":{"last":1}}"#, r#"{"rules":{"last":2}}"#);
    let mut bad = noted(r#"{"rules":{"last":9}}"#);
    json_patch::merge(
        &mut bad,
        &json!({ "status": { "phase": "PartiallyFailed" } }),
    );
    let nightly = Some("nightly");
    let backups = [
        backup("a", nightly, 1, &noted(one)),
        backup("b", nightly, 2, &noted(two)),
        backup("c-by-hand", nightly, 3, &json!({})),
        backup("d-bad", nightly, 4, &bad),
    ];
    assert_eq!(
        kept(&backups, &ScheduleRules::default()),
        ["b", "c-by-hand"]
    );
    // The Schedule's own rules win, also if it has none.
    assert_eq!(kept(&backups, &rules(&json!({ "last": 1 }))), ["c-by-hand"]);
    assert_eq!(kept(&backups, &rules(&json!(null))), [""; 0]);
}

#[test]
fn facts_are_those_of_the_object() {
    let facts = backup(
        "b",
        Some("nightly"),
        1,
        &json!({ "metadata": { "uid": "u" }, "status": { "expiration": "2026-04-01T00:00:00Z" } }),
    );
    assert_eq!(
        (
            facts.name.as_str(),
            facts.uid.as_str(),
            facts.schedule.as_str(),
            facts.location()
        ),
        ("b", "u", "nightly", "default")
    );
    assert!(facts.is_stored() && !facts.was_refused && !facts.is_deleted);
    assert_eq!(
        facts.expiration,
        Some("2026-04-01T00:00:00Z".parse().unwrap())
    );
    for (phase, stored) in [
        ("PartiallyFailed", true),
        ("Failed", false),
        ("Deleting", false),
    ] {
        let facts = backup("b", None, 1, &json!({ "status": { "phase": phase } }));
        assert_eq!(facts.is_stored(), stored, "{phase}");
    }
}

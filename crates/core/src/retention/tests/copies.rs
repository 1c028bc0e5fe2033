//! Verdicts on copies.

use proptest::prelude::*;

use super::*;

fn failed() -> Value {
    json!({ "status": { "phase": "Failed" } })
}

/// The state of a copy in location `other`.
fn copied(phase: &str) -> Value {
    json!({ "status": { "copies": [{ "location": "other", "phase": phase, "uid": "u" }] } })
}

/// A copy that was imported into location `other`.
fn imported() -> Value {
    json!({ "metadata": { "annotations": { "backup-controller/copy-of": "s3://first",
        "backup-controller/imported": "2026-03-20T00:00:00Z" } }, "spec": { "storageLocation": "other" } })
}

fn merged(mut one: Value, more: &Value) -> Value {
    json_patch::merge(&mut one, more);
    one
}

/// A schedule whose backups are kept by `keep`, and their copies in `other` by `of_copies`.
fn copy_rules(keep: &Value, of_copies: &Value) -> ScheduleRules {
    let mut schedule = schedule(keep);
    let copies = json!([{ "location": "other", "keep": of_copies }]);
    schedule.spec.copies = serde_json::from_value(copies).unwrap();
    let mut rules = ScheduleRules::default();
    rules.add("nightly", Ok(&schedule));
    rules
}

/// The backups whose copies in `other` are kept; "no rules" if copies there have none.
fn kept_copies(backups: &[RetentionFacts], rules: &ScheduleRules, leaves: &[&str]) -> Vec<String> {
    let places = available();
    let retention = Retention::new(backups, &places, |one| leaves.contains(&one.name.as_str()));
    let Some(verdicts) = retention.copies(rules, "nightly", "other") else {
        return vec!["no rules".to_owned()];
    };
    let kept = verdicts
        .into_iter()
        .filter(|(_, verdict)| verdict.is_kept_by_schedule());
    kept.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn table_of_copies_that_rules_keep() {
    let done = copied("Completed");
    let none = json!({});
    let partly = merged(
        copied("Completed"),
        &json!({ "status": { "phase": "PartiallyFailed" } }),
    );
    let deleting = merged(
        copied("Completed"),
        &json!({ "status": { "phase": "Deleting" } }),
    );
    let without_files = merged(
        copied("Completed"),
        &json!({ "metadata": { "annotations": { "backup-controller/files-missing": "x" } } }),
    );
    let faulty = merged(
        copied("Completed"),
        &json!({ "metadata": { "annotations": { "backup-controller/verified":
            r#"{"at":"2026-03-20T00:00:00Z","findings":2}"# } } }),
    );
    let elsewhere =
        json!({ "status": { "copies": [{ "location": "third", "phase": "Completed" }] } });
    for (what, newer, newest, expected) in [
        ("three copies", &done, &done, &["2-newer", "3-newest"][..]),
        (
            "one without a copy takes no place",
            &done,
            &none,
            &["1-old", "2-newer"],
        ),
        (
            "nor one whose copy is elsewhere",
            &done,
            &elsewhere,
            &["1-old", "2-newer"],
        ),
        (
            "nor an incomplete one",
            &done,
            &copied("InProgress"),
            &["1-old", "2-newer"],
        ),
        (
            "nor one that is being removed",
            &done,
            &copied("Deleting"),
            &["1-old", "2-newer"],
        ),
        (
            "nor that of a backup with errors",
            &done,
            &partly,
            &["1-old", "2-newer"],
        ),
        (
            "an imported one does",
            &done,
            &imported(),
            &["2-newer", "3-newest"],
        ),
        (
            "and one whose original is lost",
            &done,
            &without_files,
            &["2-newer", "3-newest"],
        ),
        // In doubt: it is kept, and takes no place.
        (
            "one with faults",
            &done,
            &faulty,
            &["1-old", "2-newer", "3-newest"],
        ),
        (
            "one whose backup is deleted",
            &deleting,
            &done,
            &["1-old", "2-newer", "3-newest"],
        ),
    ] {
        let backups = [
            backup("1-old", Some("nightly"), 1, &done),
            backup("2-newer", Some("nightly"), 2, newer),
            backup("3-newest", Some("nightly"), 3, newest),
            backup("4-weekly", Some("weekly"), 4, &done),
            backup("5-by-hand", None, 5, &done),
        ];
        let rules = copy_rules(&json!(null), &json!({ "daily": 2 }));
        assert_eq!(kept_copies(&backups, &rules, &[]), expected, "{what}");
    }
    let old = [
        backup("1-old", Some("nightly"), 1, &deleting),
        backup("2-newer", Some("nightly"), 2, &done),
        backup("3-newest", Some("nightly"), 3, &done),
    ];
    let rules = copy_rules(&json!(null), &json!({ "daily": 2 }));
    assert_eq!(kept_copies(&old, &rules, &[]), ["2-newer", "3-newest"]);
    // The deletion of a backup is requested: its copy may go with it.
    let all = ["1-old", "2-newer", "3-newest"].map(|name| {
        let day = name.as_bytes()[0] - b'0';
        backup(name, Some("nightly"), day, &done)
    });
    assert_eq!(
        kept_copies(&all, &rules, &["3-newest"]),
        ["1-old", "2-newer", "3-newest"]
    );
}

#[test]
fn copies_have_the_rules_of_their_location_and_no_others() {
    let done = copied("Completed");
    let backups = [
        backup("1-imported", Some("nightly"), 1, &imported()),
        backup("2-imported", Some("nightly"), 2, &imported()),
        backup("3", Some("nightly"), 3, &done),
        backup("4", Some("nightly"), 4, &done),
    ];
    for (keep, of_copies, of_backups, copies) in [
        // Imported copies count among the copies.
        (
            json!({ "last": 1 }),
            json!({ "last": 3 }),
            &["2-imported", "4"][..],
            &["2-imported", "3", "4"][..],
        ),
        (json!(null), json!({ "last": 2 }), &[], &["3", "4"]),
        // Without rules of copies they are a series of backups, and other copies are in none.
        (
            json!({ "last": 1 }),
            json!(null),
            &["2-imported", "4"],
            &["no rules"],
        ),
        (
            json!(null),
            json!({ "last": -1 }),
            &["1-imported", "2-imported", "3", "4"],
            &["1-imported", "2-imported", "3", "4"],
        ),
    ] {
        let rules = copy_rules(&keep, &of_copies);
        assert_eq!(kept(&backups, &rules), of_backups, "{keep} {of_copies}");
        assert_eq!(
            kept_copies(&backups, &rules, &[]),
            copies,
            "{keep} {of_copies}"
        );
    }
    // The Schedule is gone, or in another cluster.
    let record = json!({ "metadata": { "annotations": { KEEP_ANNOTATION:
        r#"{"rules":{"last":1},"copies":{"other":{"last":2}}}"# } } });
    let recorded = [
        backup("1", Some("nightly"), 1, &merged(imported(), &record)),
        backup("2", Some("nightly"), 2, &merged(imported(), &record)),
        backup("3", Some("nightly"), 3, &merged(imported(), &record)),
    ];
    let gone = ScheduleRules::default();
    assert_eq!(kept(&recorded, &gone), ["2", "3"]);
    assert_eq!(kept_copies(&recorded, &gone, &[]), ["2", "3"]);
    assert_eq!(kept_copies(&backups, &gone, &[]), ["no rules"]);
}

#[test]
fn table_of_last_good_copies() {
    let away = places(&[("default", "Unavailable"), ("other", "Available")]);
    let gone = places(&[("other", "Available")]);
    let done = copied("Completed");
    let none = json!({});
    let running = copied("InProgress");
    let elsewhere = json!({ "spec": { "storageLocation": "other" } });
    let without_files = merged(
        copied("Completed"),
        &json!({ "metadata": { "annotations": { "backup-controller/files-missing": "x" } } }),
    );
    let lost_here = merged(
        imported(),
        &json!({ "metadata": { "annotations": { "backup-controller/files-missing": "x" } } }),
    );
    let deleting = merged(
        copied("Completed"),
        &json!({ "status": { "phase": "Deleting" } }),
    );
    let partly = merged(
        copied("Completed"),
        &json!({ "status": { "phase": "PartiallyFailed" } }),
    );
    let other_scope = merged(
        copied("Completed"),
        &json!({ "spec": { "includedNamespaces": ["db"] } }),
    );
    for (what, places, older, newer, expected) in [
        (
            "its location is away",
            &away,
            &done,
            &failed(),
            &["1-older"][..],
        ),
        ("it can be read", &available(), &done, &failed(), &[]),
        ("it is gone", &gone, &done, &failed(), &["1-older"]),
        (
            "its files are gone",
            &available(),
            &without_files,
            &failed(),
            &["1-older"],
        ),
        (
            "it is being deleted",
            &available(),
            &deleting,
            &failed(),
            &["1-older"],
        ),
        ("it has errors", &gone, &partly, &failed(), &[]),
        ("the copy is incomplete", &gone, &running, &failed(), &[]),
        (
            "a newer one can be read",
            &available(),
            &without_files,
            &none,
            &[],
        ),
        ("a newer one elsewhere", &gone, &done, &elsewhere, &[]),
        (
            "a newer one that is away, too",
            &gone,
            &done,
            &none,
            &["1-older"],
        ),
        ("a newer copy", &gone, &done, &done, &["2-newer"]),
        (
            "a newer copy whose original is lost",
            &gone,
            &done,
            &without_files,
            &["2-newer"],
        ),
        (
            "a newer incomplete copy",
            &gone,
            &done,
            &running,
            &["1-older"],
        ),
        (
            "a newer copy that was imported",
            &gone,
            &done,
            &imported(),
            &[],
        ),
        // A backup in its own location is judged by its own files.
        (
            "that has lost its files",
            &gone,
            &done,
            &lost_here,
            &["1-older"],
        ),
        (
            "of something else",
            &gone,
            &done,
            &other_scope,
            &["1-older", "2-newer"],
        ),
    ] {
        let backups = [
            backup("1-older", None, 1, older),
            backup("2-newer", None, 2, newer),
        ];
        let retention = Retention::new(&backups, places, |_| false);
        let found: Vec<&str> = ["1-older", "2-newer"]
            .into_iter()
            .filter(|name| retention.is_last_good_copy(name, "other"))
            .collect();
        assert_eq!(found, expected, "{what}");
    }
    let both = ["1-older", "2-newer"].map(|name| backup(name, None, 1, &done));
    let leaving = Retention::new(&both, &gone, |one| one.name == "2-newer");
    assert!(leaving.is_last_good_copy("1-older", "other"));
    assert!(!leaving.is_last_good_copy("1-older", "third"));
    assert!(!leaving.is_last_good_copy("0-unknown", "other"));
}

proptest! {
    /// Copies that go one after the other, each decided on what is left, leave a good one.
    #[test]
    fn some_copy_stays_while_no_backup_can_be_read(
        days in proptest::collection::btree_set(1_u8..29, 1..12),
        order in Just((0_usize..12).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut left: Vec<RetentionFacts> = days.iter().map(|day| {
            backup(&format!("b-{day:02}"), None, *day, &copied("Completed"))
        }).collect();
        let newest = left.last().map(|one| one.name.clone()).unwrap_or_default();
        let gone = places(&[("other", "Available")]);
        let names: Vec<String> = left.iter().map(|one| one.name.clone()).collect();
        for name in order.into_iter().filter_map(|at| names.get(at)) {
            let is_last = Retention::new(&left, &gone, |_| false).is_last_good_copy(name, "other");
            if !is_last {
                left.retain(|one| one.name != *name);
            }
        }
        prop_assert_eq!(left.into_iter().map(|one| one.name).collect::<Vec<_>>(), [newest]);
    }

    /// The verdict on a copy does not depend on whether its backup still exists.
    #[test]
    fn a_copy_is_kept_alike_before_and_after_its_import(
        days in proptest::collection::btree_set(1_u8..29, 1..20),
        gone in proptest::collection::vec(any::<bool>(), 20),
        last in 0_i64..4,
        weekly in 1_i64..4,
    ) {
        let rules = copy_rules(&json!(null), &json!({ "last": last, "weekly": weekly }));
        let made = |is_gone: &dyn Fn(usize) -> bool| -> Vec<RetentionFacts> {
            let days = days.iter().enumerate();
            days.map(|(at, day)| {
                let patch = if is_gone(at) { imported() } else { copied("Completed") };
                backup(&format!("b-{day:02}"), Some("nightly"), *day, &patch)
            })
            .collect()
        };
        let before = made(&|_| false);
        let after = made(&|at| gone[at]);
        prop_assert_eq!(kept_copies(&before, &rules, &[]), kept_copies(&after, &rules, &[]));
        let verdicts = kept_copies(&after, &rules, &[]);
        let of_backups = kept(&after, &rules);
        for one in after.iter().filter(|one| one.is_copy()) {
            prop_assert_eq!(of_backups.contains(&one.name), verdicts.contains(&one.name));
        }
    }
}

//! The fields that protect backups (`keep`, `verify`, `copies`, `prune`) with every kind of invalid
//! value: admission names all of them at once.

use super::*;
use crate::{api::schedule::ScheduleSpec, cron::Dialect};

/// The fields with errors of a Schedule whose backups are in location `first`.
fn of_schedule(fields: &Value) -> Vec<String> {
    let mut spec = json!({ "schedule": "@daily", "template": { "storageLocation": "first" } });
    json_patch::merge(&mut spec, fields);
    let found = raw_schedule(&json!({ "spec": spec }), &Dialect::ALL);
    assert!(found.iter().all(|one| !one.message.is_empty()), "{found:?}");
    // The command and the controller see the decoded object.
    if let Ok(decoded) = serde_json::from_value::<ScheduleSpec>(spec) {
        assert_eq!(engine_schedule(&decoded, &Dialect::ALL), found);
        assert_eq!(schedule(&decoded, &Dialect::ALL), found);
    }
    found.into_iter().map(|one| one.field).collect()
}

#[rstest::rstest]
#[case::negative(
    json!({ "keep": { "daily": -1 }, "verify": { "every": "-1h" }, "copies": [{ "location": "a", "ttl": "-1h" }] }),
    &["spec.keep.daily", "spec.verify.every", "spec.copies[0].ttl"],
)]
#[case::zero(json!({ "keep": { "daily": 0 }, "verify": { "every": "0s" } }), &["spec.keep", "spec.verify.every"])]
#[case::huge(
    json!({ "keep": { "last": 10_001 }, "verify": { "every": "8785h" }, "copies": [{ "location": "a", "ttl": "3000000h" }] }),
    &["spec.keep.last", "spec.verify.every", "spec.copies[0].ttl"],
)]
#[case::no_integer(json!({ "keep": { "daily": 0.5, "last": 1e300 } }), &["spec.keep.daily", "spec.keep.last"])]
#[case::of_another_type(
    json!({ "keep": { "daily": "7" }, "verify": { "every": 24, "which": [] }, "copies": [{ "location": {}, "ttl": 1 }] }),
    &["spec.keep.daily", "spec.verify.every", "spec.verify.which", "spec.copies[0].location", "spec.copies[0].ttl"],
)]
#[case::no_objects(
    json!({ "keep": 7, "verify": true, "copies": "second" }),
    &["spec.keep", "spec.verify", "spec.copies"],
)]
#[case::empty(
    json!({ "keep": {}, "verify": {}, "copies": [{}] }),
    &["spec.keep", "spec.verify.every", "spec.copies[0].location"],
)]
#[case::empty_texts(
    json!({ "verify": { "every": "", "which": "" }, "copies": [{ "location": "", "ttl": "" }] }),
    &["spec.verify.every", "spec.verify.which", "spec.copies[0].ttl", "spec.copies[0].location"],
)]
#[case::unknown_units(
    json!({ "verify": { "every": "7d" }, "copies": [{ "location": "a", "ttl": "1y" }] }),
    &["spec.verify.every", "spec.copies[0].ttl"],
)]
#[case::unknown_words(
    json!({ "keep": { "dayly": 7 }, "verify": { "every": "1h", "which": "oldest" } }),
    &["spec.keep", "spec.verify.which"],
)]
#[case::twice_and_into_its_own_location(
    json!({ "copies": [{ "location": "a" }, { "location": "first" }, { "location": "a" }, { "location": "A" }] }),
    &["spec.copies[1].location", "spec.copies[2].location", "spec.copies[3].location"],
)]
#[case::too_many(
    json!({ "copies": (1..10).map(|number| json!({ "location": format!("l{number}") })).collect::<Vec<_>>() }),
    &["spec.copies"],
)]
fn a_schedule_is_refused_for_all_of_it(#[case] fields: Value, #[case] expected: &[&str]) {
    assert_eq!(of_schedule(&fields), expected);
    // The same list in a Backup, and in a template.
    let backup = json!({ "spec": { "storageLocation": "first", "copies": fields["copies"] } });
    let found = raw_backup(&backup);
    let of_copies = expected
        .iter()
        .filter(|field| field.starts_with("spec.copies"));
    assert_eq!(
        super::fields(&found),
        of_copies.copied().collect::<Vec<_>>()
    );
    let of_template = of_schedule(&json!({ "template": { "copies": fields["copies"] } }));
    assert_eq!(of_template.len(), found.len(), "{of_template:?}");
}

#[rstest::rstest]
#[case::rules_for_years(json!({ "keep": { "yearly": 10_000 } }))]
#[case::each_minute_and_once_a_year(json!({ "verify": { "every": "1m", "which": "all" } }))]
#[case::as_long_as_the_backup(json!({ "copies": [{ "location": "a", "ttl": "0s" }] }))]
#[case::longer_than_anyone_waits(json!({ "copies": [{ "location": "a", "ttl": "2562047h" }] }))]
#[case::unset(json!({ "keep": null, "verify": null, "copies": null }))]
fn a_schedule_may_say(#[case] fields: Value) {
    assert_eq!(of_schedule(&fields), [""; 0]);
}

#[test]
fn removals_are_asked_for_by_true_or_false() {
    for prune in [json!("yes"), json!(1), json!([]), json!({})] {
        let restore =
            json!({ "spec": { "backupName": "b", "prune": prune, "itemOperationTimeout": "-1h" } });
        let found = raw_restore(&restore);
        assert_eq!(
            fields(&found),
            ["spec.prune", "spec.itemOperationTimeout"],
            "{prune}"
        );
    }
}

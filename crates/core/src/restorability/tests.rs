use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const CREATED: &str = "2026-11-03T03:00:00Z";

fn judged(patch: &Value, place: Option<&Place>) -> Restorability {
    let mut object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": "b", "creationTimestamp": CREATED },
        "spec": { "storageLocation": "default" },
        "status": { "phase": "Completed", "startTimestamp": CREATED } });
    json_patch::merge(&mut object, patch);
    Evidence::of(&serde_json::from_value(object).unwrap()).judge(place)
}

fn place(phase: Option<&str>, synced: Option<&str>) -> Place {
    let synced = synced.map(|at| at.parse().unwrap());
    let phase = phase.map(LocationPhase::from);
    Place::Found {
        phase,
        synced,
        is_read_only: false,
        is_default: false,
        created: None,
    }
}

#[test]
fn of_a_copy_it_is_said_when_it_was_recorded() {
    let copies = json!([{ "location": "a", "phase": "Completed",
        "completionTimestamp": "2026-11-03T04:00:00Z" }]);
    let found = judged(
        &json!({ "status": { "copies": copies } }),
        Some(&Place::Copied("a".to_owned())),
    );
    assert_eq!(found.answer, Answer::Yes);
    assert_eq!(
        found.reasons,
        ["from its copy in location a, as recorded 2026-11-03"]
    );
}

#[test]
fn a_backup_with_data_in_a_damaged_repository_can_be_restored_in_part() {
    let why = "the data of its volumes may rely on data that is damaged";
    let judged = |phase: &str, place: &Place| {
        let object = json!({ "metadata": { "name": "b", "creationTimestamp": CREATED },
            "spec": { "storageLocation": "default" },
            "status": { "phase": phase, "startTimestamp": CREATED } });
        let mut evidence = Evidence::of(&serde_json::from_value(object).unwrap());
        evidence.finds_damaged_data();
        evidence.judge(Some(place))
    };
    let available = place(Some("Available"), None);
    let copied = Place::Copied("second".to_owned());
    for place in [&available, &copied] {
        let found = judged("Completed", place);
        assert_eq!((found.answer, found.is_good), (Answer::Partly, true));
        assert_eq!(found.reasons, [why]);
    }
    let found = judged("PartiallyFailed", &available);
    assert_eq!(found.reasons, ["all but the items with errors", why]);
    let found = judged("Completed", &Place::Gone);
    assert_eq!(found.answer, Answer::No, "worse is said first");
    assert_eq!(judged("Failed", &available).answer, Answer::No);
}

#[test]
fn a_copy_counts_where_the_own_location_cannot_be_read() {
    let object = |annotations: Value| {
        let copies =
            json!(["a", "b"].map(|name| json!({ "location": name, "phase": "Completed" })));
        let object = json!({ "metadata": { "name": "x", "creationTimestamp": CREATED, "annotations": annotations },
            "spec": { "storageLocation": "own" },
            "status": { "phase": "Completed", "startTimestamp": CREATED, "copies": copies } });
        Evidence::of(&serde_json::from_value(object).unwrap())
    };
    let places = |own: Option<&str>, of_a: &str| {
        let of_a = ("a".to_owned(), place(Some(of_a), None));
        let of_b = ("b".to_owned(), place(Some("Available"), None));
        let own = own.map(|phase| ("own".to_owned(), place(Some(phase), None)));
        Places(Ok([of_a, of_b].into_iter().chain(own).collect()))
    };
    let whole = object(json!({}));
    let without_files = object(json!({ FILES_MISSING_ANNOTATION: "" }));
    let faults = r#"{"at":"2026-11-03T05:14:12Z","findings":2}"#;
    let damaged = object(json!({ VERIFIED_ANNOTATION: faults }));
    for (evidence, own, of_a, expected) in [
        (&whole, Some("Available"), "Available", "Yes []"),
        (
            &whole,
            Some("Unavailable"),
            "Available",
            "Yes [\"from its copy in location a\"]",
        ),
        (
            &whole,
            None,
            "Unavailable",
            "Yes [\"from its copy in location b\"]",
        ),
        (
            &without_files,
            Some("Available"),
            "Available",
            "Yes [\"from its copy in location a\"]",
        ),
        (
            &damaged,
            Some("Available"),
            "Available",
            "Unknown [\"2 faults in its files in location own, and its copy in location a was not verified\"]",
        ),
    ] {
        let place = places(own, of_a).of_backup(evidence);
        let judged = evidence.judge(Some(&place));
        let found = format!("{:?} {:?}", judged.answer, judged.reasons);
        assert_eq!(found, expected);
    }
}

fn annotated(name: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { name: value } } })
}

#[rstest]
#[case::good(json!({}), Answer::Yes, "")]
#[case::some_items(json!({ "status": { "phase": "PartiallyFailed" } }), Answer::Partly, "all but the items with errors")]
#[case::failed(json!({ "status": { "phase": "Failed" } }), Answer::No, "it failed")]
#[case::refused(json!({ "status": { "phase": "FailedValidation" } }), Answer::No, "it never ran")]
#[case::deleting(json!({ "status": { "phase": "Deleting" } }), Answer::No, "it is being deleted")]
#[case::deleted(json!({ "metadata": { "deletionTimestamp": CREATED } }), Answer::No, "it is being deleted")]
#[case::runs(json!({ "status": { "phase": "InProgress" } }), Answer::Later, "once it has ended")]
#[case::later_phase(json!({ "status": { "phase": "Compacting" } }), Answer::Unknown, "its phase is not known here")]
#[case::no_location(json!({ "spec": { "storageLocation": null } }), Answer::Unknown, "it names no location")]
#[case::files_missing(
    annotated(FILES_MISSING_ANNOTATION, ""),
    Answer::No,
    "its files are not in location default"
)]
#[case::faults(
    annotated(VERIFIED_ANNOTATION, r#"{"at":"2026-11-03T05:14:12Z","findings":2}"#),
    Answer::Unknown,
    "2 faults in its files"
)]
#[case::verified(
    annotated(VERIFIED_ANNOTATION, r#"{"at":"2026-11-03T05:14:12Z","findings":0}"#),
    Answer::Yes,
    ""
)]
#[case::without_data(
    annotated(MISSING_DATA_ANNOTATION, r#"{"missing":2,"of":3,"volumes":{}}"#),
    Answer::Partly,
    "without the data of 2 volumes"
)]
#[case::with_all_data(
    annotated(MISSING_DATA_ANNOTATION, r#"{"missing":0,"of":3,"volumes":{}}"#),
    Answer::Yes,
    ""
)]
#[case::in_a_repository(
    annotated(DATA_ELSEWHERE_ANNOTATION, r#"{"missing":1,"of":1,"volumes":{}}"#),
    Answer::Partly,
    "the data of 1 volume is where only a Velero server reads it"
)]
#[case::empty(
    json!({ "status": { "progress": { "totalItems": 0, "itemsBackedUp": 0 } } }),
    Answer::No,
    "there is nothing in it"
)]
#[case::not_empty(json!({ "status": { "progress": { "totalItems": 2, "itemsBackedUp": 2 } } }), Answer::Yes, "")]
#[case::files_copied_by_another_server(
    json!({ "spec": { "defaultVolumesToFsBackup": true } }),
    Answer::Unknown,
    "its volumes may be in a repository, and whether they can be read here is not known"
)]
#[case::data_moved_by_another_server(
    json!({ "spec": { "snapshotMoveData": true } }),
    Answer::Unknown,
    "its volumes may be in a repository, and whether they can be read here is not known"
)]
#[case::moved_and_noted(
    json!({ "spec": { "snapshotMoveData": true },
        "metadata": { "annotations": { MISSING_DATA_ANNOTATION: r#"{"missing":0,"of":3,"volumes":{}}"# } } }),
    Answer::Yes,
    ""
)]
#[case::moved_by_us_in_part(
    json!({ "spec": { "snapshotMoveData": true },
        "metadata": { "annotations": { MISSING_DATA_ANNOTATION: r#"{"missing":1,"of":3,"volumes":{}}"# } } }),
    Answer::Partly,
    "without the data of 1 volume"
)]
#[case::applied(json!({ "status": { "startTimestamp": null } }), Answer::Unknown, "it was created with its phase, and its files were not looked for yet")]
#[case::copied(json!({ "status": { "startTimestamp": "2026-11-02T03:00:00Z" } }), Answer::Unknown, "it was created with its phase, and its files were not looked for yet")]
fn each_thing_that_is_known_counts(
    #[case] patch: Value,
    #[case] answer: Answer,
    #[case] reason: &str,
) {
    let found = judged(&patch, Some(&place(Some("Available"), None)));
    assert_eq!(
        (found.answer, found.reasons.join("; ").as_str()),
        (answer, reason)
    );
    // The worst answer counts.
    let found = judged(&patch, Some(&Place::Gone));
    let never = [
        "its phase is not known here",
        "it names no location",
        "once it has ended",
    ];
    assert_eq!(
        found.answer == Answer::No,
        !never.contains(&reason),
        "{found:?}"
    );
    assert!(!found.is_good);
}

#[test]
fn the_location_counts() {
    for (place, answer, reason) in [
        (
            place(Some("Unavailable"), None),
            Answer::No,
            "location default is Unavailable",
        ),
        (
            place(None, None),
            Answer::Unknown,
            "location default was not checked yet",
        ),
        (
            place(Some("Later"), None),
            Answer::Unknown,
            "location default is Later",
        ),
        (Place::Gone, Answer::No, "location default does not exist"),
        (
            Place::Unread("forbidden".to_owned()),
            Answer::Unknown,
            "location default could not be read: forbidden",
        ),
    ] {
        let found = judged(&json!({}), Some(&place));
        assert_eq!(
            (found.answer, found.reasons, found.is_good),
            (answer, vec![reason.to_owned()], false)
        );
    }
    assert!(judged(&json!({}), None).is_good);
    let places = Places(Ok(BTreeMap::new()));
    assert_eq!(places.find("default"), Place::Gone);
}

#[test]
fn one_that_came_with_its_phase_is_good_when_the_bucket_was_compared() {
    let copied = json!({ "status": { "startTimestamp": "2026-11-02T03:00:00Z" } });
    let answer = |synced| judged(&copied, Some(&place(Some("Available"), Some(synced)))).answer;
    assert_eq!(answer(CREATED), Answer::Unknown);
    assert_eq!(answer("2026-11-03T03:05:00Z"), Answer::Yes);
    let mut imported = copied.clone();
    json_patch::merge(&mut imported, &annotated(IMPORTED_ANNOTATION, ""));
    assert_eq!(
        judged(&imported, Some(&place(Some("Available"), None))).answer,
        Answer::Yes
    );
}

#[test]
fn what_has_seen_the_files_knows_better() {
    let mut evidence = Evidence::of(&Backup::default());
    evidence.stage = Stage::Completed;
    evidence.location = "default".to_owned();
    let here = place(Some("Available"), None);
    assert_eq!(evidence.judge(Some(&here)).answer, Answer::Unknown);
    evidence.finds_files();
    assert!(evidence.judge(Some(&here)).is_good);
    evidence.finds_bad_files("the list cannot be used".to_owned());
    assert_eq!(evidence.judge(Some(&here)).answer, Answer::Unknown);
    evidence.finds_no_files();
    assert_eq!(evidence.judge(Some(&here)).answer, Answer::No);
    // One file proves nothing about the others.
    evidence.finds_files();
    assert_eq!(evidence.judge(Some(&here)).answer, Answer::No);
}

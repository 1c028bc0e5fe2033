//! The text of a ledger.

use std::collections::BTreeMap;

use backup_core::api::{BackupSpec, RestoreSpec};
use proptest::prelude::*;
use rstest::rstest;

use super::*;

#[rstest]
#[case::empty("", "can't be read")]
#[case::no_json("holder=me", "can't be read")]
#[case::no_version("{}", "can't be read")]
#[case::format_0(
    r#"{"v":0,"epoch":1,"bound":1,"footprints":[],"claims":[]}"#,
    "format 0"
)]
#[case::objects_with_field_names(
    r#"{"v":1,"epoch":1,"bound":1,"footprints":[{"ns":"all"}],"claims":[{"kind":"Backup","ns":"v","name":"b","entries":[]}]}"#,
    "can't be read"
)]
#[case::no_epoch(r#"{"v":1,"bound":0,"footprints":[],"claims":[]}"#, "epoch")]
#[case::no_bound(r#"{"v":1,"epoch":1,"footprints":[],"claims":[]}"#, "bound")]
#[case::unknown_status(
    r#"{"v":1,"status":"Ajar","epoch":1,"bound":1,"footprints":[],"claims":[]}"#,
    "Ajar"
)]
#[case::unknown_state(r#"{"v":1,"epoch":1,"bound":1,"footprints":[{"ns":"all"}],"claims":[["Backup","v","b",[["1",0,"Asleep",1,""]]]]}"#, "Asleep")]
#[case::last_epoch(
    r#"{"v":1,"epoch":18446744073709551615,"bound":0,"footprints":[],"claims":[]}"#,
    "no ledger reaches"
)]
#[case::last_bound(
    r#"{"v":1,"epoch":1,"bound":18446744073709551615,"footprints":[],"claims":[]}"#,
    "no ledger reaches"
)]
#[case::dangling(
    r#"{"v":1,"epoch":1,"bound":1,"footprints":[],"claims":[["Backup","v","b",[["1",0,"Reserved",1,""]]]]}"#,
    "footprint 0"
)]
#[case::twice(
    r#"{"v":1,"epoch":1,"bound":1,"footprints":[],"claims":[["Backup","v","b",[]],["Backup","v","b",[]]]}"#,
    "twice"
)]
fn what_is_no_ledger_of_this_version_is_unreadable(#[case] text: &str, #[case] says: &str) {
    let error = Ledger::from_json(text).unwrap_err();
    assert!(matches!(error, FormatError::Unreadable(_)), "{error}");
    assert_says!(error, says);
}

#[test]
fn a_newer_format_is_told_apart_whatever_else_it_holds() {
    for text in [
        r#"{"v":2}"#,
        r#"{"v":2,"something":"else"}"#,
        r#"{"v":4000000000,"epoch":"many"}"#,
    ] {
        let error = Ledger::from_json(text).unwrap_err();
        assert!(matches!(error, FormatError::Newer { .. }), "{error}");
        assert_says!(error, "update this program");
    }
}

#[test]
fn the_text_begins_with_its_version() {
    // A policy of the cluster compares this without reading the rest.
    assert!(
        Ledger::default().to_json().starts_with(r#"{"v":1,"#),
        "{}",
        Ledger::default().to_json()
    );
}

/// A hold, an Active restore, and a Waiting one.
pub(super) const WRITTEN: &str = concat!(
    r#"{"v":1,"epoch":7,"bound":40,"footprints":[{"ns":{"only":["a"]}},{"ns":{"only":["a","b"]},"backup":"v/b"}],"#,
    r#""claims":[["Hold","","upgrade",[["h",0,"Reserved",5,"2026-11-21T10:00:00Z",{"note":"maintenance"}]]],"#,
    r#"["Restore","v","r",[["1",1,"Active",6,"2026-11-21T10:01:00Z",{"forced":true}]]],"#,
    r#"["Restore","v","r2",[["2",0,"Waiting",7,"2026-11-21T10:02:00Z",{"suspect":true}]]]]}"#
);

/// The promise of compatibility begins with this text: a later format still reads it.
#[test]
fn the_first_format_is_read_and_written() {
    let ledger = Ledger::from_json(WRITTEN).unwrap();
    let hold = ObjectKey::new(ObjectKind::Hold, "", "upgrade");
    assert_eq!(ledger.entry(&hold, "h").unwrap().note, "maintenance");
    assert_eq!(ledger.to_json(), WRITTEN);
}

/// In both directions: a ledger of an older version lacks fields, and one of a newer version may
/// have fields that this version drops.
#[test]
fn a_ledger_of_another_version_of_one_format_is_read() {
    for special in [
        "",
        ",{}",
        r#",{"note":"n"}"#,
        r#",{"note":"n","colour":"blue"}"#,
    ] {
        let text = format!(
            r#"{{"v":1,"epoch":1,"bound":9,"footprints":[{{"ns":"all"}}],
                "claims":[["Backup","v","b",[["1",0,"Reserved",1,"now"{special}]]]]}}"#
        );
        let ledger = Ledger::from_json(&text).unwrap();
        let entry = ledger.entry(&ObjectKey::backup("v", "b"), "1").unwrap();
        assert_eq!(
            (entry.renewals, entry.revives.as_str()),
            (0, ""),
            "{special}"
        );
    }
}

#[test]
fn the_highest_epoch_of_all_is_read() {
    let text = format!(r#"{{"v":1,"epoch":{MAX_EPOCH},"bound":0,"footprints":[],"claims":[]}}"#);
    assert_eq!(Ledger::from_json(&text).unwrap().epoch, MAX_EPOCH);
}

#[test]
fn an_entry_with_nothing_special_is_written_without_it() {
    let text = with_entry(&backup("b"), "1", State::Reserved).to_json();
    assert!(!text.contains("{}"), "{text}");
}

#[test]
fn equal_footprints_are_written_once() {
    let mut ledger = Ledger::default();
    for n in 0..50 {
        admit(
            &mut ledger,
            &backup(&format!("b{n}")),
            "1",
            &["one-very-recognisable-namespace"],
        )
        .unwrap();
    }
    assert_eq!(
        ledger
            .to_json()
            .matches("one-very-recognisable-namespace")
            .count(),
        1
    );
}

/// Any text that JSON can hold: with quotes, control characters and letters of several bytes.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9-]{0,40}",
        "[\"\\\\\u{1}\n\t\u{7f}é€😀a]{0,60}",
        proptest::collection::vec(any::<char>(), 0..40)
            .prop_map(|chars| chars.into_iter().collect()),
    ]
}

fn any_footprint() -> impl Strategy<Value = Footprint> {
    let list = || proptest::collection::vec(any_text(), 0..5);
    prop_oneof![
        (list(), list(), any::<Option<bool>>()).prop_map(
            |(included_namespaces, excluded_namespaces, cluster)| {
                Footprint::of_backup(&BackupSpec {
                    included_namespaces,
                    excluded_namespaces,
                    include_cluster_resources: cluster,
                    ..BackupSpec::default()
                })
            }
        ),
        (list(), any_text()).prop_map(|(included_namespaces, backup)| {
            let spec = RestoreSpec {
                included_namespaces,
                ..RestoreSpec::default()
            };
            Footprint::of_restore(&spec, None).from_backup("velero", Some(&backup))
        }),
        Just(Footprint::everything()),
    ]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    const WORDS: [Word; 4] = [
        Word::Refused,
        Word::Expected,
        Word::Remembered,
        Word::Insisting,
    ];
    let state = (
        proptest::sample::select(&State::ALL[..]),
        proptest::sample::select(&WORDS[..]),
        0..=MAX_EPOCH,
        any::<u32>(),
        any::<[bool; 2]>(),
    );
    let texts = (any_text(), any_text(), any_text(), any_text(), any_text());
    (texts, state, any_footprint()).prop_map(
        |(
            (uid, since, note, revives, requester),
            (state, word, epoch, renewals, [suspect, forced]),
            footprint,
        )| {
            // Only intents have one.
            let word = if state == State::Intent {
                word
            } else {
                Word::default()
            };
            Entry {
                uid,
                footprint,
                state,
                epoch,
                since,
                suspect,
                forced,
                note,
                renewals,
                revives,
                requester,
                word,
            }
        },
    )
}

fn any_ledger() -> impl Strategy<Value = Ledger> {
    const STATUSES: [Status; 4] = [
        Status::Opening,
        Status::Open,
        Status::Rebuilding,
        Status::Closed,
    ];
    let kind = proptest::sample::select(&ObjectKind::ALL[..]);
    let key = (kind, any_text(), any_text())
        .prop_map(|(kind, ns, name)| ObjectKey::new(kind, &ns, &name));
    let claims =
        proptest::collection::btree_map(key, proptest::collection::vec(any_entry(), 1..4), 0..6);
    (
        proptest::sample::select(&STATUSES[..]),
        0..=MAX_EPOCH,
        0..=MAX_EPOCH,
        claims,
    )
        .prop_map(
            |(status, epoch, bound, claims): (_, _, _, BTreeMap<ObjectKey, Vec<Entry>>)| Ledger {
                status,
                epoch,
                bound,
                claims: claims
                    .into_iter()
                    .map(|(key, entries)| Claim { key, entries })
                    .collect(),
                rules: Rules::default(),
            },
        )
}

proptest! {
    #[test]
    fn what_was_written_is_read_again(ledger in any_ledger()) {
        prop_assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger);
    }

    #[test]
    fn the_size_that_is_reckoned_with_is_never_less_than_the_real_one(ledger in any_ledger()) {
        let (most, real) = (ledger.bytes_at_most(), ledger.to_json().len());
        prop_assert!(most >= real, "{most} < {real}");
    }

    #[test]
    fn any_text_is_a_ledger_or_an_error(text in ".{0,200}") {
        let _ = Ledger::from_json(&text);
    }
}

//! Which objects keep which others out.

use rstest::rstest;

use super::*;

/// The footprint of an object of this kind: one that overlaps all the others, or one of its own.
fn touching(kind: ObjectKind, shared: bool) -> Footprint {
    let name = if shared {
        "shared".to_owned()
    } else {
        format!("{kind}-only").to_lowercase()
    };
    match kind {
        ObjectKind::Backup | ObjectKind::Hold | ObjectKind::Restore => {
            on(&[&name]).from_backup("velero", Some(&name))
        }
        ObjectKind::DeleteBackupRequest | ObjectKind::Deletion => {
            Footprint::of_deletion("velero", &name)
        }
    }
}

#[rstest]
fn two_claims_conflict_as_the_table_of_kinds_says_and_only_where_they_meet(
    #[values(true, false)] meet: bool,
    #[values(true, false)] backups_exclude_each_other: bool,
) {
    use ObjectKind::{Backup, DeleteBackupRequest, Deletion, Hold, Restore};
    let (yes, no, backups) = (true, false, backups_exclude_each_other);
    let kinds = [Restore, Backup, DeleteBackupRequest, Deletion, Hold];
    let table = [
        (Restore, [yes, yes, yes, yes, yes]),
        (Backup, [yes, backups, no, no, yes]),
        (DeleteBackupRequest, [yes, no, no, no, yes]),
        (Deletion, [yes, no, no, no, yes]),
        (Hold, [yes, yes, yes, yes, no]),
    ];
    for (first, row) in table {
        for (second, excluded) in kinds.into_iter().zip(row) {
            let rules = Rules {
                backups_exclude_each_other,
                ..Rules::default()
            };
            let mut ledger = Ledger {
                rules,
                ..Ledger::default()
            };
            let (one, other) = (
                ObjectKey::new(first, "velero", "x"),
                ObjectKey::new(second, "velero", "y"),
            );
            ledger
                .admit(&one, "1", &touching(first, true), SINCE, &Ask::default())
                .unwrap();
            let before = ledger.clone();
            let outcome =
                ledger.admit(&other, "2", &touching(second, meet), SINCE, &Ask::default());
            if excluded && meet {
                assert_eq!(blockers(outcome), [one], "{first} then {second}");
                assert_eq!(ledger, before, "a refusal leaves nothing behind");
            } else {
                assert_eq!(
                    outcome,
                    Ok(Grant::Reserved),
                    "{first} then {second}, meeting: {meet}"
                );
            }
        }
    }
}

#[test]
fn every_kind_is_in_the_table() {
    let mut kinds = ObjectKind::ALL.to_vec();
    kinds.sort();
    kinds.dedup();
    assert_eq!(kinds.len(), 5);
}

#[test]
fn an_entry_keeps_newcomers_out_as_its_state_says() {
    use ObjectKind::{Backup, DeleteBackupRequest, Deletion, Hold, Restore};
    let all = ObjectKind::ALL.as_slice();
    for (state, kept_out) in [
        (State::Active, all),
        (State::Settling, all),
        (State::Reserved, all),
        (State::Waiting, all),
        (State::Intent, &[Backup][..]),
        (State::Collected, &[Restore, Hold][..]),
        (State::Released, &[][..]),
    ] {
        for newcomer in [Restore, Backup, DeleteBackupRequest, Deletion, Hold] {
            let entry = Entry::new("1", Footprint::everything(), state, SINCE);
            assert_eq!(
                keeps_out(&entry, newcomer),
                kept_out.contains(&newcomer),
                "{state} and a {newcomer}"
            );
            // In a ledger, with a newcomer that conflicts with a restore of the backup that it
            // deletes.
            let mut ledger = Ledger::default();
            let all_of_it = Footprint::everything();
            ledger
                .admit(&restore("there"), "1", &all_of_it, SINCE, &Ask::default())
                .unwrap();
            ledger.entry_mut(&restore("there"), "1").unwrap().state = state;
            let key = ObjectKey::new(newcomer, "velero", "new");
            let refused = ledger
                .admit(&key, "2", &all_of_it, SINCE, &Ask::default())
                .is_err();
            assert_eq!(
                refused,
                kept_out.contains(&newcomer),
                "{state} and a {newcomer}, in a ledger"
            );
        }
    }
}

#[test]
fn claims_of_one_name_never_conflict_but_those_of_two_kinds_do() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &restore("x"), "1", &["a"]).unwrap();
    admit(&mut ledger, &restore("x"), "2", &["a"]).unwrap();
    assert_eq!(
        blockers(admit(&mut ledger, &backup("x"), "3", &["a"])),
        [restore("x")]
    );
    let elsewhere = ObjectKey::restore("other", "x");
    assert_eq!(
        blockers(admit(&mut ledger, &elsewhere, "4", &["a"])),
        [restore("x")],
        "two installations"
    );
}

#[test]
fn a_second_creation_of_a_name_that_asks_for_more_is_judged_by_what_it_asks() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    admit(&mut ledger, &backup("b"), "2", &["b"]).unwrap();
    assert_eq!(
        blockers(admit(&mut ledger, &restore("r"), "3", &["b"])),
        [backup("b")]
    );
    assert_eq!(
        blockers(admit(&mut ledger, &restore("r"), "1", &["b"])),
        [backup("b")],
        "the same uid too"
    );
    admit(&mut ledger, &restore("r"), "3", &["c"]).unwrap();
    assert_eq!(
        blockers(admit(&mut ledger, &backup("c"), "4", &["c"])),
        [restore("r")],
        "entries count together"
    );
}

#[test]
fn the_same_creation_may_come_again_and_only_its_age_begins_anew() {
    for state in [State::Reserved, State::Active] {
        let mut ledger = with_entry(&restore("r"), "1", state);
        let before = ledger.clone();
        ledger.suspect(&restore("r"), "1");
        assert_eq!(
            admit(&mut ledger, &restore("r"), "1", &["a"]),
            Ok(Grant::Reserved)
        );
        let entry = ledger.entry_mut(&restore("r"), "1").unwrap();
        assert_eq!(
            std::mem::take(&mut entry.renewals),
            u32::from(state != State::Active),
            "what works has no age"
        );
        assert_eq!(ledger, before);
    }
}

/// A repeated review of a creation may have any content.
#[test]
fn a_creation_that_comes_again_neither_widens_nor_forces_its_entry() {
    for was in [State::Waiting, State::Reserved, State::Active] {
        let mut ledger = with_entry(&restore("r"), "1", was);
        admit(&mut ledger, &backup("b"), "2", &["b"]).unwrap();
        let before = ledger.clone();
        for ask in [
            Ask::default(),
            Ask::forced("the house burns"),
            Ask::queued(),
        ] {
            let ask = Ask {
                creates: true,
                ..ask
            };
            ledger
                .admit(&restore("r"), "1", &Footprint::everything(), SINCE, &ask)
                .unwrap();
        }
        ledger.entry_mut(&restore("r"), "1").unwrap().renewals = 0;
        assert_eq!(ledger, before);
    }
}

/// A revival that was admitted before, and one that is admitted before the end of the last work was
/// seen.
#[test]
fn a_revival_waits_for_its_own_write_whatever_was_there() {
    for state in [
        State::Waiting,
        State::Reserved,
        State::Active,
        State::Settling,
        State::Collected,
    ] {
        let mut ledger = with_entry(&restore("r"), "1", state);
        for over in ["41", "42"] {
            let ask = Ask {
                revives: over.to_owned(),
                ..Ask::default()
            };
            let before = ledger.entry(&restore("r"), "1").unwrap().renewals;
            ledger
                .admit(&restore("r"), "1", &on(&["a"]), SINCE, &ask)
                .unwrap();
            let entry = ledger.entry(&restore("r"), "1").unwrap();
            assert_eq!(
                (entry.revives.as_str(), entry.renewals),
                (over, before + 1),
                "{state}"
            );
            assert!(
                matches!(entry.state, State::Reserved | State::Waiting),
                "{state}: {}",
                entry.state
            );
        }
    }
}

#[test]
fn what_grows_is_checked_against_all_that_its_footprint_comes_to_cover() {
    // A backup of all but x, beside a restore of x. With cluster-scoped resources added, its
    // footprint could only be represented as everything.
    let mut ledger = Ledger::default();
    let all_but_x = Footprint::of_backup(&backup_core::api::BackupSpec {
        excluded_namespaces: vec!["x".to_owned()],
        ..Default::default()
    });
    ledger
        .admit(&backup("b"), "1", &all_but_x, SINCE, &Ask::default())
        .unwrap();
    admit(&mut ledger, &restore("r"), "2", &["x"]).unwrap();
    let more = Footprint::of_backup(&backup_core::api::BackupSpec {
        included_namespaces: vec!["y".to_owned()],
        include_cluster_resources: Some(true),
        ..Default::default()
    });
    assert_eq!(
        blockers(ledger.admit(&backup("b"), "1", &more, SINCE, &Ask::default())),
        [restore("r")]
    );
    // Too many names are represented as everything, too.
    let names = |prefix: &str| -> Vec<String> { (0..60).map(|n| format!("{prefix}{n}")).collect() };
    let ask = Ask::default();
    let mut ledger = Ledger::default();
    ledger
        .admit(
            &restore("many"),
            "3",
            &Footprint::namespaces(names("m")),
            SINCE,
            &ask,
        )
        .unwrap();
    admit(&mut ledger, &backup("far"), "4", &["far"]).unwrap();
    let outcome = ledger.admit(
        &restore("many"),
        "3",
        &Footprint::namespaces(names("n")),
        SINCE,
        &ask,
    );
    assert_eq!(blockers(outcome), [backup("far")]);
}

#[test]
fn a_ledger_that_is_not_open_grants_nothing() {
    for status in [Status::Opening, Status::Rebuilding, Status::Closed] {
        let mut ledger = with_entry(&restore("r"), "1", State::Reserved);
        ledger.status = status;
        let before = ledger.clone();
        assert_eq!(
            admit(&mut ledger, &backup("b"), "2", &["b"]),
            Err(Refusal::NotOpen(status))
        );
        assert_eq!(
            force(&mut ledger, &backup("b"), "2", &["b"]),
            Err(Refusal::NotOpen(status))
        );
        assert_eq!(
            queue_up(&mut ledger, &restore("s"), "2", &["b"]),
            Err(Refusal::NotOpen(status))
        );
        assert_eq!(
            admit(&mut ledger, &restore("r"), "1", &["a"]),
            Err(Refusal::NotOpen(status)),
            "nor again"
        );
        assert_eq!(
            ledger.activate(&restore("r"), "1"),
            Err(Refusal::NotOpen(status))
        );
        assert!(!ledger.leave_intent(&restore("s"), "2", &on(&["b"]), SINCE, &Ask::default()));
        assert!(
            ledger
                .hold(&hold("h"), "3", &on(&["z"]), SINCE, "me")
                .is_err()
        );
        assert_eq!(ledger, before, "{status:?}");
    }
}

#[test]
fn the_epoch_grows_with_exclusive_grants_only_and_never_goes_back() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &backup("b"), "1", &["a"]).unwrap();
    assert_eq!(ledger.epoch, 0);
    admit(&mut ledger, &restore("r"), "2", &["b"]).unwrap();
    admit(&mut ledger, &restore("r"), "2", &["b"]).unwrap();
    assert_eq!(ledger.epoch, 1);
    ledger.release(&restore("r"), "2");
    assert_eq!(ledger.epoch, 1);
    ledger
        .hold(&hold("h"), "3", &on(&["c"]), SINCE, "me")
        .unwrap();
    assert_eq!(ledger.epoch, 2);
}

#[test]
fn what_takes_the_place_of_a_ledger_goes_on_from_its_epoch() {
    let rules = Rules {
        backups_exclude_each_other: true,
        ..Rules::default()
    };
    let lost = Ledger::lost(7, rules);
    assert_eq!(
        (lost.epoch, lost.rules, lost.status),
        (8, rules, Status::Rebuilding)
    );
    let mut next = with_entry(&restore("r"), "1", State::Active);
    let (epoch, token) = (next.epoch, next.activate(&restore("r"), "1").unwrap());
    next.go_on_from(7);
    assert_eq!(next.epoch, epoch + 7);
    assert_eq!(next.activate(&restore("r"), "1").unwrap(), token + 7);
}

#[test]
fn a_claim_and_a_word_are_counted_for_who_asked() {
    let asked_by = |requester: &str| {
        let ask = Ask {
            requester: requester.to_owned(),
            ..Ask::default()
        };
        let (mut ledger, everything) = (Ledger::default(), Footprint::everything());
        ledger
            .admit(&backup("b"), "1", &everything, SINCE, &ask)
            .unwrap();
        assert!(ledger.leave_intent(&restore("r"), "2", &everything, SINCE, &ask));
        [(backup("b"), "1"), (restore("r"), "2")]
            .map(|(key, uid)| ledger.entry(&key, uid).unwrap().requester.clone())
    };
    let ([claim, word], [other, _]) = (asked_by("ann"), asked_by("bob"));
    assert_eq!(claim, word);
    assert!(!claim.is_empty() && claim != other, "{claim} {other}");
    assert_eq!(asked_by(""), ["", ""]);
}

#[test]
fn a_person_who_breaks_the_glass_gets_in_and_everybody_else_is_still_kept_out() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    let Ok(Grant::Forced(conflict)) = force(&mut ledger, &restore("r"), "2", &["a"]) else {
        panic!("{ledger:?}")
    };
    assert_eq!(
        conflict.holders[0].key,
        backup("b"),
        "it is told who is in the way"
    );
    let entry = ledger.entry(&restore("r"), "2").unwrap();
    assert_eq!(
        (entry.state, entry.forced, entry.note.as_str()),
        (State::Reserved, true, "the house burns")
    );
    assert_eq!(
        blockers(admit(&mut ledger, &backup("c"), "3", &["a"])),
        [restore("r")]
    );
    assert_eq!(
        blockers(admit(&mut ledger, &restore("s"), "4", &["a"])),
        [backup("b"), restore("r")]
    );
    ledger.activate(&restore("r"), "2").unwrap();
    assert_eq!(
        state(&ledger, &backup("b"), "1"),
        Some(State::Active),
        "who worked goes on"
    );
}

#[test]
fn a_reason_without_need_leaves_no_mark() {
    let mut ledger = Ledger::default();
    assert_eq!(
        force(&mut ledger, &restore("r"), "1", &["a"]),
        Ok(Grant::Reserved)
    );
    assert!(!ledger.entry(&restore("r"), "1").unwrap().forced);
}

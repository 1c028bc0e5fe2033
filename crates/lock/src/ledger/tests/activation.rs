//! Activation of entries.

use super::*;

#[test]
fn only_an_admitted_uid_can_be_activated_and_it_keeps_its_token() {
    let mut ledger = Ledger::default();
    assert!(matches!(
        ledger.activate(&restore("r"), "1"),
        Err(Refusal::NotClaimed { .. })
    ));
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    let token = ledger.activate(&restore("r"), "1").unwrap();
    assert!(matches!(
        ledger.activate(&restore("r"), "2"),
        Err(Refusal::NotClaimed { .. })
    ));
    admit(&mut ledger, &restore("other"), "2", &["b"]).unwrap();
    assert_eq!(ledger.activate(&restore("r"), "1").unwrap(), token);
    assert!(
        ledger.activate(&restore("other"), "2").unwrap() > token,
        "a later exclusive grant has a higher epoch"
    );
}

#[test]
fn only_a_reserved_place_becomes_active() {
    for (from, activated) in [
        (State::Released, false),
        (State::Intent, false),
        (State::Collected, false),
        (State::Reserved, true),
        (State::Settling, false),
        (State::Active, true),
    ] {
        let mut ledger = with_entry(&restore("r"), "1", from);
        let before = ledger.clone();
        let outcome = ledger.activate(&restore("r"), "1");
        assert_eq!(outcome.is_ok(), activated, "{from}");
        assert!(
            activated || ledger == before,
            "a refusal leaves nothing behind"
        );
    }
}

#[test]
fn who_waits_can_not_work_and_is_told_whom_for() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    queue_up(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    let Err(Refusal::Waiting(conflict)) = ledger.activate(&restore("r"), "2") else {
        panic!("{ledger:?}")
    };
    assert_eq!(conflict.holders[0].key, backup("b"));
    assert_eq!(state(&ledger, &restore("r"), "2"), Some(State::Waiting));
}

#[test]
fn of_two_objects_that_were_found_in_conflict_only_one_may_work() {
    let mut ledger = Ledger::default();
    ledger.adopt(
        &backup("b"),
        "1",
        &Footprint::everything(),
        State::Reserved,
        SINCE,
    );
    ledger.adopt(
        &restore("r"),
        "2",
        &Footprint::everything(),
        State::Reserved,
        SINCE,
    );
    ledger.activate(&restore("r"), "2").unwrap();
    assert!(matches!(
        ledger.activate(&backup("b"), "1"),
        Err(Refusal::Conflict(_))
    ));
    // Nor while the first one settles.
    assert!(ledger.settle(&restore("r"), "2"));
    assert!(matches!(
        ledger.activate(&backup("b"), "1"),
        Err(Refusal::Conflict(_))
    ));
    assert!(ledger.release(&restore("r"), "2"));
    ledger.activate(&backup("b"), "1").unwrap();
}

/// Both were found running. Activated again, each stays Active, so that neither is stopped halfway
/// because of the other.
#[test]
fn who_works_keeps_its_right_whatever_was_found_beside_it() {
    let mut ledger = Ledger::default();
    ledger.adopt(
        &backup("b"),
        "1",
        &Footprint::everything(),
        State::Active,
        SINCE,
    );
    ledger.adopt(
        &restore("r"),
        "2",
        &Footprint::everything(),
        State::Active,
        SINCE,
    );
    for (key, uid) in [(backup("b"), "1"), (restore("r"), "2")] {
        assert_eq!(
            ledger.activate(&key, uid).unwrap(),
            ledger.entry(&key, uid).unwrap().epoch
        );
    }
}

/// An intent and a tombstone record an object that did not come: once the object is found, it is
/// claimed.
#[test]
fn what_was_not_expected_any_more_is_claimed_where_it_is_found() {
    for (remembered, claimed) in [
        (State::Intent, true),
        (State::Collected, true),
        (State::Released, false),
    ] {
        let mut ledger = with_entry(&restore("r"), "1", remembered);
        ledger.adopt(&restore("r"), "1", &on(&["a"]), State::Active, SINCE);
        assert_eq!(
            state(&ledger, &restore("r"), "1") == Some(State::Active),
            claimed,
            "{remembered}"
        );
    }
}

#[test]
fn what_a_person_holds_keeps_an_adopted_object_from_work_but_a_forced_one_works() {
    let mut ledger = Ledger::default();
    ledger
        .hold(
            &hold("h"),
            "1",
            &Footprint::everything(),
            SINCE,
            "me: repairs",
        )
        .unwrap();
    ledger.adopt(&backup("b"), "2", &on(&["a"]), State::Reserved, SINCE);
    assert!(matches!(
        ledger.activate(&backup("b"), "2"),
        Err(Refusal::Conflict(_))
    ));
    force(&mut ledger, &restore("r"), "3", &["c"]).unwrap();
    ledger.activate(&restore("r"), "3").unwrap();
}

#[test]
fn a_forced_object_that_works_keeps_those_it_overtook_from_starting() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &backup("b"), "1", &["a"]).unwrap();
    force(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    ledger.activate(&restore("r"), "2").unwrap();
    assert!(matches!(
        ledger.activate(&backup("b"), "1"),
        Err(Refusal::Conflict(_))
    ));
    ledger.release(&restore("r"), "2");
    ledger.activate(&backup("b"), "1").unwrap();
}

#[test]
fn a_suspicion_ends_with_the_activation() {
    let mut ledger = with_entry(&restore("r"), "1", State::Reserved);
    assert!(ledger.suspect(&restore("r"), "1"));
    assert!(!ledger.suspect(&restore("r"), "1"), "once is enough");
    ledger.activate(&restore("r"), "1").unwrap();
    assert!(!ledger.entry(&restore("r"), "1").unwrap().suspect);
    assert!(
        !ledger.suspect(&restore("r"), "1"),
        "what works is beyond suspicion"
    );
}

//! Intents of refused restores.

use super::*;

#[test]
fn a_refused_restore_keeps_only_new_overlapping_backups_out() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    assert!(ledger.leave_intent(&restore("r"), "2", &on(&["a"]), SINCE, &Ask::default()));
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "3", &["a"])),
        [restore("r")]
    );
    admit(&mut ledger, &backup("apart"), "4", &["z"]).unwrap();
    ledger.release(&backup("b"), "1");
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "3", &["a"])),
        [restore("r")],
        "still"
    );
    admit(&mut ledger, &restore("another"), "5", &["a"]).unwrap();
}

#[test]
fn a_refusal_names_who_works_before_who_is_only_expected() {
    let mut ledger = Ledger::default();
    ledger.leave_intent(
        &restore("expected"),
        "1",
        &on(&["a", "b"]),
        SINCE,
        &Ask::default(),
    );
    admit(&mut ledger, &restore("waits"), "2", &["b"]).unwrap();
    admit(&mut ledger, &restore("works"), "3", &["a"]).unwrap();
    ledger.activate(&restore("works"), "3").unwrap();
    let outcome = admit(&mut ledger, &backup("new"), "4", &["a", "b"]);
    assert_eq!(
        blockers(outcome),
        [restore("works"), restore("waits"), restore("expected")]
    );
}

#[test]
fn a_restore_that_comes_again_finds_its_word_and_takes_it_back() {
    for uid in ["1", "2"] {
        let mut ledger = Ledger::default();
        ledger.leave_intent(&restore("r"), "1", &on(&["a"]), SINCE, &Ask::default());
        assert_eq!(
            admit(&mut ledger, &restore("r"), uid, &["a"]),
            Ok(Grant::Reserved)
        );
        let claim = ledger.claim(&restore("r")).unwrap();
        assert_eq!(
            claim.entries.len(),
            1,
            "a creation that is tried again has a new uid"
        );
        assert_eq!(claim.entries[0].state, State::Reserved);
    }
}

#[test]
fn a_name_has_one_word_and_the_last_counts() {
    let mut ledger = Ledger::default();
    assert!(ledger.leave_intent(&restore("r"), "1", &on(&["a"]), SINCE, &Ask::default()));
    assert!(ledger.leave_intent(&restore("r"), "2", &on(&["b"]), SINCE, &Ask::default()));
    assert_eq!(ledger.len(), 1);
    admit(&mut ledger, &backup("a"), "3", &["a"]).unwrap();
    assert_eq!(
        blockers(admit(&mut ledger, &backup("b"), "4", &["b"])),
        [restore("r")]
    );
}

#[test]
fn who_has_a_place_or_is_no_restore_leaves_no_word() {
    for there in [
        State::Waiting,
        State::Reserved,
        State::Active,
        State::Settling,
        State::Collected,
    ] {
        let mut ledger = with_entry(&restore("r"), "1", there);
        let before = ledger.clone();
        assert!(!ledger.leave_intent(&restore("r"), "2", &on(&["b"]), SINCE, &Ask::default()));
        assert_eq!(ledger, before, "{there}");
    }
    for kind in [
        ObjectKind::Backup,
        ObjectKind::DeleteBackupRequest,
        ObjectKind::Deletion,
        ObjectKind::Hold,
    ] {
        let key = ObjectKey::new(kind, "velero", "x");
        assert!(
            !Ledger::default().leave_intent(&key, "1", &on(&["a"]), SINCE, &Ask::default()),
            "{kind}"
        );
    }
}

#[test]
fn words_are_few_and_the_last_one_can_still_be_renewed() {
    let mut ledger = Ledger::default();
    for n in 0..MAX_INTENTS {
        assert!(ledger.leave_intent(
            &restore(&format!("r{n}")),
            "1",
            &on(&["a"]),
            SINCE,
            &Ask::default()
        ));
    }
    assert!(!ledger.leave_intent(
        &restore("one-more"),
        "1",
        &on(&["a"]),
        SINCE,
        &Ask::default()
    ));
    assert!(ledger.leave_intent(&restore("r0"), "2", &on(&["b"]), SINCE, &Ask::default()));
    assert_eq!(ledger.len(), MAX_INTENTS);
}

#[test]
fn a_full_ledger_takes_no_word() {
    let mut ledger = Ledger::default();
    let long = |n: usize| restore(&format!("{}{n}", "n".repeat(250)));
    let wide = || Footprint::namespaces((0..64).map(|n| format!("{n:063}")));
    let mut n = 0;
    while ledger
        .admit(&backup(&long(n).name), "1", &wide(), SINCE, &Ask::default())
        .is_ok()
    {
        n += 1;
    }
    let taken = (0..MAX_INTENTS)
        .filter(|n| ledger.leave_intent(&long(*n), "2", &wide(), SINCE, &Ask::default()))
        .count();
    assert!(taken < MAX_INTENTS, "{taken} of them");
    assert!(
        ledger.to_json().len() <= MAX_BYTES,
        "it can still be written: {}",
        ledger.to_json().len()
    );
}

fn word(ledger: &Ledger) -> Word {
    ledger.claim(&restore("r")).unwrap().entries[0].word
}

fn refused(ledger: &mut Ledger, uid: &str) -> Word {
    assert!(ledger.leave_intent(&restore("r"), uid, &on(&["a"]), SINCE, &Ask::default()));
    word(ledger)
}

#[test]
fn who_was_refused_is_expected_once_nothing_is_in_its_way() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    admit(&mut ledger, &backup("b2"), "2", &["a", "x"]).unwrap();
    assert_eq!(refused(&mut ledger, "3"), Word::Refused);
    ledger.release(&backup("b"), "1");
    assert_eq!(word(&ledger), Word::Refused, "another is in its way");
    ledger.drop_if(&backup("b2"), "2", State::Reserved);
    assert_eq!(
        word(&ledger),
        Word::Expected,
        "by the write that frees the last"
    );
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "4", &["a"])),
        [restore("r")]
    );
    assert_eq!(ledger.without_lapsed(), ledger);
    assert!(ledger.lapse(&restore("r"), "3") && !ledger.lapse(&restore("r"), "3"));
    let restores = |ledger: &Ledger| ledger.claim(&restore("r")).is_some();
    assert!(restores(&ledger) && !restores(&ledger.without_lapsed()));
    admit(&mut ledger, &backup("new"), "4", &["a"]).expect("it did not come");
    assert_eq!(
        ledger.without_lapsed().claims,
        [ledger.claim(&backup("new")).unwrap().clone()]
    );
}

#[test]
fn who_comes_again_insists() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    assert_eq!(refused(&mut ledger, "2"), Word::Refused);
    assert_eq!(
        refused(&mut ledger, "2"),
        Word::Refused,
        "one request that was looked at twice"
    );
    assert_eq!(refused(&mut ledger, "3"), Word::Insisting);
    ledger.release(&backup("b"), "1");
    assert_eq!(word(&ledger), Word::Insisting);
    assert!(!ledger.lapse(&restore("r"), "3"));

    // Also after the intent has lapsed.
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    refused(&mut ledger, "2");
    ledger.release(&backup("b"), "1");
    ledger.lapse(&restore("r"), "2");
    admit(&mut ledger, &backup("b"), "3", &["a"]).unwrap();
    assert_eq!(refused(&mut ledger, "4"), Word::Insisting);

    // Or the client says that it retries.
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    let ask = Ask {
        insists: true,
        ..Ask::default()
    };
    assert!(ledger.leave_intent(&restore("r"), "2", &on(&["a"]), SINCE, &ask));
    assert_eq!(word(&ledger), Word::Insisting);
}

#[test]
fn words_take_no_room_from_those_who_are_admitted() {
    let mut ledger = Ledger::default();
    for n in 0..Room::Backups.entries() {
        ledger.adopt(
            &backup(&n.to_string()),
            "1",
            &on(&["a"]),
            State::Active,
            SINCE,
        );
    }
    assert!(!ledger.leave_intent(&restore("r"), "2", &on(&["a"]), SINCE, &Ask::default()));
    admit(&mut ledger, &restore("r"), "2", &["b"]).unwrap();
}

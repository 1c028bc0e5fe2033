//! How entries end.

use super::*;

#[test]
fn release_of_one_uid_leaves_the_others_of_the_name() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    admit(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    assert!(ledger.release(&restore("r"), "1"));
    assert!(
        !ledger.release(&restore("r"), "1"),
        "a second release finds nothing"
    );
    assert_eq!(
        blockers(admit(&mut ledger, &backup("b"), "3", &["a"])),
        [restore("r")]
    );
    assert!(ledger.release(&restore("r"), "2"));
    admit(&mut ledger, &backup("b"), "3", &["a"]).unwrap();
}

#[test]
fn a_reservation_that_was_activated_meanwhile_is_not_collected() {
    let mut ledger = with_entry(&restore("r"), "1", State::Reserved);
    ledger.activate(&restore("r"), "1").unwrap();
    assert!(!ledger.drop_if(&restore("r"), "1", State::Reserved));
    assert!(!ledger.tombstone(&restore("r"), "1", State::Reserved));
    assert!(ledger.drop_if(&restore("r"), "1", State::Active));
}

#[test]
fn what_settles_keeps_its_place_until_it_is_released() {
    for (from, settles) in [
        (State::Reserved, true),
        (State::Active, true),
        (State::Waiting, false),
        (State::Intent, false),
        (State::Collected, false),
        (State::Settling, false),
    ] {
        let mut ledger = with_entry(&restore("r"), "1", from);
        assert_eq!(ledger.settle(&restore("r"), "1"), settles, "{from}");
        if settles {
            assert_eq!(state(&ledger, &restore("r"), "1"), Some(State::Settling));
            assert_eq!(
                blockers(admit(&mut ledger, &backup("b"), "2", &["a"])),
                [restore("r")]
            );
            assert!(ledger.drop_if(&restore("r"), "1", State::Settling));
            admit(&mut ledger, &backup("b"), "2", &["a"]).unwrap();
        }
    }
}

#[test]
fn what_settles_is_no_orphan() {
    for (state, may_be) in [
        (State::Waiting, true),
        (State::Reserved, true),
        (State::Settling, false),
        (State::Active, false),
    ] {
        assert_eq!(
            with_entry(&restore("r"), "1", state).suspect(&restore("r"), "1"),
            may_be,
            "{state}"
        );
    }
}

#[test]
fn what_settles_may_come_back_to_life_if_nothing_is_in_its_way() {
    // As Percona's restores do: Error, and New again.
    let mut ledger = with_entry(&restore("r"), "1", State::Settling);
    let epoch = ledger.epoch;
    assert_eq!(
        admit(&mut ledger, &restore("r"), "1", &["a"]),
        Ok(Grant::Reserved)
    );
    assert_eq!(state(&ledger, &restore("r"), "1"), Some(State::Reserved));
    assert!(
        ledger.epoch > epoch,
        "its second work is not mistaken for its first"
    );
}

#[test]
fn a_tombstone_keeps_restores_and_holds_out_and_lets_backups_in() {
    for key in [restore("r"), backup("b")] {
        let mut ledger = with_entry(&key, "1", State::Reserved);
        ledger.suspect(&key, "1");
        assert!(ledger.tombstone(&key, "1", State::Reserved));
        assert!(!ledger.entry(&key, "1").unwrap().suspect);
        admit(&mut ledger, &backup("new"), "2", &["a"]).unwrap();
        ledger.release(&backup("new"), "2");
        assert_eq!(
            blockers(admit(&mut ledger, &restore("new"), "3", &["a"])),
            std::slice::from_ref(&key)
        );
        assert!(matches!(
            ledger.hold(&hold("h"), "4", &on(&["a"]), SINCE, "me"),
            Ok(Grant::Waiting(_))
        ));
    }
}

#[test]
fn an_object_that_comes_after_its_reservation_was_collected_is_claimed_anew_or_refused() {
    let mut ledger = with_entry(&backup("b"), "1", State::Collected);
    assert_eq!(
        admit(&mut ledger, &backup("b"), "1", &["a"]),
        Ok(Grant::Reserved)
    );
    let mut ledger = with_entry(&backup("b"), "1", State::Collected);
    ledger.adopt(&restore("r"), "2", &on(&["a"]), State::Active, SINCE);
    assert_eq!(
        blockers(admit(&mut ledger, &backup("b"), "1", &["a"])),
        [restore("r")]
    );
}

#[test]
fn who_waits_is_let_in_when_the_one_ahead_is_found_to_be_an_orphan() {
    let mut ledger = with_entry(&backup("b"), "1", State::Reserved);
    let waits = |ledger: &mut Ledger, key: ObjectKey| {
        ledger
            .admit(&key, "2", &on(&["a"]), SINCE, &Ask::queued())
            .unwrap();
        state(ledger, &key, "2")
    };
    assert_eq!(waits(&mut ledger, restore("r")), Some(State::Waiting));
    assert!(ledger.tombstone(&backup("b"), "1", State::Reserved));
    assert_eq!(
        state(&ledger, &restore("r"), "2"),
        Some(State::Waiting),
        "a tombstone keeps restores out"
    );
    assert!(ledger.drop_if(&backup("b"), "1", State::Collected));
    assert_eq!(state(&ledger, &restore("r"), "2"), Some(State::Reserved));
}

#[test]
fn a_forced_release_takes_anything_away_and_makes_old_tokens_worthless() {
    for (from, is_remembered) in [
        (State::Intent, false),
        (State::Settling, false),
        (State::Collected, true),
        (State::Waiting, true),
        (State::Reserved, true),
        (State::Active, true),
    ] {
        let mut ledger = with_entry(&restore("r"), "1", from);
        let epoch = ledger.epoch;
        assert!(
            ledger.force_release(&restore("r"), "1", "ann: stuck"),
            "{from}"
        );
        assert_eq!(ledger.is_empty(), !is_remembered, "{from}");
        assert!(ledger.epoch > epoch);
        assert!(
            ledger
                .claims
                .iter()
                .all(|claim| claim.entries[0].epoch == ledger.epoch),
            "{ledger:?}"
        );
        let before = ledger.clone();
        assert!(
            !ledger.force_release(&restore("r"), "1", "bob: again"),
            "there is nothing to take"
        );
        assert_eq!(ledger, before);
        admit(&mut ledger, &backup("b"), "2", &["a"]).unwrap();
        assert_eq!(ledger.holder(), "backup/velero/b");
    }
}

#[test]
fn what_has_no_object_that_is_claimed_as_found_is_released_without_a_trace() {
    for kind in [ObjectKind::Hold, ObjectKind::Deletion] {
        let key = ObjectKey::new(kind, "velero", "x");
        let mut ledger = with_entry(&key, "1", State::Reserved);
        assert!(ledger.force_release(&key, "1", ""));
        assert!(ledger.is_empty(), "{kind}");
        admit(&mut ledger, &key, "1", &["a"]).unwrap();
    }
}

#[test]
fn what_was_released_by_force_stays_released() {
    let mut ledger = with_entry(&restore("r"), "1", State::Active);
    ledger.force_release(&restore("r"), "1", "ann: stuck");
    let before = ledger.clone();
    ledger.adopt(
        &restore("r"),
        "1",
        &Footprint::everything(),
        State::Active,
        SINCE,
    );
    let again = admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap_err();
    assert_eq!(
        (
            again.category(),
            &ledger.activate(&restore("r"), "1").unwrap_err()
        ),
        ("released", &again)
    );
    assert_says!(again, "was released by force by ann: stuck");
    assert!(
        !ledger.settle(&restore("r"), "1") && !ledger.tombstone(&restore("r"), "1", State::Active)
    );
    assert_eq!(ledger, before, "nothing claims it again");
    // Another object of that name is admitted, and so is a revival after its end.
    admit(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    ledger.release(&restore("r"), "2");
    let revived = Ask {
        revives: "41".to_owned(),
        ..Ask::default()
    };
    ledger
        .admit(&restore("r"), "1", &on(&["a"]), SINCE, &revived)
        .unwrap();
    let entry = ledger.entry(&restore("r"), "1").unwrap();
    assert_eq!((entry.state, entry.note.as_str()), (State::Reserved, ""));
}

#[test]
fn a_release_lets_who_waits_have_its_place() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    queue_up(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    ledger.force_release(&backup("b"), "1", "ann: stuck");
    assert_eq!(state(&ledger, &restore("r"), "2"), Some(State::Reserved));
}

#[test]
fn a_release_takes_no_share_and_always_has_room() {
    let requester = "ann".to_owned();
    let ask = Ask {
        requester,
        ..Ask::default()
    };
    let mut ledger = Ledger::default();
    ledger
        .admit(&restore("r"), "1", &on(&["a"]), SINCE, &ask)
        .unwrap();
    ledger.force_release(&restore("r"), "1", &"é".repeat(1000));
    let entry = ledger.entry(&restore("r"), "1").unwrap();
    assert!(
        entry.requester.is_empty() && entry.note.len() <= 200,
        "{entry:?}"
    );
    // A full one, with names that take nearly all of the room: a release does not make it larger.
    let mut full = Ledger::default();
    for n in 0..550 {
        let key = ObjectKey::new(ObjectKind::Restore, "velero", &format!("{n:0>253}"));
        let entries = vec![Entry::new("1", on(&["a"]), State::Active, SINCE)];
        full.claims.push(Claim { key, entries });
    }
    assert!(full.bytes_at_most() < MAX_BYTES && full.bytes_at_most() + 550 * 200 > MAX_BYTES);
    for key in full
        .claims
        .iter()
        .map(|claim| claim.key.clone())
        .collect::<Vec<_>>()
    {
        full.force_release(&key, "1", &"x".repeat(200));
    }
    assert!(
        full.to_json().len() <= MAX_BYTES,
        "{}",
        full.to_json().len()
    );
}

#[test]
fn the_holder_is_told_to_people() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.holder(), "");
    admit(&mut ledger, &backup("b1"), "1", &["a"]).unwrap();
    assert_eq!(ledger.holder(), "backup/velero/b1");
    admit(&mut ledger, &backup("b2"), "2", &["a"]).unwrap();
    assert_eq!(ledger.holder(), "2 backups");
    admit(&mut ledger, &restore("r1"), "3", &["b"]).unwrap();
    assert_eq!(ledger.holder(), "restore/velero/r1 and 2 backups");
    queue_up(&mut ledger, &restore("r2"), "4", &["b"]).unwrap();
    ledger.leave_intent(&restore("r3"), "5", &on(&["b"]), SINCE, &Ask::default());
    assert_eq!(
        ledger.holder(),
        "restore/velero/r1 and 2 backups",
        "who waits holds nothing"
    );
    ledger.status = Status::Rebuilding;
    assert_eq!(ledger.holder(), "rebuilding");
}

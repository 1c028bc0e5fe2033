//! The queue: which entries wait, and which is next.

use super::*;

#[test]
fn a_restore_that_would_wait_is_let_in_to_wait_and_told_whom_for() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    let epoch = ledger.epoch;
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "2", &["a"])),
        [backup("b")]
    );
    assert_eq!(state(&ledger, &restore("r"), "2"), Some(State::Waiting));
    assert_eq!(ledger.epoch, epoch, "waiting is no grant");
    let mut again = ledger.clone();
    again.entry_mut(&restore("r"), "2").unwrap().renew("");
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "2", &["a"])),
        [backup("b")],
        "it may come again"
    );
    assert_eq!(ledger, again);
}

#[test]
fn the_write_that_frees_the_last_blocker_promotes_to_reserved_and_never_to_active() {
    type Freed = fn(&mut Ledger, &ObjectKey, &str) -> bool;
    let ways: [(&str, Freed); 3] = [
        ("release", |ledger, key, uid| ledger.release(key, uid)),
        ("drop_if", |ledger, key, uid| {
            ledger.drop_if(key, uid, State::Active)
        }),
        ("force_release", |ledger, key, uid| {
            ledger.force_release(key, uid, "")
        }),
    ];
    for (way, free) in ways {
        let mut ledger = with_entry(&backup("b1"), "1", State::Active);
        admit(&mut ledger, &backup("b2"), "2", &["a"]).unwrap();
        ledger.activate(&backup("b2"), "2").unwrap();
        queue_up(&mut ledger, &restore("r"), "3", &["a"]).unwrap();
        assert!(free(&mut ledger, &backup("b1"), "1"));
        assert_eq!(
            state(&ledger, &restore("r"), "3"),
            Some(State::Waiting),
            "{way}: one is left"
        );
        let epoch = ledger.epoch;
        assert!(free(&mut ledger, &backup("b2"), "2"));
        let entry = ledger.entry(&restore("r"), "3").unwrap();
        assert_eq!(entry.state, State::Reserved, "{way}");
        assert!(
            entry.epoch > epoch && entry.epoch == ledger.epoch,
            "{way}: a grant like any other"
        );
    }
}

#[test]
fn who_waits_is_served_in_order_of_arrival() {
    let mut ledger = with_entry(&backup("b"), "0", State::Active);
    for name in ["r1", "r2", "r3"] {
        queue_up(&mut ledger, &restore(name), "1", &["a"]).unwrap();
    }
    let states =
        |ledger: &Ledger| ["r1", "r2", "r3"].map(|name| state(ledger, &restore(name), "1"));
    let (waits, holds) = (Some(State::Waiting), Some(State::Reserved));
    assert_eq!(states(&ledger), [waits, waits, waits]);
    ledger.release(&backup("b"), "0");
    assert_eq!(states(&ledger), [holds, waits, waits]);
    assert!(matches!(
        ledger.activate(&restore("r2"), "1"),
        Err(Refusal::Waiting(_))
    ));
    ledger.release(&restore("r1"), "1");
    assert_eq!(states(&ledger), [None, holds, waits]);
    // A waiting entry that is released does not block those behind it.
    ledger.release(&restore("r2"), "1");
    assert_eq!(states(&ledger), [None, None, holds]);
}

#[test]
fn nobody_overtakes_one_who_waits_for_more() {
    // r1 needs a and b; a is free already. r2 needs a only, and came later.
    let mut ledger = with_entry(&backup("b"), "0", State::Active);
    queue_up(&mut ledger, &restore("r1"), "1", &["a", "b"]).unwrap();
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r2"), "2", &["b"])),
        [restore("r1")]
    );
    admit(&mut ledger, &backup("apart"), "3", &["z"]).unwrap();
    ledger.release(&backup("apart"), "3");
    assert_eq!(state(&ledger, &restore("r2"), "2"), Some(State::Waiting));
    ledger.release(&backup("b"), "0");
    assert_eq!(state(&ledger, &restore("r1"), "1"), Some(State::Reserved));
    assert_eq!(state(&ledger, &restore("r2"), "2"), Some(State::Waiting));
}

#[test]
fn those_who_wait_for_different_things_are_served_together() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &backup("b"), "0", &["a", "b"]).unwrap();
    queue_up(&mut ledger, &restore("ra"), "1", &["a"]).unwrap();
    queue_up(&mut ledger, &restore("rb"), "2", &["b"]).unwrap();
    ledger.release(&backup("b"), "0");
    for (name, uid) in [("ra", "1"), ("rb", "2")] {
        assert_eq!(state(&ledger, &restore(name), uid), Some(State::Reserved));
    }
}

#[test]
fn a_name_that_was_here_before_does_not_lend_its_place_in_the_queue() {
    // `old` came first, with another uid. Its second creation is later than `patient`.
    for was in [State::Reserved, State::Intent] {
        let mut ledger = with_entry(&restore("old"), "1", was);
        admit(&mut ledger, &backup("b"), "2", &["b"]).unwrap();
        queue_up(&mut ledger, &restore("patient"), "3", &["b"]).unwrap();
        let outcome = queue_up(&mut ledger, &restore("old"), "4", &["b"]);
        assert!(blockers(outcome).contains(&restore("patient")), "{was}");
        ledger.release(&backup("b"), "2");
        assert_eq!(
            state(&ledger, &restore("patient"), "3"),
            Some(State::Reserved),
            "{was}"
        );
        assert_eq!(
            state(&ledger, &restore("old"), "4"),
            Some(State::Waiting),
            "{was}"
        );
        ledger.release(&restore("patient"), "3");
        assert_eq!(
            state(&ledger, &restore("old"), "4"),
            Some(State::Reserved),
            "{was}"
        );
    }
}

#[test]
fn a_second_creation_of_a_name_that_waits_has_the_place_of_the_first() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    queue_up(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    queue_up(&mut ledger, &restore("later"), "3", &["a", "c"]).unwrap();
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "4", &["a"])),
        [backup("b")],
        "not for who came later"
    );
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("later"), "5", &["a"])),
        [backup("b"), restore("r")],
        "for who came before"
    );
    ledger.release(&restore("r"), "2");
    ledger.release(&backup("b"), "1");
    assert_eq!(state(&ledger, &restore("r"), "4"), Some(State::Reserved));
    assert_eq!(state(&ledger, &restore("later"), "3"), Some(State::Waiting));
}

#[test]
fn a_waiting_restore_keeps_new_overlapping_backups_and_restores_out_but_not_others() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    queue_up(&mut ledger, &restore("r"), "2", &["a", "c"]).unwrap();
    for key in [backup("new"), restore("new")] {
        assert_eq!(
            blockers(admit(&mut ledger, &key, "3", &["c"])),
            [restore("r")]
        );
        admit(&mut ledger, &key, "3", &["z"]).unwrap();
        ledger.release(&key, "3");
    }
}

#[test]
fn who_has_a_place_can_not_go_back_and_wait_for_a_larger_one() {
    for placed in [State::Reserved, State::Active, State::Settling] {
        let mut ledger = with_entry(&restore("r"), "1", placed);
        admit(&mut ledger, &backup("b"), "2", &["b"]).unwrap();
        let before = ledger.clone();
        let refused = queue_up(&mut ledger, &restore("r"), "1", &["a", "b"]);
        assert!(
            matches!(refused, Err(Refusal::Conflict(_))),
            "{placed}: {refused:?}"
        );
        assert_eq!(ledger, before);
        // It gets a free namespace, even if another waits for its present one.
        queue_up(&mut ledger, &restore("later"), "4", &["a"]).unwrap();
        admit(&mut ledger, &restore("r"), "1", &["c"]).unwrap();
        assert_eq!(
            blockers(admit(&mut ledger, &backup("c"), "3", &["c"])),
            [restore("r")]
        );
    }
}

#[test]
fn who_waits_and_asks_for_something_else_that_is_free_still_waits() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    queue_up(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    // Its footprint now covers both, and one of them is taken.
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "2", &["free"])),
        [backup("b")]
    );
    assert_eq!(state(&ledger, &restore("r"), "2"), Some(State::Waiting));
    assert!(matches!(
        ledger.activate(&restore("r"), "2"),
        Err(Refusal::Waiting(_))
    ));
    ledger.release(&backup("b"), "1");
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "3", &["free"])),
        [restore("r")]
    );
}

#[test]
fn a_hold_waits_until_those_who_are_there_have_left_and_then_stands() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    let all = Footprint::everything();
    let grant = ledger
        .hold(&hold("h"), "2", &all, SINCE, "me: repairs")
        .unwrap();
    assert!(matches!(grant, Grant::Waiting(_)));
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "3", &["z"])),
        [hold("h")],
        "from now on"
    );
    assert_eq!(
        blockers(admit(&mut ledger, &restore("new"), "4", &["z"])),
        [hold("h")]
    );
    ledger.release(&backup("b"), "1");
    let entry = ledger.entry(&hold("h"), "2").unwrap();
    assert_eq!(
        (entry.state, entry.note.as_str()),
        (State::Reserved, "me: repairs")
    );
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "3", &["z"])),
        [hold("h")]
    );
    assert_eq!(ledger.holder(), "hold/velero/h");
    ledger
        .hold(&hold("other"), "5", &all, SINCE, "you: too")
        .unwrap();
    assert!(ledger.force_release(&hold("h"), "2", ""));
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "3", &["z"])),
        [hold("other")],
        "two may hold"
    );
    assert!(ledger.release(&hold("other"), "5"));
    admit(&mut ledger, &backup("new"), "3", &["z"]).unwrap();
}

fn yielding() -> Ledger {
    let rules = Rules {
        backups_yield: true,
        ..Rules::default()
    };
    Ledger {
        rules,
        ..Ledger::default()
    }
}

#[test]
fn backups_that_have_not_begun_let_a_restore_that_may_wait_go_first_and_have_their_turns_after_it()
{
    let mut ledger = yielding();
    for (name, namespace) in [("b1", "a"), ("other", "b"), ("b2", "a")] {
        admit(&mut ledger, &backup(name), "1", &[namespace]).unwrap();
    }
    ledger.suspect(&backup("b1"), "1");
    let names = |ledger: &Ledger| -> Vec<String> {
        ledger
            .claims
            .iter()
            .map(|claim| claim.key.name.clone())
            .collect()
    };
    let states =
        |ledger: &Ledger| ["b1", "b2", "other"].map(|name| state(ledger, &backup(name), "1"));
    let (waits, holds) = (Some(State::Waiting), Some(State::Reserved));
    assert_eq!(
        queue_up(&mut ledger, &restore("r"), "2", &["a"]),
        Ok(Grant::Reserved)
    );
    assert_eq!(states(&ledger), [waits, waits, holds]);
    assert_eq!(names(&ledger), ["other", "r", "b1", "b2"]);
    assert!(!ledger.entry(&backup("b1"), "1").unwrap().suspect);
    assert!(matches!(
        ledger.activate(&backup("b1"), "1"),
        Err(Refusal::Waiting(_))
    ));
    ledger.activate(&restore("r"), "2").unwrap();
    // A second restore goes before them, too. The suspicion that an object is missing is kept.
    ledger.suspect(&backup("b2"), "1");
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r2"), "3", &["a"])),
        [restore("r")]
    );
    assert_eq!(names(&ledger), ["other", "r", "r2", "b1", "b2"]);
    assert!(ledger.entry(&backup("b2"), "1").unwrap().suspect);
    ledger.release(&restore("r"), "2");
    assert_eq!(
        (state(&ledger, &restore("r2"), "3"), states(&ledger)),
        (holds, [waits, waits, holds])
    );
    ledger.release(&restore("r2"), "3");
    assert_eq!(states(&ledger), [holds, holds, holds]);
    ledger.activate(&backup("b1"), "1").unwrap();
}

#[test]
fn a_restore_waits_for_a_backup_that_has_begun_and_the_others_wait_behind_it() {
    let mut ledger = yielding();
    for name in ["begun", "new"] {
        admit(&mut ledger, &backup(name), "1", &["a"]).unwrap();
    }
    ledger.activate(&backup("begun"), "1").unwrap();
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "2", &["a"])),
        [backup("begun")]
    );
    assert_eq!(state(&ledger, &backup("begun"), "1"), Some(State::Active));
    assert_eq!(state(&ledger, &backup("new"), "1"), Some(State::Waiting));
    ledger.release(&backup("begun"), "1");
    assert_eq!(state(&ledger, &restore("r"), "2"), Some(State::Reserved));
    assert_eq!(state(&ledger, &backup("new"), "1"), Some(State::Waiting));
}

#[test]
fn no_backup_yields_to_a_restore_that_will_not_wait_nor_if_it_is_forced_nor_where_work_starts_at_once()
 {
    let held = || {
        let mut ledger = yielding();
        admit(&mut ledger, &backup("b"), "1", &["a"]).unwrap();
        ledger
    };
    let mut ledger = held();
    assert_eq!(
        blockers(admit(&mut ledger, &restore("r"), "2", &["a"])),
        [backup("b")]
    );
    assert_eq!(ledger, held());
    let on_sight = &mut Ledger {
        rules: Rules::default(),
        ..held()
    };
    assert_eq!(
        blockers(queue_up(on_sight, &restore("r"), "2", &["a"])),
        [backup("b")]
    );
    let answer = ledger.hold(&hold("h"), "3", &on(&["a"]), SINCE, "me");
    assert_eq!(
        blockers(answer),
        [backup("b")],
        "nobody knows when a hold ends"
    );
    let mut ledger = held();
    ledger.entry_mut(&backup("b"), "1").unwrap().forced = true;
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "2", &["a"])),
        [backup("b")]
    );
    assert_eq!(state(&ledger, &backup("b"), "1"), Some(State::Reserved));
    // Once it is reserved, it does not move backups back in order to widen its footprint.
    let mut ledger = held();
    queue_up(&mut ledger, &restore("r"), "2", &["b"]).unwrap();
    assert_eq!(
        blockers(queue_up(&mut ledger, &restore("r"), "2", &["a", "b"])),
        [backup("b")]
    );
}

#[test]
fn backups_that_exclude_one_another_keep_their_order_when_one_lets_a_restore_go_first() {
    let rules = Rules {
        backups_yield: true,
        backups_exclude_each_other: true,
    };
    let mut ledger = Ledger {
        rules,
        ..Ledger::default()
    };
    admit(&mut ledger, &backup("begun"), "0", &["a"]).unwrap();
    ledger.activate(&backup("begun"), "0").unwrap();
    queue_up(&mut ledger, &backup("first"), "1", &["a", "b"]).unwrap();
    queue_up(&mut ledger, &backup("second"), "2", &["a"]).unwrap();
    assert_eq!(
        queue_up(&mut ledger, &restore("r"), "3", &["b"]),
        Ok(Grant::Reserved)
    );
    ledger.release(&backup("begun"), "0");
    let states = |ledger: &Ledger| {
        [("first", "1"), ("second", "2")].map(|(name, uid)| state(ledger, &backup(name), uid))
    };
    assert_eq!(
        states(&ledger),
        [Some(State::Waiting); 2],
        "the second one does not overtake the first"
    );
    ledger.release(&restore("r"), "3");
    assert_eq!(
        states(&ledger),
        [Some(State::Reserved), Some(State::Waiting)]
    );
}

#[test]
fn a_backup_that_let_a_restore_go_first_does_not_wait_for_one_that_was_refused_before() {
    let mut ledger = yielding();
    admit(&mut ledger, &backup("b"), "1", &["a"]).unwrap();
    assert!(ledger.leave_intent(
        &restore("refused"),
        "2",
        &on(&["a"]),
        SINCE,
        &Ask::default()
    ));
    queue_up(&mut ledger, &restore("r"), "3", &["a"]).unwrap();
    assert_eq!(state(&ledger, &backup("b"), "1"), Some(State::Waiting));
    assert_eq!(
        blockers(admit(&mut ledger, &backup("new"), "4", &["a"]))[0],
        restore("r")
    );
    ledger.release(&restore("r"), "3");
    assert_eq!(state(&ledger, &backup("b"), "1"), Some(State::Reserved));
    assert_eq!(
        state(&ledger, &restore("refused"), "2"),
        Some(State::Intent)
    );
}

#[test]
fn a_hold_that_waits_for_a_backup_is_not_overtaken_because_the_backup_lets_a_restore_go_first() {
    let states = |ledger: &Ledger| {
        [(backup("b"), "1"), (hold("h"), "2"), (restore("r"), "3")]
            .map(|(key, uid)| state(ledger, &key, uid))
    };
    let (waits, holds) = (Some(State::Waiting), Some(State::Reserved));
    let mut ledger = yielding();
    admit(&mut ledger, &backup("b"), "1", &["a", "b"]).unwrap();
    ledger
        .hold(&hold("h"), "2", &on(&["b"]), SINCE, "me")
        .unwrap();
    // It does not conflict with the hold.
    assert_eq!(
        queue_up(&mut ledger, &restore("r"), "3", &["a"]),
        Ok(Grant::Reserved)
    );
    assert_eq!(states(&ledger), [waits, waits, holds]);
    // This restore waits for the hold, which waits for the backup.
    let mut ledger = yielding();
    admit(&mut ledger, &backup("b"), "1", &["a", "b"]).unwrap();
    ledger
        .hold(&hold("h"), "2", &on(&["b"]), SINCE, "me")
        .unwrap();
    queue_up(&mut ledger, &restore("r"), "3", &["b"]).unwrap();
    assert_eq!(states(&ledger), [holds, waits, waits]);
    ledger.release(&backup("b"), "1");
    assert_eq!(states(&ledger), [None, holds, waits]);
}

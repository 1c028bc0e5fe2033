//! Limits for each kind, for one requester and for running objects: exact to the entry and to the
//! byte.

use rstest::rstest;

use super::{
    super::room::{MAX_BYTES, MAX_ENTRIES, Room, SHARE_BYTES, SHARE_ENTRIES, digest_of},
    *,
};

fn requester(name: &str) -> Ask {
    Ask {
        requester: name.to_owned(),
        ..Ask::default()
    }
}

/// An entry of this requester, with a note of this many bytes.
fn entry(ask: &Ask, note: usize) -> Entry {
    let requester = digest_of(&ask.requester);
    Entry {
        requester,
        note: "n".repeat(note),
        ..Entry::new("1", Footprint::everything(), State::Reserved, SINCE)
    }
}

/// A ledger with `count` backups of this requester.
fn with_backups(count: usize, ask: &Ask) -> Ledger {
    let claim = |n: usize| Claim {
        key: backup(&format!("b-{n}")),
        entries: vec![entry(ask, 0)],
    };
    Ledger {
        claims: (0..count).map(claim).collect(),
        ..Ledger::default()
    }
}

/// Bytes that a note adds to an entry, with its field name and quotes.
fn bytes_of_note(bytes: usize) -> usize {
    r#""note":"","#.len() + bytes
}

/// The size of the ledger with one more entry of this key, without a note and with a footprint that
/// is always counted.
fn size(ledger: &Ledger, key: &ObjectKey, ask: &Ask) -> usize {
    let claims = vec![Claim {
        key: key.clone(),
        entries: vec![entry(ask, 0)],
    }];
    let alone = Ledger {
        claims,
        ..Ledger::default()
    };
    ledger.bytes_at_most() + alone.bytes_at_most() - Ledger::default().bytes_at_most()
}

#[rstest]
#[case::backups(Room::Backups, 750, 184_320, "backups")]
#[case::restores(Room::Restores, 850, 208_896, "restores")]
#[case::deletions(Room::Deletions, 925, 227_328, "deletions")]
#[case::people(Room::People, 1000, 245_760, "holds and what is forced")]
fn each_may_fill_a_ledger_further_than_the_one_before(
    #[case] room: Room,
    #[case] entries: usize,
    #[case] bytes: usize,
    #[case] words: &str,
) {
    assert_eq!(
        (room.entries(), room.bytes(), room.to_string().as_str()),
        (entries, bytes, words)
    );
    assert_eq!(
        room.rest().is_empty(),
        room == Room::People,
        "{}",
        room.rest()
    );
    assert!(
        room.rest().is_empty() || room.rest().ends_with("holds and break-glass"),
        "{}",
        room.rest()
    );
    assert_eq!((SHARE_ENTRIES, SHARE_BYTES), (500, 122_880));
}

#[rstest]
#[case(ObjectKind::Backup, Room::Backups)]
#[case(ObjectKind::Restore, Room::Restores)]
#[case(ObjectKind::DeleteBackupRequest, Room::Deletions)]
#[case(ObjectKind::Deletion, Room::Deletions)]
#[case(ObjectKind::Hold, Room::People)]
fn each_kind_has_its_room_and_what_is_forced_has_all(#[case] kind: ObjectKind, #[case] room: Room) {
    assert_eq!(
        (Room::of(kind, false), Room::of(kind, true)),
        (room, Room::People)
    );
    let key = ObjectKey::new(kind, "velero", "x");
    for (ask, room) in [(Ask::default(), room), (Ask::forced("fire"), Room::People)] {
        let full = with_backups(room.entries(), &Ask::default());
        let refused = full.has_room(&key, &entry(&ask, 0), &ask).unwrap_err();
        assert!(
            matches!(refused, Refusal::Full { entries, .. } if entries == room.entries()),
            "{refused}"
        );
        let nearly = with_backups(room.entries() - 1, &Ask::default());
        nearly.has_room(&key, &entry(&ask, 0), &ask).unwrap();
        let left = room.bytes() - size(&nearly, &key, &ask) - bytes_of_note(0);
        nearly.has_room(&key, &entry(&ask, left), &ask).unwrap();
        let refused = nearly
            .has_room(&key, &entry(&ask, left + 1), &ask)
            .unwrap_err();
        assert!(
            matches!(refused, Refusal::Full { bytes, .. } if bytes == room.bytes() + 1),
            "{refused}"
        );
    }
}

/// The intent of a refused restore counts as a backup.
#[test]
fn a_word_has_the_room_of_backups() {
    let full = with_backups(Room::Backups.entries(), &Ask::default());
    let word = Entry {
        state: State::Intent,
        ..entry(&Ask::default(), 0)
    };
    assert!(
        full.has_room(&restore("r"), &word, &Ask::default())
            .is_err()
    );
    full.has_room(&restore("r"), &entry(&Ask::default(), 0), &Ask::default())
        .unwrap();
}

#[test]
fn no_requester_has_more_than_a_share_once_there_is_more_than_that() {
    let (ann, bob) = (requester("ann"), requester("bob"));
    let share = |ledger: &Ledger, ask: &Ask, note: usize| {
        let outcome = ledger.has_room(&backup("next"), &entry(ask, note), ask);
        outcome
            .map_err(|refusal| assert!(matches!(refusal, Refusal::Share { .. }), "{refusal}"))
            .is_ok()
    };
    // By number of entries.
    let mut ledger = with_backups(SHARE_ENTRIES - 1, &ann);
    assert!(share(&ledger, &ann, 0));
    assert!(!share(&with_backups(SHARE_ENTRIES, &ann), &ann, 0));
    ledger.claims.push(Claim {
        key: restore("r"),
        entries: vec![entry(&bob, 0)],
    });
    assert!(
        share(&ledger, &ann, 0) && share(&ledger, &bob, 0),
        "one less than a share"
    );
    ledger.claims.push(Claim {
        key: restore("s"),
        entries: vec![entry(&ann, 0)],
    });
    assert!(!share(&ledger, &ann, 0) && share(&ledger, &bob, 0));
    assert!(
        share(&ledger, &Ask::default(), 0),
        "without a requester there is no share"
    );
    assert!(share(
        &ledger,
        &Ask {
            urgent: true,
            ..ann.clone()
        },
        0
    ));
    // By size.
    let alone = with_backups(1, &ann);
    let left = SHARE_BYTES - size(&alone, &backup("next"), &ann) - bytes_of_note(0);
    assert!(share(&alone, &ann, left) && !share(&alone, &ann, left + 1));
    let mut beside = alone;
    beside.claims.push(Claim {
        key: restore("r"),
        entries: vec![entry(&bob, 0)],
    });
    assert!(
        share(&beside, &ann, left) && !share(&beside, &ann, left + 1),
        "what is bob's does not count"
    );
}

#[test]
fn the_note_of_a_hold_needs_room_too() {
    let (key, note, footprint) = (hold("h"), "ann: maintenance", Footprint::everything());
    let with_filler = |bytes: usize| {
        let mut ledger = with_backups(1, &Ask::default());
        ledger.claims[0].entries[0].note = "n".repeat(bytes);
        ledger
    };
    let size = size(&with_filler(1), &key, &Ask::default()) - 1 + bytes_of_note(note.len());
    let left = Room::People.bytes() - size;
    with_filler(left)
        .hold(&key, "1", &footprint, SINCE, note)
        .unwrap();
    let refused = with_filler(left + 1)
        .hold(&key, "1", &footprint, SINCE, note)
        .unwrap_err();
    assert_eq!(refused.category(), "full");
}

#[test]
fn what_runs_has_as_much_room_as_deletions() {
    let nameless = Ask::default();
    let key = backup("next");
    let full = with_backups(Room::Deletions.entries(), &nameless);
    assert!(!full.has_room_for_running(&key, &entry(&nameless, 0)));
    let nearly = with_backups(Room::Deletions.entries() - 1, &nameless);
    let left = Room::Deletions.bytes() - size(&nearly, &key, &nameless) - bytes_of_note(0);
    assert!(nearly.has_room_for_running(&key, &entry(&nameless, left)));
    assert!(!nearly.has_room_for_running(&key, &entry(&nameless, left + 1)));
}

#[test]
fn what_runs_beyond_that_is_one_claim_that_says_so() {
    let mut ledger = with_backups(Room::Deletions.entries() - 1, &Ask::default());
    for claim in &mut ledger.claims {
        claim.entries[0].footprint = on(&["a"]);
    }
    ledger.adopt(&restore("last"), "1", &on(&["z"]), State::Active, SINCE);
    assert_eq!(
        ledger.claim(&restore("last")).unwrap().entries[0].footprint,
        on(&["z"])
    );
    assert!(!ledger.overflows());
    for name in ["more", "and more"] {
        ledger.adopt(&restore(name), "1", &on(&["z"]), State::Active, SINCE);
        assert!(ledger.overflows() && ledger.claim(&restore(name)).is_none());
    }
    assert_eq!(ledger.len(), Room::Deletions.entries() + 1);
    let over = ledger
        .claims
        .iter()
        .find(|claim| claim.key.kind == ObjectKind::Hold)
        .unwrap();
    assert_says!(over.entries[0].note, "more is running");
    assert_eq!(
        ledger.claims[0].entries[0].footprint,
        on(&["a"]),
        "to cover more would make no room"
    );
    let without = ledger.without_overflow();
    assert_eq!(without.len(), Room::Deletions.entries());
    assert!(!without.overflows() && without.claim(&restore("last")).is_some());
}

/// Wide footprints are equal, and are written once.
#[test]
fn footprints_become_wide_before_a_running_object_is_left_out() {
    let nameless = Ask::default();
    let mut ledger = with_backups(1, &nameless);
    let large = |n: usize| Footprint::namespaces((0..60).map(|i| format!("{n:030}-{i:030}")));
    let mut count = 0;
    while ledger.has_room_for_running(
        &restore("next"),
        &Entry::new("1", large(count), State::Active, SINCE),
    ) {
        let entries = vec![Entry::new("1", large(count), State::Active, SINCE)];
        ledger.claims.push(Claim {
            key: restore(&format!("r-{count}")),
            entries,
        });
        count += 1;
    }
    ledger.adopt(&restore("next"), "1", &large(count), State::Active, SINCE);
    assert!(!ledger.overflows() && ledger.claim(&restore("next")).is_some());
    assert_eq!(ledger.footprints(), [&Footprint::everything()]);
}

/// Objects that another operator works on are always adopted; those that our controller has not
/// begun may be left out.
#[test]
fn of_what_is_found_who_works_comes_first() {
    let running = |state: State, name: &str| {
        (
            backup(name),
            Entry {
                state,
                ..entry(&Ask::default(), 0)
            },
        )
    };
    let found = [
        (State::Reserved, "new"),
        (State::Reserved, "newer"),
        (State::Active, "works"),
    ];
    for engine in [true, false] {
        let mut ledger = with_backups(Room::Deletions.entries() - 1, &Ask::default());
        ledger.adopt_running(
            found.map(|(state, name)| running(state, name)).into(),
            engine,
        );
        assert!(ledger.claim(&backup("works")).is_some() && ledger.claim(&backup("new")).is_none());
        assert_eq!(ledger.overflows(), !engine);
        assert_eq!(
            ledger.len(),
            Room::Deletions.entries() + usize::from(!engine)
        );
    }
    let mut free = Ledger::default();
    free.adopt_running(vec![running(State::Reserved, "new")], true);
    assert_eq!(free.len(), 1);
    // A running object is never left out.
    let mut full = with_backups(Room::Deletions.entries(), &Ask::default());
    full.adopt_running(vec![running(State::Active, "works")], true);
    assert!(full.overflows());
}

#[test]
fn a_note_of_a_release_never_makes_a_ledger_too_large() {
    let by = "ann: stuck";
    // A Released entry has no footprint and no requester; its JSON frame is included in the bound.
    let noted = |filler: usize| {
        let mut ledger = with_backups(1, &Ask::default());
        ledger.claims.push(Claim {
            key: restore("filler"),
            entries: vec![entry(&Ask::default(), filler)],
        });
        assert!(ledger.force_release(&backup("b-0"), "1", by));
        let noted = ledger.entry(&backup("b-0"), "1").unwrap().note == by;
        (noted, ledger)
    };
    let (_, empty) = noted(0);
    let unnoted = empty.bytes_at_most() - bytes_of_note(by.len()) + bytes_of_note(0);
    let most = MAX_BYTES - unnoted - by.len() - 16;
    let (fits, full) = noted(most);
    assert!(
        fits && full.bytes_at_most() <= MAX_BYTES,
        "{}",
        full.bytes_at_most()
    );
    assert!(!noted(most + 1).0);
}

/// The estimate is too large on purpose, but not by much: the documentation gives capacities.
#[test]
fn the_size_that_is_reckoned_with_is_near_the_real_one() {
    for count in [0, 1, 100, MAX_ENTRIES] {
        let mut ledger = with_backups(count, &requester("ann"));
        for claim in &mut ledger.claims {
            let word = Entry {
                state: State::Intent,
                ..entry(&requester("bob"), 9)
            };
            claim.entries.push(Entry {
                uid: "2".to_owned(),
                footprint: on(&["a", "b"]),
                ..word
            });
        }
        let (reckoned, real) = (ledger.bytes_at_most(), ledger.to_json().len());
        let most = real
            + 256
            + 2 * count * 112
            + if reckoned <= SHARE_BYTES {
                count * 160
            } else {
                0
            };
        assert!(
            (real..=most).contains(&reckoned),
            "{count}: {reckoned} for {real} bytes, at most {most}"
        );
    }
}

#[test]
fn the_word_that_may_be_noted_of_an_intent_is_reckoned_with() {
    let bytes = |state| with_entry(&restore("r"), "1", state).bytes_at_most();
    assert_eq!(
        bytes(State::Intent),
        bytes(State::Reserved) + r#""word":"Remembered","#.len()
    );
}

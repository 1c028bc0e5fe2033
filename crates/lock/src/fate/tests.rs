//! Every entry, whatever is seen of its object.

use rstest::rstest;

use super::*;
use crate::footprint::Footprint;

const UID: &str = "1";

fn entry(state: State, suspect: bool) -> Entry {
    Entry {
        uid: UID.to_owned(),
        footprint: Footprint::everything(),
        state,
        epoch: 1,
        since: String::new(),
        suspect,
        forced: false,
        note: String::new(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Another,
    Itself,
    Ended,
    Deleting,
}

impl Found {
    const ALL: [Self; 5] = [Self::Nothing, Self::Another, Self::Itself, Self::Ended, Self::Deleting];

    fn sight(self, settled: bool) -> Sight {
        let uid = match self {
            Self::Nothing => None,
            Self::Another => Some("another".to_owned()),
            _ => Some(UID.to_owned()),
        };
        Sight { uid, over: self == Self::Ended, deleting: self == Self::Deleting, settled }
    }
}

const STATES: [State; 6] =
    [State::Intent, State::Collected, State::Waiting, State::Reserved, State::Settling, State::Active];

/// Everything that a fate is judged by.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: ObjectKind,
    state: State,
    found: Found,
    suspect: bool,
    settled: bool,
    known: Known,
    ends: Ends,
}

impl Case {
    fn fate(self) -> Fate {
        let key = ObjectKey::new(self.kind, "velero", "x");
        fate(&key, &entry(self.state, self.suspect), &self.found.sight(self.settled), self.known, self.ends)
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for kind in ObjectKind::ALL {
            for state in STATES {
                for found in Found::ALL {
                    for bits in 0..128u32 {
                        let bit = |n: u32| bits >> n & 1 == 1;
                        all.push(Self {
                            kind,
                            state,
                            found,
                            suspect: bit(0),
                            settled: bit(1),
                            known: Known { stored: bit(2), aged: bit(3), overdue: bit(4) },
                            ends: Ends { settles: bit(5), entombs: bit(6) },
                        });
                    }
                }
            }
        }
        all
    }
}

/// What becomes of entries that no rule of the profile and no knowledge from before bears on.
#[rstest]
// found:                                  nothing           another           itself            ended             deleting
#[case(ObjectKind::Backup, State::Active, [ends(Reason::Gone), ends(Reason::Gone), Fate::Stays, ends(Reason::Over), Fate::Stays])]
#[case(ObjectKind::Restore, State::Active, [ends(Reason::Gone), ends(Reason::Gone), Fate::Stays, ends(Reason::Over), Fate::Stays])]
#[case(ObjectKind::Backup, State::Reserved, [Fate::Stays, Fate::Stays, Fate::Stays, ends(Reason::Over), Fate::Stays])]
#[case(ObjectKind::Restore, State::Reserved, [Fate::Stays, Fate::Stays, Fate::Stays, ends(Reason::Over), Fate::Stays])]
#[case(ObjectKind::Restore, State::Waiting, [Fate::Stays, Fate::Stays, Fate::Stays, ends(Reason::Over), Fate::Stays])]
#[case(ObjectKind::Restore, State::Settling, [Fate::Stays; 5])]
#[case(ObjectKind::Restore, State::Intent, [Fate::Stays; 5])]
#[case(ObjectKind::Backup, State::Collected, [Fate::Stays, Fate::Stays, Fate::Returns, ends(Reason::Orphan), Fate::Returns])]
#[case(ObjectKind::DeleteBackupRequest, State::Reserved, [Fate::Stays, Fate::Stays, Fate::Stays, ends(Reason::Over), Fate::Stays])]
// A deletion's object is the backup that it deletes.
#[case(ObjectKind::Deletion, State::Reserved, [ends(Reason::Gone), ends(Reason::Gone), Fate::Stays, Fate::Stays, Fate::Stays])]
#[case(ObjectKind::Hold, State::Reserved, [Fate::Stays; 5])]
#[case(ObjectKind::Hold, State::Waiting, [Fate::Stays; 5])]
fn a_first_look_ends_what_is_over_and_nothing_else(
    #[case] kind: ObjectKind,
    #[case] state: State,
    #[case] expected: [Fate; 5],
) {
    for (found, expected) in Found::ALL.into_iter().zip(expected) {
        let (known, ends) = (Known::default(), Ends::default());
        let case = Case { kind, state, found, suspect: false, settled: true, known, ends };
        assert_eq!(case.fate(), expected, "{case:?}");
    }
}

fn ends(reason: Reason) -> Fate {
    Fate::Ends(reason)
}

#[test]
fn an_orphan_takes_a_whole_grace_and_a_suspicion_before_it() {
    for (aged, suspect, entombs, expected) in [
        (false, false, false, Fate::Stays),
        (false, true, false, Fate::Stays),
        (true, false, false, Fate::Suspect),
        (true, true, false, Fate::Ends(Reason::Orphan)),
        (false, false, true, Fate::Stays),
        (false, true, true, Fate::Stays),
        (true, false, true, Fate::Suspect),
        (true, true, true, Fate::Entombed),
    ] {
        for kind in [ObjectKind::Backup, ObjectKind::Restore] {
            for state in [State::Reserved, State::Waiting] {
                for found in [Found::Nothing, Found::Another] {
                    let known = Known { aged, ..Known::default() };
                    let ends = Ends { entombs, settles: false };
                    let case = Case { kind, state, found, suspect, settled: true, known, ends };
                    assert_eq!(case.fate(), expected, "{case:?}");
                }
            }
        }
    }
}

/// The twelve ways in which a reservation is left without its object, as far as an observer can tell them apart: by what
/// is stored under the name.
#[rstest]
#[case::another_webhook_refused_it("nothing", Found::Nothing)]
#[case::a_quota_refused_it("nothing", Found::Nothing)]
#[case::its_name_was_taken("another object", Found::Another)]
#[case::a_generated_name_was_tried_again("nothing, under the name that was given up", Found::Nothing)]
#[case::it_was_too_large_at_first("the same name with the uid of the second pass", Found::Another)]
#[case::it_lost_a_race_of_applies("the winner, which was answered to both", Found::Another)]
#[case::it_could_not_be_converted_or_encrypted("nothing", Found::Nothing)]
#[case::the_store_refused_it("nothing", Found::Nothing)]
#[case::the_client_or_the_api_server_went_away("nothing", Found::Nothing)]
#[case::our_answer_was_lost("nothing", Found::Nothing)]
#[case::it_was_a_dry_run_that_was_taken_for_real("nothing, ever", Found::Nothing)]
#[case::its_outcome_is_unknown("nothing yet", Found::Nothing)]
fn every_way_to_be_an_orphan_ends_in_bounded_time_and_not_early(#[case] what: &str, #[case] found: Found) {
    let look = |suspect, aged| {
        let known = Known { aged, ..Known::default() };
        let (state, ends) = (State::Reserved, Ends::default());
        Case { kind: ObjectKind::Restore, state, found, suspect, settled: true, known, ends }.fate()
    };
    let looks = [look(false, false), look(false, true), look(true, true)];
    assert_eq!(looks, [Fate::Stays, Fate::Suspect, Fate::Ends(Reason::Orphan)], "{what}");
}

#[test]
fn a_creation_of_unknown_outcome_that_landed_after_all_is_an_orphan_no_more() {
    for suspect in [false, true] {
        for aged in [false, true] {
            let known = Known { aged, ..Known::default() };
            let (state, found, ends) =
                (State::Reserved, Found::Itself, Ends { entombs: true, settles: true });
            let case = Case { kind: ObjectKind::Restore, state, found, suspect, settled: true, known, ends };
            assert_eq!(case.fate(), Fate::Stays, "{case:?}");
        }
    }
}

#[test]
fn what_was_seen_stored_needs_no_grace_once_it_is_gone() {
    for kind in [ObjectKind::Backup, ObjectKind::Restore, ObjectKind::DeleteBackupRequest] {
        for state in [State::Reserved, State::Waiting] {
            for found in [Found::Nothing, Found::Another] {
                let known = Known { stored: true, ..Known::default() };
                let ends = Ends { entombs: true, settles: false };
                let case = Case { kind, state, found, suspect: false, settled: true, known, ends };
                assert_eq!(case.fate(), Fate::Ends(Reason::Gone), "{case:?}");
            }
        }
    }
}

#[test]
fn a_restore_that_worked_keeps_its_place_while_its_target_settles() {
    for state in [State::Reserved, State::Active] {
        for (settles, settled, expected) in [
            (false, true, Fate::Ends(Reason::Over)),
            (false, false, Fate::Settles(Reason::Over)),
            (true, true, Fate::Settles(Reason::Over)),
            (true, false, Fate::Settles(Reason::Over)),
        ] {
            let (known, ends) = (Known::default(), Ends { settles, entombs: true });
            let of =
                |kind| Case { kind, state, found: Found::Ended, suspect: false, settled, known, ends }.fate();
            assert_eq!(of(ObjectKind::Restore), expected, "{state} {settles} {settled}");
            assert_eq!(of(ObjectKind::Backup), Fate::Ends(Reason::Over), "a backup has changed nothing");
        }
    }
}

#[test]
fn a_restore_that_only_waited_has_nothing_to_settle() {
    let ends = Ends { settles: true, entombs: true };
    for (found, known, expected) in [
        (Found::Ended, Known::default(), Fate::Ends(Reason::Over)),
        (Found::Nothing, Known { stored: true, ..Known::default() }, Fate::Ends(Reason::Gone)),
    ] {
        for settled in [false, true] {
            let (kind, state) = (ObjectKind::Restore, State::Waiting);
            let case = Case { kind, state, found, suspect: false, settled, known, ends };
            assert_eq!(case.fate(), expected, "{case:?}");
            let mut ledger = Ledger::default();
            let key = ObjectKey::new(kind, "velero", "x");
            ledger.adopt(&key, UID, &Footprint::everything(), state, "");
            assert!(case.fate().befall(&mut ledger, &key, UID, state), "it is done, too");
            assert!(ledger.is_empty());
        }
    }
}

#[test]
fn a_place_settles_for_its_time_and_until_the_target_is_well_but_not_for_ever() {
    for (aged, settled, overdue, ended) in [
        (false, false, false, false),
        (false, true, false, false),
        (true, false, false, false),
        (true, true, false, true),
        (true, false, true, true),
        (false, false, true, true),
    ] {
        let known = Known { aged, overdue, stored: true };
        let (kind, state, found) = (ObjectKind::Restore, State::Settling, Found::Ended);
        let case = Case { kind, state, found, suspect: false, settled, known, ends: Ends::default() };
        assert_eq!(case.fate() == Fate::Ends(Reason::Settled), ended, "{case:?}");
    }
}

#[test]
fn the_word_of_a_refused_restore_lapses_and_nothing_else_ends_it() {
    for found in Found::ALL {
        for (aged, expected) in [(false, Fate::Stays), (true, Fate::Ends(Reason::Lapsed))] {
            let known = Known { aged, stored: true, overdue: true };
            let (kind, state, ends) =
                (ObjectKind::Restore, State::Intent, Ends { settles: true, entombs: true });
            let case = Case { kind, state, found, suspect: true, settled: true, known, ends };
            assert_eq!(case.fate(), expected, "{case:?}");
        }
    }
}

#[test]
fn a_deletion_that_never_began_is_an_orphan_and_one_that_began_stays() {
    let (kind, state) = (ObjectKind::Deletion, State::Reserved);
    let of = |found, suspect| {
        let (known, ends) = (Known { aged: true, ..Known::default() }, Ends { settles: true, entombs: true });
        Case { kind, state, found, suspect, settled: true, known, ends }.fate()
    };
    for found in [Found::Itself, Found::Ended] {
        assert_eq!([of(found, false), of(found, true)], [Fate::Suspect, Fate::Ends(Reason::Orphan)]);
    }
    assert_eq!(of(Found::Deleting, true), Fate::Stays);
    assert_eq!(of(Found::Nothing, false), Fate::Ends(Reason::Gone));
}

#[test]
fn whatever_is_seen_the_promises_about_ends_hold() {
    for case in Case::all() {
        let Case { kind, state, found, suspect, settled, known, ends } = case;
        let fate = case.fate();
        let here = matches!(found, Found::Itself | Found::Deleting);
        let touches_only_time = matches!(state, State::Intent | State::Settling);
        if kind == ObjectKind::Hold {
            assert_eq!(fate, Fate::Stays, "only a person ends a hold: {case:?}");
            continue;
        }
        if here && kind != ObjectKind::Deletion && !touches_only_time {
            let expected = if state == State::Collected { Fate::Returns } else { Fate::Stays };
            assert_eq!(fate, expected, "what is stored and not over keeps its place: {case:?}");
        }
        if fate == Fate::Ends(Reason::Orphan) && state != State::Collected || fate == Fate::Entombed {
            assert!(known.aged && suspect, "no orphan without grace and suspicion: {case:?}");
            assert!(matches!(state, State::Reserved | State::Waiting | State::Active), "{case:?}");
            assert!(
                state != State::Active || kind == ObjectKind::Deletion,
                "what works is no orphan: {case:?}"
            );
        }
        if let Fate::Settles(_) = fate {
            assert!(kind == ObjectKind::Restore && (ends.settles || !settled), "{case:?}");
            assert!(matches!(state, State::Reserved | State::Active), "{case:?}");
        }
        if fate == Fate::Entombed {
            assert!(ends.entombs, "{case:?}");
        }
        if kind == ObjectKind::Deletion && state == State::Active {
            continue; // nobody works for a deletion of ours, so none is ever activated
        }
        // Done to a ledger, every fate but two does something, and what ends keeps nobody out any more.
        let key = ObjectKey::new(kind, "velero", "x");
        let mut ledger = Ledger::default();
        ledger.claims.push(crate::claim::Claim { key: key.clone(), entries: vec![entry(state, suspect)] });
        let before = ledger.clone();
        let done = fate.befall(&mut ledger, &key, UID, state);
        assert_eq!(done, !matches!(fate, Fate::Stays | Fate::Returns), "{case:?}: {fate:?}");
        assert_eq!(ledger != before, done, "{case:?}: {fate:?}");
        assert_eq!(ledger.is_empty(), matches!(fate, Fate::Ends(_)), "{case:?}: {fate:?}");
        assert_eq!(fate.reason().is_some(), done && fate != Fate::Suspect, "{case:?}: {fate:?}");
    }
}

#[test]
fn an_entry_that_has_changed_since_it_was_judged_keeps_its_place() {
    let key = ObjectKey::restore("velero", "x");
    let fates = [Fate::Suspect, Fate::Settles(Reason::Over), Fate::Entombed, Fate::Ends(Reason::Orphan)];
    for fate in fates {
        let mut ledger = Ledger::default();
        ledger.adopt(&key, UID, &Footprint::everything(), State::Active, "");
        let before = ledger.clone();
        assert!(!fate.befall(&mut ledger, &key, UID, State::Reserved), "{fate:?}");
        assert!(!fate.befall(&mut ledger, &key, "another", State::Active), "{fate:?}");
        assert_eq!(ledger, before);
    }
}

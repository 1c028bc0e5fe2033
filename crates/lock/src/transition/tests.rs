//! Transitions of every kind and state of entry, for every observation of its object.

use rstest::rstest;

use super::{
    EntryTransition::{End, Keep, Readmit, Settle, Suspect, Tombstone},
    *,
};
use crate::footprint::Footprint;

const UID: &str = "1";
const TOMBSTONES: EndRules = EndRules {
    settles: false,
    tombstones: true,
};
const ALL_RULES: EndRules = EndRules {
    settles: true,
    tombstones: true,
};

/// Whether the entry has been in this state for its timeout, and nothing else.
fn aged(aged: bool) -> PriorObservation {
    PriorObservation {
        aged,
        ..PriorObservation::default()
    }
}

fn entry(state: State, suspect: bool) -> Entry {
    Entry {
        epoch: 1,
        suspect,
        ..Entry::new(UID, Footprint::everything(), state, "")
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
    const ALL: [Self; 5] = [
        Self::Nothing,
        Self::Another,
        Self::Itself,
        Self::Ended,
        Self::Deleting,
    ];

    fn observed(self, settled: bool) -> ObservedState {
        let uid = match self {
            Self::Nothing => None,
            Self::Another => Some("another".to_owned()),
            _ => Some(UID.to_owned()),
        };
        let version = "41".to_owned();
        ObservedState {
            uid,
            version,
            over: self == Self::Ended,
            deleting: self == Self::Deleting,
            settled,
        }
    }
}

/// The inputs of a transition.
#[derive(Clone, Copy, Debug)]
struct Case {
    kind: ObjectKind,
    state: State,
    found: Found,
    suspect: bool,
    settled: bool,
    prior: PriorObservation,
    ends: EndRules,
}

impl Case {
    /// Not suspected, on a settled target, without any rule or history.
    fn new(kind: ObjectKind, state: State, found: Found) -> Self {
        Self {
            kind,
            state,
            found,
            suspect: false,
            settled: true,
            prior: PriorObservation::default(),
            ends: EndRules::default(),
        }
    }

    fn transition(self) -> EntryTransition {
        let key = ObjectKey::new(self.kind, "velero", "x");
        decide(
            &key,
            &entry(self.state, self.suspect),
            &self.found.observed(self.settled),
            self.prior,
            self.ends,
        )
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for kind in ObjectKind::ALL {
            for state in State::ALL {
                for found in Found::ALL {
                    for bits in 0..128u32 {
                        let bit = |n: u32| bits >> n & 1 == 1;
                        all.push(Self {
                            kind,
                            state,
                            found,
                            suspect: bit(0),
                            settled: bit(1),
                            prior: PriorObservation {
                                stored: bit(2),
                                aged: bit(3),
                                overdue: bit(4),
                            },
                            ends: EndRules {
                                settles: bit(5),
                                tombstones: bit(6),
                            },
                        });
                    }
                }
            }
        }
        all
    }
}

/// Transitions of entries without any rule of the profile or history of the observer.
#[rstest]
// found:                                  nothing           another           itself
// ended             deleting
#[case(ObjectKind::Backup, State::Active, [ends(Reason::Gone), ends(Reason::Gone), Keep, ends(Reason::Over), Keep])]
#[case(ObjectKind::Restore, State::Active, [ends(Reason::Gone), ends(Reason::Gone), Keep, ends(Reason::Over), Keep])]
#[case(ObjectKind::Backup, State::Reserved, [Keep, Keep, Keep, ends(Reason::Over), Keep])]
#[case(ObjectKind::Restore, State::Reserved, [Keep, Keep, Keep, ends(Reason::Over), Keep])]
#[case(ObjectKind::Restore, State::Waiting, [Keep, Keep, Keep, ends(Reason::Over), Keep])]
#[case(ObjectKind::Restore, State::Settling, [Keep; 5])]
#[case(ObjectKind::Restore, State::Intent, [Keep; 5])]
#[case(ObjectKind::Restore, State::Released, [Keep, Keep, Keep, ends(Reason::Over), Keep])]
#[case(ObjectKind::Backup, State::Collected, [Keep, Keep, Readmit, ends(Reason::Orphan), Readmit])]
#[case(ObjectKind::DeleteBackupRequest, State::Reserved, [Keep, Keep, Keep, ends(Reason::Over), Keep])]
// A deletion's object is the backup that it deletes.
#[case(ObjectKind::Deletion, State::Reserved, [ends(Reason::Gone), ends(Reason::Gone), Keep, Keep, Keep])]
#[case(ObjectKind::Hold, State::Reserved, [Keep; 5])]
#[case(ObjectKind::Hold, State::Waiting, [Keep; 5])]
fn a_first_look_ends_what_is_over_and_nothing_else(
    #[case] kind: ObjectKind,
    #[case] state: State,
    #[case] expected: [EntryTransition; 5],
) {
    for (found, expected) in Found::ALL.into_iter().zip(expected) {
        let case = Case::new(kind, state, found);
        assert_eq!(case.transition(), expected, "{case:?}");
    }
}

fn ends(reason: Reason) -> EntryTransition {
    End(reason)
}

#[test]
fn an_orphan_takes_a_whole_grace_and_a_suspicion_before_it() {
    for (is_aged, suspect, tombstones, expected) in [
        (false, false, false, Keep),
        (false, true, false, Keep),
        (true, false, false, Suspect),
        (true, true, false, End(Reason::Orphan)),
        (false, false, true, Keep),
        (false, true, true, Keep),
        (true, false, true, Suspect),
        (true, true, true, Tombstone),
    ] {
        for kind in [ObjectKind::Backup, ObjectKind::Restore] {
            for state in [State::Reserved, State::Waiting] {
                for found in [Found::Nothing, Found::Another] {
                    let ends = EndRules {
                        tombstones,
                        settles: false,
                    };
                    let case = Case {
                        suspect,
                        prior: aged(is_aged),
                        ends,
                        ..Case::new(kind, state, found)
                    };
                    assert_eq!(case.transition(), expected, "{case:?}");
                }
            }
        }
    }
}

/// Twelve ways in which a reservation is left without its object, grouped by what an observer can
/// see: what is stored under the name.
#[rstest]
#[case::another_webhook_refused_it("nothing", Found::Nothing)]
#[case::a_quota_refused_it("nothing", Found::Nothing)]
#[case::its_name_was_taken("another object", Found::Another)]
#[case::a_generated_name_was_tried_again(
    "nothing, under the name that was given up",
    Found::Nothing
)]
#[case::it_was_too_large_at_first("the same name with the uid of the second pass", Found::Another)]
#[case::it_lost_a_race_of_applies("the winner, which was answered to both", Found::Another)]
#[case::it_could_not_be_converted_or_encrypted("nothing", Found::Nothing)]
#[case::the_store_refused_it("nothing", Found::Nothing)]
#[case::the_client_or_the_api_server_went_away("nothing", Found::Nothing)]
#[case::our_answer_was_lost("nothing", Found::Nothing)]
#[case::it_was_a_dry_run_that_was_taken_for_real("nothing, ever", Found::Nothing)]
#[case::its_outcome_is_unknown("nothing yet", Found::Nothing)]
fn every_way_to_be_an_orphan_ends_in_bounded_time_and_not_early(
    #[case] what: &str,
    #[case] found: Found,
) {
    let look = |suspect, is_aged| {
        Case {
            suspect,
            prior: aged(is_aged),
            ..Case::new(ObjectKind::Restore, State::Reserved, found)
        }
        .transition()
    };
    let looks = [look(false, false), look(false, true), look(true, true)];
    assert_eq!(looks, [Keep, Suspect, End(Reason::Orphan)], "{what}");
}

#[test]
fn a_creation_of_unknown_outcome_that_landed_after_all_is_an_orphan_no_more() {
    for suspect in [false, true] {
        for is_aged in [false, true] {
            let case = Case {
                suspect,
                prior: aged(is_aged),
                ends: ALL_RULES,
                ..Case::new(ObjectKind::Restore, State::Reserved, Found::Itself)
            };
            assert_eq!(case.transition(), Keep, "{case:?}");
        }
    }
}

#[test]
fn what_was_seen_stored_needs_no_grace_once_it_is_gone() {
    for kind in [
        ObjectKind::Backup,
        ObjectKind::Restore,
        ObjectKind::DeleteBackupRequest,
    ] {
        for state in [State::Reserved, State::Waiting] {
            for found in [Found::Nothing, Found::Another] {
                let prior = PriorObservation {
                    stored: true,
                    ..PriorObservation::default()
                };
                let case = Case {
                    prior,
                    ends: TOMBSTONES,
                    ..Case::new(kind, state, found)
                };
                assert_eq!(case.transition(), End(Reason::Gone), "{case:?}");
            }
        }
    }
}

#[test]
fn a_restore_that_worked_keeps_its_place_while_its_target_settles() {
    for state in [State::Reserved, State::Active] {
        for (settles, settled, expected) in [
            (false, true, End(Reason::Over)),
            (false, false, Settle(Reason::Over)),
            (true, true, Settle(Reason::Over)),
            (true, false, Settle(Reason::Over)),
        ] {
            let ends = EndRules {
                settles,
                tombstones: true,
            };
            let of = |kind| {
                Case {
                    settled,
                    ends,
                    ..Case::new(kind, state, Found::Ended)
                }
                .transition()
            };
            assert_eq!(
                of(ObjectKind::Restore),
                expected,
                "{state} {settles} {settled}"
            );
            assert_eq!(
                of(ObjectKind::Backup),
                End(Reason::Over),
                "a backup has changed nothing"
            );
        }
    }
}

#[test]
fn a_restore_that_only_waited_has_nothing_to_settle() {
    for (found, prior, expected) in [
        (Found::Ended, PriorObservation::default(), End(Reason::Over)),
        (
            Found::Nothing,
            PriorObservation {
                stored: true,
                ..PriorObservation::default()
            },
            End(Reason::Gone),
        ),
    ] {
        for settled in [false, true] {
            let (kind, state) = (ObjectKind::Restore, State::Waiting);
            let case = Case {
                settled,
                prior,
                ends: ALL_RULES,
                ..Case::new(kind, state, found)
            };
            assert_eq!(case.transition(), expected, "{case:?}");
            let mut ledger = Ledger::default();
            let key = ObjectKey::new(kind, "velero", "x");
            ledger.adopt(&key, UID, &Footprint::everything(), state, "");
            let judged = ledger.entry(&key, UID).unwrap().clone();
            assert!(
                case.transition().apply(&mut ledger, &key, &judged),
                "it is done, too"
            );
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
        let prior = PriorObservation {
            aged,
            overdue,
            stored: true,
        };
        let case = Case {
            settled,
            prior,
            ..Case::new(ObjectKind::Restore, State::Settling, Found::Ended)
        };
        assert_eq!(case.transition() == End(Reason::Settled), ended, "{case:?}");
    }
}

#[test]
fn the_word_of_a_refused_restore_lapses_and_nothing_else_ends_it() {
    for found in Found::ALL {
        for (is_aged, of_expected, of_refused) in [
            (false, Keep, Keep),
            (true, EntryTransition::Lapse, End(Reason::Lapsed)),
        ] {
            let expecting = Entry {
                word: Word::Expected,
                ..entry(State::Intent, true)
            };
            let (key, observed) = (ObjectKey::restore("velero", "x"), found.observed(true));
            let rules = EndRules::default();
            let lapse = decide(&key, &expecting, &observed, aged(is_aged), rules);
            assert_eq!(lapse, of_expected, "{found:?}");
            let prior = PriorObservation {
                aged: is_aged,
                stored: true,
                overdue: true,
            };
            let case = Case {
                suspect: true,
                prior,
                ends: ALL_RULES,
                ..Case::new(ObjectKind::Restore, State::Intent, found)
            };
            assert_eq!(case.transition(), of_refused, "{case:?}");
        }
    }
}

#[test]
fn a_deletion_that_never_began_is_an_orphan_and_one_that_began_stays() {
    let of = |found, suspect| {
        Case {
            suspect,
            prior: aged(true),
            ends: ALL_RULES,
            ..Case::new(ObjectKind::Deletion, State::Reserved, found)
        }
        .transition()
    };
    for found in [Found::Itself, Found::Ended] {
        assert_eq!(
            [of(found, false), of(found, true)],
            [Suspect, End(Reason::Orphan)]
        );
    }
    assert_eq!(of(Found::Deleting, true), Keep);
    assert_eq!(of(Found::Nothing, false), End(Reason::Gone));
}

/// The object has ended, and the admitted write would revive it. That write may be stored, or
/// never.
#[rstest]
#[case::before_that_write("41", true, [Keep, Suspect, Tombstone])]
#[case::before_it_on_an_unsettled_target("41", false, [Keep, Suspect, Settle(Reason::Over)])]
#[case::after_it("40", true, [End(Reason::Over); 3])]
#[case::after_it_on_an_unsettled_target("40", false, [Settle(Reason::Over); 3])]
fn a_revival_is_judged_by_what_comes_after_it(
    #[case] over: &str,
    #[case] settled: bool,
    #[case] expected: [EntryTransition; 3],
) {
    let key = ObjectKey::restore("db", "x");
    let observed = Found::Ended.observed(settled);
    let look = |suspect, aged| {
        let entry = Entry {
            revives: over.to_owned(),
            ..entry(State::Reserved, suspect)
        };
        // The object existed before, so it was seen; its existence proves nothing.
        let prior = PriorObservation {
            aged,
            stored: true,
            overdue: false,
        };
        decide(&key, &entry, &observed, prior, TOMBSTONES)
    };
    assert_eq!(
        [look(false, false), look(false, true), look(true, true)],
        expected
    );
    let collected = Entry {
        revives: "41".to_owned(),
        ..entry(State::Collected, false)
    };
    // It may still come.
    for observed in [observed, Found::Nothing.observed(true)] {
        let prior = PriorObservation::default();
        let transition = decide(&key, &collected, &observed, prior, TOMBSTONES);
        assert_eq!(transition, Keep, "{observed:?}");
    }
}

#[test]
fn an_entry_that_has_changed_since_it_was_judged_keeps_its_place() {
    let key = ObjectKey::restore("velero", "x");
    let transitions = [
        Suspect,
        Settle(Reason::Over),
        Tombstone,
        End(Reason::Orphan),
        EntryTransition::Lapse,
    ];
    for transition in transitions {
        let mut ledger = Ledger::default();
        ledger.adopt(&key, UID, &Footprint::everything(), State::Active, "");
        let before = ledger.clone();
        let another = Entry {
            uid: "another".to_owned(),
            ..entry(State::Active, false)
        };
        let again = Entry {
            renewals: 1,
            ..entry(State::Active, false)
        };
        // Freed in between, and admitted again as a revival.
        let revived = Entry {
            revives: "41".to_owned(),
            ..entry(State::Active, false)
        };
        let suspected = entry(State::Active, true);
        for judged in [
            entry(State::Reserved, false),
            another,
            again,
            revived,
            suspected,
        ] {
            assert!(
                !transition.apply(&mut ledger, &key, &judged),
                "{transition:?} {judged:?}"
            );
        }
        assert_eq!(ledger, before);
    }
}

/// Metrics and logs use them as labels.
#[test]
fn each_reason_has_a_word() {
    let all = [
        Reason::Over,
        Reason::Gone,
        Reason::Orphan,
        Reason::Settled,
        Reason::Lapsed,
    ];
    assert_eq!(
        all.map(Reason::as_str),
        ["over", "gone", "orphan", "settled", "lapsed"]
    );
}

mod promises;

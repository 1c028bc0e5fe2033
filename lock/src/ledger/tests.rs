use proptest::prelude::*;
use rstest::rstest;

use super::*;

const SINCE: &str = "2026-11-21T09:00:00Z";

fn admit(ledger: &mut Ledger, key: &ObjectKey, uid: &str, namespaces: &[&str]) -> Result<(), Refusal> {
    ledger.admit(key, uid, &Footprint::namespaces(namespaces.iter().copied()), SINCE)
}

fn backup(name: &str) -> ObjectKey {
    ObjectKey::backup("velero", name)
}

fn restore(name: &str) -> ObjectKey {
    ObjectKey::restore("velero", name)
}

fn holder_of(refused: Result<(), Refusal>) -> ObjectKey {
    match refused {
        Err(Refusal::Conflict(conflict)) => conflict.holders[0].key.clone(),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

#[rstest]
#[case::two_backups(backup("x"), backup("y"), &["a"], true)]
#[case::backup_then_restore(backup("x"), restore("y"), &["a"], false)]
#[case::restore_then_backup(restore("x"), backup("y"), &["a"], false)]
#[case::two_restores(restore("x"), restore("y"), &["a"], false)]
#[case::two_disjoint_restores(restore("x"), restore("y"), &["b"], true)]
#[case::disjoint_backup_and_restore(restore("x"), backup("y"), &["b"], true)]
#[case::one_name(restore("x"), restore("x"), &["a"], true)]
#[case::one_name_of_two_kinds(restore("x"), backup("x"), &["a"], false)]
fn one_of_two_is_refused_iff_one_is_a_restore_and_they_overlap(
    #[case] first: ObjectKey,
    #[case] second: ObjectKey,
    #[case] second_touches: &[&str],
    #[case] both: bool,
) {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &first, "1", &["a"]).unwrap();
    let outcome = admit(&mut ledger, &second, "2", second_touches);
    if both {
        outcome.unwrap();
    } else {
        assert_eq!(holder_of(outcome), first);
        assert_eq!(ledger.len(), 1, "a refusal leaves nothing behind");
    }
}

#[test]
fn a_second_creation_of_a_name_that_asks_for_more_is_judged_by_what_it_asks() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    admit(&mut ledger, &backup("b"), "2", &["b"]).unwrap();
    assert_eq!(holder_of(admit(&mut ledger, &restore("r"), "3", &["b"])), backup("b"));
    assert_eq!(holder_of(admit(&mut ledger, &restore("r"), "1", &["b"])), backup("b"), "the same uid too");
    admit(&mut ledger, &restore("r"), "3", &["c"]).unwrap();
    assert_eq!(
        holder_of(admit(&mut ledger, &backup("c"), "4", &["c"])),
        restore("r"),
        "entries count together"
    );
}

#[test]
fn release_of_one_uid_leaves_the_others_of_the_name() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    admit(&mut ledger, &restore("r"), "2", &["a"]).unwrap();
    assert!(ledger.release(&restore("r"), "1"));
    assert!(!ledger.release(&restore("r"), "1"), "a second release finds nothing");
    assert_eq!(holder_of(admit(&mut ledger, &backup("b"), "3", &["a"])), restore("r"));
    assert!(ledger.release(&restore("r"), "2"));
    admit(&mut ledger, &backup("b"), "3", &["a"]).unwrap();
}

#[test]
fn only_an_admitted_uid_can_be_activated_and_it_keeps_its_token() {
    let mut ledger = Ledger::default();
    assert!(matches!(ledger.activate(&restore("r"), "1"), Err(Refusal::NotClaimed { .. })));
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    let token = ledger.activate(&restore("r"), "1").unwrap();
    assert!(matches!(ledger.activate(&restore("r"), "2"), Err(Refusal::NotClaimed { .. })));
    admit(&mut ledger, &restore("other"), "2", &["b"]).unwrap();
    assert_eq!(ledger.activate(&restore("r"), "1").unwrap(), token);
    assert!(
        ledger.activate(&restore("other"), "2").unwrap() > token,
        "a later exclusive grant has a higher epoch"
    );
}

#[test]
fn a_reservation_that_was_activated_meanwhile_is_not_collected() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &restore("r"), "1", &["a"]).unwrap();
    ledger.activate(&restore("r"), "1").unwrap();
    assert!(!ledger.drop_if(&restore("r"), "1", State::Reserved));
    assert!(ledger.drop_if(&restore("r"), "1", State::Active));
}

#[test]
fn of_two_objects_that_were_found_in_conflict_only_one_may_work() {
    let mut ledger = Ledger::default();
    ledger.adopt(&backup("b"), "1", &Footprint::everything(), State::Reserved, SINCE);
    ledger.adopt(&restore("r"), "2", &Footprint::everything(), State::Reserved, SINCE);
    ledger.activate(&restore("r"), "2").unwrap();
    assert!(matches!(ledger.activate(&backup("b"), "1"), Err(Refusal::Conflict(_))));
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
}

#[test]
fn the_epoch_grows_with_exclusive_grants_only() {
    let mut ledger = Ledger::default();
    admit(&mut ledger, &backup("b"), "1", &["a"]).unwrap();
    assert_eq!(ledger.epoch, 0);
    admit(&mut ledger, &restore("r"), "2", &["b"]).unwrap();
    admit(&mut ledger, &restore("r"), "2", &["b"]).unwrap();
    assert_eq!(ledger.epoch, 1);
    ledger.release(&restore("r"), "2");
    assert_eq!(ledger.epoch, 1, "it never goes back");
}

#[test]
fn a_full_ledger_refuses_clearly_and_stays_as_it_was() {
    let mut ledger = Ledger::default();
    for n in 0..MAX_ENTRIES {
        let name = format!("b-{n}");
        let footprint = Footprint::namespaces(["a"]);
        ledger.adopt(
            &backup(&name),
            &format!("00000000-0000-0000-0000-{n:012}"),
            &footprint,
            State::Reserved,
            SINCE,
        );
    }
    assert!(ledger.to_json().len() < MAX_BYTES, "{} bytes", ledger.to_json().len());
    let before = ledger.clone();
    let refused = admit(&mut ledger, &backup("one-more"), "1", &["a"]).unwrap_err();
    assert_eq!(refused.category(), "full");
    assert!(refused.to_string().contains("1000 entries"), "{refused}");
    assert_eq!(ledger, before);
}

#[test]
fn long_names_fill_the_ledger_before_it_outgrows_its_annotation() {
    let mut ledger = Ledger::default();
    let long = "n".repeat(250);
    let refused =
        (0..MAX_ENTRIES).find_map(|n| admit(&mut ledger, &backup(&format!("{long}{n}")), "1", &["a"]).err());
    assert_eq!(refused.map(|refusal| refusal.category()), Some("full"));
    assert!(ledger.to_json().len() <= MAX_BYTES);
}

#[rstest]
#[case::empty("", "can't be read")]
#[case::no_json("holder=me", "can't be read")]
#[case::no_version("{}", "can't be read")]
#[case::newer(r#"{"v":2,"something":"else"}"#, "update this program")]
#[case::dangling(r#"{"v":1,"epoch":1,"footprints":[],"claims":[{"kind":"Backup","ns":"v","name":"b","entries":[{"uid":"1","fp":0,"state":"Reserved","epoch":1,"since":""}]}]}"#, "footprint 0")]
#[case::twice(r#"{"v":1,"epoch":1,"footprints":[],"claims":[{"kind":"Backup","ns":"v","name":"b","entries":[]},{"kind":"Backup","ns":"v","name":"b","entries":[]}]}"#, "twice")]
fn what_is_no_ledger_of_this_version_is_an_error(#[case] text: &str, #[case] says: &str) {
    let error = Ledger::from_json(text).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
}

#[test]
fn equal_footprints_are_written_once() {
    let mut ledger = Ledger::default();
    for n in 0..50 {
        admit(&mut ledger, &backup(&format!("b{n}")), "1", &["one-very-recognisable-namespace"]).unwrap();
    }
    assert_eq!(ledger.to_json().matches("one-very-recognisable-namespace").count(), 1);
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Admit(ObjectKey, u8, Vec<&'static str>),
    Activate(ObjectKey, u8),
    Release(ObjectKey, u8),
    Drop(ObjectKey, u8, State),
}

fn any_key() -> impl Strategy<Value = ObjectKey> {
    (any::<bool>(), 0..3u8).prop_map(|(is_backup, n)| {
        let name = format!("n{n}");
        if is_backup { backup(&name) } else { restore(&name) }
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let touched = proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("c"), Just("*")], 1..3);
    let state = prop_oneof![Just(State::Reserved), Just(State::Active)];
    prop_oneof![
        4 => (any_key(), 0..4u8, touched).prop_map(|(key, uid, touched)| Step::Admit(key, uid, touched)),
        2 => (any_key(), 0..4u8).prop_map(|(key, uid)| Step::Activate(key, uid)),
        1 => (any_key(), 0..4u8).prop_map(|(key, uid)| Step::Release(key, uid)),
        1 => (any_key(), 0..4u8, state).prop_map(|(key, uid, state)| Step::Drop(key, uid, state)),
    ]
}

proptest! {
    #[test]
    fn no_history_grants_two_claims_that_conflict(steps in proptest::collection::vec(any_step(), 1..60)) {
        let mut ledger = Ledger::default();
        for step in steps {
            let before = ledger.clone();
            match step {
                Step::Admit(key, uid, touched) => {
                    let uid = uid.to_string();
                    if admit(&mut ledger, &key, &uid, &touched).is_ok() {
                            // Admitting again changes nothing, whatever the footprint grew to.
                            let again = ledger.clone();
                            let footprint = ledger.entry(&key, &uid).unwrap().footprint.clone();
                            ledger.admit(&key, &uid, &footprint, "later").unwrap();
                            prop_assert_eq!(&ledger, &again);
                    } else {
                        prop_assert_eq!(&ledger, &before);
                    }
                }
                Step::Activate(key, uid) => {
                    let known = before.entry(&key, &uid.to_string()).is_some();
                    prop_assert_eq!(ledger.activate(&key, &uid.to_string()).is_ok(), known);
                }
                Step::Release(key, uid) => {
                    let known = before.entry(&key, &uid.to_string()).is_some();
                    prop_assert_eq!(ledger.release(&key, &uid.to_string()), known);
                    prop_assert_eq!(before.len() - ledger.len(), usize::from(known));
                }
                Step::Drop(key, uid, state) => {
                    let was = before.entry(&key, &uid.to_string()).is_some_and(|entry| entry.state == state);
                    prop_assert_eq!(ledger.drop_if(&key, &uid.to_string(), state), was);
                }
            }
            prop_assert!(ledger.epoch >= before.epoch);
            for claim in &ledger.claims {
                for entry in &claim.entries {
                    prop_assert!(ledger.conflicts(&claim.key, &entry.footprint).is_empty(), "{:#?}", ledger);
                }
            }
            prop_assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger.clone());
        }
    }
}

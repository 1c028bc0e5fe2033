//! Invariants that hold after every history.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Admit(ObjectKey, String, Footprint, Ask),
    Hold(ObjectKey, String, Footprint),
    Adopt(ObjectKey, String, Footprint, State),
    Intent(ObjectKey, String, Footprint),
    Activate(ObjectKey, String),
    Release(ObjectKey, String),
    Drop(ObjectKey, String, State),
    Settle(ObjectKey, String),
    Suspect(ObjectKey, String),
    Lapse(ObjectKey, String),
    Entomb(ObjectKey, String, State),
    Force(ObjectKey, String),
}

fn any_key() -> impl Strategy<Value = ObjectKey> {
    let kinds = [
        ObjectKind::Backup,
        ObjectKind::Backup,
        ObjectKind::Restore,
        ObjectKind::Restore,
        ObjectKind::Restore,
        ObjectKind::DeleteBackupRequest,
        ObjectKind::Deletion,
    ];
    (proptest::sample::select(kinds.to_vec()), 0..3u8)
        .prop_map(|(kind, n)| ObjectKey::new(kind, "velero", &format!("n{n}")))
}

fn any_footprint() -> impl Strategy<Value = Footprint> {
    let names = proptest::sample::select(vec!["a", "b", "c", "d", "d*", "*"]);
    let backup = proptest::sample::select(vec!["n0", "n1", ""]);
    let excluded = proptest::sample::select(vec!["a", "b", "c"]);
    let all_but = excluded.prop_map(|name| {
        let excluded_namespaces = vec![name.to_owned()];
        let include_cluster_resources = Some(false);
        let spec = backup_core::api::BackupSpec {
            excluded_namespaces,
            include_cluster_resources,
            ..Default::default()
        };
        Footprint::of_backup(&spec)
    });
    let with_cluster = proptest::sample::select(vec!["a", "b", "c"]).prop_map(|name| {
        let included_namespaces = vec![name.to_owned()];
        let include_cluster_resources = Some(true);
        let spec = backup_core::api::BackupSpec {
            included_namespaces,
            include_cluster_resources,
            ..Default::default()
        };
        Footprint::of_backup(&spec)
    });
    prop_oneof![
        5 => (proptest::collection::vec(names, 1..3), backup)
            .prop_map(|(names, backup)| Footprint::namespaces(names).from_backup("velero", Some(backup))),
        1 => all_but,
        1 => with_cluster,
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let (key, uid) = (any_key, || (0..3u8).prop_map(|uid| uid.to_string()));
    let states = || {
        proptest::sample::select(vec![
            State::Waiting,
            State::Reserved,
            State::Active,
            State::Settling,
        ])
    };
    let hold = || (0..2u8).prop_map(|n| hold(&format!("h{n}")));
    let all = |key: &ObjectKey, footprint: Footprint| {
        if key.kind.is_deletion() {
            Footprint::of_deletion("velero", &key.name)
        } else {
            footprint
        }
    };
    prop_oneof![
        16 => (key(), uid(), any_footprint(), 0..8u8).prop_map(move |(key, uid, footprint, how)| {
            let queue = how < 5;
            let forced = (how == 7).then(|| "because".to_owned());
            let footprint = all(&key, footprint);
            Step::Admit(key, uid, footprint, Ask { queue, forced, ..Ask::default() })
        }),
        1 => (hold(), uid(), any_footprint()).prop_map(|(key, uid, footprint)| Step::Hold(key, uid, footprint)),
        1 => (key(), uid(), any_footprint(), any::<bool>()).prop_map(|(key, uid, footprint, begun)| {
            Step::Adopt(key, uid, footprint, if begun { State::Active } else { State::Reserved })
        }),
        2 => (key(), uid(), any_footprint()).prop_map(|(key, uid, footprint)| Step::Intent(key, uid, footprint)),
        6 => (key(), uid()).prop_map(|(key, uid)| Step::Activate(key, uid)),
        5 => (key(), uid()).prop_map(|(key, uid)| Step::Release(key, uid)),
        3 => (key(), uid(), states()).prop_map(|(key, uid, state)| Step::Drop(key, uid, state)),
        2 => (key(), uid()).prop_map(|(key, uid)| Step::Settle(key, uid)),
        1 => (key(), uid()).prop_map(|(key, uid)| Step::Suspect(key, uid)),
        1 => (key(), uid()).prop_map(|(key, uid)| Step::Lapse(key, uid)),
        2 => (key(), uid(), states()).prop_map(|(key, uid, state)| Step::Entomb(key, uid, state)),
        1 => (key(), uid()).prop_map(|(key, uid)| Step::Force(key, uid)),
        1 => (hold(), uid()).prop_map(|(key, uid)| Step::Force(key, uid)),
    ]
}

/// Applies a step and returns whether it was done; a refused step leaves the ledger unchanged.
fn take(ledger: &mut Ledger, step: &Step) -> bool {
    match step {
        Step::Admit(key, uid, footprint, ask) => {
            ledger.admit(key, uid, footprint, SINCE, ask).is_ok()
        }
        Step::Hold(key, uid, footprint) => ledger.hold(key, uid, footprint, SINCE, "me").is_ok(),
        Step::Adopt(key, uid, footprint, state) => {
            let may_come =
                |entry: &Entry| entry.state < State::Waiting && entry.state != State::Released;
            let news = ledger.entry(key, uid).is_none_or(may_come);
            ledger.adopt(key, uid, footprint, *state, SINCE);
            news
        }
        Step::Intent(key, uid, footprint) => {
            ledger.leave_intent(key, uid, footprint, SINCE, &Ask::default())
        }
        Step::Lapse(key, uid) => ledger.lapse(key, uid),
        Step::Activate(key, uid) => ledger.activate(key, uid).is_ok(),
        Step::Release(key, uid) => ledger.release(key, uid),
        Step::Drop(key, uid, state) => ledger.drop_if(key, uid, *state),
        Step::Settle(key, uid) => ledger.settle(key, uid),
        Step::Suspect(key, uid) => ledger.suspect(key, uid),
        Step::Entomb(key, uid, state) => ledger.tombstone(key, uid, *state),
        Step::Force(key, uid) => ledger.force_release(key, uid, "ann: stuck"),
    }
}

fn entries(ledger: &Ledger) -> impl Iterator<Item = (&Claim, &Entry)> {
    ledger
        .claims
        .iter()
        .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)))
}

/// The key and uid of the entry that this step is about.
fn subject(step: &Step) -> (&ObjectKey, &str) {
    match step {
        Step::Admit(key, uid, ..)
        | Step::Hold(key, uid, _)
        | Step::Adopt(key, uid, ..)
        | Step::Intent(key, uid, _)
        | Step::Activate(key, uid)
        | Step::Release(key, uid)
        | Step::Drop(key, uid, _)
        | Step::Settle(key, uid)
        | Step::Suspect(key, uid)
        | Step::Lapse(key, uid)
        | Step::Entomb(key, uid, _)
        | Step::Force(key, uid) => (key, uid),
    }
}

fn holds_a_place(entry: &Entry) -> bool {
    matches!(
        entry.state,
        State::Reserved | State::Active | State::Settling
    )
}

/// Two claims that hold a place and conflict, if neither was adopted or forced.
fn collision<'a>(
    ledger: &'a Ledger,
    adopted: &BTreeSet<(ObjectKey, String)>,
) -> Option<(&'a ObjectKey, &'a ObjectKey)> {
    let granted: Vec<(&Claim, &Entry)> = entries(ledger)
        .filter(|(claim, entry)| {
            holds_a_place(entry)
                && !entry.forced
                && !adopted.contains(&(claim.key.clone(), entry.uid.clone()))
        })
        .collect();
    granted.iter().enumerate().find_map(|(i, (one, of_one))| {
        let beside = granted[i + 1..].iter().find(|(other, of_other)| {
            ledger
                .rules
                .conflicts(&one.key, &of_one.footprint, other, of_other)
        })?;
        Some((&one.key, &beside.0.key))
    })
}

/// Whether the step left all other entries unchanged, except waiting entries that were reserved,
/// and the words of refused restores that no longer conflict with anything.
fn others_are_as_they_were(before: &Ledger, after: &Ledger, step: &Step) -> bool {
    let (key, uid) = subject(step);
    let same = |(claim, entry): (&Claim, &Entry)| {
        let own = claim.key == *key && (entry.uid == uid || entry.state == State::Intent);
        let Some(now) = after.entry(&claim.key, &entry.uid) else {
            return own;
        };
        let promoted = Entry {
            state: State::Reserved,
            epoch: now.epoch,
            ..entry.clone()
        };
        let expected = Entry {
            word: Word::Expected,
            ..entry.clone()
        };
        let may_come =
            entry.state == State::Intent && entry.word == Word::Refused && *now == expected;
        let goes_first = before.rules.backups_yield
            && matches!(step, Step::Admit(key, .., ask) if key.kind == ObjectKind::Restore && ask.queue);
        let yielded = Entry {
            state: State::Waiting,
            suspect: false,
            ..entry.clone()
        };
        let yields = goes_first
            && claim.key.kind == ObjectKind::Backup
            && entry.state == State::Reserved
            && *now == yielded;
        own || may_come
            || yields
            || *now == *entry
            || entry.state == State::Waiting && *now == promoted && now.epoch >= entry.epoch
    };
    entries(before).all(same)
}

/// Whether two waiting entries, one of them waiting for the other, were reserved in their order.
fn nobody_was_overtaken(before: &Ledger, after: &Ledger) -> bool {
    let waited: Vec<(&Claim, &Entry)> = entries(before)
        .filter(|(_, entry)| entry.state == State::Waiting)
        .collect();
    let now =
        |claim: &Claim, entry: &Entry| after.entry(&claim.key, &entry.uid).map(|entry| entry.state);
    waited.iter().enumerate().all(|(i, (first, of_first))| {
        waited[i + 1..].iter().all(|(second, of_second)| {
            let meet = before
                .rules
                .conflicts(&first.key, &of_first.footprint, second, of_second);
            let overtaken = now(first, of_first) == Some(State::Waiting)
                && now(second, of_second) == Some(State::Reserved);
            !(meet && overtaken)
        })
    })
}

proptest! {
    // PROPTEST_CASES raises the number.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(600)))]

    #[test]
    fn every_history_keeps_the_promises_of_the_ledger(
        backups_exclude_each_other in any::<bool>(),
        backups_yield in any::<bool>(),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let rules = Rules { backups_exclude_each_other, backups_yield };
        let mut ledger = Ledger { rules, ..Ledger::default() };
        let mut adopted = BTreeSet::new();
        for step in steps {
            let before = ledger.clone();
            let done = take(&mut ledger, &step);
            let (key, uid) = subject(&step);
            if matches!(step, Step::Adopt(..)) && done {
                adopted.insert((key.clone(), uid.to_owned()));
            }
            adopted.retain(|(key, uid)| ledger.entry(key, uid).is_some());

            let released = |ledger: &Ledger| {
                ledger.entry(key, uid).is_some_and(|entry| entry.state == State::Released)
            };
            if released(&before) {
                let ends = matches!(step, Step::Release(..) | Step::Suspect(..));
                prop_assert!(released(&ledger) || ends, "what was released is claimed again by {step:?}");
            }
            prop_assert!(done || ledger == before, "what was not done left something behind: {step:?}");
            prop_assert_eq!(collision(&ledger, &adopted), None, "two hold the same after {:?}: {:#?}", step, ledger);
            prop_assert!(ledger.epoch >= before.epoch, "the epoch went back: {step:?}");
            prop_assert!(others_are_as_they_were(&before, &ledger, &step), "{step:?}\n{before:#?}\n{ledger:#?}");
            let forced = matches!(&step, Step::Admit(.., ask) if ask.forced.is_some());
            prop_assert!(forced || nobody_was_overtaken(&before, &ledger), "{step:?}\n{before:#?}\n{ledger:#?}");
            for (claim, entry) in entries(&ledger) {
                prop_assert!(
                    entry.state != State::Waiting || !ledger.behind(&claim.key, &entry.uid).holders.is_empty(),
                    "{} waits for nobody after {step:?}: {ledger:#?}", claim.key
                );
                let activated = before.entry(&claim.key, &entry.uid).is_some_and(|was| was.state == State::Active);
                prop_assert!(
                    entry.state != State::Active || activated || matches!(step, Step::Activate(..) | Step::Adopt(..)),
                    "{} became active by {step:?}", claim.key
                );
                prop_assert!(entry.epoch <= ledger.epoch);
            }
            let Step::Admit(key, uid, footprint, _) = &step else { continue };
            if done {
                // Admitting again restarts its age, and changes nothing else.
                let mut again = ledger.clone();
                again.entry_mut(key, uid).unwrap().renew("");
                ledger.admit(key, uid, footprint, "later", &Ask::default()).unwrap();
                prop_assert_eq!(&ledger, &again);
            }
        }
        prop_assert_eq!(Ledger { rules, ..Ledger::from_json(&ledger.to_json()).unwrap() }, ledger.clone());
        prop_assert!(ledger.bytes_at_most() >= ledger.to_json().len());
    }

    #[test]
    fn once_everybody_has_left_who_waits_is_served_to_the_last(
        backups_yield in any::<bool>(),
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let rules = Rules { backups_yield, ..Rules::default() };
        let mut ledger = Ledger { rules, ..Ledger::default() };
        for step in &steps {
            take(&mut ledger, step);
        }
        let holders = |ledger: &Ledger| -> Vec<(ObjectKey, String)> {
            let stays = |entry: &Entry| entry.state != State::Waiting;
            entries(ledger).filter(|(_, e)| stays(e)).map(|(c, e)| (c.key.clone(), e.uid.clone())).collect()
        };
        let mut rounds = 0;
        while !ledger.is_empty() {
            let leaving = holders(&ledger);
            prop_assert!(!leaving.is_empty(), "only those who wait are left: {ledger:#?}");
            for (key, uid) in leaving {
                ledger.release(&key, &uid);
            }
            rounds += 1;
            prop_assert!(rounds < 100);
        }
    }
}

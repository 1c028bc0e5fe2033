//! Properties of every transition.

use super::*;

#[test]
fn whatever_is_seen_the_promises_about_ends_hold() {
    for case in Case::all() {
        let Case {
            kind,
            state,
            found,
            suspect,
            settled,
            prior,
            ends,
        } = case;
        let transition = case.transition();
        let here = matches!(found, Found::Itself | Found::Deleting);
        let touches_only_time = matches!(state, State::Intent | State::Settling);
        if kind == ObjectKind::Hold {
            assert_eq!(transition, Keep, "only a person ends a hold: {case:?}");
            continue;
        }
        if here && kind != ObjectKind::Deletion && !touches_only_time {
            let expected = if state == State::Collected {
                Readmit
            } else {
                Keep
            };
            assert_eq!(
                transition, expected,
                "what is stored and not over keeps its place: {case:?}"
            );
        }
        if state == State::Released {
            let gone = matches!(found, Found::Nothing | Found::Another);
            let expected = match found {
                Found::Ended => End(Reason::Over),
                _ if gone && prior.stored => End(Reason::Gone),
                _ if gone && prior.aged => End(Reason::Orphan),
                _ => Keep,
            };
            assert_eq!(
                transition, expected,
                "a release lasts as long as its object: {case:?}"
            );
        } else if transition == End(Reason::Orphan) && state != State::Collected
            || transition == Tombstone
        {
            assert!(
                prior.aged && suspect,
                "no orphan without grace and suspicion: {case:?}"
            );
            assert!(
                matches!(state, State::Reserved | State::Waiting | State::Active),
                "{case:?}"
            );
            assert!(
                state != State::Active || kind == ObjectKind::Deletion,
                "what works is no orphan: {case:?}"
            );
        }
        if let Settle(_) = transition {
            assert!(
                kind == ObjectKind::Restore && (ends.settles || !settled),
                "{case:?}"
            );
            assert!(matches!(state, State::Reserved | State::Active), "{case:?}");
        }
        if transition == Tombstone {
            assert!(ends.tombstones, "{case:?}");
        }
        if kind == ObjectKind::Deletion && state == State::Active {
            continue; // nobody works for a deletion of ours, so none is ever activated
        }
        // Applied to a ledger, every transition but two changes something, and an ended entry keeps
        // nothing out.
        let key = ObjectKey::new(kind, "velero", "x");
        let mut ledger = Ledger::default();
        ledger.claims.push(crate::claim::Claim {
            key: key.clone(),
            entries: vec![entry(state, suspect)],
        });
        let before = ledger.clone();
        let done = transition.apply(&mut ledger, &key, &entry(state, suspect));
        assert_eq!(
            done,
            !matches!(transition, Keep | Readmit),
            "{case:?}: {transition:?}"
        );
        assert_eq!(ledger != before, done, "{case:?}: {transition:?}");
        assert_eq!(
            ledger.is_empty(),
            matches!(transition, End(_)),
            "{case:?}: {transition:?}"
        );
        assert_eq!(
            transition.reason().is_some(),
            done && transition != Suspect,
            "{case:?}: {transition:?}"
        );
    }
}

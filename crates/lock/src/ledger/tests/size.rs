//! Capacity of a ledger. The documentation gives these numbers.

use super::*;

/// The API server's limit for all annotations of an object together (bytes).
const API_LIMIT: usize = 262_144;
/// Upper bound of the other annotations of a ledger, with all names (bytes): serial, sum, and a
/// scope of 700 bytes.
const OTHERS: usize = 1024;

const UID: &str = "6f1c2a3b-4d5e-4f60-8a7b-9c0d1e2f3a4b";

/// Number of these claims until the ledger is full, each of another requester, and the length of
/// its JSON then.
fn fill(of: impl Fn(usize) -> (ObjectKey, Footprint)) -> (usize, usize) {
    let mut ledger = Ledger {
        epoch: 1_000_000,
        bound: 1_000_000,
        ..Ledger::default()
    };
    let (n, refusal) = fill_on(&mut ledger, |n| format!("user {n}"), of);
    let bytes = ledger.to_json().len();
    assert_eq!(refusal.category(), "full");
    assert_says!(refusal, &format!("{n} entries"));
    assert!(
        bytes <= MAX_BYTES && MAX_BYTES + OTHERS < API_LIMIT,
        "{bytes} bytes"
    );
    (n, bytes)
}

/// Number of further claims that a ledger takes, and the refusal of the next.
fn fill_on(
    ledger: &mut Ledger,
    requester: impl Fn(usize) -> String,
    of: impl Fn(usize) -> (ObjectKey, Footprint),
) -> (usize, Refusal) {
    for n in 0.. {
        let (key, footprint) = of(n);
        let ask = Ask {
            requester: requester(n),
            ..Ask::default()
        };
        if let Err(refusal) = ledger.admit(&key, UID, &footprint, SINCE, &ask) {
            let before = ledger.clone();
            assert_eq!(
                ledger.admit(&key, UID, &footprint, SINCE, &ask).as_ref(),
                Err(&refusal)
            );
            assert_eq!(*ledger, before, "a refusal leaves nothing behind");
            return (n, refusal);
        }
    }
    unreachable!()
}

/// A ledger filled with these claims: up to `most` are added directly, the rest by admission.
fn filled(
    of: fn(usize) -> (ObjectKey, Footprint),
    most: usize,
    requester: impl Fn(usize) -> String,
) -> (Ledger, Refusal) {
    let mut ledger = Ledger::default();
    for n in 0..most {
        let (key, footprint) = of(n);
        let entry = Entry::new(UID, footprint, State::Reserved, SINCE);
        let entry = Entry {
            requester: super::super::room::digest_of(&requester(n)),
            ..entry
        };
        if ledger.bytes_at_most() + 10_000 > MAX_BYTES / 2 {
            break;
        }
        ledger.claims.push(Claim {
            key,
            entries: vec![entry],
        });
    }
    let next = ledger.len();
    let (_, refusal) = fill_on(&mut ledger, |n| requester(next + n), |n| of(next + n));
    (ledger, refusal)
}

fn name(n: usize, bytes: usize) -> String {
    format!("{n:0>bytes$}")
}

/// A backup of everything, with a short name.
fn ours(n: usize) -> (ObjectKey, Footprint) {
    (
        backup(&format!("nightly-20261121{n:06}")),
        Footprint::everything(),
    )
}

/// A backup with the longest names and footprint.
fn longest(n: usize) -> (ObjectKey, Footprint) {
    let names = (0..100).map(|i| name(n * 100 + i, 40));
    let footprint =
        Footprint::namespaces(names).from_backup(&"v".repeat(63), Some(&"b".repeat(253)));
    (ObjectKey::backup(&"v".repeat(63), &name(n, 253)), footprint)
}

#[test]
fn so_many_claims_fit_whoever_makes_them() {
    let short = fill(ours);
    let typical = fill(|n| {
        let key = ObjectKey::backup(&"v".repeat(63), &name(n, 40));
        (key, Footprint::namespaces([name(n, 63)]))
    });
    let restores = fill(|n| {
        let (namespace, name) = ("v".repeat(63), name(n, 40));
        let footprint =
            Footprint::namespaces([format!("{n:063}")]).from_backup(&namespace, Some(&name));
        (ObjectKey::restore(&namespace, &name), footprint)
    });
    let worst = fill(longest);
    println!("claims that fit, and bytes then:");
    println!("  backups of everything in namespace velero: {short:?}");
    println!("  backups with long names of one namespace:  {typical:?}");
    println!("  restores with long names of one namespace: {restores:?}");
    println!("  the longest names and footprints:          {worst:?}");
    assert_eq!(
        [short.0, typical.0, restores.0, worst.0],
        [750, 435, 395, 35]
    );
}

#[rstest::rstest]
#[case::by_their_number(ours)]
#[case::by_their_size(longest)]
fn what_matters_more_finds_room_where_backups_have_none(
    #[case] of: fn(usize) -> (ObjectKey, Footprint),
) {
    let anybody = |n| format!("user {n}");
    let (mut ledger, refusal) = filled(of, Room::Backups.entries(), anybody);
    assert_says!(refusal, "full for backups");
    // They conflict with none of those backups.
    let restores = |n| {
        (
            ObjectKey::restore("velero", &name(n, 200)),
            Footprint::namespaces([format!("r-{n}")]),
        )
    };
    let deletions = |n| {
        let key = ObjectKey::new(ObjectKind::Deletion, "velero", &name(n, 200));
        (key, Footprint::of_deletion("velero", &name(n, 200)))
    };
    if of(0).1 == Footprint::everything() {
        ledger
            .claims
            .iter_mut()
            .flat_map(|claim| &mut claim.entries)
            .for_each(|entry| entry.footprint = on(&["b"]));
    }
    for (what, (more, refusal)) in [
        ("restores", fill_on(&mut ledger, anybody, restores)),
        ("deletions", fill_on(&mut ledger, anybody, deletions)),
    ] {
        assert!(more > 20, "{more} {what}");
        assert_says!(refusal, &format!("full for {what}"), "kept for");
    }
    let held = (0..10).all(|n| {
        ledger
            .hold(
                &hold(&n.to_string()),
                UID,
                &on(&["h"]),
                SINCE,
                "alice: repairs",
            )
            .is_ok()
    });
    let broken = (0..10).all(|n| {
        force(
            &mut ledger,
            &backup(&format!("urgent-{n}")),
            UID,
            &["b", "r-1"],
        )
        .is_ok()
    });
    assert!(held && broken, "for people there is room");
    assert!(ledger.to_json().len() <= MAX_BYTES);
}

#[rstest::rstest]
#[case::by_their_number(ours)]
#[case::by_their_size(longest)]
fn nobody_takes_all_of_it_alone(#[case] of: fn(usize) -> (ObjectKey, Footprint)) {
    for requester in ["user \"alice\"", "schedule velero/hourly"] {
        let (mut ledger, refusal) = filled(of, SHARE_ENTRIES, |_| requester.to_owned());
        assert!(
            ledger.len() <= SHARE_ENTRIES && ledger.to_json().len() <= SHARE_BYTES,
            "{}",
            ledger.len()
        );
        assert_eq!(refusal.category(), "share");
        assert!(
            refusal.to_string().starts_with(requester)
                && refusal.to_string().contains("500 entries"),
            "{refusal}"
        );
        let another = Ask {
            requester: "user \"bob\"".to_owned(),
            ..Ask::default()
        };
        ledger
            .admit(&backup("of-bob"), UID, &on(&["b"]), SINCE, &another)
            .unwrap();
        let urgent = Ask {
            requester: requester.to_owned(),
            ..Ask::forced("the house burns")
        };
        ledger
            .admit(&backup("urgent"), UID, &on(&["b"]), SINCE, &urgent)
            .unwrap();
        let (key, footprint) = of(0);
        let again = Ask {
            requester: requester.to_owned(),
            ..Ask::default()
        };
        ledger
            .admit(&key, UID, &footprint, SINCE, &again)
            .expect("who is in it already needs no new place");
    }
}

#[test]
fn a_full_ledger_refuses_clearly_and_stays_as_it_was() {
    let (mut ledger, _) = filled(ours, Room::Backups.entries(), |n| format!("user {n}"));
    let before = ledger.clone();
    let refused = admit(&mut ledger, &backup("one-more"), "1", &["a"]).unwrap_err();
    assert_eq!(refused.category(), "full");
    assert_says!(refused, "750 entries");
    assert_eq!(ledger, before);
    ledger.activate(&ours(7).0, UID).unwrap();
}

/// Running objects are adopted, however many there are.
#[rstest::rstest]
#[case::with_what_each_touches(200, 60, false)]
#[case::with_everything_for_each(300, 60, false)]
#[case::by_one_claim_for_the_rest(600, 253, true)]
#[case::more_than_there_are_entries(950, 10, true)]
fn what_runs_always_fits(#[case] objects: usize, #[case] long: usize, #[case] overflows: bool) {
    let mut ledger = Ledger::default();
    let footprint = |n: usize| Footprint::namespaces((0..20).map(|i| name(n * 20 + i, 40)));
    for n in 0..objects {
        ledger.adopt(
            &backup(&name(n, long)),
            UID,
            &footprint(n),
            State::Active,
            SINCE,
        );
    }
    assert!(
        ledger.to_json().len() <= ledger.bytes_at_most() && ledger.bytes_at_most() <= MAX_BYTES
    );
    assert_eq!(ledger.overflows(), overflows, "{} entries", ledger.len());
    for n in 0..objects {
        let claimed = ledger
            .entry(&backup(&name(n, long)), UID)
            .is_some_and(|own| own.footprint.covers(&footprint(n)));
        assert!(claimed || overflows);
        if n > 5 && n < objects - 5 && n % 50 != 0 {
            continue;
        }
        let refused =
            ledger
                .clone()
                .admit(&restore("r"), "1", &footprint(n), SINCE, &Ask::default());
        assert!(matches!(refused, Err(Refusal::Conflict(_))), "{n}");
        let beside = admit(&mut ledger.clone(), &backup("b"), "1", &[&name(n * 20, 40)]);
        assert_eq!(
            matches!(beside, Err(Refusal::Conflict(_))),
            overflows,
            "nothing new at all while some have no entry"
        );
    }
    assert!(
        force(&mut ledger, &restore("urgent"), "1", &["a"]).is_ok(),
        "a person can still force something"
    );
    assert!(
        ledger
            .hold(&hold("h"), "1", &on(&["a"]), SINCE, "alice")
            .is_ok()
    );
    assert!(!ledger.without_overflow().overflows());
}

#[test]
fn one_object_can_not_fill_the_ledger() {
    let mut names = vec!["\u{1}".repeat(60_000), "\"".repeat(60_000)];
    names.extend((0..3000).map(|n| format!("namespace-{n}")));
    let spec = backup_core::api::BackupSpec {
        included_namespaces: names,
        ..Default::default()
    };
    for footprint in [
        Footprint::of_backup(&spec),
        Footprint::everything().from_backup("velero", Some(&"b".repeat(100_000))),
        Footprint::of_deletion("velero", &"\u{1}".repeat(200)),
    ] {
        assert!(
            footprint.bytes_at_most() < 6000,
            "{} bytes",
            footprint.bytes_at_most()
        );
    }
}

#[test]
fn a_long_reason_is_reckoned_with() {
    let by = "\n".repeat(MAX_BYTES / 6);
    let held = Ledger::default().hold(&hold("h"), "1", &on(&["a"]), SINCE, &by);
    assert_eq!(held.map_err(|refusal| refusal.category()), Err("full"));
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    let ask = Ask::forced(&"\n".repeat(MAX_BYTES / 6));
    let refused = ledger.admit(&restore("r"), "2", &on(&["a"]), SINCE, &ask);
    assert_eq!(refused.map_err(|refusal| refusal.category()), Err("full"));
}

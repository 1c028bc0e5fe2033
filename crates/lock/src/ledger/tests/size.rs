//! How much a ledger holds. The numbers are in the documentation.

use super::*;

/// What the API server allows for all annotations of an object together.
const API_LIMIT: usize = 262_144;
/// What the other annotations of a ledger take at most, with all names: serial, sum, and a scope of 700 bytes.
const OTHERS: usize = 1024;

const UID: &str = "6f1c2a3b-4d5e-4f60-8a7b-9c0d1e2f3a4b";

/// Claims until the ledger is full, and the length of its JSON then.
fn fill(of: impl Fn(usize) -> (ObjectKey, Footprint)) -> (usize, usize) {
    let mut ledger = Ledger { epoch: 1_000_000, bound: 1_000_000, ..Ledger::default() };
    for n in 0.. {
        let (key, footprint) = of(n);
        let before = ledger.clone();
        match ledger.admit(&key, UID, &footprint, SINCE, &Ask::default()) {
            Ok(_) => {}
            Err(refusal @ Refusal::Full { .. }) => {
                assert_eq!(ledger, before, "a refusal leaves nothing behind");
                assert!(refusal.to_string().contains(&format!("{n} entries")), "{refusal}");
                let bytes = ledger.to_json().len();
                assert!(bytes <= MAX_BYTES && MAX_BYTES + OTHERS < API_LIMIT, "{bytes} bytes");
                return (n, bytes);
            }
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

fn name(n: usize, bytes: usize) -> String {
    format!("{n:0>bytes$}")
}

#[test]
fn so_many_claims_fit_whoever_makes_them() {
    let ours = fill(|n| (backup(&format!("nightly-20261121{n:06}")), Footprint::everything()));
    let typical = fill(|n| {
        let key = ObjectKey::backup(&"v".repeat(63), &name(n, 40));
        (key, Footprint::namespaces([name(n, 63)]))
    });
    let restores = fill(|n| {
        let (namespace, name) = ("v".repeat(63), name(n, 40));
        let footprint = Footprint::namespaces([format!("{n:063}")]).from_backup(&namespace, Some(&name));
        (ObjectKey::restore(&namespace, &name), footprint)
    });
    let worst = fill(|n| {
        let names = (0..100).map(|i| name(n * 100 + i, 40));
        let footprint = Footprint::namespaces(names).from_backup(&"v".repeat(63), Some(&"b".repeat(253)));
        (ObjectKey::backup(&"v".repeat(63), &name(n, 253)), footprint)
    });
    println!("claims that fit, and bytes then:");
    println!("  backups of everything in namespace velero: {ours:?}");
    println!("  backups with long names of one namespace:  {typical:?}");
    println!("  restores with long names of one namespace: {restores:?}");
    println!("  the longest names and footprints:          {worst:?}");
    assert_eq!([ours.0, typical.0, restores.0, worst.0], [1000, 569, 458, 47]);
}

#[test]
fn a_full_ledger_refuses_clearly_and_stays_as_it_was() {
    let mut ledger = Ledger::default();
    for n in 0..MAX_ENTRIES {
        // Adoption asks nobody: what is there is there.
        ledger.adopt(&backup(&format!("b-{n}")), UID, &on(&["a"]), State::Reserved, SINCE);
    }
    assert!(ledger.to_json().len() < MAX_BYTES, "{} bytes", ledger.to_json().len());
    let before = ledger.clone();
    let refused = admit(&mut ledger, &backup("one-more"), "1", &["a"]).unwrap_err();
    assert_eq!(refused.category(), "full");
    assert!(refused.to_string().contains("1000 entries"), "{refused}");
    assert_eq!(ledger, before);
    admit(&mut ledger, &backup("b-7"), UID, &["a"]).expect("who is in it already needs no new place");
    ledger.activate(&backup("b-7"), UID).unwrap();
}

#[test]
fn one_object_can_not_fill_the_ledger() {
    let mut names = vec!["\u{1}".repeat(60_000), "\"".repeat(60_000)];
    names.extend((0..3000).map(|n| format!("namespace-{n}")));
    let spec = backup_core::api::BackupSpec { included_namespaces: names, ..Default::default() };
    for footprint in [
        Footprint::of_backup(&spec),
        Footprint::everything().from_backup("velero", Some(&"b".repeat(100_000))),
        Footprint::of_deletion("velero", &"\u{1}".repeat(200)),
    ] {
        assert!(footprint.bytes_at_most() < 6000, "{} bytes", footprint.bytes_at_most());
    }
}

#[test]
fn a_long_reason_is_reckoned_with() {
    let mut ledger = with_entry(&backup("b"), "1", State::Active);
    let ask = Ask::forced(&"\n".repeat(MAX_BYTES / 6));
    let refused = ledger.admit(&restore("r"), "2", &on(&["a"]), SINCE, &ask);
    assert_eq!(refused.map_err(|refusal| refusal.category()), Err("full"));
}

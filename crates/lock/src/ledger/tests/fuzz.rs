//! Damaged ledger texts: each is read or refused, and a ledger that was read can be worked with.

use backup_testkit::Fuzz;

use super::*;

/// A ledger with an entry in most states.
fn seed() -> Ledger {
    let mut ledger = Ledger::default();
    let of = |name: &str| Footprint::namespaces([name]);
    let (running, waiting, released) = (
        ObjectKey::restore("v", "r"),
        ObjectKey::restore("v", "w"),
        ObjectKey::backup("v", "b"),
    );
    ledger
        .admit(
            &running,
            "1",
            &of("a"),
            "2026-01-01T00:00:00Z",
            &Ask::default(),
        )
        .unwrap();
    ledger.activate(&running, "1").unwrap();
    ledger
        .admit(&waiting, "2", &of("a"), "", &Ask::queued())
        .unwrap();
    ledger
        .admit(
            &released,
            "3",
            &of("b"),
            "",
            &Ask {
                requester: "user \"ann\"".to_owned(),
                ..Ask::default()
            },
        )
        .unwrap();
    ledger.force_release(&released, "3", "ann: it hangs");
    ledger
        .hold(&hold("upgrade"), "4", &of("c*"), "", "ann: maintenance")
        .unwrap();
    ledger
}

/// All operations of a program on a ledger that it has read.
fn work_on(mut ledger: Ledger) -> String {
    let everything = Footprint::everything();
    let new = ObjectKey::restore("v", "new");
    let admitted = ledger.admit(&new, "n", &everything, "", &Ask::default());
    let keys: Vec<(ObjectKey, String)> = ledger
        .claims
        .iter()
        .flat_map(|claim| {
            claim
                .entries
                .iter()
                .map(|entry| (claim.key.clone(), entry.uid.clone()))
        })
        .collect();
    for (key, uid) in keys.iter().take(20) {
        ledger.conflicts(key, &everything);
        let _ = ledger.activate(key, uid);
        ledger.suspect(key, uid);
        ledger.force_release(key, uid, "a person");
        ledger.release(key, uid);
    }
    let held = ledger.hold(&hold("h"), "h", &everything, "", "ann");
    ledger.holder();
    format!("{admitted:?} {held:?}").chars().take(100).collect()
}

#[test]
fn any_text_is_a_ledger_or_is_refused() {
    let seeds = [seed().to_json(), super::format::WRITTEN.to_owned()];
    let seeds = seeds.map(String::into_bytes).to_vec();
    Fuzz::new(env!("CARGO_MANIFEST_DIR"), "ledger", seeds).run(|text| {
        let Ok(text) = std::str::from_utf8(text) else {
            return "no text".to_owned();
        };
        let ledger = match Ledger::from_json(text) {
            Ok(ledger) => ledger,
            Err(error) => {
                let error = error.to_string();
                assert!(error.starts_with("the ledger "), "{error}");
                return error;
            }
        };
        let again = ledger.to_json();
        let back = Ledger::from_json(&again).unwrap();
        assert_eq!(back.to_json(), again);
        assert_eq!(back, ledger);
        work_on(ledger)
    });
}

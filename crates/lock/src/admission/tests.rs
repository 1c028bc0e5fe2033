use super::*;
use crate::{claim::Entry, footprint::Footprint};

const SINCE: &str = "2026-11-21T09:00:00Z";

fn restore(name: &str) -> ObjectKey {
    ObjectKey::restore("velero", name)
}

fn request(key: ObjectKey, namespaces: &[&str], ask: Ask) -> ClaimRequest {
    let (uid, footprint) = (
        key.name.clone(),
        Footprint::namespaces(namespaces.iter().copied()),
    );
    ClaimRequest {
        key,
        uid,
        footprint,
        since: SINCE.to_owned(),
        ask,
        intent: false,
        running: None,
    }
}

/// A ledger with a reservation for each of these keys, on the namespace `a` and one named like the
/// key.
fn holding(keys: &[ObjectKey]) -> Ledger {
    let mut ledger = Ledger::default();
    for key in keys {
        let footprint = Footprint::namespaces(["a", &key.name]);
        ledger
            .admit(key, &key.name, &footprint, SINCE, &Ask::default())
            .unwrap();
    }
    ledger
}

fn backups(count: usize) -> Vec<ObjectKey> {
    (0..count)
        .map(|n| ObjectKey::backup("velero", &format!("b-{n:02}")))
        .collect()
}

/// The object of this claim is gone.
fn ended(claim: &Claim) -> Vec<Judgement> {
    let over = |entry: &Entry| Judgement {
        key: claim.key.clone(),
        entry: entry.clone(),
        transition: EntryTransition::End(Reason::Gone),
    };
    claim.entries.iter().map(over).collect()
}

fn keys(claims: &[Claim]) -> Vec<ObjectKey> {
    claims.iter().map(|claim| claim.key.clone()).collect()
}

#[test]
fn requests_are_admitted_in_their_order() {
    let mut ledger = Ledger::default();
    let wants = ["r-1", "r-2", "r-3"].map(|name| {
        let namespace = if name == "r-3" { "b" } else { "a" };
        request(restore(name), &[namespace], Ask::default())
    });
    let outcomes = admit_all(&mut ledger, &wants);
    assert!(
        matches!(
            &outcomes[..],
            [
                Ok(Grant::Reserved),
                Err(Refusal::Conflict(_)),
                Ok(Grant::Reserved)
            ]
        ),
        "{outcomes:?}"
    );
    assert!(ledger.claim(&restore("r-1")).is_some() && ledger.claim(&restore("r-2")).is_none());
}

#[test]
fn what_is_known_to_run_is_taken_in_before_it_is_asked_for() {
    let running = Running {
        key: restore("found"),
        uid: "found".to_owned(),
        since: SINCE.to_owned(),
    };
    let want = request(backups(1).remove(0), &["a"], Ask::default());
    let mut ledger = Ledger::default();
    let outcomes = admit_all(
        &mut ledger,
        &[ClaimRequest {
            running: Some(running),
            ..want
        }],
    );
    assert!(
        matches!(&outcomes[..], [Err(Refusal::Conflict(_))]),
        "{outcomes:?}"
    );
    assert_eq!(
        ledger.claim(&restore("found")).unwrap().state(),
        State::Active
    );
}

/// Waiting and forced grants are confirmed like refusals: users see their conflicts.
#[test]
fn one_claim_in_the_way_is_confirmed_whatever_the_outcome_is() {
    let held = backups(3);
    let ledger = holding(&held);
    for ask in [Ask::default(), Ask::queued(), Ask::forced("fire")] {
        let wants = [request(restore("r"), &["a"], ask)];
        let mut batch = Batch::new(&ledger, &wants);
        assert_eq!(keys(&batch.to_read()), held[..1]);
        let first = ledger.claim(&held[0]).unwrap();
        batch.saw(first, &[]);
        assert_eq!(batch.to_read(), []);
        let decided = batch.decide();
        assert_eq!((decided.outcomes.len(), decided.freed), (1, Vec::new()));
    }
}

#[test]
fn what_could_not_be_read_is_in_the_way() {
    let held = backups(1);
    let ledger = holding(&held);
    let wants = [request(restore("r"), &["a"], Ask::default())];
    let mut batch = Batch::new(&ledger, &wants);
    let claims = batch.to_read();
    batch.could_not_see(&claims[0]);
    assert_eq!(batch.to_read(), []);
    assert!(matches!(
        &batch.decide().outcomes[..],
        [Err(Refusal::Conflict(_))]
    ));
}

#[test]
fn after_one_that_is_over_more_are_read_each_time() {
    let held = backups(8);
    let ledger = holding(&held);
    let wants = [request(restore("r"), &["a"], Ask::default())];
    let mut batch = Batch::new(&ledger, &wants);
    for expected in [&held[..1], &held[1..5], &held[5..]] {
        let claims = batch.to_read();
        assert_eq!(keys(&claims), expected);
        for claim in &claims {
            batch.saw(claim, &ended(claim));
        }
    }
    assert_eq!(batch.to_read(), []);
    let decided = batch.decide();
    assert!(
        matches!(&decided.outcomes[..], [Ok(Grant::Reserved)]),
        "{:?}",
        decided.outcomes
    );
    assert_eq!(
        (decided.freed, decided.ledger.len()),
        (vec![Reason::Gone; 8], 1)
    );
}

#[test]
fn a_claim_in_the_way_of_several_is_read_once() {
    let held = backups(1);
    let ledger = holding(&held);
    let wants = ["r-1", "r-2"].map(|name| request(restore(name), &["a"], Ask::default()));
    assert_eq!(keys(&Batch::new(&ledger, &wants).to_read()), held);
}

/// A hold has no object: it exists as long as the ledger says so. Requests of the same batch are
/// not stored yet.
#[test]
fn a_hold_and_a_request_of_the_same_batch_are_not_read() {
    let hold = ObjectKey::new(ObjectKind::Hold, "velero", "h");
    for held in [vec![hold], Vec::new()] {
        let ledger = holding(&held);
        let wants = ["r-1", "r-2"].map(|name| request(restore(name), &["a"], Ask::default()));
        let mut batch = Batch::new(&ledger, &wants);
        assert_eq!(batch.to_read(), []);
        assert!(matches!(
            batch.decide().outcomes[1],
            Err(Refusal::Conflict(_))
        ));
    }
}

#[test]
fn only_a_refused_restore_that_says_so_leaves_its_word() {
    let held = backups(1);
    let ledger = holding(&held);
    for (intent, namespace, left) in [
        (true, "a", true),
        (false, "a", false),
        (true, "free", false),
    ] {
        let wants = [ClaimRequest {
            intent,
            ..request(restore("r"), &[namespace], Ask::default())
        }];
        let mut batch = Batch::new(&ledger, &wants);
        for claim in batch.to_read() {
            batch.saw(&claim, &[]);
        }
        let decided = batch.decide();
        let word = decided.ledger.claim(&restore("r")).map(Claim::state) == Some(State::Intent);
        assert_eq!(word, left, "{intent} {namespace}");
    }
}

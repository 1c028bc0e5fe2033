//! The transitions of a ledger, by topic.

use super::{intent::MAX_INTENTS, *};
use crate::claim::Word;

mod activation;
mod conflicts;
mod ends;
mod format;
mod fuzz;
mod intents;
mod queue;
mod random;
mod room;
mod size;

const SINCE: &str = "2026-11-21T09:00:00Z";

fn backup(name: &str) -> ObjectKey {
    ObjectKey::backup("velero", name)
}

fn restore(name: &str) -> ObjectKey {
    ObjectKey::restore("velero", name)
}

fn hold(name: &str) -> ObjectKey {
    ObjectKey::new(ObjectKind::Hold, "velero", name)
}

fn on(namespaces: &[&str]) -> Footprint {
    Footprint::namespaces(namespaces.iter().copied())
}

/// Requests admission without queueing.
fn admit(
    ledger: &mut Ledger,
    key: &ObjectKey,
    uid: &str,
    namespaces: &[&str],
) -> Result<Grant, Refusal> {
    ledger.admit(key, uid, &on(namespaces), SINCE, &Ask::default())
}

fn queue_up(
    ledger: &mut Ledger,
    key: &ObjectKey,
    uid: &str,
    namespaces: &[&str],
) -> Result<Grant, Refusal> {
    ledger.admit(key, uid, &on(namespaces), SINCE, &Ask::queued())
}

/// Requests admission by force.
fn force(
    ledger: &mut Ledger,
    key: &ObjectKey,
    uid: &str,
    namespaces: &[&str],
) -> Result<Grant, Refusal> {
    ledger.admit(
        key,
        uid,
        &on(namespaces),
        SINCE,
        &Ask::forced("the house burns"),
    )
}

fn blockers(outcome: Result<Grant, Refusal>) -> Vec<ObjectKey> {
    match outcome {
        Err(Refusal::Conflict(conflict) | Refusal::Waiting(conflict))
        | Ok(Grant::Waiting(conflict)) => conflict
            .holders
            .into_iter()
            .map(|holder| holder.key)
            .collect(),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

fn state(ledger: &Ledger, key: &ObjectKey, uid: &str) -> Option<State> {
    ledger.entry(key, uid).map(|entry| entry.state)
}

/// A ledger with one entry of this state, on namespace `a`.
fn with_entry(key: &ObjectKey, uid: &str, state: State) -> Ledger {
    let mut ledger = Ledger::default();
    admit(&mut ledger, key, uid, &["a"]).unwrap();
    ledger.entry_mut(key, uid).unwrap().state = state;
    ledger
}

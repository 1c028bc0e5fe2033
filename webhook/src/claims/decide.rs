//! Decides on some wanted claims together, over a ledger that was read freshly.

use std::collections::HashMap;

use backup_lock::{
    Claim, Collector, Conflict, Ledger, ObjectKey,
    collect::Reason,
    ledger::Refusal,
    observe::{Objects, Observed},
};

use super::{Verdict, Want};
use crate::admit::denial::Blocker;

/// The decision on a batch.
pub struct Decided {
    /// The ledger with what is granted, and without what was found to be over.
    pub ledger: Ledger,
    /// A verdict for each want, in their order. Granted holds only once the ledger is written.
    pub verdicts: Vec<Verdict>,
    /// What was found to be over.
    pub freed: Vec<Reason>,
}

/// Admits wants in their order of arrival; one that is refused does not hurt the others.
pub fn admit_all(ledger: &mut Ledger, wants: &[Want]) -> Vec<Result<(), Refusal>> {
    wants.iter().map(|want| ledger.admit(&want.key, &want.uid, &want.footprint, &want.since)).collect()
}

/// Decides, and reads who is in the way before anyone is refused: an entry whose object has ended or is gone is dropped,
/// and the decision is made again. One blocker that is confirmed is enough to refuse.
pub async fn decide(objects: &Objects, collector: &mut Collector, fresh: &Ledger, wants: &[Want]) -> Decided {
    let mut base = fresh.clone();
    let mut looked = HashMap::<ObjectKey, Result<Option<Observed>, String>>::new();
    let mut freed = Vec::new();
    loop {
        let mut ledger = base.clone();
        let outcomes = admit_all(&mut ledger, wants);
        let Some(unconfirmed) = outcomes.iter().find_map(|outcome| unconfirmed(outcome, &base, &looked))
        else {
            let verdicts = outcomes.into_iter().map(|outcome| verdict(outcome, &looked)).collect();
            return Decided { ledger, verdicts, freed };
        };
        let object = objects.read(&unconfirmed.key).await.map_err(|error| error.to_string());
        if let Ok(object) = &object {
            let now = tokio::time::Instant::now().into_std();
            for entry in &unconfirmed.entries {
                if let Some(reason) = collector.judge(&unconfirmed.key, entry, object.as_ref(), now) {
                    base.drop_if(&unconfirmed.key, &entry.uid, entry.state);
                    freed.push(reason);
                }
            }
        }
        looked.insert(unconfirmed.key, object);
    }
}

/// The claim to read before this outcome may stand: the first in the way, unless one of them is confirmed already, or
/// came in with this very batch.
fn unconfirmed(
    outcome: &Result<(), Refusal>,
    base: &Ledger,
    looked: &HashMap<ObjectKey, Result<Option<Observed>, String>>,
) -> Option<Claim> {
    let Err(Refusal::Conflict(Conflict { holders, .. })) = outcome else { return None };
    if holders.iter().any(|holder| looked.contains_key(&holder.key) || base.claim(&holder.key).is_none()) {
        return None;
    }
    base.claim(&holders.first()?.key).cloned()
}

fn verdict(
    outcome: Result<(), Refusal>,
    looked: &HashMap<ObjectKey, Result<Option<Observed>, String>>,
) -> Verdict {
    match outcome {
        Ok(()) => Verdict::Granted,
        Err(Refusal::Conflict(conflict)) => {
            let seen = |holder: &Claim| looked.get(&holder.key).cloned();
            // The one that was read comes first, so that the message can tell its phase.
            let (mut read, others): (Vec<Claim>, Vec<Claim>) =
                conflict.holders.into_iter().partition(|holder| matches!(seen(holder), Some(Ok(_))));
            if read.is_empty()
                && let Some(Err(error)) = others.iter().find_map(seen)
            {
                return Verdict::Trouble(error);
            }
            read.extend(others);
            let blocker = |claim: Claim| {
                // Another object of the name is not who is in the way: that one is not stored (yet).
                let object = seen(&claim).and_then(Result::ok).flatten();
                let object = object.filter(|object| claim.entry(&object.uid).is_some());
                Blocker { claim, object }
            };
            Verdict::Blocked(read.into_iter().map(blocker).collect())
        }
        Err(other) => Verdict::Full(other.to_string()),
    }
}

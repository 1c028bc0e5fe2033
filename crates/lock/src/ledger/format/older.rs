//! Format 2, read only: a claim is an object with field names.

use serde::Deserialize;

use super::{ObjectKind, Special, State, Wire, WireClaim, WireEntry};

#[derive(Deserialize)]
struct NamedClaim {
    kind: ObjectKind,
    ns: String,
    name: String,
    entries: Vec<NamedEntry>,
}

#[derive(Deserialize)]
struct NamedEntry {
    uid: String,
    fp: usize,
    state: State,
    epoch: u64,
    since: String,
    #[serde(flatten)]
    special: Special,
}

/// Reads format 2, and converts it to the form of later formats.
pub(super) fn read(text: &str) -> serde_json::Result<Wire> {
    let Wire {
        v,
        status,
        epoch,
        bound,
        footprints,
        claims,
    } = serde_json::from_str(text)?;
    let entry = |NamedEntry {
                     uid,
                     fp,
                     state,
                     epoch,
                     since,
                     special,
                 }| { WireEntry(uid, fp, state, epoch, since, special) };
    let claim =
        |NamedClaim {
             kind,
             ns,
             name,
             entries,
         }| { WireClaim(kind, ns, name, entries.into_iter().map(entry).collect()) };
    let claims = claims.into_iter().map(claim).collect();
    Ok(Wire {
        v,
        status,
        epoch,
        bound,
        footprints,
        claims,
    })
}

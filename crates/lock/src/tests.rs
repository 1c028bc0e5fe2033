//! The ledger in its Lease, against an in-memory API server. Time is paused, so that a slow machine
//! makes nothing late.

use std::time::{Duration, Instant};

use backup_core::profile::Profile;
use backup_testkit::{
    FakeApi, Fault, LEDGER_PATH, LastWrite, MARKER_PATH, Request, ledger_path, marker_path,
    velero_path,
};
use serde_json::{Value, json};

use crate::{
    ActivateError, Collector, Footprint, Ledger, LedgerRepair, LedgerStore, ObjectKey, ObjectKind,
    ProtectedProfile, RepairOutcome, State, VELERO_SCOPE, activate,
    activate::{TokenState, holds, token_state},
    lease::{LedgerError, UpdateError, lease_name},
    ledger::{Ask, Grant, Refusal, Status},
    release,
    transition::Reason,
    transition::Times,
};

mod activation;
mod bound;
mod collection;
mod first;
mod full;
mod gone;
mod guarded;
mod idle;
mod intent;
mod lease;
mod lost;
mod released;
mod upkeep;

const GRACE: Duration = Duration::from_mins(2);
const PERCONA_SCOPE: &str = "percona-ps/db/cluster1";

fn deadline() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(5)
}

fn setup() -> (FakeApi, LedgerStore) {
    let api = FakeApi::new();
    let store = LedgerStore::new(api.client(), "velero");
    (api, store)
}

fn percona(api: &FakeApi) -> ProtectedProfile {
    let profile = Profile::builtin()
        .into_iter()
        .find(|profile| profile.name == "percona-ps")
        .unwrap();
    ProtectedProfile::new(api.client(), "velero", profile, GRACE)
}

/// The paths of a scope's ledger and of its marker.
fn paths(scope: &str) -> (String, String) {
    let name = lease_name(scope);
    (ledger_path(&name), marker_path(&name))
}

async fn admit(
    store: &LedgerStore,
    key: &ObjectKey,
    uid: &str,
) -> Result<Grant, UpdateError<Refusal>> {
    admit_as(store, VELERO_SCOPE, key, uid, Ask::default()).await
}

async fn admit_as(
    store: &LedgerStore,
    scope: &str,
    key: &ObjectKey,
    uid: &str,
    ask: Ask,
) -> Result<Grant, UpdateError<Refusal>> {
    let change =
        |ledger: &mut Ledger| ledger.admit(key, uid, &Footprint::everything(), "now", &ask);
    store
        .update(scope, deadline(), change)
        .await
        .map(|(grant, _)| grant)
}

fn queued() -> Ask {
    Ask::queued()
}

fn forced() -> Ask {
    Ask::forced("the house burns")
}

async fn ledger(store: &LedgerStore) -> Ledger {
    ledger_of(store, VELERO_SCOPE).await
}

async fn ledger_of(store: &LedgerStore, scope: &str) -> Ledger {
    (*store.read(scope).await.unwrap().unwrap().ledger).clone()
}

/// The error category of the ledger; `None` if it grants.
async fn trouble(store: &LedgerStore) -> Option<&'static str> {
    match admit(store, &backup("probe"), "probe").await {
        Ok(_) => {
            release(store, &backup("probe"), "probe").await.unwrap();
            None
        }
        Err(UpdateError::Refused(_)) => None,
        Err(UpdateError::Ledger(error)) => Some(error.category()),
    }
}

/// The uid in the marker, and its epoch.
fn marker(api: &FakeApi, path: &str) -> Option<(String, u64)> {
    let data = api.get(path)?["data"].clone();
    Some((
        data["ledger"].as_str()?.to_owned(),
        data["epoch"].as_str()?.parse().ok()?,
    ))
}

fn lease_uid(api: &FakeApi, path: &str) -> String {
    api.get(path).unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn backup(name: &str) -> ObjectKey {
    ObjectKey::backup("velero", name)
}

fn restore(name: &str) -> ObjectKey {
    ObjectKey::restore("velero", name)
}

fn all() -> Value {
    json!({})
}

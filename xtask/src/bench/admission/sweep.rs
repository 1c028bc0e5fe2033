//! Deletes objects and empties ledgers between rounds.
//!
//! The measured replicas run with the grace of production, in which the claim of an admitted object
//! remains for minutes. So an additional replica, which the API server does not call, has a short
//! grace and frees claims; it is paused (SIGSTOP) during measurements.

use std::time::Duration;

use anyhow::Context as _;
use backup_tests::{
    install::NAMESPACE,
    wait::{eventually, when},
};
use kube::Client;
use serde_json::Value;

use super::replicas::Replicas;

/// The collections in which rounds create objects.
const COLLECTIONS: [&str; 3] = [
    "/apis/velero.io/v1/namespaces/{}/restores",
    "/apis/velero.io/v1/namespaces/{}/backups",
    "/apis/ps.percona.com/v1/namespaces/{}/perconaservermysqlbackups",
];

/// Deletes all objects in these namespaces, and waits until no ledger contains a claim.
pub async fn sweep(
    client: &Client,
    sweeper: &Replicas,
    namespaces: &[String],
) -> anyhow::Result<()> {
    for namespace in namespaces {
        for collection in COLLECTIONS {
            let request =
                http::Request::delete(collection.replace("{}", namespace)).body(Vec::new())?;
            match client.request_text(request).await {
                // A kind that is not served has no objects.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => {
                    other.with_context(|| format!("empty {namespace}"))?;
                }
            }
        }
    }
    for process in sweeper.processes() {
        process.resume()?;
    }
    let empty = eventually(
        "no ledger holds a claim",
        Duration::from_mins(1),
        async || {
            let held = claims(client).await?;
            anyhow::Ok(when(held == 0, format!("{held} claims")))
        },
    )
    .await;
    for process in sweeper.processes() {
        process.pause()?;
    }
    empty
}

/// Number of claims in all ledgers.
async fn claims(client: &Client) -> anyhow::Result<usize> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let leases: Value = client
        .request(http::Request::get(path).body(Vec::new())?)
        .await?;
    let ledgers = leases["items"].as_array().into_iter().flatten();
    Ok(ledgers
        .filter_map(|lease| lease["metadata"]["annotations"]["backup-lock/ledger"].as_str())
        .map(held)
        .sum())
}

/// Parsed leniently, so that a change of the ledger's format does not break the benchmark.
fn held(ledger: &str) -> usize {
    let parsed: Option<Value> = serde_json::from_str(ledger).ok();
    parsed
        .and_then(|ledger| ledger["claims"].as_array().map(Vec::len))
        .unwrap_or_default()
}

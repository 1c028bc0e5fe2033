//! Memory of a replica after many admissions.
//!
//! Reviews are sent to it in the form that the API server uses, but directly: only the memory of
//! the replica matters. The mix contains each kind of answer, because each leaves different data in
//! memory.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_tests::install;
use futures::{TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{
    load::Creation,
    plane::{GUARDED, Plane},
};
use crate::bench::table::{Row, Table};

const ADMISSIONS: usize = 100_000;
/// Admissions between two clean-ups.
const ADMISSIONS_PER_ROUND: usize = 4_000;
/// Objects among them that get a claim in the ledger.
const CLAIMS_PER_ROUND: usize = 400;
/// Repeated reviews of each of these; the API server repeats a review whose answer was lost.
const REPEATS: usize = 2;
/// Creations that conflict with a restore.
const REFUSALS_PER_ROUND: usize = 200;
const DRY_RUNS_PER_ROUND: usize = 1_000;
const CONNECTIONS: usize = 16;
const HELD: &str = "held";
const LIMIT_MIB: f64 = 48.0;

/// Peak memory after 100,000 admissions of all kinds.
pub async fn measure(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    let guard = &plane.guard()?.processes()[0];
    let idle = guard.peak_memory_kib()?;
    let ca = reqwest::Certificate::from_pem(&std::fs::read(plane.ca())?)?;
    let client = reqwest::Client::builder()
        .tls_certs_only([ca])
        // Several connections, like the API server.
        .http1_only()
        .timeout(Duration::from_secs(15))
        .build()?;
    let path = install::webhook_path(plane.client()).await?;
    let url = format!("https://{}{path}?timeout=10s", plane.guard()?.address());
    let start = Instant::now();
    let mut answers = BTreeMap::<&str, usize>::new();
    for round in 0..ADMISSIONS / ADMISSIONS_PER_ROUND {
        plane.sweep().await?;
        Creation::restore_of(GUARDED, HELD)
            .send(plane.client())
            .await?;
        for (what, expected, reviews) in reviews(round) {
            let count = reviews.len();
            post(&client, &url, reviews, expected)
                .await
                .with_context(|| format!("{what}, round {round}"))?;
            *answers.entry(what).or_default() += count;
        }
    }
    let peak = guard.peak_memory_kib()?;
    plane.sweep().await?;
    table.row(&Row {
        what: "peak memory of a replica after 100,000 admissions".to_owned(),
        found: format!("{:.1} MiB", mib(peak)),
        beside: format!("when it had started {:.1} MiB", mib(idle)),
        asked: format!("under {LIMIT_MIB} MiB"),
        met: Some(mib(peak) < LIMIT_MIB),
    });
    let mix: Vec<String> = answers
        .iter()
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    table.note(format!(
        "memory: reviews posted straight to the replica over {CONNECTIONS} connections in {:.0} s: {}.",
        start.elapsed().as_secs_f64(),
        mix.join(", ")
    ));
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// The reviews of a round: their kind, whether they must be allowed, and their bodies.
fn reviews(round: usize) -> Vec<(&'static str, bool, Vec<String>)> {
    let claimed: Vec<String> = (0..CLAIMS_PER_ROUND)
        .map(|number| review(round, number, "app", false, None))
        .collect();
    let again = claimed
        .iter()
        .cycle()
        .take(CLAIMS_PER_ROUND * REPEATS)
        .cloned()
        .collect();
    let ended = ADMISSIONS_PER_ROUND
        - CLAIMS_PER_ROUND * (1 + REPEATS)
        - REFUSALS_PER_ROUND
        - DRY_RUNS_PER_ROUND;
    vec![
        ("claimed", true, claimed),
        ("asked about again", true, again),
        (
            "refused",
            false,
            reviews_from(round, 10_000, REFUSALS_PER_ROUND, HELD, false, None),
        ),
        (
            "dry runs",
            true,
            reviews_from(round, 20_000, DRY_RUNS_PER_ROUND, "app", true, None),
        ),
        (
            "that arrived ended",
            true,
            reviews_from(round, 30_000, ended, "app", false, Some("Completed")),
        ),
    ]
}

/// Reviews of a round, with numbers from `first` on.
fn reviews_from(
    round: usize,
    first: usize,
    count: usize,
    namespace: &str,
    dry_run: bool,
    phase: Option<&str>,
) -> Vec<String> {
    (first..first + count)
        .map(|number| review(round, number, namespace, dry_run, phase))
        .collect()
}

/// A review of a creation, in the form that the API server sends.
fn review(
    round: usize,
    number: usize,
    included: &str,
    dry_run: bool,
    phase: Option<&str>,
) -> String {
    let name = format!("memory-{round}-{number}");
    let uid = format!("00000000-0000-4000-8000-{:012x}", round * 100_000 + number);
    let mut object = json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": GUARDED, "uid": uid, "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{ "manager": "bench", "operation": "Update", "apiVersion": "velero.io/v1",
                "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:spec": { ".": {}, "f:includedNamespaces": {} } } }] },
        "spec": { "includedNamespaces": [included] },
    });
    if let Some(phase) = phase {
        object["status"] = json!({ "phase": phase });
    }
    let kind = json!({ "group": "velero.io", "version": "v1", "kind": "Backup" });
    let resource = json!({ "group": "velero.io", "version": "v1", "resource": "backups" });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid.replacen("0000", "1111", 1), "kind": kind, "resource": resource,
            "requestKind": kind, "requestResource": resource,
            "name": name, "namespace": GUARDED, "operation": "CREATE", "dryRun": dry_run,
            "userInfo": { "username": "admin", "groups": ["system:masters", "system:authenticated"] },
            "object": object, "oldObject": null,
            "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" },
        },
    })
    .to_string()
}

async fn post(
    client: &reqwest::Client,
    url: &str,
    reviews: Vec<String>,
    allowed: bool,
) -> anyhow::Result<()> {
    let reviews = stream::iter(reviews.into_iter().map(anyhow::Ok));
    reviews
        .try_for_each_concurrent(CONNECTIONS, async |review| {
            let request = client
                .post(url)
                .header("content-type", "application/json")
                .body(review);
            let text = request.send().await?.text().await?;
            let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
            ensure!(
                answer["response"]["allowed"] == json!(allowed),
                "unexpected answer: {text}"
            );
            Ok(())
        })
        .await
}

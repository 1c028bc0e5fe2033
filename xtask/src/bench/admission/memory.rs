//! Memory of a replica after many admissions.
//!
//! Reviews are sent to it in the form that the API server uses, but directly: only the memory of
//! the replica matters. The mix contains each kind of answer, because each leaves different data in
//! memory.

use std::{
    collections::BTreeMap,
    ops::Range,
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
use crate::bench::table::{Row, Table, Target, mib};

/// Rounds of 4,000 admissions, with a clean-up after each.
const ROUNDS: usize = 25;
const CONNECTIONS: usize = 16;
const HELD: &str = "held";
const LIMIT_MIB: f64 = 48.0;

/// Reviews of one kind in a round.
struct Kind {
    what: &'static str,
    /// The numbers of the objects.
    numbers: Range<usize>,
    included: &'static str,
    dry_run: bool,
    phase: Option<&'static str>,
    is_allowed: bool,
}

/// Objects that get a claim in the ledger.
const CLAIMED: Kind = Kind {
    what: "claimed",
    numbers: 0..400,
    included: "app",
    dry_run: false,
    phase: None,
    is_allowed: true,
};
/// The API server repeats a review whose answer was lost.
const REPEATED: Kind = Kind {
    what: "asked about again",
    ..CLAIMED
};
/// The reviews of a round: 4,000.
const KINDS: [Kind; 6] = [
    CLAIMED,
    REPEATED,
    REPEATED,
    // They conflict with a restore.
    Kind {
        what: "refused",
        numbers: 10_000..10_200,
        included: HELD,
        is_allowed: false,
        ..CLAIMED
    },
    Kind {
        what: "dry runs",
        numbers: 20_000..21_000,
        dry_run: true,
        ..CLAIMED
    },
    Kind {
        what: "that arrived ended",
        numbers: 30_000..31_600,
        phase: Some("Completed"),
        ..CLAIMED
    },
];

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
    let start = Instant::now();
    let mut answers = BTreeMap::<&str, usize>::new();
    for round in 0..ROUNDS {
        plane.sweep().await?;
        // A replica changes the path from time to time.
        let path = install::webhook_path(plane.client()).await?;
        let url = format!("https://{}{path}?timeout=10s", plane.guard()?.address());
        Creation::restore_of(GUARDED, HELD)
            .send(plane.client())
            .await?;
        for kind in &KINDS {
            post(&client, &url, round, kind)
                .await
                .with_context(|| format!("{}, round {round}", kind.what))?;
            *answers.entry(kind.what).or_default() += kind.numbers.len();
        }
    }
    let peak = guard.peak_memory_kib()?;
    plane.sweep().await?;
    table.row(&Row {
        what: "peak memory of a replica after 100,000 admissions".to_owned(),
        found: format!("{:.1} MiB", mib(peak)),
        beside: format!("when it had started {:.1} MiB", mib(idle)),
        target: Target::new(format!("under {LIMIT_MIB} MiB"), mib(peak) < LIMIT_MIB),
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

/// A review of a creation, in the form that the API server sends.
fn review(round: usize, number: usize, kind: &Kind) -> String {
    let name = format!("memory-{round}-{number}");
    let uid = format!("00000000-0000-4000-8000-{:012x}", round * 100_000 + number);
    let mut object = json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": name, "namespace": GUARDED, "uid": uid, "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{ "manager": "bench", "operation": "Update", "apiVersion": "velero.io/v1",
                "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:spec": { ".": {}, "f:includedNamespaces": {} } } }] },
        "spec": { "includedNamespaces": [kind.included] },
    });
    if let Some(phase) = kind.phase {
        object["status"] = json!({ "phase": phase });
    }
    let gvk = json!({ "group": "velero.io", "version": "v1", "kind": "Backup" });
    let resource = json!({ "group": "velero.io", "version": "v1", "resource": "backups" });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": uid.replacen("0000", "1111", 1), "kind": gvk, "resource": resource,
            "requestKind": gvk, "requestResource": resource,
            "name": name, "namespace": GUARDED, "operation": "CREATE", "dryRun": kind.dry_run,
            "userInfo": { "username": "admin", "groups": ["system:masters", "system:authenticated"] },
            "object": object, "oldObject": null,
            "options": { "apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions" },
        },
    })
    .to_string()
}

/// Posts the reviews of this kind.
async fn post(
    client: &reqwest::Client,
    url: &str,
    round: usize,
    kind: &Kind,
) -> anyhow::Result<()> {
    let numbers = stream::iter(kind.numbers.clone().map(anyhow::Ok));
    numbers
        .try_for_each_concurrent(CONNECTIONS, async |number| {
            let request = client
                .post(url)
                .header("content-type", "application/json")
                .body(review(round, number, kind));
            let text = request.send().await?.text().await?;
            let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
            ensure!(
                answer["response"]["allowed"] == json!(kind.is_allowed),
                "unexpected answer: {text}"
            );
            Ok(())
        })
        .await
}

//! Many clients at once, all on the one scope of Velero.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::ensure;
use backup_tests::proxy::Proxy;
use kube::Api;

use super::{
    load::{Burst, Creation, burst},
    plane::{ALLOWED, GUARDED, NAIVE, Plane},
    report::{Report, Row},
    requests::Requests,
    seen::{Seen, quarters},
};

const CLIENTS: usize = 16;
/// Creations in a round. Nobody finishes these backups, so a round ends before the ledger holds more claims than a busy
/// cluster would.
const ROUND: usize = 160;
/// The naive control takes about ten times as long.
const NAIVE_ROUND: usize = 48;
const ROUNDS: usize = 5;
/// After a clean-up, so that what it left to do is not measured.
const SETTLE: Duration = Duration::from_millis(200);
const WRITES: &str = "ledger_writes_total";
const CONFLICTS: &str = "ledger_conflicts_total";

/// One replica, beside the allowing webhook and the one that reads and updates for each request.
pub async fn measure_one(plane: &mut Plane, budget: Duration, report: &mut Report) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    let address = plane.allowing.address();
    let (guard, allowing, writes, conflicts) = rounds(plane, budget * 2, address).await?;
    let ratio = guard.share_of(&allowing);
    report.row(Row {
        what: "16 clients, one scope, 1 replica: throughput",
        guard: format!("{:.0}/s", guard.rate()),
        beside: format!("allowing {:.0}/s", allowing.rate()),
        found: format!("{:.0}%", ratio * 100.0),
        asked: "75% at least".to_owned(),
        met: Some(ratio >= 0.75),
    });
    report.row(Row {
        what: "… writes of the ledger for each creation",
        guard: format!("{writes:.2}"),
        beside: String::new(),
        found: format!("{writes:.2}"),
        asked: "0.3 at most".to_owned(),
        met: Some(writes <= 0.3),
    });
    let (with, without) = (guard.took.p99(), allowing.took.p99());
    report.row(Row {
        what: "… 99th percentile",
        guard: format!("{with:.1} ms"),
        beside: format!("allowing {without:.1} ms"),
        found: format!("{:.2}x", with / without),
        asked: "2x at most".to_owned(),
        met: Some(with <= without * 2.0),
    });
    report.row(Row {
        what: "… creations refused",
        guard: guard.refused.len().to_string(),
        beside: format!("allowing {}", allowing.refused.len()),
        found: guard.refused.first().map_or_else(|| "none".to_owned(), |why| why.replace('|', "/")),
        asked: "none".to_owned(),
        met: Some(guard.refused.is_empty()),
    });
    guard.note("1 replica, guard", report);
    allowing.note("1 replica, allowing", report);
    report.note(format!(
        "1 replica, guard: {conflicts:.0} writes of the ledger came second; requests to the API server for each creation: {}.",
        guard.asked
    ));
    naive(plane, budget, allowing.rate(), report).await
}

/// Three replicas behind one address; the allowing webhook has a proxy in front of it, too.
pub async fn measure_three(plane: &mut Plane, budget: Duration, report: &mut Report) -> anyhow::Result<()> {
    plane.start_guard(3, &[]).await?;
    let front = Proxy::start(vec![plane.allowing.address()]).await?;
    let (guard, allowing, writes, conflicts) = rounds(plane, budget * 2, front.address()).await?;
    let ratio = guard.share_of(&allowing);
    report.row(Row {
        what: "16 clients, one scope, 3 replicas: throughput",
        guard: format!("{:.0}/s", guard.rate()),
        beside: format!("allowing {:.0}/s", allowing.rate()),
        found: format!("{:.0}%, {writes:.2} writes for each creation", ratio * 100.0),
        asked: "60% at least".to_owned(),
        met: Some(ratio >= 0.6),
    });
    guard.note("3 replicas, guard", report);
    allowing.note("3 replicas, allowing", report);
    report.note(format!(
        "3 replicas, guard: {conflicts:.0} writes of the ledger came second; requests to the API server for each creation: {}.",
        guard.asked
    ));
    Ok(())
}

/// Rounds of guard and allowing webhook in turn; also writes of the ledger for each creation, and how many came second.
async fn rounds(
    plane: &mut Plane,
    budget: Duration,
    allowing: SocketAddr,
) -> anyhow::Result<(Seen, Seen, f64, f64)> {
    plane.register_control(ALLOWED, allowing, "/validate").await?;
    let (mut guarded, mut allowed) = (Seen::default(), Seen::default());
    let (mut writes, mut conflicts) = (0.0, 0.0);
    let (start, mut number) = (Instant::now(), 0);
    while start.elapsed() < budget || number < ROUNDS {
        plane.sweep().await?;
        for namespace in [GUARDED, ALLOWED] {
            // Connections are made, and the guard finds that the ledger was changed.
            burst(&plane.clients[..CLIENTS], CLIENTS, move |_, _| Creation::backup(namespace)).await?;
        }
        tokio::time::sleep(SETTLE).await;
        let (mut guard, mut allow) = (Burst::default(), Burst::default());
        let replicas = plane.guard()?;
        let was = (replicas.metric(WRITES).await?, replicas.metric(CONFLICTS).await?);
        for allowing in quarters(number) {
            let before = plane.cpu();
            let namespace = if allowing { ALLOWED } else { GUARDED };
            let quarter = round(plane, namespace, ROUND / 2).await?;
            let (burst, seen) =
                if allowing { (&mut allow, &mut allowed) } else { (&mut guard, &mut guarded) };
            burst.then(quarter);
            seen.used.add(&before, &plane.cpu());
        }
        writes += replicas.metric(WRITES).await? - was.0;
        conflicts += replicas.metric(CONFLICTS).await? - was.1;
        guarded.add(guard);
        allowed.add(allow);
        number += 1;
    }
    plane.sweep().await?;
    // Once more, only to see what the API server is asked.
    let before = Requests::now(plane.client()).await?;
    round(plane, GUARDED, ROUND).await?;
    guarded.asked = Requests::now(plane.client()).await?.since(&before, ROUND);
    plane.sweep().await?;
    ensure!(guarded.took.len() > 0, "every creation was refused: {:?}", guarded.refused.first());
    #[allow(clippy::cast_precision_loss)]
    let each = writes / guarded.took.len() as f64;
    Ok((guarded, allowed, each, conflicts))
}

async fn round(plane: &Plane, namespace: &'static str, count: usize) -> anyhow::Result<Burst> {
    burst(&plane.clients[..CLIENTS], count, move |_, _| Creation::backup(namespace)).await
}

/// For comparison: what everyone writes first.
async fn naive(plane: &Plane, budget: Duration, allowed: f64, report: &mut Report) -> anyhow::Result<()> {
    plane.register_control(NAIVE, plane.naive.address(), "/validate").await?;
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> =
        Api::namespaced(plane.client().clone(), backup_tests::install::NAMESPACE);
    let (start, mut seen, before) = (Instant::now(), Seen::default(), plane.naive.tries());
    while start.elapsed() < budget || seen.rounds() < 3 {
        seen.add(round(plane, NAIVE, NAIVE_ROUND).await?);
        // It starts from an empty ledger each time, as the guard does.
        leases.delete(backup_tests::naive_update::SHARED, &kube::api::DeleteParams::default()).await?;
    }
    let wrote = plane.naive.tries() - before;
    report.row(Row {
        what: "… the naive control: a read and an update for each request",
        guard: String::new(),
        beside: format!("{:.0}/s, 99th percentile {:.0} ms", seen.rate(), seen.took.p99()),
        found: format!("{:.0}% of allowing", seen.rate() * 100.0 / allowed),
        asked: String::new(),
        met: None,
    });
    report.note(format!(
        "naive control: {wrote} tries for {} creations, {} refused.",
        seen.took.len(),
        seen.refused.len()
    ));
    plane.sweep().await
}

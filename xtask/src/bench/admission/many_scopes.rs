//! Many clients, each on scopes of its own: clusters of a database operator.

use std::time::{Duration, Instant};

use backup_tests::{binaries::root, proxy::Proxy};

use super::{
    load::{Burst, Creation, burst},
    plane::{GUARDED, Plane, UPDATED},
    report::{Report, Row},
    requests::Requests,
    seen::{Seen, quarters},
};

const PROFILE: &str = "percona-ps";
const CLIENTS: usize = 32;
/// Scopes that each client uses in turn, so that no two meet on one.
const EACH: usize = 2;
const ROUND: usize = 320;
const ROUNDS: usize = 5;
/// After a clean-up, so that what it left to do is not measured.
const SETTLE: Duration = Duration::from_millis(200);

/// Two replicas, beside a webhook that does one update of a Lease of each scope for each creation.
pub async fn measure(plane: &mut Plane, budget: Duration, report: &mut Report) -> anyhow::Result<()> {
    plane.install_profile(PROFILE).await?;
    plane.start_guard(2, &[&format!("--guard={PROFILE}")]).await?;
    let folder = root().join("deploy/profiles").join(PROFILE);
    let guard = plane.guard()?.address();
    plane.register(GUARDED, &folder, guard, "/validate").await?;
    let front = Proxy::start(vec![plane.naive.address()]).await?;
    plane.register(UPDATED, &folder, front.address(), "/own").await?;
    asked(plane).await?;

    let (mut guarded, mut updated) = (Seen::default(), Seen::default());
    let (start, mut number) = (Instant::now(), 0);
    while start.elapsed() < budget * 2 || number < ROUNDS {
        plane.sweep().await?;
        for namespace in [GUARDED, UPDATED] {
            // Each scope has its ledger, or its Lease, before anything is measured.
            round(plane, namespace, CLIENTS * EACH).await?;
        }
        tokio::time::sleep(SETTLE).await;
        let (mut guard, mut update) = (Burst::default(), Burst::default());
        for updating in quarters(number) {
            let before = plane.cpu();
            let quarter = round(plane, if updating { UPDATED } else { GUARDED }, ROUND / 2).await?;
            let (burst, seen) =
                if updating { (&mut update, &mut updated) } else { (&mut guard, &mut guarded) };
            burst.then(quarter);
            seen.used.add(&before, &plane.cpu());
        }
        guarded.add(guard);
        updated.add(update);
        number += 1;
    }
    // Once more, only to see what the API server is asked.
    let before = Requests::now(plane.client()).await?;
    round(plane, GUARDED, ROUND).await?;
    let asked = Requests::now(plane.client()).await?.since(&before, ROUND);
    plane.sweep().await?;
    let ratio = guarded.share_of(&updated);
    report.row(Row {
        what: "32 clients, 64 scopes, 2 replicas: throughput",
        guard: format!("{:.0}/s", guarded.rate()),
        beside: format!("allowing with an update for each {:.0}/s", updated.rate()),
        found: format!("{:.0}%", ratio * 100.0),
        asked: "85% at least".to_owned(),
        met: Some(ratio >= 0.85 && guarded.refused.is_empty()),
    });
    guarded.note("64 scopes, guard", report);
    updated.note("64 scopes, an update for each", report);
    report.note(format!("64 scopes, guard: requests to the API server for each creation: {asked}."));
    Ok(())
}

/// Waits until both are asked about this kind.
async fn asked(plane: &Plane) -> anyhow::Result<()> {
    use backup_tests::wait::{eventually, when};
    let deadline = Duration::from_secs(30);
    let client = plane.client();
    let calls = plane.naive.calls();
    eventually("the control is asked", deadline, async || {
        let sent = Creation::cluster_backup(UPDATED, "c0").send(client).await;
        anyhow::Ok(when(plane.naive.calls() > calls, format!("{sent:?}")))
    })
    .await?;
    let guard = plane.guard()?;
    let decided = guard.metric("_seconds_count").await?;
    eventually("the guard is asked", deadline, async || {
        let sent = Creation::cluster_backup(GUARDED, "c0").send(client).await;
        anyhow::Ok(when(guard.metric("_seconds_count").await? > decided, format!("{sent:?}")))
    })
    .await
}

async fn round(plane: &Plane, namespace: &'static str, count: usize) -> anyhow::Result<Burst> {
    burst(&plane.clients[..CLIENTS], count, move |client, made| {
        Creation::cluster_backup(namespace, &format!("c{}", client * EACH + made % EACH))
    })
    .await
}

//! The load of an idle installation, with two controllers, two webhooks and a long history.

use backup_core::api::Schedule;
use backup_tests::audit::{Audit, Requests};

use crate::prelude::*;

crate::tests! {
    an_idle_installation_asks_little_whatever_its_history,
}

const HISTORY: usize = 5_000;
/// Maximum number of requests of all programs in a minute, including the leader election.
const MAX_REQUESTS_PER_MINUTE: usize = 60;
const MINUTE: Duration = Duration::from_mins(1);
/// Time for the work caused by creating the history.
const QUIET_TIMEOUT: Duration = Duration::from_mins(3);

async fn an_idle_installation_asks_little_whatever_its_history(world: &mut World) -> TestResult {
    let audit = world
        .audit
        .as_ref()
        .context("the API server writes no audit log")?;
    let yearly = json!({ "apiVersion": "velero.io/v1", "kind": "Schedule", "metadata": { "name": "yearly" },
        "spec": { "schedule": "0 0 1 1 *", "template": {} } });
    world.api::<Schedule>().create_json(yearly).await?;
    // In a bucket that is unknown here: the comparison with the default one ignores them.
    let ended = |n: usize| {
        json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": format!("ended-{n}"), "namespace": NAMESPACE },
            "spec": { "storageLocation": "elsewhere", "includedNamespaces": ["default"] },
            "status": { "phase": "Completed", "expiration": "2099-01-01T00:00:00Z" } })
    };
    create_all(&world.client, (0..HISTORY).map(ended)).await?;
    eventually("it is quiet", QUIET_TIMEOUT, async || {
        let requests = within(audit, MINUTE / 4).await?;
        anyhow::Ok(when(
            requests.total() <= MAX_REQUESTS_PER_MINUTE / 2,
            requests.to_string(),
        ))
    })
    .await?;
    let requests = within(audit, MINUTE).await?;
    for resource in ["backups", "restores"] {
        ensure!(
            requests.count("list", resource) == 0,
            "lists all {resource}: {requests}"
        );
    }
    ensure!(requests.total() < MAX_REQUESTS_PER_MINUTE, "{requests}");
    println!("{requests}");
    Ok(())
}

/// The requests during this time.
async fn within(audit: &Audit, time: Duration) -> anyhow::Result<Requests> {
    let end = audit.end()?;
    tokio::time::sleep(time).await;
    audit.since(end)
}

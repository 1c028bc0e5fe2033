//! One client creates objects one after the other: the cost of the claim for each.

use std::time::{Duration, Instant};

use super::{
    load::{Creation, OwnLease},
    plane::{ALLOWED, GUARDED, Plane},
};
use crate::bench::{
    stats::Sample,
    table::{Row, Table},
};

/// Creations between two clean-ups: few, because these backups never end, and a ledger with many
/// claims is measured elsewhere.
const CREATIONS_PER_ROUND: usize = 12;
const ROUNDS: usize = 5;

/// Median time of a creation with the guard and with the allowing webhook, and of an update of a
/// Lease; measured in turn.
pub async fn measure(
    plane: &mut Plane<'_>,
    budget: Duration,
    table: &mut Table,
) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    plane
        .register_control(ALLOWED, plane.allowing.address(), "/validate")
        .await?;
    let client = plane.client().clone();
    let mut lease = OwnLease::create(&client).await?;
    let mut guard = Sample::default();
    let mut allowing = Sample::default();
    let mut update = Sample::default();
    let mut decided = 0.0;
    let mut seconds = 0.0;
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < budget * 3 || rounds < ROUNDS {
        plane.sweep().await?;
        // The first write after a clean-up meets a conflict, because the ledger has changed.
        for _ in 0..2 {
            Creation::backup(GUARDED).send(&client).await?;
            Creation::backup(ALLOWED).send(&client).await?;
            lease.update(&client).await?;
        }
        let replicas = plane.guard()?;
        let before = (
            replicas.metric("_seconds_count").await?,
            replicas.metric("_seconds_sum").await?,
        );
        for number in 0..CREATIONS_PER_ROUND {
            for turn in number..number + 3 {
                match turn % 3 {
                    0 => guard.push(Creation::backup(GUARDED).send(&client).await?),
                    1 => allowing.push(Creation::backup(ALLOWED).send(&client).await?),
                    _ => update.push(lease.update(&client).await?),
                }
            }
        }
        decided += replicas.metric("_seconds_count").await? - before.0;
        seconds += replicas.metric("_seconds_sum").await? - before.1;
        rounds += 1;
    }
    let with = guard.median();
    let without = allowing.median();
    let write = update.median();
    let added = (with - without) / write;
    table.row(&Row {
        what: "1 client, median creation".to_owned(),
        found: format!("{with:.2} ms: allowing + {added:.2} updates"),
        beside: format!("allowing {without:.2} ms, update of a Lease {write:.2} ms"),
        asked: "allowing + 1.5 updates at most".to_owned(),
        met: Some(added <= 1.5),
    });
    table.note(format!(
        "1 client: {} of each in {rounds} rounds; 99th percentiles {:.1}, {:.1} and {:.1} ms; inside the guard a request took {:.2} ms on average.",
        guard.len(), guard.p99(), allowing.p99(), update.p99(), seconds * 1e3 / decided
    ));
    Ok(())
}

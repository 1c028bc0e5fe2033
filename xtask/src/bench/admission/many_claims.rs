//! One client, with few and with many other claims in the ledger.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{
    load::{Creation, burst},
    plane::{GUARDED, Plane},
};
use crate::bench::{
    stats::Sample,
    table::{Row, Table},
};

const OTHER_CLAIMS: usize = 200;
const CREATIONS_PER_ROUND: usize = 12;
const ROUNDS: usize = 5;

/// Median time of a creation with few and with many other claims; rounds alternate.
pub async fn measure(
    plane: &mut Plane<'_>,
    budget: Duration,
    table: &mut Table,
) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    let client = plane.client().clone();
    let mut few = Sample::default();
    let mut many = Sample::default();
    let start = Instant::now();
    while start.elapsed() < budget * 2 || few.len() < CREATIONS_PER_ROUND * ROUNDS {
        plane.sweep().await?;
        // The first write after a clean-up meets a conflict, because the ledger has changed.
        Creation::backup(GUARDED).send(&client).await?;
        for _ in 0..CREATIONS_PER_ROUND {
            few.push(Creation::backup(GUARDED).send(&client).await?);
        }
        let others = burst(
            &plane.clients[..16],
            OTHER_CLAIMS - CREATIONS_PER_ROUND,
            |_, _| Creation::backup(GUARDED),
        )
        .await?;
        ensure!(
            others.refused.is_empty(),
            "refused: {:?}",
            others.refused.first()
        );
        for _ in 0..CREATIONS_PER_ROUND {
            many.push(Creation::backup(GUARDED).send(&client).await?);
        }
    }
    let few = few.median();
    let many = many.median();
    table.row(&Row {
        what: "1 client, median creation beside 200 other claims".to_owned(),
        found: format!("{many:.2} ms, {:.2}x", many / few),
        beside: format!("beside none {few:.2} ms"),
        asked: "1.5x at most".to_owned(),
        met: Some(many <= few * 1.5),
    });
    Ok(())
}

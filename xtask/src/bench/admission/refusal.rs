//! The time for a refusal, which needs fresh reads.

use std::time::{Duration, Instant};

use super::{
    load::{Creation, OwnLease},
    plane::{GUARDED, Plane, REFUSED},
};
use crate::bench::{
    stats::Sample,
    table::{Row, Table},
};

const HELD: &str = "held";
const ROUNDS: usize = 100;

/// A refused backup that overlaps a restore, compared with three reads in sequence, and with a
/// webhook that always refuses.
pub async fn measure(
    plane: &mut Plane<'_>,
    budget: Duration,
    table: &mut Table,
) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    plane
        .register_control(REFUSED, plane.allowing.address(), "/refuse")
        .await?;
    let client = plane.client().clone();
    let lease = OwnLease::create(&client).await?;
    Creation::restore_of(GUARDED, HELD).send(&client).await?;
    let mut guard = Sample::default();
    let mut plain = Sample::default();
    let mut reads = Sample::default();
    for _ in 0..5 {
        Creation::backup_of(GUARDED, HELD).refused(&client).await?;
        Creation::backup_of(REFUSED, HELD).refused(&client).await?;
    }
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < budget || number < ROUNDS {
        for turn in number..number + 3 {
            match turn % 3 {
                0 => guard.push(Creation::backup_of(GUARDED, HELD).refused(&client).await?),
                1 => plain.push(Creation::backup_of(REFUSED, HELD).refused(&client).await?),
                _ => reads.push(lease.reads(&client, 3).await?),
            }
        }
        number += 1;
    }
    let with = guard.median();
    let without = plain.median();
    let three = reads.median();
    table.row(&Row {
        what: "1 client, median refusal, as the client sees it".to_owned(),
        found: format!("{with:.2} ms, {:.2}x", with / three),
        beside: format!("three reads of a Lease {three:.2} ms"),
        asked: "three reads at most".to_owned(),
        met: Some(with <= three),
    });
    let deciding = with - without;
    table.row(&Row {
        what: "the same, less what a webhook takes that only refuses".to_owned(),
        found: format!("{deciding:.2} ms, {:.2}x of three reads", deciding / three),
        beside: format!("only refusing {without:.2} ms"),
        asked: "three reads at most".to_owned(),
        met: Some(deciding <= three),
    });
    plane.sweep().await
}

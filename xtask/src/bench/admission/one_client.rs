//! One client sends creations one after the other: the cost of the claim for each, with few other
//! claims and with many, and the time for a refusal, which needs fresh reads.

use std::time::Instant;

use anyhow::ensure;

use super::{
    load::{Creation, OwnLease, burst},
    plane::{ALLOWED, GUARDED, Plane, REFUSED},
};
use crate::bench::{
    stats::Sample,
    table::{Row, Table, Target},
};

/// Creations between two clean-ups: few, because these backups never end, and a ledger with many
/// claims is measured separately.
const CREATIONS_PER_ROUND: usize = 12;
const ROUNDS: usize = 5;
const OTHER_CLAIMS: usize = 200;
const REFUSALS: usize = 100;
/// The namespace that a restore claims.
const HELD: &str = "held";

/// Median time of a creation with the guard and with the allowing webhook, and of an update of a
/// Lease; measured in turn.
pub async fn creation(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
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
    while start.elapsed() < plane.budget * 3 || rounds < ROUNDS {
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
        target: Target::new("allowing + 1.5 updates at most", added <= 1.5),
    });
    table.note(format!(
        "1 client: {} of each in {rounds} rounds; 99th percentiles {:.1}, {:.1} and {:.1} ms; inside the guard a request took {:.2} ms on average.",
        guard.len(), guard.p99(), allowing.p99(), update.p99(), seconds * 1e3 / decided
    ));
    Ok(())
}

/// Median time of a creation with few and with many other claims; rounds alternate.
pub async fn many_claims(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
    plane.start_guard(1, &[]).await?;
    let client = plane.client().clone();
    let mut few = Sample::default();
    let mut many = Sample::default();
    let start = Instant::now();
    while start.elapsed() < plane.budget * 2 || few.len() < CREATIONS_PER_ROUND * ROUNDS {
        plane.sweep().await?;
        // The first write after a clean-up meets a conflict, because the ledger has changed.
        Creation::backup(GUARDED).send(&client).await?;
        for _ in 0..CREATIONS_PER_ROUND {
            few.push(Creation::backup(GUARDED).send(&client).await?);
        }
        let others = OTHER_CLAIMS - CREATIONS_PER_ROUND;
        let others = burst(&plane.clients[..16], others, |_, _| {
            Creation::backup(GUARDED)
        })
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
        target: Target::at_most(many / few, 1.5, "x at most"),
    });
    Ok(())
}

/// A refused backup that overlaps a restore, compared with three reads in sequence, and with a
/// webhook that always refuses.
pub async fn refusal(plane: &mut Plane<'_>, table: &mut Table) -> anyhow::Result<()> {
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
    while start.elapsed() < plane.budget || number < REFUSALS {
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
        target: Target::new("three reads at most", with <= three),
    });
    let deciding = with - without;
    table.row(&Row {
        what: "the same, less what a webhook takes that only refuses".to_owned(),
        found: format!("{deciding:.2} ms, {:.2}x of three reads", deciding / three),
        beside: format!("only refusing {without:.2} ms"),
        target: Target::new("three reads at most", deciding <= three),
    });
    plane.sweep().await
}

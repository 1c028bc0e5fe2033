//! Waiting with a deadline.

use std::{fmt, time::Duration};

use anyhow::bail;
use tokio::time::Instant;

/// Deadline for effects that are expected within seconds, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_mins(1);

pub enum Probe<T> {
    Ready(T),
    /// Not ready; the state seen instead.
    NotYet(String),
}

/// Repeats the probe until it is ready. Errors of the probe count as "not yet"; if the deadline
/// passes, the last answer is in the error.
pub async fn eventually<T, E: fmt::Display>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Result<Probe<T>, E>,
) -> anyhow::Result<T> {
    let end = Instant::now() + deadline;
    let mut pause = Duration::from_millis(20);
    let mut seen = "no answer".to_owned();
    loop {
        seen = match tokio::time::timeout_at(end, probe()).await {
            Ok(Ok(Probe::Ready(value))) => return Ok(value),
            Ok(Ok(Probe::NotYet(seen))) => seen,
            Ok(Err(error)) => format!("error: {error:#}"),
            Err(_) => seen,
        };
        if Instant::now() + pause >= end {
            bail!("{what}: not within {deadline:?}; last seen: {seen}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(Duration::from_millis(250));
    }
}

/// `Ready` when the condition holds.
pub fn when(condition: bool, seen: impl Into<String>) -> Probe<()> {
    if condition {
        Probe::Ready(())
    } else {
        Probe::NotYet(seen.into())
    }
}

/// Waits until a condition holds, for conditions without a state to report.
pub async fn until<E: fmt::Display>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<bool, E>,
) -> anyhow::Result<()> {
    eventually(what, deadline, async || {
        condition().await.map(|holds| when(holds, "it is not so"))
    })
    .await
}

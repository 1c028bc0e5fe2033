//! Reads with retries: a total budget, small capped steps, jitter.

use std::time::Duration;

use tokio::time::Instant;

use crate::{backoff::Backoff, errors::is_transient};

/// Delays between attempts. Small, so that an outcome is published within seconds of the end of an
/// outage.
pub const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(100),
    cap: Duration::from_secs(5),
};
/// Timeout for one attempt of a read; a page of large objects takes a while.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// Retries a read until it succeeds, fails permanently, or `budget` is used up.
/// Errors: the last error of the API server; an attempt that timed out is an error of the service.
pub async fn read<T, F, Fut>(budget: Duration, request: F) -> Result<T, kube::Error>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, kube::Error>>,
{
    let started = Instant::now();
    let mut tries = 0;
    loop {
        let error = match timed(READ_TIMEOUT, request()).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        tries += 1;
        let waited = started.elapsed();
        if !is_transient(&error) || waited >= budget {
            return Err(error);
        }
        tokio::time::sleep(BACKOFF.delay(tries).min(budget.saturating_sub(waited))).await;
    }
}

/// Limits the time of a request; a timeout is an error of the service.
pub async fn timed<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(limit, request).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service(
            format!("no answer from the API server within {limit:?}").into(),
        )),
    }
}

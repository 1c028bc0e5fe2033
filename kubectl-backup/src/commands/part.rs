//! Parts of what is shown that are fetched each for itself.

use std::time::Duration;

use crate::{error::Problem, print::table::plain, view::part::Part};

/// How long people wait for one.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// A part within [`PATIENCE`], or why it is not there.
pub async fn part<T>(fetch: impl Future<Output = Result<T, Problem>>) -> Part<T> {
    within(PATIENCE, fetch).await
}

/// The same with another patience.
pub async fn within<T>(limit: Duration, fetch: impl Future<Output = Result<T, Problem>>) -> Part<T> {
    match tokio::time::timeout(limit, fetch).await {
        Ok(Ok(value)) => Part::Known(value),
        Ok(Err(problem)) => Part::missing(plain(&problem.to_string())),
        Err(_) => Part::missing(format!("no answer within {limit:?}")),
    }
}

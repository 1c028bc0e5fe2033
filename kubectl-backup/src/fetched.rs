//! Parts that are fetched independently, and may be missing without failing the whole.

use std::time::Duration;

use serde::Serialize;

use crate::{
    error::{Problem, Role},
    print::plain,
    session::Session,
};

/// A fetched part, or why it could not be fetched. A missing part never fails the whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum FetchResult<T> {
    Known(T),
    Missing {
        /// Why the part is missing, in one sentence.
        unavailable: String,
    },
}

impl<T> FetchResult<T> {
    pub(crate) fn missing(why: impl Into<String>) -> Self {
        Self::Missing {
            unavailable: why.into(),
        }
    }

    pub(crate) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// The text to show: from `show` if the value is known, else the reason why it is missing.
    pub(crate) fn shown(&self, show: impl FnOnce(&T) -> Option<String>) -> Option<String> {
        match self {
            Self::Known(value) => show(value),
            Self::Missing { unavailable } => Some(format!("unavailable: {unavailable}")),
        }
    }

    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U) -> FetchResult<U> {
        match self {
            Self::Known(value) => FetchResult::Known(make(value)),
            Self::Missing { unavailable } => FetchResult::Missing { unavailable },
        }
    }
}

impl<T> FetchResult<Option<T>> {
    /// The value, if it was fetched and exists.
    pub(crate) fn value(&self) -> Option<&T> {
        self.known().and_then(Option::as_ref)
    }
}

/// Fetches a part, within the time limit for parts.
pub(crate) async fn fetched<T>(
    session: &Session,
    fetch: impl Future<Output = Result<T, Problem>>,
) -> FetchResult<T> {
    within(session.part_timeout, fetch).await
}

/// Why a part is missing, and the role that would allow the request, if there is one.
fn why(problem: &Problem) -> String {
    let message = plain(&problem.to_string());
    if let Some(remedy) = &problem.remedy
        && Role::for_refusal(&problem.message).is_some()
    {
        format!("{message}. {remedy}")
    } else {
        message
    }
}

pub(crate) async fn within<T>(
    limit: Duration,
    fetch: impl Future<Output = Result<T, Problem>>,
) -> FetchResult<T> {
    match tokio::time::timeout(limit, fetch).await {
        Ok(Ok(value)) => FetchResult::Known(value),
        Ok(Err(problem)) => FetchResult::missing(why(&problem)),
        Err(_) => FetchResult::missing(format!("no answer within {limit:?}")),
    }
}

//! What is fetched for itself, and may be missing without failing the whole.

use std::time::Duration;

use serde::Serialize;

use crate::{
    client::Session,
    error::{Problem, Role},
    print::plain,
};

/// Something that was fetched, or why it could not be. Never an error of the whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Fetched<T> {
    Known(T),
    Missing {
        /// Why it is not there, in one sentence.
        unavailable: String,
    },
}

impl<T> Fetched<T> {
    pub(crate) fn missing(why: impl Into<String>) -> Self {
        Self::Missing { unavailable: why.into() }
    }

    pub(crate) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Missing { .. } => None,
        }
    }

    /// What is shown of it: a text or nothing where it is known, else why it is not.
    pub(crate) fn shown(&self, show: impl FnOnce(&T) -> Option<String>) -> Option<String> {
        match self {
            Self::Known(value) => show(value),
            Self::Missing { unavailable } => Some(format!("unavailable: {unavailable}")),
        }
    }

    pub(crate) fn map<U>(self, make: impl FnOnce(T) -> U) -> Fetched<U> {
        match self {
            Self::Known(value) => Fetched::Known(make(value)),
            Self::Missing { unavailable } => Fetched::Missing { unavailable },
        }
    }
}

impl<T> Fetched<Option<T>> {
    /// The value, if it was fetched and exists.
    pub(crate) fn value(&self) -> Option<&T> {
        self.known().and_then(Option::as_ref)
    }
}

/// Fetches a part of what is shown, for as long as a person waits for one.
pub(crate) async fn fetched<T>(
    session: &Session,
    fetch: impl Future<Output = Result<T, Problem>>,
) -> Fetched<T> {
    within(session.part_timeout, fetch).await
}

/// Why a part is missing; where one of our roles would have allowed it, also which one.
fn why(problem: &Problem) -> String {
    let message = plain(&problem.to_string());
    match &problem.remedy {
        Some(remedy) if Role::for_refusal(&problem.message).is_some() => format!("{message}. {remedy}"),
        _ => message,
    }
}

pub(crate) async fn within<T>(
    limit: Duration,
    fetch: impl Future<Output = Result<T, Problem>>,
) -> Fetched<T> {
    match tokio::time::timeout(limit, fetch).await {
        Ok(Ok(value)) => Fetched::Known(value),
        Ok(Err(problem)) => Fetched::missing(why(&problem)),
        Err(_) => Fetched::missing(format!("no answer within {limit:?}")),
    }
}

//! Why a step of a deletion was not done.

use crate::error::ReconcileError;

#[derive(Debug)]
pub(super) enum StepError {
    /// Not possible until a person changes something: sentences, which answer the request.
    Final(Vec<String>),
    /// Tried again.
    Retry(ReconcileError),
}

impl<E: Into<ReconcileError>> From<E> for StepError {
    fn from(error: E) -> Self {
        let error = error.into();
        if error.is_transient() { Self::Retry(error) } else { Self::Final(vec![error.to_string()]) }
    }
}

impl StepError {
    /// An error if there are problems.
    pub(super) fn unless_empty(problems: Vec<String>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self::Final(problems)) }
    }
}

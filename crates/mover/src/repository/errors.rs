//! Errors from and to rustic_core.

use std::error::Error;

use rustic_core::{ErrorKind, RusticError, RusticResult};

use crate::MoverError;

/// Passes an error through rustic_core; [`from_rustic`] gets it back.
pub(super) fn to_rustic(error: MoverError) -> Box<RusticError> {
    RusticError::with_source(ErrorKind::Backend, "The object store failed.", error)
}

pub(super) fn from_rustic(error: &RusticError, url: &str) -> MoverError {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(ours) = cause.downcast_ref::<MoverError>() {
            return ours.clone();
        }
        next = cause.source();
    }
    let url = url.to_owned();
    if error.is_incorrect_password() {
        return MoverError::WrongPassword { url };
    }
    let text = error.display_log();
    let detail = text.strip_prefix("Error: ").unwrap_or(&text);
    if detail.contains("Config version") {
        let detail = detail.to_owned();
        return MoverError::Unsupported { url, detail };
    }
    MoverError::repository(detail)
}

/// Results of rustic_core as results of ours.
pub(super) trait OrMoverError<T> {
    fn ours(self, url: &str) -> Result<T, MoverError>;
}

impl<T> OrMoverError<T> for RusticResult<T> {
    fn ours(self, url: &str) -> Result<T, MoverError> {
        self.map_err(|error| from_rustic(&error, url))
    }
}

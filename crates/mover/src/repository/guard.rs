//! Panics as errors.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::errors::{FULL, volume_refusal};
use crate::{MoverError, StopFlag};

/// Errors with which rustic_core panics where a file of the volume cannot be written or read back
/// (rustic_core 0.13: `commands/restore.rs`, `backend/local_destination.rs`).
const VOLUME_ERRORS: [&str; 6] = [
    "DirectoryCreationFailed(",
    "OpeningFileFailed(",
    "SettingFileLengthFailed(",
    "CouldNotSeekToPositionInFile(",
    "CouldNotWriteToBuffer(",
    "ReadingExactLengthOfFileFailed(",
];

/// Runs an operation. A panic is an error with its message; if the operation was stopped, the
/// reason for that is the error, whatever it led to.
pub(super) fn run<T>(
    stop: &StopFlag,
    operation: impl FnOnce() -> Result<T, MoverError>,
) -> Result<T, MoverError> {
    // What the operation leaves behind is only read for its error.
    let error = match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) => error,
        Err(panic) => from_panic(panic.as_ref()),
    };
    Err(stop.reason().unwrap_or(error))
}

fn from_panic(panic: &(dyn Any + Send)) -> MoverError {
    let message = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message");
    let mut of_volume = VOLUME_ERRORS.iter().chain(&FULL);
    if of_volume.any(|error| message.contains(error)) {
        return MoverError::Target {
            path: "the volume".to_owned(),
            detail: volume_refusal(message).to_owned(),
        };
    }
    MoverError::panicked(readable(message))
}

/// What an error of rustic_core says in a panic, which shows all its fields.
fn readable(message: &str) -> &str {
    let fields = message
        .split_once("RusticError {")
        .map(|(_, fields)| fields);
    let guidance = fields.and_then(|fields| fields.split_once("guidance: \""));
    let guidance = guidance.and_then(|(_, rest)| rest.split_once("\", "));
    guidance.map_or(message, |(guidance, _)| guidance)
}

#[cfg(test)]
mod tests {
    use rustic_core::{ErrorKind, RusticError};

    use super::*;

    #[test]
    fn a_panic_is_a_failure_with_its_message() {
        let error = run::<()>(&StopFlag::default(), || panic!("at {}", 7)).unwrap_err();
        assert_eq!(error, MoverError::panicked("at 7"));
        assert_eq!(error.category(), "panic");
    }

    #[test]
    fn an_error_of_rustic_core_in_a_panic_is_shown_without_its_backtrace() {
        let error = run::<()>(&StopFlag::default(), || {
            let error = RusticError::new(ErrorKind::Internal, "The pack has no header.");
            Err::<(), _>(error).map_err(|error| panic!("called unwrap: {error:?}"))
        });
        assert_eq!(
            error.unwrap_err(),
            MoverError::panicked("The pack has no header.")
        );
    }

    #[test]
    fn a_full_volume_is_recognized_in_a_panic() {
        let error = run::<()>(&StopFlag::default(), || {
            let error = std::io::Error::from(std::io::ErrorKind::StorageFull);
            Err::<(), _>(error).map_err(|error| panic!("{error:?}"))
        });
        assert_eq!(error.unwrap_err().category(), "target");
    }

    #[test]
    fn a_volume_that_cannot_be_written_is_recognized_in_a_panic() {
        let error = run::<()>(&StopFlag::default(), || {
            let cause = std::io::Error::from_raw_os_error(30);
            panic!("called `Result::unwrap()` on an `Err` value: OpeningFileFailed({cause:?})")
        });
        assert_eq!(
            error.unwrap_err().to_string(),
            "the volume cannot be restored into: Read-only file system"
        );
    }

    #[test]
    fn the_reason_for_a_stop_counts_more_than_its_consequences() {
        let stop = StopFlag::default();
        stop.cancel();
        let error = run::<()>(&stop, || panic!("consequence")).unwrap_err();
        assert_eq!(error, MoverError::Cancelled);
    }
}

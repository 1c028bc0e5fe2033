//! Files that could not be saved or restored.

use std::{fmt::Display, path::Path, sync::Arc};

use backup_core::{
    data_movement::{MoverFailure, MoverFailures},
    text::shortened,
};
use parking_lot::Mutex;

/// Maximum number of failures that are named; all are counted.
pub const MAX_NAMED: usize = 100;

/// Maximum length of the text of one failure (characters).
const MAX_REASON: usize = 300;

/// Collects failures from many threads. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureLog {
    failures: Arc<Mutex<MoverFailures>>,
}

impl FailureLog {
    pub(crate) fn record(&self, path: &Path, reason: &dyn Display) {
        let mut failures = self.failures.lock();
        failures.count += 1;
        if failures.first.len() < MAX_NAMED {
            failures.first.push(MoverFailure {
                path: readable(path),
                reason: shortened(&reason.to_string(), MAX_REASON),
            });
        }
    }

    pub(crate) fn collected(&self) -> MoverFailures {
        let mut failures = self.failures.lock().clone();
        failures.first.sort_by(|a, b| a.path.cmp(&b.path));
        failures
    }
}

/// A path as text from which it can be found, also if it is not UTF-8 or holds control characters.
fn readable(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return ".".to_owned();
    }
    match path.to_str() {
        Some(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => path
            .as_os_str()
            .as_encoded_bytes()
            .escape_ascii()
            .to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

    use super::*;

    #[test]
    fn all_failures_are_counted_and_the_first_hundred_named() {
        let log = FailureLog::default();
        for number in 0..250 {
            log.record(Path::new(&format!("file-{number:03}")), &"gone");
        }
        let failures = log.collected();
        assert_eq!(failures.count, 250);
        assert_eq!(failures.first.len(), MAX_NAMED);
        assert_eq!(failures.first[99].path, "file-099");
    }

    #[test]
    fn a_name_that_is_not_utf8_stays_recognizable() {
        assert_eq!(
            readable(Path::new(OsStr::from_bytes(b"a/b\xff"))),
            "a/b\\xff"
        );
        assert_eq!(readable(Path::new("a\nb")), "a\\nb");
        assert_eq!(readable(Path::new("Straße")), "Straße");
    }
}

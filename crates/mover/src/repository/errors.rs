//! Errors from and to rustic_core.
//!
//! Kind and context of its errors cannot be read by a program, so errors are told apart by their
//! text. Their `Display` has many lines, with a backtrace and a request to report a bug: nothing of
//! that is for users.

use std::{error::Error, path::Path};

use rustic_core::{ErrorKind, FileType, Id, RusticError, RusticResult};

use super::layout::key;
use crate::{MoverError, error::CHANGED_CONTENTS};

/// Begin of the kind of an error in [`RusticError::display_log`], after its message.
const KIND: &str = " (kind: related to ";

/// Parts of the messages about contents of a repository that are missing or were changed, beside
/// those about decryption (rustic_core 0.13: `index.rs`, `repository.rs`, `blob/tree.rs`,
/// `backend/decrypt.rs`, `commands/prune.rs`).
const DAMAGE: [&str; 7] = [
    "not found in index",
    "missing in index",
    "does not match the expected size",
    "` does not exist.",
    "Failed to deserialize",
    "Failed to decode zstd",
    "Length of uncompressed data",
];

/// Kinds of errors of a volume that is full, in their `Debug` form.
pub(super) const FULL: [&str; 2] = ["StorageFull", "QuotaExceeded"];

const FILE_TYPES: [FileType; 5] = [
    FileType::Config,
    FileType::Index,
    FileType::Key,
    FileType::Pack,
    FileType::Snapshot,
];

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
    let detail = brief(error);
    if detail.contains("Config version") {
        return MoverError::Unsupported { url, detail };
    }
    if let Some(object) = unreadable_object(&detail) {
        return MoverError::damaged(&object, CHANGED_CONTENTS);
    }
    if is_of(error, ErrorKind::Cryptography) || DAMAGE.iter().any(|part| detail.contains(part)) {
        return MoverError::damaged("its index or a folder", &detail);
    }
    MoverError::repository(&detail)
}

/// The error of a restore. What the volume refused is no fault of the repository.
pub(super) fn from_restore(error: &RusticError, url: &str, target: &Path) -> MoverError {
    match from_rustic(error, url) {
        MoverError::Repository { detail } if is_of(error, ErrorKind::InputOutput) => {
            let action = detail.split(". ").next().unwrap_or(&detail);
            MoverError::target(target, &format!("{action}: {}", volume_refusal(&detail)))
        }
        other => other,
    }
}

/// What the file system of a volume answered, from a text of rustic_core with the `Debug` form of
/// the error.
pub(super) fn volume_refusal(text: &str) -> &str {
    if FULL.iter().any(|kind| text.contains(kind)) {
        return "it is full: restore into a larger one";
    }
    let message = text.split_once("message: \"").map(|(_, rest)| rest);
    let message = message.and_then(|rest| rest.split_once('"'));
    message.map_or(text, |(message, _)| message)
}

fn is_of(error: &RusticError, kind: ErrorKind) -> bool {
    error.display_log().contains(&format!("{KIND}{kind}"))
}

/// The same error; damage is in this pack. rustic_core names only the first digits of its id.
pub(super) fn of_pack(error: MoverError, pack: &Id) -> MoverError {
    match error {
        MoverError::Damaged { reason, .. } => {
            MoverError::damaged(&key(FileType::Pack, pack), &reason)
        }
        other => other,
    }
}

/// An error and its causes, in one line, without what is meant for developers of rustic_core.
pub(super) fn brief(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let text = one_line(&own_text(cause));
        if !text.is_empty() && !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = cause.source();
    }
    parts.join(": ")
}

/// The text of an error without that of its cause.
fn own_text(error: &(dyn Error + 'static)) -> String {
    if let Some(rustic) = as_rustic(error) {
        let log = rustic.display_log();
        let text = log.strip_prefix("Error: ").unwrap_or(&log);
        return text
            .split_once(KIND)
            .map_or(text, |(text, _)| text)
            .to_owned();
    }
    let text = error.to_string();
    let cause = error.source().map(ToString::to_string);
    let own = cause.and_then(|cause| text.strip_suffix(cause.as_str()).map(str::to_owned));
    own.map_or(text, |own| own.trim_end_matches([' ', ':']).to_owned())
}

/// As a cause of another error it is in a box.
fn as_rustic<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a RusticError> {
    error.downcast_ref::<RusticError>().or_else(|| {
        let boxed = error.downcast_ref::<Box<RusticError>>();
        boxed.map(AsRef::as_ref)
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The object that cannot be decrypted, by the first digits of its id; `None` if the error is about
/// something else.
fn unreadable_object(detail: &str) -> Option<String> {
    FILE_TYPES.into_iter().find_map(|file_type| {
        let (_, rest) = detail.split_once(&format!("error processing {file_type}:"))?;
        let id: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        let folder = file_type.dirname();
        Some(match file_type {
            FileType::Config => folder.to_owned(),
            FileType::Pack => format!("{folder}/{}/{id}…", id.get(..2).unwrap_or_default()),
            FileType::Index | FileType::Key | FileType::Snapshot => format!("{folder}/{id}…"),
        })
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn undecryptable() -> Box<RusticError> {
        let cause = RusticError::new(ErrorKind::Cryptography, "MAC check failed.");
        RusticError::with_source(
            ErrorKind::Cryptography,
            "error processing {tpe}:{id} at {location}",
            cause,
        )
        .attach_context("tpe", FileType::Pack.to_string())
        .attach_context("id", "4f1c0a7d")
        .attach_context("location", "BlobLocation { offset: 7 }")
    }

    #[test]
    fn what_the_volume_refuses_is_no_fault_of_the_repository() {
        let error = |kind, os_error| {
            let cause = std::io::Error::from_raw_os_error(os_error);
            let cause = std::io::Error::other(format!("directory creation failed: `{cause:?}`"));
            let text = "Failed to create the directory `{path}`. Please check the path.";
            let error = RusticError::with_source(kind, text, cause).attach_context("path", "rd");
            from_restore(&error, "s3://b", Path::new("/volume"))
        };
        let denied = error(ErrorKind::InputOutput, 13);
        assert_eq!(denied.category(), "target");
        let text = "/volume cannot be restored into: Failed to create the directory `rd`: Permission denied";
        assert_eq!(denied.to_string(), text);
        let full = error(ErrorKind::InputOutput, 28).to_string();
        assert!(
            full.ends_with("it is full: restore into a larger one"),
            "{full}"
        );
        assert_eq!(error(ErrorKind::Backend, 13).category(), "repository");
    }

    #[test]
    fn an_error_is_one_line_with_its_causes_and_nothing_for_developers() {
        let error = RusticError::with_source(
            ErrorKind::Internal,
            "Reading failed.\nPlease check.",
            undecryptable(),
        );
        let text = brief(&*error.ask_report());
        assert_eq!(
            text,
            "Reading failed. Please check.: error processing Pack:4f1c0a7d at BlobLocation { offset: 7 }: \
             MAC check failed."
        );
    }

    #[test]
    fn damage_names_its_object() {
        let error = from_rustic(&undecryptable(), "memory://r");
        assert_eq!(error.category(), "damaged");
        let message = error.to_string();
        let begin = "the repository is damaged: data/4f/4f1c0a7d…: it cannot be decrypted";
        assert!(message.starts_with(begin), "{message}");
        for part in ["can be restored", "`kubectl backup repositories`"] {
            assert!(message.contains(part), "{message}");
        }
        let pack = Id::random();
        let MoverError::Damaged { object, .. } = of_pack(error, &pack) else {
            panic!("it is no damage any more")
        };
        assert_eq!(object, key(FileType::Pack, &pack));
    }

    #[test]
    fn a_damaged_index_is_told_from_damaged_data() {
        let error = MoverError::damaged("index/4f1c0a7d…", CHANGED_CONTENTS);
        let message = error.to_string();
        assert!(message.ends_with("stores.md#a-damaged-index"), "{message}");
        assert!(!message.contains("can be restored;"), "{message}");
    }

    #[test]
    fn what_the_index_does_not_name_is_damage() {
        for text in [
            "Tree ID `4f` not found in index",
            "Blob ID `4f` is missing in index files.",
            "Pack `4f` does not exist.",
            "Failed to deserialize tree from JSON.",
        ] {
            let error = RusticError::new(ErrorKind::Internal, text).ask_report();
            let error = from_rustic(&error, "memory://r");
            assert_eq!(error.category(), "damaged", "{error}");
            let sentence = format!("{}. Volumes", text.trim_end_matches('.'));
            assert!(error.to_string().contains(&sentence), "{error}");
        }
        let other = RusticError::new(ErrorKind::Internal, "Tree stack is empty.");
        let error = from_rustic(&other, "memory://r");
        let expected = "the repository cannot be used: Tree stack is empty.";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn an_error_of_ours_comes_back_unchanged() {
        let ours = MoverError::damaged("data/4f/4f", "it is missing");
        let wrapped =
            RusticError::with_source(ErrorKind::Internal, "It failed.", to_rustic(ours.clone()));
        assert_eq!(from_rustic(&wrapped, "memory://r"), ours);
    }
}

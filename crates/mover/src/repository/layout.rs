//! The layout of a repository in the object store: restic's.

use rustic_core::{FileType, Id};

/// The key of a file below the repository's prefix.
pub(super) fn key(file_type: FileType, id: &Id) -> String {
    let name = id.to_hex();
    let folder = file_type.dirname();
    match file_type {
        FileType::Config => folder.to_owned(),
        FileType::Pack => format!("{folder}/{}/{}", &name[..2], &*name),
        _ => format!("{folder}/{}", &*name),
    }
}

//! Making a repository.

use rustic_core::{ConfigOptions, FileType, KeyOptions};

use super::{Job, Repository, errors::OrMoverError as _, layout::key, session::Session};
use crate::MoverError;

/// Size of a pack of file contents. Packs do not grow with the repository: a restore holds
/// several of them in memory.
const DATA_PACK: &str = "16 MiB";

/// Size of a pack of folders.
const TREE_PACK: &str = "4 MiB";

/// Level of zstd. For each small file rustic_core makes a new context, whose tables are eight times
/// as large at zstd's own default, 3: to clear them takes longer than to compress the file.
const COMPRESSION: i32 = 1;

pub(super) fn init(repository: &Repository, job: &Job) -> Result<(), MoverError> {
    let session = Session::new(repository, job, None);
    let url = session.url().to_owned();
    if session.objects.size("config")?.is_some() {
        return Err(MoverError::RepositoryExists { url });
    }
    // A new repository would make them unreadable. An interrupted init leaves only keys.
    for folder in [FileType::Index, FileType::Snapshot] {
        if !session.objects.list(folder.dirname())?.is_empty() {
            return Err(MoverError::ConfigMissing { url });
        }
    }
    let mut config = ConfigOptions::default();
    config.set_datapack_size = DATA_PACK.parse().ok();
    config.set_datapack_growfactor = Some(0);
    config.set_treepack_size = TREE_PACK.parse().ok();
    config.set_treepack_growfactor = Some(0);
    config.set_compression = Some(COMPRESSION);
    let backend = session.backend(None);
    let made = session
        .repository(backend.clone())?
        .init(&session.credentials(), &KeyOptions::default(), &config)
        .ours(&url);
    if let Err(MoverError::RepositoryExists { .. }) = &made {
        // Another process was faster. This key decrypts nothing; opening copes with it, too.
        for id in backend.written_keys() {
            session.objects.delete(&key(FileType::Key, &id))?;
        }
    }
    made.map(drop)
}

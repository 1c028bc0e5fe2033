//! How files are cut into blobs.

use rustic_core::{
    ConfigOptions, Open, Repository as RusticRepository,
    repofile::{Chunker, ConfigFile},
};

use super::errors::OrMoverError as _;
use crate::MoverError;

/// Files below this size (bytes) are one blob, however files are cut. `None`: no other way of
/// cutting is needed or possible.
pub(super) fn whole_file_limit(config: &ConfigFile) -> Option<u64> {
    let is_by_contents = config.chunker() == Chunker::Rabin;
    // rustic_core refuses any change of the config of such a repository.
    let is_changeable = config.append_only != Some(true);
    (is_by_contents && is_changeable).then_some(config.chunk_min_size() as u64)
}

/// Cuts files by their size during this operation. To be called if all are below
/// [`whole_file_limit`]: rustic_core computes the tables for cuts by contents again for each file,
/// which takes longer than everything else that it does with a small file.
///
/// The config in the store stays the same: the backend does not write it again.
pub(super) fn cut_by_size<S: Open>(
    opened: &mut RusticRepository<S>,
    url: &str,
) -> Result<(), MoverError> {
    let mut options = ConfigOptions::default();
    options.set_chunker = Some(Chunker::FixedSize);
    opened.apply_config(&options).ours(url).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Job, Repository,
        repository::{init, session::Session},
    };

    #[tokio::test(flavor = "multi_thread")]
    async fn files_are_cut_by_size_in_one_operation_only() {
        let repository = Repository::in_memory();
        let work = tokio::task::spawn_blocking(move || {
            let job = Job::default();
            init::init(&repository, &job).unwrap();
            let session = Session::new(&repository, &job, None);
            let mut opened = session.open().unwrap();
            assert_eq!(whole_file_limit(opened.config()), Some(512 << 10));
            cut_by_size(&mut opened, session.url()).unwrap();
            assert_eq!(opened.config().chunker(), Chunker::FixedSize);
            assert_eq!(whole_file_limit(opened.config()), None);
            session.open().unwrap().config().chunker()
        });
        assert_eq!(work.await.unwrap(), Chunker::Rabin);
    }

    #[test]
    fn the_config_of_an_append_only_repository_is_not_changed() {
        let config = ConfigFile {
            append_only: Some(true),
            ..ConfigFile::default()
        };
        assert_eq!(whole_file_limit(&config), None);
    }
}

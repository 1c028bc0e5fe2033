//! Opening of a repository.

use std::{path::PathBuf, sync::Arc};

use rustic_core::{
    Credentials, FileType, Id, OpenStatus, ReadBackend as _, Repository as RusticRepository,
    RepositoryBackends, RepositoryOptions,
};

use super::{Job, Repository, backend::ObjectBackend, bars::Bars, errors::OrMoverError as _};
use crate::{MoverError, objects::Objects};

/// One operation's access to a repository.
pub(super) struct Session<'a> {
    repository: &'a Repository,
    job: &'a Job,
    pub(super) objects: Objects,
    target: Option<PathBuf>,
    notes: Option<String>,
}

impl<'a> Session<'a> {
    /// `target` is the volume that is restored into: the operation ends when it is full.
    pub(super) fn new(repository: &'a Repository, job: &'a Job, target: Option<PathBuf>) -> Self {
        let (stop, progress) = (job.stop.clone(), job.progress.clone());
        Self {
            objects: Objects::new(&repository.place, &repository.limits, stop, progress),
            repository,
            job,
            target,
            notes: None,
        }
    }

    /// The same, and each snapshot is noted in this folder before it is written.
    pub(super) fn noting(self, notes: Option<String>) -> Self {
        Self { notes, ..self }
    }

    pub(super) fn url(&self) -> &str {
        self.objects.url()
    }

    pub(super) fn credentials(&self) -> Credentials {
        Credentials::Password(self.repository.password.0.clone())
    }

    pub(super) fn backend(&self, only_key: Option<Id>) -> Arc<ObjectBackend> {
        let backend = ObjectBackend::new(self.objects.clone(), only_key, self.target.clone());
        Arc::new(backend.noting(self.notes.clone()))
    }

    /// The repository through a backend, not opened.
    pub(super) fn repository(
        &self,
        backend: Arc<ObjectBackend>,
    ) -> Result<RusticRepository<()>, MoverError> {
        let mut options = RepositoryOptions::default();
        // Folders are cached by the backend, in memory.
        options.no_cache = true;
        let backends = RepositoryBackends::new(backend, None);
        let bars = Bars(self.job.progress.clone());
        RusticRepository::new_with_progress(&options, &backends, bars).ours(self.url())
    }

    /// Opens the repository.
    ///
    /// Two processes that initialize it at the same moment, or one that ended in the middle, leave
    /// two keys: the password opens both, but only one of them decrypts the repository.
    /// rustic_core takes the first, so each is tried alone before that is an error.
    pub(super) fn open(&self) -> Result<RusticRepository<OpenStatus>, MoverError> {
        if self.objects.size("config")?.is_none() {
            let url = self.url().to_owned();
            return Err(MoverError::RepositoryMissing { url });
        }
        let error = match self.open_with(None) {
            Ok(repository) => return Ok(repository),
            Err(error) => error,
        };
        let is_wrong_password = matches!(error, MoverError::WrongPassword { .. });
        if !is_wrong_password && !is_of_key(&error) {
            return Err(error);
        }
        let keys = self.keys()?;
        if keys.is_empty() {
            return Err(MoverError::damaged("keys/", "all keys are missing"));
        }
        if keys.len() > 1 && !is_wrong_password {
            for key in keys {
                self.job.stop.check()?;
                if let Ok(repository) = self.open_with(Some(key)) {
                    return Ok(repository);
                }
            }
        }
        Err(error)
    }

    /// Whether the password opens the repository by this key.
    pub(super) fn opens_with(&self, key: Id) -> Result<bool, MoverError> {
        match self.open_with(Some(key)) {
            Ok(_) => Ok(true),
            Err(MoverError::WrongPassword { .. }) => Ok(false),
            Err(error) if is_of_key(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The ids of all keys, of any password.
    pub(super) fn keys(&self) -> Result<Vec<Id>, MoverError> {
        self.backend(None).list(FileType::Key).ours(self.url())
    }

    fn open_with(&self, only_key: Option<Id>) -> Result<RusticRepository<OpenStatus>, MoverError> {
        self.repository(self.backend(only_key))?
            .open(&self.credentials())
            .ours(self.url())
    }
}

/// Whether the repository may open with another key: this one may be of an init that was
/// interrupted, and decrypts nothing.
fn is_of_key(error: &MoverError) -> bool {
    matches!(
        error,
        MoverError::Repository { .. } | MoverError::Damaged { .. }
    )
}

#[cfg(test)]
mod tests {
    use rustic_core::{KeyOptions, repofile::ConfigFile};
    use serde_json::json;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_repository_of_a_newer_version_is_refused() {
        let repository = Repository::in_memory();
        let opening = tokio::task::spawn_blocking(move || {
            let job = Job::default();
            let session = Session::new(&repository, &job, None);
            let config: ConfigFile = serde_json::from_value(json!({
                "version": 3,
                "id": "ab".repeat(32),
                "chunker_polynomial": "3da3358b4dc173",
            }))
            .unwrap();
            // Writes it, and cannot open it then.
            let made = session
                .repository(session.backend(None))
                .unwrap()
                .init_with_config(&session.credentials(), &KeyOptions::default(), config);
            assert!(made.is_err());
            session.open().map(drop)
        });
        let error = opening.await.unwrap().unwrap_err();
        assert_eq!(error.category(), "unsupported", "{error}");
    }
}

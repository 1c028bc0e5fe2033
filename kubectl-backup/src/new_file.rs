//! A file that a command writes for the user: written completely or not at all, and readable only
//! by its owner.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::error::Problem;

pub(crate) struct NewFile {
    path: PathBuf,
    overwrite: bool,
    /// Temporary, in the same folder; deleted without `keep`.
    file: NamedTempFile,
}

impl NewFile {
    /// Fails if a file exists at the path and may not be overwritten.
    pub(crate) fn check(path: &Path, overwrite: bool) -> Result<(), Problem> {
        if overwrite || !path.exists() {
            Ok(())
        } else {
            Err(taken(path))
        }
    }

    pub(crate) fn create(path: PathBuf, overwrite: bool) -> Result<Self, Problem> {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".kubectl-backup-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            // The error's own text would name a temporary file.
            .map_err(|error| failed(&path, &error.kind().into()))?;
        Ok(Self {
            path,
            overwrite,
            file,
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        self.file
            .write_all(bytes)
            .map_err(|error| failed(&self.path, &error))
    }

    /// Gives the file its final name.
    pub(crate) fn keep(self) -> Result<(), Problem> {
        let Self {
            path,
            overwrite,
            file,
        } = self;
        file.as_file()
            .sync_all()
            .map_err(|error| failed(&path, &error))?;
        let kept = if overwrite {
            file.persist(&path)
        } else {
            file.persist_noclobber(&path)
        };
        kept.map(drop).map_err(|error| match error.error.kind() {
            io::ErrorKind::AlreadyExists => taken(&path),
            _ => failed(&path, &error.error),
        })
    }
}

fn failed(path: &Path, error: &io::Error) -> Problem {
    Problem::other(format!("cannot write {}: {error}", path.display()))
        .with_remedy("Choose another file with -o FILE.")
}

fn taken(path: &Path) -> Problem {
    Problem::other(format!("{} exists", path.display()))
        .with_remedy("Choose another file with -o FILE, or overwrite it with --force.")
}

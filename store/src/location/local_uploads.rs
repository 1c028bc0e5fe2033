//! Uploads into a folder that outlive the process: a staged file in the private folder beside the final key, published by
//! a hard link, which is made only where nothing is.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::FileExt as _,
    path::{Path as FilePath, PathBuf},
};

use async_trait::async_trait;
use object_store::{
    Error, MultipartId, PutPayload, PutResult, Result,
    multipart::{MultipartStore, PartId},
    path::Path,
};

use crate::{layout::PRIVATE, staging::PART_SIZE};

/// What names of staged files begin with.
const STAGED: &str = "staged-";

/// Uploads into a folder.
#[derive(Debug)]
pub(super) struct LocalUploads {
    folder: PathBuf,
}

impl LocalUploads {
    pub(super) fn new(folder: &FilePath) -> Self {
        Self { folder: folder.to_owned() }
    }

    fn final_file(&self, key: &Path) -> PathBuf {
        self.folder.join(key.as_ref())
    }

    fn private_folder(&self, key: &Path) -> PathBuf {
        let mut folder = self.final_file(key);
        folder.pop();
        folder.join(PRIVATE)
    }

    /// The staged file of an upload. What was read from the store is not trusted to be a plain name.
    fn staged(&self, key: &Path, upload: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if upload.starts_with(STAGED) && upload.chars().all(plain) {
            return Ok(self.private_folder(key).join(upload));
        }
        Err(failed(key, io::Error::other(format!("{upload:?} is not the name of an upload"))))
    }
}

#[async_trait]
impl MultipartStore for LocalUploads {
    async fn create_multipart(&self, key: &Path) -> Result<MultipartId> {
        let folder = self.private_folder(key);
        blocking(key, move || {
            fs::create_dir_all(&folder)?;
            let file = tempfile::Builder::new().prefix(STAGED).rand_bytes(12).tempfile_in(&folder)?;
            let (_, path) = file.keep()?;
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            Ok(name.to_owned())
        })
        .await
    }

    async fn put_part(
        &self,
        key: &Path,
        upload: &MultipartId,
        index: usize,
        data: PutPayload,
    ) -> Result<PartId> {
        let staged = self.staged(key, upload)?;
        blocking(key, move || {
            let file = OpenOptions::new().write(true).open(staged)?;
            let begin = index as u64 * PART_SIZE as u64;
            let mut offset = begin;
            for piece in &data {
                file.write_all_at(piece, offset)?;
                offset += piece.len() as u64;
            }
            Ok(PartId { content_id: (offset - begin).to_string() })
        })
        .await
    }

    async fn complete_multipart(
        &self,
        key: &Path,
        upload: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let (staged, last) = (self.staged(key, upload)?, self.final_file(key));
        let sizes: std::result::Result<Vec<u64>, _> =
            parts.iter().map(|part| part.content_id.parse()).collect();
        let size: u64 = sizes.map_err(|error| failed(key, io::Error::other(error)))?.iter().sum();
        blocking(key, move || {
            let file = OpenOptions::new().write(true).open(&staged)?;
            // Somebody who went on with the upload and died may have written more parts than were decided on.
            file.set_len(size)?;
            file.sync_all()?;
            fs::hard_link(&staged, &last)?;
            if let Some(folder) = last.parent() {
                File::open(folder)?.sync_all()?;
            }
            // Both names are of one file; the other one is only in the way of a listing.
            remove(&staged)
        })
        .await?;
        Ok(PutResult { e_tag: None, version: None, extensions: object_store::Extensions::default() })
    }

    async fn abort_multipart(&self, key: &Path, upload: &MultipartId) -> Result<()> {
        let staged = self.staged(key, upload)?;
        blocking(key, move || remove(&staged)).await
    }
}

/// Removes a staged file, and the private folder if nothing else is in it.
fn remove(staged: &FilePath) -> io::Result<()> {
    fs::remove_file(staged)?;
    if let Some(folder) = staged.parent() {
        let _ = fs::remove_dir(folder); // fails while there is something in it
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(
    key: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| failed(key, error)),
        Err(error) => Err(failed(key, io::Error::other(error))),
    }
}

fn failed(key: &Path, error: io::Error) -> Error {
    let path = key.to_string();
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound { path, source: error.into() },
        ErrorKind::AlreadyExists => Error::AlreadyExists { path, source: error.into() },
        _ => Error::Generic { store: "folder", source: error.into() },
    }
}

//! Provider `local`: a folder, for trials and for volumes mounted from a NAS.
//!
//! An upload in parts is a staged file in the private folder beside the final key, so that it
//! outlives the process. It is published by a hard link, which fails if the key exists.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    path::{Component, Path as FilePath, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use backup_core::api::BackupStorageLocationSpec;
use object_store::{
    Error, MultipartId, PutPayload, PutResult, Result,
    local::LocalFileSystem,
    multipart::{MultipartStore, PartId},
    path::Path,
};

use super::{backend::Backend, settings};
use crate::{
    StoreError,
    file_at::FileAt as _,
    layout::{PART_SIZE, PRIVATE},
};

const STAGED: &str = "staged-";

pub(super) fn open(spec: &BackupStorageLocationSpec) -> Result<Backend, StoreError> {
    let folder = FilePath::new(&spec.object_storage.bucket);
    let shown = folder.display();
    // It has no settings, and contacts no server.
    settings::known(spec, None, &[])?;
    if !folder.is_absolute() || folder.components().any(|part| part == Component::ParentDir) {
        return Err(wrong_folder(&format!(
            "{shown} is not an absolute folder, as provider local expects"
        )));
    }
    fs::create_dir_all(folder)
        .map_err(|error| wrong_folder(&format!("the folder {shown} cannot be made: {error}")))?;
    let store = LocalFileSystem::new_with_prefix(folder)
        .map_err(|error| StoreError::from_store("open", &shown.to_string(), &error))?
        .with_automatic_cleanup(true) // an empty folder would be listed as a backup
        .with_fsync(true); // as durable as an object store's answer
    let uploads = Arc::new(LocalUploads {
        folder: folder.to_owned(),
    });
    // A hard link fails if the key exists, so completing needs no other condition.
    Ok(Backend {
        folder: Some(folder.to_owned()),
        ..Backend::new(Arc::new(store), uploads, format!("file://{shown}"))
    })
}

fn wrong_folder(message: &str) -> StoreError {
    StoreError::config("spec.objectStorage.bucket", message)
}

#[derive(Debug)]
struct LocalUploads {
    folder: PathBuf,
}

impl LocalUploads {
    fn final_file(&self, key: &Path) -> PathBuf {
        self.folder.join(key.as_ref())
    }

    fn private_folder(&self, key: &Path) -> PathBuf {
        self.final_file(key).with_file_name(PRIVATE)
    }

    /// The staged file of an upload. A name read from the store is checked to be a plain name.
    fn staged(&self, key: &Path, upload: &str) -> Result<PathBuf> {
        let is_plain = upload
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-');
        if upload.starts_with(STAGED) && is_plain {
            return Ok(self.private_folder(key).join(upload));
        }
        Err(failed(
            key,
            io::Error::other(format!("{upload:?} is not the name of an upload")),
        ))
    }
}

#[async_trait]
impl MultipartStore for LocalUploads {
    async fn create_multipart(&self, key: &Path) -> Result<MultipartId> {
        let folder = self.private_folder(key);
        blocking(key, move || {
            fs::create_dir_all(&folder)?;
            let file = tempfile::Builder::new()
                .prefix(STAGED)
                .rand_bytes(12)
                .tempfile_in(&folder)?;
            let (_, path) = file.keep()?;
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
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
            Ok(PartId {
                content_id: (offset - begin).to_string(),
            })
        })
        .await
    }

    async fn complete_multipart(
        &self,
        key: &Path,
        upload: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let staged = self.staged(key, upload)?;
        let last = self.final_file(key);
        let sizes: std::result::Result<Vec<u64>, _> =
            parts.iter().map(|part| part.content_id.parse()).collect();
        let size: u64 = sizes
            .map_err(|error| failed(key, io::Error::other(error)))?
            .iter()
            .sum();
        blocking(key, move || {
            let file = OpenOptions::new().write(true).open(&staged)?;
            // A process that resumed the upload and crashed may have written more parts than the
            // record holds.
            file.set_len(size)?;
            file.sync_all()?;
            fs::hard_link(&staged, &last)?;
            if let Some(folder) = last.parent() {
                File::open(folder)?.sync_all()?;
            }
            // Both names belong to one file; the staged one would only show up in listings.
            remove(&staged)
        })
        .await?;
        Ok(PutResult {
            e_tag: None,
            version: None,
            extensions: object_store::Extensions::default(),
        })
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
        ErrorKind::NotFound => Error::NotFound {
            path,
            source: error.into(),
        },
        ErrorKind::AlreadyExists => Error::AlreadyExists {
            path,
            source: error.into(),
        },
        _ => Error::Generic {
            store: "folder",
            source: error.into(),
        },
    }
}

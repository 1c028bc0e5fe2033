//! Provider `local`: a folder, for trials and for volumes mounted from a NAS.

use std::{path::Path, sync::Arc};

use backup_core::api::BackupStorageLocationSpec;
use object_store::{TagSet, local::LocalFileSystem};

use super::{Opened, Root, Uploads, local_uploads::LocalUploads};
use crate::StoreError;

pub(super) fn open(spec: &BackupStorageLocationSpec) -> Result<Opened, StoreError> {
    let folder = Path::new(&spec.object_storage.bucket);
    let config =
        |message: String| StoreError::Config { field: "spec.objectStorage.bucket".to_owned(), message };
    if !folder.is_absolute() || folder.components().any(|part| part == std::path::Component::ParentDir) {
        return Err(config(format!(
            "{} is not an absolute folder, as provider local expects",
            folder.display()
        )));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| config(format!("the folder {} can not be made: {error}", folder.display())))?;
    let store = LocalFileSystem::new_with_prefix(folder)
        .map_err(|error| StoreError::from_store("open", &folder.display().to_string(), &error))?
        .with_automatic_cleanup(true) // an empty folder would be listed as a backup
        .with_fsync(true); // as durable as an object store's answer
    let root =
        Root { url: format!("file://{}", folder.display()), endpoint: None, folder: Some(folder.to_owned()) };
    // A hard link is made only where nothing is, so completing needs no other condition.
    let uploads = Uploads { store: Arc::new(LocalUploads::new(folder)), creating: None };
    let tags = TagSet::default();
    Ok(Opened { store: Arc::new(store), uploads, bucket: None, tags, root, signer: None })
}

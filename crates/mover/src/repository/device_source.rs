//! A block device as source of a backup.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    iter,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustic_core::{
    ReadSource, ReadSourceEntry, RusticResult,
    repofile::{Metadata, Node, NodeType},
};

use super::{Job, source::metadata};
use crate::{
    MoverError,
    volume::{Attributes, device_size},
};

/// The name under which a device is in its snapshot.
pub(super) const BLOCK_FILE: &str = "block-device";

/// A single block device, or a file in its place, as if it were a file in a folder.
#[derive(Debug)]
pub(super) struct DeviceSource {
    size: u64,
    attributes: Attributes,
    file: Arc<File>,
    job: Job,
}

impl DeviceSource {
    pub(super) fn open(path: &Path, job: &Job) -> Result<Self, MoverError> {
        let source = |error: std::io::Error| MoverError::source(path, &error);
        let file = File::open(path).map_err(source)?;
        let metadata = file.metadata().map_err(source)?;
        if metadata.is_dir() {
            return Err(MoverError::source(
                path,
                &"it is a folder, and no block device",
            ));
        }
        Ok(Self {
            size: device_size(&file).map_err(source)?,
            attributes: Attributes::without_extended(&metadata),
            file: Arc::new(file),
            job: job.clone(),
        })
    }
}

impl ReadSource for DeviceSource {
    type Open = DeviceReader;
    type Iter = iter::Once<RusticResult<ReadSourceEntry<DeviceReader>>>;

    fn size(&self) -> RusticResult<Option<u64>> {
        Ok(Some(self.size))
    }

    fn entries(&self) -> Self::Iter {
        self.job.progress.add_file();
        let meta = Metadata {
            size: self.size,
            ..metadata(&self.attributes)
        };
        let entry = ReadSourceEntry {
            path: PathBuf::from(BLOCK_FILE),
            node: Node::new_node(OsStr::new(BLOCK_FILE), NodeType::File, meta),
            open: Some(DeviceReader {
                file: self.file.clone(),
                offset: 0,
                size: self.size,
                job: self.job.clone(),
            }),
        };
        iter::once(Ok(entry))
    }
}

/// Reads a device from start to end. An error ends the operation: a snapshot without the
/// device would hold nothing.
#[derive(Debug)]
pub(super) struct DeviceReader {
    file: Arc<File>,
    offset: u64,
    size: u64,
    job: Job,
}

impl Read for DeviceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.job.stop.check().map_err(io::Error::other)?;
        let left = usize::try_from(self.size - self.offset).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let result = match self.file.read_at(&mut buffer[..length], self.offset) {
            Ok(0) if length > 0 => Err(io::ErrorKind::UnexpectedEof.into()),
            other => other,
        };
        match result {
            Ok(bytes) => {
                self.offset += bytes as u64;
                self.job.progress.add_read(&buffer[..bytes]);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let detail = format!("it cannot be read at byte {}: {error}", self.offset);
                self.job.stop.fail(MoverError::Source {
                    path: "the device".to_owned(),
                    detail,
                });
                Err(error)
            }
        }
    }
}

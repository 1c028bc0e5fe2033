//! Block devices, and files in their place.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    os::unix::fs::FileTypeExt as _,
    path::Path,
};

use crate::MoverError;

/// The size of a device or file; for a device the metadata say 0.
pub(crate) fn device_size(mut device: &File) -> io::Result<u64> {
    let size = device.seek(SeekFrom::End(0))?;
    device.rewind()?;
    Ok(size)
}

/// Opens a device, or a file in its place, to write `size` bytes. Nothing is written if it is
/// smaller.
pub(crate) fn open_target(path: &Path, size: u64) -> Result<File, MoverError> {
    let failed = |error: io::Error| MoverError::target(path, &error);
    let target = OpenOptions::new().write(true).open(path).map_err(failed)?;
    let file_type = target.metadata().map_err(failed)?.file_type();
    if !file_type.is_block_device() && !file_type.is_file() {
        return Err(MoverError::target(path, &"it is no block device"));
    }
    let room = device_size(&target).map_err(failed)?;
    if room < size {
        let detail = format!(
            "it has {room} bytes, and the snapshot {size}: use a volume that is large enough"
        );
        return Err(MoverError::target(path, &detail));
    }
    Ok(target)
}

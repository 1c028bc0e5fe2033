//! Reading and writing a file at an offset, on each system that the command runs on: the programs
//! of a cluster run on Linux, the command also on macOS and Windows.

#[cfg(unix)]
pub(crate) use std::os::unix::fs::FileExt as FileAt;

#[cfg(windows)]
pub(crate) use windows::FileAt;

/// Equivalents of two Unix calls. Windows may read or write less than requested.
#[cfg(windows)]
mod windows {
    use std::{fs::File, io, os::windows::fs::FileExt as _};

    pub(crate) trait FileAt {
        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
        fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    }

    impl FileAt for File {
        fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
            while !buffer.is_empty() {
                let read = self.seek_read(buffer, offset)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                buffer = &mut buffer[read..];
                offset += read as u64;
            }
            Ok(())
        }

        fn write_all_at(&self, mut buffer: &[u8], mut offset: u64) -> io::Result<()> {
            while !buffer.is_empty() {
                let written = self.seek_write(buffer, offset)?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                buffer = &buffer[written..];
                offset += written as u64;
            }
            Ok(())
        }
    }
}

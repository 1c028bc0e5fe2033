//! Reading of one file, which notices what is wrong with it.

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
    sync::Arc,
};

use super::{Identity, Root};
use crate::{Progress, StopFlag, failures::FailureLog};

/// A file that was found and is not opened yet.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) root: Arc<Root>,
    pub(crate) path: PathBuf,
    /// The state in which it was found.
    pub(crate) identity: Identity,
    pub(crate) failures: FailureLog,
    pub(crate) stop: StopFlag,
    pub(crate) progress: Arc<Progress>,
}

/// Reads a file. Records as failure that it cannot be opened or read, or that it was changed since
/// it was found: what was read may be of two states then.
#[derive(Debug)]
pub(crate) struct SourceReader {
    source: SourceFile,
    file: File,
    bytes: u64,
    /// Set once a failure was recorded.
    has_failed: bool,
}

impl SourceFile {
    pub(crate) fn open(self) -> io::Result<SourceReader> {
        self.stopped()?;
        let opened = self.root.file(&self.path).and_then(|file| {
            // A pipe or a device that took its place would block, or never end.
            if file.metadata()?.is_file() {
                Ok(file)
            } else {
                Err(io::Error::other("it is no regular file any longer"))
            }
        });
        match opened {
            Ok(file) => Ok(SourceReader {
                source: self,
                file,
                bytes: 0,
                has_failed: false,
            }),
            Err(error) => {
                let reason = format!("it is missing, as it cannot be opened: {error}");
                self.failures.record(&self.path, &reason);
                Err(error)
            }
        }
    }

    fn stopped(&self) -> io::Result<()> {
        self.stop.check().map_err(io::Error::other)
    }
}

impl Read for SourceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.stopped()?;
        match self.file.read(buffer) {
            Ok(bytes) => {
                self.bytes += bytes as u64;
                self.source.progress.add_read(&buffer[..bytes]);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                if !self.has_failed {
                    self.has_failed = true;
                    let reason = format!(
                        "it is missing, as it cannot be read after {} bytes: {error}",
                        self.bytes
                    );
                    self.source.failures.record(&self.source.path, &reason);
                }
                Err(error)
            }
        }
    }
}

impl Drop for SourceReader {
    fn drop(&mut self) {
        if self.has_failed || self.source.stop.is_set() {
            return;
        }
        let found = &self.source.identity;
        let is_same = self.file.metadata().is_ok_and(|metadata| {
            Identity::of(&metadata).has_contents_of(found) && self.bytes == found.size
        });
        if !is_same {
            let reason = "it was changed while it was read: what was saved may be of two states";
            self.source.failures.record(&self.source.path, &reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    fn source(root: &Path, name: &str) -> SourceFile {
        SourceFile {
            root: Arc::new(Root::open(root).unwrap()),
            path: name.into(),
            identity: Identity::of(&fs::metadata(root.join(name)).unwrap()),
            failures: FailureLog::default(),
            stop: StopFlag::default(),
            progress: Arc::default(),
        }
    }

    #[test]
    fn a_file_that_is_read_whole_is_no_failure() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "contents").unwrap();
        let source = source(root.path(), "a");
        let (failures, progress) = (source.failures.clone(), source.progress.clone());
        let mut text = String::new();
        source.open().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "contents");
        assert_eq!(progress.snapshot().read_bytes, 8);
        assert_eq!(failures.collected().count, 0);
    }

    #[test]
    fn a_file_that_grows_while_it_is_read_is_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a");
        fs::write(&file, "contents").unwrap();
        let source = source(root.path(), "a");
        let failures = source.failures.clone();
        let mut reader = source.open().unwrap();
        reader.read_exact(&mut [0; 4]).unwrap();
        fs::write(&file, "contents and more").unwrap();
        reader.read_to_end(&mut Vec::new()).unwrap();
        drop(reader);
        assert!(failures.collected().first[0].reason.contains("changed"));
    }

    #[test]
    fn a_link_put_in_the_place_of_a_file_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a");
        fs::write(&file, "own").unwrap();
        let source = source(root.path(), "a");
        let failures = source.failures.clone();
        fs::remove_file(&file).unwrap();
        symlink("/etc/passwd", &file).unwrap();
        assert!(source.open().is_err());
        assert_eq!(failures.collected().count, 1);
    }

    #[test]
    fn a_pipe_put_in_the_place_of_a_file_does_not_block() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a");
        fs::write(&file, "own").unwrap();
        let source = source(root.path(), "a");
        fs::remove_file(&file).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, &file, kind, mode, 0).unwrap();
        assert!(source.open().is_err());
    }
}

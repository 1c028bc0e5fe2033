//! Counters of an operation that runs.

use std::sync::atomic::{AtomicU64, Ordering};

use backup_core::data_movement::MoverProgress;

/// Counters that the operation writes and others may read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    files: AtomicU64,
    bytes: AtomicU64,
    total_bytes: AtomicU64,
    moved_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

impl Progress {
    pub fn snapshot(&self) -> MoverProgress {
        MoverProgress {
            files: self.files.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            total_bytes: self.total_bytes.load(Ordering::Relaxed),
            moved_bytes: self.moved_bytes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn add_file(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_total(&self, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts what was read from a volume. Zeros are left out: holes are read as such, much faster
    /// than data.
    pub(crate) fn add_read(&self, data: &[u8]) {
        if data.iter().any(|byte| *byte != 0) {
            self.read_bytes
                .fetch_add(data.len() as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_do_not_count_as_read() {
        let progress = Progress::default();
        progress.add_read(&[0; 4096]);
        progress.add_read(&[]);
        assert_eq!(progress.snapshot().read_bytes, 0);
        progress.add_read(&[0, 0, 7, 0]);
        assert_eq!(progress.snapshot().read_bytes, 4);
    }
}

//! Restoring of a block device.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use rustic_core::{
    BlobId, Id, IndexedFullStatus, Repository as RusticRepository,
    repofile::{BlobType, SnapshotFile},
};

use super::{
    Job, Report,
    device_source::BLOCK_FILE,
    errors::{OrMoverError as _, of_pack},
};
use crate::{MoverError, volume::open_target};

/// Maximum number of pieces that are read and written side by side. A piece has at most 8 MiB.
const PARALLEL_PIECES: usize = 4;

/// A piece of the device.
struct Piece {
    blob: BlobId,
    /// Id of the pack that it is in.
    pack: Id,
    offset: u64,
}

pub(super) fn restore(
    opened: &RusticRepository<IndexedFullStatus>,
    snapshot: &SnapshotFile,
    target: &Path,
    url: &str,
    job: &Job,
) -> Result<Report, MoverError> {
    let node = opened
        .node_from_snapshot_and_path(snapshot, BLOCK_FILE)
        .ours(url)?;
    let mut pieces = Vec::new();
    let mut size = 0;
    for id in node.content.iter().flatten() {
        let entry = opened.get_index_entry(id).ours(url)?;
        pieces.push(Piece {
            blob: BlobId::from(*id),
            pack: *entry.pack,
            offset: size,
        });
        size += u64::from(entry.location.data_length());
    }
    if size != node.meta.size {
        let object = format!("snapshot {}", &*snapshot.id.to_hex());
        let reason = format!("it has {size} bytes of {}", node.meta.size);
        return Err(MoverError::damaged(&object, &reason));
    }
    job.progress.set_total(size);
    let device = open_target(target, size)?;
    let writer = PieceWriter {
        opened,
        pieces: &pieces,
        next: AtomicUsize::new(0),
        device: &device,
        target,
        url,
        job,
    };
    let written: Result<(), MoverError> = thread::scope(|scope| {
        let threads: Vec<_> = (0..PARALLEL_PIECES)
            .map(|_| scope.spawn(|| writer.run()))
            .collect();
        let ends = threads.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        ends.collect()
    });
    written?;
    device
        .sync_all()
        .map_err(|error| MoverError::target(target, &error))?;
    job.progress.add_file();
    Ok(Report {
        files: 1,
        bytes: size,
        ..Report::default()
    })
}

struct PieceWriter<'a> {
    opened: &'a RusticRepository<IndexedFullStatus>,
    pieces: &'a [Piece],
    /// Index of the next piece that no thread has taken.
    next: AtomicUsize,
    device: &'a File,
    target: &'a Path,
    url: &'a str,
    job: &'a Job,
}

impl PieceWriter<'_> {
    fn run(&self) -> Result<(), MoverError> {
        while let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = self.write(piece) {
                // Ends the other threads, too.
                self.job.stop.fail(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn write(&self, piece: &Piece) -> Result<(), MoverError> {
        self.job.stop.check()?;
        let data = self
            .opened
            .get_blob_cached(&piece.blob, BlobType::Data)
            .ours(self.url)
            .map_err(|error| of_pack(error, &piece.pack))?;
        // Zeros, too: the device may hold other data.
        self.device
            .write_all_at(&data, piece.offset)
            .map_err(|error| MoverError::target(self.target, &error))?;
        self.job.progress.add_bytes(data.len() as u64);
        Ok(())
    }
}

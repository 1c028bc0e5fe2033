//! gzip on all cores: each chunk becomes a member of its own, and members leave in the order of their chunks.
//!
//! Memory: as many chunks as there are cores, and their results.

use std::{collections::VecDeque, io, num::NonZero, thread};

use bytes::Bytes;
use tokio::task::JoinHandle;

use crate::{StoreError, gzip};

/// Chunks being compressed on the blocking pool, oldest first.
#[derive(Debug)]
pub(super) struct Compressor {
    running: VecDeque<JoinHandle<io::Result<Vec<u8>>>>,
    limit: usize,
}

impl Compressor {
    pub(super) fn new() -> Self {
        Self { running: VecDeque::new(), limit: thread::available_parallelism().map_or(1, NonZero::get) }
    }

    /// Whether the oldest chunk must be taken out before another one is put in.
    pub(super) fn is_full(&self) -> bool {
        self.running.len() >= self.limit
    }

    /// Starts to compress a chunk.
    pub(super) fn push(&mut self, chunk: Vec<u8>) {
        self.running.push_back(tokio::task::spawn_blocking(move || gzip::member(&chunk)));
    }

    /// Waits for the oldest chunk; none if there are no chunks.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, StoreError>> {
        let oldest = self.running.pop_front()?;
        Some(match oldest.await {
            Ok(Ok(member)) => Ok(Bytes::from(member)),
            Ok(Err(error)) => Err(StoreError::io("compress", &error)),
            Err(error) => Err(StoreError::io("compress", &error)),
        })
    }
}

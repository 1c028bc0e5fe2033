//! Limits the memory of items that are decoded at the same time, over all restores.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::job::cancellation::{Cancellation, StopReason};

/// Copies of an item in memory while it is restored: the stored item, input and output of an
/// action, and the object in the cluster.
const COPIES_PER_ITEM: u64 = 4;
const KIB: u64 = 1024;
/// Timeout of a related item that waits for memory: the holders of that memory may wait for the
/// item that asks for it.
const RELATED_TIMEOUT: Duration = Duration::from_mins(1);

/// Half of the memory is for selected items, half for related ones: a selected item that waits for
/// memory does not block the related items that must be restored before others can end.
#[derive(Debug)]
pub(crate) struct ItemMemory {
    /// Size of each half (KiB).
    half: u32,
    selected: Semaphore,
    related: Semaphore,
}

/// Why an item got no memory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoMemory {
    #[error(transparent)]
    Stopped(#[from] StopReason),
    #[error(
        "an item asks for it, and {RELATED_TIMEOUT:?} long there was no memory for it beside that of others; restore it by itself, or \
         raise --restore-item-memory of the controller and its memory limit"
    )]
    Related,
}

impl ItemMemory {
    /// `bytes` is the limit for all items that are decoded at the same time.
    pub(crate) fn new(bytes: u64) -> Self {
        let half = u32::try_from(bytes / 2 / KIB).unwrap_or(u32::MAX).max(1);
        let permits = (half as usize).min(Semaphore::MAX_PERMITS);
        Self {
            half,
            selected: Semaphore::new(permits),
            related: Semaphore::new(permits),
        }
    }

    /// Maximum decoded size of one item (bytes), which leaves room for its copies.
    pub(crate) fn most(bytes: u64) -> u64 {
        bytes / 2 / COPIES_PER_ITEM
    }

    /// Waits for memory for an item with a decoded size of `size` bytes.
    pub(super) async fn reserve(
        &self,
        size: u64,
        is_related: bool,
        cancellation: &Cancellation,
    ) -> Result<SemaphorePermit<'_>, NoMemory> {
        let kib = u32::try_from((size * COPIES_PER_ITEM).div_ceil(KIB))
            .unwrap_or(u32::MAX)
            .clamp(1, self.half);
        let half = if is_related {
            &self.related
        } else {
            &self.selected
        };
        let wait = async {
            if !is_related {
                return half.acquire_many(kib).await.ok();
            }
            tokio::time::timeout(RELATED_TIMEOUT, half.acquire_many(kib))
                .await
                .ok()?
                .ok()
        };
        let _wait = cancellation
            .waits()
            .begin("memory for a large item (--restore-item-memory)");
        tokio::select! {
            biased;
            // The semaphore is never closed: `None` means that the wait timed out.
            permit = cancellation.unless_cancelled(wait) => permit?.ok_or(NoMemory::Related),
            reason = cancellation.stopped() => Err(reason.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_runtime::leader::Leadership;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const MIB: u64 = 1024 * KIB;

    fn cancellation() -> Cancellation {
        Cancellation::new(Leadership::always(), CancellationToken::new())
    }

    #[tokio::test(start_paused = true)]
    async fn many_small_items_have_room_and_a_large_one_is_alone() {
        let (memory, cancellation) = (ItemMemory::new(256 * MIB), cancellation());
        let mut small = Vec::new();
        for _ in 0..16 {
            small.push(
                memory
                    .reserve(100 * KIB, false, &cancellation)
                    .await
                    .unwrap(),
            );
        }
        let most = ItemMemory::most(256 * MIB);
        assert_eq!(most, 32 * MIB);
        let waits = || memory.reserve(most, false, &cancellation);
        let in_time = Duration::from_secs(1);
        assert!(
            tokio::time::timeout(in_time, waits()).await.is_err(),
            "the others are there"
        );
        drop(small);
        let large = waits().await.unwrap();
        assert!(
            tokio::time::timeout(in_time, memory.reserve(1, false, &cancellation))
                .await
                .is_err()
        );
        drop(large);
        drop(memory.reserve(1, false, &cancellation).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_item_asks_for_does_not_wait_for_ever() {
        let (memory, cancellation) = (ItemMemory::new(256 * MIB), cancellation());
        let most = ItemMemory::most(256 * MIB);
        let _selected = memory.reserve(most, false, &cancellation).await.unwrap();
        let _related = memory.reserve(most, true, &cancellation).await.unwrap();
        assert_eq!(
            memory.reserve(1, true, &cancellation).await.unwrap_err(),
            NoMemory::Related
        );
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_has_to_stop_waits_for_no_memory() {
        let (memory, cancellation) = (ItemMemory::new(2 * MIB), cancellation());
        let _all = memory.reserve(MIB, false, &cancellation).await.unwrap();
        cancellation.cancel();
        let stopped = memory.reserve(1, false, &cancellation).await.unwrap_err();
        assert_eq!(stopped, NoMemory::Stopped(StopReason::Cancelled));
        cancellation.delete();
        assert!(matches!(
            memory.reserve(1, false, &cancellation).await,
            Err(NoMemory::Stopped(_))
        ));
    }
}

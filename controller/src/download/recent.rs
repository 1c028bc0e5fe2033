//! Values that were read a moment ago, for the many clients that need the same value at the same
//! time.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::OnceCell, time::Instant};

/// Values by name, each read once and forgotten after a while. Holds the values that were requested
/// within that time.
#[derive(Debug)]
pub(super) struct RecentValues<T> {
    life: Duration,
    known: Mutex<HashMap<String, CachedValue<T>>>,
}

/// The time of the first request, and the value once it is read.
type CachedValue<T> = (Instant, Arc<OnceCell<T>>);

impl<T: Clone> RecentValues<T> {
    pub(super) fn new(life: Duration) -> Self {
        Self {
            life,
            known: Mutex::default(),
        }
    }

    /// The value, read by `read` if it is not known. Concurrent callers wait for the same answer; a
    /// failure is not remembered.
    pub(super) async fn get<E, F>(&self, name: &str, read: impl FnOnce() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let cell = {
            let mut known = self.known.lock();
            let now = Instant::now();
            known.retain(|_, (since, _)| now.duration_since(*since) < self.life);
            Arc::clone(
                &known
                    .entry(name.to_owned())
                    .or_insert_with(|| (now, Arc::default()))
                    .1,
            )
        };
        cell.get_or_try_init(read).await.cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_many_ask_for_is_read_once_and_again_after_a_while() {
        let recent = RecentValues::new(Duration::from_secs(1));
        let reads = AtomicU32::new(0);
        let read = || async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok::<_, ()>(reads.fetch_add(1, Ordering::Relaxed))
        };
        let many = futures::future::join_all((0..100).map(|_| recent.get("a", read))).await;
        assert!(many.iter().all(|value| *value == Ok(0)), "{many:?}");
        assert_eq!(recent.get("b", read).await, Ok(1));
        tokio::time::advance(Duration::from_millis(900)).await;
        assert_eq!(recent.get("a", read).await, Ok(0));
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(recent.get("a", read).await, Ok(2));
        assert_eq!(recent.get("c", || async { Err(()) }).await, Err(()));
        assert_eq!(
            recent.get("c", read).await,
            Ok(3),
            "a failure is not remembered"
        );
        assert!(recent.known.lock().len() <= 3);
    }
}

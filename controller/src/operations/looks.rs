//! People who look at operations while these go on: what is known is kept for them at once, and not when it is due.
//!
//! Whoever answers a DownloadRequest calls [`Looks::look`]; whoever follows the operations has a [`Seat`], and lets each
//! [`Look`] go once what was known is in the store. So any replica can give it, and nothing is written for nobody.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// How long somebody waits for what is known to be kept. A store that is slower gives what was kept before.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Looks that wait for one backup or restore; more get what was kept before.
const WAITING: usize = 64;

/// Somebody who looks; let go when it is dropped.
pub type Look = oneshot::Sender<()>;

/// Who follows which operations in this process, by uid of the backup or restore. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Looks(Arc<Mutex<HashMap<String, mpsc::Sender<Look>>>>);

impl Looks {
    /// Waits until what is known of the operations of this backup or restore is kept, for a moment at most; not at all if this
    /// process follows none of them.
    pub async fn look(&self, uid: &str) {
        let seat = self.all().get(uid).cloned();
        let (look, kept) = oneshot::channel();
        if seat.is_some_and(|seat| seat.try_send(look).is_ok()) {
            let _ = timeout(PATIENCE, kept).await;
        }
    }

    /// A place for whoever follows the operations of this backup or restore.
    pub fn seat(&self, uid: &str) -> Seat {
        let (sender, looks) = mpsc::channel(WAITING);
        self.all().insert(uid.to_owned(), sender);
        Seat { uid: uid.to_owned(), looks, of: self.clone() }
    }

    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, mpsc::Sender<Look>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where looks arrive.
#[derive(Debug)]
pub struct Seat {
    uid: String,
    looks: mpsc::Receiver<Look>,
    of: Looks,
}

impl Seat {
    /// The next one; never, once another has taken the seat.
    pub async fn next(&mut self) -> Look {
        match self.looks.recv().await {
            Some(look) => look,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.looks.close();
        let mut all = self.of.all();
        // Another's seat stays.
        if all.get(&self.uid).is_some_and(mpsc::Sender::is_closed) {
            all.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_waits_for_whoever_follows_and_for_nobody_else() {
        let looks = Looks::default();
        looks.look("u").await;
        let mut seat = looks.seat("u");
        let started = tokio::time::Instant::now();
        tokio::join!(looks.look("u"), async {
            let look = seat.next().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(look);
        });
        assert_eq!(started.elapsed().as_millis(), 200);
        // Nobody lets it go.
        looks.look("u").await;
        assert_eq!(started.elapsed().as_millis(), 1700);
        let other = looks.seat("u");
        drop(seat);
        assert_eq!(looks.all().len(), 1);
        drop(other);
        assert!(looks.all().is_empty());
    }
}

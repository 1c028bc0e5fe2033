//! Requests to store the known state of operations at once rather than when it is due, because a
//! user wants to see it.
//!
//! A DownloadRequest calls [`FlushRequests::flush`]; the worker that polls the operations has a
//! [`FlushReceiver`], and drops each [`FlushRequest`] once the known state is in the store. So any
//! replica can serve the file, and nothing is written without a request.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// Timeout of a request. With a slower store, the reader gets the state that was stored before.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(1500);
/// Maximum number of waiting requests per backup or restore; others get the state that was stored
/// before.
const MAX_WAITING_REQUESTS: usize = 64;

/// A waiting request; it is released when this is dropped.
pub(crate) type FlushRequest = oneshot::Sender<()>;

/// The receivers of this process, by uid of the backup or restore. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlushRequests(Arc<Mutex<HashMap<String, mpsc::Sender<FlushRequest>>>>);

impl FlushRequests {
    /// Waits until the known state of the operations of this backup or restore is stored, at most
    /// [`FLUSH_TIMEOUT`]. Returns at once if this process polls none of them.
    pub(crate) async fn flush(&self, uid: &str) {
        let receiver = self.0.lock().get(uid).cloned();
        let (request, released) = oneshot::channel();
        if receiver.is_some_and(|receiver| receiver.try_send(request).is_ok()) {
            let _ = timeout(FLUSH_TIMEOUT, released).await;
        }
    }

    /// A receiver for the worker that polls the operations of this backup or restore.
    pub(crate) fn receiver(&self, uid: &str) -> FlushReceiver {
        let (sender, requests) = mpsc::channel(MAX_WAITING_REQUESTS);
        self.0.lock().insert(uid.to_owned(), sender);
        FlushReceiver {
            uid: uid.to_owned(),
            requests,
            of: self.clone(),
        }
    }
}

/// Receives requests.
#[derive(Debug)]
pub(crate) struct FlushReceiver {
    uid: String,
    requests: mpsc::Receiver<FlushRequest>,
    of: FlushRequests,
}

impl FlushReceiver {
    /// The next request; pending for ever once another receiver has replaced this one.
    pub(crate) async fn next(&mut self) -> FlushRequest {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

impl Drop for FlushReceiver {
    fn drop(&mut self) {
        self.requests.close();
        let mut all = self.of.0.lock();
        // A later receiver is not removed.
        if all.get(&self.uid).is_some_and(mpsc::Sender::is_closed) {
            all.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flush_waits_for_the_worker_that_polls() {
        let requests = FlushRequests::default();
        requests.flush("u").await;
        let mut receiver = requests.receiver("u");
        let started = tokio::time::Instant::now();
        tokio::join!(requests.flush("u"), async {
            let request = receiver.next().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            drop(request);
        });
        assert_eq!(started.elapsed().as_millis(), 200);
        // The worker never releases it.
        requests.flush("u").await;
        assert_eq!(started.elapsed().as_millis(), 1700);
        let other = requests.receiver("u");
        drop(receiver);
        assert_eq!(requests.0.lock().len(), 1);
        drop(other);
        assert!(requests.0.lock().is_empty());
    }
}

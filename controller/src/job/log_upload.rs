//! The log of running work, stored while users look at it, so that every replica can serve it.

use std::{convert::Infallible, time::Duration};

use backup_runtime::leader::Leadership;
use backup_store::{FileOwner, Location, LogFile};
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::{JobContext, operations::flush_requests::FlushReceiver};

/// Minimum time between two uploads.
const MIN_UPLOAD_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for one upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The backup or restore whose log it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub owner: FileOwner,
    pub name: &'a str,
    pub uid: &'a str,
}

/// Stores a log in this location on each flush request, at most once a second, while it is polled.
/// A failure is only logged: the work does not depend on it.
pub(crate) async fn upload_log(
    ctx: &JobContext,
    of: Subject<'_>,
    location: &Location,
    log: LogFile,
) -> Infallible {
    let requests = ctx.polling.flush_requests.receiver(of.uid);
    let log = &log;
    on_request(requests, &ctx.cluster.leadership, || async move {
        let kept = location.keep_log_snapshot(of.owner, of.name, of.uid, log, Timestamp::now());
        match timeout(UPLOAD_TIMEOUT, kept).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(?of, %error, "the log so far is not kept"),
            Err(_) => tracing::debug!(?of, "the log so far is not kept within {UPLOAD_TIMEOUT:?}"),
        }
    })
    .await
}

async fn on_request<F: Future<Output = ()>>(
    mut requests: FlushReceiver,
    leadership: &Leadership,
    keep: impl Fn() -> F,
) -> Infallible {
    let mut kept_at: Option<Instant> = None;
    loop {
        // Released at the end of this iteration.
        let _request = requests.next().await;
        // Only the leader writes private keys.
        if leadership.check().is_err()
            || kept_at.is_some_and(|at| at.elapsed() < MIN_UPLOAD_INTERVAL)
        {
            continue;
        }
        keep().await;
        kept_at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::job::operations::flush_requests::FlushRequests;

    /// Number of uploads for a user who reads the log after each of these times (milliseconds).
    async fn kept(leadership: Leadership, after: &[u64]) -> u32 {
        let (flushes, kept) = (FlushRequests::default(), AtomicU32::new(0));
        let keep = || async {
            kept.fetch_add(1, Ordering::Relaxed);
        };
        let requests = flushes.receiver("u");
        tokio::select! {
            never = on_request(requests, &leadership, keep) => match never {},
            () = async {
                for after in after {
                    tokio::time::sleep(Duration::from_millis(*after)).await;
                    flushes.flush("u").await;
                }
            } => {}
        }
        kept.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn the_log_is_kept_for_who_looks_and_at_most_once_a_second() {
        assert_eq!(kept(Leadership::always(), &[]).await, 0, "nobody looks");
        assert_eq!(kept(Leadership::always(), &[5000, 0, 300, 300]).await, 1);
        assert_eq!(kept(Leadership::always(), &[0, 1000, 1000]).await, 3);
        assert_eq!(
            kept(Leadership::never(), &[0, 1000]).await,
            0,
            "written by one who must not"
        );
    }
}

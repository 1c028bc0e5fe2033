//! Copies from the store to the reader, no faster than the reader reads.

use std::{io, time::Duration};

use axum::body::Body;
use backup_store::StoreError;
use bytes::Bytes;
use futures::{StreamExt as _, stream, stream::BoxStream};
use tokio::{sync::mpsc, time::timeout};

/// Timeout for a stalled store or reader. Less than the timeout of clients.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_BUFFERED_PIECES: usize = 2;

enum Piece {
    Bytes(Bytes),
    /// The end of the bytes. Without it a body is aborted, also one of unknown length.
    End,
}

/// A body of these bytes. `use_up` is run before the last piece is sent; if it fails, the body is
/// aborted. `held` is released when the last piece is sent, or the reader is gone.
pub(super) fn body<H: Send + 'static>(
    bytes: BoxStream<'static, Result<Bytes, StoreError>>,
    use_up: impl Future<Output = Result<(), String>> + Send + 'static,
    held: H,
) -> Body {
    let (to_reader, from_store) = mpsc::channel(MAX_BUFFERED_PIECES);
    tokio::spawn(async move {
        let ended = tokio::select! {
            ended = pump(bytes, use_up, &to_reader) => ended,
            () = to_reader.closed() => Err("the reader has gone".to_owned()),
        };
        if let Err(why) = ended {
            tracing::info!(why, "a file was not read to its end");
        }
        drop(held);
    });
    // The end is an explicit message; a channel that closes without it belongs to a pump that has
    // failed.
    let pieces = stream::unfold(Some(from_store), |from_store| async move {
        let mut from_store = from_store?;
        match from_store.recv().await {
            Some(Piece::Bytes(bytes)) => Some((Ok(bytes), Some(from_store))),
            Some(Piece::End) => None,
            None => Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None)),
        }
    });
    Body::from_stream(pieces)
}

async fn pump(
    mut bytes: BoxStream<'static, Result<Bytes, StoreError>>,
    use_up: impl Future<Output = Result<(), String>>,
    to_reader: &mpsc::Sender<Piece>,
) -> Result<(), String> {
    let mut last = Bytes::new();
    loop {
        let next = timeout(STALL_TIMEOUT, bytes.next()).await;
        match next.map_err(|_| format!("the store gave nothing for {STALL_TIMEOUT:?}"))? {
            Some(Ok(piece)) if piece.is_empty() => {}
            Some(Ok(piece)) => {
                let before = std::mem::replace(&mut last, piece);
                if !before.is_empty() {
                    send(to_reader, Piece::Bytes(before)).await?;
                }
            }
            Some(Err(error)) => return Err(error.to_string()),
            None => break,
        }
    }
    timeout(STALL_TIMEOUT, use_up)
        .await
        .map_err(|_| format!("the request was not used up within {STALL_TIMEOUT:?}"))??;
    if !last.is_empty() {
        send(to_reader, Piece::Bytes(last)).await?;
    }
    send(to_reader, Piece::End).await
}

async fn send(to_reader: &mpsc::Sender<Piece>, piece: Piece) -> Result<(), String> {
    match timeout(STALL_TIMEOUT, to_reader.send(piece)).await {
        Ok(sent) => sent.map_err(|_| "the reader has gone".to_owned()),
        Err(_) => Err(format!("the reader took nothing for {STALL_TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    };

    use futures::TryStreamExt as _;

    use super::*;

    fn pieces(count: usize) -> BoxStream<'static, Result<Bytes, StoreError>> {
        stream::iter((0..count).map(|_| Ok(Bytes::from_static(b"piece")))).boxed()
    }

    async fn all(body: Body) -> Result<usize, axum::Error> {
        body.into_data_stream()
            .try_fold(0, |sum, piece| async move { Ok(sum + piece.len()) })
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_ends_well_only_after_its_request_was_used_up() {
        for count in [0, 1, 7] {
            let used = Arc::new(AtomicBool::new(false));
            let mark = Arc::clone(&used);
            let use_up = async move {
                mark.store(true, Ordering::SeqCst);
                Ok(())
            };
            let body = body(pieces(count), use_up, ());
            assert_eq!(all(body).await.unwrap(), 5 * count);
            assert!(used.load(Ordering::SeqCst));
            let refused = super::body(pieces(count), async { Err("gone".to_owned()) }, ());
            all(refused).await.unwrap_err();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_gets_the_last_piece_of_a_request_that_is_not_used_up() {
        let body = body(pieces(3), async { Err("gone".to_owned()) }, ());
        let mut stream = body.into_data_stream();
        let mut seen = 0;
        while let Some(Ok(piece)) = stream.next().await {
            seen += piece.len();
        }
        assert_eq!(seen, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_stands_still_ends_the_body_and_lets_go() {
        let stuck = pieces(2).chain(stream::pending()).boxed();
        let held = Arc::new(());
        let body = body(stuck, async { Ok(()) }, Arc::clone(&held));
        let begun = tokio::time::Instant::now();
        all(body).await.unwrap_err();
        assert_eq!(begun.elapsed(), STALL_TIMEOUT);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_who_stands_still_is_not_read_ahead_for_and_let_go() {
        let (held, taken) = (Arc::new(()), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&taken);
        let counted = pieces(1000)
            .inspect(move |_| {
                count.fetch_add(1, Ordering::SeqCst);
            })
            .boxed();
        let body = body(counted, async { Ok(()) }, Arc::clone(&held));
        tokio::time::sleep(STALL_TIMEOUT.mul_f32(0.9)).await;
        let read = taken.load(Ordering::SeqCst);
        assert!(read <= 4, "{read} pieces are in memory");
        assert_eq!(Arc::strong_count(&held), 2);
        tokio::time::sleep(STALL_TIMEOUT.mul_f32(0.2)).await;
        assert_eq!(Arc::strong_count(&held), 1);
        // A later reader sees that the body is not complete.
        all(body).await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_who_goes_lets_go_at_once() {
        let held = Arc::new(());
        let body = body(
            stream::pending().boxed(),
            async { Ok(()) },
            Arc::clone(&held),
        );
        drop(body);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

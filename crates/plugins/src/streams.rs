//! Calls of many messages one way, and one the other. A deadline is one for each message: a large object takes as long as
//! it takes, and silence is what ends a call.

use std::{pin::pin, time::Duration};

use futures::{StreamExt as _, stream, stream::BoxStream};
use http::uri::PathAndQuery;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};
use tonic_prost::ProstCodec;

use crate::{
    connection::{Connection, Failure, failure},
    wire::{Answer, Question},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub message: Duration,
    /// To answer once it has all of them.
    pub answer: Duration,
}

#[derive(Debug)]
pub(crate) enum Unsent<E> {
    /// What was to be sent ended in an error. The other side knows that it has not got all of it.
    Ours(E),
    Theirs(Failure),
}

/// Since when the other side is waited for, and how long it may take; none while it waits for us.
type Turn = Option<(Instant, Duration)>;

impl Connection {
    /// Sends messages, and waits for the one answer. No more of them are taken than the other side reads.
    pub(crate) async fn send<Q: Question, A: Answer, E: Send + 'static>(
        &self,
        method: &'static str,
        messages: BoxStream<'static, Result<Q, E>>,
        pace: Pace,
    ) -> Result<A, Unsent<E>> {
        let (turn, theirs) = watch::channel(Some((Instant::now(), pace.message)));
        let (tell, broken) = oneshot::channel();
        let state = (messages, turn, Some(tell));
        let outgoing = stream::unfold(state, move |(mut messages, turn, mut tell)| async move {
            turn.send_replace(None);
            match messages.next().await {
                Some(Ok(message)) => {
                    turn.send_replace(Some((Instant::now(), pace.message)));
                    Some((message, (messages, turn, tell)))
                }
                // An end would look like the end of all. The call is dropped instead, which resets its stream.
                Some(Err(error)) => {
                    let _ = tell.take().map(|tell| tell.send(error));
                    std::future::pending().await
                }
                None => {
                    turn.send_replace(Some((Instant::now(), pace.answer)));
                    None
                }
            }
        });
        let mut grpc = self.grpc();
        let call = async {
            grpc.ready().await.map_err(|error| Failure::Broken(error.to_string()))?;
            let request = tonic::Request::new(outgoing);
            let path = PathAndQuery::from_static(method);
            let answer = grpc.client_streaming(request, path, ProstCodec::default()).await;
            answer.map(tonic::Response::into_inner).map_err(|status| failure(&status))
        };
        tokio::select! {
            biased;
            answer = pin!(call) => answer.map_err(Unsent::Theirs),
            Ok(error) = broken => Err(Unsent::Ours(error)),
            () = silence(theirs) => Err(Unsent::Theirs(Failure::Late)),
        }
    }

    /// Asks, and gives messages as they come. Ends with an error, or when all are there.
    pub(crate) async fn receive<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
        limit: Duration,
    ) -> Result<BoxStream<'static, Result<A, Failure>>, Failure> {
        let mut grpc = self.grpc();
        let asked = async {
            grpc.ready().await.map_err(|error| Failure::Broken(error.to_string()))?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            let path = PathAndQuery::from_static(method);
            let answer = grpc.server_streaming(tonic::Request::new(question), path, codec).await;
            answer.map(tonic::Response::into_inner).map_err(|status| failure(&status))
        };
        let answer = tokio::time::timeout(limit, asked).await.unwrap_or(Err(Failure::Late))?;
        let messages = stream::unfold(Some(answer), move |answer| async move {
            let mut answer = answer?;
            match tokio::time::timeout(limit, answer.message()).await {
                Ok(Ok(Some(message))) => Some((Ok(message), Some(answer))),
                Ok(Ok(None)) => None,
                Ok(Err(status)) => Some((Err(failure(&status)), None)),
                Err(_) => Some((Err(Failure::Late), None)),
            }
        });
        Ok(messages.boxed())
    }
}

/// Returns when the other side has taken too long.
async fn silence(mut turn: watch::Receiver<Turn>) {
    loop {
        let now = *turn.borrow_and_update();
        let end = async {
            match now {
                Some((since, limit)) => tokio::time::sleep_until(since + limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = end => return,
            // Nobody tells any more once all is sent.
            Ok(()) = turn.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn silence_is_counted_only_while_the_other_side_is_waited_for() {
        let begun = Instant::now();
        let (turn, theirs) = watch::channel(Some((begun, 5 * SECOND)));
        let silent = tokio::spawn(silence(theirs));
        tokio::time::sleep(4 * SECOND).await;
        turn.send_replace(None);
        tokio::time::sleep(100 * SECOND).await;
        for _ in 0..20 {
            turn.send_replace(Some((Instant::now(), 5 * SECOND)));
            tokio::time::sleep(4 * SECOND).await;
        }
        assert!(!silent.is_finished());
        turn.send_replace(Some((Instant::now(), 30 * SECOND)));
        drop(turn);
        silent.await.unwrap();
        assert_eq!(begun.elapsed(), (4 + 100 + 80 + 30) * SECOND);
    }
}

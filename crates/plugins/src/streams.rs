//! Calls with many messages in one direction, and one in the other. Each message has its own
//! deadline: a large object may take any time in total, and only silence ends a call.

use std::{pin::pin, time::Duration};

use futures::{StreamExt as _, stream, stream::BoxStream};
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tonic_prost::ProstCodec;

use crate::{
    connection::{Connection, Failure, failure},
    wire::{Answer, Question},
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub message: Duration,
    /// Timeout for the answer after the last message.
    pub answer: Duration,
}

#[derive(Debug)]
pub(crate) enum Unsent<E> {
    /// The source of the messages failed. The other side knows that messages are missing.
    Ours(E),
    Theirs(Failure),
}

impl Connection {
    /// Sends messages, and waits for the one answer. Takes messages only as fast as the other side
    /// reads them.
    pub(crate) async fn send<Q: Question, A: Answer, E: Send + 'static>(
        &self,
        method: &'static str,
        messages: BoxStream<'static, Result<Q, E>>,
        pace: Pace,
    ) -> Result<A, Unsent<E>> {
        let (give, given) = mpsc::channel(1);
        let outgoing =
            stream::unfold(
                given,
                async |mut given: mpsc::Receiver<Option<Q>>| match given.recv().await {
                    Some(message) => message.map(|message| (message, given)),
                    // Ending here would look like the end of the messages. The call is dropped
                    // instead, which resets its stream.
                    None => std::future::pending().await,
                },
            );
        let mut grpc = self.grpc();
        let call = async {
            grpc.ready()
                .await
                .map_err(|error| Failure::Broken(error.to_string()))?;
            let request = tonic::Request::new(outgoing);
            let path = PathAndQuery::from_static(method);
            let answer = grpc
                .client_streaming(request, path, ProstCodec::default())
                .await;
            answer
                .map(tonic::Response::into_inner)
                .map_err(|status| failure(&status))
        };
        tokio::select! {
            biased;
            answer = pin!(call) => answer.map_err(Unsent::Theirs),
            unsent = feed(messages, give, pace) => Err(unsent),
        }
    }

    /// Sends a request, and yields messages as they come. Ends with an error, or after the last
    /// one.
    pub(crate) async fn receive<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
        limit: Duration,
    ) -> Result<BoxStream<'static, Result<A, Failure>>, Failure> {
        let mut grpc = self.grpc();
        let asked = async {
            grpc.ready()
                .await
                .map_err(|error| Failure::Broken(error.to_string()))?;
            let codec: ProstCodec<Q, A> = ProstCodec::default();
            let path = PathAndQuery::from_static(method);
            let answer = grpc
                .server_streaming(tonic::Request::new(question), path, codec)
                .await;
            answer
                .map(tonic::Response::into_inner)
                .map_err(|status| failure(&status))
        };
        let answer = tokio::time::timeout(limit, asked)
            .await
            .unwrap_or(Err(Failure::Late))?;
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

/// Passes messages on, and then `None`. Returns why not all could be sent, or that there was no
/// answer in time.
///
/// Messages are polled here and not by the sender: HTTP/2 stops polling while its window is full,
/// so a late message would have no deadline then.
async fn feed<Q, E>(
    mut messages: BoxStream<'static, Result<Q, E>>,
    give: mpsc::Sender<Option<Q>>,
    pace: Pace,
) -> Unsent<E> {
    loop {
        let message = match messages.next().await.transpose() {
            Ok(message) => message,
            Err(error) => return Unsent::Ours(error),
        };
        let is_last = message.is_none();
        let Ok(given) = tokio::time::timeout(pace.message, give.send(message)).await else {
            return Unsent::Theirs(Failure::Late);
        };
        // All messages are sent; or the call has its answer and takes no more.
        if is_last || given.is_err() {
            break;
        }
    }
    tokio::time::sleep(pace.answer).await;
    Unsent::Theirs(Failure::Late)
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace {
        message: Duration::from_secs(5),
        answer: Duration::from_secs(30),
    };

    /// Messages that come at intervals of this number of seconds.
    fn messages(count: usize, seconds: u32) -> BoxStream<'static, Result<usize, String>> {
        let slowly = move |number| async move {
            tokio::time::sleep(seconds * SECOND).await;
            Ok(number)
        };
        stream::iter(0..count).then(slowly).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn only_waiting_for_the_other_side_has_a_deadline() {
        let begun = Instant::now();
        let (give, mut given) = mpsc::channel(1);
        let feeding = tokio::spawn(feed(messages(20, 100), give, PACE));
        while let Some(Some(_)) = given.recv().await {
            tokio::time::sleep(4 * SECOND).await;
        }
        assert!(
            matches!(feeding.await.unwrap(), Unsent::Theirs(Failure::Late)),
            "no answer"
        );
        assert_eq!(begun.elapsed(), (20 * 100 + 30) * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_not_taken_is_late_although_it_came_late_itself() {
        let begun = Instant::now();
        let (give, _given) = mpsc::channel(1);
        let unsent = feed(messages(3, 100), give, PACE).await;
        assert!(matches!(unsent, Unsent::Theirs(Failure::Late)));
        assert_eq!(
            begun.elapsed(),
            (2 * 100 + 5) * SECOND,
            "the first is taken by the channel"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_ours_is_no_end() {
        let (give, mut given) = mpsc::channel(2);
        let ours = messages(1, 1)
            .chain(stream::iter([Err("cut".to_owned())]))
            .boxed();
        let unsent = feed(ours, give, PACE).await;
        assert!(matches!(unsent, Unsent::Ours(error) if error == "cut"));
        assert_eq!(
            (given.recv().await, given.recv().await),
            (Some(Some(0)), None)
        );
    }
}

//! gRPC over the Unix socket of a plugin.
//!
//! tonic speaks gRPC, hyper HTTP/2. tonic's own transport is not used: it would have tower built
//! with more features, for one connection that is never balanced nor reopened.

use std::{
    fmt,
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, Uri, uri::PathAndQuery};
use hyper::{
    body::Incoming,
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::UnixStream, task::JoinSet};
use tonic::{
    Code, Status,
    body::Body,
    client::{Grpc, GrpcService},
};
use tonic_prost::ProstCodec;

use crate::wire::{Answer, Question};

/// Maximum size of an answer (bytes). An object of Kubernetes has at most a few MiB.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum size of headers (bytes): errors include the plugin's stack.
const MAX_HEADER_BYTES: u32 = 256 * 1024;

#[derive(Debug)]
pub(crate) enum Failure {
    Late,
    Broken(String),
    Status(Code, String),
}

pub(crate) struct Connection {
    channel: Channel,
    /// Drives the connection; stopped when this is dropped.
    _driver: JoinSet<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Connection {
    /// Connects to a socket.
    /// Errors: a message: the socket does not accept, or its server does not speak HTTP/2.
    pub(crate) async fn open(socket: &Path) -> Result<Self, String> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| format!("can not connect to {}: {error}", socket.display()))?;
        let handshake = Builder::new(TokioExecutor::new())
            .max_header_list_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = handshake
            .map_err(|error| format!("{} does not speak HTTP/2: {error}", socket.display()))?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to a plugin ended");
            }
        });
        Ok(Self {
            channel: Channel(sender),
            _driver: driver,
        })
    }

    pub(crate) async fn ask<Q: Question, A: Answer>(
        &self,
        method: &'static str,
        question: Q,
        limit: Duration,
    ) -> Result<A, Failure> {
        let mut grpc = self.grpc();
        let asked = async {
            grpc.ready()
                .await
                .map_err(|error| Failure::Broken(error.to_string()))?;
            let answer = grpc
                .unary(
                    tonic::Request::new(question),
                    PathAndQuery::from_static(method),
                    ProstCodec::default(),
                )
                .await;
            answer
                .map(tonic::Response::into_inner)
                .map_err(|status| failure(&status))
        };
        tokio::time::timeout(limit, asked)
            .await
            .unwrap_or(Err(Failure::Late))
    }

    /// Reads a stream to its end, and discards the messages.
    pub(crate) async fn drain(&self, method: &'static str) {
        let mut grpc = self.grpc();
        if grpc.ready().await.is_err() {
            return;
        }
        let codec: ProstCodec<(), ()> = ProstCodec::default();
        let request = tonic::Request::new(());
        if let Ok(answer) = grpc
            .server_streaming(request, PathAndQuery::from_static(method), codec)
            .await
        {
            let mut stream = answer.into_inner();
            while let Ok(Some(())) = stream.message().await {}
        }
    }

    pub(super) fn grpc(&self) -> Grpc<Channel> {
        let origin = Uri::from_static("http://plugin");
        Grpc::with_origin(self.channel.clone(), origin).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// An error with a source is one of the connection, created here; plugins' own errors have none.
pub(super) fn failure(status: &Status) -> Failure {
    match std::error::Error::source(status) {
        Some(cause) => Failure::Broken(cause.to_string()),
        None => Failure::Status(status.code(), status.message().to_owned()),
    }
}

#[derive(Clone)]
pub(super) struct Channel(SendRequest<Body>);

impl GrpcService<Body> for Channel {
    type ResponseBody = Incoming;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

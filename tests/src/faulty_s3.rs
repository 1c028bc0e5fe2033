//! An HTTP proxy in front of the S3 server that can answer requests itself, lose answers, and delay
//! requests. The test's rule decides for each request.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, RwLock},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Method, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use tokio_util::sync::CancellationToken;

use crate::wait::{eventually, when};

/// What the proxy does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    Pass,
    /// Not passed on; answered with this status.
    Answer(u16),
    /// Passed on; the answer is 500 whatever the server's answer was.
    LoseAnswer,
    /// Passed on; the connection breaks in the middle of the answer.
    CutShort,
    /// Passed on after this delay.
    Slow(Duration),
    /// Not passed on; answered with an empty listing.
    EmptyListing,
    /// Held until the rule says something else.
    Held,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    pub method: Method,
    /// The key, without the bucket.
    pub key: String,
    pub query: String,
    /// Whether the request requires that the key does not exist (If-None-Match: *).
    pub only_new: bool,
}

impl Asked {
    /// Whether the request would change the store.
    pub fn writes(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Whether the request would make an object visible: a plain PUT, or the completion of an
    /// upload.
    pub fn makes_visible(&self) -> bool {
        let part = self.query.contains("uploadId=");
        (self.method == Method::PUT && !part && !self.key.is_empty())
            || (self.method == Method::POST && part)
    }

    /// Whether the request would make an object visible that readers take for part of a backup.
    pub fn makes_final(&self) -> bool {
        self.makes_visible() && !self.key.contains("/.private/")
    }
}

/// Interval at which the rule is checked again for a held request.
const LOOK: Duration = Duration::from_millis(20);

type Rule = dyn Fn(&Asked) -> Mood + Send + Sync;

/// A running proxy; ends when dropped.
pub struct FaultyS3 {
    address: SocketAddr,
    state: State,
    end: CancellationToken,
}

#[derive(Clone)]
struct State {
    upstream: SocketAddr,
    client: reqwest::Client,
    rule: Arc<RwLock<Box<Rule>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl FaultyS3 {
    /// Starts a proxy that passes everything on.
    pub async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = State {
            upstream,
            client: reqwest::Client::builder()
                .timeout(Duration::from_mins(1))
                .build()?,
            rule: Arc::new(RwLock::new(Box::new(|_: &Asked| Mood::Pass))),
            asked: Arc::default(),
        };
        let (end, serving) = (CancellationToken::new(), state.clone());
        let router = Router::new().fallback(
            move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let state = serving.clone();
                async move { state.answer(method, &uri, headers, body).await }
            },
        );
        let router = router.layer(axum::extract::DefaultBodyLimit::disable());
        let serve = async move { axum::serve(listener, router).await };
        tokio::spawn(end.clone().run_until_cancelled_owned(serve));
        Ok(Self {
            address,
            state,
            end,
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the rule for requests from now on.
    pub fn rule(&self, rule: impl Fn(&Asked) -> Mood + Send + Sync + 'static) {
        if let Ok(mut current) = self.state.rule.write() {
            *current = Box::new(rule);
        }
    }

    /// Treats the requests that `is_it` selects in this way from now on; all others pass.
    pub fn affect(&self, mood: Mood, is_it: impl Fn(&Asked) -> bool + Send + Sync + 'static) {
        self.rule(move |asked| if is_it(asked) { mood } else { Mood::Pass });
    }

    pub fn calm(&self) {
        self.rule(|_| Mood::Pass);
    }

    pub async fn wait_for_request(
        &self,
        what: &str,
        deadline: Duration,
        is_it: impl Fn(&Asked) -> bool,
    ) -> anyhow::Result<()> {
        eventually(what, deadline, async || {
            anyhow::Ok(when(self.asked().iter().any(&is_it), "no such request"))
        })
        .await
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.state
            .asked
            .lock()
            .map(|asked| asked.clone())
            .unwrap_or_default()
    }
}

impl Drop for FaultyS3 {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl State {
    async fn answer(&self, method: Method, uri: &Uri, headers: HeaderMap, body: Bytes) -> Response {
        let path = uri.path().trim_start_matches('/');
        let asked = Asked {
            method: method.clone(),
            key: path
                .split_once('/')
                .map(|(_, key)| key.to_owned())
                .unwrap_or_default(),
            query: uri.query().unwrap_or_default().to_owned(),
            only_new: headers
                .get(header::IF_NONE_MATCH)
                .is_some_and(|value| value == "*"),
        };
        let says = || self.rule.read().map_or(Mood::Pass, |rule| rule(&asked));
        let mut mood = says();
        if let Ok(mut all) = self.asked.lock() {
            all.push(asked.clone());
        }
        while mood == Mood::Held {
            tokio::time::sleep(LOOK).await;
            mood = says();
        }
        match mood {
            Mood::Answer(status) => return refusal(status),
            Mood::EmptyListing => return empty_listing(),
            Mood::Slow(time) => tokio::time::sleep(time).await,
            Mood::Pass | Mood::LoseAnswer | Mood::CutShort | Mood::Held => {}
        }
        let url = format!("http://{}{uri}", self.upstream);
        let mut headers = headers;
        for name in [
            header::CONNECTION,
            header::TRANSFER_ENCODING,
            header::CONTENT_LENGTH,
        ] {
            headers.remove(name); // of this connection; the next one has its own
        }
        let sent = self
            .client
            .request(method, url)
            .headers(headers)
            .body(body)
            .send()
            .await;
        let Ok(answer) = sent else {
            return refusal(502);
        };
        let (status, mut headers) = (answer.status(), answer.headers().clone());
        let Ok(body) = answer.bytes().await else {
            return refusal(502);
        };
        if mood == Mood::LoseAnswer {
            return refusal(500);
        }
        headers.remove(header::CONNECTION);
        headers.remove(header::TRANSFER_ENCODING);
        let mut response = Response::new(match mood {
            Mood::CutShort => {
                let half = body.slice(..body.len() / 2);
                Body::from_stream(stream::iter([Ok(half), Err(io::Error::other("cut short"))]))
            }
            _ => Body::from(body),
        });
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

fn empty_listing() -> Response {
    let body = "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
                <KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>";
    ([(header::CONTENT_TYPE, "application/xml")], body).into_response()
}

/// An error in S3's format.
fn refusal(status: u16) -> Response {
    let code = match status {
        403 => "AccessDenied",
        409 => "OperationAborted",
        412 => "PreconditionFailed",
        429 | 503 => "SlowDown",
        _ => "InternalError",
    };
    let body = format!("<Error><Code>{code}</Code><Message>said by the test</Message></Error>");
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, [(header::CONTENT_TYPE, "application/xml")], body).into_response()
}

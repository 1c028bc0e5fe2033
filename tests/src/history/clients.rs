//! People and pipelines: they create, apply, finish and delete, each one thing after another.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::Semaphore, time::sleep};

use super::{
    faults::{Faults, Point},
    operator::Wishes,
    plan::{Create, How, Kind, Op, Plan, Step},
    record::{Answer, Attempt},
    timeline::Timeline,
};
use crate::install::NAMESPACE;

/// Requests under way at the same time, of all clients together.
const IN_FLIGHT: usize = 32;
/// What a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// What one waits whose API server is going to stand still: less than that.
const LITTLE_PATIENCE: Duration = Duration::from_secs(3);
/// The API server that the tap passes a request on to.
pub(crate) const SERVER: &str = "x-history-server";

/// What all clients have in common.
pub(crate) struct Clients {
    /// Speaks to the API servers.
    pub http: reqwest::Client,
    pub token: String,
    /// In front of the API servers: loses answers.
    pub tap: SocketAddr,
    pub timeline: Arc<Timeline>,
    pub faults: Arc<Faults>,
    pub wishes: Arc<Wishes>,
    in_flight: Semaphore,
    attempts: AtomicU64,
}

/// What came back: the code and the body.
type Got = Option<(u16, Value)>;

impl Clients {
    pub(crate) fn new(
        http: reqwest::Client,
        token: String,
        tap: SocketAddr,
        timeline: Arc<Timeline>,
        faults: Arc<Faults>,
        wishes: Arc<Wishes>,
    ) -> Self {
        let in_flight = Semaphore::new(IN_FLIGHT);
        Self { http, token, tap, timeline, faults, wishes, in_flight, attempts: AtomicU64::new(1) }
    }

    pub(crate) async fn play(&self, plan: &Plan, steps: &[Step]) {
        for step in steps {
            sleep(step.after).await;
            match &step.op {
                Op::Create(create) => {
                    let answer = self.create(plan, create, step.server).await;
                    // Who got no answer asks again, as every client does.
                    if answer == Answer::Lost && create.how != How::Generate {
                        let again = Create { fault: None, ..create.clone() };
                        self.create(plan, &again, step.server + 1).await;
                    }
                }
                Op::Finish(kind, name) => {
                    self.wishes.finish(*kind, name);
                    self.timeline.record(plan.number, |record| record.other_operations += 1);
                }
                Op::Delete(kind, name) => {
                    self.delete(*kind, name, step.server).await;
                    self.timeline.record(plan.number, |record| record.other_operations += 1);
                }
            }
        }
    }

    async fn create(&self, plan: &Plan, create: &Create, server: usize) -> Answer {
        let _turn = self.in_flight.acquire().await;
        let server = server % self.faults.servers.len().max(1);
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let due =
            if create.dry_run { None } else { self.faults.arm(number, plan.number, create.fault, server) };
        let body = create.body(&plan.prefix, number);
        let plural = create.object.kind.plural();
        let dry_run = if create.dry_run { "&dryRun=All" } else { "" };
        let patience = if due == Some(Point::ApiServerStopped) { LITTLE_PATIENCE } else { PATIENCE };
        let query = format!("fieldManager=history{dry_run}&timeout={}s", patience.as_secs());
        let base = format!("/apis/velero.io/v1/namespaces/{NAMESPACE}/{plural}");
        let (method, path, content) = match create.how {
            How::Post | How::Generate => (http::Method::POST, format!("{base}?{query}"), "application/json"),
            How::Apply => {
                let path = format!("{base}/{}?{query}&force=true", create.object.name);
                (http::Method::PATCH, path, "application/apply-patch+yaml")
            }
        };
        let sent = self.timeline.now();
        let lose = due == Some(Point::ClientReplyCut);
        let request = self.send(method, &path, content, Some(&body), server, lose, patience);
        let got = if due == Some(Point::ClientGone) {
            let leave = self.faults.leave(number);
            tokio::select! {
                got = request => got,
                Ok(()) = leave => None,
            }
        } else {
            request.await
        };
        self.faults.disarm(number);
        let answer = answer(got);
        let attempt = Attempt {
            object: create.object.clone(),
            dry_run: create.dry_run,
            sent,
            answered: self.timeline.now(),
            answer: answer.clone(),
        };
        self.timeline.record(plan.number, |record| record.attempts.push(attempt));
        answer
    }

    /// Deletes an object; the code of the answer.
    pub(crate) async fn delete(&self, kind: Kind, name: &str, server: usize) -> Option<u16> {
        let _turn = self.in_flight.acquire().await;
        let path = format!("/apis/velero.io/v1/namespaces/{NAMESPACE}/{}/{name}?timeout=15s", kind.plural());
        let got =
            self.send(http::Method::DELETE, &path, "application/json", None, server, false, PATIENCE).await;
        got.map(|(code, _)| code)
    }

    /// Asks an API server, or with `lose` the tap before it, which loses the answer.
    #[expect(clippy::too_many_arguments, reason = "what a request is made of")]
    async fn send(
        &self,
        method: http::Method,
        path: &str,
        content: &str,
        body: Option<&Value>,
        server: usize,
        lose: bool,
        patience: Duration,
    ) -> Got {
        let direct = self.faults.servers.order_from(server).first().copied().unwrap_or(self.tap);
        let address = if lose { self.tap } else { direct };
        let mut request = self
            .http
            .request(method, format!("https://{address}{path}"))
            .bearer_auth(&self.token)
            .header("content-type", content)
            .timeout(patience);
        if lose {
            request = request.header(SERVER, server.to_string());
        }
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.ok()?;
        let code = answer.status().as_u16();
        let body = answer.bytes().await.ok()?;
        Some((code, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

fn answer(got: Got) -> Answer {
    let Some((code, body)) = got else { return Answer::Lost };
    if (200..300).contains(&code) {
        return Answer::Done { uid: body["metadata"]["uid"].as_str().unwrap_or_default().to_owned() };
    }
    let mut text = body["message"].as_str().unwrap_or_default().to_owned();
    for cause in body["details"]["causes"].as_array().into_iter().flatten() {
        text.push('\n');
        text.push_str(cause["message"].as_str().unwrap_or_default());
    }
    if code == 403 && text.contains("backup-webhook.velero.io\" denied") {
        Answer::Refused { text }
    } else {
        Answer::Other { code, text }
    }
}

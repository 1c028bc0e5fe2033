//! Users and pipelines: they create, apply, finish and delete, each one operation after another.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backup_lock::{Ledger, LedgerStore, State, VELERO_SCOPE};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use super::{
    buckets::Buckets,
    faults::{Faults, Point},
    operator::Wishes,
    plan::{Create, How, Kind, Op, Plan, Step},
    record::{Answer, Attempt},
    timeline::Timeline,
    whose::Whose,
};
use crate::{
    percona,
    wait::{Probe, eventually, until},
};

/// Maximum number of requests at the same time, of all clients together.
const IN_FLIGHT: usize = 32;
/// Timeout of a client for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// Shorter timeout of a client whose API server is about to be stopped.
const LITTLE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a client that wants to revive a restore waits for one that fails.
const FAILS: Duration = Duration::from_millis(300);
/// The API server that the tap passes a request on to.
pub(crate) const SERVER: &str = "x-history-server";

/// Shared by all clients.
pub(crate) struct Clients {
    /// For requests to the API servers.
    pub http: reqwest::Client,
    pub token: String,
    /// Proxy in front of the API servers that loses answers.
    pub tap: SocketAddr,
    pub timeline: Arc<Timeline>,
    pub faults: Arc<Faults>,
    pub wishes: Arc<Wishes>,
    /// For forced releases, where real controllers work.
    pub ledgers: Option<LedgerStore>,
    /// Where clients of a soak put backups of another cluster.
    pub buckets: Option<Buckets>,
    in_flight: Semaphore,
    attempts: AtomicU64,
}

/// A request to an API server.
pub(super) struct Request<'a> {
    pub method: http::Method,
    pub path: String,
    /// With its content type.
    pub body: Option<(&'a str, Value)>,
    /// User to impersonate.
    pub user: Option<&'a str>,
    /// Number of the API server.
    pub server: usize,
    /// Whether to send it through the tap in front, which loses the answer.
    pub lose: bool,
    pub patience: Duration,
}

/// The answer: code and body.
pub(super) type Got = Option<(u16, Value)>;

impl Clients {
    pub(crate) fn new(
        http: reqwest::Client,
        token: String,
        tap: SocketAddr,
        timeline: Arc<Timeline>,
        faults: Arc<Faults>,
        wishes: Arc<Wishes>,
        ledgers: Option<LedgerStore>,
    ) -> Self {
        let in_flight = Semaphore::new(IN_FLIGHT);
        let attempts = AtomicU64::new(1);
        let buckets = None;
        Self {
            http,
            token,
            tap,
            timeline,
            faults,
            wishes,
            ledgers,
            buckets,
            in_flight,
            attempts,
        }
    }

    pub(crate) async fn play(&self, plan: &Plan, steps: &[Step]) {
        for step in steps {
            sleep(step.after).await;
            match &step.op {
                Op::Create(create) => {
                    let answer = self.create(plan, create, step.server).await;
                    // Without an answer the request is sent again, as every client does.
                    if answer == Answer::Lost && create.how != How::Generate {
                        let again = Create {
                            fault: None,
                            ..create.clone()
                        };
                        self.create(plan, &again, step.server + 1).await;
                    }
                    if let Answer::Done { uid } = answer {
                        self.after_creation(plan, create, &uid, step.server).await;
                    }
                }
                Op::Finish(kind, name) => {
                    self.wishes.finish(*kind, name);
                    self.timeline
                        .record(plan.number, |record| record.did("finished"));
                }
                Op::Release => {
                    self.release(&plan.prefix).await;
                    self.timeline
                        .record(plan.number, |record| record.did("releases by force"));
                }
                Op::Revive => {
                    self.revive(plan, step.server).await;
                    self.timeline
                        .record(plan.number, |record| record.did("revivals"));
                }
                Op::Delete(kind, name) => {
                    self.delete(plan, *kind, name, step.server).await;
                }
                Op::Soak(op) => self.soak(plan, step, op).await,
            }
        }
    }

    async fn create(&self, plan: &Plan, create: &Create, server: usize) -> Answer {
        let _turn = self.in_flight.acquire().await;
        let server = server % self.faults.servers.len().max(1);
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let due = if create.dry_run {
            None
        } else {
            self.faults.arm(number, plan.number, create.fault, server)
        };
        let body = plan.whose.body(create, &plan.prefix, number);
        let dry_run = if create.dry_run { "&dryRun=All" } else { "" };
        let patience = if due == Some(Point::ApiServerStopped) {
            LITTLE_PATIENCE
        } else {
            PATIENCE
        };
        let query = format!(
            "fieldManager=history{dry_run}&timeout={}s",
            patience.as_secs()
        );
        let base = plan.whose.path(create.object.kind, &create.object.name);
        let (method, path, content) = match create.how {
            How::Post | How::Generate => (
                http::Method::POST,
                format!("{base}?{query}"),
                "application/json",
            ),
            How::Apply => {
                let path = format!("{base}/{}?{query}&force=true", create.object.name);
                (http::Method::PATCH, path, "application/apply-patch+yaml")
            }
        };
        let sent = self.timeline.now();
        let lose = due == Some(Point::ClientReplyCut);
        let body = Some((content, body));
        let request = self.send(Request {
            method,
            path,
            body,
            user: None,
            server,
            lose,
            patience,
        });
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
            number,
            object: create.object.clone(),
            dry_run: create.dry_run,
            sent,
            answered: self.timeline.now(),
            answer: answer.clone(),
        };
        self.timeline
            .record(plan.number, |record| record.attempts.push(attempt));
        answer
    }

    /// The planned operations on a stored object.
    async fn after_creation(&self, plan: &Plan, create: &Create, uid: &str, server: usize) {
        match create.fault {
            Some(Point::SecondCreation) => {
                let again = Create {
                    fault: None,
                    how: How::Post,
                    ..create.clone()
                };
                let answer = self.create(plan, &again, server + 1).await;
                if matches!(answer, Answer::Other { code: 409, .. }) {
                    self.faults.count(Point::SecondCreation);
                }
            }
            Some(Point::DeletedUnbegun) => {
                let life = || self.timeline.life(uid).map(|(_, life)| life);
                if matches!(plan.whose, Whose::Installations { .. }) {
                    let queued = || {
                        life().is_some_and(|life| life.phase == "Queued" || life.began.is_some())
                    };
                    let _ = until("it is queued", FAILS, async || anyhow::Ok(queued())).await;
                }
                let name =
                    life().map_or_else(|| create.object.name.clone(), |life| life.object.name);
                self.delete(plan, create.object.kind, &name, server + 1)
                    .await;
                if life().is_some_and(|life| {
                    life.deleted.or(life.gone).is_some() && life.began.is_none()
                }) {
                    self.faults.count(Point::DeletedUnbegun);
                }
            }
            _ => {}
        }
    }

    async fn delete(&self, plan: &Plan, kind: Kind, name: &str, server: usize) {
        self.timeline.record(plan.number, |record| {
            record.cancellations.insert(name.to_owned());
            record.did("deletions");
        });
        let _turn = self.in_flight.acquire().await;
        let path = format!("{}/{name}?timeout=15s", plan.whose.path(kind, name));
        let (method, patience) = (http::Method::DELETE, PATIENCE);
        self.send(Request {
            method,
            path,
            body: None,
            user: None,
            server,
            lose: false,
            patience,
        })
        .await;
    }

    /// Revives a failed restore as its operator would, if one fails soon.
    async fn revive(&self, plan: &Plan, server: usize) {
        let failed = eventually("a restore has failed", FAILS, async || {
            let failed = self
                .timeline
                .record(plan.number, |record| record.failed_restore());
            anyhow::Ok(failed.map_or(Probe::NotYet(String::new()), Probe::Ready))
        });
        let Ok(name) = failed.await else { return };
        let _turn = self.in_flight.acquire().await;
        let path = format!(
            "{}/{name}/status?timeout=15s",
            plan.whose.path(Kind::Restore, &name)
        );
        let state =
            |op: &str, value: &str| json!({ "op": op, "path": "/status/state", "value": value });
        let steps = json!([state("test", "Error"), state("replace", "New")]);
        let body = Some(("application/json-patch+json", steps));
        let (method, user, patience) = (http::Method::PATCH, Some(percona::OPERATOR), PATIENCE);
        self.send(Request {
            method,
            path,
            body,
            user,
            server,
            lose: false,
            patience,
        })
        .await;
    }

    /// Releases the claims of these names by force, as `kubectl backup locks release` does: also of
    /// running work.
    async fn release(&self, names: &str) {
        let Some(ledgers) = &self.ledgers else { return };
        let _turn = self.in_flight.acquire().await;
        let change = |ledger: &mut Ledger| {
            let claims = ledger
                .claims
                .iter()
                .filter(|claim| claim.key.name.starts_with(names));
            let entries =
                claims.flat_map(|claim| claim.entries.iter().map(|entry| (&claim.key, entry)));
            let found = entries.max_by_key(|(_, entry)| entry.state == State::Active);
            let found = found.map(|(key, entry)| (key.clone(), entry.uid.clone()));
            found.is_some_and(|(key, uid)| {
                ledger.force_release(&key, &uid, "history: for the sake of it")
            })
        };
        // A change that failed released nothing.
        let _ = ledgers
            .change(VELERO_SCOPE, Instant::now() + PATIENCE, change)
            .await;
    }

    pub(super) async fn send(&self, what: Request<'_>) -> Got {
        let direct = self
            .faults
            .servers
            .order_from(what.server)
            .first()
            .copied()
            .unwrap_or(self.tap);
        let address = if what.lose { self.tap } else { direct };
        let mut request = self
            .http
            .request(what.method, format!("https://{address}{}", what.path))
            .bearer_auth(&self.token)
            .timeout(what.patience);
        if what.lose {
            request = request.header(SERVER, what.server.to_string());
        }
        if let Some(user) = what.user {
            request = request.header("impersonate-user", user);
        }
        if let Some((content, body)) = what.body {
            request = request
                .header("content-type", content)
                .body(body.to_string());
        }
        let answer = request.send().await.ok()?;
        let code = answer.status().as_u16();
        let body = answer.bytes().await.ok()?;
        Some((code, serde_json::from_slice(&body).unwrap_or_default()))
    }
}

fn answer(got: Got) -> Answer {
    let Some((code, body)) = got else {
        return Answer::Lost;
    };
    if (200..300).contains(&code) {
        return Answer::Done {
            uid: body["metadata"]["uid"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
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

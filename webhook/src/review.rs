//! `POST /validate`: an AdmissionReview in, an AdmissionReview out.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use backup_core::profile::{OnConflict, ScopeRule};
use backup_lock::{
    Footprint, Guard, ObjectKey, ObjectKind,
    admission::{Running, Want},
    ledger::Ask,
    observe::ObserveError,
};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    admit::{
        self, Change, Claiming, Decision,
        denial::{self, Asked},
    },
    claims::{Claims, Verdict},
    foreign::ForeignLeases,
    guards::guard_of,
    metrics::Metrics,
    peers::{self, Peers},
    people::People,
};

/// Every request is answered by then; the API server waits 10 s.
pub const DEADLINE: Duration = Duration::from_secs(8);
/// What is left of a caller's own shorter timeout for the way back.
const WAY_BACK: Duration = Duration::from_secs(1);
const NO_ANSWER: &str = "the API server did not answer in time";

/// Everything that a request needs; cheap to clone.
#[derive(Clone)]
pub struct Webhook {
    guards: Arc<[Guard]>,
    claims: Arc<[Claims]>,
    people: People,
    peers: Peers,
    foreign: ForeignLeases,
    metrics: Arc<Metrics>,
}

/// The answer to a request, and a word about it for metrics.
struct Answer {
    refusal: Option<Status>,
    warning: Option<String>,
    decision: &'static str,
}

impl Answer {
    fn pass(decision: &'static str) -> Self {
        Self { refusal: None, warning: None, decision }
    }

    fn refuse(status: Status, decision: &'static str) -> Self {
        Self { refusal: Some(status), warning: None, decision }
    }

    fn warn(warning: String, decision: &'static str) -> Self {
        Self { refusal: None, warning: Some(warning), decision }
    }

    fn trouble(why: &str) -> Self {
        Self::refuse(denial::trouble(why, 1), "errored")
    }
}

impl Webhook {
    /// A replica that guards these profiles.
    pub fn new(guards: Vec<Guard>, people: People, peers: Peers, metrics: Arc<Metrics>) -> Self {
        let claims = guards.iter().map(|guard| Claims::new(guard.clone(), Arc::clone(&metrics))).collect();
        Self { guards: guards.into(), claims, people, peers, foreign: ForeignLeases::default(), metrics }
    }

    /// One replica decides for all on a scope, so that they do not get in each other's way on its ledger. None: decide
    /// here.
    async fn hand_over(
        &self,
        request: &AdmissionRequest<DynamicObject>,
        review: &Bytes,
        deadline: Instant,
    ) -> Option<Response> {
        if self.peers.is_empty() || request.dry_run {
            return None;
        }
        let (guard, kind) = guard_of(&self.guards, request)?;
        let Decision::Claim(claiming) = admit::decide(&guard.profile, kind, request) else { return None };
        let owner = self.peers.owner(&claiming.scope)?;
        let answer = self.peers.ask(owner, review.clone(), deadline).await;
        self.metrics.handed_over(answer.is_some());
        answer
    }

    fn claims_of(&self, guard: &Guard) -> Option<&Claims> {
        let at = self.guards.iter().position(|other| other.profile.name == guard.profile.name)?;
        self.claims.get(at)
    }

    /// The kind for metrics: one of those that are guarded, or other.
    fn label_of(&self, request: &AdmissionRequest<DynamicObject>) -> String {
        guard_of(&self.guards, request).map_or_else(|| "other".to_owned(), |_| request.kind.kind.clone())
    }

    /// Decides on a request.
    async fn decide(&self, request: &AdmissionRequest<DynamicObject>, deadline: Instant) -> Answer {
        let Some((guard, kind)) = guard_of(&self.guards, request) else {
            return Answer::refuse(denial::not_guarded(&request.kind), "invalid");
        };
        match admit::decide(&guard.profile, kind, request) {
            Decision::Pass => Answer::pass("passed"),
            Decision::Refuse(status) => Answer::refuse(*status, "invalid"),
            Decision::Change(change) => in_time(deadline, self.change(guard, *change)).await,
            Decision::Claim(claiming) => {
                let footprint = guard.store.objects().footprint(&claiming.key, &claiming.spec);
                match timeout_at(deadline, footprint).await {
                    Ok(Ok(footprint)) => {
                        self.claim(guard, *claiming, footprint, &request.user_info, deadline).await
                    }
                    Ok(Err(error)) => Answer::trouble(&error.to_string()),
                    Err(_) => Answer::trouble(NO_ANSWER),
                }
            }
        }
    }

    async fn claim(
        &self,
        guard: &Guard,
        claiming: Claiming,
        footprint: Footprint,
        user: &UserInfo,
        deadline: Instant,
    ) -> Answer {
        let Claiming { key, uid, scope, since, dry_run, on_conflict, break_glass, .. } = claiming;
        let group = &guard.profile.group;
        let mut ask = Ask { queue: on_conflict == OnConflict::Queue, forced: None };
        if let Some(reason) = break_glass {
            match timeout_at(deadline, self.people.may_break_glass(user, &key.namespace)).await {
                Ok(Ok(true)) => ask.forced = Some(format!("{}: {reason}", name_of(user))),
                Ok(Ok(false)) => {
                    return Answer::refuse(denial::may_not_break(group, &key, name_of(user)), "denied");
                }
                Ok(Err(error)) => return Answer::trouble(&error),
                Err(_) => return Answer::trouble(NO_ANSWER),
            }
        }
        let broken = ask.forced.is_some();
        if admit::only_warns(&guard.profile) && !broken {
            // Our own controller waits for its turn; another operator starts on sight.
            ask.queue = guard.profile.engine && !key.kind.is_deletion();
            ask.forced = (!ask.queue).then(|| "mode warn".to_owned());
        }
        let foreign = match timeout_at(deadline, self.foreign.holder(guard, &scope)).await {
            Ok(Ok(holder)) => holder.filter(|holder| holder.key != key),
            Ok(Err(error)) => return Answer::trouble(&error.to_string()),
            Err(_) => return Answer::trouble(NO_ANSWER),
        };
        let want = Want {
            key: key.clone(),
            uid: uid.clone(),
            footprint: footprint.clone(),
            since,
            intent: key.kind == ObjectKind::Restore && !guard.times.intent.is_zero(),
            ask,
            running: foreign.map(|holder| Running {
                key: holder.key,
                uid: holder.uid,
                since: holder.created,
            }),
        };
        let Some(claims) = self.claims_of(guard) else {
            return Answer::trouble("the profile is not guarded");
        };
        let verdict = if dry_run {
            claims.evaluate(&scope, want, deadline).await
        } else {
            claims.claim(&scope, want, deadline).await
        };
        let asked = Asked {
            group,
            key: &key,
            footprint: &footprint,
            whole_scope: !matches!(guard.profile.scope, ScopeRule::Cluster),
        };
        match verdict {
            Verdict::Granted => Answer::pass("admitted"),
            Verdict::Waiting(blockers) => {
                let turn = "is admitted, and starts once nothing is in its way any more";
                Answer::warn(denial::warning(&key, &blockers, turn), "queued")
            }
            Verdict::Forced(blockers) if broken => {
                let done = "is admitted by break-glass beside";
                let warning = denial::warning(&key, &blockers, done);
                if !dry_run {
                    let note = format!("{} by {}", warning, name_of(user));
                    self.people.tell(&guard.profile, &key, &uid, "BreakGlass", &note);
                }
                Answer::warn(warning, "forced")
            }
            Verdict::Forced(blockers) => {
                let done = "would be refused if this were not mode warn";
                Answer::warn(denial::warning(&key, &blockers, done), "warned")
            }
            Verdict::Blocked(blockers)
                if key.kind == ObjectKind::Deletion && self.is_terminating(guard, &key, deadline).await =>
            {
                Answer::warn(denial::warning(&key, &blockers, "goes with its namespace, beside"), "passed")
            }
            Verdict::Blocked(blockers) => {
                Answer::refuse(denial::conflict(asked, &blockers, on_conflict == OnConflict::Wait), "denied")
            }
            Verdict::Full(why) => Answer::refuse(denial::full(group, &key, &why), "denied"),
            Verdict::Trouble(why, seconds) => Answer::refuse(denial::trouble(&why, seconds), "errored"),
        }
    }

    /// An object that runs, or may soon, can't come to touch more than it was admitted for.
    async fn change(&self, guard: &Guard, change: Change) -> Answer {
        let Change { key, old, new } = change;
        let objects = guard.store.objects();
        let footprints = async {
            let old = objects.footprint(&key, &old).await?;
            Ok::<_, ObserveError>((old, objects.footprint(&key, &new).await?))
        };
        match footprints.await {
            Ok((old, new)) if old.covers(&new) => Answer::pass("passed"),
            Ok((old, new)) => Answer::refuse(denial::grows(&guard.profile.group, &key, &old, &new), "denied"),
            Err(error) => Answer::trouble(&error.to_string()),
        }
    }

    /// Whether the namespace of an object is being deleted: then nothing keeps its objects.
    async fn is_terminating(&self, guard: &Guard, key: &ObjectKey, deadline: Instant) -> bool {
        let read = guard.store.objects().namespace_is_terminating(&key.namespace);
        matches!(timeout_at(deadline, read).await, Ok(Ok(true)))
    }
}

async fn in_time(deadline: Instant, answer: impl Future<Output = Answer>) -> Answer {
    timeout_at(deadline, answer).await.unwrap_or_else(|_| Answer::trouble(NO_ANSWER))
}

fn name_of(user: &UserInfo) -> &str {
    user.username.as_deref().unwrap_or("an unnamed user")
}

/// How long we may take: the API server adds what it waits, as `?timeout=10s`.
fn budget(uri: &Uri) -> Duration {
    let stated =
        uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("timeout=")));
    let stated = stated.and_then(|text| text.parse::<jiff::SignedDuration>().ok());
    let stated = stated.and_then(|duration| Duration::try_from(duration).ok());
    stated.map_or(DEADLINE, |duration| duration.saturating_sub(WAY_BACK).max(duration / 2).min(DEADLINE))
}

/// The handler of `POST /validate`.
pub async fn validate(
    State(webhook): State<Webhook>,
    uri: Uri,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let start = Instant::now();
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return no_review(rejection.status(), &rejection.body_text()),
    };
    let review: AdmissionReview<DynamicObject> = match serde_json::from_slice(&body) {
        Ok(review) => review,
        Err(error) => {
            return no_review(StatusCode::BAD_REQUEST, &format!("this is no AdmissionReview: {error}"));
        }
    };
    if review.types.api_version != "admission.k8s.io/v1" || review.types.kind != "AdmissionReview" {
        let found = format!("{} {}", review.types.api_version, review.types.kind);
        return no_review(
            StatusCode::BAD_REQUEST,
            &format!("expected admission.k8s.io/v1 AdmissionReview, got {found}"),
        );
    }
    let Ok(request) = TryInto::<AdmissionRequest<DynamicObject>>::try_into(review) else {
        return no_review(StatusCode::BAD_REQUEST, "this AdmissionReview has no request");
    };
    let deadline = start + budget(&uri);
    let handed = uri.query().is_some_and(|query| query.contains(peers::HANDED));
    if !handed && let Some(answer) = webhook.hand_over(&request, &body, deadline).await {
        return answer;
    }
    let answer = webhook.decide(&request, deadline).await;
    let kind = request.kind.kind.as_str();
    webhook.metrics.decided(webhook.label_of(&request), answer.decision, start.elapsed());
    tracing::debug!(kind, name = request.name, namespace = request.namespace, answer.decision, "decided");
    let mut response = AdmissionResponse::from(&request);
    response.warnings = answer.warning.map(|warning| vec![warning]);
    if let Some(status) = answer.refusal {
        let message = &status.message;
        tracing::info!(kind, name = request.name, decision = answer.decision, message, "refused");
        response.allowed = false;
        response.result = status;
    }
    Json(response.into_review()).into_response()
}

/// The answer to what is no review: a Status, as the API server itself would give it.
fn no_review(code: StatusCode, message: &str) -> Response {
    let status = denial::malformed(message).with_code(code.as_u16());
    (code, Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_leaves_before_the_caller_gives_up() {
        for (query, expected) in [
            ("", 8_000),
            ("?timeout=10s", 8_000),
            ("?timeout=30s", 8_000),
            ("?timeout=5s", 4_000),
            ("?timeout=1s", 500),
            ("?timeout=soon", 8_000),
            ("?timeout=-5s", 8_000),
        ] {
            let uri = format!("/validate{query}").parse().unwrap();
            assert_eq!(budget(&uri).as_millis(), expected, "{query:?}");
        }
    }
}

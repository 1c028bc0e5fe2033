//! Answers AdmissionReviews.

mod author;
mod claiming;
mod deletion;
mod reading;

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use backup_core::{cron::Dialect, profile::published::UnusableProfile};
use backup_lock::ProtectedProfile;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, Operation},
};
use tokio::time::{Instant, timeout_at};

use self::{author::Author, claiming::ClaimReview};
use crate::{
    absent_namespaces,
    admission_review::{no_review, request_of},
    admit::{self, Change, Decision, WantedClaim, denial},
    authorization::Authorization,
    callers::Callers,
    claims::Claims,
    copy_locations,
    external_leases::ExternalLeases,
    metrics::Metrics,
    peers::{self, Peers},
    schedules,
};

/// Every request is answered within this time; the API server waits 10 s.
pub(crate) const DEADLINE: Duration = Duration::from_secs(8);
/// Part of a caller's own shorter timeout that is reserved for sending the answer.
const ANSWER_RESERVE: Duration = Duration::from_secs(1);
const NO_ANSWER: &str = "the API server did not answer in time";

/// The state for handling requests; cheap to clone.
#[derive(Clone)]
pub(crate) struct Webhook {
    claims: Arc<[Claims]>,
    /// Unusable profiles: their kinds are refused.
    unusable: Arc<[UnusableProfile]>,
    authorization: Authorization,
    pub(crate) callers: Callers,
    /// The other replicas, if there may be any.
    peers: Option<Arc<Peers>>,
    external_leases: ExternalLeases,
    /// Dialects of which one parses the cron expressions of Schedules.
    dialects: Vec<Dialect>,
    metrics: Arc<Metrics>,
}

/// The answer to a request, and a word about it for metrics.
struct Answer {
    refusal: Option<Status>,
    warnings: Vec<String>,
    decision: &'static str,
}

impl Answer {
    fn pass(decision: &'static str) -> Self {
        Self {
            refusal: None,
            warnings: Vec::new(),
            decision,
        }
    }

    fn refuse(status: Status, decision: &'static str) -> Self {
        Self {
            refusal: Some(status),
            warnings: Vec::new(),
            decision,
        }
    }

    fn warn(warning: String, decision: &'static str) -> Self {
        Self {
            refusal: None,
            warnings: vec![warning],
            decision,
        }
    }

    /// The answer to a request that passes unless its author lacks rights; an error is a failure of
    /// the webhook.
    fn of_rights(lacking: Result<Option<Status>, String>) -> Self {
        match lacking {
            Ok(None) => Self::pass("passed"),
            Ok(Some(status)) => Self::refuse(status, "denied"),
            Err(why) => Self::trouble(&why),
        }
    }

    fn trouble(why: &str) -> Self {
        Self::refuse(denial::trouble(&denial::not_in_time(why), 1), "errored")
    }

    /// The same with further warnings, unless it is a refusal.
    fn and_warn(mut self, warnings: Vec<String>) -> Self {
        if self.refusal.is_none() {
            self.warnings.extend(warnings);
        }
        self
    }
}

impl Webhook {
    pub(crate) fn new(
        profiles: Vec<ProtectedProfile>,
        unusable: Arc<[UnusableProfile]>,
        authorization: Authorization,
        callers: Callers,
        peers: Option<Arc<Peers>>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let claims = profiles
            .into_iter()
            .map(|protected| Claims::new(protected, Arc::clone(&metrics)))
            .collect();
        Self {
            claims,
            unusable,
            authorization,
            callers,
            peers,
            external_leases: ExternalLeases::default(),
            dialects: Dialect::ALL.to_vec(),
            metrics,
        }
    }

    /// The same, if the controller's cron dialect is known.
    pub(crate) fn reading_cron(self, dialect: Option<Dialect>) -> Self {
        Self {
            dialects: dialect.map_or_else(|| Dialect::ALL.to_vec(), |dialect| vec![dialect]),
            ..self
        }
    }

    /// Forwards to the one replica that decides on a scope, to avoid conflicts on its ledger.
    /// `None`: decide here.
    async fn forward(
        &self,
        claiming: &WantedClaim,
        review: &Bytes,
        deadline: Instant,
    ) -> Option<Response> {
        let peers = self.peers.as_ref().filter(|_| !claiming.dry_run)?;
        let owner = peers.owner(&claiming.scope)?;
        let answer = peers
            .ask(owner, &self.callers.path()?, review.clone(), deadline)
            .await;
        self.metrics.forwarded(answer.is_some());
        answer
    }

    /// The guard of Velero's kinds, if there is an installation in the namespace of this request.
    /// Without one an object passes: nothing runs it.
    fn velero(&self, request: &AdmissionRequest<DynamicObject>) -> Option<&ProtectedProfile> {
        let mut all = self.claims.iter();
        let velero = all.find(|claims| claims.protected().profile.is_velero())?;
        velero.count(request).then(|| velero.protected())
    }

    async fn schedule(
        &self,
        request: &AdmissionRequest<DynamicObject>,
        deadline: Instant,
    ) -> Answer {
        let Some(protected) = self.velero(request) else {
            return Answer::pass("passed");
        };
        if let Some(status) = schedules::refusal(&protected.profile, &self.dialects, request) {
            return Answer::refuse(status, "invalid");
        }
        let lacking = Box::pin(self.lacking_for_schedule(protected, request));
        let answer = Answer::of_rights(in_time(deadline, lacking).await);
        if answer.refusal.is_some() {
            return answer;
        }
        let warnings = absence_warnings(protected, request, deadline).await;
        answer.and_warn(warnings)
    }

    async fn read_request(
        &self,
        request: &AdmissionRequest<DynamicObject>,
        deadline: Instant,
    ) -> Answer {
        let Some(protected) = self.velero(request) else {
            return Answer::pass("passed");
        };
        let lacking = Box::pin(self.lacking_to_read(protected, request));
        Answer::of_rights(in_time(deadline, lacking).await)
    }

    async fn answer(
        &self,
        claims: &Claims,
        decision: Decision,
        user: &UserInfo,
        deadline: Instant,
    ) -> Answer {
        let answer = match decision {
            Decision::Pass => return Answer::pass("passed"),
            Decision::Refuse(status) => return Answer::refuse(*status, "invalid"),
            Decision::Change(change) => {
                self.change(claims.protected(), *change, user, deadline)
                    .await
            }
            Decision::Claim(wanted) => {
                let review = ClaimReview {
                    webhook: self,
                    claims,
                    wanted: *wanted,
                    user,
                    deadline,
                };
                Box::pin(review.answer()).await
            }
        };
        answer.unwrap_or_else(|why| Answer::trouble(&why))
    }

    /// Refuses to let an object that runs, or may soon, touch more than it was admitted for.
    async fn change(
        &self,
        protected: &ProtectedProfile,
        change: Change,
        user: &UserInfo,
        deadline: Instant,
    ) -> Result<Answer, String> {
        let Change { key, old, new } = change;
        let objects = protected.store.objects();
        let group = &protected.profile.group;
        let before = in_time(deadline, objects.footprint(&key, &old)).await?;
        let after = in_time(deadline, objects.footprint(&key, &new)).await?;
        if !before.covers(&after) {
            return Ok(Answer::refuse(
                denial::grows(group, &key, &before, &after),
                "denied",
            ));
        }
        if let Some(refusal) = self
            .lacking_deletion(protected, &key, &new, &after, user, deadline)
            .await?
        {
            return Ok(Answer::refuse(refusal, "denied"));
        }
        let is_owner = in_time(deadline, self.is_owner(protected, &key, user)).await?;
        let author = Author { user, is_owner };
        let lacking = Box::pin(self.lacking(protected, &key, &new, &after, author));
        let lacking = in_time(deadline, lacking).await?;
        Ok(lacking.map_or(Answer::pass("passed"), |status| {
            Answer::refuse(status, "denied")
        }))
    }
}

/// The warnings about a Backup or Schedule of a user that names what does not exist: namespaces, or
/// locations of copies.
async fn absence_warnings(
    protected: &ProtectedProfile,
    request: &AdmissionRequest<DynamicObject>,
    deadline: Instant,
) -> Vec<String> {
    let has_namespaces = matches!(request.kind.kind.as_str(), "Backup" | schedules::KIND);
    let namespace = request.namespace.as_deref().unwrap_or_default();
    // No user reads the warnings that the controller gets.
    if !has_namespaces
        || !protected.profile.is_velero()
        || is_of_installation(name_of(&request.user_info), namespace)
    {
        return Vec::new();
    }
    let objects = protected.store.objects();
    let (namespaces, copies) = tokio::join!(
        absent_namespaces::warning(objects, request, deadline),
        copy_locations::warning(objects, request, deadline)
    );
    namespaces.into_iter().chain(copies).collect()
}

/// An object in a namespace without an installation passes without a claim: nothing runs it.
fn elsewhere(request: &AdmissionRequest<DynamicObject>) -> Answer {
    if request.operation == Operation::Create {
        let namespace = request.namespace.as_deref().unwrap_or_default();
        return Answer::warn(denial::elsewhere(&request.kind.kind, namespace), "passed");
    }
    Answer::pass("passed")
}

/// The result of the work by the deadline, or why there is none.
async fn in_time<T, E: ToString>(
    deadline: Instant,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout_at(deadline, work).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err(NO_ANSWER.to_owned()),
    }
}

/// Whether this user is a service account of the object's namespace, which is the namespace of its
/// installation.
fn is_of_installation(user: &str, namespace: &str) -> bool {
    let account = user
        .strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'));
    account.is_some_and(|(of, _)| of == namespace)
}

fn name_of(user: &UserInfo) -> &str {
    user.username.as_deref().unwrap_or("an unnamed user")
}

/// Time limit for this request: the API server sends its timeout, as `?timeout=10s`.
fn budget(uri: &Uri) -> Duration {
    let stated = uri.query().and_then(|query| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix("timeout="))
    });
    let stated = stated.and_then(|text| text.parse::<jiff::SignedDuration>().ok());
    let stated = stated.and_then(|duration| Duration::try_from(duration).ok());
    stated.map_or(DEADLINE, |duration| {
        duration
            .saturating_sub(ANSWER_RESERVE)
            .max(duration / 2)
            .min(DEADLINE)
    })
}

pub(crate) async fn validate(
    State(webhook): State<Webhook>,
    uri: Uri,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let start = Instant::now();
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return no_review(rejection.status(), &rejection.body_text()),
    };
    let _room = match webhook.callers.room_for(&body).await {
        Ok(room) => room,
        Err(refusal) => return refusal,
    };
    let request = match request_of(&body) {
        Ok(request) => request,
        Err(message) => return no_review(StatusCode::BAD_REQUEST, &message),
    };
    let deadline = start + budget(&uri);
    let forwarded = peers::is_forwarded(&uri);
    let kind = request.kind.kind.as_str();
    // The kind in metrics is a guarded one, or `other`.
    let guarding = webhook
        .claims
        .iter()
        .find_map(|claims| Some((claims, claims.kind_of(&request)?)));
    let (label, answer) = if let Some((claims, object)) = guarding {
        if claims.count(&request) {
            let decision = admit::decide(&claims.protected().profile, object, &request);
            if let Decision::Claim(claiming) = &decision
                && !forwarded
                && let Some(answer) = webhook.forward(claiming, &body, deadline).await
            {
                return answer;
            }
            let starts = matches!(decision, Decision::Claim(_));
            let warnings = async {
                if !starts {
                    return Vec::new();
                }
                absence_warnings(claims.protected(), &request, deadline).await
            };
            let (answer, warnings) = tokio::join!(
                webhook.answer(claims, decision, &request.user_info, deadline),
                warnings
            );
            (kind, answer.and_warn(warnings))
        } else {
            (kind, elsewhere(&request))
        }
    } else if schedules::is_schedule(&request) {
        (schedules::KIND, webhook.schedule(&request, deadline).await)
    } else if reading::is_read(&request) {
        (
            reading::KIND,
            webhook.read_request(&request, deadline).await,
        )
    } else {
        let status = denial::not_guarded(&request.kind, &webhook.unusable);
        ("other", Answer::refuse(status, "invalid"))
    };
    webhook
        .metrics
        .decided(label, answer.decision, start.elapsed());
    tracing::debug!(
        kind,
        name = request.name,
        namespace = request.namespace,
        answer.decision,
        "decided"
    );
    let mut response = AdmissionResponse::from(&request);
    response.warnings = Some(answer.warnings).filter(|warnings| !warnings.is_empty());
    if let Some(status) = answer.refusal {
        let message = &status.message;
        tracing::info!(
            kind,
            name = request.name,
            decision = answer.decision,
            message,
            "refused"
        );
        webhook.metrics.refused(label, denial::reason(&status));
        response.allowed = false;
        response.result = status;
    }
    Json(response.into_review()).into_response()
}

#[cfg(test)]
mod fuzz;

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

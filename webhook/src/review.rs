//! `POST /validate`: an AdmissionReview in, an AdmissionReview out.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Bytes,
    extract::{State, rejection::BytesRejection},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use backup_lock::{ObjectKind, VELERO_SCOPE, lease::LedgerStore};
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview},
};
use tokio::time::{Instant, timeout_at};

use crate::{
    admit::{self, Claiming, Decision, denial},
    claims::{Claims, Verdict, Want},
    metrics::Metrics,
};

/// Every request is answered by then; the API server waits 10 s.
pub const DEADLINE: Duration = Duration::from_secs(8);
/// What is left of a caller's own shorter timeout for the way back.
const WAY_BACK: Duration = Duration::from_secs(1);

/// Everything that a request needs; cheap to clone.
#[derive(Clone)]
pub struct Webhook {
    store: LedgerStore,
    claims: Claims,
    metrics: Arc<Metrics>,
    grace: Duration,
}

impl Webhook {
    /// A replica. Starts the task that writes the ledger.
    pub fn new(store: LedgerStore, metrics: Arc<Metrics>, grace: Duration) -> Self {
        let claims = Claims::start(VELERO_SCOPE, store.clone(), Arc::clone(&metrics), grace);
        Self { store, claims, metrics, grace }
    }

    /// Decides on a request: no status means that it may pass.
    async fn decide(
        &self,
        request: &AdmissionRequest<DynamicObject>,
        deadline: Instant,
    ) -> (Option<Status>, &'static str) {
        match admit::decide(request) {
            Decision::Pass => (None, "passed"),
            Decision::Refuse(status) => (Some(*status), "invalid"),
            Decision::Claim(claiming) => self.claim(claiming, deadline).await,
        }
    }

    async fn claim(&self, claiming: Claiming, deadline: Instant) -> (Option<Status>, &'static str) {
        let Claiming { key, uid, spec, since, dry_run } = claiming;
        let footprint = match timeout_at(deadline, self.store.objects().footprint(&key, &spec)).await {
            Ok(Ok(footprint)) => footprint,
            Ok(Err(error)) => return (Some(denial::trouble(&error.to_string())), "errored"),
            Err(_) => return (Some(denial::trouble("the API server did not answer in time")), "errored"),
        };
        let want = Want { key: key.clone(), uid, footprint: footprint.clone(), since };
        let verdict = if dry_run {
            self.claims.evaluate(want, deadline).await
        } else {
            self.claims.claim(want, deadline).await
        };
        match verdict {
            Verdict::Granted => (None, "admitted"),
            Verdict::Blocked(blockers) => {
                (Some(denial::conflict(&key, &footprint, &blockers, self.grace)), "denied")
            }
            Verdict::Full(why) => (Some(denial::full(&key, &why)), "denied"),
            Verdict::Trouble(why) => (Some(denial::trouble(&why)), "errored"),
        }
    }
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
    let (refusal, decision) = webhook.decide(&request, start + budget(&uri)).await;
    let kind = admit::guarded_kind(&request).map_or("other", ObjectKind::as_str);
    webhook.metrics.decided(kind, decision, start.elapsed());
    tracing::debug!(kind, name = request.name, namespace = request.namespace, decision, "decided");
    let mut response = AdmissionResponse::from(&request);
    if let Some(status) = refusal {
        tracing::info!(kind, name = request.name, decision, message = status.message, "refused");
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

//! The three places where single requests are observed and faults applied.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::State, http::Method, response::Response};
use serde_json::Value;

use crate::history::{
    clients::SERVER,
    faults::{Faults, Passage, Point},
    plan,
    record::Review,
    tap,
    timeline::Timeline,
    whose::{ATTEMPT, is_slow},
};

/// The program that writes the ledger through a tap.
#[derive(Clone, Copy)]
pub(crate) enum Writer {
    /// The webhook replica of this number.
    Webhook(usize),
    Operator,
}

/// Between a writer of the ledger and the API servers.
#[derive(Clone)]
pub(crate) struct ToApi {
    /// For requests to the API servers.
    pub http: reqwest::Client,
    pub faults: Arc<Faults>,
    /// The program behind it.
    pub writer: Writer,
}

/// Between the API servers and the webhook replicas.
#[derive(Clone)]
pub(crate) struct ToWebhook {
    pub http: reqwest::Client,
    pub faults: Arc<Faults>,
    /// Where reviews are recorded.
    pub timeline: Arc<Timeline>,
}

/// Passes a writer's requests on, and may lose the answer to a write of the ledger.
pub(crate) fn to_api(state: ToApi) -> Router {
    Router::new()
        .fallback(between_writer_and_api)
        .with_state(state)
}

/// Passes a client's requests on, and loses the answers.
pub(crate) fn for_clients(http: reqwest::Client, faults: Arc<Faults>) -> Router {
    Router::new()
        .fallback(between_client_and_api)
        .with_state((http, faults))
}

/// Passes reviews on, records requests and answers, and may lose the answer.
pub(crate) fn to_webhook(state: ToWebhook) -> Router {
    Router::new()
        .fallback(between_api_and_webhook)
        .with_state(state)
}

/// Duration of the write of an item in a slow history.
const SLOW: Duration = Duration::from_millis(800);

async fn between_writer_and_api(State(state): State<ToApi>, request: tap::Request) -> Response {
    if request.method != Method::GET && item_of(&request.path).is_some_and(is_slow) {
        tokio::time::sleep(SLOW).await;
    }
    let passage = state.faults.passage().await;
    if passage == Passage::RequestLost {
        return tap::cut();
    }
    let Ok(answer) = request
        .send(&state.http, &state.faults.servers.order())
        .await
    else {
        return tap::cut();
    };
    if passage == Passage::AnswerLost {
        return tap::cut();
    }
    let writes = request.method == Method::PUT && request.path.contains("/leases/backup-lock-");
    if writes && answer.status().is_success() {
        let text = String::from_utf8_lossy(&request.body);
        let lost = match state.writer {
            Writer::Operator => state.faults.operator_wrote(&text),
            Writer::Webhook(replica) => {
                let point = state.faults.ledger_written(replica, &text);
                matches!(point, Some(Point::LedgerReplyLost | Point::WebhookKilled))
            }
        };
        if lost {
            return tap::cut();
        }
    }
    tap::pass(answer)
}

async fn between_client_and_api(
    State((http, faults)): State<(reqwest::Client, Arc<Faults>)>,
    request: tap::Request,
) -> Response {
    let server = request
        .headers
        .get(SERVER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0);
    match request
        .send(&http, &faults.servers.order_from(server))
        .await
    {
        Ok(answer) if answer.status().is_success() => {
            faults.count(Point::ClientReplyCut);
            tap::cut()
        }
        Ok(answer) => tap::pass(answer),
        Err(_) => tap::cut(),
    }
}

async fn between_api_and_webhook(
    State(state): State<ToWebhook>,
    request: tap::Request,
) -> Response {
    let review = created(&request.body);
    let index = review.as_ref().map(|(history, review)| {
        state.faults.reviewed(review.attempt, &review.uid);
        state.timeline.record(*history, |record| {
            record.reviews.push(review.clone());
            record.reviews.len() - 1
        })
    });
    let Ok(answer) = request
        .send(&state.http, &state.faults.webhooks.order())
        .await
    else {
        return tap::cut();
    };
    let (status, headers) = (answer.status(), answer.headers().clone());
    let Ok(body) = answer.bytes().await else {
        return tap::cut();
    };
    let (Some((history, review)), Some(index)) = (review, index) else {
        return tap::answer(status, &headers, body);
    };
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let allowed = said["response"]["allowed"].as_bool();
    let answered = Some(state.timeline.now());
    state.timeline.record(history, |record| {
        if let Some(review) = record.reviews.get_mut(index) {
            (review.allowed, review.answered) = (allowed, answered);
            review.code = said["response"]["status"]["code"]
                .as_u64()
                .and_then(|code| u16::try_from(code).ok())
                .unwrap_or(0);
        }
    });
    if allowed == Some(true) && !review.dry_run {
        match state.faults.admitted(review.attempt) {
            Some(Point::WebhookReplyCut | Point::ApiServerKilled) => return tap::cut(),
            // Time for the client to disconnect.
            Some(Point::ClientGone) => tokio::time::sleep(Duration::from_millis(10)).await,
            _ => {}
        }
    }
    tap::answer(status, &headers, body)
}

/// The history whose item is at this path.
fn item_of(path: &str) -> Option<u64> {
    let (namespace, what) = path.strip_prefix("/api/v1/namespaces/")?.split_once('/')?;
    what.starts_with("configmaps")
        .then(|| plan::number_of(namespace))?
}

/// The creation that a review is about, if it belongs to a history.
fn created(body: &[u8]) -> Option<(u64, Review)> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let request = &body["request"];
    if request["operation"] != "CREATE" {
        return None;
    }
    let metadata = &request["object"]["metadata"];
    let review = Review {
        attempt: metadata["annotations"][ATTEMPT].as_str()?.parse().ok()?,
        uid: metadata["uid"].as_str()?.to_owned(),
        dry_run: request["dryRun"].as_bool().unwrap_or(false),
        allowed: None,
        answered: None,
        code: 0,
    };
    Some((plan::number_of(request["name"].as_str()?)?, review))
}

//! Baseline: a webhook that only answers. What a measured webhook takes beyond it is the cost of
//! its decision, without the cost of the call.

use axum::{Json, Router, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{pki::Identity, served::Served};

/// Starts a webhook that decides nothing: `/validate` allows, `/refuse` refuses.
pub async fn start(identity: &Identity) -> anyhow::Result<Served> {
    let allow = |Json(review): Json<Review>| async move { allowed(&review) };
    let refuse = |Json(review): Json<Review>| async move {
        refused(&review, "this webhook refuses everything")
    };
    Served::apart(identity, async move || {
        Ok(Router::new()
            .route("/validate", post(allow))
            .route("/refuse", post(refuse)))
    })
    .await
}

/// The fields of a review that an answer needs.
#[derive(Debug, Deserialize)]
pub(crate) struct Review {
    pub(crate) request: Request,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Request {
    uid: String,
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) object: Object,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Object {
    #[serde(default)]
    pub(crate) spec: Value,
}

pub(crate) fn allowed(review: &Review) -> Json<Value> {
    Json(
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review.request.uid, "allowed": true } }),
    )
}

pub(crate) fn refused(review: &Review, message: &str) -> Json<Value> {
    Json(
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review.request.uid, "allowed": false,
            "status": { "code": 403, "reason": "Forbidden", "message": message } } }),
    )
}

//! The floor: a webhook that only answers. What is measured beside it says what deciding costs, and not what being asked
//! costs.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{Json, Router, extract::State, routing::post};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{pki::Identity, served::Served};

/// A running webhook that looks at nothing: `/validate` allows, `/refuse` refuses. It ends when dropped.
#[derive(Debug)]
pub struct AllowingWebhook {
    served: Served,
    calls: Arc<AtomicU64>,
}

impl AllowingWebhook {
    pub async fn start(identity: &Identity) -> anyhow::Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let state = Arc::clone(&calls);
        let served = Served::apart(identity, async move || {
            Ok(Router::new().route("/validate", post(allow)).route("/refuse", post(refuse)).with_state(state))
        })
        .await?;
        Ok(Self { served, calls })
    }

    pub fn address(&self) -> SocketAddr {
        self.served.address()
    }

    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

async fn allow(State(calls): State<Arc<AtomicU64>>, Json(review): Json<Review>) -> Json<Value> {
    calls.fetch_add(1, Ordering::Relaxed);
    allowed(&review)
}

async fn refuse(State(calls): State<Arc<AtomicU64>>, Json(review): Json<Review>) -> Json<Value> {
    calls.fetch_add(1, Ordering::Relaxed);
    refused(&review, "this webhook refuses everything")
}

/// The little of a review that an answer needs.
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
    Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review.request.uid, "allowed": true } }))
}

pub(crate) fn refused(review: &Review, message: &str) -> Json<Value> {
    Json(json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review.request.uid, "allowed": false,
            "status": { "code": 403, "reason": "Forbidden", "message": message } } }))
}

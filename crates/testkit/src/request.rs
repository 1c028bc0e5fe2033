//! A request to the API server in memory, and the faults it may get.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Json,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    /// Without the query.
    pub path: String,
    /// The decoded query parameters.
    pub query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    /// The JSON body; null if it was empty, or no JSON.
    pub body: Value,
    pub earlier: usize,
}

impl Request {
    pub(crate) fn new(method: Method, uri: &Uri, headers: HeaderMap, body: &[u8]) -> Self {
        let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        Self {
            method,
            path: uri.path().to_owned(),
            query: query.into_owned().collect(),
            headers,
            body: serde_json::from_slice(body).unwrap_or_default(),
            earlier: 0,
        }
    }

    /// Method and path: `GET /api/v1/namespaces/a`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path == path
    }

    /// A query parameter; empty if it is missing.
    pub fn parameter(&self, key: &str) -> &str {
        self.query.get(key).map(String::as_str).unwrap_or_default()
    }

    pub fn is_write(&self) -> bool {
        self.method != Method::GET && !self.is_access_review()
    }

    /// Whether it asks what a user may do: that stores nothing.
    pub fn is_access_review(&self) -> bool {
        self.is("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews")
    }
}

/// A fault that replaces the normal handling of a request.
#[derive(Debug)]
pub enum Fault {
    /// Not executed, and answered with this.
    Answer(Response),
    /// Executed, but answered with this.
    DoneBut(Response),
    /// Executed after this delay.
    Late(Duration),
    Hang,
}

impl Fault {
    pub fn refuse(code: u16, reason: &str, message: &str) -> Self {
        Self::Answer(status(code, failure(code, reason, message, json!({}))))
    }

    /// Answered with a list of these items, for any request.
    pub fn list(items: &[Value]) -> Self {
        let metadata = json!({"resourceVersion": "1"});
        Self::Answer(status(
            200,
            json!({"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}),
        ))
    }

    pub fn unavailable() -> Self {
        Self::Answer(unavailable())
    }

    pub fn lose_answer() -> Self {
        Self::DoneBut(unavailable())
    }
}

pub fn status(code: u16, body: Value) -> Response {
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

/// The Status that a real server sends with a refusal.
pub fn failure(code: u16, reason: &str, message: &str, details: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code,
    })
}

fn unavailable() -> Response {
    status(
        503,
        failure(
            503,
            "ServiceUnavailable",
            "the server is not available",
            json!({}),
        ),
    )
}

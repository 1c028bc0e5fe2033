//! A mutating webhook that removes fields of created objects, as policy engines do.

use axum::{Json, Router, routing::post};
use json_patch::Patch;
use serde_json::json;

use crate::{
    pki::Identity,
    served::{Served, reviewed},
};

/// Starts a webhook at `/mutate` that removes the field at this JSON pointer from each object.
pub async fn start(identity: &Identity, pointer: &str) -> anyhow::Result<Served> {
    let patch: Patch = serde_json::from_value(json!([{ "op": "remove", "path": pointer }]))?;
    let mutate = move |Json(review)| {
        let patch = patch.clone();
        reviewed(review, |_, response| async {
            // A patch of ours can always be serialised.
            response.clone().with_patch(patch).unwrap_or(response)
        })
    };
    Served::start(identity, Router::new().route("/mutate", post(mutate))).await
}

//! The plan of a Restore, line by line, while it is computed.

use axum::{body::Body, response::Response};
use backup_client::errors::plain;
use backup_core::{
    api::{DownloadRequest, RestoreSpec},
    restore_plan::PlanLine,
};
use bytes::Bytes;
use futures::stream;
use http::{
    StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use tokio::sync::mpsc;

use super::{HttpError, Server, not_allowed, too_many, use_up};

const MAX_BUFFERED_LINES: usize = 2;

/// Uses the request up, and begins to answer it. An interrupted answer cannot be resumed.
pub(super) async fn answer(
    server: &Server,
    request: DownloadRequest,
    spec: RestoreSpec,
) -> Result<Response, HttpError> {
    let planner = server.planner.clone();
    let place = planner
        .place()
        .ok_or_else(|| too_many(1, "plan is being made"))?;
    let name = request.spec.target.name.clone();
    match use_up(&server.controller, &request).await {
        Ok(true) => {}
        Ok(false) => return Err(not_allowed()),
        Err(error) => return Err((StatusCode::SERVICE_UNAVAILABLE, plain(&error))),
    }
    tracing::info!(restore = name, "a restore is planned");
    let (to_reader, lines) = mpsc::channel(MAX_BUFFERED_LINES);
    tokio::spawn(async move {
        Box::pin(planner.plan(&name, spec, to_reader)).await;
        drop(place);
    });
    let lines = stream::unfold(lines, |mut lines| async move {
        Some((line(&lines.recv().await?), lines))
    });
    let response = Response::builder()
        .header(CACHE_CONTROL, "no-store")
        .header(CONTENT_TYPE, "application/jsonl");
    let response = response.body(Body::from_stream(lines));
    response.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn line(line: &PlanLine) -> Result<Bytes, serde_json::Error> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes.into())
}

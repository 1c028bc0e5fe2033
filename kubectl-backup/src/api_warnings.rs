//! Warnings that the API server and its webhooks send with their answers, shown as kubectl shows
//! them.

use std::sync::Arc;

use backup_core::api_warnings::{SeenWarnings, text};
use http::{Response, header::WARNING};
use parking_lot::Mutex;

/// The warnings that a command has received. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ApiWarnings(Arc<Mutex<SeenWarnings>>);

impl ApiWarnings {
    /// Records the warnings of a response, and returns the response.
    pub(crate) fn note<B>(&self, response: Response<B>) -> Response<B> {
        let headers = response.headers().get_all(WARNING).iter();
        for warning in headers.filter_map(|header| text(header.to_str().ok()?)) {
            self.0.lock().add(warning, str::to_owned);
        }
        response
    }

    /// Returns the warnings received since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.lock().take()
    }
}

//! What the API server and its webhooks warn of in their answers, shown as kubectl shows it.

use std::sync::Arc;

use backup_core::api_warnings::{SeenWarnings, text};
use http::{Response, header::WARNING};
use parking_lot::Mutex;

/// The warnings that a command has met. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ApiWarnings(Arc<Mutex<SeenWarnings>>);

impl ApiWarnings {
    /// Notes the warnings of an answer, and hands it on.
    pub(crate) fn note<B>(&self, response: Response<B>) -> Response<B> {
        let headers = response.headers().get_all(WARNING).iter();
        for warning in headers.filter_map(|header| text(header.to_str().ok()?)) {
            self.0.lock().add(warning, str::to_owned);
        }
        response
    }

    /// Those that were not taken before.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.lock().take()
    }
}

//! What the API server and its webhooks warn of in their answers, shown as kubectl shows it.

use std::{collections::HashSet, sync::Arc};

use backup_core::text;
use http::{Response, header::WARNING};
use parking_lot::Mutex;

/// Maximum number of warnings of one command.
const MAX_WARNINGS: usize = 64;

/// The warnings that a command has met. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ApiWarnings(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    seen: HashSet<String>,
    new: Vec<String>,
}

impl ApiWarnings {
    /// Notes the warnings of an answer, and hands it on.
    pub(crate) fn note<B>(&self, response: Response<B>) -> Response<B> {
        let headers = response.headers().get_all(WARNING).iter();
        for warning in headers.filter_map(|header| text::warning(header.to_str().ok()?)) {
            let mut inner = self.0.lock();
            if inner.seen.len() < MAX_WARNINGS && inner.seen.insert(warning.clone()) {
                inner.new.push(warning);
            }
        }
        response
    }

    /// Those that were not taken before.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().new)
    }
}

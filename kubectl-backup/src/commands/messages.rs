//! Reads the errors and warnings that a backup or restore has stored.

use backup_core::phase::Stage;

use super::prelude::*;
use crate::{
    stored::{StoredFile, document},
    view::stored::Messages,
};

/// The errors and warnings of this work; `None` if its state gives no reason to read them.
pub(super) async fn stored_messages<W: Workload>(
    session: &Session,
    work: &W,
) -> FetchResult<Option<Messages>> {
    let status = work.status();
    let is_stored = status.stage.is_past_items() || status.is_whole();
    let has_results = is_stored || status.stage == Stage::Failed && W::FILES.has_results_of_failed;
    if !has_results || status.errors + status.warnings <= 0 {
        return FetchResult::Known(None);
    }
    let file = StoredFile::of(W::FILES.results, work.meta());
    let read = async { Box::pin(document::<Messages>(session, &file)).await };
    fetched(session, read).await.map(Some)
}

//! Reads the transfers of volume data of a backup or restore.

use super::prelude::*;
use crate::view::transfer::{Transfer, TransferView, sorted};

/// The transfers, the ones that need attention first; empty if the cluster does not serve their
/// kind.
pub(super) async fn read<W: Workload>(
    session: &Session,
    work: &W,
) -> Result<Vec<TransferView>, Problem> {
    let Some(uid) = &work.meta().uid else {
        return Ok(Vec::new());
    };
    let params = ListParams::default().labels(&format!("{}={uid}", W::TRANSFER_UID_LABEL));
    let found = session
        .list_readable(params, |one: W::Transfer| Some(Transfer::view(&one)))
        .await;
    match found {
        Err(problem) if problem.kind == ProblemKind::NotServed => Ok(Vec::new()),
        found => found.map(sorted),
    }
}

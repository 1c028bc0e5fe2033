//! The backups of an installation, for questions about their retention.

use backup_core::{
    restorability::Places,
    retention::{Retention, RetentionFacts},
};
use futures::TryFutureExt as _;

use super::{get, prelude::*, selection::named};

/// All backups of the installation, without those that cannot be decoded.
pub(super) async fn facts(session: &Session) -> Result<Vec<RetentionFacts>, Problem> {
    session
        .list_readable(ListParams::default(), |backup: Backup| {
            Some(RetentionFacts::of(&backup))
        })
        .await
}

async fn known(session: &Session) -> (FetchResult<Vec<RetentionFacts>>, Places) {
    // The role that lists backups is not the one that the command takes.
    let facts = facts(session).map_err(|problem| Problem {
        remedy: None,
        ..problem
    });
    futures::join!(fetched(session, facts), get::places(session))
}

/// Whether a backup is the last good one of what it protects.
pub(super) async fn is_last_good(session: &Session, name: &str) -> FetchResult<bool> {
    let (all, places) = Box::pin(known(session)).await;
    all.map(|all| Retention::new(&all, &places, |_| false).is_last_good(name))
}

/// A warning if the last good backup of something is among these; `None` if it is not.
pub(super) async fn last_good_warning(session: &Session, names: &[String]) -> Option<String> {
    let (all, places) = Box::pin(known(session)).await;
    let all = match all {
        FetchResult::Known(all) => all,
        FetchResult::Missing { unavailable } => {
            return Some(format!(
                "whether the last good backup of something is among them is not known: {unavailable}"
            ));
        }
    };
    // Those that a newer one of these replaces are not the last ones, though all of them go.
    let retention = Retention::new(&all, &places, |_| false);
    let last: Vec<String> = names
        .iter()
        .filter(|name| retention.is_last_good(name))
        .cloned()
        .collect();
    match last.as_slice() {
        [] => None,
        [one] => Some(format!("{one} is the last good backup of what it protects")),
        several => Some(format!(
            "{} are the last good backups of what they protect",
            named(several)
        )),
    }
}

//! Whether an installation takes snapshots of CSI volumes, and which volumes no backup would
//! contain.

use backup_deploy::{Mode, Options};

use super::facts::{Snapshottable, part};
use crate::commands::{
    finding::{Finding, Topic},
    prelude::*,
    volumes::{self, Snapshots, Volumes},
};

const ON: Topic = Topic("snapshots");

/// The source of the decision on snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// No decision: snapshots are turned on if they can be taken.
    Open,
    /// A flag of this command.
    Flag,
    /// The installation that is upgraded.
    Kept,
}

/// Reads the volumes of the cluster. A guard makes no backups, so it needs none.
pub(super) async fn observe(session: &Session, mode: Mode, now: Timestamp) -> FetchResult<Volumes> {
    match mode {
        Mode::Engine => part(volumes::observe(session, now)).await,
        Mode::Guard => FetchResult::missing("a guard takes no snapshots"),
    }
}

/// The drivers whose volumes can be snapshotted.
pub(super) fn possible(volumes: &FetchResult<Volumes>) -> FetchResult<Snapshottable> {
    match volumes {
        FetchResult::Known(volumes) => FetchResult::Known(
            volumes
                .snapshottable()
                .map(|drivers| drivers.into_iter().map(str::to_owned).collect()),
        ),
        FetchResult::Missing { unavailable } => FetchResult::missing(unavailable),
    }
}

/// Turns snapshots on if they can be taken and the decision is open. Returns the finding; none if
/// an upgrade keeps the setting.
pub(super) fn decide(
    possible: &FetchResult<Snapshottable>,
    options: &mut Options,
    decision: Decision,
) -> Option<Finding> {
    let possible = match possible {
        FetchResult::Known(possible) => possible,
        FetchResult::Missing { unavailable } => {
            return Some(ON.unknown(
                &format!("whether snapshots can be taken; {unavailable}"),
                Some("They can be turned on: kubectl backup upgrade --snapshots".to_owned()),
            ));
        }
    };
    if decision == Decision::Open {
        options.set_snapshots(possible.is_ok());
    }
    let is_on = options.takes_snapshots();
    match (decision, possible) {
        (Decision::Kept, _) => None,
        (_, Ok(drivers)) if is_on => {
            let drivers = plain(&drivers.join(", "));
            Some(ON.good(format!(
                "snapshots of CSI volumes are turned on; there are classes for {drivers}"
            )))
        }
        (Decision::Open, Err(why)) => {
            let text = format!(
                "snapshots of CSI volumes stay off: {}",
                plain(&why.reason())
            );
            Some(ON.warn(text, plain(&why.remedy())))
        }
        (_, Err(why)) if is_on => {
            let text = format!(
                "snapshots of CSI volumes are on, as you asked, but {}",
                plain(&why.reason())
            );
            Some(ON.warn(text, plain(&why.remedy())))
        }
        _ => Some(ON.good("snapshots of CSI volumes are off, as you asked")),
    }
}

/// The findings about claims whose data a backup would or would not contain.
pub(super) fn of_claims(volumes: &FetchResult<Volumes>, options: &Options) -> Vec<Finding> {
    let snapshots = if options.takes_snapshots() {
        Snapshots::On
    } else {
        Snapshots::Off
    };
    let known = volumes.known();
    known.map_or_else(Vec::new, |volumes| volumes.findings(snapshots))
}

//! Whether an installation takes snapshots of CSI volumes, and which volumes no backup would
//! contain.

use backup_deploy::{Mode, Options};

use crate::commands::{
    finding::Finding,
    prelude::*,
    volumes::{self, ON, Snapshots, Volumes},
};

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

/// Turns snapshots on if they can be taken and the decision is open. Returns the finding.
pub(super) async fn choose(
    session: &Session,
    options: &mut Options,
    decision: Decision,
    now: Timestamp,
) -> Vec<Finding> {
    if options.mode == Mode::Guard {
        return Vec::new();
    }
    match volumes::observe(session, now).await {
        Ok(volumes) => judge(&volumes, options, decision),
        Err(problem) => vec![ON.unknown(
            &format!(
                "whether snapshots can be taken; {}",
                plain(&problem.to_string())
            ),
            Some("They can be turned on: kubectl backup upgrade --snapshots".to_owned()),
        )],
    }
}

fn judge(volumes: &Volumes, options: &mut Options, decision: Decision) -> Vec<Finding> {
    let possible = volumes.snapshottable();
    if decision == Decision::Open {
        options.set_snapshots(possible.is_ok());
    }
    let is_on = options.takes_snapshots();
    let headline = match (decision, possible) {
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
    };
    let snapshots = if is_on { Snapshots::On } else { Snapshots::Off };
    headline
        .into_iter()
        .chain(volumes.findings(snapshots))
        .collect()
}

/// The message of a dry run that does not read the cluster.
pub(super) fn not_looked(options: &Options) -> Option<&'static str> {
    let is_off = options.mode == Mode::Engine && !options.takes_snapshots();
    is_off.then_some(
        "Snapshots of CSI volumes are off in these objects, as no cluster was checked: --snapshots turns them on.",
    )
}

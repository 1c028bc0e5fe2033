//! Decides what becomes of each part of a Velero installation. Pure.

mod actions;
mod data;
mod locations;
pub(crate) mod plugins;
mod schedules;
pub(crate) mod surroundings;

#[cfg(test)]
mod tests;

use backup_core::text::listed;
use jiff::Timestamp;

use super::{
    consequence::{Consequence, Subject},
    flags::Translation,
    installation::VeleroInstallation,
};
use crate::print::plain;

/// Feature of Velero and of our controller: snapshots of CSI volumes.
const CSI: &str = "EnableCSI";
/// Maximum number of objects that a line names; the others are counted.
const MAX_NAMED: usize = 5;

pub(crate) fn consequences(
    installation: &VeleroInstallation,
    translation: &Translation,
    now: Timestamp,
) -> Vec<Consequence> {
    let mut all = surroundings::consequences(installation);
    all.extend(translation.consequences.clone());
    all.extend(snapshots(translation));
    all.extend(plugins::consequences(installation));
    all.extend(actions::consequences(installation));
    all.extend(locations::consequences(installation));
    all.extend(schedules::consequences(installation, now));
    all.extend(data::consequences(installation));
    let unread = installation.unread.iter().map(|unread| {
        let consequence = Subject("cluster").unknown(plain(&unread.what));
        Consequence {
            remedy: unread.remedy.clone(),
            ..consequence
        }
    });
    all.extend(unread);
    all
}

/// Whether snapshots of CSI volumes are taken as before.
fn snapshots(translation: &Translation) -> Option<Consequence> {
    let is_on = translation.features.iter().any(|name| name == CSI);
    (!is_on).then(|| {
        Subject("flags")
            .changes(
                "snapshots of CSI volumes are off in this server; an installation of ours turns them on where the cluster has \
                 what they need",
            )
            .with_remedy("--snapshots=false keeps them off (docs/operate/install.md#snapshots).")
    })
}

/// "a, b and 3 more"
fn some_of(names: &[String]) -> String {
    listed(&names[..names.len().min(MAX_NAMED)], names.len())
}

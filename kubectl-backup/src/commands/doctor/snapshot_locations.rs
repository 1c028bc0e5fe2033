//! Whether the locations for plugin snapshots can be used. They have no status, so without this
//! check the first failure is that of a backup.

use std::collections::BTreeSet;

use backup_core::api::{VolumeSnapshotLocation, server_status_request::PluginInfo};
use backup_store::plugin_of;
use futures::future::join_all;

use super::{Finding, Topic, secrets};
use crate::{
    commands::{prelude::*, version::server_status},
    fetched::within,
};

const ON: Topic = Topic("volumes");
/// The kind of plugins that take snapshots, as servers list them.
const SNAPSHOTTER: &str = "VolumeSnapshotter";

/// Shorter than the timeout of a check, so that its other findings are still reported.
const MAX_WAIT_FOR_CONTROLLER: Duration = Duration::from_millis(1500);

/// Reports nothing if there are no such locations.
pub(super) async fn usable(session: &Session) -> Result<Vec<Finding>, Problem> {
    let all = session
        .list_readable(ListParams::default(), Some::<VolumeSnapshotLocation>)
        .await?;
    if all.is_empty() {
        return Ok(Vec::new());
    }
    let credentials = all.iter().map(|location| credential(session, location));
    let (status, credentials) = futures::join!(
        within(MAX_WAIT_FOR_CONTROLLER, server_status(session)),
        join_all(credentials)
    );
    let mut findings: Vec<Finding> = match status {
        FetchResult::Known(status) => {
            let providers = providers(status.plugins);
            all.iter()
                .filter_map(|location| without_plugin(location, &providers))
                .collect()
        }
        FetchResult::Missing { unavailable } => {
            let why = format!(
                "whether the controller has plugins for locations of snapshots: {unavailable}"
            );
            vec![ON.unknown(&why, None)]
        }
    };
    findings.extend(credentials.into_iter().flatten());
    Ok(findings)
}

fn providers(plugins: Vec<PluginInfo>) -> BTreeSet<String> {
    plugins
        .into_iter()
        .filter(|plugin| plugin.kind == SNAPSHOTTER)
        .map(|plugin| plugin.name)
        .collect()
}

fn without_plugin(
    location: &VolumeSnapshotLocation,
    providers: &BTreeSet<String>,
) -> Option<Finding> {
    let provider = &location.spec.provider;
    if providers.contains(&plugin_of(provider)) {
        return None;
    }
    let name = location.name_any();
    let text = format!(
        "the controller has no plugin for provider {} of the snapshot location {name}: no snapshots are taken there",
        plain(provider)
    );
    let known = providers
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    let known = if known.is_empty() {
        "none".to_owned()
    } else {
        plain(&known)
    };
    let remedy = format!(
        "Add the plugin to the controller, or delete the location (plugins that take snapshots: {known}): kubectl backup \
         locations snapshots delete {name}"
    );
    Some(ON.bad(text, remedy))
}

async fn credential(session: &Session, location: &VolumeSnapshotLocation) -> Option<Finding> {
    let key = location
        .spec
        .credential
        .as_ref()
        .filter(|key| key.optional != Some(true))?;
    let user = format!("of the snapshot location {}", location.name_any());
    secrets::problem(session, ON, &user, (&key.name, &key.key)).await
}

#[cfg(test)]
mod tests {
    use backup_core::api::volume_snapshot_location::VolumeSnapshotLocationSpec;

    use super::*;

    #[test]
    fn a_provider_is_found_with_and_without_its_domain() {
        let plugin = |name: &str, kind: &str| PluginInfo {
            name: name.to_owned(),
            kind: kind.to_owned(),
            ..PluginInfo::default()
        };
        let all = vec![
            plugin("velero.io/aws", "ObjectStore"),
            plugin("velero.io/disks", SNAPSHOTTER),
            plugin("acme.io/disks", SNAPSHOTTER),
        ];
        let providers = providers(all);
        for (provider, is_found) in [
            ("disks", true),
            ("acme.io/disks", true),
            ("aws", false),
            ("x.io/disks", false),
        ] {
            let spec = VolumeSnapshotLocationSpec {
                provider: provider.to_owned(),
                ..VolumeSnapshotLocationSpec::default()
            };
            let location = VolumeSnapshotLocation::new("east", spec);
            assert_eq!(
                without_plugin(&location, &providers).is_none(),
                is_found,
                "{provider}"
            );
        }
    }
}

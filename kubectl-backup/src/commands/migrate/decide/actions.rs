//! ConfigMaps that Velero reads: settings of actions on items, volume policies for all backups,
//! resource modifiers for all restores, and the settings of node agents.

use std::collections::BTreeMap;

use backup_actions::restore::{ActionConfigs, modifiers};
use backup_core::{config_map, resource_policy, validate::Finding};
use serde_json::Value;

use super::some_of;
use crate::{
    commands::migrate::{
        consequence::{Consequence, Subject},
        installation::VeleroInstallation,
        server::NodeAgent,
    },
    print::plain,
};

const ON: Subject = Subject("config maps");
const AGENTS: Subject = Subject("node agents");
/// Actions of Velero whose settings are about the helper of file restores.
const FILE_RESTORES: [&str; 2] = ["velero.io/pod-volume-restore", "velero.io/restic"];
/// Settings of node agents (Velero `pkg/types/node_agent.go`, v1.18), and what is there for them here.
const AGENT_SETTINGS: [(&str, &str); 3] = [
    (
        "loadConcurrency",
        "--data-mover-concurrency is the number of volumes at the same time",
    ),
    ("podResources", "--mover-memory-limit"),
    (
        "privilegedFsBackup",
        "files of mounted volumes are not copied here",
    ),
];

pub(crate) fn consequences(installation: &VeleroInstallation) -> Vec<Consequence> {
    let server = &installation.server;
    let mut all = settings_of_actions(installation);
    if let Some(name) = server.flag_value("global-backup-volume-policies-configmap") {
        all.push(checked(
            installation,
            name,
            "volume policies of all backups",
            |data| resource_policy::read_global(data).map(drop),
        ));
    }
    if let Some(name) = server.flag_value("default-resource-modifier-configmap") {
        all.push(checked(
            installation,
            name,
            "resource modifiers of all restores",
            |data| modifiers::read(modifiers::DEFAULT, data).map(drop),
        ));
    }
    let agents = installation.node_agents.iter();
    all.extend(agents.flat_map(|agent| node_agent(installation, agent)));
    all
}

fn settings_of_actions(installation: &VeleroInstallation) -> Vec<Consequence> {
    let maps = &installation.action_settings;
    if maps.is_empty() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for map in maps {
        let name = plain(&map.name);
        let is_unused = FILE_RESTORES
            .iter()
            .any(|label| map.labels.contains_key(*label));
        all.push(if is_unused {
            ON.changes(format!(
                "ConfigMap {name} is not read: it is about the helper of file restores, which is not needed here"
            ))
        } else {
            ON.stays(format!("ConfigMap {name} sets an action of restores, here too"))
        });
    }
    match ActionConfigs::read(maps) {
        Ok(configs) => all.extend(configs.ignored.iter().map(|why| ON.changes(plain(why)))),
        Err(findings) => all.push(ON.lost(
            format!(
                "settings of actions cannot be used: {}",
                sentences(&findings)
            ),
            "Correct them before the move: a restore is refused otherwise.",
        )),
    }
    all
}

/// The consequence for a ConfigMap that is followed if it can be read.
fn checked(
    installation: &VeleroInstallation,
    name: &str,
    what: &str,
    read: impl FnOnce(&BTreeMap<String, String>) -> Result<(), Vec<Finding>>,
) -> Consequence {
    let shown = plain(name);
    match installation.config_maps.get(name) {
        None => ON.unknown(format!(
            "whether the {what} in ConfigMap {shown} can be followed"
        )),
        Some(None) => ON.lost(
            format!("ConfigMap {shown} with the {what} does not exist"),
            "Create it, or leave out the flag.",
        ),
        Some(Some(data)) => match read(data) {
            Ok(()) => ON.stays(format!("the {what} in ConfigMap {shown} are followed")),
            Err(findings) => ON.lost(
                format!(
                    "the {what} in ConfigMap {shown} cannot be followed: {}",
                    sentences(&findings)
                ),
                "Correct them before the move.",
            ),
        },
    }
}

pub(crate) fn sentences(findings: &[Finding]) -> String {
    let findings: Vec<String> = findings.iter().map(|one| plain(&one.to_string())).collect();
    findings.join("; ")
}

fn node_agent(installation: &VeleroInstallation, agent: &NodeAgent) -> Vec<Consequence> {
    let mut all = vec![AGENTS.changes(format!(
        "DaemonSet {} is stopped: pods in namespace {} move the data of volumes, only while they do so",
        plain(&agent.name),
        installation.namespace
    ))];
    let Some(name) = &agent.config_map else {
        return all;
    };
    let shown = plain(name);
    let data = match installation.config_maps.get(name) {
        Some(Some(data)) => data,
        Some(None) => return all,
        None => {
            all.push(AGENTS.unknown(format!("which settings ConfigMap {shown} has")));
            return all;
        }
    };
    let settings: Vec<String> = data
        .values()
        .filter_map(|text| config_map::yaml(text).ok())
        .filter_map(|value| Some(value.as_object()?.clone()))
        .flat_map(|fields| fields.into_iter().filter(|(_, value)| is_set(value)))
        .map(|(name, _)| name)
        .collect();
    let (known, unknown): (Vec<String>, Vec<String>) = settings
        .into_iter()
        .partition(|name| replacement(name).is_some());
    all.extend(known.iter().filter_map(|name| {
        let instead = replacement(name)?;
        Some(AGENTS.changes(format!(
            "{name} of ConfigMap {shown} is not read: {instead}"
        )))
    }));
    if !unknown.is_empty() {
        let unknown = plain(&some_of(&unknown));
        all.push(AGENTS.lost(
            format!("nothing does here what ConfigMap {shown} sets: {unknown}"),
            "Pods that move data get a claim of the class of the volume, on the node that the scheduler chooses \
             (docs/operate/install.md#volume-data).",
        ));
    }
    all
}

fn is_set(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn replacement(setting: &str) -> Option<&'static str> {
    let found = AGENT_SETTINGS.iter().find(|(name, _)| *name == setting);
    found.map(|(_, instead)| *instead)
}

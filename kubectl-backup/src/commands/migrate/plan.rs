//! The files of a move: what our controller is installed with, the commands in their order, and the
//! way back. Pure.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    decide::{plugins, surroundings},
    flags::Translation,
    installation::VeleroInstallation,
};
use crate::{cli::Output, error::Problem, print::json, terminal::quoted};

/// A file that the command writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MigrationFile {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

pub(crate) const MIGRATE: &str = "migrate.sh";
pub(crate) const BACK: &str = "back.sh";
const VALUES: &str = "values.yaml";
const PATCH: &str = "controller-patch.yaml";
/// All files that a move may have.
pub(crate) const NAMES: [&str; 4] = [VALUES, PATCH, MIGRATE, BACK];
/// Label of nodes that no node has: it stops the pods of a DaemonSet.
const STOPPED: &str = "backup-controller/stopped";
/// Lists the Backups and Restores of a namespace, one a line, with their phases.
const PHASES: &str = r#"{range .items[*]}{.kind} {.metadata.name} {.status.phase}{"\n"}{end}"#;
/// Phases of work that has ended.
const ENDS: &str = " (Completed|PartiallyFailed|Failed|FailedValidation)$";

pub(crate) fn files(
    installation: &VeleroInstallation,
    translation: &Translation,
    registry: Option<&str>,
) -> Result<Vec<MigrationFile>, Problem> {
    let patch = controller_patch(installation);
    let mut files = vec![MigrationFile {
        name: VALUES,
        text: values(installation, translation, registry)?,
    }];
    if let Some(patch) = &patch {
        let text = json::object(patch, Output::Yaml)?;
        files.push(MigrationFile { name: PATCH, text });
    }
    let forth = forth(installation, translation, registry, patch.is_some());
    files.push(MigrationFile {
        name: MIGRATE,
        text: forth,
    });
    files.push(MigrationFile {
        name: BACK,
        text: back(installation),
    });
    Ok(files)
}

/// Values of the Helm chart.
fn values(
    installation: &VeleroInstallation,
    translation: &Translation,
    registry: Option<&str>,
) -> Result<String, Problem> {
    let mut values = json!({ "definitions": false });
    if let Some(registry) = registry {
        values["image"]["registry"] = json!(registry);
    }
    let lists = [
        ("features", json!(translation.features)),
        ("extraArgs", json!(translation.controller_args)),
        ("initContainers", json!(plugins::carried(installation))),
    ];
    for (name, list) in lists {
        if list != json!([]) {
            values["controller"][name] = list;
        }
    }
    let values = json::object(&values, Output::Yaml)?;
    Ok(format!(
        "# Values of the Helm chart, in the place of `kubectl backup install` in {MIGRATE}.\n\
         # The definitions in the cluster are not Helm's. Bring ours before it:\n\
         # kubectl apply --server-side --force-conflicts -k deploy/once\n{values}"
    ))
}

/// Patch with plugins, environment, and labels of pods, which no flag of `install` sets.
fn controller_patch(installation: &VeleroInstallation) -> Option<Value> {
    let server = &installation.server;
    let mut container = json!({ "name": "controller" });
    let variables = surroundings::carried_variables(server);
    if !variables.is_empty() {
        container["env"] = json!(variables);
    }
    if !server.variable_sources.is_empty() {
        container["envFrom"] = json!(server.variable_sources);
    }
    let mut template = json!({});
    let labels = surroundings::identity_labels(server);
    if !labels.is_empty() {
        template["metadata"]["labels"] = json!(labels);
    }
    if container.as_object().is_some_and(|fields| fields.len() > 1) {
        template["spec"]["containers"] = json!([container]);
    }
    let plugins = plugins::carried(installation);
    if !plugins.is_empty() {
        template["spec"]["initContainers"] = json!(plugins);
    }
    let is_empty = template.as_object().is_none_or(serde_json::Map::is_empty);
    (!is_empty).then(|| json!({ "spec": { "template": template } }))
}

/// A script for a shell, step by step.
struct Script {
    text: String,
    steps: usize,
}

impl Script {
    fn new(title: &str) -> Self {
        Self {
            text: format!("#!/bin/sh\n# {title}\nset -eu\ncd \"$(dirname \"$0\")\"\n"),
            steps: 0,
        }
    }

    fn step(&mut self, title: &str, commands: &[String]) {
        if commands.is_empty() {
            return;
        }
        self.steps += 1;
        let _ = writeln!(self.text, "\n# {}. {title}", self.steps);
        for command in commands {
            self.text += command;
            self.text.push('\n');
        }
    }
}

fn forth(
    installation: &VeleroInstallation,
    translation: &Translation,
    registry: Option<&str>,
    has_patch: bool,
) -> String {
    let namespace = &installation.namespace;
    let mut script = Script::new(&format!(
        "From Velero in namespace {namespace}; written by `kubectl backup migrate`. Read it, and run it as a whole (sh \
         {MIGRATE})\n# or command by command. After a failure, correct what it names and continue there. The way back: sh {BACK}"
    ));
    script.step(
        "Pause the Schedules that make backups.",
        &schedules("pause", installation),
    );
    script.step(
        "Stop here while something is at work.",
        &wait_for_work(namespace),
    );
    script.step("Stop the server and its node agents.", &stop(installation));
    script.step(
        "Name the Secret of the server in the locations that name none.",
        &named_credentials(installation),
    );
    script.step(
        &format!("Install. With Helm: helm install backup CHART --namespace {namespace} --values={VALUES}"),
        &[install(translation, registry)],
    );
    script.step(
        "Give our programs the identity of Velero.",
        &identity(installation),
    );
    if has_patch {
        script.step(
            "Give our controller plugins and environment.",
            &[format!(
                "kubectl -n {namespace} patch deployment backup-controller --patch-file={PATCH}"
            )],
        );
    }
    script.step(
        "Check it.",
        &[
            format!(
                "kubectl -n {namespace} rollout status deployment backup-controller --timeout=10m"
            ),
            "kubectl backup doctor".to_owned(),
        ],
    );
    script.step(
        "Try it: a backup, and a restore into another namespace.",
        &[
            "# kubectl backup create first --include-namespaces=NAMESPACE --wait".to_owned(),
            "# kubectl backup restore first --namespace-mappings=NAMESPACE:NAMESPACE-copy --wait"
                .to_owned(),
        ],
    );
    script.step(
        "Let the Schedules make backups again.",
        &schedules("unpause", installation),
    );
    script.text
}

fn back(installation: &VeleroInstallation) -> String {
    let namespace = &installation.namespace;
    let server = &installation.server;
    let version = server.version.as_deref().unwrap_or("(no version)");
    let mut script = Script::new(&format!(
        "Back to Velero {version} in namespace {namespace}; written by `kubectl backup migrate`: sh {BACK}"
    ));
    script.step(
        "Pause the Schedules that make backups.",
        &schedules("pause", installation),
    );
    script.step(
        "Wait until nothing is at work.",
        &["kubectl backup wait --for=free --timeout=1h".to_owned()],
    );
    script.step(
        &format!("Remove our programs; objects and definitions stay. With Helm: helm uninstall backup --namespace {namespace}"),
        &["kubectl backup uninstall --yes".to_owned()],
    );
    script.step("Velero's definitions, if it is another version than 1.18: ours allow more.", &[
        "# velero install --crds-only --dry-run -o yaml | kubectl apply --server-side --force-conflicts -f -".to_owned(),
    ]);
    let replicas = server.replicas.max(1);
    let mut start = vec![format!(
        "kubectl -n {namespace} scale deployment {} --replicas={replicas}",
        server.name
    )];
    start.extend(node_agents(installation, &Value::Null));
    script.step("Start the server and its node agents.", &start);
    script.step(
        "Let the Schedules make backups again.",
        &schedules("unpause", installation),
    );
    script.text
}

/// The command for the Schedules that are not paused now.
fn schedules(verb: &str, installation: &VeleroInstallation) -> Vec<String> {
    let running = installation.schedules.iter().filter(|stored| {
        let schedule = stored.object.as_ref().ok();
        schedule.is_some_and(|schedule| !schedule.spec.paused)
    });
    let names: Vec<&str> = running.map(|stored| stored.name.as_str()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "kubectl backup schedules {verb} {}",
        names.join(" ")
    )]
}

fn wait_for_work(namespace: &str) -> Vec<String> {
    vec![
        format!(
            "at_work=$(kubectl -n {namespace} get backups.velero.io,restores.velero.io --output=jsonpath='{PHASES}')"
        ),
        format!("if echo \"$at_work\" | grep . | grep -vE '{ENDS}'; then"),
        format!("  echo 'These have not ended: wait, and run {MIGRATE} again.' >&2"),
        "  exit 1".to_owned(),
        "fi".to_owned(),
    ]
}

fn stop(installation: &VeleroInstallation) -> Vec<String> {
    let namespace = &installation.namespace;
    let server = &installation.server;
    let mut commands = vec![format!(
        "kubectl -n {namespace} scale deployment {} --replicas=0",
        server.name
    )];
    // Without a selector, all pods would be deleted.
    if !server.selector.is_empty() {
        commands.push(format!(
            "kubectl -n {namespace} delete pods --selector={} --ignore-not-found",
            quoted(&server.selector)
        ));
    }
    commands.extend(node_agents(installation, &json!("true")));
    commands
}

/// Stops the pods of the node agents by a node selector that no node fits, or starts them by removing
/// it (`null`).
fn node_agents(installation: &VeleroInstallation, value: &Value) -> Vec<String> {
    let selector = json!({ STOPPED: value });
    let patch =
        json!({ "spec": { "template": { "spec": { "nodeSelector": selector } } } }).to_string();
    let agents = installation.node_agents.iter();
    agents
        .map(|agent| {
            format!(
                "kubectl -n {} patch daemonset {} --type=merge --patch={}",
                installation.namespace,
                agent.name,
                quoted(&patch)
            )
        })
        .collect()
}

fn named_credentials(installation: &VeleroInstallation) -> Vec<String> {
    let Some(entry) = surroundings::entry_to_name(&installation.server) else {
        return Vec::new();
    };
    let credential = json!({ "name": entry.secret, "key": entry.key });
    let patch = json!({ "spec": { "credential": credential } }).to_string();
    let locations = surroundings::without_credential(installation);
    locations
        .iter()
        .map(|location| {
            format!(
                "kubectl -n {} patch {}.velero.io {} --type=merge --patch={}",
                installation.namespace,
                location.plural,
                location.name,
                quoted(&patch)
            )
        })
        .collect()
}

fn install(translation: &Translation, registry: Option<&str>) -> String {
    let mut words = vec!["kubectl backup install --replace-definitions".to_owned()];
    words.extend(registry.map(|registry| format!("--registry={}", quoted(registry))));
    if !translation.features.is_empty() {
        words.push(format!("--features={}", translation.features.join(",")));
    }
    let args = translation.controller_args.iter();
    words.extend(args.map(|arg| quoted(&format!("--controller-arg={arg}"))));
    words.join(" \\\n  ")
}

fn identity(installation: &VeleroInstallation) -> Vec<String> {
    let annotations = surroundings::identity_annotations(installation);
    let words: Vec<String> = annotations
        .iter()
        .map(|(key, value)| quoted(&format!("{key}={value}")))
        .collect();
    if words.is_empty() {
        return Vec::new();
    }
    let namespace = &installation.namespace;
    vec![
        format!(
            "kubectl -n {namespace} annotate --overwrite serviceaccount backup-controller backup-mover {}",
            words.join(" ")
        ),
        format!("kubectl -n {namespace} rollout restart deployment backup-controller"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use backup_core::api::BackupStorageLocation;

    use super::*;
    use crate::commands::migrate::{
        installation::Stored,
        server::{SecretEntry, Server},
    };

    fn text_of(installation: &VeleroInstallation, name: &str) -> Option<String> {
        let files = files(installation, &Translation::default(), None).unwrap();
        let found = files.into_iter().find(|file| file.name == name);
        found.map(|file| file.text)
    }

    #[test]
    fn steps_that_nothing_needs_are_left_out() {
        let installation = VeleroInstallation {
            namespace: "velero".to_owned(),
            server: Server {
                name: "velero".to_owned(),
                ..Server::default()
            },
            ..VeleroInstallation::default()
        };
        assert_eq!(text_of(&installation, PATCH), None);
        let script = text_of(&installation, MIGRATE).unwrap();
        for absent in [
            "pause",
            "annotate",
            "daemonset",
            "delete pods",
            PATCH,
            "credential",
        ] {
            assert!(!script.contains(absent), "{absent}: {script}");
        }
        assert_says!(script, "\nkubectl backup install --replace-definitions\n");
        // A server that was stopped before gets a replica on the way back.
        let back = text_of(&installation, BACK).unwrap();
        assert_says!(back, "scale deployment velero --replicas=1");
    }

    #[test]
    fn identity_and_credentials_of_the_server_are_carried_over() {
        let location = json!({ "metadata": { "name": "default" },
            "spec": { "provider": "azure", "objectStorage": { "bucket": "b" } } });
        let installation = VeleroInstallation {
            namespace: "backups".to_owned(),
            account_annotations: BTreeMap::from([(
                "azure.workload.identity/client-id".to_owned(),
                "id of it".to_owned(),
            )]),
            locations: Stored::<BackupStorageLocation>::all(vec![location]),
            server: Server {
                name: "velero".to_owned(),
                credentials: Some(SecretEntry {
                    secret: "azure".to_owned(),
                    key: "cloud".to_owned(),
                }),
                pod_labels: BTreeMap::from([
                    ("azure.workload.identity/use".to_owned(), "true".to_owned()),
                    ("deploy".to_owned(), "velero".to_owned()),
                ]),
                ..Server::default()
            },
            ..VeleroInstallation::default()
        };
        let script = text_of(&installation, MIGRATE).unwrap();
        assert_says!(
            script,
            r#"patch backupstoragelocations.velero.io default --type=merge --patch='{"spec":{"credential":{"key":"cloud","name":"azure"}}}'"#,
            "annotate --overwrite serviceaccount backup-controller backup-mover 'azure.workload.identity/client-id=id of it'"
        );
        let patch = text_of(&installation, PATCH).unwrap();
        assert_says!(patch, "azure.workload.identity/use: \"true\"");
        assert!(
            !patch.contains("deploy") && !patch.contains("containers"),
            "{patch}"
        );
    }
}

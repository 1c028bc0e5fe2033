//! The Deployment of the server, its environment, and the identity and credentials that it has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::some_of;
use crate::{
    commands::migrate::{
        consequence::{Consequence, Subject},
        installation::VeleroInstallation,
        server::{CREDENTIALS_FILES, Manager, SecretEntry, Server},
    },
    print::plain,
};

const SERVER: Subject = Subject("server");
const ENVIRONMENT: Subject = Subject("environment");
const CREDENTIALS: Subject = Subject("credentials");

/// Variables that `velero install` sets for Velero itself.
const UNNEEDED: [&str; 5] = [
    "CSI_SNAPSHOT_EARLY_FREQUENT_POLLING",
    "LD_LIBRARY_PATH",
    "NODE_NAME",
    "VELERO_NAMESPACE",
    "VELERO_SCRATCH_DIR",
];
/// Variables whose values are no secrets. Values of others are not shown and not written to files.
const OPEN: [&str; 11] = [
    "AWS_DEFAULT_REGION",
    "AWS_REGION",
    "AWS_ROLE_ARN",
    "AZURE_CLIENT_ID",
    "AZURE_CLOUD_NAME",
    "AZURE_RESOURCE_GROUP",
    "AZURE_SUBSCRIPTION_ID",
    "AZURE_TENANT_ID",
    "NO_PROXY",
    "TZ",
    "no_proxy",
];
/// Beginnings of annotations that give a ServiceAccount an identity of the cloud.
const IDENTITIES: [&str; 3] = [
    "azure.workload.identity/",
    "eks.amazonaws.com/",
    "iam.gke.io/",
];
/// Label of pods that get the identity of their ServiceAccount in Azure.
const AZURE_IDENTITY: &str = "azure.workload.identity/use";

pub(crate) fn consequences(installation: &VeleroInstallation) -> Vec<Consequence> {
    let mut all = deployment(&installation.server);
    all.push(
        Subject("definitions")
            .stays("our definitions take the place of Velero's; objects stay as they are"),
    );
    all.extend(environment(&installation.server, &installation.namespace));
    all.extend(identity(installation));
    all.extend(credentials(installation));
    all
}

fn deployment(server: &Server) -> Vec<Consequence> {
    let name = &server.name;
    let mut all = vec![SERVER.stays(format!(
        "Deployment {name} is scaled to 0 replicas, and waits there for the way back"
    ))];
    if let Some(manager) = &server.manager {
        let consequence = match manager {
            Manager::Helm(release) => SERVER
                .changes(format!(
                    "Deployment {name} is of the release {release} of Helm: an upgrade of it starts the server again, and its \
                     removal removes the locations and Schedules that it has made"
                ))
                .with_remedy(
                    "Neither upgrade nor uninstall it; to uninstall it one day, annotate what is to stay with \
                     helm.sh/resource-policy=keep.",
                ),
            Manager::ArgoCd | Manager::Flux | Manager::Owner(_) => SERVER
                .changes(format!(
                    "Deployment {name} is kept as it is by {manager}, which starts the server again"
                ))
                .with_remedy("Suspend that before the move."),
        };
        all.push(consequence);
    }
    if !server.extras.is_empty() {
        let extras = some_of(&server.extras);
        all.push(
            SERVER
                .changes(format!(
                    "its pod has {extras}, which our Deployments do not take over"
                ))
                .with_remedy(
                    "Add what is still needed by an overlay (docs/operate/install.md#overlays).",
                ),
        );
    }
    all
}

fn environment(server: &Server, namespace: &str) -> Vec<Consequence> {
    let mut all = Vec::new();
    let carried: Vec<String> = names(&carried_variables(server));
    if !carried.is_empty() {
        all.push(ENVIRONMENT.stays(format!(
            "set in our controller, too: {}",
            carried.join(", ")
        )));
    }
    if !server.variable_sources.is_empty() {
        all.push(
            ENVIRONMENT.stays(
                "variables of ConfigMaps and Secrets (envFrom) are set in our controller, too",
            ),
        );
    }
    for name in names(&server.variables) {
        let is_known = UNNEEDED.contains(&name.as_str())
            || CREDENTIALS_FILES.contains(&name.as_str())
            || carried.contains(&name);
        if !is_known {
            let remedy = format!(
                "If it is needed: kubectl -n {namespace} set env deployment backup-controller {name}=VALUE"
            );
            let text = format!("{name} is left out: its value may be a secret, and is not copied");
            all.push(ENVIRONMENT.changes(text).with_remedy(remedy));
        }
    }
    all
}

fn names(variables: &[Value]) -> Vec<String> {
    let names = variables.iter().filter_map(|one| one["name"].as_str());
    names.map(plain).collect()
}

/// Variables that our controller gets: references, and values that are no secrets.
pub(crate) fn carried_variables(server: &Server) -> Vec<Value> {
    let variables = server.variables.iter();
    variables
        .filter(|variable| is_carried(variable))
        .cloned()
        .collect()
}

fn is_carried(variable: &Value) -> bool {
    let name = variable["name"].as_str().unwrap_or_default();
    let is_reference = variable["valueFrom"].is_object();
    !UNNEEDED.contains(&name)
        && !CREDENTIALS_FILES.contains(&name)
        && (is_reference || OPEN.contains(&name))
}

/// Annotations by which our ServiceAccounts get the identity of Velero's.
pub(crate) fn identity_annotations(installation: &VeleroInstallation) -> BTreeMap<&str, &str> {
    let annotations = installation.account_annotations.iter();
    annotations
        .filter(|(key, _)| IDENTITIES.iter().any(|start| key.starts_with(start)))
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

/// Labels by which the pods of our controller get it.
pub(crate) fn identity_labels(server: &Server) -> BTreeMap<&str, &str> {
    let labels = server.pod_labels.iter();
    labels
        .filter(|(key, _)| *key == AZURE_IDENTITY)
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect()
}

fn identity(installation: &VeleroInstallation) -> Option<Consequence> {
    let annotations = identity_annotations(installation);
    let identity: Vec<String> = annotations
        .iter()
        .map(|(key, value)| plain(&format!("{key}={value}")))
        .collect();
    let account = plain(&installation.server.service_account);
    let namespace = &installation.namespace;
    (!identity.is_empty()).then(|| {
        Subject("identity")
            .changes(format!(
                "ServiceAccount {account} has an identity of the cloud ({}); ours are backup-controller and backup-mover",
                identity.join(", ")
            ))
            .with_remedy(format!(
                "They get the annotation. Let the cloud trust them, too: system:serviceaccount:{namespace}:backup-controller \
                 and system:serviceaccount:{namespace}:backup-mover."
            ))
    })
}

/// The entry that our controller reads for locations that name no credential.
fn default_entry() -> SecretEntry {
    SecretEntry {
        secret: "cloud-credentials".to_owned(),
        key: "cloud".to_owned(),
    }
}

/// The entry that locations without a credential have to name, as our controller reads another one.
pub(crate) fn entry_to_name(server: &Server) -> Option<&SecretEntry> {
    let entry = server.credentials.as_ref()?;
    (*entry != default_entry()).then_some(entry)
}

/// A location that names no credential.
pub(crate) struct BareLocation<'a> {
    /// Plural name of its kind.
    pub(crate) plural: &'static str,
    pub(crate) name: &'a str,
}

pub(crate) fn without_credential(installation: &VeleroInstallation) -> Vec<BareLocation<'_>> {
    let locations = installation.locations.iter().filter_map(|location| {
        let object = location.object.as_ref().ok()?;
        let is_local = object.spec.provider == "local";
        (object.spec.credential.is_none() && !is_local).then_some(BareLocation {
            plural: "backupstoragelocations",
            name: &location.name,
        })
    });
    let of_snapshots = installation.snapshot_locations.iter();
    let of_snapshots = of_snapshots.filter_map(|location| {
        let object = location.object.as_ref().ok()?;
        object.spec.credential.is_none().then_some(BareLocation {
            plural: "volumesnapshotlocations",
            name: &location.name,
        })
    });
    locations.chain(of_snapshots).collect()
}

fn credentials(installation: &VeleroInstallation) -> Option<Consequence> {
    let locations = without_credential(installation);
    if locations.is_empty() {
        return None;
    }
    let names: Vec<String> = locations
        .iter()
        .map(|location| location.name.to_owned())
        .collect();
    let names = some_of(&names);
    let default = default_entry();
    let has_default = installation.secrets.contains(&default.secret);
    Some(match &installation.server.credentials {
        Some(entry) if *entry != default => CREDENTIALS
            .changes(format!(
                "for locations that name no credential ({names}), the server reads Secret {}; ours reads {}",
                plain(&entry.secret),
                default.secret
            ))
            .with_remedy("migrate.sh names the Secret in them (spec.credential); Velero reads it there, too."),
        Some(_) => CREDENTIALS.stays(format!(
            "Secret {} is read for locations that name no credential: {names}",
            default.secret
        )),
        None if has_default => CREDENTIALS
            .changes(format!(
                "Secret {} is not mounted by the server; ours reads it for locations that name no credential: {names}",
                default.secret
            ))
            .with_remedy("Rename the Secret if the identity of the cloud is meant."),
        None => CREDENTIALS.stays(format!(
            "locations that name no credential use the identity of the program, here too: {names}"
        )),
    })
}

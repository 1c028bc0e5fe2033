//! Conditions for any work: a violation is reported at once in one sentence, not by a failing
//! backup.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, anyhow, bail, ensure};
use backup_core::{
    api::{
        BackupPhase, DeleteBackupRequestPhase, LocationPhase, RestorePhase,
        backup_repository::BackupRepositoryPhase, schedule::SchedulePhase,
        server_status_request::ServerStatusRequestPhase, transfer::MovePhase,
    },
    cluster,
    labels::INSTALLATIONS_ANNOTATION,
};
use backup_lock::{Installations, Registration, VELERO_SCOPE, lease::lease_name};
use k8s_openapi::apimachinery::pkg::version::Info;
use k8s_openapi::{
    api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;
use tokio::time::Instant;

use backup_client::{errors::plain, retry};

const RETRY_BUDGET: Duration = Duration::from_secs(10);
/// Time during which a refusal may be temporary.
const STARTUP_GRACE: Duration = Duration::from_secs(20);
const REGISTRATION: &str = Registration::NAME;
/// Interval between checks of the registration.
const RECHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The kinds that the controllers need and, of each, every phase they may write.
const KINDS: [(&str, &str, &[&str]); 8] = [
    ("Backup", "backups", BackupPhase::KNOWN),
    ("Restore", "restores", RestorePhase::KNOWN),
    (
        "BackupStorageLocation",
        "backupstoragelocations",
        LocationPhase::KNOWN,
    ),
    (
        "DeleteBackupRequest",
        "deletebackuprequests",
        DeleteBackupRequestPhase::KNOWN,
    ),
    ("Schedule", "schedules", SchedulePhase::KNOWN),
    // Velero 1.18's definitions do not have `Failed`: there a request that can't be answered is
    // removed by its age.
    ("DownloadRequest", "downloadrequests", &["Processed"]),
    (
        "ServerStatusRequest",
        "serverstatusrequests",
        ServerStatusRequestPhase::KNOWN,
    ),
    ("PodVolumeBackup", "podvolumebackups", &[]),
];

/// The kinds that the data mover needs beside those: kind, plural, version, phases.
const TRANSFER_KINDS: [(&str, &str, &str, &[&str]); 3] = [
    (
        "BackupRepository",
        "backuprepositories",
        "v1",
        BackupRepositoryPhase::KNOWN,
    ),
    ("DataUpload", "datauploads", "v2alpha1", MovePhase::KNOWN),
    (
        "DataDownload",
        "datadownloads",
        "v2alpha1",
        MovePhase::KNOWN,
    ),
];

/// The kinds that a guard reads.
const GUARDED: [&str; 3] = ["backups", "restores", "deletebackuprequests"];

/// Checks the cluster and the namespace. Only an `engine` must not run beside a Velero server, and
/// only it writes phases: otherwise the definitions are the Velero server's. An error says what to
/// do.
pub(crate) async fn check(client: &Client, namespace: &str, engine: bool) -> anyhow::Result<()> {
    let version = version(client).await.map_err(|error| {
        anyhow!(
            "the API server does not answer ({}): check that the cluster is up and that the kubeconfig or service \
             account is valid",
            plain(&error)
        )
    })?;
    check_version(&version.major, &version.minor)?;
    check_kinds(client, engine).await?;
    if engine {
        check_phases(client).await?;
        check_no_velero(client, namespace).await?;
    }
    Ok(())
}

/// Reads the version. An API server that has just started answers 403 until its authorizer is
/// loaded.
async fn version(client: &Client) -> kube::Result<Info> {
    let end = Instant::now() + STARTUP_GRACE;
    loop {
        match retry::read(RETRY_BUDGET, || client.apiserver_version()).await {
            Err(kube::Error::Api(status)) if status.code == 403 && Instant::now() < end => {
                tracing::info!(
                    error = status.message,
                    "the API server has perhaps just started; asking again"
                );
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            answer => return answer,
        }
    }
}

fn check_version(major: &str, minor: &str) -> anyhow::Result<()> {
    ensure!(
        cluster::is_new_enough(major, minor),
        "the cluster runs Kubernetes {major}.{minor}, and 1.{} or later is needed: upgrade the cluster",
        cluster::OLDEST_MINOR
    );
    Ok(())
}

/// Checks that the cluster serves what the data mover needs. An error says what to do.
pub(crate) async fn check_transfers(client: &Client) -> anyhow::Result<()> {
    let mut missing = Vec::new();
    for version in ["v1", "v2alpha1"] {
        let served = served(client, &format!("velero.io/{version}")).await?;
        let needed = TRANSFER_KINDS.iter().filter(|kind| kind.2 == version);
        missing.extend(
            needed
                .filter(|(_, plural, ..)| !served.iter().any(|name| name == plural))
                .map(|(kind, ..)| *kind),
        );
    }
    ensure!(
        missing.is_empty(),
        "the cluster does not serve {} of velero.io, which --mover-image needs: install the definitions (kubectl backup \
         upgrade, or the tool that made the installation), then start again",
        missing.join(", ")
    );
    for (kind, plural, version, phases) in TRANSFER_KINDS {
        check_phases_of(client, kind, plural, version, phases).await?;
    }
    Ok(())
}

/// The plural names of the kinds that are served in a version of a group.
async fn served(client: &Client, version: &str) -> anyhow::Result<Vec<String>> {
    match retry::read(RETRY_BUDGET, || client.list_api_group_resources(version)).await {
        Ok(list) => Ok(list
            .resources
            .into_iter()
            .map(|resource| resource.name)
            .collect()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => bail!(
            "the kinds of {version} could not be listed: {}",
            plain(&error)
        ),
    }
}

async fn check_kinds(client: &Client, engine: bool) -> anyhow::Result<()> {
    let served = served(client, "velero.io/v1").await?;
    let missing: Vec<&str> = KINDS
        .iter()
        .filter(|(_, plural, _)| engine || GUARDED.contains(plural))
        .filter(|(_, plural, _)| !served.iter().any(|name| name == plural))
        .map(|(kind, ..)| *kind)
        .collect();
    ensure!(
        missing.is_empty(),
        "the cluster does not serve {} of velero.io/v1: install {} definitions{}, then start again",
        missing.join(", "),
        if engine { "the" } else { "the Velero server's" },
        if engine {
            " (kubectl backup upgrade, or the tool that made the installation)"
        } else {
            ""
        }
    );
    Ok(())
}

/// Checks that the installed definitions allow each phase that is written.
async fn check_phases(client: &Client) -> anyhow::Result<()> {
    for (kind, plural, phases) in KINDS {
        check_phases_of(client, kind, plural, "v1", phases).await?;
    }
    Ok(())
}

async fn check_phases_of(
    client: &Client,
    kind: &str,
    plural: &str,
    version: &str,
    phases: &[&str],
) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let name = format!("{plural}.velero.io");
    let definition = match retry::read(RETRY_BUDGET, || definitions.get(&name)).await {
        Ok(definition) => definition,
        // Without the permission to read it the check is skipped; a refused phase is then found
        // when it is written.
        Err(error) => {
            tracing::warn!(
                name,
                error = plain(&error),
                "the definition could not be read, so its phases were not checked"
            );
            return Ok(());
        }
    };
    let unknown = unknown_phases(&definition.data, version, phases);
    ensure!(
        unknown.is_empty(),
        "the installed definition of {kind} does not allow the phases {}: install ours (kubectl backup upgrade, or the tool that made the installation), \
         then start again",
        unknown.join(", ")
    );
    Ok(())
}

/// The phases that a definition's schema refuses. A schema without an enum refuses none.
fn unknown_phases<'a>(definition: &Value, version: &str, phases: &[&'a str]) -> Vec<&'a str> {
    let versions = definition["spec"]["versions"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let Some(version) = versions.iter().find(|served| served["name"] == version) else {
        return Vec::new();
    };
    let phase =
        &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["phase"];
    let Some(allowed) = phase["enum"].as_array() else {
        return Vec::new();
    };
    phases
        .iter()
        .copied()
        .filter(|phase| !allowed.iter().any(|value| value == phase))
        .collect()
}

/// Two engines in one namespace would both run every backup.
async fn check_no_velero(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let resource = ApiResource::erase::<Deployment>(&());
    let deployments: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), namespace, &resource);
    let everything = ListParams::default();
    let list = retry::read(RETRY_BUDGET, || deployments.list(&everything))
        .await
        .map_err(|error| {
            anyhow!(
                "the Deployments of namespace {namespace} could not be listed: {}",
                plain(&error)
            )
        })?;
    if let Some(server) = list
        .items
        .iter()
        .find(|deployment| cluster::runs_velero(&deployment.data))
    {
        let name = server.name_any();
        bail!(
            "the Velero server {namespace}/{name} runs in this namespace, and each backup would be run twice: stop it \
             first (kubectl -n {namespace} scale deployment {name} --replicas=0)"
        );
    }
    Ok(())
}

/// The namespace of this cluster's ledgers, and the namespaces of its installations.
pub(crate) struct LedgerHome {
    pub(crate) ledgers: String,
    pub(crate) installations: BTreeSet<String>,
}

/// Finds the ledgers. There is one for each scope and cluster, whatever the number of
/// installations; they are in the namespace of the registered webhook. Fails if that webhook would
/// not cover an installation in `namespace`.
pub(crate) async fn ledger_home(client: &Client, namespace: &str) -> anyhow::Result<LedgerHome> {
    if let Some(found) = registration(client).await? {
        return home_of(found, namespace);
    }
    let leases: Api<Lease> = Api::all(client.clone());
    let named =
        ListParams::default().fields(&format!("metadata.name={}", lease_name(VELERO_SCOPE)));
    let list = retry::read(RETRY_BUDGET, || leases.list(&named))
        .await
        .map_err(|error| {
            anyhow!(
                "the Leases of all namespaces could not be listed, to find ledgers: {}",
                plain(&error)
            )
        })?;
    let others = list
        .items
        .into_iter()
        .filter_map(|lease| lease.metadata.namespace);
    if let Some(other) = others.into_iter().find(|other| other != namespace) {
        bail!(
            "there is no ValidatingWebhookConfiguration {REGISTRATION}, and namespace {other} has the ledger of another \
             installation: apply the registration, and name {namespace} in its annotation {INSTALLATIONS_ANNOTATION}, \
             then start again"
        );
    }
    Ok(LedgerHome {
        ledgers: namespace.to_owned(),
        installations: [namespace.to_owned()].into(),
    })
}

async fn registration(client: &Client) -> anyhow::Result<Option<Registration>> {
    retry::read(RETRY_BUDGET, || Registration::read(client.clone())).await.map_err(|error| {
        anyhow!(
            "ValidatingWebhookConfiguration {REGISTRATION} could not be read, so it is not known where the ledgers are: {}",
            plain(&error)
        )
    })
}

fn home_of(found: Registration, namespace: &str) -> anyhow::Result<LedgerHome> {
    let ledgers = found
        .service_namespace
        .unwrap_or_else(|| namespace.to_owned());
    let mut installations = found.installations;
    ensure!(
        ledgers == namespace || installations.contains(namespace),
        "ValidatingWebhookConfiguration {REGISTRATION} leads to the installation in namespace {ledgers} and does not name \
         {namespace}, so backups and restores there claim no place in the lock: add {namespace} to its annotation \
         {INSTALLATIONS_ANNOTATION}, then start again"
    );
    installations.insert(namespace.to_owned());
    Ok(LedgerHome {
        ledgers,
        installations,
    })
}

/// Follows the registration: updates `installations`, and ends with an error once the ledgers have
/// left the namespace `ledgers`. The process then restarts with the new ones. A deleted
/// registration changes nothing.
pub(crate) async fn follow(
    client: Client,
    ledgers: String,
    namespace: String,
    installations: Installations,
) -> anyhow::Error {
    loop {
        tokio::time::sleep(RECHECK_INTERVAL).await;
        match registration(&client).await {
            Ok(None) => {}
            Ok(Some(found)) => {
                let now = match home_of(found, &namespace) {
                    Ok(now) => now,
                    Err(error) => return error,
                };
                if now.ledgers != ledgers {
                    return anyhow!(
                        "the ledgers are in namespace {} now, says ValidatingWebhookConfiguration {REGISTRATION}, and not in \
                         {ledgers} any more: starting again",
                        now.ledgers
                    );
                }
                installations.update(now.installations);
            }
            Err(error) => tracing::warn!(
                error = format!("{error:#}"),
                "the registration was not checked"
            ),
        }
    }
}

/// The cluster and the namespace of an installation, in a unique form: the uid of `kube-system`,
/// which identifies a cluster, and the namespace.
pub(crate) async fn installation(client: &Client, namespace: &str) -> anyhow::Result<String> {
    let api: Api<Namespace> = Api::all(client.clone());
    let system = retry::read(RETRY_BUDGET, || api.get_metadata("kube-system")).await;
    let system = system
        .context("namespace kube-system cannot be read: grant the controller get on namespaces")?;
    Ok(format!(
        "{}/{namespace}",
        system.metadata.uid.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_that_is_too_old_is_refused_and_told_so() {
        assert!(check_version("1", "30").is_ok());
        assert_says!(check_version("1", "29").unwrap_err(), "upgrade the cluster");
    }

    #[test]
    fn a_definition_that_refuses_a_phase_is_found() {
        let definition = |phases: Value| {
            json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"properties":
                {"status": {"properties": {"phase": {"type": "string", "enum": phases}}}}}}}]}})
        };
        let old = definition(json!(["New", "InProgress", "Processed"]));
        assert!(unknown_phases(&old, "v1", DeleteBackupRequestPhase::KNOWN).is_empty());
        assert_eq!(
            unknown_phases(&definition(json!(["New"])), "v1", &["New", "Queued"]),
            ["Queued"]
        );
        assert!(unknown_phases(&definition(Value::Null), "v1", &["Queued"]).is_empty());
        let other = unknown_phases(&definition(json!(["New"])), "v2alpha1", &["Queued"]);
        assert!(other.is_empty(), "of a version that is not there");
    }
}

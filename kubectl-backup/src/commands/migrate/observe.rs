//! Reads a Velero installation from the cluster. Changes nothing, and reads no value of a Secret.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::restore::{ActionConfigs, ConfigMapData};
use backup_core::{
    api::{BackupRepository, DataUpload, NamespacedKind, PodVolumeBackup, VolumeSnapshotLocation},
    data_movement::PASSWORD_SECRET,
    text::listed,
};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
};
use serde::de::DeserializeOwned;

use super::{
    installation::{
        BackupState, RepositoryVolume, Stored, UnfinishedWork, Unread, VeleroInstallation,
        format_of, pod_to_copy,
    },
    server::{NodeAgent, Server},
};
use crate::commands::{prelude::*, volumes};

/// The Secret that our controller reads for locations that name no credential.
const DEFAULT_SECRET: &str = "cloud-credentials";
/// Flags that name a ConfigMap whose contents matter here.
const CONFIG_MAPS: [&str; 2] = [
    "default-resource-modifier-configmap",
    "global-backup-volume-policies-configmap",
];
/// Maximum number of unreadable objects that a line names.
const MAX_NAMED: usize = 5;

/// Errors: the Deployments cannot be read, or none is a Velero server.
pub(crate) async fn observe(session: &Session) -> Result<VeleroInstallation, Problem> {
    let servers =
        list::<Deployment, _>(session, ListParams::default(), |object| Server::of(&object));
    let Some(server) = servers.await?.into_iter().next() else {
        let message = format!(
            "no Velero server was found in namespace {}",
            session.namespace
        );
        return Err(Problem::other(message).with_remedy(
            "Choose its namespace with -n. Where there is none: kubectl backup install",
        ));
    };
    let mut reader = Reader {
        session,
        unread: Vec::new(),
    };
    let mut found = VeleroInstallation {
        namespace: session.namespace.clone(),
        account_annotations: reader.annotations(&server.service_account).await,
        node_agents: reader.list::<DaemonSet, _>(|it| NodeAgent::of(&it)).await,
        locations: Stored::all(reader.list::<BackupStorageLocation, _>(Some).await),
        snapshot_locations: Stored::all(reader.list::<VolumeSnapshotLocation, _>(Some).await),
        schedules: Stored::all(reader.list::<Schedule, _>(Some).await),
        repositories: reader
            .decoded(|one: BackupRepository| Some(format_of(&one.spec.repository_type)))
            .await,
        action_settings: reader.action_settings().await,
        pods_to_copy: reader.pods_to_copy().await,
        server,
        ..VeleroInstallation::default()
    };
    let mut unfinished = Vec::new();
    found.backups = reader
        .decoded(|backup: Backup| {
            unfinished.extend(UnfinishedWork::of_backup(&backup));
            Some(BackupState::of(&backup))
        })
        .await;
    let restores = reader.decoded(|restore: Restore| UnfinishedWork::of_restore(&restore));
    unfinished.extend(restores.await);
    found.unfinished = unfinished;
    let uploads = reader.decoded(|upload: DataUpload| RepositoryVolume::of_upload(&upload));
    found.volumes = uploads.await;
    let of_pods = reader.decoded(|one: PodVolumeBackup| RepositoryVolume::of_pod_volume(&one));
    found.volumes.extend(of_pods.await);
    found.config_maps = reader.config_maps(named_config_maps(&found)).await;
    found.secrets = reader.secrets(&found.server).await;
    found.unread = reader.unread;
    Ok(found)
}

/// Lists the objects of a kind in the installation's namespace, and keeps of each what `keep` gives.
async fn list<K: NamespacedKind, T>(
    session: &Session,
    params: ListParams,
    mut keep: impl FnMut(Value) -> Option<T>,
) -> Result<Vec<T>, Problem> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(session.client.clone(), &session.namespace, &kind);
    session
        .list(
            About::of::<K>("list", ""),
            &api,
            params,
            |object: DynamicObject| keep(serde_json::to_value(object).unwrap_or_default()),
        )
        .await
}

/// Names of the ConfigMaps that flags, node agents and Schedules name.
fn named_config_maps(found: &VeleroInstallation) -> BTreeSet<String> {
    let by_flag = CONFIG_MAPS
        .iter()
        .filter_map(|flag| found.server.flag_value(flag))
        .map(str::to_owned);
    let of_agents = found
        .node_agents
        .iter()
        .filter_map(|agent| agent.config_map.clone());
    let schedules = found.schedules.iter().filter_map(|stored| {
        let schedule = stored.object.as_ref().ok()?;
        let policy = schedule.spec.template.resource_policy.as_ref()?;
        Some(policy.name.clone())
    });
    by_flag.chain(of_agents).chain(schedules).collect()
}

/// Reads parts of the installation, and notes which of them could not be read.
struct Reader<'a> {
    session: &'a Session,
    unread: Vec<Unread>,
}

impl Reader<'_> {
    /// The value; the default if it could not be read.
    fn known<T: Default>(&mut self, result: Result<T, Problem>) -> T {
        match result {
            Ok(value) => value,
            // The version of Velero has no such kind.
            Err(problem) if problem.kind == ProblemKind::NotServed => T::default(),
            Err(problem) => {
                self.note(problem);
                T::default()
            }
        }
    }

    fn note(&mut self, problem: Problem) {
        self.unread.push(Unread {
            what: problem.to_string(),
            remedy: problem.remedy,
        });
    }

    async fn list<K: NamespacedKind, T>(&mut self, keep: impl FnMut(Value) -> Option<T>) -> Vec<T> {
        let listed = list::<K, T>(self.session, ListParams::default(), keep).await;
        self.known(listed)
    }

    /// Objects that cannot be decoded are noted.
    async fn decoded<K: NamespacedKind, T>(
        &mut self,
        mut keep: impl FnMut(K) -> Option<T>,
    ) -> Vec<T> {
        let mut unreadable = Vec::new();
        let kept = self
            .list::<K, T>(|object| {
                let name = object["metadata"]["name"].as_str().map(str::to_owned);
                let decoded = decode::<K>(object);
                if decoded.is_none() {
                    unreadable.extend(name);
                }
                keep(decoded?)
            })
            .await;
        if !unreadable.is_empty() {
            let named = &unreadable[..unreadable.len().min(MAX_NAMED)];
            self.unread.push(Unread {
                what: format!(
                    "{} cannot be read: {}",
                    K::plural(&()),
                    listed(named, unreadable.len())
                ),
                remedy: None,
            });
        }
        kept
    }

    async fn annotations(&mut self, account: &str) -> BTreeMap<String, String> {
        let found = optional(self.session.get::<ServiceAccount>(account).await);
        let found = self.known(found);
        found
            .and_then(|account| account.metadata.annotations)
            .unwrap_or_default()
    }

    async fn action_settings(&mut self) -> Vec<ConfigMapData> {
        let params = ListParams::default().labels(ActionConfigs::SELECTOR);
        let listed = list::<ConfigMap, _>(self.session, params, |object| {
            let map = decode::<ConfigMap>(object)?;
            Some(ConfigMapData {
                name: map.name_any(),
                labels: map.metadata.labels.unwrap_or_default(),
                data: map.data.unwrap_or_default(),
            })
        });
        let listed = listed.await;
        self.known(listed)
    }

    async fn pods_to_copy(&mut self) -> Vec<String> {
        let listed = volumes::all(self.session, |pod: Pod| pod_to_copy(&pod)).await;
        self.known(listed)
    }

    /// Data of ConfigMaps by name; `None` if one does not exist. What cannot be read is left out.
    async fn config_maps(
        &mut self,
        names: BTreeSet<String>,
    ) -> BTreeMap<String, Option<BTreeMap<String, String>>> {
        let mut maps = BTreeMap::new();
        for name in names {
            match optional(self.session.get::<ConfigMap>(&name).await) {
                Ok(found) => {
                    maps.insert(name, found.map(|map| map.data.unwrap_or_default()));
                }
                Err(problem) => self.note(problem),
            }
        }
        maps
    }

    /// Names of the existing Secrets, of those that our controller reads by name.
    async fn secrets(&mut self, server: &Server) -> BTreeSet<String> {
        let mounted = server.credentials.as_ref();
        let names = [DEFAULT_SECRET, PASSWORD_SECRET]
            .into_iter()
            .chain(mounted.map(|entry| entry.secret.as_str()));
        let mut existing = BTreeSet::new();
        for name in names {
            let found = optional(self.session.get_metadata::<Secret>(name).await);
            if self.known(found.map(|found| found.is_some())) {
                existing.insert(name.to_owned());
            }
        }
        existing
    }
}

fn decode<K: DeserializeOwned>(object: Value) -> Option<K> {
    serde_json::from_value(object).ok()
}

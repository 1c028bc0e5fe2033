//! `backup-controller/volume-data-restorer`: a claim whose data is in a repository of our data mover
//! is filled from there.
//!
//! The action creates a DataDownload, and the claim names it as its data source. No provisioner
//! fills such a claim, and pods wait for it. The data mover fills another volume, and gives it to
//! the claim. Until then the DataDownload is an operation of the restore.
//!
//! A claim that exists keeps its data, unless the Restore has an `existingVolumeDataPolicy`. Then
//! the DataDownload names the claim's volume, and the claim stays unchanged.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use backup_core::{
    api::{
        DataDownload, Restore,
        transfer::{DataDownloadSpec, DataMover, TargetVolumeSpec},
    },
    data_movement::{
        CLAIM_UID_LABEL, DATA_MOVER, DELETE_EXTRA_FILES, InPlaceRestore, OPERATION_LABEL,
        VOLUME_PROPERTIES_ANNOTATION, data_source, download_name,
    },
    labels, names,
    resources::CLAIMS,
    volume_data::MovedData,
    volume_info::VolumeProperties,
};
use backup_runtime::Cluster;
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};

use super::{
    restored_volumes::RestoredVolumes, transfer_progress::operation_progress,
    transfers::DownloadApi,
};
use crate::{
    ActionError, OperationProgress,
    action::BuiltInAction,
    csi::{SnapshotApi, restore::is_foreign_claim},
    restore::{
        RestoreActionInput, RestoreActionOutput, RestoreItemAction, RestoreRules,
        json::{self, Object},
    },
};

#[cfg(test)]
mod tests;

pub const NAME: &str = MovedAction::NAME;

/// Label in the selector that Velero gives to claims whose data it moves; it keeps provisioners
/// away (Velero `pkg/apis/velero/v1/labels_annotations.go`, v1.18).
const DYNAMIC_RESTORE: &str = "velero.io/dynamic-pv-restore";

/// The data of claims in a repository, by namespace and name of the claim in the backup.
pub type MovedClaims = BTreeMap<(String, String), MovedData>;
/// Properties of the volumes in the backup, by namespace and name of the claim in the backup.
pub type ClaimProperties = BTreeMap<(String, String), VolumeProperties>;

/// The part of one restore that comes from a repository.
pub struct MovedRestore {
    pub claims: MovedClaims,
    /// What new volumes get.
    pub properties: ClaimProperties,
    /// BackupStorageLocation with the repository: that of the backup.
    pub location: String,
    pub rules: Arc<RestoreRules>,
    /// Records the claims that get their data.
    pub restored: RestoredVolumes,
}

/// The action of one restore. Without `downloads`, which a plan does not have, it creates nothing
/// and starts no operation.
pub fn action(
    api: &SnapshotApi,
    downloads: Option<&DownloadApi>,
    moved: MovedRestore,
) -> Arc<dyn RestoreItemAction> {
    Arc::new(MovedAction {
        api: api.clone(),
        downloads: downloads.cloned(),
        moved,
    })
}

/// The built-in actions that start operations, to poll and cancel the operations of any restore.
pub fn operating(cluster: &Cluster) -> Vec<Arc<dyn RestoreItemAction>> {
    let Cluster {
        client,
        namespace,
        leadership,
        ..
    } = cluster;
    let nothing = MovedRestore {
        claims: MovedClaims::new(),
        properties: ClaimProperties::new(),
        location: String::new(),
        rules: Arc::default(),
        restored: RestoredVolumes::default(),
    };
    let downloads = DownloadApi::new(client, namespace, leadership);
    vec![action(
        &SnapshotApi::new(client, leadership),
        Some(&downloads),
        nothing,
    )]
}

struct MovedAction {
    /// Reads claims.
    api: SnapshotApi,
    downloads: Option<DownloadApi>,
    moved: MovedRestore,
}

impl BuiltInAction for MovedAction {
    const NAME: &'static str = "backup-controller/volume-data-restorer";
    const RESOURCE: &'static str = CLAIMS;
    const NOT_SERVED_HINT: &'static str =
        "; if velero.io/v2alpha1 is not served, install its definitions (`kubectl backup install`)";
}

impl MovedAction {
    /// The requests for DataDownloads. Errors: it is the action of a plan.
    fn downloads(&self) -> Result<&DownloadApi, ActionError> {
        self.downloads
            .as_ref()
            .ok_or_else(|| Self::refuse("a plan starts no operations"))
    }

    /// The volume of a claim that exists. Errors: it has none, so there is nothing to restore into.
    async fn existing_volume(
        &self,
        namespace: &str,
        claim: &str,
        policy: InPlaceRestore,
    ) -> Result<ExistingVolume, ActionError> {
        let found = self.api.claim(namespace, claim).await;
        let found = found.map_err(|error| Self::failed("reading the claim", &error))?;
        let volume = found
            .as_ref()
            .and_then(|claim| claim["spec"]["volumeName"].as_str())
            .filter(|volume| !volume.is_empty());
        let Some(volume) = volume else {
            return Err(Self::refuse(
                "the claim exists and has no volume, so no data can be restored into it; delete it \
                 and restore it again",
            ));
        };
        Ok(ExistingVolume {
            name: volume.to_owned(),
            policy,
        })
    }
}

#[async_trait]
impl RestoreItemAction for MovedAction {
    fn may_add_items(&self) -> bool {
        false
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        let RestoreActionInput {
            from_backup,
            restore,
            ..
        } = input;
        let namespace = json::text(from_backup, &["metadata"], "namespace").unwrap_or_default();
        let claim = json::text(from_backup, &["metadata"], "name").unwrap_or_default();
        let key = (namespace.to_owned(), claim.to_owned());
        let Some(data) = self.moved.claims.get(&key) else {
            return Ok(RestoreActionOutput::default());
        };
        let is_wanted =
            restore.spec.restore_pvs != Some(false) && input.left_to_controller.is_none();
        let target = self.moved.rules.target(namespace);
        if !is_wanted {
            return Ok(RestoreActionOutput::default());
        }
        let is_foreign =
            is_foreign_claim(&self.api, &self.moved.rules, target, claim, restore).await;
        let is_foreign =
            is_foreign.map_err(|error| Self::failed("looking for the claim", &error))?;
        let policy = restore.spec.existing_volume_data_policy.as_deref();
        let existing = match (is_foreign, InPlaceRestore::of(policy)) {
            (false, _) => None,
            (true, Some(policy)) => Some(self.existing_volume(target, claim, policy).await?),
            // The claim stays unchanged, with its own data; it is only compared.
            (true, None) => return Ok(RestoreActionOutput::default()),
        };
        let uid = restore.metadata.uid.as_deref().unwrap_or_default();
        let name = download_name(claim, uid, namespace);
        let is_in_place = existing.is_some();
        if let Some(downloads) = &self.downloads {
            let wanted = Download {
                name: &name,
                target,
                location: &self.moved.location,
                data,
                properties: self.moved.properties.get(&key),
                existing,
            };
            let download = wanted.object(from_backup, restore, downloads.namespace());
            let download = download.map_err(Self::refuse)?;
            let created = downloads.create(&download).await;
            created
                .map_err(|error| Self::failed(&format!("creating DataDownload {name}"), &error))?;
        }
        let restored = &self.moved.restored;
        let operation = self.downloads.is_some().then(|| name.clone());
        if is_in_place {
            restored.moved_in_place(target, claim, &name, data);
            return Ok(RestoreActionOutput {
                operation,
                ..RestoreActionOutput::default()
            });
        }
        restored.moved(target, claim, &name, data);
        let mut item = input.item.clone();
        wait_for(&mut item, &name);
        Ok(RestoreActionOutput {
            item: Some(item),
            operation,
            ..RestoreActionOutput::default()
        })
    }

    async fn progress(
        &self,
        operation: &str,
        _: &Restore,
    ) -> Result<OperationProgress, ActionError> {
        check(operation)?;
        let found = self.downloads()?.get(operation).await;
        let found = found
            .map_err(|error| Self::failed(&format!("reading DataDownload {operation}"), &error))?;
        Ok(found.map_or_else(
            || OperationProgress {
                completed: true,
                error: format!(
                    "DataDownload {operation} was deleted before the data was known to be restored; \
                     if the claim is Pending, delete it and restore it again"
                ),
                updated: Some(Timestamp::now()),
                ..OperationProgress::default()
            },
            |download| progress(&download),
        ))
    }

    async fn cancel(&self, operation: &str, _: &Restore) -> Result<(), ActionError> {
        check(operation)?;
        let cancelled = self.downloads()?.cancel(operation).await;
        cancelled
            .map_err(|error| Self::failed(&format!("cancelling DataDownload {operation}"), &error))
    }
}

/// An operation's id is the name of its DataDownload.
fn check(operation: &str) -> Result<(), ActionError> {
    if names::is_object_name(operation) {
        Ok(())
    } else {
        Err(MovedAction::refuse(format!(
            "{operation:?} is none of its operations"
        )))
    }
}

/// The volume of a claim that exists.
struct ExistingVolume {
    /// Name of the PersistentVolume.
    name: String,
    policy: InPlaceRestore,
}

/// The DataDownload of a claim.
struct Download<'a> {
    name: &'a str,
    /// Namespace of the claim in the cluster.
    target: &'a str,
    location: &'a str,
    data: &'a MovedData,
    /// What a new volume gets.
    properties: Option<&'a VolumeProperties>,
    /// The volume to restore into, if the claim exists.
    existing: Option<ExistingVolume>,
}

impl Download<'_> {
    /// The object for a claim of the backup, in the namespace of the installation.
    fn object(
        &self,
        claim: &Object,
        restore: &Restore,
        namespace: &str,
    ) -> Result<DataDownload, &'static str> {
        let Some(owner) = restore.controller_owner_ref(&()) else {
            return Err("the Restore has no name or uid");
        };
        let mut download = DataDownload::new(self.name, self.spec(claim, restore));
        let claim_uid = json::text(claim, &["metadata"], "uid").unwrap_or_default();
        let all = [
            (
                labels::RESTORE_NAME,
                labels::valid_value(&restore.name_any()),
            ),
            (labels::RESTORE_UID, owner.uid.clone()),
            (CLAIM_UID_LABEL, claim_uid.to_owned()),
            (OPERATION_LABEL, self.name.to_owned()),
        ];
        let metadata = &mut download.metadata;
        metadata.namespace = Some(namespace.to_owned());
        metadata.labels = Some(all.map(|(key, value)| (key.to_owned(), value)).into());
        metadata.annotations = self.annotations();
        metadata.owner_references = Some(vec![owner]);
        Ok(download)
    }

    /// A volume that exists keeps its properties.
    fn annotations(&self) -> Option<BTreeMap<String, String>> {
        let properties = self.properties.filter(|_| self.existing.is_none())?;
        let properties = serde_json::to_string(properties).ok()?;
        Some([(VOLUME_PROPERTIES_ANNOTATION.to_owned(), properties)].into())
    }

    fn spec(&self, claim: &Object, restore: &Restore) -> DataDownloadSpec {
        let text = |key| {
            json::text(claim, &["metadata"], key)
                .unwrap_or_default()
                .to_owned()
        };
        let timeout = restore.spec.item_operation_timeout;
        let existing = self.existing.as_ref();
        let config = restore.spec.uploader_config.as_ref();
        let removes_extra = existing.is_some()
            && config.is_some_and(|config| config.delete_extra_files == Some(true));
        let mut mover_config = BTreeMap::new();
        if removes_extra {
            mover_config.insert(DELETE_EXTRA_FILES.to_owned(), "true".to_owned());
        }
        DataDownloadSpec {
            target_volume: TargetVolumeSpec {
                pvc: text("name"),
                pv: existing.map_or_else(String::new, |volume| volume.name.clone()),
                namespace: self.target.to_owned(),
                ..TargetVolumeSpec::default()
            },
            backup_storage_location: self.location.to_owned(),
            snapshot_id: self.data.snapshot.clone(),
            snapshot_size: self.data.size,
            source_namespace: text("namespace"),
            mover: DataMover {
                datamover: Some(DATA_MOVER.to_owned()),
                data_mover_config: mover_config,
                operation_timeout: timeout.unwrap_or_default(),
                ..DataMover::default()
            },
            restore_type: existing.map(|volume| volume.policy.as_str().to_owned()),
            ..DataDownloadSpec::default()
        }
    }
}

/// Makes a claim wait until a DataDownload has filled its volume.
fn wait_for(claim: &mut Object, download: &str) {
    json::remove(claim, &["spec"], &["volumeName"]);
    let labels = ["spec", "selector", "matchLabels"];
    if json::text(claim, &labels, DYNAMIC_RESTORE).is_some() {
        json::remove(claim, &labels, &[DYNAMIC_RESTORE]);
        // An empty one keeps provisioners away, too.
        if json::object(claim, &["spec", "selector"]).is_some_and(Object::is_empty) {
            json::remove(claim, &["spec"], &["selector"]);
        }
    }
    let source = data_source(download);
    // The API server copies the second to the first; a claim that is compared later has both.
    json::set(claim, &["spec"], "dataSource", source.clone());
    json::set(claim, &["spec"], "dataSourceRef", source);
}

/// The state of the operation. It ends when the data mover has ended the DataDownload.
fn progress(download: &DataDownload) -> OperationProgress {
    let object = format!("DataDownload {}", download.name_any());
    operation_progress(&object, &download.status.transfer)
}

//! Deletes the data of a backup outside of cluster and bucket that is only known from its files:
//! data that plugins have made for its items (Velero
//! `internal/delete/delete_item_action_handler.go`, v1.18), and snapshots of volumes.

use std::{collections::BTreeSet, time::Duration};

use backup_actions::{ActionSet, ItemAction as _, csi, restore::json::labels};
use backup_core::{api::Backup, snapshot::VolumeSnapshot};
use backup_plugins::{PluginAction, catalog::Kind};
use backup_store::{Contents, Location, StoreError};
use kube::ResourceExt as _;
use serde_json::Value;

use super::{DeletionController, StepError, decide::owns_files};
use crate::discovery::ServedTypes;

/// Timeout for volume drivers to delete the snapshots of one backup; then the request reports that
/// they have not.
const DRIVER_TIMEOUT: Duration = Duration::from_mins(1);

impl DeletionController {
    /// Contents that are missing or unreadable do not stop the deletion: they are why users delete
    /// a broken backup.
    pub(super) async fn delete_external_data(
        &self,
        backup: &Backup,
        store: &Location,
    ) -> Result<(), StepError> {
        let name = backup.name_any();
        let snapshots = csi::SnapshotApi::new(&self.cluster.client, &self.cluster.leadership);
        // The current setting says nothing about earlier snapshots.
        let has_csi = backup.status.csi_volume_snapshots_attempted > 0;
        let actions = self.delete_actions().await?;
        if has_csi || !actions.is_empty() {
            self.cluster.leadership.check()?;
            match store.read_contents(&name, self.limits).await {
                Ok(contents) => {
                    self.run_actions(backup, &contents, &actions).await?;
                    if has_csi {
                        let problems =
                            csi::delete::snapshots(&snapshots, backup, &contents, DRIVER_TIMEOUT)
                                .await;
                        StepError::unless_empty(problems)?;
                    }
                }
                Err(error) if error.is_transient() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(backup = name, %error, "its snapshots are not known, and may stay in the storage system");
                }
            }
        }
        // VolumeSnapshotContents that sync imported (Velero up to 1.16).
        self.cluster.leadership.check()?;
        StepError::unless_empty(csi::delete::synced(&snapshots, backup, DRIVER_TIMEOUT).await?)?;
        self.delete_native_snapshots(backup, store).await
    }

    /// The plugins for the items of a deleted backup. If one cannot be run, nothing is deleted: its
    /// data would stay.
    async fn delete_actions(&self) -> Result<ActionSet<PluginAction>, StepError> {
        let found = self
            .plugins
            .actions(&[Kind::DeleteItemAction], &BTreeSet::new(), None)
            .await;
        let mut problems = found.problems;
        let mut actions = ActionSet::default();
        if !found.usable.is_empty() {
            let served = ServedTypes::load(&self.cluster.client).await?;
            actions = ActionSet::new("action", found.usable, &|name| served.resolve(name));
            problems.extend(actions.unusable.iter().cloned());
        }
        StepError::unless_empty(problems)?;
        Ok(actions)
    }

    /// Runs the actions on every item that they apply to, until one fails; a repetition starts at
    /// the first item.
    async fn run_actions(
        &self,
        backup: &Backup,
        contents: &Contents,
        actions: &ActionSet<PluginAction>,
    ) -> Result<(), StepError> {
        for group_resource in contents.types() {
            let of_type: Vec<_> = actions.for_type(&group_resource).collect();
            if of_type.is_empty() {
                continue;
            }
            for item in contents.items(&group_resource) {
                let object = match contents.object(item) {
                    Ok(object) => Value::Object(object),
                    Err(error) if error.is_transient() => {
                        return Err(StepError::Retry(error.into()));
                    }
                    Err(error) => return Err(StepError::Final(vec![error.to_string()])),
                };
                let namespace = contents.namespace_of(item);
                for one in of_type.iter().filter(|one| {
                    one.applies_to(namespace, || {
                        object.as_object().map(labels).unwrap_or_default()
                    })
                }) {
                    self.cluster.leadership.check()?;
                    if let Err(error) = one.action.delete_item(&object, backup).await {
                        let name = object
                            .pointer("/metadata/name")
                            .and_then(Value::as_str)
                            .unwrap_or_default();
                        let place = namespace
                            .map(|namespace| format!("{namespace}/"))
                            .unwrap_or_default();
                        let action = one.action.name();
                        let problem =
                            format!("{action} on {group_resource} {place}{name}: {error}");
                        return Err(StepError::Final(vec![problem]));
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes the snapshots that plugins have taken, which a file beside the contents lists. If
    /// one remains, the backup is kept, too: only its file names the snapshot.
    async fn delete_native_snapshots(
        &self,
        backup: &Backup,
        store: &Location,
    ) -> Result<(), StepError> {
        let name = backup.name_any();
        let values = match store.read_volume_snapshots(&name).await {
            Ok(Some(values)) if !values.is_empty() => values,
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() => return Err(error.into()),
            Err(error) => {
                tracing::warn!(backup = name, %error, "its snapshots by plugins are not known, and may stay in the storage system");
                return Ok(());
            }
        };
        // Files under this name may belong to another backup.
        let stored = match store.read_metadata(&name).await {
            Err(StoreError::Corrupt { .. }) => None,
            stored => stored?,
        };
        if !owns_files(backup, stored.as_ref()) {
            return Ok(());
        }
        let mut snapshots = Vec::with_capacity(values.len());
        let mut problems = Vec::new();
        for value in values {
            match serde_json::from_value::<VolumeSnapshot>(value) {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(error) => {
                    problems.push(format!(
                        "a snapshot that is recorded for the backup cannot be read: {error}"
                    ));
                }
            }
        }
        problems.extend(self.snapshot_locations.delete(&snapshots).await?);
        StepError::unless_empty(problems)
    }
}

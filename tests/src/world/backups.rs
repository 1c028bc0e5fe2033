//! Backups and restores of tests, and waiting for their ends.

use std::{fmt::Debug, time::Duration};

use anyhow::ensure;
use backup_core::{
    api::{
        Backup, BackupPhase, BackupSpec, BackupStatus, BackupStorageLocation, DeleteBackupRequest,
        Restore, RestorePhase, RestoreSpec, RestoreStatus,
        delete_backup_request::DeleteBackupRequestSpec,
    },
    labels::{BLOCKED_ANNOTATION, annotation},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::{Serialize, de::DeserializeOwned};

use super::World;
use crate::{api::ApiExt as _, install::NAMESPACE};

const END_TIMEOUT: Duration = Duration::from_mins(5);
const PHASE_TIMEOUT: Duration = Duration::from_mins(2);

pub fn of_namespaces(names: &[&str]) -> BackupSpec {
    BackupSpec {
        included_namespaces: names.iter().map(ToString::to_string).collect(),
        ..BackupSpec::default()
    }
}

/// A backup of these namespaces into this location.
pub fn into_location(location: &str, namespaces: &[&str]) -> BackupSpec {
    BackupSpec {
        storage_location: Some(location.to_owned()),
        ..of_namespaces(namespaces)
    }
}

/// A backup of a namespace into the location of the same name.
pub fn of_place(name: &str) -> BackupSpec {
    into_location(name, &[name])
}

/// A restore of everything in a backup.
pub fn from_backup(name: &str) -> RestoreSpec {
    RestoreSpec {
        backup_name: Some(name.to_owned()),
        ..RestoreSpec::default()
    }
}

/// A restore of the namespace and backup of this name into another namespace.
pub fn into_namespace(name: &str, other: &str) -> RestoreSpec {
    RestoreSpec {
        namespace_mapping: [(name.to_owned(), other.to_owned())].into(),
        ..from_backup(name)
    }
}

/// A restore that claims a namespace, from a backup that does not exist.
pub fn claiming(namespace: &str) -> RestoreSpec {
    RestoreSpec {
        included_namespaces: vec![namespace.to_owned()],
        ..from_backup("there-is-none")
    }
}

/// Operations of a backup or restore: attempted, completed, failed.
pub trait Operations {
    fn operations(&self) -> [i64; 3];
}

impl Operations for BackupStatus {
    fn operations(&self) -> [i64; 3] {
        [
            self.backup_item_operations_attempted,
            self.backup_item_operations_completed,
            self.backup_item_operations_failed,
        ]
    }
}

impl Operations for RestoreStatus {
    fn operations(&self) -> [i64; 3] {
        [
            self.restore_item_operations_attempted,
            self.restore_item_operations_completed,
            self.restore_item_operations_failed,
        ]
    }
}

/// An object with this annotation, and no other.
pub fn annotated<K: ResourceExt>(mut object: K, key: &str, value: &str) -> K {
    *object.annotations_mut() = [(key.to_owned(), value.to_owned())].into();
    object
}

/// Why a backup is blocked; empty if it is not.
pub fn blocked_reason(backup: &Backup) -> &str {
    annotation(backup, BLOCKED_ANNOTATION).unwrap_or_default()
}

impl World {
    /// Objects of a kind in the namespace of the installation.
    pub fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn backups(&self) -> Api<Backup> {
        self.api()
    }

    pub fn restores(&self) -> Api<Restore> {
        self.api()
    }

    pub fn locations(&self) -> Api<BackupStorageLocation> {
        self.api()
    }

    pub async fn create_backup(&self, name: &str, spec: BackupSpec) -> anyhow::Result<Backup> {
        Ok(self
            .backups()
            .create_object(&Backup::new(name, spec))
            .await?)
    }

    /// Creates a Backup of the namespace of the same name.
    pub async fn start_backup(&self, name: &str) -> anyhow::Result<Backup> {
        self.create_backup(name, of_namespaces(&[name])).await
    }

    pub async fn create_restore(&self, name: &str, spec: RestoreSpec) -> anyhow::Result<Restore> {
        Ok(self
            .restores()
            .create_object(&Restore::new(name, spec))
            .await?)
    }

    /// Creates a Restore that claims a namespace, from a backup that does not exist.
    pub async fn create_claiming_restore(
        &self,
        name: &str,
        namespace: &str,
    ) -> anyhow::Result<Restore> {
        self.create_restore(name, claiming(namespace)).await
    }

    /// Creates a Backup and waits until it has ended. Errors: it ends in another phase than
    /// `phase`.
    pub async fn run_backup(
        &self,
        name: &str,
        spec: BackupSpec,
        phase: BackupPhase,
    ) -> anyhow::Result<Backup> {
        self.create_backup(name, spec).await?;
        self.backup_ends(name, phase).await
    }

    /// Creates a Backup and waits until it is Completed. Errors: it ends in another phase.
    pub async fn back_up(&self, name: &str, spec: BackupSpec) -> anyhow::Result<Backup> {
        self.run_backup(name, spec, BackupPhase::Completed).await
    }

    /// Creates a namespace with `config_maps` ConfigMaps, and a backup of it with the same name.
    pub async fn backed_up(&self, name: &str, config_maps: usize) -> anyhow::Result<Backup> {
        self.config_maps(name, config_maps).await?;
        self.back_up(name, of_namespaces(&[name])).await
    }

    /// Creates a Restore and waits until it has ended. Errors: it ends in another phase.
    pub async fn run_restore(
        &self,
        name: &str,
        spec: RestoreSpec,
        phase: RestorePhase,
    ) -> anyhow::Result<Restore> {
        self.create_restore(name, spec).await?;
        self.restore_ends(name, phase).await
    }

    /// Creates a Restore and waits until it is Completed. Errors: it ends in another phase.
    pub async fn restore(&self, name: &str, spec: RestoreSpec) -> anyhow::Result<Restore> {
        self.run_restore(name, spec, RestorePhase::Completed).await
    }

    /// Waits until a backup has ended, in whatever phase.
    pub async fn backup_ended(&self, name: &str) -> anyhow::Result<Backup> {
        self.reached(name, "has ended", END_TIMEOUT, |backup: &Backup| {
            backup.phase().is_terminal()
        })
        .await
    }

    /// Waits until a restore has ended, in whatever phase.
    pub async fn restore_ended(&self, name: &str) -> anyhow::Result<Restore> {
        self.reached(name, "has ended", END_TIMEOUT, |restore: &Restore| {
            restore.phase().is_terminal()
        })
        .await
    }

    /// Waits until a backup has ended. Errors: it ends in another phase.
    pub async fn backup_ends(&self, name: &str, phase: BackupPhase) -> anyhow::Result<Backup> {
        let backup = self.backup_ended(name).await?;
        ensure!(backup.phase() == phase, "{name}: {:?}", backup.status);
        Ok(backup)
    }

    /// Waits until a restore has ended. Errors: it ends in another phase.
    pub async fn restore_ends(&self, name: &str, phase: RestorePhase) -> anyhow::Result<Restore> {
        let restore = self.restore_ended(name).await?;
        let results = self
            .restore_file(name, "results.gz")
            .await
            .unwrap_or_default();
        ensure!(
            restore.phase() == phase,
            "{name}: {:?}, {results}",
            restore.status
        );
        Ok(restore)
    }

    /// Waits until a backup is in this phase.
    pub async fn backup_reaches(&self, name: &str, phase: BackupPhase) -> anyhow::Result<Backup> {
        self.reached(
            name,
            &format!("is {phase}"),
            PHASE_TIMEOUT,
            |backup: &Backup| backup.phase() == phase,
        )
        .await
    }

    /// Waits until a restore is in this phase.
    pub async fn restore_reaches(
        &self,
        name: &str,
        phase: RestorePhase,
    ) -> anyhow::Result<Restore> {
        self.reached(
            name,
            &format!("is {phase}"),
            PHASE_TIMEOUT,
            |restore: &Restore| restore.phase() == phase,
        )
        .await
    }

    /// Waits until a backup waits for operations.
    pub async fn backup_waits(&self, name: &str) -> anyhow::Result<Backup> {
        self.backup_reaches(name, BackupPhase::WaitingForPluginOperations)
            .await
    }

    /// Waits until a backup is blocked in this phase, and returns the reason.
    pub async fn backup_blocked(&self, name: &str, phase: &BackupPhase) -> anyhow::Result<String> {
        let blocked =
            |backup: &Backup| !blocked_reason(backup).is_empty() && backup.phase() == *phase;
        let backup = self
            .reached(
                name,
                &format!("is blocked in {phase}"),
                PHASE_TIMEOUT,
                blocked,
            )
            .await?;
        ensure!(
            backup.status.completion_timestamp.is_none(),
            "completed before it is stored"
        );
        Ok(blocked_reason(&backup).to_owned())
    }

    async fn reached<K>(
        &self,
        name: &str,
        what: &str,
        deadline: Duration,
        is_so: impl Fn(&K) -> bool,
    ) -> anyhow::Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Debug
            + Serialize
            + DeserializeOwned,
    {
        let reached = self
            .api::<K>()
            .wait_until(name, what, deadline, is_so)
            .await;
        reached.map_err(|error| error.context(self.logs(15)))
    }

    /// Creates a DeleteBackupRequest with the name of the backup.
    pub async fn request_deletion(&self, backup: &str) -> anyhow::Result<()> {
        self.request_deletion_as(backup, backup).await
    }

    /// Creates a DeleteBackupRequest with another name.
    pub async fn request_deletion_as(&self, request: &str, backup: &str) -> anyhow::Result<()> {
        let spec = DeleteBackupRequestSpec {
            backup_name: backup.to_owned(),
            ..Default::default()
        };
        self.api()
            .create_object(&DeleteBackupRequest::new(request, spec))
            .await?;
        Ok(())
    }

    pub async fn backup_gone(&self, name: &str) -> anyhow::Result<()> {
        self.backups().wait_gone(name, PHASE_TIMEOUT).await
    }
}

//! The lock in tests: its ledger, refusals, and controllers that are paused so that no claim ends
//! by itself.

use std::{ops::Deref, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use backup_core::{
    api::{BackupStorageLocation, BackupStorageLocationStatus},
    labels::{INSTALLATIONS_ANNOTATION, LEDGER_ANNOTATION},
};
use backup_lock::Registration;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, coordination::v1::Lease,
};
use kube::{
    Api, ResourceExt as _,
    core::{ObjectMeta, Status},
};
use serde_json::json;

use super::{World, backups::of_namespaces};
use crate::{
    api::{ApiExt as _, all_objects, dry_run, objects_in},
    install::{NAMESPACE, ensure_secret},
    object_store::S3,
    process::Process,
    wait::{eventually, when},
};

const CONTROLLER: &str = "backup-controller";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const KIND: &str = "ValidatingWebhookConfiguration";
/// Timeout for each replica to read the registration again.
const NAMED: Duration = Duration::from_secs(30);
/// Number of successive answers that prove that each replica has.
const IN_A_ROW: usize = 12;

/// A world whose controllers are paused until this is dropped.
pub struct Paused<'w>(&'w mut World);

impl Deref for Paused<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        self.0
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        for controller in &self.0.controllers {
            let _ = controller.resume();
        }
    }
}

/// The API server's refusal. Errors: the request was not refused, or there was no answer.
pub fn refusal<T, E: Into<anyhow::Error>>(result: Result<T, E>) -> anyhow::Result<Status> {
    match result.map_err(Into::into) {
        Ok(_) => bail!("admitted, and not refused"),
        Err(error) => match error.downcast::<kube::Error>()? {
            kube::Error::Api(status) => Ok(*status),
            other => Err(other.into()),
        },
    }
}

impl World {
    /// The refusal of a Backup of this namespace.
    pub async fn refused_backup(&self, name: &str, namespace: &str) -> anyhow::Result<Status> {
        refusal(self.create_backup(name, of_namespaces(&[namespace])).await)
    }

    /// Pauses the controllers, so that no object ends by itself.
    pub fn pause_controllers(&mut self) -> anyhow::Result<Paused<'_>> {
        self.controllers.iter().try_for_each(Process::pause)?;
        Ok(Paused(self))
    }

    /// Names a namespace in the registration as one of a further installation, and waits until
    /// every replica knows it: only then a dry run of a Backup with a bad duration is refused
    /// there.
    pub async fn name_installation(&self, namespace: &str) -> anyhow::Result<()> {
        let registrations = all_objects(&self.client, "admissionregistration.k8s.io/v1", KIND);
        let annotation =
            json!({ "metadata": { "annotations": { INSTALLATIONS_ANNOTATION: namespace } } });
        registrations
            .merge_patch(Registration::NAME, annotation)
            .await?;
        let backups = objects_in(&self.client, namespace, "velero.io/v1", "Backup");
        let bad = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "does-it-count" }, "spec": { "ttl": "tomorrow" } });
        let bad = serde_json::from_value(bad)?;
        let mut in_a_row = 0;
        eventually("every replica knows the installation", NAMED, async || {
            let answer = backups.create(&dry_run(), &bad).await;
            in_a_row = if answer.is_err() { in_a_row + 1 } else { 0 };
            anyhow::Ok(when(in_a_row >= IN_A_ROW, format!("{answer:?}")))
        })
        .await
    }

    /// Creates accounts and rights of a further installation in a namespace. Returns the kubeconfig
    /// of its controller.
    pub async fn second_installation(&self, namespace: &str) -> anyhow::Result<PathBuf> {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": CONTROLLER } });
        objects_in(&self.client, namespace, "v1", "ServiceAccount")
            .apply_object(CONTROLLER, &account)
            .await?;
        let subjects =
            json!([{ "kind": "ServiceAccount", "name": CONTROLLER, "namespace": namespace }]);
        let binding = |kind: &str, name: &str, role: &str| {
            json!({ "apiVersion": RBAC, "kind": kind, "metadata": { "name": name },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": subjects })
        };
        let everywhere = all_objects(&self.client, RBAC, "ClusterRoleBinding");
        everywhere
            .apply_object(
                namespace,
                &binding("ClusterRoleBinding", namespace, "backup-controller"),
            )
            .await?;
        // In its own namespace it may delete ended objects; at the ledgers it has the rights of a
        // user who may hold.
        for (of, role) in [
            (namespace, "cluster-admin"),
            (NAMESPACE, "backup-lock-operator"),
        ] {
            let object = binding("RoleBinding", namespace, role);
            objects_in(&self.client, of, RBAC, "RoleBinding")
                .apply_object(namespace, &object)
                .await?;
        }
        self.plane
            .service_account_kubeconfig(namespace, CONTROLLER)
            .await
    }

    /// Creates a bucket, its credentials and the location `default` for a further installation in a
    /// namespace.
    pub async fn second_location(&self, namespace: &str) -> anyhow::Result<()> {
        ensure_secret(
            &self.client,
            namespace,
            "cloud-credentials",
            "cloud",
            &S3::credentials(),
        )
        .await?;
        self.s3()?.create_bucket(namespace).await?;
        let mut location = self.locations().get("default").await?;
        location.metadata = ObjectMeta {
            name: Some("default".to_owned()),
            ..ObjectMeta::default()
        };
        namespace.clone_into(&mut location.spec.object_storage.bucket);
        location.status = BackupStorageLocationStatus::default();
        let locations: Api<BackupStorageLocation> = Api::namespaced(self.client.clone(), namespace);
        locations.create_object(&location).await?;
        Ok(())
    }

    /// The Lease that holds the ledger of the scope `velero.io`.
    pub async fn ledger(&self) -> anyhow::Result<Lease> {
        let leases: Api<Lease> = self.api();
        Ok(leases.get("backup-lock-velero").await?)
    }

    pub async fn claims(&self) -> anyhow::Result<String> {
        self.ledger()
            .await?
            .annotations()
            .get(LEDGER_ANNOTATION)
            .cloned()
            .context("no ledger")
    }

    /// Runs `happens` while the webhook is not registered. When it returns, the API server asks the
    /// webhook again: what a test creates next is not stored without having been admitted.
    pub async fn unregistered<T>(
        &self,
        happens: impl AsyncFnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let registrations: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let mut registration = registrations.get("backup-webhook").await?;
        registrations.delete_object("backup-webhook").await?;
        let happened = happens().await;
        registration.metadata.resource_version = None;
        registration.metadata.uid = None;
        registrations.create_object(&registration).await?;
        self.webhook_is_asked().await?;
        happened
    }

    /// Deletes every Backup and Restore that has not ended, and waits until the Backups are gone.
    pub async fn delete_unfinished(&self) -> anyhow::Result<()> {
        let (backups, restores) = (self.backups(), self.restores());
        for backup in backups
            .list_all()
            .await?
            .iter()
            .filter(|backup| backup.phase().is_active())
        {
            backups.delete_object(&backup.name_any()).await?;
        }
        for restore in restores
            .list_all()
            .await?
            .iter()
            .filter(|restore| restore.phase().is_active())
        {
            restores.delete_object(&restore.name_any()).await?;
        }
        eventually(
            "unfinished objects gone",
            Duration::from_secs(20),
            async || {
                let left = backups.list_all().await?;
                let left = left
                    .iter()
                    .filter(|backup| backup.phase().is_active())
                    .count();
                Ok::<_, kube::Error>(when(left == 0, format!("{left} left")))
            },
        )
        .await
    }
}

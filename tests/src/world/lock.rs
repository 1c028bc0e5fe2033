//! The lock as tests see it: its ledger, refusals, and controllers that are paused so that no claim ends by itself.

use std::{ops::Deref, time::Duration};

use anyhow::{Context as _, bail};
use backup_core::labels::LEDGER_ANNOTATION;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _, core::Status};

use super::World;
use crate::{
    api::ApiExt as _,
    process::Process,
    wait::{eventually, when},
};

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

/// The answer of the API server to what it has refused. Errors: it was not refused, or there was no answer.
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
    /// Pauses the controllers, so that nothing ends by itself.
    pub fn pause_controllers(&mut self) -> anyhow::Result<Paused<'_>> {
        self.controllers.iter().try_for_each(Process::pause)?;
        Ok(Paused(self))
    }

    /// The Lease that holds the ledger of the scope `velero.io`.
    pub async fn ledger(&self) -> anyhow::Result<Lease> {
        let leases: Api<Lease> = self.api();
        Ok(leases.get("backup-lock-velero").await?)
    }

    pub async fn claims(&self) -> anyhow::Result<String> {
        self.ledger().await?.annotations().get(LEDGER_ANNOTATION).cloned().context("no ledger")
    }

    /// Deletes every Backup and Restore that has not ended, and waits until the Backups are gone.
    pub async fn delete_unfinished(&self) -> anyhow::Result<()> {
        let (backups, restores) = (self.backups(), self.restores());
        for backup in backups.list_all().await?.iter().filter(|backup| backup.phase().is_active()) {
            backups.delete_object(&backup.name_any()).await?;
        }
        for restore in restores.list_all().await?.iter().filter(|restore| restore.phase().is_active()) {
            restores.delete_object(&restore.name_any()).await?;
        }
        eventually("unfinished objects gone", Duration::from_secs(20), async || {
            let left = backups.list_all().await?;
            let left = left.iter().filter(|backup| backup.phase().is_active()).count();
            Ok::<_, kube::Error>(when(left == 0, format!("{left} left")))
        })
        .await
    }
}

//! Expired backups are deleted: each gets one DeleteBackupRequest, which the deletion controller
//! carries out with all its checks.
//!
//! Only backups that have ended, in locations that can be written. Otherwise a label of the Backup
//! says why it is kept (Velero's `velero.io/gc-failure`), and the backup is checked again later.

mod decide;

use std::{collections::HashMap, sync::Arc, time::Duration};

use backup_client::errors::{found, is_conflict};
use backup_core::{
    api::{Backup, DeleteBackupRequest, delete_backup_request::DeleteBackupRequestSpec},
    event_reason::EventReason,
    labels, names,
};
use backup_lock::server_time;
use backup_runtime::{
    Cluster, delete,
    health::Health,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch,
};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, PostParams},
    core::DeserializeGuard,
};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    error::ReconcileError,
    location::{LocationError, Locations, is_available, is_read_only},
};
use decide::{Expiry, Facts, Failure, Plan};

/// Maximum number of backups that are reconciled concurrently.
const CONCURRENCY: usize = 4;

pub(crate) struct RetentionController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    /// Interval between checks of an expired backup that is kept.
    pub(crate) period: Duration,
}

/// Expiries seen by the watch, of backups not reconciled since: nearly all are not due, and are not
/// read again.
type Expiries = Arc<Mutex<HashMap<Key, Expiry>>>;

impl RetentionController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        let expiries = Expiries::default();
        let watched = Arc::clone(&expiries);
        let keys = watch::keys_with::<Backup>(
            &self.cluster,
            &health,
            "retention of backups",
            move |key, backup| match backup {
                Some(backup) => {
                    let expiry = decide::expiry(&backup, Timestamp::now());
                    _ = watched.lock().insert(key.clone(), expiry);
                }
                None => _ = watched.lock().remove(key),
            },
        );
        let controller = Arc::new(self);
        run_queue("retention", keys, CONCURRENCY, stop, move |key| {
            let watched = expiries.lock().remove(&key);
            Arc::clone(&controller).reconcile(key, watched)
        })
        .await;
    }

    async fn reconcile(
        self: Arc<Self>,
        key: Key,
        watched: Option<Expiry>,
    ) -> Result<Action, ReconcileError> {
        if let Some(action) = watched.and_then(Expiry::wait) {
            return Ok(action);
        }
        // Everything is read again: from here on data may be deleted. The time is the API server's,
        // so that no backup expires because the local clock is wrong.
        let now = server_time::now(&self.cluster.client).await?;
        let backup = found(self.cluster.api::<Backup>().get(&key.name).await, &key.name)?;
        let Some(backup) = backup else {
            return Ok(Action::AwaitChange);
        };
        if let Some(action) = decide::expiry(&backup, now).wait() {
            return Ok(action);
        }
        let facts = self.facts(&backup).await?;
        match decide::decide(&facts, now, self.period) {
            Plan::Nothing => {}
            Plan::Label(failure) => self.label(&backup, failure).await?,
            Plan::Renew(request) => {
                self.cluster.leadership.check()?;
                delete::delete_unchanged(&self.cluster, &*request).await?;
                self.request_deletion(&backup).await?;
            }
            Plan::Request => self.request_deletion(&backup).await?,
        }
        Ok(Action::RequeueAfter(self.period))
    }

    async fn facts(&self, backup: &Backup) -> Result<Facts, ReconcileError> {
        let name = backup.name_any();
        let uid = backup.uid().unwrap_or_default();
        let selector = format!(
            "{}={},{}={uid}",
            labels::BACKUP_NAME,
            labels::valid_value(&name),
            labels::BACKUP_UID
        );
        let api: Api<DeserializeGuard<DeleteBackupRequest>> = self.cluster.api();
        let list = api.list(&ListParams::default().labels(&selector)).await?;
        let requests = list
            .items
            .into_iter()
            .filter_map(|guard| guard.0.ok())
            .collect();
        Ok(Facts {
            failure: self.failure(backup).await,
            requests,
            own_request: request_name(backup),
        })
    }

    async fn failure(&self, backup: &Backup) -> Option<Failure> {
        if !backup.status.validation_errors.is_empty() {
            return None; // it was refused, and never wrote anything
        }
        match self.locations.of_backup(backup).await {
            Err(LocationError::NotFound { .. } | LocationError::NoDefault { .. }) => {
                Some(Failure::NotFound)
            }
            Err(error) => {
                tracing::info!(backup = backup.name_any(), %error, "an expired backup stays");
                Some(Failure::CannotGet)
            }
            Ok(location) => {
                if is_read_only(&location) {
                    Some(Failure::ReadOnly)
                } else if is_available(&location) {
                    None
                } else {
                    Some(Failure::Unavailable)
                }
            }
        }
    }

    /// Sets Velero's label with the reason why an expired backup is kept.
    async fn label(&self, backup: &Backup, failure: Failure) -> Result<(), ReconcileError> {
        if self.set_label(backup, Some(failure.as_str())).await? {
            let note = format!(
                "the backup has expired and cannot be deleted now ({})",
                failure.as_str()
            );
            self.cluster
                .events
                .warning(backup, EventReason::NotDeleted, &note);
            tracing::warn!(
                backup = backup.name_any(),
                reason = failure.as_str(),
                "an expired backup stays"
            );
        }
        Ok(())
    }

    /// Sets or removes the label. Returns whether that was a change.
    async fn set_label(
        &self,
        backup: &Backup,
        value: Option<&str>,
    ) -> Result<bool, ReconcileError> {
        if has_label(backup, value) {
            return Ok(false);
        }
        let outcome = retry::status_patch(&self.cluster, backup, |current| {
            (!has_label(current, value))
                .then(|| json!({"metadata": {"labels": {labels::GC_FAILURE: value}}}))
        })
        .await?;
        Ok(matches!(outcome, PatchOutcome::Written(_)))
    }

    /// Creates the request to delete this very backup: it names the uid, so that it never applies
    /// to another backup of the name.
    async fn request_deletion(&self, backup: &Backup) -> Result<(), ReconcileError> {
        self.set_label(backup, None).await?;
        let name = backup.name_any();
        let spec = DeleteBackupRequestSpec {
            backup_name: name.clone(),
            ..DeleteBackupRequestSpec::default()
        };
        let mut request = DeleteBackupRequest::new(&request_name(backup), spec);
        let labels = [
            (labels::BACKUP_NAME, labels::valid_value(&name)),
            (labels::BACKUP_UID, backup.uid().unwrap_or_default()),
        ];
        request.metadata.labels = Some(
            labels
                .map(|(label, value)| (label.to_owned(), value))
                .into(),
        );
        // Each copy has a time of its own.
        let keep = (labels::KEEP_COPIES_ANNOTATION.to_owned(), "true".to_owned());
        request.metadata.annotations = Some([keep].into());
        let api = self.cluster.api();
        let leadership = &self.cluster.leadership;
        leadership.check()?;
        let params = PostParams::default();
        match leadership
            .write(retry::WRITE_TIMEOUT, api.create(&params, &request))
            .await
        {
            Ok(_) => {
                tracing::info!(
                    backup = name,
                    uid = backup.uid(),
                    "a backup has expired; its deletion is requested"
                );
                self.cluster.events.normal(
                    backup,
                    EventReason::Expired,
                    "its time is over; it is deleted",
                );
                Ok(())
            }
            Err(error) if is_conflict(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether Velero's label has this value, or is absent if that is `None`.
fn has_label(backup: &Backup, value: Option<&str>) -> bool {
    backup.labels().get(labels::GC_FAILURE).map(String::as_str) == value
}

/// A stable name, so that two replicas create one request.
fn request_name(backup: &Backup) -> String {
    names::derived(
        "expired",
        &backup.name_any(),
        &[&backup.uid().unwrap_or_default()],
    )
}

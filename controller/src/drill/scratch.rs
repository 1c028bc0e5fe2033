//! Removes scratch namespaces: those of a drill that has its result, and those whose Restore is gone.
//! Only namespaces that a drill of this installation has made, each by its uid.

use std::{collections::BTreeMap, fmt::Display, time::Duration};

use backup_client::errors::{found, is_conflict, is_gone};
use backup_core::{
    api::Restore,
    labels::{
        DRILL_INSTALLATION_LABEL, DRILL_LABEL, DRILL_RESTORE_ANNOTATION, annotation, valid_value,
    },
};
use backup_runtime::{Cluster, list, retry::WRITE_TIMEOUT};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{DrillController, decide};
use crate::error::ReconcileError;

/// Interval between two sweeps while there are scratch namespaces.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Interval between messages about a namespace that is not removed.
const REPORT_INTERVAL: Duration = Duration::from_mins(10);
/// Why a namespace stays that has only the label.
const NOT_MADE: &str = "no drill has made it, or it was not marked before the controller was stopped; delete it if it is not needed";

/// Removes the scratch namespaces of a drill. Returns the names of those that are left.
pub(super) async fn remove_all(
    cluster: &Cluster,
    restore: &Restore,
) -> Result<Vec<String>, ReconcileError> {
    let uid = restore.uid().unwrap_or_default();
    let mut left = Vec::new();
    for namespace in namespaces(cluster, Some(&uid)).await? {
        if decide::is_scratch(&namespace, Some(restore)) {
            remove(cluster, &namespace).await?;
            left.push(namespace.name_any());
        }
    }
    Ok(left)
}

/// Asks for the removal of a scratch namespace, unless that was done.
async fn remove(cluster: &Cluster, namespace: &Namespace) -> Result<(), ReconcileError> {
    if namespace.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let name = namespace.name_any();
    let params = DeleteParams::background().preconditions(Preconditions {
        uid: namespace.uid(),
        resource_version: None,
    });
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let deletion = api.delete(&name, &params);
    match cluster.leadership.write(WRITE_TIMEOUT, deletion).await {
        Ok(_) => tracing::info!(namespace = name, "a scratch namespace is removed"),
        // Gone, or replaced by another one of its name; the next call looks again.
        Err(error) if is_gone(&error, &name) || is_conflict(&error) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// The namespaces with the label of this installation, and of one drill or of any.
async fn namespaces(
    cluster: &Cluster,
    drill: Option<&str>,
) -> Result<Vec<Namespace>, ReconcileError> {
    let own = valid_value(&cluster.namespace);
    let mut selector = format!("{DRILL_INSTALLATION_LABEL}={own}");
    if let Some(uid) = drill {
        selector = format!("{selector},{DRILL_LABEL}={uid}");
    }
    let api: Api<Namespace> = Api::all(cluster.client.clone());
    let params = ListParams::default().labels(&selector);
    Ok(api.list(&params).await?.items)
}

impl DrillController {
    /// Sweeps whenever there may be scratch namespaces without a drill, until the process is asked
    /// to end.
    pub(super) async fn sweep_until(&self, stop: &CancellationToken) {
        let mut reported = BTreeMap::new();
        loop {
            let left = match self.sweep(&mut reported).await {
                Ok(left) => left,
                Err(error) => {
                    tracing::warn!(%error, "scratch namespaces could not be looked for; it is tried again");
                    1
                }
            };
            let next = async {
                if left == 0 {
                    self.sweep_due.notified().await;
                } else {
                    tokio::time::sleep(SWEEP_INTERVAL).await;
                }
            };
            tokio::select! {
                () = next => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Removes the scratch namespaces that belong to no running drill. Returns the number of scratch
    /// namespaces that are there.
    ///
    /// Namespaces are listed before Restores are read: each Restore is older than its namespaces.
    pub(super) async fn sweep(
        &self,
        reported: &mut BTreeMap<String, Instant>,
    ) -> Result<usize, ReconcileError> {
        let listed = namespaces(&self.cluster, None).await?;
        let mut left = 0;
        for namespace in &listed {
            let restore = self.restore_of(namespace).await?;
            if restore.as_ref().is_some_and(decide::is_running) {
                left += 1;
                continue;
            }
            if !decide::is_scratch(namespace, restore.as_ref()) {
                report(namespace, &NOT_MADE, reported);
                continue;
            }
            left += 1;
            if let Err(error) = remove(&self.cluster, namespace).await {
                report(namespace, &error, reported);
            }
        }
        reported.retain(|name, _| listed.iter().any(|one| one.name_any() == *name));
        Ok(left)
    }

    /// The Restore that a scratch namespace was made for; `None` if it is gone, or another one has
    /// its name. One that cannot be decoded counts as gone.
    async fn restore_of(&self, namespace: &Namespace) -> Result<Option<Restore>, ReconcileError> {
        let Some(name) = annotation(namespace, DRILL_RESTORE_ANNOTATION) else {
            return Ok(None);
        };
        let kind = ApiResource::erase::<Restore>(&());
        let client = self.cluster.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &self.cluster.namespace, &kind);
        let object = found(api.get(name).await, name)?;
        let restore = object.and_then(|object| list::decode::<Restore>(&object).ok());
        let uid = namespace.labels().get(DRILL_LABEL);
        Ok(restore.filter(|restore| restore.uid().as_ref() == uid))
    }
}

/// Logs why a namespace is not removed, once in a while.
fn report(namespace: &Namespace, why: &dyn Display, reported: &mut BTreeMap<String, Instant>) {
    let name = namespace.name_any();
    let now = Instant::now();
    let is_due = reported
        .get(&name)
        .is_none_or(|last| now.duration_since(*last) >= REPORT_INTERVAL);
    if is_due {
        tracing::warn!(namespace = name, %why, "a namespace with the label of a drill was not removed");
        reported.insert(name, now);
    }
}

//! Removes scratch namespaces: those of a drill that has its result, and those whose Restore is gone.
//! Only namespaces that a drill of this installation has made, each by its uid. With them go the
//! volumes of their claims, and after them the contents of their snapshots.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    time::Duration,
};

use backup_client::errors::{found, is_conflict, is_gone};
use backup_core::{
    api::Restore,
    labels::{
        DRILL_INSTALLATION_LABEL, DRILL_LABEL, DRILL_RESTORE_ANNOTATION, annotation, valid_value,
    },
};
use backup_runtime::{Cluster, list, retry::WRITE_TIMEOUT};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{DrillController, decide, volumes};
use crate::error::ReconcileError;

/// Interval between two sweeps while there are scratch namespaces.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Interval between messages about a namespace that is not removed.
const REPORT_INTERVAL: Duration = Duration::from_mins(10);
/// Why a namespace stays that has only the label.
const NOT_MADE: &str = "no drill has made it, or it was not marked before the controller was stopped; delete it if it is not needed";

/// Removes the scratch namespaces of a drill, then the contents of its snapshots. Returns the names
/// of those that are left.
pub(super) async fn remove_all(
    cluster: &Cluster,
    restore: &Restore,
) -> Result<Vec<String>, ReconcileError> {
    let uid = restore.uid().unwrap_or_default();
    let labelled = namespaces(cluster, Some(&uid)).await?;
    let own: Vec<&Namespace> = labelled
        .iter()
        .filter(|namespace| decide::is_scratch(namespace, Some(restore)))
        .collect();
    if own.is_empty() {
        return remove_contents(cluster, &uid).await;
    }
    let drill = restore.spec.drill.as_ref();
    let has_volumes = drill.is_some_and(|drill| drill.settings.volumes);
    if !has_volumes || Box::pin(prepare_volumes(cluster, restore, &own)).await? {
        for namespace in &own {
            remove(cluster, namespace).await?;
        }
    }
    Ok(own.into_iter().map(ResourceExt::name_any).collect())
}

/// Prepares the volumes of a drill for the removal of its scratch namespaces. Returns whether all are
/// prepared.
async fn prepare_volumes(
    cluster: &Cluster,
    restore: &Restore,
    own: &[&Namespace],
) -> Result<bool, ReconcileError> {
    let now = Timestamp::now();
    for namespace in own {
        if volumes::is_awaited(cluster, namespace, Some(restore), now).await? {
            return Ok(false);
        }
    }
    volumes::prepare(cluster, own).await
}

/// Removes the contents of the snapshots of the drill with this uid. Returns the names of those that
/// are left.
async fn remove_contents(cluster: &Cluster, uid: &str) -> Result<Vec<String>, ReconcileError> {
    let mut left = Vec::new();
    for content in volumes::contents(cluster).await? {
        let drill = content.labels().get(DRILL_LABEL);
        if drill.is_some_and(|drill| drill == uid) {
            Box::pin(volumes::remove_content(cluster, &content)).await?;
            left.push(content.name_any());
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

    /// Removes the scratch namespaces, and the contents of snapshots, that belong to no running
    /// drill. Returns the number of those that are there.
    ///
    /// Namespaces are listed before Restores are read: each Restore is older than its namespaces.
    pub(super) async fn sweep(
        &self,
        reported: &mut BTreeMap<String, Instant>,
    ) -> Result<usize, ReconcileError> {
        let listed = namespaces(&self.cluster, None).await?;
        let now = Timestamp::now();
        let mut left = 0;
        let mut due = Vec::new();
        let mut drills = BTreeSet::new();
        for namespace in &listed {
            let restore = self.restore_of(namespace).await?;
            let is_running = restore.as_ref().is_some_and(decide::is_running);
            if !is_running && !decide::is_scratch(namespace, restore.as_ref()) {
                report(namespace, &NOT_MADE, reported);
                continue;
            }
            left += 1;
            drills.extend(namespace.labels().get(DRILL_LABEL).cloned());
            let restore = restore.as_ref();
            if !is_running && !volumes::is_awaited(&self.cluster, namespace, restore, now).await? {
                due.push(namespace);
            }
        }
        if Box::pin(volumes::prepare(&self.cluster, &due)).await? {
            for namespace in due {
                if let Err(error) = remove(&self.cluster, namespace).await {
                    report(namespace, &error, reported);
                }
            }
        }
        reported.retain(|name, _| listed.iter().any(|one| one.name_any() == *name));
        Ok(left + Box::pin(self.sweep_contents(&drills)).await?)
    }

    /// Removes the contents of snapshots that belong to no running drill, and to none of the drills
    /// with these uids, whose namespaces are there. Returns the number of contents that are there.
    async fn sweep_contents(&self, drills: &BTreeSet<String>) -> Result<usize, ReconcileError> {
        let contents = volumes::contents(&self.cluster).await?;
        for content in &contents {
            let has_namespaces = content
                .labels()
                .get(DRILL_LABEL)
                .is_some_and(|drill| drills.contains(drill));
            let restore = self.restore_of(content).await?;
            if !has_namespaces && !restore.as_ref().is_some_and(decide::is_running) {
                volumes::remove_content(&self.cluster, content).await?;
            }
        }
        Ok(contents.len())
    }

    /// The Restore of the drill that an object with its label was made for; `None` if it is gone, or
    /// another one has its name. One that cannot be decoded counts as gone.
    async fn restore_of(
        &self,
        object: &(impl ResourceExt + Sync),
    ) -> Result<Option<Restore>, ReconcileError> {
        let Some(name) = annotation(object, DRILL_RESTORE_ANNOTATION) else {
            return Ok(None);
        };
        let kind = ApiResource::erase::<Restore>(&());
        let client = self.cluster.client.clone();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &self.cluster.namespace, &kind);
        let read = found(api.get(name).await, name)?;
        let restore = read.and_then(|read| list::decode::<Restore>(&read).ok());
        let uid = object.labels().get(DRILL_LABEL);
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

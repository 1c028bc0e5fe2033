//! Drills: Restores with `spec.drill`, from the end of their items to the removal of their scratch
//! namespaces. The restore itself is done like any other (`restore`, with `restore::drill`).
//!
//! 1. The restore ends, and gives its claim back: from here on nothing waits for the drill.
//! 2. Workloads become ready, or their time is over. That is noted in our annotation of the Restore,
//!    so that a restart measures no other time.
//! 3. A Job for each check runs in a scratch namespace. Its name is derived from the check, so an
//!    attempt after a crash finds it. When all have ended, the expressions are evaluated.
//! 4. The result is noted in the same annotation, once. From then on the namespaces are not in use.
//! 5. The result is written into the Backup; `schedule` takes it to the Schedule.
//! 6. The scratch namespaces are removed with the volumes of their claims, then the contents of their
//!    snapshots, and the annotation says that the drill is over.
//!
//! Each step is decided from what is stored, so one that was cut is done again. `scratch` also
//! removes namespaces and contents whose Restore is gone.

mod checks;
mod decide;
mod expressions;
mod schedule;
mod scratch;
#[cfg(test)]
mod tests;
mod volumes;

use std::{future::ready, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{Backup, Restore},
    drill::{DrillResult, DrillState, Readiness},
    event_reason::EventReason,
    labels::{DRILL_STATE_ANNOTATION, DRILLED_ANNOTATION, RESTORE_NAME, annotation, valid_value},
    time::whole_seconds,
};
use backup_runtime::{
    Cluster,
    health::Health,
    list,
    queue::{Action, Key, run_queue},
    retry::{self, PatchOutcome},
    watch::{self, WatchEvent},
};
use backup_store::{Limits, crash};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{DaemonSet, Deployment, StatefulSet},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{error::ReconcileError, location::Locations, metrics::Metrics};
use decide::Workload;

/// Number of drills that are checked at the same time.
const CONCURRENCY: usize = 4;
/// Interval between two looks at workloads, checks, or namespaces that are being deleted.
const POLL_INTERVAL: Duration = Duration::from_secs(3);
/// Reconcile again at once, through the queue.
const REQUEUE_NOW: Action = Action::RequeueAfter(Duration::from_millis(100));
/// Name of this controller in the health of the process.
const COMPONENT_NAME: &str = "drills";

pub(crate) struct DrillController {
    pub(crate) cluster: Cluster,
    pub(crate) locations: Locations,
    pub(crate) metrics: Arc<Metrics>,
    /// Limits on a backup that can be restored.
    pub(crate) limits: Limits,
    /// Notified when there may be scratch namespaces without a drill.
    pub(crate) sweep_due: Notify,
}

impl DrillController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        health.expect(COMPONENT_NAME);
        let controller = Arc::new(self);
        tokio::join!(
            Arc::clone(&controller).follow_restores(health, stop.clone()),
            Arc::clone(&controller).follow_schedules(stop.clone()),
            controller.sweep_until(&stop),
        );
    }

    async fn follow_restores(self: Arc<Self>, health: Health, stop: CancellationToken) {
        let controller = Arc::clone(&self);
        let keys = watch::objects::<Restore>(&self.cluster).filter_map(move |event| {
            if matches!(event, WatchEvent::Listed(_)) {
                health.ready(COMPONENT_NAME);
            }
            ready(controller.key(&event))
        });
        run_queue("drill", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&self).reconcile(key)
        })
        .await;
    }

    /// The key of a Restore that is a drill, and is not over. Where there is one, or one was
    /// deleted, namespaces may be left.
    fn key(&self, event: &WatchEvent<watch::Decoded<Restore>>) -> Option<Key> {
        let restore = match event {
            WatchEvent::Applied(Ok(restore)) => restore,
            WatchEvent::Deleted(_) => {
                self.sweep_due.notify_one();
                return None;
            }
            WatchEvent::Applied(Err(_)) | WatchEvent::Listed(_) => return None,
        };
        if restore.spec.drill.is_none() || DrillState::of(restore).is_over {
            return None;
        }
        self.sweep_due.notify_one();
        Some(Key::of(restore))
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let object = found(self.raw_restores().get(&key.name).await, &key.name)?;
        let restore = object.and_then(|object| list::decode::<Restore>(&object).ok());
        let Some(restore) = restore.filter(|restore| restore.spec.drill.is_some()) else {
            return Ok(Action::AwaitChange);
        };
        let state = DrillState::of(&restore);
        if restore.metadata.deletion_timestamp.is_some()
            || state.is_over
            || !restore.phase().is_terminal()
        {
            return Ok(Action::AwaitChange);
        }
        if state.result.is_some() {
            return self.finish(&restore, &state).await;
        }
        let now = Timestamp::now();
        if let Some(failure) = decide::ended_early(&restore) {
            let name = restore.name_any();
            let result = DrillResult::of_nothing(&name, failure, whole_seconds(now));
            return self.conclude(&restore, &state, result).await;
        }
        let Some(ready) = &state.ready else {
            return self.await_workloads(&restore, &state, now).await;
        };
        self.run_checks(&restore, &state, ready, now).await
    }

    fn raw_restores(&self) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<Restore>(&());
        Api::namespaced_with(self.cluster.client.clone(), &self.cluster.namespace, &kind)
    }

    /// Notes once whether the workloads are ready.
    async fn await_workloads(
        &self,
        restore: &Restore,
        state: &DrillState,
        now: Timestamp,
    ) -> Result<Action, ReconcileError> {
        let workloads = self.workloads(restore).await?;
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let first = ListParams::default().limit(1);
        let has_nodes = !nodes.list_metadata(&first).await?.items.is_empty();
        let Some(ready) = decide::readiness(restore, &workloads, has_nodes, now) else {
            return Ok(Action::RequeueAfter(POLL_INTERVAL));
        };
        tracing::info!(
            restore = restore.name_any(),
            workloads = ready.workloads,
            ready = ready.ready,
            "the workloads of a drill are not waited for any longer"
        );
        let with_ready = DrillState {
            ready: Some(ready),
            ..state.clone()
        };
        self.note(restore, state, &with_ready).await?;
        crash::point("after-workloads");
        Ok(REQUEUE_NOW)
    }

    /// The workloads of a drill in its scratch namespaces.
    async fn workloads(&self, restore: &Restore) -> Result<Vec<Workload>, ReconcileError> {
        let mut all = self
            .of_kind::<Deployment>(restore, decide::deployment_is_ready)
            .await?;
        let sets = self.of_kind::<StatefulSet>(restore, decide::stateful_set_is_ready);
        all.extend(sets.await?);
        let sets = self.of_kind::<DaemonSet>(restore, decide::daemon_set_is_ready);
        all.extend(sets.await?);
        Ok(all)
    }

    async fn of_kind<K>(
        &self,
        restore: &Restore,
        is_ready: fn(&K) -> bool,
    ) -> Result<Vec<Workload>, ReconcileError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::all(self.cluster.client.clone());
        let label = format!("{RESTORE_NAME}={}", valid_value(&restore.name_any()));
        let sources = decide::sources(restore);
        let listed = api.list(&ListParams::default().labels(&label)).await?;
        let of_drill = listed.items.iter().filter_map(|object| {
            let namespace = object.namespace()?;
            let source = sources.get(namespace.as_str())?;
            Some(Workload {
                name: format!("{} {source}/{}", K::kind(&()), object.name_any()),
                is_ready: is_ready(object),
            })
        });
        Ok(of_drill.collect())
    }

    /// Runs the checks, and concludes the drill when all have ended.
    async fn run_checks(
        &self,
        restore: &Restore,
        state: &DrillState,
        ready: &Readiness,
        now: Timestamp,
    ) -> Result<Action, ReconcileError> {
        let drill = restore.spec.drill.as_ref();
        let checks = drill.map_or(&[][..], |drill| drill.settings.checks.as_slice());
        let (with_expression, with_job): (Vec<_>, Vec<_>) =
            checks.iter().partition(|check| check.expression.is_some());
        let mut ends = Vec::with_capacity(checks.len());
        for check in with_job {
            let end = checks::run(&self.cluster, restore, check, now).await?;
            ends.push((check.name.as_str(), end));
        }
        if ends
            .iter()
            .any(|(_, end)| *end == decide::CheckState::Running)
        {
            return Ok(Action::RequeueAfter(POLL_INTERVAL));
        }
        for check in with_expression {
            let end = Box::pin(expressions::run(&self.cluster, restore, check)).await?;
            ends.push((check.name.as_str(), end));
        }
        let result = decide::result(restore, ready, &ends, now);
        self.conclude(restore, state, result).await
    }

    /// Notes the result.
    async fn conclude(
        &self,
        restore: &Restore,
        state: &DrillState,
        result: DrillResult,
    ) -> Result<Action, ReconcileError> {
        let with_result = DrillState {
            result: Some(result),
            ..state.clone()
        };
        crash::point("before-drill-result");
        self.note(restore, state, &with_result).await?;
        crash::point("after-drill-result");
        Ok(REQUEUE_NOW)
    }

    /// Publishes the result, and removes the scratch namespaces.
    async fn finish(
        &self,
        restore: &Restore,
        state: &DrillState,
    ) -> Result<Action, ReconcileError> {
        if let Some(result) = &state.result {
            let backup = restore.spec.backup_name.as_deref().unwrap_or_default();
            let begun = restore.metadata.creation_timestamp.as_ref();
            self.publish(backup, begun, result).await?;
        }
        let left = scratch::remove_all(&self.cluster, restore).await?;
        if !left.is_empty() {
            tracing::debug!(?left, "scratch namespaces or contents are being deleted");
            return Ok(Action::RequeueAfter(POLL_INTERVAL));
        }
        crash::point("after-scratch-removal");
        let over = DrillState {
            is_over: true,
            ..state.clone()
        };
        self.note(restore, state, &over).await?;
        Ok(Action::AwaitChange)
    }

    /// Writes the state of a drill, unless another process has done so meanwhile.
    async fn note(
        &self,
        restore: &Restore,
        before: &DrillState,
        after: &DrillState,
    ) -> Result<(), ReconcileError> {
        let value = after.annotation();
        retry::status_patch(&self.cluster, restore, |current| {
            (DrillState::of(current) == *before).then(
                || json!({ "metadata": { "annotations": { DRILL_STATE_ANNOTATION: value } } }),
            )
        })
        .await?;
        Ok(())
    }

    /// Writes the result into the Backup of this name, only forwards. A Backup that is gone, or was
    /// created after the drill had begun, has none.
    async fn publish(
        &self,
        name: &str,
        begun: Option<&Time>,
        result: &DrillResult,
    ) -> Result<(), ReconcileError> {
        let read = match name {
            "" => None,
            name => found(self.cluster.api::<Backup>().get(name).await, name)?,
        };
        let Some(backup) =
            read.filter(|backup| backup.metadata.creation_timestamp.as_ref() <= begun)
        else {
            return Ok(());
        };
        let value = result.annotation();
        let outcome = retry::status_patch(&self.cluster, &backup, |current| {
            let known = DrillResult::read(annotation(current, DRILLED_ANNOTATION));
            known
                .is_none_or(|known| known.at < result.at)
                .then(|| json!({ "metadata": { "annotations": { DRILLED_ANNOTATION: value } } }))
        })
        .await?;
        let PatchOutcome::Written(backup) = outcome else {
            return Ok(());
        };
        let events = &self.cluster.events;
        let counts = result.counts();
        if result.has_failed() {
            let note = match result.restore.as_str() {
                "" => result.failure.clone(),
                restore => format!(
                    "{} ({counts}); `kubectl backup restore describe {restore}` says more",
                    result.failure
                ),
            };
            events.warning(&backup, EventReason::DrillFailed, &note);
            tracing::error!(
                backup = name,
                failure = result.failure,
                "a drill has failed"
            );
        } else {
            events.normal(
                &backup,
                EventReason::DrillPassed,
                &format!("restored {counts}"),
            );
            tracing::info!(backup = name, counts, "a drill has restored a backup");
        }
        Ok(())
    }
}

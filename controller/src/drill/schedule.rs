//! Drills of a schedule's backups (`spec.drill`), one after another.
//!
//! A drill that is due is a Restore that is created under a name derived from the schedule and its
//! last drill, so that one whose answer was lost is not created twice. It never waits in the lock: a
//! dry run asks first, and if that is refused, it is asked again later. So backups wait for no drill
//! that waits. Its result is noted in our annotation of the Schedule, which says when the next one
//! is due, and the Restore before it is deleted.

use std::{collections::BTreeSet, future::ready, sync::Arc};

use backup_client::errors::{found, is_final, plain};
use backup_core::{
    api::{Backup, DrillSpec, Restore, Schedule, schedule::ScheduledDrill},
    drill::{self, DrillResult, DrillState, LastDrill},
    labels::{
        DRILL_SCHEDULE_LABEL, DRILLED_ANNOTATION, LAST_DRILL_ANNOTATION, annotation, valid_value,
    },
    time::whole_seconds,
};
use backup_runtime::{
    delete, list,
    queue::{Action, Key, run_queue},
    retry::{self, WRITE_TIMEOUT},
    watch,
};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    ResourceExt as _,
    api::{DynamicObject, PostParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{DrillController, POLL_INTERVAL};
use crate::{
    backup_turns::{self, Candidate, Plan, RETRY_INTERVAL, Terms, seed, sleep_until},
    error::ReconcileError,
};

/// Number of schedules that are looked at concurrently.
const CONCURRENCY: usize = 4;

/// A drill of a schedule.
#[derive(Debug)]
struct DrillRestore {
    restore: Restore,
    state: DrillState,
}

impl DrillRestore {
    fn of(object: &DynamicObject) -> Option<Self> {
        let restore = list::decode::<Restore>(object).ok()?;
        restore.spec.drill.as_ref()?;
        let state = DrillState::of(&restore);
        Some(Self { restore, state })
    }

    /// Whether it is not over. One that is being deleted has no result.
    fn is_open(&self) -> bool {
        !self.state.is_over && self.restore.metadata.deletion_timestamp.is_none()
    }

    fn result(&self) -> Option<&DrillResult> {
        self.state.result.as_ref()
    }

    fn created(&self) -> Option<Timestamp> {
        let created = self.restore.metadata.creation_timestamp.as_ref()?;
        Some(created.0)
    }
}

/// The beginning of a drill.
enum StartOutcome {
    Created,
    /// Refused for now.
    Later(String),
    /// Not possible with this backup, or this schedule: a clause.
    Impossible(String),
}

impl DrillController {
    pub(super) async fn follow_schedules(self: Arc<Self>, stop: CancellationToken) {
        // The controller of schedules reports those that cannot be decoded.
        let keys = watch::objects::<Schedule>(&self.cluster).filter_map(|event| ready(event.key()));
        run_queue("drills of schedules", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&self).reconcile_schedule(key)
        })
        .await;
    }

    pub(super) async fn reconcile_schedule(
        self: Arc<Self>,
        key: Key,
    ) -> Result<Action, ReconcileError> {
        let schedule = backup_turns::read_schedule(&self.cluster, &key.name).await?;
        let asked = schedule.as_ref().and_then(|one| one.spec.drill.as_ref());
        let terms = asked.and_then(|drill| Terms::of(drill.every, drill.which.as_ref()));
        let Some((schedule, terms)) = schedule.as_ref().zip(terms) else {
            self.metrics.forget_drill(&key.name);
            return Ok(Action::AwaitChange);
        };
        let now = Timestamp::now();
        let last = LastDrill::read(annotation(schedule, LAST_DRILL_ANNOTATION))
            .filter(|last| backup_turns::is_credible(last.result.at, now));
        let next = terms.next(last.as_ref().map(|last| last.result.at));
        let mut drills = self.drills(schedule).await?;
        if let Some(open) = drills.iter().find(|drill| drill.is_open()) {
            let due = next.or(open.created());
            self.metrics.drill_due(&key.name, due, last.as_ref());
            return Ok(Action::RequeueAfter(POLL_INTERVAL));
        }
        drills.retain(|drill| drill.result().is_some());
        drills.sort_by_key(|drill| drill.result().map(|result| result.at));
        if let Some(newest) = drills.last()
            && let Some(result) = newest.result()
            && last.as_ref().is_none_or(|last| last.result.at < result.at)
        {
            let backup = newest.restore.spec.backup_name.as_deref();
            let result = result.clone();
            return self
                .record(schedule, last.as_ref(), backup.unwrap_or_default(), result)
                .await;
        }
        self.remove_earlier(&drills).await?;
        if let Some(next) = next.filter(|next| *next > now) {
            self.metrics.drill_due(&key.name, Some(next), last.as_ref());
            return Ok(sleep_until(next, now));
        }
        let plan = backup_turns::plan(
            &self.cluster,
            &self.locations,
            schedule,
            &terms,
            next,
            LAST_DRILL_ANNOTATION,
            candidate,
        )
        .await?;
        let due = match &plan {
            Plan::Nothing => None,
            Plan::Unreadable(due) | Plan::Chosen(due, _) => Some(*due),
        };
        self.metrics.drill_due(&key.name, due, last.as_ref());
        let Plan::Chosen(_, chosen) = plan else {
            return Ok(Action::RequeueAfter(RETRY_INTERVAL));
        };
        match Box::pin(self.begin(schedule, &chosen)).await? {
            StartOutcome::Created => Ok(Action::RequeueAfter(POLL_INTERVAL)),
            StartOutcome::Later(reason) => {
                tracing::info!(
                    schedule = key.name,
                    reason,
                    "a drill cannot begin now; it is tried again"
                );
                Ok(Action::RequeueAfter(RETRY_INTERVAL))
            }
            StartOutcome::Impossible(failure) => {
                let result = DrillResult::of_nothing("", failure, whole_seconds(now));
                self.publish(&chosen.name, Some(&Time(now)), &result)
                    .await?;
                self.record(schedule, last.as_ref(), &chosen.name, result)
                    .await
            }
        }
    }

    async fn drills(&self, schedule: &Schedule) -> Result<Vec<DrillRestore>, ReconcileError> {
        let label = format!(
            "{DRILL_SCHEDULE_LABEL}={}",
            valid_value(&schedule.name_any())
        );
        let all =
            list::raw::<Restore, _>(&self.cluster, &label, |object| DrillRestore::of(&object));
        Ok(all.await?)
    }

    /// Deletes all drills but the last one. They are over.
    async fn remove_earlier(&self, drills: &[DrillRestore]) -> Result<(), ReconcileError> {
        let Some((_, earlier)) = drills.split_last() else {
            return Ok(());
        };
        for drill in earlier {
            if drill.restore.metadata.deletion_timestamp.is_none() {
                delete::delete(&self.cluster, &drill.restore).await?;
            }
        }
        Ok(())
    }

    /// Creates the Restore of a drill.
    async fn begin(
        &self,
        schedule: &Schedule,
        chosen: &Candidate,
    ) -> Result<StartOutcome, ReconcileError> {
        let spec = schedule.spec.drill.clone().unwrap_or_default();
        let (_, store) = self.locations.open(&chosen.location).await?;
        let held = store
            .listed_namespaces(&chosen.name, self.limits.items)
            .await;
        let held = match held {
            Ok(Some(held)) => held,
            Ok(None) => {
                let why = "the list of the backup's items is not in its location";
                return Ok(StartOutcome::Impossible(why.to_owned()));
            }
            Err(error) if error.is_transient() => {
                return Ok(StartOutcome::Later(error.to_string()));
            }
            Err(error) => return Ok(StartOutcome::Impossible(error.to_string())),
        };
        let own = &self.cluster.namespace;
        let namespaces = match drill::namespaces(&held, &spec.included_namespaces, own) {
            Ok(namespaces) => namespaces,
            Err(why) => {
                let field = "set spec.drill.includedNamespaces of the schedule";
                return Ok(StartOutcome::Impossible(format!("{why} ({field})")));
            }
        };
        let restore = restore(schedule, &spec, &chosen.name, &namespaces);
        for dry_run in [true, false] {
            let params = PostParams {
                dry_run,
                ..PostParams::default()
            };
            let api = self.cluster.api::<Restore>();
            let create = api.create(&params, &restore);
            let leadership = &self.cluster.leadership;
            match leadership.write(WRITE_TIMEOUT, create).await {
                Ok(created) if created.spec.drill.is_none() => {
                    let why = "the definition of restores.velero.io does not know spec.drill; bring the definitions up to date";
                    return Ok(StartOutcome::Impossible(why.to_owned()));
                }
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    return self.existing(&restore).await;
                }
                Err(error) if is_final(&error) => {
                    return Ok(StartOutcome::Impossible(plain(&error)));
                }
                Err(error) => return Ok(StartOutcome::Later(plain(&error))),
            }
        }
        tracing::info!(
            schedule = schedule.name_any(),
            backup = chosen.name,
            restore = restore.name_any(),
            "a drill has begun"
        );
        Ok(StartOutcome::Created)
    }

    /// A Restore of the name of this one exists: it is this one if an answer was lost.
    async fn existing(&self, restore: &Restore) -> Result<StartOutcome, ReconcileError> {
        let name = restore.name_any();
        let existing = found(self.cluster.api::<Restore>().get(&name).await, &name)?;
        let Some(existing) = existing else {
            return Ok(StartOutcome::Later(
                "another Restore had its name".to_owned(),
            ));
        };
        let label = |one: &Restore| one.labels().get(DRILL_SCHEDULE_LABEL).cloned();
        if existing.spec.drill.is_some() && label(&existing) == label(restore) {
            return Ok(StartOutcome::Created);
        }
        let why = format!("there is another Restore {name}, which is not of this schedule");
        Ok(StartOutcome::Impossible(why))
    }

    /// Writes the result into the Schedule: from then on the next one is due later.
    async fn record(
        &self,
        schedule: &Schedule,
        last: Option<&LastDrill>,
        backup: &str,
        result: DrillResult,
    ) -> Result<Action, ReconcileError> {
        let has_failed = result.has_failed();
        let name = schedule.name_any();
        if result.restore.is_empty() {
            tracing::error!(
                schedule = name,
                failure = result.failure,
                "a drill could not begin"
            );
        }
        let value = LastDrill::after(last, backup, result).annotation();
        let known = annotation(schedule, LAST_DRILL_ANNOTATION);
        retry::status_patch(&self.cluster, schedule, |current| {
            // Another value was written meanwhile, by another replica or a user.
            (annotation(current, LAST_DRILL_ANNOTATION) == known)
                .then(|| json!({ "metadata": { "annotations": { LAST_DRILL_ANNOTATION: value } } }))
        })
        .await?;
        self.metrics.drilled(&name, has_failed);
        Ok(super::REQUEUE_NOW)
    }
}

/// A backup, of which the last drill was the last turn.
fn candidate(backup: &Backup) -> Option<Candidate> {
    let last = DrillResult::read(annotation(backup, DRILLED_ANNOTATION));
    Some(Candidate::of(backup)?.with_turn(last.map(|last| last.at)))
}

/// The Restore of a drill. Its name and its namespaces are the same for each attempt.
fn restore(
    schedule: &Schedule,
    spec: &ScheduledDrill,
    backup: &str,
    namespaces: &BTreeSet<String>,
) -> Restore {
    let id = drill::id(&[&seed(schedule, LAST_DRILL_ANNOTATION), backup]);
    let settings = DrillSpec {
        settings: spec.settings.clone(),
        ..DrillSpec::default()
    };
    let spec = drill::restore_spec(backup, &id, namespaces, settings);
    let mut restore = Restore::new(&drill::restore_name(backup, &id), spec);
    let label = valid_value(&schedule.name_any());
    restore.metadata.labels = Some([(DRILL_SCHEDULE_LABEL.to_owned(), label)].into());
    restore
}

#[cfg(test)]
mod tests;

//! Rotation of the password of all repositories: a key of the next password is added to each, the
//! Secret is switched, and, once a user has copied the new password, the keys of the previous one
//! are removed.
//!
//! The state is in the Secret (`secret`) and, for each repository, in an annotation of its
//! BackupRepository, which is valid for one version of the Secret. A pod changes the keys of a
//! repository; it has the same name as every other pod of it, so a maintenance and a change of keys
//! never meet. Uploads and restores go on: they read the key once, when they begin.
//!
//! At any time the current password opens every repository. The switch is therefore made under
//! `exclusion`, by which no repository is made meanwhile, and its write names the version of the
//! Secret that all repositories have confirmed. Keys are removed only when every pod has ended that
//! may have begun with the previous password.

mod decide;
#[cfg(test)]
mod model;
mod secret;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{BackupRepository, backup_repository::BackupRepositoryPhase},
    data_movement::{PASSWORD_SECRET, repository_name},
    event_reason::EventReason,
    repository_records::{
        KEY_CHANGE_ANNOTATION, KeyChange, KeyWork, PasswordRotation, RotationStage, version_of,
    },
};
use backup_runtime::{
    list,
    retry::{self, PatchOutcome},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    decide::{PodEnd, is_ours, location_is_gone},
    password::{PasswordSecret, random_password},
    patches,
};
use crate::{
    error::ReconcileError,
    location::{LocationError, is_read_only},
    volumes::data_mover::{
        DataMover,
        pod::{PodWork, WORK_LABEL},
    },
};
use decide::{RotatedRepository, RotationFacts, RotationPlan, key_work};
use secret::SecretPlan;

/// Interval between looks at the Secret.
const INTERVAL: Duration = Duration::from_secs(10);
/// Interval while a user has to do something, and after an error.
const BLOCKED_INTERVAL: Duration = Duration::from_mins(1);

/// Message to the user when a rotation begins; others follow for its stages.
const BEGUN: &str =
    "the password of the repositories is being rotated: all of them get a key of the next one";
const SWITCHED: &str = "repository-password is the new password now, and opens all repositories: copy it out of the \
    cluster, then run `kubectl backup repositories rotate-password --copied`, by which the keys of the previous one are removed";
const REMOVING: &str = "the keys of the previous password are removed from all repositories";
const FINISHED: &str =
    "the keys of the previous password were removed from all repositories; the rotation has ended";

/// Runs until the process is asked to end.
pub(super) async fn run(mover: Arc<DataMover>, stop: CancellationToken) {
    let mut last = None;
    let mut interval = INTERVAL;
    let mut password = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
        // Of an error nothing is lost: each repository looks for a change every few minutes.
        if let Err(error) = Box::pin(mover.follow_password(&mut password)).await {
            tracing::debug!(%error, "whether the password has changed is not known");
        }
        let awaited = match Box::pin(mover.rotate_once()).await {
            Err(ReconcileError::NotLeader(_)) => continue,
            Err(error) => Some(RotationPlan::Blocked(error.to_string())),
            Ok(awaited) => awaited,
        };
        interval = match &awaited {
            Some(RotationPlan::Blocked(_)) => BLOCKED_INTERVAL,
            _ => INTERVAL,
        };
        if awaited.is_some() && awaited != last {
            mover.report_rotation(awaited.as_ref()).await;
        }
        last = awaited;
    }
}

impl DataMover {
    /// Has the repositories that cannot be used opened again at once, if the Secret has changed
    /// since the last call: the password may have been corrected. `last` is what was known then.
    pub(super) async fn follow_password(
        &self,
        last: &mut Option<PasswordSecret>,
    ) -> Result<(), ReconcileError> {
        self.cluster.leadership.check()?;
        let password = self.password_secret().await?;
        if last.as_ref().is_some_and(|last| *last != password) {
            for repository in self.known_repositories().await?.into_values() {
                if repository.status.phase == Some(BackupRepositoryPhase::NotReady) {
                    self.forget_check(&repository).await?;
                }
            }
        }
        *last = Some(password);
        Ok(())
    }

    /// Does the next step of a rotation, if there is one. Returns what is awaited.
    pub(super) async fn rotate_once(&self) -> Result<Option<RotationPlan>, ReconcileError> {
        self.cluster.leadership.check()?;
        let secrets: Api<Secret> = self.cluster.api();
        let read = secrets.get(PASSWORD_SECRET).await;
        let Some(secret) = found(read, PASSWORD_SECRET)? else {
            return Ok(None);
        };
        match secret::plan(&secret) {
            SecretPlan::Nothing => Ok(None),
            SecretPlan::Begin => {
                let next = random_password()?;
                self.write_secret(
                    &secret,
                    |current, now| secret::begun(current, &next, now),
                    BEGUN,
                )
                .await
            }
            SecretPlan::Note(stage) => {
                let told = match stage {
                    RotationStage::Adding => BEGUN,
                    RotationStage::Switched => SWITCHED,
                    RotationStage::Removing => REMOVING,
                };
                self.write_secret(&secret, secret::noted, told).await
            }
            SecretPlan::Follow(rotation) => self.follow(&secret, rotation).await,
        }
    }

    async fn follow(
        &self,
        secret: &Secret,
        rotation: PasswordRotation,
    ) -> Result<Option<RotationPlan>, ReconcileError> {
        let version = version_of(&secret.metadata);
        let facts = self.rotation_facts(&version, rotation).await?;
        match decide::decide(&facts) {
            RotationPlan::Request(change, names) => {
                let repositories = self.cluster.api::<BackupRepository>();
                for name in names {
                    let Some(repository) = found(repositories.get(&name).await, &name)? else {
                        continue;
                    };
                    let text = change.annotation();
                    self.annotate(&repository, KEY_CHANGE_ANNOTATION, &text)
                        .await?;
                }
                Ok(None)
            }
            RotationPlan::Switch => self.switch(secret, &version).await,
            RotationPlan::Finish => self.write_secret(secret, secret::finished, FINISHED).await,
            awaited @ (RotationPlan::Wait(_) | RotationPlan::Blocked(_)) => Ok(Some(awaited)),
        }
    }

    /// Makes the next password the current one, unless a repository without a key of it is being
    /// made or was made meanwhile.
    async fn switch(
        &self,
        secret: &Secret,
        version: &str,
    ) -> Result<Option<RotationPlan>, ReconcileError> {
        let _exclusion = self.exclusion.lock().await;
        let selector = format!("{WORK_LABEL}={}", PodWork::Init.name());
        let params = ListParams::default().labels(&selector);
        let pods = self.cluster.api::<Pod>().list(&params).await?;
        if let Some(pod) = pods.items.first() {
            let name = pod.name_any();
            let awaited = format!("pod {name}, which makes a repository");
            return Ok(Some(RotationPlan::Wait(awaited)));
        }
        for (name, repository) in self.known_repositories().await? {
            let is_confirmed = confirms(&repository, KeyWork::Add, version);
            if !is_confirmed && self.exists(&repository).await? {
                return Ok(Some(RotationPlan::Wait(format!("the keys of {name}"))));
            }
        }
        self.write_secret(secret, secret::switched, SWITCHED).await
    }

    async fn exists(&self, repository: &BackupRepository) -> Result<bool, ReconcileError> {
        let spec = &repository.spec;
        let location = &spec.backup_storage_location;
        let Some((_, store)) = self.repository_store(location).await? else {
            return Ok(false);
        };
        Ok(store.has_repository(&spec.volume_namespace).await?)
    }

    /// Writes the Secret, unless it has changed since it was read, and tells the user.
    async fn write_secret(
        &self,
        secret: &Secret,
        patch: impl Fn(&Secret, Timestamp) -> Option<Value> + Send + Sync,
        told: &str,
    ) -> Result<Option<RotationPlan>, ReconcileError> {
        let version = version_of(&secret.metadata);
        let now = Timestamp::now();
        let outcome = retry::status_patch(&self.cluster, secret, |current| {
            (version_of(&current.metadata) == version)
                .then(|| patch(current, now))
                .flatten()
        })
        .await?;
        if let PatchOutcome::Written(_) = outcome {
            tracing::info!(secret = PASSWORD_SECRET, "{told}");
            let events = &self.cluster.events;
            events.normal(secret, EventReason::PasswordRotated, told);
        }
        Ok(None)
    }

    async fn rotation_facts<'a>(
        &self,
        secret: &'a str,
        rotation: PasswordRotation,
    ) -> Result<RotationFacts<'a>, ReconcileError> {
        let mut facts = RotationFacts {
            rotation,
            secret,
            repositories: Vec::new(),
            obstacles: Vec::new(),
            earlier_pods: Vec::new(),
            now: Timestamp::now(),
        };
        let Some(work) = key_work(rotation.stage) else {
            return Ok(facts);
        };
        let known = self.known_repositories().await?;
        let locations = self.location_names().await?;
        for location in &locations {
            let added = self.add_repositories(location, work, &known, &mut facts);
            match added.await {
                Ok(()) => {}
                Err(error @ ReconcileError::NotLeader(_)) => return Err(error),
                Err(error) => facts.obstacles.push(error.to_string()),
            }
        }
        for (name, repository) in &known {
            let location = &repository.spec.backup_storage_location;
            if !locations.contains(location) {
                facts.obstacles.push(format!(
                    "{}; or delete BackupRepository {name}, if that data is given up",
                    location_is_gone(location)
                ));
            }
        }
        if rotation.stage == RotationStage::Removing {
            facts.earlier_pods = self.pods_before(rotation.since).await?;
        }
        Ok(facts)
    }

    /// Adds the repositories in the bucket of a location.
    async fn add_repositories(
        &self,
        location: &str,
        work: KeyWork,
        known: &BTreeMap<String, BackupRepository>,
        facts: &mut RotationFacts<'_>,
    ) -> Result<(), ReconcileError> {
        let Some((place, store)) = self.repository_store(location).await? else {
            return Ok(());
        };
        let namespaces = store.repository_namespaces().await;
        for namespace in namespaces.map_err(|error| LocationError::of_store(location, error))? {
            let name = repository_name(&namespace, location);
            let repository = known.get(&name);
            if !repository.is_some_and(|one| confirms(one, work, facts.secret)) {
                let exists = store.has_repository(&namespace).await;
                if !exists.map_err(|error| LocationError::of_store(location, error))? {
                    continue;
                }
                if is_read_only(&place) {
                    facts.obstacles.push(format!(
                        "BackupStorageLocation {location} is read-only, and has repositories whose keys have to be changed: set \
                         spec.accessMode to ReadWrite until the rotation has ended"
                    ));
                    return Ok(());
                }
                if repository.is_none() {
                    self.create_repository(&namespace, location).await?;
                }
            }
            let change = repository.and_then(|one| KeyChange::of(one.annotations()));
            facts.repositories.push(RotatedRepository { name, change });
        }
        Ok(())
    }

    /// The BackupRepositories of our data mover, by name.
    async fn known_repositories(
        &self,
    ) -> Result<BTreeMap<String, BackupRepository>, ReconcileError> {
        let known = list::raw::<BackupRepository, _>(&self.cluster, "", |object| {
            let repository: BackupRepository = list::decode(&object).ok()?;
            is_ours(&repository).then(|| (repository.name_any(), repository))
        });
        Ok(known.await?.into_iter().collect())
    }

    /// The names of the pods that were created until this time and have not ended.
    async fn pods_before(&self, time: Timestamp) -> Result<Vec<String>, ReconcileError> {
        let params = ListParams::default().labels(WORK_LABEL);
        let pods = self.cluster.api::<Pod>().list(&params).await?;
        let earlier = pods.items.iter().filter(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref();
            let status = pod.status.as_ref();
            let phase = status.and_then(|status| status.phase.as_deref());
            let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
            !has_ended && created.is_none_or(|created| created.0 <= time)
        });
        Ok(earlier.map(ResourceExt::name_any).collect())
    }

    async fn report_rotation(&self, awaited: Option<&RotationPlan>) {
        match awaited {
            Some(RotationPlan::Wait(awaited)) => {
                tracing::info!(awaited, "the rotation of the password waits");
            }
            Some(RotationPlan::Blocked(why)) => {
                tracing::warn!(why, "the rotation of the password waits");
                let note = format!("the rotation of the password waits: {why}");
                let secrets: Api<Secret> = self.cluster.api();
                if let Ok(secret) = secrets.get(PASSWORD_SECRET).await {
                    let events = &self.cluster.events;
                    events.warning(&secret, EventReason::Blocked, &note);
                }
            }
            _ => {}
        }
    }

    /// Records how a pod that changes keys ended.
    pub(super) async fn record_keys(
        &self,
        repository: &BackupRepository,
        work: KeyWork,
        end: &PodEnd,
    ) -> Result<(), ReconcileError> {
        let requested = KeyChange::requested(work, end.valid_for.as_deref().unwrap_or_default());
        let change = match &end.failure {
            None => KeyChange {
                is_done: true,
                ..requested
            },
            Some(failure) => KeyChange {
                failed: Some(Timestamp::now()),
                failure: failure.clone(),
                ..requested
            },
        };
        retry::status_patch(&self.cluster, repository, |current| {
            patches::key_change(current, &change)
        })
        .await?;
        let name = repository.name_any();
        match &end.failure {
            None => tracing::info!(repository = name, ?work, "its keys were changed"),
            Some(failure) => {
                tracing::warn!(
                    repository = name,
                    ?work,
                    failure,
                    "its keys were not changed"
                );
            }
        }
        // The password may open it now.
        let was_unusable = repository.status.phase == Some(BackupRepositoryPhase::NotReady);
        if change.is_done && was_unusable {
            self.forget_check(repository).await?;
        }
        Ok(())
    }
}

/// Whether the keys of a repository were changed for this version of the Secret.
fn confirms(repository: &BackupRepository, work: KeyWork, secret: &str) -> bool {
    let change = KeyChange::of(repository.annotations());
    change.is_some_and(|change| change.is_done && change.is_of(work, secret))
}

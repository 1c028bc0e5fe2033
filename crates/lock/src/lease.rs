//! The ledger of a scope in its Lease, read freshly and written by compare-and-swap.
//!
//! Every write is a PUT that carries `resourceVersion` and `uid`, so that it fails if anything was
//! written since the read and never recreates a deleted ledger; the first is a create, which fails
//! if there is one. No write is a patch.

mod body;
#[cfg(test)]
mod edited;
mod error;
mod lifecycle;
mod marker;

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use backup_core::{
    digest::short_sha256,
    profile::{Profile, ScopeRule},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use tokio::{sync::Notify, time::Instant};

pub use self::error::{LedgerError, UpdateError};
pub use self::lifecycle::{LedgerRepair, RepairOutcome};
use self::{
    body::Owner,
    marker::{EPOCHS_AHEAD, Marker},
};
use crate::{
    claim::{Entry, ObjectKey, VELERO_SCOPE},
    conflict::Rules,
    ledger::{FormatError, Ledger, Status},
    observe::{MAX_CONCURRENT_READS, Objects, ObservedObject, REQUEST_TIMEOUT},
    registration::Installations,
    transition::{EndRules, Times},
};

/// Maximum number of tries for one change of a ledger.
const MAX_ATTEMPTS: u32 = 12;

/// The name of a scope's Lease, and of its marker.
pub fn lease_name(scope: &str) -> String {
    if scope == VELERO_SCOPE {
        return "backup-lock-velero".to_owned();
    }
    format!("backup-lock-{}", short_sha256(scope.as_bytes(), 8))
}

/// A ledger as it was read or written, with its Lease. A grant is valid only after a successful
/// write.
#[derive(Clone, Debug)]
pub struct StoredLedger {
    pub ledger: Arc<Ledger>,
    /// The scope of the ledger.
    pub scope: String,
    /// Number of times it was written.
    pub serial: u64,
    lease: Lease,
}

impl StoredLedger {
    /// Uid of the Lease: with the epoch, the fencing token.
    pub fn lease_uid(&self) -> &str {
        self.lease.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Finalizers of its Lease, all set by other programs: we set none.
    pub fn finalizers(&self) -> &[String] {
        self.lease
            .metadata
            .finalizers
            .as_deref()
            .unwrap_or_default()
    }

    pub fn resource_version(&self) -> &str {
        self.lease
            .metadata
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }
}

/// Reads and writes the ledgers of one profile; cheap to clone.
#[derive(Clone)]
pub struct LedgerStore {
    leases: Api<Lease>,
    markers: Api<ConfigMap>,
    objects: Objects,
    grace: Duration,
    /// Notified when a ledger needs a check soon. All clones share it.
    attention: Arc<Notify>,
}

/// Whether the ledger of a scope needs a check, judged by lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// None needed: it is open, has no claims, and its marker names it.
    None,
    Needed,
}

impl LedgerStore {
    /// Velero's ledger in this namespace, the namespace of the installation.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self::of_profile(client, namespace, Arc::new(Profile::velero()))
    }

    pub fn of_profile(client: Client, namespace: &str, profile: Arc<Profile>) -> Self {
        Self {
            leases: Api::namespaced(client.clone(), namespace),
            markers: Api::namespaced(client.clone(), namespace),
            objects: Objects::new(client, profile),
            grace: Times::default().grace,
            attention: Arc::default(),
        }
    }

    /// The same, with this duration of a rebuild for error messages.
    #[must_use]
    pub(crate) fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The same, filled only from the objects of these namespaces.
    #[must_use]
    pub(crate) fn only_in(mut self, installations: Installations) -> Self {
        self.objects = self.objects.only_in(installations);
        self
    }

    /// Fresh reads of the objects that claims are about.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    pub fn profile(&self) -> &Arc<Profile> {
        self.objects.profile()
    }

    pub fn ends(&self) -> EndRules {
        let profile = self.profile();
        EndRules {
            settles: !profile.policy.settle.is_zero(),
            tombstones: !profile.engine,
        }
    }

    /// The current ledger of a scope, whatever its status; `None` if there is none.
    pub async fn read(&self, scope: &str) -> Result<Option<StoredLedger>, LedgerError> {
        self.lease(scope)
            .await?
            .map(|lease| body::stored(self.owner(scope), lease))
            .transpose()
    }

    /// Every ledger of this profile, by its Lease, including unreadable ones.
    pub async fn list(
        &self,
    ) -> Result<Vec<(String, Result<StoredLedger, LedgerError>)>, LedgerError> {
        use backup_core::labels::PROFILE_LABEL;
        let profile = self.profile().name.clone();
        let labelled = ListParams::default().labels(&format!("{PROFILE_LABEL}={profile}"));
        let list = bounded("leases", "list", self.leases.list(&labelled)).await?;
        let mut ledgers = Vec::with_capacity(list.items.len());
        for lease in list.items {
            let scope = annotated_scope(&lease);
            let stored = body::stored(self.owner(&scope), lease);
            ledgers.push((scope, stored));
        }
        Ok(ledgers)
    }

    /// The ledger in a Lease of this profile that the caller has listed.
    pub fn of_lease(&self, lease: Lease) -> Result<StoredLedger, LedgerError> {
        let scope = annotated_scope(&lease);
        let name = lease.metadata.name.clone().unwrap_or_default();
        if name != lease_name(&scope) {
            let why = format!(
                "its annotation {} does not go with its name",
                backup_core::labels::SCOPE_ANNOTATION
            );
            return Err(LedgerError::Format {
                lease: name,
                source: FormatError::Unreadable(why),
            });
        }
        body::stored(self.owner(&scope), lease)
    }

    /// The scopes of this profile that have a ledger, or have lost one, from two fresh lists.
    pub async fn scopes(&self) -> Result<BTreeMap<String, Upkeep>, LedgerError> {
        use backup_core::labels::PROFILE_LABEL;
        let labelled =
            ListParams::default().labels(&format!("{PROFILE_LABEL}={}", self.profile().name));
        let markers = bounded("markers", "list", self.markers.list(&labelled)).await?;
        let markers = markers.items.into_iter().filter_map(Marker::with_scope);
        let markers: HashMap<String, Marker> = markers.collect();
        let mut scopes: BTreeMap<String, Upkeep> = markers
            .keys()
            .map(|scope| (scope.clone(), Upkeep::Needed))
            .collect();
        for (scope, stored) in self.list().await? {
            let rests = stored.is_ok_and(|stored| self.rests(&stored, markers.get(&scope)));
            scopes.insert(scope, if rests { Upkeep::None } else { Upkeep::Needed });
        }
        Ok(scopes)
    }

    /// Whether a ledger needs no check now or later, unless it is written.
    fn rests(&self, stored: &StoredLedger, marker: Option<&Marker>) -> bool {
        let ledger = &stored.ledger;
        let stays = matches!(self.profile().scope, ScopeRule::Cluster);
        stays
            && ledger.status == Status::Open
            && ledger.is_empty()
            && stored
                .lease
                .metadata
                .name
                .as_ref()
                .is_some_and(|name| *name == lease_name(&stored.scope))
            && marker.is_some_and(|marker| marker.names(stored))
    }

    /// Requests a check of the ledgers soon, by the [`LedgerReconciler`](crate::LedgerReconciler)
    /// of this process.
    pub fn ask_for_attention(&self) {
        self.attention.notify_one();
    }

    /// Resolves when ledgers need a check: one was written by this process, or is lost. For one
    /// caller.
    pub(crate) async fn attention(&self) {
        self.attention.notified().await;
    }

    /// A first ledger, with an entry for every running object.
    pub async fn from_running(&self, scope: &str) -> Result<Ledger, LedgerError> {
        let mut ledger = Ledger {
            rules: self.rules(),
            ..Ledger::default()
        };
        self.adopt_running(&mut ledger, scope).await?;
        Ok(ledger)
    }

    /// Adopts every running object that has no entry yet.
    async fn adopt_running(&self, ledger: &mut Ledger, scope: &str) -> Result<(), LedgerError> {
        let running = self.objects.running(scope).await?;
        let running = stream::iter(running)
            .map(|object| self.entry_of(object))
            .buffered(MAX_CONCURRENT_READS)
            .try_collect()
            .await?;
        ledger.adopt_running(running, self.profile().engine);
        Ok(())
    }

    /// The entry with which a running object is adopted.
    async fn entry_of(&self, seen: ObservedObject) -> Result<(ObjectKey, Entry), LedgerError> {
        let footprint = self.objects.footprint(&seen.key, &seen.spec).await?;
        let entry = Entry::new(&seen.uid, footprint, seen.state(), &seen.created);
        Ok((seen.key, entry))
    }

    /// Gives every running object an entry of its own, replacing the overflow claim that stood for
    /// objects without room. Does nothing if there is still not enough room.
    async fn spread_overflow(&self, stored: &StoredLedger) -> Result<(), LedgerError> {
        let mut ledger = stored.ledger.without_overflow();
        self.adopt_running(&mut ledger, &stored.scope).await?;
        if !ledger.overflows() {
            ledger.promote();
            self.write(stored, ledger).await?;
            tracing::info!(
                scope = stored.scope,
                "everything that runs has an entry of its own now"
            );
        }
        Ok(())
    }

    /// Writes a ledger over the one that was read, if it has not changed since.
    pub async fn write(
        &self,
        over: &StoredLedger,
        mut ledger: Ledger,
    ) -> Result<StoredLedger, LedgerError> {
        // Long before the bound is reached: users who release and hold may write ledgers, but no
        // markers.
        if ledger.epoch + EPOCHS_AHEAD / 2 > ledger.bound {
            match self.raise_marker(over, ledger.epoch).await {
                Ok(bound) => ledger.bound = bound,
                Err(LedgerError::Denied { .. }) if ledger.epoch <= ledger.bound => {}
                Err(error) => return Err(error),
            }
        }
        let (lease, serial) = body::lease_of(self.owner(&over.scope), Some(&over.lease), &ledger)?;
        let name = lease_name(&over.scope);
        // Conditional on resourceVersion and uid.
        let post = PostParams::default();
        let put = self.leases.replace(&name, &post, &lease);
        let written = bounded(&name, "write", put).await?;
        self.ask_for_attention();
        Ok(StoredLedger {
            ledger: Arc::new(ledger),
            scope: over.scope.clone(),
            serial,
            lease: written,
        })
    }

    fn rules(&self) -> Rules {
        let profile = self.profile();
        Rules {
            backups_exclude_each_other: profile.policy.backups_exclude_each_other,
            backups_yield: profile.engine,
        }
    }

    fn owner<'a>(&'a self, scope: &'a str) -> Owner<'a> {
        Owner {
            scope,
            profile: &self.profile().name,
            rules: self.rules(),
        }
    }

    async fn lease(&self, scope: &str) -> Result<Option<Lease>, LedgerError> {
        let name = lease_name(scope);
        bounded(&name, "read", self.leases.get_opt(&name)).await
    }

    /// Changes a ledger: reads it, applies the change, writes it, and retries if another writer was
    /// faster; bounded tries, jittered pauses, never past `deadline`. A change without effect is
    /// not written.
    ///
    /// `change` may run several times, each time on a freshly read ledger.
    pub async fn update<T, E>(
        &self,
        scope: &str,
        deadline: Instant,
        mut change: impl FnMut(&mut Ledger) -> Result<T, E>,
    ) -> Result<(T, StoredLedger), UpdateError<E>> {
        let name = lease_name(scope);
        let mut tries = 0;
        loop {
            let attempt = async {
                let read = self.open(scope).await?;
                let mut ledger = Ledger::clone(&read.ledger);
                let value = change(&mut ledger).map_err(UpdateError::Refused)?;
                if ledger == *read.ledger {
                    return Ok((value, read));
                }
                Ok((value, self.write(&read, ledger).await?))
            };
            let failure = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Err(UpdateError::Ledger(error))) if error.passes_soon() => error,
                Ok(outcome) => return outcome,
                Err(_) => {
                    return Err(LedgerError::Timeout {
                        what: format!("change the ledger {name}"),
                    }
                    .into());
                }
            };
            let pause = pause_after(tries);
            tries += 1;
            if tries >= MAX_ATTEMPTS || Instant::now() + pause >= deadline {
                return Err(failure.into());
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// As [`LedgerStore::update`], for a change that cannot be refused.
    pub async fn change<T>(
        &self,
        scope: &str,
        deadline: Instant,
        mut change: impl FnMut(&mut Ledger) -> T,
    ) -> Result<T, LedgerError> {
        match self
            .update(scope, deadline, |ledger| {
                Ok::<_, Infallible>(change(ledger))
            })
            .await
        {
            Ok((value, _)) => Ok(value),
            Err(UpdateError::Ledger(error)) => Err(error),
            Err(UpdateError::Refused(never)) => match never {},
        }
    }
}

/// The scope in the annotation of a Lease; empty if it has none.
fn annotated_scope(lease: &Lease) -> String {
    let annotations = lease.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(backup_core::labels::SCOPE_ANNOTATION))
        .cloned()
        .unwrap_or_default()
}

/// Pause after the `tries`th failed write of a ledger (from 0): random, up to a limit that doubles.
pub fn pause_after(tries: u32) -> Duration {
    const FIRST_PAUSE: Duration = Duration::from_millis(5);
    const MAX_PAUSE: Duration = Duration::from_millis(100);
    FIRST_PAUSE
        .saturating_mul(1 << tries.min(10))
        .min(MAX_PAUSE)
        .mul_f64(fastrand::f64())
}

async fn bounded<T>(
    lease: &str,
    verb: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, LedgerError> {
    let error = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => Some(error),
        Err(_) => None,
    };
    let what = format!("{verb} the ledger {lease}");
    let Some(source) = error else {
        return Err(LedgerError::Timeout { what });
    };
    let code = if let kube::Error::Api(status) = &source {
        status.code
    } else {
        0
    };
    Err(match code {
        // 404 on a write or a delete: the Lease was deleted since it was read, which is a change
        // too. On a create: the namespace is missing.
        409 => LedgerError::Changed {
            lease: lease.to_owned(),
        },
        404 if verb.starts_with("write") || verb.starts_with("delete") => LedgerError::Changed {
            lease: lease.to_owned(),
        },
        // 429 asks for another try.
        400..=428 | 430..=499 => LedgerError::Denied {
            what,
            source: Box::new(source),
        },
        _ => LedgerError::Unreachable {
            what,
            source: Box::new(source),
        },
    })
}

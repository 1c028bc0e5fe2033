//! The life cycle of a ledger: created, opened, rebuilt after a loss, closed when idle.
//!
//! `Opening → Open → Closed`, and `Rebuilding → Open`. Only an open ledger grants. A marker outside
//! the ledger is created before it and names it before it opens, so a reader that finds a marker
//! naming a missing or unreadable Lease knows that a ledger was lost: creations that it admitted
//! may still be stored, and are waited for.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use backup_core::profile::ScopeRule;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, PostParams, Preconditions};

use super::{
    LedgerError, LedgerStore, StoredLedger, body, bounded, lease_name, marker::EPOCHS_AHEAD,
};
use crate::ledger::{FormatError, Ledger, Status};

/// Maximum number of steps from nothing to an open ledger, including steps of concurrent writers.
const MAX_OPENING_STEPS: usize = 8;

impl LedgerStore {
    /// The open ledger of a scope; a first one is created at once.
    ///
    /// It is filled from fresh lists of running objects, so that an existing object is never
    /// ignored. A lost ledger is an error: a [`LedgerRepair`] rebuilds it.
    pub async fn open(&self, scope: &str) -> Result<StoredLedger, LedgerError> {
        for _ in 0..MAX_OPENING_STEPS {
            match self.read(scope).await? {
                Some(stored) => match stored.ledger.status {
                    Status::Open => return Ok(stored),
                    Status::Opening => match self.finish_opening(&stored).await {
                        Ok(open) => return Ok(open),
                        Err(LedgerError::Changed { .. }) => {}
                        Err(error) => return Err(error),
                    },
                    Status::Rebuilding => return Err(self.rebuilding(scope)),
                    Status::Closed => self.remove(&stored).await?,
                },
                None => match self.make_first(scope).await {
                    Ok(()) | Err(LedgerError::Changed { .. }) => {}
                    Err(error) => return Err(error),
                },
            }
        }
        Err(LedgerError::Changed {
            lease: lease_name(scope),
        })
    }

    /// The ledger that [`open`](Self::open) would return, without any write.
    pub async fn preview(&self, scope: &str) -> Result<Ledger, LedgerError> {
        let (uid, opened) = match self.read(scope).await? {
            None => (String::new(), None),
            Some(stored) => {
                let ledger = Ledger::clone(&stored.ledger);
                let uid = stored.lease_uid().to_owned();
                match ledger.status {
                    Status::Open => return Ok(ledger),
                    Status::Rebuilding => return Err(self.rebuilding(scope)),
                    Status::Opening => (
                        uid,
                        Some(Ledger {
                            status: Status::Open,
                            ..ledger
                        }),
                    ),
                    Status::Closed => (uid, None),
                }
            }
        };
        if let Some(marker) = self.marker(scope).await?
            && !marker.ledger.is_empty()
            && marker.ledger != uid
        {
            return Err(self.rebuilding(scope));
        }
        match opened {
            Some(ledger) => Ok(ledger),
            None => self.from_running(scope).await,
        }
    }

    /// Marker, lists, Lease: each is created only if it is missing.
    async fn make_first(&self, scope: &str) -> Result<(), LedgerError> {
        if let Some(marker) = self.marker(scope).await? {
            if !marker.ledger.is_empty() {
                return Err(self.rebuilding(scope));
            }
        } else {
            self.make_marker(scope, "", 0).await?;
        }
        let ledger = Ledger {
            status: Status::Opening,
            ..self.from_running(scope).await?
        };
        self.create(scope, &ledger).await
    }

    /// Create-only; an existing Lease is fine, and is read next.
    async fn create(&self, scope: &str, ledger: &Ledger) -> Result<(), LedgerError> {
        let (lease, _) = body::lease_of(self.owner(scope), None, ledger)?;
        let name = lease_name(scope);
        match bounded(
            &name,
            "create",
            self.leases.create(&PostParams::default(), &lease),
        )
        .await
        {
            Ok(_) => {
                tracing::info!(scope, lease = name, status = ?ledger.status, claims = ledger.len(), "made a ledger");
                Ok(())
            }
            Err(LedgerError::Changed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Names the ledger in its marker, then opens it.
    async fn finish_opening(&self, stored: &StoredLedger) -> Result<StoredLedger, LedgerError> {
        let scope = &stored.scope;
        let uid = stored.lease_uid();
        let mut ledger = Ledger::clone(&stored.ledger);
        if let Some(marker) = self.marker(scope).await? {
            if marker.ledger.is_empty() {
                ledger.bound = marker.epoch.max(ledger.epoch + EPOCHS_AHEAD);
                self.set_marker(scope, &marker, uid, ledger.bound).await?;
            } else if marker.ledger == uid {
                ledger.bound = marker.epoch;
            } else {
                // Created by a process that had looked before another ledger was opened, which is
                // lost by now.
                ledger.status = Status::Rebuilding;
                ledger.epoch = marker.epoch.max(ledger.epoch) + 1;
                ledger.claims.clear();
                // The marker names another ledger, so this one is not written as an open one.
                self.put_over(scope, &stored.lease, &ledger).await?;
                return Err(self.rebuilding(scope));
            }
        } else {
            self.make_marker(scope, uid, ledger.epoch).await?;
        }
        ledger.status = Status::Open;
        self.write(stored, ledger).await
    }

    /// Conditional on resourceVersion and uid of the Lease.
    async fn put_over(
        &self,
        scope: &str,
        over: &Lease,
        ledger: &Ledger,
    ) -> Result<(), LedgerError> {
        let (lease, _) = body::lease_of(self.owner(scope), Some(over), ledger)?;
        let name = lease_name(scope);
        let post = PostParams::default();
        let put = self.leases.replace(&name, &post, &lease);
        bounded(&name, "write", put).await.map(|_| ())
    }

    /// Removes a closed ledger, its marker first. Any process can repeat this at any point.
    async fn remove(&self, closed: &StoredLedger) -> Result<(), LedgerError> {
        if let Some(marker) = self.marker(&closed.scope).await?
            && marker.ledger == closed.lease_uid()
        {
            self.delete_marker(&closed.scope, &marker).await?;
        }
        self.delete_lease(&closed.scope, &closed.lease).await
    }

    /// Deletes exactly this version of the Lease; a changed Lease stays, a missing one is fine.
    async fn delete_lease(&self, scope: &str, lease: &Lease) -> Result<(), LedgerError> {
        let preconditions = Preconditions {
            uid: lease.metadata.uid.clone(),
            resource_version: lease.metadata.resource_version.clone(),
        };
        let name = lease_name(scope);
        let parameters = DeleteParams::default().preconditions(preconditions);
        match bounded(&name, "delete", self.leases.delete(&name, &parameters)).await {
            Ok(_) | Err(LedgerError::Changed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The error for a lost ledger. Also requests a check of the ledger soon.
    fn rebuilding(&self, scope: &str) -> LedgerError {
        self.ask_for_attention();
        LedgerError::Rebuilding {
            lease: lease_name(scope),
            grace: self.grace,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairOutcome {
    Fine,
    /// It was lost, or is damaged: it grants nothing from now on.
    Lost,
    /// A grace later, it was rebuilt from the stored objects.
    Rebuilt,
    Removed,
}

/// Repairs ledgers: rebuilds lost ones, removes idle ones. Ages are counted on its own monotonic
/// clock, from first sight.
#[derive(Debug)]
pub struct LedgerRepair {
    grace: Duration,
    idle: Duration,
    seen: HashMap<String, (String, u64, Instant)>,
}

impl LedgerRepair {
    /// `grace`: wait before a lost ledger grants again; `idle`: wait before an empty ledger of a
    /// profile is removed.
    pub fn new(grace: Duration, idle: Duration) -> Self {
        Self {
            grace,
            idle,
            seen: HashMap::new(),
        }
    }

    /// Checks the ledger of a scope once.
    pub async fn repair(
        &mut self,
        store: &LedgerStore,
        scope: &str,
        now: Instant,
    ) -> Result<RepairOutcome, LedgerError> {
        let Some(lease) = store.lease(scope).await? else {
            self.seen.remove(scope);
            let marker = store.marker(scope).await?;
            let Some(marker) = marker.filter(|marker| !marker.ledger.is_empty()) else {
                return Ok(RepairOutcome::Fine);
            };
            store
                .create(scope, &Ledger::lost(marker.epoch, store.rules()))
                .await?;
            tracing::error!(
                scope,
                "the ledger is gone; nothing is granted until it is rebuilt"
            );
            return Ok(RepairOutcome::Lost);
        };
        let stored = match body::stored(store.owner(scope), lease.clone()) {
            Ok(stored) => stored,
            Err(LedgerError::Format {
                source: FormatError::Unreadable(why),
                ..
            }) => {
                let transitions = lease
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.lease_transitions)
                    .unwrap_or_default();
                let marker = store.marker(scope).await?;
                let epoch = u64::try_from(transitions).unwrap_or_default();
                let epoch = epoch.max(marker.as_ref().map_or(0, |marker| marker.epoch));
                match store
                    .put_over(scope, &lease, &Ledger::lost(epoch, store.rules()))
                    .await
                {
                    // It was edited so that the policy allows no next write. Once it is deleted,
                    // the marker says that it was lost.
                    Err(LedgerError::Denied { .. }) => {
                        let uid = lease.metadata.uid.as_deref().unwrap_or_default();
                        if let Some(marker) = marker {
                            if marker.ledger.is_empty() {
                                store.set_marker(scope, &marker, uid, epoch).await?;
                            }
                        } else {
                            store.make_marker(scope, uid, epoch).await?;
                        }
                        store.delete_lease(scope, &lease).await?;
                    }
                    written => written?,
                }
                tracing::error!(
                    scope,
                    why,
                    "the ledger is damaged; nothing is granted until it is rebuilt"
                );
                return Ok(RepairOutcome::Lost);
            }
            Err(error) => return Err(error),
        };
        let uid = stored.lease_uid().to_owned();
        let serial = stored.serial;
        let since = self
            .seen
            .get(scope)
            .filter(|(seen_uid, seen_serial, _)| *seen_uid == uid && *seen_serial == serial)
            .map_or(now, |(_, _, since)| *since);
        self.seen.insert(scope.to_owned(), (uid, serial, since));
        let age = now.saturating_duration_since(since);
        match stored.ledger.status {
            Status::Opening => store
                .finish_opening(&stored)
                .await
                .map(|_| RepairOutcome::Fine),
            Status::Rebuilding => {
                if age >= self.grace {
                    rebuild(store, &stored).await
                } else {
                    Ok(RepairOutcome::Lost)
                }
            }
            Status::Open => {
                name_in_marker(store, &stored).await?;
                if stored.ledger.overflows() {
                    store.spread_overflow(&stored).await?;
                    return Ok(RepairOutcome::Fine);
                }
                let forever = matches!(store.profile().scope, ScopeRule::Cluster);
                if forever || !stored.ledger.is_empty() || age < self.idle {
                    return Ok(RepairOutcome::Fine);
                }
                let closed = Ledger {
                    status: Status::Closed,
                    ..Ledger::clone(&stored.ledger)
                };
                let closed = store.write(&stored, closed).await?;
                store.remove(&closed).await.map(|()| RepairOutcome::Removed)
            }
            Status::Closed => store.remove(&stored).await.map(|()| RepairOutcome::Removed),
        }
    }
}

/// Fills a lost ledger from the stored objects, names it in the marker, and opens it.
async fn rebuild(store: &LedgerStore, stored: &StoredLedger) -> Result<RepairOutcome, LedgerError> {
    let scope = &stored.scope;
    let uid = stored.lease_uid();
    let mut ledger = store.from_running(scope).await?;
    ledger.go_on_from(stored.ledger.epoch);
    match store.marker(scope).await? {
        Some(marker) => {
            store
                .set_marker(scope, &marker, uid, marker.epoch.max(ledger.epoch))
                .await?;
        }
        None => store.make_marker(scope, uid, ledger.epoch).await?,
    }
    let claims = ledger.len();
    store.write(stored, ledger).await?;
    tracing::warn!(scope, claims, "the ledger was rebuilt from what is stored");
    Ok(RepairOutcome::Rebuilt)
}

/// Corrects a marker that was lost or changed while the ledger exists.
async fn name_in_marker(store: &LedgerStore, stored: &StoredLedger) -> Result<(), LedgerError> {
    let scope = &stored.scope;
    let uid = stored.lease_uid();
    let bound = stored.ledger.bound;
    let Some(marker) = store.marker(scope).await? else {
        return store.make_marker(scope, uid, bound).await;
    };
    if marker.names(stored) {
        return Ok(());
    }
    store
        .set_marker(scope, &marker, uid, marker.epoch.max(bound))
        .await
}

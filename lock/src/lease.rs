//! The ledger of a scope in its Lease, read freshly and written by compare-and-swap.
//!
//! Every write is a PUT that carries `resourceVersion` and `uid`, so that it fails if anything was written since the read
//! and never brings a deleted ledger back; the first is a create, which fails if there is one. Nothing ever patches.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_core::labels::{EXCLUDE_FROM_BACKUP, LEDGER_ANNOTATION};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, Client, api::PostParams, core::ObjectMeta};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::{
    claim::ObjectKey,
    errors::plain,
    ledger::{FormatError, Ledger, MAX_BYTES},
    observe::{Objects, ObserveError, REQUEST_TIMEOUT},
    pause,
};

/// The scope of all Backups and Restores of `velero.io` in a cluster.
pub const VELERO_SCOPE: &str = "velero.io";

/// How often one change of a ledger is tried.
const TRIES: u32 = 12;

/// The scope that an object belongs to. With profiles this will depend on more than the kind.
pub fn scope_of(_key: &ObjectKey) -> &'static str {
    VELERO_SCOPE
}

/// The name of a scope's Lease.
pub fn lease_name(scope: &str) -> String {
    if scope == VELERO_SCOPE {
        return "backup-lock-velero".to_owned();
    }
    let digest = Sha256::digest(scope.as_bytes());
    let short = digest.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("backup-lock-{short:016x}")
}

/// Why a ledger could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// It was written by someone else since it was read. Read again and decide again.
    #[error("the ledger {lease} was changed by another writer")]
    Changed {
        /// Name of the Lease.
        lease: String,
    },
    /// The API server refused.
    #[error("the API server refused to {what}: {}; check that the RBAC from deploy/ is installed", plain(.source))]
    Denied {
        /// What was tried.
        what: String,
        /// The refusal.
        source: Box<kube::Error>,
    },
    /// The API server could not be reached, or failed.
    #[error("could not {what}: {}", plain(.source))]
    Unreachable {
        /// What was tried.
        what: String,
        /// The failure.
        source: Box<kube::Error>,
    },
    /// No answer in time. What was sent may have been done.
    #[error("could not {what}: no answer from the API server in time")]
    Timeout {
        /// What was tried.
        what: String,
    },
    /// The objects that the ledger is about could not be read.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The ledger is there, but is not one that this version can work with. Nothing was written.
    #[error(
        "{source} (Lease {lease}; only once no backup or restore runs, deleting it has it made anew from what is stored)"
    )]
    Format {
        /// Name of the Lease.
        lease: String,
        /// What is wrong with it.
        source: FormatError,
    },
    /// Someone deletes the ledger. Nothing was written.
    #[error("the ledger {lease} is being deleted; nothing is granted until it is gone")]
    BeingDeleted {
        /// Name of the Lease.
        lease: String,
    },
    /// The ledger has outgrown its place. Nothing was written.
    #[error("the ledger {lease} would have {bytes} bytes, more than the {MAX_BYTES} that it may have")]
    TooLarge {
        /// Name of the Lease.
        lease: String,
        /// Its size.
        bytes: usize,
    },
}

impl LedgerError {
    /// A bounded label for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "changed",
            Self::Denied { .. } => "denied",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Observe(_) => "observe",
            Self::Format { source: FormatError::Newer { .. }, .. } => "newer",
            Self::Format { .. } => "unreadable",
            Self::BeingDeleted { .. } => "being_deleted",
            Self::TooLarge { .. } => "too_large",
        }
    }

    /// Whether the same may succeed soon.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Changed { .. } | Self::Unreachable { .. } | Self::Timeout { .. } | Self::Observe(_)
        )
    }
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError<E> {
    /// The change itself said no, on a fresh ledger. Nothing was written.
    #[error(transparent)]
    Refused(E),
    /// The ledger could not be read or written.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// A ledger as it was read or written, and the Lease that it stood in. A grant rests only on a write that succeeded.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The claims.
    pub ledger: Arc<Ledger>,
    lease: Lease,
}

impl Stored {
    /// Uid of the Lease: with the epoch, the fencing token.
    pub fn lease_uid(&self) -> &str {
        self.lease.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Version of the Lease.
    pub fn resource_version(&self) -> &str {
        self.lease.metadata.resource_version.as_deref().unwrap_or_default()
    }
}

/// Reads and writes ledgers; cheap to clone.
#[derive(Clone)]
pub struct LedgerStore {
    leases: Api<Lease>,
    objects: Objects,
}

impl LedgerStore {
    /// Ledgers in this namespace, the one of the installation.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { leases: Api::namespaced(client.clone(), namespace), objects: Objects::new(client) }
    }

    /// Fresh reads of the objects that claims are about.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The ledger of a scope as it is now, or none if there is none.
    pub async fn read(&self, scope: &str) -> Result<Option<Stored>, LedgerError> {
        let name = lease_name(scope);
        let lease = bounded(&name, "read", self.leases.get_opt(&name)).await?;
        lease.map(|lease| stored(&name, lease)).transpose()
    }

    /// The ledger of a scope as it is now; a missing one is made at once.
    ///
    /// It is filled from fresh lists of what runs, so that an object that exists is never ignored, and created only if
    /// there is still none.
    ///
    /// Known limit: a ledger that was *lost* is made anew in the same way. An object that was admitted before the loss
    /// and is stored after the lists is then not in it. To close this, a marker outside the ledger will tell a first
    /// ledger from a lost one, which is rebuilt by the controller while nothing is granted.
    pub async fn read_or_create(&self, scope: &str) -> Result<Stored, LedgerError> {
        if let Some(stored) = self.read(scope).await? {
            return Ok(stored);
        }
        let ledger = self.from_running().await?;
        let name = lease_name(scope);
        let lease = lease_of(&name, None, &ledger)?;
        let created = bounded(&name, "create", self.leases.create(&PostParams::default(), &lease)).await?;
        tracing::info!(lease = name, claims = ledger.claims.len(), "made a new ledger");
        Ok(Stored { ledger: Arc::new(ledger), lease: created })
    }

    /// A first ledger: everything that runs now.
    pub async fn from_running(&self) -> Result<Ledger, LedgerError> {
        let mut ledger = Ledger::default();
        for (seen, footprint, state) in self.objects.running().await? {
            ledger.adopt(&seen.key, &seen.uid, &footprint, state, &seen.created);
        }
        Ok(ledger)
    }

    /// Writes a ledger over the one that was read, if nobody else did since.
    pub async fn write(&self, over: &Stored, ledger: Ledger) -> Result<Stored, LedgerError> {
        let name = over.lease.metadata.name.clone().unwrap_or_default();
        let lease = lease_of(&name, Some(&over.lease), &ledger)?;
        let written =
            bounded(&name, "write", self.leases.replace(&name, &PostParams::default(), &lease)).await?;
        Ok(Stored { ledger: Arc::new(ledger), lease: written })
    }

    /// Changes a ledger: reads it, applies the change, writes it, and does so again if someone else was faster; bounded
    /// tries, jittered pauses, never past `deadline`. A change that changes nothing is not written.
    ///
    /// `change` may run several times, each time on what was freshly read.
    pub async fn update<T, E>(
        &self,
        scope: &str,
        deadline: Instant,
        mut change: impl FnMut(&mut Ledger) -> Result<T, E>,
    ) -> Result<(T, Stored), UpdateError<E>> {
        let name = lease_name(scope);
        let mut tries = 0;
        loop {
            let attempt = async {
                let read = self.read_or_create(scope).await?;
                let mut ledger = Ledger::clone(&read.ledger);
                let value = change(&mut ledger).map_err(UpdateError::Refused)?;
                if ledger == *read.ledger {
                    return Ok((value, read));
                }
                Ok((value, self.write(&read, ledger).await?))
            };
            let failure = match tokio::time::timeout_at(deadline, attempt).await {
                Ok(Err(UpdateError::Ledger(error))) if error.is_transient() => error,
                Ok(outcome) => return outcome,
                Err(_) => {
                    return Err(LedgerError::Timeout { what: format!("change the ledger {name}") }.into());
                }
            };
            let pause = pause::after(tries);
            tries += 1;
            if tries >= TRIES || Instant::now() + pause >= deadline {
                return Err(failure.into());
            }
            tokio::time::sleep(pause).await;
        }
    }
}

/// How long to pause after the `tries`th failed write of a ledger (from 0), with jitter.
pub fn pause_after(tries: u32) -> Duration {
    pause::after(tries)
}

fn stored(name: &str, lease: Lease) -> Result<Stored, LedgerError> {
    if lease.metadata.deletion_timestamp.is_some() {
        return Err(LedgerError::BeingDeleted { lease: name.to_owned() });
    }
    let text = lease.metadata.annotations.as_ref().and_then(|annotations| annotations.get(LEDGER_ANNOTATION));
    let ledger = match text {
        Some(text) => Ledger::from_json(text),
        None => Err(FormatError::Unreadable(format!("it has no annotation {LEDGER_ANNOTATION}"))),
    };
    let ledger = ledger.map_err(|source| LedgerError::Format { lease: name.to_owned(), source })?;
    Ok(Stored { ledger: Arc::new(ledger), lease })
}

/// The Lease that holds this ledger: the annotation is the truth, the rest is for people.
fn lease_of(name: &str, over: Option<&Lease>, ledger: &Ledger) -> Result<Lease, LedgerError> {
    let text = ledger.to_json();
    if text.len() > MAX_BYTES {
        return Err(LedgerError::TooLarge { lease: name.to_owned(), bytes: text.len() });
    }
    let old = over.cloned().unwrap_or_default();
    let mut annotations = old.metadata.annotations.unwrap_or_default();
    annotations.insert(LEDGER_ANNOTATION.to_owned(), text);
    let mut labels: BTreeMap<String, String> = old.metadata.labels.unwrap_or_default();
    // A restored old ledger would bring dead claims back.
    labels.insert(EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned());
    let transitions = i32::try_from(ledger.epoch).unwrap_or(i32::MAX);
    let spec = old.spec.unwrap_or_default();
    let now = MicroTime(Timestamp::now());
    let granted = spec.lease_transitions.unwrap_or(0) != transitions;
    Ok(Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: old.metadata.namespace,
            resource_version: old.metadata.resource_version,
            uid: old.metadata.uid,
            finalizers: old.metadata.finalizers,
            owner_references: old.metadata.owner_references,
            annotations: Some(annotations),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(ledger.holder()),
            lease_transitions: Some(transitions),
            acquire_time: if granted { Some(now.clone()) } else { spec.acquire_time },
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    })
}

async fn bounded<T>(
    lease: &str,
    verb: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, LedgerError> {
    let what = || format!("{verb} the ledger {lease}");
    let source = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(source)) => source,
        Err(_) => return Err(LedgerError::Timeout { what: what() }),
    };
    let code = if let kube::Error::Api(status) = &source { status.code } else { 0 };
    Err(match code {
        // 404 on a write: deleted since it was read, which is a change too. On a create: the namespace is missing.
        409 => LedgerError::Changed { lease: lease.to_owned() },
        404 if verb == "write" => LedgerError::Changed { lease: lease.to_owned() },
        400..=428 | 430..=499 => LedgerError::Denied { what: what(), source: Box::new(source) },
        _ => LedgerError::Unreachable { what: what(), source: Box::new(source) },
    })
}

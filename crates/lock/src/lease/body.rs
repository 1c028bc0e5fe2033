//! Converts a ledger to a Lease, and back.

use std::{collections::BTreeMap, sync::Arc};

use backup_core::digest::hex;
use backup_core::labels::{
    EXCLUDE_FROM_BACKUP, LEDGER_ANNOTATION, PART_OF, PROFILE_LABEL, SCOPE_ANNOTATION,
    SERIAL_ANNOTATION, SUM_ANNOTATION,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, MicroTime},
};
use kube::core::ObjectMeta;
use sha2::{Digest, Sha256};

use super::{LedgerError, StoredLedger, lease_name};
use crate::{
    conflict::Rules,
    ledger::{FormatError, Ledger, MAX_BYTES, Status},
};

/// The last serial with a successor: the policy `backup-lock-ledger` allows 18 digits. No ledger is
/// written that often (a thousand writes a second take thirty million years); a higher serial was
/// edited.
pub(super) const MAX_SERIAL: u64 = 999_999_999_999_999_998;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner<'a> {
    pub scope: &'a str,
    pub profile: &'a str,
    pub rules: Rules,
}

/// Reads the ledger out of its Lease. The checksum reveals an edit by hand, and a copy under
/// another uid too.
pub(crate) fn stored(owner: Owner<'_>, lease: Lease) -> Result<StoredLedger, LedgerError> {
    let name = lease_name(owner.scope);
    if lease.metadata.deletion_timestamp.is_some() {
        let finalizers = lease.metadata.finalizers.unwrap_or_default();
        return Err(LedgerError::BeingDeleted {
            lease: name,
            finalizers,
        });
    }
    match parse(owner, &lease) {
        Ok((ledger, serial)) => Ok(StoredLedger {
            ledger: Arc::new(ledger),
            scope: owner.scope.to_owned(),
            serial,
            lease,
        }),
        Err(source) => Err(LedgerError::Format {
            lease: name,
            source,
        }),
    }
}

fn parse(owner: Owner<'_>, lease: &Lease) -> Result<(Ledger, u64), FormatError> {
    let text = annotation(lease, LEDGER_ANNOTATION)?;
    let serial = annotation(lease, SERIAL_ANNOTATION)?;
    let found = annotation(lease, SUM_ANNOTATION)?;
    let uid = lease.metadata.uid.as_deref().unwrap_or_default();
    let fits = |uid| *found == sum(uid, serial, text);
    let mut ledger = match Ledger::from_json(text) {
        // The checksum is the same in all formats: with a matching one, a newer version wrote it.
        Err(FormatError::Newer { .. }) if !fits(uid) && !fits("") => return Err(checksum_error()),
        read => read?,
    };
    ledger.rules = owner.rules;
    let fresh = matches!(ledger.status, Status::Opening | Status::Rebuilding);
    let may_lack_uid = fresh && fits("");
    if !fits(uid) && !may_lack_uid {
        return Err(checksum_error());
    }
    let transitions = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_transitions)
        .unwrap_or_default();
    if i64::try_from(ledger.epoch).unwrap_or(i64::MAX) < i64::from(transitions) {
        return Err(FormatError::Unreadable(format!(
            "its epoch {} is older than its leaseTransitions {transitions}",
            ledger.epoch
        )));
    }
    let number = serial
        .parse()
        .map_err(|e| FormatError::Unreadable(format!("serial {serial:?}: {e}")))?;
    if number > MAX_SERIAL {
        return Err(FormatError::Unreadable(format!(
            "its serial {number} is one that no ledger reaches"
        )));
    }
    Ok((ledger, number))
}

fn annotation<'a>(lease: &'a Lease, name: &str) -> Result<&'a String, FormatError> {
    let annotations = lease.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get(name))
        .ok_or_else(|| FormatError::Unreadable(format!("it has no annotation {name}")))
}

fn checksum_error() -> FormatError {
    FormatError::Unreadable("its checksum does not fit: it was edited, or copied".to_owned())
}

/// The Lease that holds this ledger: the annotations are authoritative, the rest is for display.
pub(crate) fn lease_of(
    owner: Owner<'_>,
    over: Option<&Lease>,
    ledger: &Ledger,
) -> Result<(Lease, u64), LedgerError> {
    let name = lease_name(owner.scope);
    let text = ledger.to_json();
    if text.len() > MAX_BYTES {
        return Err(LedgerError::TooLarge {
            lease: name,
            bytes: text.len(),
        });
    }
    let old = over.cloned().unwrap_or_default();
    let mut annotations = old.metadata.annotations.unwrap_or_default();
    let last: u64 = annotations
        .get(SERIAL_ANNOTATION)
        .and_then(|serial| serial.parse().ok())
        .unwrap_or_default();
    // A serial that was edited may be the highest possible one.
    let serial = last.saturating_add(1);
    let uid = old.metadata.uid.clone().unwrap_or_default();
    annotations.insert(
        SUM_ANNOTATION.to_owned(),
        sum(&uid, &serial.to_string(), &text),
    );
    annotations.insert(SERIAL_ANNOTATION.to_owned(), serial.to_string());
    annotations.insert(SCOPE_ANNOTATION.to_owned(), owner.scope.to_owned());
    annotations.insert(LEDGER_ANNOTATION.to_owned(), text);
    let transitions = i32::try_from(ledger.epoch).unwrap_or(i32::MAX);
    let spec = old.spec.unwrap_or_default();
    let now = MicroTime(Timestamp::now());
    let granted = spec.lease_transitions.unwrap_or(0) != transitions;
    // One empty entry turns off the tracking of field managers (Kubernetes: "Clearing
    // managedFields"): a ledger is only ever written as a whole, and the tracking costs the API
    // server more than the rest of the write.
    let untracked = Some(vec![ManagedFieldsEntry::default()]);
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: old.metadata.namespace,
            resource_version: old.metadata.resource_version,
            uid: old.metadata.uid,
            finalizers: old.metadata.finalizers,
            owner_references: old.metadata.owner_references,
            annotations: Some(annotations),
            labels: Some(labels(owner.profile, old.metadata.labels)),
            managed_fields: untracked,
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(ledger.holder()),
            lease_transitions: Some(transitions),
            acquire_time: if granted {
                Some(now.clone())
            } else {
                spec.acquire_time
            },
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    Ok((lease, serial))
}

pub(crate) fn labels(
    profile: &str,
    old: Option<BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let mut labels = old.unwrap_or_default();
    // Restoring an old ledger would bring dead claims back.
    labels.insert(EXCLUDE_FROM_BACKUP.to_owned(), "true".to_owned());
    labels.insert(PART_OF.to_owned(), "backup".to_owned());
    labels.insert(PROFILE_LABEL.to_owned(), profile.to_owned());
    labels
}

pub(super) fn sum(uid: &str, serial: &str, text: &str) -> String {
    let mut digest = Sha256::new();
    for part in [uid, "\n", serial, "\n", text] {
        digest.update(part.as_bytes());
    }
    hex(&digest.finalize()[..8])
}

//! Reads the ledger of Velero's backups and restores.

use backup_core::profile::Profile;
use backup_lock::{Ledger, LedgerError, LedgerStore, VELERO_SCOPE, lease::lease_name};
use k8s_openapi::api::coordination::v1::Lease;

use super::problem::{damage, lost};
use crate::{
    commands::prelude::*,
    view::locks::{Damage, FoundLedger},
};

/// The ledger of our own backups and restores; `None` if it does not exist yet.
pub(crate) async fn read_ledger(session: &Session) -> Result<Option<Ledger>, Problem> {
    let found = found_ledger(session).await?.map(|found| found.ledger);
    found
        .transpose()
        .map_err(|damage| Problem::other(damage.problem))
}

/// Velero's ledger, or what is wrong with it; `None` if it does not exist.
pub(crate) async fn found_ledger(session: &Session) -> Result<Option<FoundLedger>, Problem> {
    let store = LedgerStore::new(session.client.clone(), &session.namespace);
    match store.read(VELERO_SCOPE).await {
        Ok(Some(stored)) => {
            let ledger = Ok((*stored.ledger).clone());
            Ok(Some(velero_ledger(
                session,
                stored.lease_uid(),
                stored.finalizers(),
                ledger,
            )))
        }
        // A user who may read a ledger may not be permitted to read its marker.
        Ok(None) => {
            let is_lost = store.had_ledger(VELERO_SCOPE).await.unwrap_or(false);
            Ok(is_lost.then(|| velero_ledger(session, "", &[], Err(lost()))))
        }
        Err(error @ (LedgerError::Format { .. } | LedgerError::BeingDeleted { .. })) => {
            let damage = damage(&error, &session.namespace);
            Ok(Some(velero_ledger(session, "", &[], Err(damage))))
        }
        Err(LedgerError::Denied { source, .. } | LedgerError::Unreachable { source, .. }) => {
            Err(session.explain(
                &About::of::<Lease>("get", &lease_name(VELERO_SCOPE)),
                *source,
            ))
        }
        Err(error) => Err(Problem::other(error.to_string())),
    }
}

fn velero_ledger(
    session: &Session,
    lease_uid: &str,
    finalizers: &[String],
    ledger: Result<Ledger, Damage>,
) -> FoundLedger {
    FoundLedger {
        namespace: session.namespace.clone(),
        scope: VELERO_SCOPE.to_owned(),
        lease: lease_name(VELERO_SCOPE),
        lease_uid: lease_uid.to_owned(),
        finalizers: finalizers.to_vec(),
        profile: Profile::velero(),
        is_known: true,
        ledger,
    }
}

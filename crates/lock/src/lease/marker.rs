//! The marker of a scope: a ConfigMap with the uid of its ledger's Lease, and an upper bound of its
//! epoch. It outlives the ledger, and so distinguishes a lost one from a first one.
//!
//! Every write is a create, a PUT that carries `resourceVersion`, or a delete with preconditions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    api::{DeleteParams, PostParams, Preconditions},
    core::ObjectMeta,
};

use super::{LedgerError, LedgerStore, StoredLedger, body, bounded, lease_name};
use crate::ledger::MAX_EPOCH;

/// How far (in epochs) the bound in the marker is written ahead of the ledger's epoch.
pub(super) const EPOCHS_AHEAD: u64 = 1000;

#[derive(Clone, Debug)]
pub(super) struct Marker {
    /// Uid of the Lease that is the ledger; empty before the first was opened.
    pub ledger: String,
    /// No epoch of that ledger is larger than this.
    pub epoch: u64,
    object: ConfigMap,
}

impl Marker {
    fn of(object: ConfigMap) -> Self {
        let ledger = text(&object, "ledger");
        // An edited epoch must leave room for more: a ledger that continues from it has to be
        // readable.
        let epoch: u64 = text(&object, "epoch").parse().unwrap_or_default();
        Self {
            ledger,
            epoch: epoch.min(MAX_EPOCH / 2),
            object,
        }
    }

    /// A listed marker, with the scope that it names.
    pub(super) fn with_scope(object: ConfigMap) -> Option<(String, Self)> {
        Some((
            object.data.as_ref()?.get("scope")?.clone(),
            Self::of(object),
        ))
    }

    /// Whether its content matches this ledger, as required while the ledger is open.
    pub(super) fn names(&self, stored: &StoredLedger) -> bool {
        self.ledger == stored.lease_uid() && self.epoch >= stored.ledger.bound
    }
}

fn text(object: &ConfigMap, key: &str) -> String {
    object
        .data
        .as_ref()
        .and_then(|data| data.get(key))
        .cloned()
        .unwrap_or_default()
}

impl LedgerStore {
    pub(super) async fn marker(&self, scope: &str) -> Result<Option<Marker>, LedgerError> {
        let name = lease_name(scope);
        let object = bounded(&name, "read the marker of", self.markers.get_opt(&name)).await?;
        Ok(object.map(Marker::of))
    }

    /// Creates a marker. Create-only: a marker that another process has created meanwhile differs,
    /// and must be read.
    pub(super) async fn make_marker(
        &self,
        scope: &str,
        ledger: &str,
        epoch: u64,
    ) -> Result<(), LedgerError> {
        let name = lease_name(scope);
        let marker = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                labels: Some(body::labels(&self.profile().name, None)),
                ..ObjectMeta::default()
            },
            data: Some(data(scope, ledger, epoch)),
            ..ConfigMap::default()
        };
        let post = PostParams::default();
        let create = self.markers.create(&post, &marker);
        bounded(&name, "make the marker of", create)
            .await
            .map(|_| ())
    }

    /// Whether this scope had a ledger: its marker names one.
    pub async fn had_ledger(&self, scope: &str) -> Result<bool, LedgerError> {
        Ok(self
            .marker(scope)
            .await?
            .is_some_and(|marker| !marker.ledger.is_empty()))
    }

    /// Writes the content of the marker. Conditional on its resourceVersion. An immutable marker is
    /// deleted and created again.
    pub(super) async fn set_marker(
        &self,
        scope: &str,
        marker: &Marker,
        ledger: &str,
        epoch: u64,
    ) -> Result<(), LedgerError> {
        if marker.object.immutable == Some(true) {
            self.delete_marker(scope, marker).await?;
            return self.make_marker(scope, ledger, epoch).await;
        }
        let mut object = marker.object.clone();
        object.metadata.managed_fields = None;
        object.data = Some(data(scope, ledger, epoch));
        let name = lease_name(scope);
        let post = PostParams::default();
        let put = self.markers.replace(&name, &post, &object);
        bounded(&name, "write the marker of", put).await.map(|_| ())
    }

    pub(super) async fn delete_marker(
        &self,
        scope: &str,
        marker: &Marker,
    ) -> Result<(), LedgerError> {
        let preconditions = Preconditions {
            uid: marker.object.metadata.uid.clone(),
            resource_version: marker.object.metadata.resource_version.clone(),
        };
        let name = lease_name(scope);
        let parameters = DeleteParams::default().preconditions(preconditions);
        match bounded(
            &name,
            "delete the marker of",
            self.markers.delete(&name, &parameters),
        )
        .await
        {
            Ok(_) | Err(LedgerError::Changed { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Raises the bound of a ledger's epoch to this epoch plus [`EPOCHS_AHEAD`]. Returns the new bound.
    pub(super) async fn raise_marker(
        &self,
        over: &StoredLedger,
        epoch: u64,
    ) -> Result<u64, LedgerError> {
        let bound = epoch + EPOCHS_AHEAD;
        let scope = &over.scope;
        let Some(marker) = self.marker(scope).await? else {
            self.make_marker(scope, over.lease_uid(), bound).await?;
            return Ok(bound);
        };
        // It names another ledger: this one was lost, and is being repaired.
        if !marker.ledger.is_empty() && marker.ledger != over.lease_uid() {
            return Err(LedgerError::Changed {
                lease: lease_name(scope),
            });
        }
        self.set_marker(scope, &marker, &marker.ledger, bound.max(marker.epoch))
            .await?;
        Ok(bound)
    }
}

fn data(scope: &str, ledger: &str, epoch: u64) -> BTreeMap<String, String> {
    let pairs = [
        ("scope", scope.to_owned()),
        ("ledger", ledger.to_owned()),
        ("epoch", epoch.to_string()),
    ];
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_an_epoch_after_that_of_any_marker() {
        for (text, expected) in [
            ("7", 7),
            ("", 0),
            ("many", 0),
            ("18446744073709551615", MAX_EPOCH / 2),
        ] {
            let data = [("epoch".to_owned(), text.to_owned())].into();
            let marker = Marker::of(ConfigMap {
                data: Some(data),
                ..ConfigMap::default()
            });
            assert_eq!(marker.epoch, expected, "{text:?}");
        }
    }
}

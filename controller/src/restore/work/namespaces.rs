//! The namespaces that a restore writes into.

use std::collections::{BTreeMap, BTreeSet};

use backup_actions::restore::json;
use backup_store::{Scope, StoreError};
use futures::{StreamExt as _, stream};

use super::{MAX_CONCURRENT_ITEMS, NAMESPACES, Namespaces, Restoring, Selection, StopReason};
use crate::restore::{about::About, scratch::Scratch};

impl Restoring<'_> {
    /// The Namespace objects of the backup: those for items, and those that are selected
    /// themselves.
    pub(super) fn namespaces(&self, selection: &Selection) -> Result<Namespaces, StoreError> {
        let mut stored = BTreeMap::new();
        let mut selected = BTreeSet::new();
        for item in self.contents.items(NAMESPACES) {
            let name = self.contents.name_of(item)?;
            if !selection.takes_namespace(&name) {
                continue;
            }
            let body = match self.contents.object(item) {
                Ok(body) => body,
                Err(error) => {
                    self.report
                        .error(Scope::Cluster, format!("Namespace {name:?}: {error}"));
                    continue;
                }
            };
            let Some(name) = json::text(&body, &["metadata"], "name") else {
                continue;
            };
            if selection.takes_empty_namespace(name, &json::labels(&body)) {
                selected.insert(self.rules.target(name).to_owned());
            }
            stored.insert(self.rules.target(name).to_owned(), *item);
        }
        Ok(Namespaces::new(stored, selected))
    }

    /// Ensures namespaces concurrently: waiting for a deletion does not delay others.
    pub(super) async fn ensure_all(
        &self,
        namespaces: &Namespaces,
        names: Vec<String>,
    ) -> Result<(), StopReason> {
        let ensured = stream::iter(names).map(async |name| self.ensure(namespaces, &name).await);
        // Namespaces in flight are completed before work stops.
        let ensured: Vec<Result<(), StopReason>> = ensured
            .buffer_unordered(MAX_CONCURRENT_ITEMS)
            .collect()
            .await;
        ensured.into_iter().collect()
    }

    pub(super) async fn ensure(
        &self,
        namespaces: &Namespaces,
        name: &str,
    ) -> Result<(), StopReason> {
        let applied = if self.claimed.includes(name) {
            if let Some(drill) = self.drill() {
                let scratch = Scratch {
                    restore: self.restore,
                    settings: drill.settings(),
                    own: self.own,
                    claims: self.claims_of_drill_in(name),
                };
                let made = namespaces.ensure_scratch(self.calls, name, self.contents, &scratch);
                made.await?
            } else {
                namespaces
                    .ensure(self.calls, name, self.contents, self.policy())
                    .await?
            }
        } else {
            let why = format!(
                "it is not in what the restore has claimed ({}): its spec, or that of its backup, was changed since; \
                 create a new restore",
                self.claimed
            );
            namespaces.refuse(name, &why)
        };
        if let Some(applied) = applied {
            self.report.expect(1);
            self.report.item(
                About {
                    api_version: "v1",
                    kind: "Namespace",
                    namespace: None,
                    name,
                },
                applied,
            );
        }
        Ok(())
    }
}

//! The target namespaces of items: created from the backup or blank, after waiting for the deletion
//! of an old one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use backup_actions::restore::{
    RestoreRules,
    existing::{self, Existing},
    json::{self, Object},
    transform,
};
use backup_store::{Contents, ItemRef};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    apply::{self, ItemResult, MAX_ATTEMPTS, Outcome, Policy, Target},
    calls::{Calls, held},
    scratch::Scratch,
};
use crate::job::cancellation::StopReason;

const COLLECTION: &str = "/api/v1/namespaces";
const KIND: &str = "Namespace";

/// State of the target namespaces so far.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Namespace objects of the backup, by target name.
    stored: BTreeMap<String, ItemRef>,
    /// Target names of Namespace objects that are selected themselves, not only for their items.
    selected: BTreeSet<String>,
    /// Outcomes of the namespaces that were tried.
    tried: Mutex<BTreeMap<String, Outcome>>,
    /// One lock per namespace: one item creates it while others wait.
    making: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Namespaces {
    /// `stored` are the Namespace objects of the backup, by target name; `selected` are the target
    /// names that are restored even without items.
    pub(super) fn new(stored: BTreeMap<String, ItemRef>, selected: BTreeSet<String>) -> Self {
        Self {
            stored,
            selected,
            ..Self::default()
        }
    }

    pub(super) fn selected(&self) -> Vec<String> {
        self.selected.iter().cloned().collect()
    }

    /// Whether this namespace was tried and cannot be used.
    pub(super) fn has_failed(&self, name: &str) -> bool {
        self.tried.lock().get(name) == Some(&Outcome::Failed)
    }

    /// Whether this namespace existed before the restore, so that it may hold objects.
    pub(super) fn was_there(&self, name: &str) -> bool {
        matches!(
            self.tried.lock().get(name),
            Some(Outcome::Skipped | Outcome::Updated)
        )
    }

    /// Marks a namespace as unusable. Returns the error to report, or `None` if it was reported
    /// before.
    pub(super) fn refuse(&self, name: &str, why: &str) -> Option<ItemResult> {
        if self.tried.lock().insert(name.to_owned(), Outcome::Failed) == Some(Outcome::Failed) {
            return None;
        }
        Some(ItemResult::failed(format!(
            "nothing was restored into namespace {name:?}: {why}"
        )))
    }

    /// Makes sure that a namespace exists and is not being deleted. Returns the outcome, or `None`
    /// if it was tried before.
    pub(super) async fn ensure(
        &self,
        calls: &Calls,
        name: &str,
        contents: &Contents,
        policy: Policy<'_>,
    ) -> Result<Option<ItemResult>, StopReason> {
        self.once(name, async {
            let body = match self.stored.get(name).map(|item| contents.object(item)) {
                Some(Ok(body)) => transform::rewritten(&body, "namespaces", None, policy.rules),
                Some(Err(error)) => return Ok(not_created(name, &error.to_string())),
                None => blank_namespace(name, policy.rules),
            };
            let compared = self.selected.contains(name) && name != policy.own;
            create(calls, &body, name, policy, compared).await
        })
        .await
    }

    /// The same for a scratch namespace of a drill.
    pub(super) async fn ensure_scratch(
        &self,
        calls: &Calls,
        name: &str,
        contents: &Contents,
        scratch: &Scratch<'_>,
    ) -> Result<Option<ItemResult>, StopReason> {
        self.once(name, async {
            let stored = self.stored.get(name).map(|item| contents.object(item));
            let labels = match stored {
                Some(Ok(stored)) => json::labels(&stored),
                Some(Err(error)) => return Ok(not_created(name, &error.to_string())),
                None => BTreeMap::new(),
            };
            scratch.ensure(calls, name, &labels).await
        })
        .await
    }

    /// Tries a namespace once, while others wait. Returns the outcome, or `None` if it was tried
    /// before.
    async fn once(
        &self,
        name: &str,
        made: impl Future<Output = Result<ItemResult, StopReason>>,
    ) -> Result<Option<ItemResult>, StopReason> {
        if self.tried.lock().contains_key(name) {
            return Ok(None);
        }
        let making = Arc::clone(self.making.lock().entry(name.to_owned()).or_default());
        let _making = making.lock().await;
        if self.tried.lock().contains_key(name) {
            return Ok(None);
        }
        let applied = made.await?;
        self.tried.lock().insert(name.to_owned(), applied.outcome);
        Ok(Some(applied))
    }
}

/// Creates a namespace, or uses the existing one, which is compared with `body` if `compared` is
/// set.
async fn create(
    calls: &Calls,
    body: &Object,
    name: &str,
    policy: Policy<'_>,
    compared: bool,
) -> Result<ItemResult, StopReason> {
    for _ in 0..MAX_ATTEMPTS {
        let (created, uncertain) = calls.create(COLLECTION, body, None).await;
        match created {
            Ok(lost) => return Ok(ItemResult::stored(Outcome::Created, KIND, name, &lost)),
            Err(error) => {
                if !error.is_already_exists() {
                    return Ok(not_created(name, &error.unless_stopped()?.to_string()));
                }
            }
        }
        let found = match calls.until_gone(COLLECTION, name, is_going).await {
            // It is gone: create it again.
            Ok(None) => continue,
            Ok(Some(found)) => found,
            Err(error) => return Ok(not_created(name, &error.unless_stopped()?.to_string())),
        };
        if is_going(&found) {
            let stays = format!(
                "the old one is still going away{}; restore again once `kubectl get namespace {name}` does not find it",
                held(&found)
            );
            return Ok(not_created(name, &stays));
        }
        if (uncertain || policy.resumed) && policy.is_ours(&found) {
            return Ok(ItemResult::quiet(Outcome::Created));
        }
        if !compared {
            return Ok(ItemResult::quiet(Outcome::Skipped));
        }
        if let Some(applied) = compare(calls, body, name, &found, policy).await? {
            return Ok(applied);
        }
    }
    Ok(not_created(
        name,
        "it was there each time, and gone or another one when it was read",
    ))
}

/// Compares with the existing namespace or patches it; `None` if it has changed since it was read.
async fn compare(
    calls: &Calls,
    body: &Object,
    name: &str,
    found: &Object,
    policy: Policy<'_>,
) -> Result<Option<ItemResult>, StopReason> {
    let patch = match existing::compare_namespace(body, found, policy.update) {
        Existing::Equal => return Ok(Some(ItemResult::quiet(Outcome::Skipped))),
        Existing::Patch(patch) => patch,
        _ => return Ok(Some(ItemResult::skipped(apply::differs(KIND, name)))),
    };
    let target = Target {
        group_resource: "namespaces",
        kind: KIND,
        collection: COLLECTION,
        namespace: None,
        name,
        unmodified: None,
        controller: None,
    };
    match calls.patch(COLLECTION, name, &patch, None).await {
        Ok((now, lost)) => Ok(Some(apply::changed(target, found, &now, &lost))),
        Err(error) if error.is_conflict() || error.is_not_found() => Ok(None),
        Err(error) => Ok(Some(ItemResult::skipped(format!(
            "{KIND} {name:?} exists, differs from the backup, and could not be changed: {}",
            error.unless_stopped()?
        )))),
    }
}

fn is_going(namespace: &Object) -> bool {
    json::text(namespace, &["status"], "phase") == Some("Terminating")
        || existing::is_going(namespace)
}

fn not_created(name: &str, why: &str) -> ItemResult {
    ItemResult::failed(format!(
        "namespace {name:?} could not be created, so nothing was restored into it: {why}"
    ))
}

fn blank_namespace(name: &str, rules: &RestoreRules) -> Object {
    let mut body = Object::new();
    body.insert("apiVersion".to_owned(), json!("v1"));
    body.insert("kind".to_owned(), json!("Namespace"));
    json::set(&mut body, &["metadata"], "name", Value::from(name));
    transform::rewritten(&body, "namespaces", None, &rules.in_place())
}

#[cfg(test)]
mod tests;

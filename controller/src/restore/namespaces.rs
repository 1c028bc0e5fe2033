//! The namespaces that items go into: created from the backup or blank, and waited for while an old one goes away.

use std::{collections::BTreeMap, sync::Arc};

use backup_actions::restore::{
    RestoreRules, existing,
    json::{self, Object},
    transform,
};
use backup_store::{Contents, ItemRef};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    apply::{Applied, Outcome, Policy, TRIES},
    calls::Calls,
};
use crate::job::cancellation::StopReason;

const COLLECTION: &str = "/api/v1/namespaces";

/// What became of the namespaces so far.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    /// Those that are in the backup, by the name they are restored as.
    stored: BTreeMap<String, ItemRef>,
    /// Those that were tried, and what came of it.
    tried: Mutex<BTreeMap<String, Outcome>>,
    /// Each is made by one item; others that need it wait.
    making: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Namespaces {
    /// `stored` are the Namespace objects of the backup, by the name they are restored as.
    pub(super) fn new(stored: BTreeMap<String, ItemRef>) -> Self {
        Self { stored, ..Self::default() }
    }

    /// Whether this namespace was tried and cannot be used.
    pub(super) fn has_failed(&self, name: &str) -> bool {
        self.tried.lock().get(name) == Some(&Outcome::Failed)
    }

    /// Whether this namespace was there before the restore, so that something may be in it.
    pub(super) fn was_there(&self, name: &str) -> bool {
        self.tried.lock().get(name) == Some(&Outcome::Skipped)
    }

    /// Notes that a namespace must not be used. What to report, or `None` if it was reported before.
    pub(super) fn refuse(&self, name: &str, why: &str) -> Option<Applied> {
        if self.tried.lock().insert(name.to_owned(), Outcome::Failed) == Some(Outcome::Failed) {
            return None;
        }
        Some(Applied::failed(format!("nothing was restored into namespace {name:?}: {why}")))
    }

    /// Makes sure that a namespace is there and not going away. What was done, or `None` if it was tried before.
    pub(super) async fn ensure(
        &self,
        calls: &Calls,
        name: &str,
        contents: &Contents,
        policy: Policy<'_>,
    ) -> Result<Option<Applied>, StopReason> {
        if self.tried.lock().contains_key(name) {
            return Ok(None);
        }
        let making = Arc::clone(self.making.lock().entry(name.to_owned()).or_default());
        let _making = making.lock().await;
        if self.tried.lock().contains_key(name) {
            return Ok(None);
        }
        let body = match self.stored.get(name).map(|item| contents.object(item)) {
            Some(Ok(body)) => transform::rewritten(&body, "namespaces", None, policy.rules),
            Some(Err(error)) => {
                self.tried.lock().insert(name.to_owned(), Outcome::Failed);
                return Ok(Some(not_created(name, &error.to_string())));
            }
            None => blank_namespace(name, policy.rules),
        };
        let applied = create(calls, &body, name, policy).await?;
        self.tried.lock().insert(name.to_owned(), applied.outcome);
        Ok(Some(applied))
    }
}

async fn create(calls: &Calls, body: &Object, name: &str, policy: Policy<'_>) -> Result<Applied, StopReason> {
    for _ in 0..TRIES {
        let (created, uncertain) = calls.create(COLLECTION, body).await;
        match created {
            Ok(lost) => return Ok(Applied::stored(Outcome::Created, "Namespace", name, &lost)),
            Err(error) if !error.is_already_exists() => {
                return Ok(not_created(name, &error.unless_stopped()?.to_string()));
            }
            Err(_) => {}
        }
        let stays = match calls.until_gone(COLLECTION, name, is_going).await {
            // It is created again.
            Ok(None) => continue,
            Ok(Some(found)) if is_going(&found) => {
                format!(
                    "the old one is still going away; `kubectl get namespace {name} -o yaml` shows what holds it"
                )
            }
            Ok(Some(found)) => {
                let ours = (uncertain || policy.resumed) && policy.is_ours(&found);
                return Ok(Applied::quiet(if ours { Outcome::Created } else { Outcome::Skipped }));
            }
            Err(error) => error.unless_stopped()?.to_string(),
        };
        return Ok(not_created(name, &stays));
    }
    Ok(not_created(name, "it was there each time, and gone when it was looked at"))
}

fn is_going(namespace: &Object) -> bool {
    json::text(namespace, &["status"], "phase") == Some("Terminating") || existing::is_going(namespace)
}

fn not_created(name: &str, why: &str) -> Applied {
    Applied::failed(format!(
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

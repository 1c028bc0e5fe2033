//! Running objects, as watches show them: a hint where to look, never a basis for decisions. It
//! saves listing again and again to find an object that runs without a claim.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use futures::{StreamExt as _, future::join_all};
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    claim::{ObjectKey, ObjectKind},
    lease::LedgerStore,
    observe::{Objects, ObservedObject, listed},
};

/// Minimum time between two warnings about a failing watch.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);

/// Maximum number of objects remembered as gone until a caller takes them; the oldest are
/// forgotten, and their claims end with the grace.
const MAX_GONE: usize = 1000;

/// The objects of a profile whose work has not ended, as last seen. Ended objects are removed.
#[derive(Default)]
pub struct RunningObjects {
    kinds: Mutex<HashMap<ObjectKind, BTreeMap<ObjectKey, ObservedObject>>>,
    /// Objects that were seen stored and no longer run.
    gone: Mutex<VecDeque<ObservedObject>>,
    is_gone: Notify,
}

impl RunningObjects {
    /// Watches the kinds of a profile forever, and requests a look at its ledgers when a new object
    /// runs.
    pub async fn follow(&self, store: &LedgerStore) {
        let kinds = listed(store.profile()).into_iter();
        join_all(kinds.map(|(kind, resource)| self.follow_kind(store, kind, resource))).await;
    }

    async fn follow_kind(&self, store: &LedgerStore, kind: ObjectKind, resource: ApiResource) {
        let api = Api::<DynamicObject>::all_with(store.objects().client(), &resource);
        let mut events = watcher(api, watcher::Config::default())
            .default_backoff()
            .boxed();
        let mut listed = BTreeMap::new();
        let mut warned = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let mut kinds = self.kinds.lock();
                    let known = kinds.entry(kind).or_default();
                    let change = apply(store.objects(), kind, event, known, &mut listed);
                    if change.is_new {
                        store.ask_for_attention();
                    }
                    self.note_gone(change.gone);
                }
                Err(error) => {
                    let now = tokio::time::Instant::now();
                    if warned.is_none_or(|at| now.duration_since(at) > WARNING_INTERVAL) {
                        warned = Some(now);
                        tracing::warn!(%kind, %error, "a watch failed; it is started again");
                    }
                }
            }
        }
    }

    /// The running objects by scope; only where installations work.
    pub fn by_scope(&self, objects: &Objects) -> BTreeMap<String, Vec<ObservedObject>> {
        by_scope(
            objects,
            self.kinds
                .lock()
                .values()
                .flat_map(BTreeMap::values)
                .cloned(),
        )
    }

    /// Records objects that were seen stored and are gone.
    pub fn note_gone(&self, objects: Vec<ObservedObject>) {
        if objects.is_empty() {
            return;
        }
        let mut gone = self.gone.lock();
        gone.extend(objects);
        let forgotten = gone.len().saturating_sub(MAX_GONE);
        gone.drain(..forgotten);
        self.is_gone.notify_one();
    }

    /// Waits until objects that were seen stored are gone, and returns them by scope, each once.
    /// For one caller.
    ///
    /// None of them can be stored again, so if a fresh read does not find one, its claim can be
    /// freed.
    pub async fn gone(&self, objects: &Objects) -> BTreeMap<String, Vec<ObservedObject>> {
        loop {
            self.is_gone.notified().await;
            let gone = by_scope(objects, self.gone.lock().drain(..));
            if !gone.is_empty() {
                return gone;
            }
        }
    }
}

fn by_scope(
    objects: &Objects,
    all: impl Iterator<Item = ObservedObject>,
) -> BTreeMap<String, Vec<ObservedObject>> {
    let mut scopes: BTreeMap<String, Vec<ObservedObject>> = BTreeMap::new();
    for seen in all.filter(|seen| objects.count_in(&seen.key.namespace)) {
        if let Some(scope) = &seen.scope {
            scopes.entry(scope.clone()).or_default().push(seen);
        }
    }
    scopes
}

/// Result of an event.
#[derive(Default)]
struct Change {
    /// An unknown object runs.
    is_new: bool,
    /// Objects that are no longer stored. Those missing from a list may only have ended.
    gone: Vec<ObservedObject>,
}

/// Applies an event.
fn apply(
    objects: &Objects,
    kind: ObjectKind,
    event: Event<DynamicObject>,
    known: &mut BTreeMap<ObjectKey, ObservedObject>,
    listed: &mut BTreeMap<ObjectKey, ObservedObject>,
) -> Change {
    let profile = objects.profile();
    match event {
        Event::Init => {
            listed.clear();
            Change::default()
        }
        Event::InitApply(object) => {
            let seen = ObservedObject::of(profile, kind, &object);
            if !seen.over {
                listed.insert(seen.key.clone(), seen);
            }
            Change::default()
        }
        Event::InitDone => {
            let before = std::mem::replace(known, std::mem::take(listed));
            let gone = before
                .into_values()
                .filter(|seen| {
                    known
                        .get(&seen.key)
                        .is_none_or(|current| current.uid != seen.uid)
                })
                .collect();
            Change {
                is_new: !known.is_empty(),
                gone,
            }
        }
        Event::Apply(object) => {
            let seen = ObservedObject::of(profile, kind, &object);
            if seen.over {
                known.remove(&seen.key);
                return Change::default();
            }
            Change {
                is_new: known.insert(seen.key.clone(), seen).is_none(),
                gone: Vec::new(),
            }
        }
        Event::Delete(object) => {
            let seen = ObservedObject::of(profile, kind, &object);
            known.remove(&seen.key);
            Change {
                is_new: false,
                gone: vec![seen],
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use backup_core::profile::Profile;
    use backup_testkit::FakeApi;
    use serde_json::json;

    use super::*;

    fn backup(name: &str, uid: &str) -> DynamicObject {
        let metadata = json!({ "name": name, "namespace": "velero", "uid": uid });
        serde_json::from_value(json!({ "metadata": metadata }))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// An object missing from a list was deleted, or has ended, while there was no watch.
    #[tokio::test]
    async fn what_a_later_list_lacks_is_gone() {
        let objects = Objects::new(FakeApi::new().client(), Arc::new(Profile::velero()));
        let (mut known, mut listed) = (BTreeMap::new(), BTreeMap::new());
        let mut list = |backups: &[(&str, &str)]| {
            let mut events = vec![Event::Init];
            events.extend(
                backups
                    .iter()
                    .map(|(name, uid)| Event::InitApply(backup(name, uid))),
            );
            events.push(Event::InitDone);
            let apply = |event| apply(&objects, ObjectKind::Backup, event, &mut known, &mut listed);
            let changes: Vec<Change> = events.into_iter().map(apply).collect();
            let gone = changes
                .iter()
                .flat_map(|change| &change.gone)
                .map(|seen| seen.uid.clone())
                .collect();
            let is_new = changes.iter().filter(|change| change.is_new).count();
            (is_new, gone)
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(
            list(&[("a", "1"), ("b", "2"), ("c", "3")]),
            (1, none.clone())
        );
        assert_eq!(
            list(&[("a", "1"), ("b", "4")]),
            (1, vec!["2".to_owned(), "3".to_owned()])
        );
        assert_eq!(list(&[]), (0, vec!["1".to_owned(), "4".to_owned()]));
        assert_eq!(list(&[]), (0, none));
    }
}

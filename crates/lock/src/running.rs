//! What runs, as watches show it: a hint where to look, never what is decided by. So nothing has to be listed again and
//! again to find an object that runs without a claim.

use std::{
    collections::{BTreeMap, HashMap},
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

use crate::{
    claim::{ObjectKey, ObjectKind},
    lease::LedgerStore,
    observe::{Objects, Observed, listed},
};

/// Between two warnings about a watch that fails.
const WARN_AGAIN: Duration = Duration::from_mins(1);

/// The objects of a profile whose work has not ended, as they were last seen. Those that have ended are not kept.
#[derive(Default)]
pub struct RunningObjects {
    kinds: Mutex<HashMap<ObjectKind, BTreeMap<ObjectKey, Observed>>>,
}

impl RunningObjects {
    /// Watches the kinds of a profile for ever, and asks for attention to its ledgers when something runs.
    pub async fn follow(&self, store: &LedgerStore) {
        let kinds = listed(store.profile()).into_iter();
        join_all(kinds.map(|(kind, resource)| self.follow_kind(store, kind, resource))).await;
    }

    async fn follow_kind(&self, store: &LedgerStore, kind: ObjectKind, resource: ApiResource) {
        let api = Api::<DynamicObject>::all_with(store.objects().client(), &resource);
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        let (mut listed, mut warned) = (BTreeMap::new(), None);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let mut kinds = self.kinds.lock();
                    let known = kinds.entry(kind).or_default();
                    if apply(store.objects(), kind, event, known, &mut listed) {
                        store.ask_for_attention();
                    }
                }
                Err(error) => {
                    let now = tokio::time::Instant::now();
                    if warned.is_none_or(|at| now.duration_since(at) > WARN_AGAIN) {
                        warned = Some(now);
                        tracing::warn!(%kind, %error, "a watch failed; it is started again");
                    }
                }
            }
        }
    }

    /// What runs, by scope; only where installations work.
    pub fn by_scope(&self, objects: &Objects) -> BTreeMap<String, Vec<Observed>> {
        let mut scopes: BTreeMap<String, Vec<Observed>> = BTreeMap::new();
        for seen in self.kinds.lock().values().flat_map(BTreeMap::values) {
            if let Some(scope) = seen.scope.as_ref().filter(|_| objects.count_in(&seen.key.namespace)) {
                scopes.entry(scope.clone()).or_default().push(seen.clone());
            }
        }
        scopes
    }
}

/// Takes note of an event. Whether something runs that was not known.
fn apply(
    objects: &Objects,
    kind: ObjectKind,
    event: Event<DynamicObject>,
    known: &mut BTreeMap<ObjectKey, Observed>,
    listed: &mut BTreeMap<ObjectKey, Observed>,
) -> bool {
    let of = |object: &DynamicObject| Observed::of(objects.profile(), kind, object);
    match event {
        Event::Init => {
            listed.clear();
            false
        }
        Event::InitApply(object) => {
            let seen = of(&object);
            if !seen.over {
                listed.insert(seen.key.clone(), seen);
            }
            false
        }
        Event::InitDone => {
            *known = std::mem::take(listed);
            !known.is_empty()
        }
        Event::Apply(object) => {
            let seen = of(&object);
            if seen.over {
                known.remove(&seen.key);
                return false;
            }
            known.insert(seen.key.clone(), seen).is_none()
        }
        Event::Delete(object) => {
            known.remove(&of(&object).key);
            false
        }
    }
}

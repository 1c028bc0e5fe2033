//! Which versions the Secrets of the installation have, so that a location that uses one is looked at when it changes. Only
//! names and versions are asked for and kept, never what is in them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use backup_runtime::{
    queue::Key,
    watch::{self, VersionEvent},
};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;

use crate::context::Context;

/// A Secret that was used, and the version that it had; none if it was not there.
pub(super) type Used = Vec<(String, Option<String>)>;

/// What the watch has said. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Secrets(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By name. Not to be gone by before all were listed once.
    versions: HashMap<String, String>,
    listed: bool,
    /// Those who use a Secret, by its name.
    users: HashMap<String, BTreeSet<Key>>,
}

impl Secrets {
    /// Objects whose Secrets have changed, as they do.
    pub(super) fn changes(&self, ctx: &Context) -> impl Stream<Item = Key> + Send + 'static {
        let secrets = self.clone();
        watch::versions::<Secret>(&ctx.cluster).flat_map(move |seen| stream::iter(secrets.saw(seen)))
    }

    /// Takes what was seen; the objects that it concerns.
    fn saw(&self, seen: VersionEvent) -> Vec<Key> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: Vec<String> = match seen {
            VersionEvent::Applied { name, version } => {
                let before = state.versions.insert(name.clone(), version.clone());
                (before.as_ref() != Some(&version)).then_some(name).into_iter().collect()
            }
            VersionEvent::Deleted(name) => state.versions.remove(&name).map(|_| name).into_iter().collect(),
            VersionEvent::Listed(all) => {
                state.listed = true;
                let gone = |name: &&String| !all.contains(*name);
                let gone: Vec<String> = state.versions.keys().filter(gone).cloned().collect();
                state.versions.retain(|name, _| all.contains(name));
                gone
            }
        };
        changed.iter().filter_map(|name| state.users.get(name)).flatten().cloned().collect()
    }

    /// Notes what an object uses.
    pub(super) fn uses(&self, key: &Key, used: &Used) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        forget(&mut state, key);
        for (name, _) in used {
            state.users.entry(name.clone()).or_default().insert(key.clone());
        }
    }

    /// The object is gone.
    pub(super) fn forget(&self, key: &Key) {
        forget(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), key);
    }

    /// Whether one of these Secrets is not as it was when it was used.
    pub(super) fn have_changed(&self, used: &Used) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.listed && used.iter().any(|(name, version)| state.versions.get(name) != version.as_ref())
    }
}

fn forget(state: &mut State, key: &Key) {
    state.users.retain(|_, users| {
        users.remove(key);
        !users.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_changes_comes_or_goes_concerns_those_who_use_it() {
        let secrets = Secrets::default();
        let key = |name: &str| Key { namespace: "velero".to_owned(), name: name.to_owned() };
        let there = |name: &str, version: &str| VersionEvent::Applied {
            name: name.to_owned(),
            version: version.to_owned(),
        };
        let used = |name: &str, version: Option<&str>| vec![(name.to_owned(), version.map(str::to_owned))];
        secrets.uses(&key("one"), &used("s3", Some("1")));
        secrets.uses(&key("two"), &used("lost", None));
        assert!(!secrets.have_changed(&used("s3", Some("1"))), "nothing is known yet");
        assert_eq!(secrets.saw(there("s3", "1")), [key("one")]);
        assert!(secrets.saw(there("other", "1")).is_empty());
        secrets.saw(VersionEvent::Listed(["s3".to_owned(), "other".to_owned()].into()));
        assert!(!secrets.have_changed(&used("s3", Some("1"))) && !secrets.have_changed(&used("lost", None)));

        assert!(secrets.saw(there("s3", "1")).is_empty(), "told again by a new watch");
        assert_eq!(secrets.saw(there("s3", "2")), [key("one")]);
        assert!(
            secrets.have_changed(&used("s3", Some("1"))) && !secrets.have_changed(&used("s3", Some("2")))
        );
        assert_eq!(secrets.saw(there("lost", "3")), [key("two")]);
        assert_eq!(secrets.saw(VersionEvent::Deleted("s3".to_owned())), [key("one")]);
        assert!(secrets.have_changed(&used("s3", Some("2"))));
        // Gone while no watch was there.
        assert_eq!(secrets.saw(VersionEvent::Listed(["other".to_owned()].into())), [key("two")]);
        secrets.forget(&key("one"));
        assert!(secrets.saw(there("s3", "4")).is_empty());
    }
}

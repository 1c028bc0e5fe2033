//! The versions of the installation's Secrets, so that a location is validated when a Secret it
//! uses has changed. Only names and versions are read and kept, never the contents.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use backup_runtime::{
    Cluster,
    queue::Key,
    watch::{self, ObjectVersion, WatchEvent},
};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use parking_lot::Mutex;

use crate::location::UsedSecret;

/// State of the watch of Secrets. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretVersions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By name. Incomplete until the first list has ended.
    versions: HashMap<String, String>,
    listed: bool,
    /// The objects that use a Secret, by its name.
    users: HashMap<String, BTreeSet<Key>>,
}

impl State {
    fn forget(&mut self, user: &Key) {
        self.users.retain(|_, users| {
            users.remove(user);
            !users.is_empty()
        });
    }
}

impl SecretVersions {
    /// Follows the Secrets. Yields each object whose Secret has changed.
    pub(super) fn watch(&self, cluster: &Cluster) -> impl Stream<Item = Key> + Send + 'static {
        let secrets = self.clone();
        watch::versions::<Secret>(cluster).flat_map(move |event| stream::iter(secrets.apply(event)))
    }

    /// Returns the objects that use a changed Secret.
    fn apply(&self, event: WatchEvent<ObjectVersion>) -> Vec<Key> {
        let mut state = self.0.lock();
        let changed: Vec<String> = match event {
            WatchEvent::Applied(ObjectVersion { name, version }) => {
                let before = state.versions.insert(name.clone(), version.clone());
                (before.as_ref() != Some(&version))
                    .then_some(name)
                    .into_iter()
                    .collect()
            }
            WatchEvent::Deleted(key) => state
                .versions
                .remove(&key.name)
                .map(|_| key.name)
                .into_iter()
                .collect(),
            WatchEvent::Listed(all) => {
                state.listed = true;
                let gone: Vec<String> = state
                    .versions
                    .keys()
                    .filter(|name| !all.contains(*name))
                    .cloned()
                    .collect();
                state.versions.retain(|name, _| all.contains(name));
                gone
            }
        };
        changed
            .iter()
            .filter_map(|name| state.users.get(name))
            .flatten()
            .cloned()
            .collect()
    }

    pub(super) fn set_used(&self, user: &Key, secrets: &[UsedSecret]) {
        let mut state = self.0.lock();
        state.forget(user);
        for secret in secrets {
            state
                .users
                .entry(secret.name.clone())
                .or_default()
                .insert(user.clone());
        }
    }

    pub(super) fn forget(&self, user: &Key) {
        self.0.lock().forget(user);
    }

    /// Whether one of these Secrets has changed since it was used.
    pub(super) fn have_changed(&self, used: &[UsedSecret]) -> bool {
        let state = self.0.lock();
        state.listed
            && used
                .iter()
                .any(|secret| state.versions.get(&secret.name) != secret.version.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_changes_comes_or_goes_concerns_those_who_use_it() {
        let secrets = SecretVersions::default();
        let key = |name: &str| Key {
            namespace: "velero".to_owned(),
            name: name.to_owned(),
        };
        let there = |name: &str, version: &str| {
            WatchEvent::Applied(ObjectVersion {
                name: name.to_owned(),
                version: version.to_owned(),
            })
        };
        let used = |name: &str, version: Option<&str>| {
            vec![UsedSecret {
                name: name.to_owned(),
                version: version.map(str::to_owned),
            }]
        };
        secrets.set_used(&key("one"), &used("s3", Some("1")));
        secrets.set_used(&key("two"), &used("lost", None));
        assert!(
            !secrets.have_changed(&used("s3", Some("1"))),
            "nothing is known yet"
        );
        assert_eq!(secrets.apply(there("s3", "1")), [key("one")]);
        assert!(secrets.apply(there("other", "1")).is_empty());
        secrets.apply(WatchEvent::Listed(
            ["s3".to_owned(), "other".to_owned()].into(),
        ));
        assert!(
            !secrets.have_changed(&used("s3", Some("1")))
                && !secrets.have_changed(&used("lost", None))
        );

        assert!(
            secrets.apply(there("s3", "1")).is_empty(),
            "seen again by a new watch"
        );
        assert_eq!(secrets.apply(there("s3", "2")), [key("one")]);
        assert!(
            secrets.have_changed(&used("s3", Some("1")))
                && !secrets.have_changed(&used("s3", Some("2")))
        );
        assert_eq!(secrets.apply(there("lost", "3")), [key("two")]);
        assert_eq!(secrets.apply(WatchEvent::Deleted(key("s3"))), [key("one")]);
        assert!(secrets.have_changed(&used("s3", Some("2"))));
        // Deleted while the watch was down.
        assert_eq!(
            secrets.apply(WatchEvent::Listed(["other".to_owned()].into())),
            [key("two")]
        );
        secrets.forget(&key("one"));
        assert!(secrets.apply(there("s3", "4")).is_empty());
    }
}

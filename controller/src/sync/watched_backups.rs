//! The Backups of the cluster from a watch, so that a comparison every minute only has to list the
//! bucket.
//!
//! They may be slightly out of date. A comparison alone decides nothing: before a Backup is created
//! or removed, location, bucket and Backup are read again.

use backup_core::api::Backup;
use backup_runtime::{
    Cluster,
    watch::{self, WatchEvent},
};
use futures::StreamExt as _;
use kube::{ResourceExt as _, api::DynamicObject};
use parking_lot::Mutex;

use super::comparison::{ClusterBackup, ClusterBackups};

#[derive(Default)]
pub(crate) struct WatchedBackups(Mutex<State>);

#[derive(Default)]
struct State {
    /// Incomplete until the first list has ended.
    known: ClusterBackups,
    listed: bool,
}

impl WatchedBackups {
    /// Follows the watch; never returns.
    pub(super) async fn follow(&self, cluster: &Cluster) {
        let mut events = std::pin::pin!(watch::raw::<Backup>(cluster));
        while let Some(event) = events.next().await {
            self.apply(event);
        }
    }

    fn apply(&self, event: WatchEvent<DynamicObject>) {
        let mut state = self.0.lock();
        let State { known, listed } = &mut *state;
        match event {
            WatchEvent::Applied(backup) => {
                known.insert(backup.name_any(), ClusterBackup::of(&backup));
            }
            WatchEvent::Deleted(key) => {
                known.remove(&key.name);
            }
            WatchEvent::Listed(names) => {
                known.retain(|name, _| names.contains(name));
                *listed = true;
            }
        }
    }

    /// All Backups, by name; `None` until the first list is complete.
    pub(super) fn get(&self) -> Option<ClusterBackups> {
        let state = self.0.lock();
        state.listed.then(|| state.known.clone())
    }
}

#[cfg(test)]
mod tests {
    use backup_runtime::queue::Key;
    use serde_json::json;

    use super::*;

    fn backup(name: &str, phase: &str) -> DynamicObject {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": name },
            "spec": { "storageLocation": "default", "ttl": 7 }, "status": { "phase": phase } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn nothing_is_known_until_all_are_and_what_a_new_list_does_not_name_is_gone() {
        let watched = WatchedBackups::default();
        let names = |event| {
            watched.apply(event);
            let mut names: Vec<String> = watched.get()?.into_keys().collect();
            names.sort_unstable();
            Some(names.join(" "))
        };
        let listed = |names: &[&str]| {
            WatchEvent::Listed(names.iter().map(|name| (*name).to_owned()).collect())
        };
        let gone = Key {
            namespace: "velero".to_owned(),
            name: "a".to_owned(),
        };
        for (event, expected) in [
            (WatchEvent::Applied(backup("a", "New")), None),
            (WatchEvent::Applied(backup("b", "Completed")), None),
            (listed(&["a", "b"]), Some("a b")),
            (WatchEvent::Applied(backup("c", "New")), Some("a b c")),
            (WatchEvent::Deleted(gone), Some("b c")),
            (WatchEvent::Applied(backup("c", "Completed")), Some("b c")),
            (listed(&["c"]), Some("c")),
        ] {
            let what = format!("{event:?}");
            assert_eq!(names(event).as_deref(), expected, "{what}");
        }
        assert!(watched.get().unwrap()["c"].stored);
    }
}

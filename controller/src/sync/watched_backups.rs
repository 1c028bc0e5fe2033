//! The Backups of the cluster from a watch, so that a comparison every minute only has to list the
//! bucket.
//!
//! They may be slightly out of date. A comparison alone decides nothing: before a Backup is created
//! or removed, location, bucket and Backup are read again.

use backup_core::api::Backup;
use backup_runtime::{
    Cluster,
    watch::{self, Event},
};
use futures::StreamExt as _;
use kube::{ResourceExt as _, api::DynamicObject};
use parking_lot::Mutex;

use super::comparison::{ClusterBackup, ClusterBackups};

#[derive(Default)]
pub(crate) struct WatchedBackups {
    /// `None` until the first list is complete.
    known: Mutex<Option<ClusterBackups>>,
}

impl WatchedBackups {
    /// Follows the watch; never returns.
    pub(super) async fn follow(&self, cluster: &Cluster) {
        let mut events = std::pin::pin!(watch::raw::<Backup>(cluster));
        let mut listed = ClusterBackups::new();
        while let Some(event) = events.next().await {
            self.apply(event, &mut listed);
        }
    }

    fn apply(&self, event: Event<DynamicObject>, listed: &mut ClusterBackups) {
        let mut known = self.known.lock();
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(backup) => {
                _ = listed.insert(backup.name_any(), ClusterBackup::of(&backup));
            }
            Event::InitDone => *known = Some(std::mem::take(listed)),
            Event::Apply(backup) => {
                if let Some(known) = known.as_mut() {
                    known.insert(backup.name_any(), ClusterBackup::of(&backup));
                }
            }
            Event::Delete(backup) => {
                if let Some(known) = known.as_mut() {
                    known.remove(&backup.name_any());
                }
            }
        }
    }

    /// All Backups, by name; `None` until the first list is complete.
    pub(super) fn get(&self) -> Option<ClusterBackups> {
        self.known.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backup(name: &str, phase: &str) -> DynamicObject {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": { "name": name },
            "spec": { "storageLocation": "default", "ttl": 7 }, "status": { "phase": phase } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn nothing_is_known_until_all_are_and_each_new_list_replaces_the_last() {
        let (watched, mut listed) = (WatchedBackups::default(), ClusterBackups::new());
        let mut names = |event| {
            watched.apply(event, &mut listed);
            let mut names: Vec<String> = watched.get()?.into_keys().collect();
            names.sort_unstable();
            Some(names.join(" "))
        };
        for (event, expected) in [
            (Event::Init, None),
            (Event::InitApply(backup("a", "New")), None),
            (Event::InitApply(backup("b", "Completed")), None),
            (Event::InitDone, Some("a b")),
            (Event::Apply(backup("c", "New")), Some("a b c")),
            (Event::Delete(backup("a", "New")), Some("b c")),
            (Event::Init, Some("b c")),
            (Event::InitApply(backup("c", "Completed")), Some("b c")),
            (Event::InitDone, Some("c")),
        ] {
            let what = format!("{event:?}");
            assert_eq!(names(event).as_deref(), expected, "{what}");
        }
        assert!(watched.get().unwrap()["c"].stored);
    }
}

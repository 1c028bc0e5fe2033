//! Folders under `backups/` without a finished backup, and the removal of useless ones.

use futures::TryStreamExt as _;
use jiff::Timestamp;
use object_store::path::Path;

use super::Location;
use crate::{
    StoreError,
    layout::{self, JobKeys},
};

/// Kinds of keys in a backup's folder without metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remnant {
    /// An owner marker, a note of an upload, a file beside the contents: useless without the
    /// contents.
    Scrap,
    /// A record of an effect outside of the bucket: a snapshot, a command.
    Journal,
    /// The contents of the backup are decided or collected: the cluster that has the Backup
    /// finishes it.
    Record,
    /// The items, without metadata: a deletion was interrupted, or the metadata was lost.
    Contents,
    /// A file that is no part of a backup of this name.
    Foreign,
    /// The note of a copy: all files are in another location, too.
    Copy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteBackup {
    pub most: Remnant,
    /// Time of the last write into the folder; `None` where the store has no times.
    pub newest: Option<Timestamp>,
}

impl IncompleteBackup {
    pub(super) fn add(this: &mut Option<Self>, remnant: Remnant, modified: Option<Timestamp>) {
        let Some(incomplete) = this else {
            *this = Some(Self {
                most: remnant,
                newest: modified,
            });
            return;
        };
        incomplete.most = incomplete.most.max(remnant);
        incomplete.newest = incomplete.newest.zip(modified).map(|(a, b)| a.max(b));
    }
}

impl Location {
    /// Time at which an object was written; `None` where the store has no times.
    pub(super) fn modified(&self, object: &object_store::ObjectMeta) -> Option<Timestamp> {
        let time = Timestamp::from_second(object.last_modified.timestamp()).ok();
        time.filter(|_| self.plugin().is_none())
    }

    /// The uid of the Backup that has claimed a folder; empty if none has.
    pub async fn owner_of(&self, backup: &str) -> Result<String, StoreError> {
        self.owner(&self.layout().backup(backup)?).await
    }

    /// Removes a folder that holds scrap or an incomplete copy only; returns the number of keys. It
    /// is listed again, and exactly the listed keys are removed: files that another program writes
    /// meanwhile stay. The owner marker goes last, so that no backup starts there before. Returns
    /// `None` and removes nothing if the folder differs from `seen`, or holds more. Safe to repeat.
    pub async fn remove_incomplete(
        &self,
        backup: &str,
        seen: &IncompleteBackup,
    ) -> Result<Option<u64>, StoreError> {
        let keys = self.layout().backup(backup)?;
        let mut now = None;
        let mut found = Vec::new();
        let mut listed = self.store().list(Some(&keys.folder));
        while let Some(object) = listed
            .try_next()
            .await
            .map_err(|error| self.failed("list", &keys.folder, &error))?
        {
            // This checks for metadata again; the caller saw none.
            let remnant = keys
                .classify(&object.location)
                .filter(|remnant| *remnant == Remnant::Scrap || seen.most == Remnant::Copy);
            let Some(remnant) = remnant else {
                return Ok(None);
            };
            IncompleteBackup::add(&mut now, remnant, self.modified(&object));
            found.push(object.location);
        }
        // A listing may be outdated.
        if now.as_ref() != Some(seen)
            || seen.newest.is_none()
            || self.look_at(&keys.metadata()).await?.is_some()
        {
            return Ok(None);
        }
        let number = found.len() as u64;
        if keys.upload_notes().has_any(&found) {
            self.remove_begun(&keys, false).await?;
        }
        self.delete_marker_last(&keys, found).await?;
        if self.list(&keys.folder).await?.is_empty() {
            self.remove_folder(&keys.folder).await?;
        }
        Ok(Some(number))
    }
}

/// Kinds of the files beside the contents.
const BESIDE: [(&str, Remnant); 10] = [
    (layout::LOG, Remnant::Scrap),
    (layout::RESULTS, Remnant::Scrap),
    (layout::RESOURCE_LIST, Remnant::Scrap),
    (layout::VOLUME_INFO, Remnant::Scrap),
    (layout::ITEM_OPERATIONS, Remnant::Scrap),
    (layout::POD_VOLUME_BACKUPS, Remnant::Scrap),
    (layout::CSI_SNAPSHOT_CLASSES, Remnant::Scrap),
    (layout::CSI_SNAPSHOTS, Remnant::Scrap),
    // These name snapshots that exist.
    (layout::VOLUME_SNAPSHOTS, Remnant::Journal),
    (layout::CSI_SNAPSHOT_CONTENTS, Remnant::Journal),
];

impl JobKeys {
    /// The kind of a key of the folder; `None` for the metadata.
    pub(crate) fn classify(&self, key: &Path) -> Option<Remnant> {
        if *key == self.metadata() {
            return None;
        }
        if *key == self.contents() {
            return Some(Remnant::Contents);
        }
        if self.is_private(key) {
            return Some(self.classify_private(key));
        }
        let beside = BESIDE.iter().find(|(suffix, _)| *key == self.file(suffix));
        Some(beside.map_or(Remnant::Foreign, |(_, remnant)| *remnant))
    }

    fn classify_private(&self, key: &Path) -> Remnant {
        // Parts that a plugin has stored.
        let is_part = key
            .filename()
            .is_some_and(|name| name.starts_with("parts-"));
        if *key == self.copy_note() {
            Remnant::Copy
        } else if self.is_marker(key) || self.upload_notes().number(key).is_some() || is_part {
            Remnant::Scrap
        } else if self.journal().number(key).is_some() {
            Remnant::Journal
        } else if self.records().number(key).is_some() || self.operations().number(key).is_some() {
            Remnant::Record
        } else if self.is_snapshot(key) {
            Remnant::Scrap
        } else {
            Remnant::Foreign
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{folder, get, keys, memory, put};

    #[test]
    fn each_key_of_a_folder_is_known_for_what_it_is() {
        let keys = crate::layout::Layout::new("p")
            .unwrap()
            .backup("b")
            .unwrap();
        for (key, expected) in [
            ("velero-backup.json", None),
            ("b.tar.gz", Some(Remnant::Contents)),
            ("b-logs.gz", Some(Remnant::Scrap)),
            ("b-results.gz", Some(Remnant::Scrap)),
            ("b-podvolumebackups.json.gz", Some(Remnant::Scrap)),
            ("b-volumesnapshots.json.gz", Some(Remnant::Journal)),
            (
                "b-csi-volumesnapshotcontents.json.gz",
                Some(Remnant::Journal),
            ),
            (".private/owner", Some(Remnant::Scrap)),
            (".private/owner-2", Some(Remnant::Scrap)),
            (".private/upload-17", Some(Remnant::Scrap)),
            (".private/parts-00ff-0-8-aa", Some(Remnant::Scrap)),
            (".private/so-far-1-2-b-logs.gz", Some(Remnant::Scrap)),
            (".private/so-far-log-1700000000000", Some(Remnant::Scrap)),
            (".private/journal-3", Some(Remnant::Journal)),
            (".private/record-1", Some(Remnant::Record)),
            (".private/operations-4", Some(Remnant::Record)),
            (".private/copy", Some(Remnant::Copy)),
            (".private/record-x", Some(Remnant::Foreign)),
            (".private/deep/owner", Some(Remnant::Foreign)),
            (".private/later-1", Some(Remnant::Foreign)),
            ("c.tar.gz", Some(Remnant::Foreign)),
            ("b-logs.gz.bak", Some(Remnant::Foreign)),
            ("deep/b-logs.gz", Some(Remnant::Foreign)),
            ("1.jpg", Some(Remnant::Foreign)),
        ] {
            assert_eq!(
                keys.classify(&Path::from(format!("p/backups/b/{key}"))),
                expected,
                "{key}"
            );
        }
    }

    #[tokio::test]
    async fn only_scrap_is_removed_and_only_as_it_was_seen() {
        let (_dir, on_disk) = folder("p");
        for location in [memory("p"), on_disk] {
            put(&location, "p/backups/b/.private/owner", b"u1\n").await;
            put(&location, "p/backups/b/b-logs.gz", b"x").await;
            put(&location, "p/backups/bb/bb-logs.gz", b"x").await;
            let seen = location
                .inspect_folder("b")
                .await
                .unwrap()
                .incomplete
                .unwrap();
            assert!(
                seen.most == Remnant::Scrap && seen.newest.is_some(),
                "{seen:?}"
            );
            assert_eq!(location.owner_of("b").await.unwrap(), "u1");
            for more in [
                "velero-backup.json",
                "b.tar.gz",
                ".private/record-1",
                ".private/journal-1",
                "1.jpg",
            ] {
                let key = format!("p/backups/b/{more}");
                put(&location, &key, b"x").await;
                assert_eq!(
                    location.remove_incomplete("b", &seen).await.unwrap(),
                    None,
                    "{more}"
                );
                location.delete(vec![Path::from(key)]).await.unwrap();
                assert!(
                    get(&location, "p/backups/b/b-logs.gz").await.is_some(),
                    "{more}"
                );
            }
            let newest = seen
                .newest
                .and_then(|time| time.checked_sub(jiff::SignedDuration::from_secs(1)).ok());
            for other in [
                IncompleteBackup {
                    newest,
                    ..seen.clone()
                },
                IncompleteBackup {
                    newest: None,
                    ..seen.clone()
                },
            ] {
                assert_eq!(
                    location.remove_incomplete("b", &other).await.unwrap(),
                    None,
                    "it has changed since"
                );
            }
            let seen = location
                .inspect_folder("b")
                .await
                .unwrap()
                .incomplete
                .unwrap();
            assert_eq!(
                location.remove_incomplete("b", &seen).await.unwrap(),
                Some(2)
            );
            assert_eq!(keys(&location).await, ["p/backups/bb/bb-logs.gz"]);
            assert_eq!(location.list_backups().await.unwrap(), ["bb"]);
            assert_eq!(location.remove_incomplete("b", &seen).await.unwrap(), None);
        }
    }
}

//! A restore whose items are done, and whose operations go on.

use backup_core::api::Extra;
use bytes::Bytes;
use jiff::Timestamp;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RestoreFiles;
use crate::{
    Location, StoreError,
    backup::record::{Contents, MAX_RECORD, Record},
    layout::{RestoreKeys, RestorePrivateKeys},
};

/// States of operations larger than this are refused (bytes).
const MAX_OPERATIONS: u64 = 64 * 1024 * 1024;

/// A restore that waits for operations. From [`Location::keep_restore`] or [`Location::find_restore`].
#[derive(Debug)]
pub struct WaitingRestore {
    location: Location,
    keys: RestorePrivateKeys,
    files: RestoreFiles,
    /// Number of the last state of the operations.
    last: u64,
    at: Option<Timestamp>,
}

/// A state of operations.
#[derive(Serialize, Deserialize)]
struct State {
    at: Timestamp,
    operations: Vec<Value>,
    /// Of a newer version.
    #[serde(flatten)]
    extra: Extra,
}

impl Location {
    /// Keeps the files of a restore as they are when its items are done, with its operations, under a private key. Once this
    /// returns, whoever comes next goes on from there.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has kept them: go on from [`Self::find_restore`].
    pub async fn keep_restore(
        &self,
        restore: &str,
        uid: &str,
        files: &RestoreFiles,
    ) -> Result<WaitingRestore, StoreError> {
        let keys = self.layout().restore(restore)?;
        let private = keys.private(uid)?;
        let record = Record {
            uid: uid.to_owned(),
            contents: Contents::Inline,
            status: Value::Null,
            files: files.encode(&keys)?,
        };
        let bytes = record.encode()?;
        self.put_new(&private.record(), bytes.clone()).await?;
        self.waiting(&keys, private, &bytes)
    }

    /// The restore of this name and uid, if its operations go on, or its end is not published yet.
    ///
    /// Errors: [`StoreError::Corrupt`] for something that can't be used.
    pub async fn find_restore(&self, restore: &str, uid: &str) -> Result<Option<WaitingRestore>, StoreError> {
        let keys = self.layout().restore(restore)?;
        let private = keys.private(uid)?;
        let Some(bytes) = self.get_small(&private.record(), MAX_RECORD).await? else { return Ok(None) };
        let mut waiting = self.waiting(&keys, private, &bytes)?;
        let states = waiting.keys.operations();
        if let Some(last) = self.numbers(&states).await?.last() {
            let key = states.key(*last);
            let bytes = self.get_small(&key, MAX_OPERATIONS).await?.unwrap_or_default();
            let state: State = serde_json::from_slice(&bytes).map_err(|error| StoreError::Corrupt {
                url: self.url_of(&key),
                detail: format!("it holds no operations: {error}"),
            })?;
            (waiting.last, waiting.at) = (*last, Some(state.at));
            waiting.files.item_operations = state.operations;
        }
        Ok(Some(waiting))
    }

    fn waiting(
        &self,
        keys: &RestoreKeys,
        private: RestorePrivateKeys,
        record: &Bytes,
    ) -> Result<WaitingRestore, StoreError> {
        let files = Record::decode(record, keys.folder())
            .and_then(|record| RestoreFiles::decode(keys, &|key| record.file(key)))
            .map_err(|detail| StoreError::Corrupt { url: self.url_of(&private.record()), detail })?;
        Ok(WaitingRestore { location: self.clone(), keys: private, files, last: 0, at: None })
    }

    /// Removes what is private of a restore whose end is published.
    pub async fn forget_restore(&self, restore: &str, uid: &str) -> Result<(), StoreError> {
        let private = self.layout().restore(restore)?.private(uid)?;
        let found = self.list(private.folder()).await?;
        self.delete(found).await
    }
}

impl WaitingRestore {
    /// All files as they are so far; the operations in their last state that was kept.
    pub fn files(&self) -> &RestoreFiles {
        &self.files
    }

    /// What a final key would hold if this were the end, and the private key that this state of it belongs under.
    pub(crate) fn file(&self, keys: &RestoreKeys, key: &Path) -> Result<Option<(Path, Bytes)>, StoreError> {
        let files = self.files.encode(keys)?;
        let so_far = self.keys.file_snapshot(self.last, key);
        Ok(files.into_iter().find_map(|(of, bytes)| (of == *key).then_some((so_far.clone(), bytes))))
    }

    /// Keeps a new state of the operations, as of this time, under a new private key.
    ///
    /// Errors: [`StoreError::Exists`] if another replica has kept another one meanwhile: look again.
    pub async fn keep_operations(&mut self, operations: Vec<Value>, at: Timestamp) -> Result<(), StoreError> {
        let state = State { at, operations, extra: Extra::new() };
        let bytes =
            serde_json::to_vec(&state).map_err(|error| StoreError::io("encode operations", &error))?;
        let next = self.last + 1;
        self.location.put_new(&self.keys.operations().key(next), Bytes::from(bytes)).await?;
        (self.last, self.at) = (next, Some(at));
        self.files.item_operations = state.operations;
        Ok(())
    }

    /// The files, to be completed, and when the operations were in the state that they are in: whoever completes them with
    /// this time makes the same bytes of them. The record stays until the end is published.
    pub fn into_files(self) -> (RestoreFiles, Option<Timestamp>) {
        (self.files, self.at)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Scope,
        testing::{folder, get, keys, memory, put, restore_files},
    };

    const AT: &str = "2026-01-01T00:00:00.5Z";

    fn files() -> RestoreFiles {
        let item_operations = vec![json!({"status": {"phase": "New"}})];
        let mut files = RestoreFiles { item_operations, ..restore_files() };
        files.log.line("info", "so far", &[], AT.parse().unwrap());
        files.results.warn(Scope::Velero, "careful");
        files.resource_list.add("v1", "Pod", Some("n"), "p", Some("created"));
        files
    }

    #[tokio::test]
    async fn another_process_goes_on_with_what_was_kept_and_ends_with_the_same_bytes() {
        let (_dir, local) = folder("p");
        for location in [memory("p"), local] {
            assert!(location.find_restore("r", "u").await.unwrap().is_none());
            location.keep_restore("r", "u", &files()).await.unwrap();
            assert!(location.find_restore("r", "other").await.unwrap().is_none());
            let mut found = location.find_restore("r", "u").await.unwrap().unwrap();
            assert_eq!(found.files().item_operations[0]["status"]["phase"], "New");
            assert_eq!(found.files().results.warnings(), 1);
            let ended = vec![json!({"status": {"phase": "Completed"}})];
            found.keep_operations(ended.clone(), AT.parse().unwrap()).await.unwrap();
            assert!(
                keys(&location).await.iter().all(|key| key.contains("/.private/u/")),
                "nothing is visible"
            );
            // The first of them dies in the middle of the end.
            for _ in 0..2 {
                let found = location.find_restore("r", "u").await.unwrap().unwrap();
                let (mut files, at) = found.into_files();
                assert_eq!((files.item_operations.clone(), at), (ended.clone(), AT.parse().ok()));
                files.log.line("error", "one has failed", &[], at.unwrap());
                location.put_restore_files("r", &files).await.unwrap();
            }
            assert!(get(&location, "p/restores/r/restore-r-itemoperations.json.gz").await.is_some());
            location.forget_restore("r", "u").await.unwrap();
            assert!(location.find_restore("r", "u").await.unwrap().is_none());
            assert_eq!(keys(&location).await.len(), 5);
        }
    }

    #[tokio::test]
    async fn of_two_that_keep_one_state_one_comes_second() {
        let location = memory("p");
        let mut first = location.keep_restore("r", "u", &files()).await.unwrap();
        let mut second = location.find_restore("r", "u").await.unwrap().unwrap();
        first.keep_operations(vec![json!(1)], AT.parse().unwrap()).await.unwrap();
        let error = second.keep_operations(vec![json!(2)], AT.parse().unwrap()).await.unwrap_err();
        assert_eq!(error.category(), "exists");
        let mut other = files();
        other.results.warn(Scope::Velero, "another");
        assert_eq!(location.keep_restore("r", "u", &other).await.unwrap_err().category(), "exists");
    }

    #[tokio::test]
    async fn what_is_damaged_is_told_and_never_no_operations() {
        for (key, text) in [("record", "junk"), ("operations-7", "junk"), ("operations-7", "[]")] {
            let location = memory("p");
            location.keep_restore("r", "u", &files()).await.unwrap();
            if key == "record" {
                location.forget_restore("r", "u").await.unwrap();
            }
            put(&location, &format!("p/restores/r/.private/u/{key}"), text.as_bytes()).await;
            assert_eq!(location.find_restore("r", "u").await.unwrap_err().category(), "corrupt", "{key}");
        }
    }

    #[tokio::test]
    async fn the_journals_of_two_restores_of_one_name_are_apart() {
        let location = memory("p");
        let mut journal = location.new_restore_journal("r", "u").unwrap();
        assert!(location.restore_journal("r", "u").await.unwrap().1.is_empty());
        journal.add(&json!(1)).await.unwrap();
        let (mut late, _) = location.restore_journal("r", "u").await.unwrap();
        journal.add(&json!(2)).await.unwrap();
        assert_eq!(late.add(&json!(3)).await.unwrap_err().category(), "exists");
        late.look_again().await.unwrap();
        late.add(&json!(3)).await.unwrap();
        assert_eq!(location.restore_journal("r", "u").await.unwrap().1, [json!(1), json!(2), json!(3)]);
        assert!(location.restore_journal("r", "v").await.unwrap().1.is_empty());
    }
}

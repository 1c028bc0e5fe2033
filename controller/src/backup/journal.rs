//! The private journal of one backup: what the next process must know about commands in pods,
//! actions and snapshots.

use std::sync::Arc;

use backup_core::api::Backup;
use backup_runtime::leader::Leadership;
use backup_store::{Location, StoreError};
use serde_json::Value;

use crate::job::{
    action_journal,
    journal::{JobJournal, JournalWriter},
};

/// Member of an entry: uid of the Backup that it is about.
const BACKUP: &str = "backup";

pub(crate) struct BackupJournal {
    pub(crate) writer: Arc<dyn JournalWriter>,
    pub(crate) entries: Vec<Value>,
}

impl BackupJournal {
    /// The folder may belong to another backup of the same name; its entries are ignored.
    pub(crate) async fn open(
        leadership: &Leadership,
        location: &Location,
        name: &str,
        uid: &str,
    ) -> Result<Self, StoreError> {
        let (journal, mut entries) = location
            .journal::<Backup>(name, uid, action_journal::slim)
            .await?;
        entries.retain(|entry| entry[BACKUP] == uid);
        let writer = JobJournal::new(journal, leadership.clone()).stamped(BACKUP, uid);
        Ok(Self {
            writer: Arc::new(writer),
            entries,
        })
    }
}

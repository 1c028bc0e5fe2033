//! Notes of volumes that are made of snapshots: one before a plugin is asked, one when it has answered. A restore that is taken
//! up makes what was not begun, uses what was made, and tells of what was begun and never ended, as nobody knows what came of it.

use std::{collections::BTreeMap, sync::Arc};

use backup_store::StoreError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::job::journal::JournalWriter;

const BEGUN: &str = "volumeBegun";
const ENDED: &str = "volumeEnded";

/// What an earlier run has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// Nobody knows what came of it.
    Unknown,
    /// It was made, and has this id.
    Made(String),
}

/// The notes of one restore. Volumes have their names in the backup.
pub struct Noted {
    journal: Arc<dyn JournalWriter>,
    earlier: BTreeMap<String, Earlier>,
}

/// A volume, and the id of the one that was made.
#[derive(Deserialize)]
struct Ended {
    volume: String,
    made: Option<String>,
}

impl Noted {
    /// Goes on from these notes; those about other things are passed over.
    ///
    /// # Errors
    /// A note about volumes that can't be understood: then nobody knows what was made.
    pub fn take_over(journal: Arc<dyn JournalWriter>, found: &[Value]) -> Result<Self, StoreError> {
        let earlier = read(found).map_err(|error| StoreError::Corrupt {
            url: "the notes of this restore".to_owned(),
            detail: format!("a note about volumes can't be understood: {error}"),
        })?;
        Ok(Self { journal, earlier })
    }

    /// What an earlier run has begun of this volume, and not seen fail.
    pub fn earlier(&self, volume: &str) -> Option<&Earlier> {
        self.earlier.get(volume)
    }

    /// One is about to be made.
    ///
    /// # Errors
    /// Of the store: then it must not be.
    pub async fn begun(&self, volume: &str) -> Result<(), StoreError> {
        self.journal.append(json!({ BEGUN: volume })).await
    }

    /// It has this id; none: it is known not to be there.
    ///
    /// # Errors
    /// Of the store: then whoever comes next has to tell that nobody knows.
    pub async fn ended(&self, volume: &str, made: Option<&str>) -> Result<(), StoreError> {
        self.journal.append(json!({ ENDED: { "volume": volume, "made": made } })).await
    }
}

fn read(notes: &[Value]) -> Result<BTreeMap<String, Earlier>, serde_json::Error> {
    let mut all = BTreeMap::new();
    for note in notes {
        if let Some(begun) = note.get(BEGUN) {
            all.insert(String::deserialize(begun)?, Earlier::Unknown);
        }
        if let Some(ended) = note.get(ENDED) {
            let Ended { volume, made } = Ended::deserialize(ended)?;
            match made {
                Some(id) => all.insert(volume, Earlier::Made(id)),
                None => all.remove(&volume),
            };
        }
    }
    Ok(all)
}

//! The journal of volumes that are created from snapshots. A resumed restore creates volumes that
//! were not begun, uses those that were created, and reports those that have no end, as their
//! outcome is unknown.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::job::step_journal::{StepJournal, StepState};

pub(crate) type VolumeJournal = StepJournal<PriorVolume>;

/// State of a volume after earlier runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PriorVolume {
    Unknown,
    /// It was created, and has this id.
    Created(String),
}

#[derive(Deserialize)]
struct EndEntry {
    volume: String,
    made: Option<String>,
}

/// Volumes are recorded by their names in the backup.
impl StepState for PriorVolume {
    const STEPS: &'static str = "volumes";
    const BEGUN: &'static str = "volumeBegun";
    const ENDED: &'static str = "volumeEnded";
    type Step = String;
    type Key = String;
    /// The id of the created volume; `None` if there certainly is none.
    type End<'a> = Option<&'a str>;

    fn begun(volume: String) -> (String, Self) {
        (volume, Self::Unknown)
    }

    fn end_entry(volume: &String, created: Option<&str>) -> Value {
        json!({ Self::ENDED: { "volume": volume, "made": created } })
    }

    fn ended(entry: &Value) -> Result<(String, Option<Self>), serde_json::Error> {
        let EndEntry { volume, made } = EndEntry::deserialize(&entry[Self::ENDED])?;
        Ok((volume, made.map(Self::Created)))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use super::*;
    use crate::job::journal::MemoryJournal;

    /// A process of another version may read the journal of a restore that runs.
    #[tokio::test]
    async fn entries_are_those_that_other_versions_write() {
        let notes = Arc::new(MemoryJournal::default());
        let journal = VolumeJournal::take_over(notes.clone(), &[]).unwrap();
        let names = ["pv", "failed", "unknown"].map(str::to_owned);
        for name in &names {
            journal.begin(name).await.unwrap();
        }
        journal.end(&names[0], Some("vol-1")).await.unwrap();
        journal.end(&names[1], None).await.unwrap();
        let expected = [
            json!({ "volumeBegun": "pv" }),
            json!({ "volumeBegun": "failed" }),
            json!({ "volumeBegun": "unknown" }),
            json!({ "volumeEnded": { "volume": "pv", "made": "vol-1" } }),
            json!({ "volumeEnded": { "volume": "failed", "made": null } }),
        ];
        assert_eq!(notes.all(), expected);
        let next = VolumeJournal::take_over(notes, &expected).unwrap();
        let known = BTreeMap::from([
            ("pv".to_owned(), PriorVolume::Created("vol-1".to_owned())),
            ("unknown".to_owned(), PriorVolume::Unknown),
        ]);
        assert_eq!(next.left(), known);
    }
}

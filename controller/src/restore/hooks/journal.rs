//! Records of hooks in the journal of a restore: each hook is run once, over all attempts.

use std::{collections::BTreeMap, sync::Arc};

use backup_store::StoreError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::job::journal::{JournalWriter, undecodable};

const BEGUN: &str = "hookBegun";
const ENDED: &str = "hookEnded";

/// A hook of one pod, by the pod's uid: a new pod of the same name has other hooks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HookId {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) number: usize,
    pub(super) source: String,
    pub(super) container: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum HookEnd {
    Succeeded,
    /// The reason, without the output of the command.
    Failed(String),
    /// It was not run after all, and may be run later.
    NotRun,
}

/// State of a hook after earlier attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PriorHook {
    /// It was begun, and its outcome is unknown.
    Unknown,
    Succeeded,
    Failed(String),
}

pub(crate) struct HookJournal {
    journal: Arc<dyn JournalWriter>,
    /// Hooks recorded by earlier attempts that this attempt has not reached yet.
    earlier: Mutex<BTreeMap<HookId, PriorHook>>,
}

impl HookJournal {
    /// Loads these entries, and ignores entries that are not about hooks. Fails if an entry about
    /// hooks cannot be decoded, because then it is unknown which hooks were run.
    pub(crate) fn take_over(
        journal: Arc<dyn JournalWriter>,
        entries: &[Value],
    ) -> Result<Self, StoreError> {
        let earlier = read(entries).map_err(|error| undecodable("hooks", &error))?;
        Ok(Self {
            journal,
            earlier: Mutex::new(earlier),
        })
    }

    /// Takes the state of a hook after earlier attempts; a second call returns `None`.
    pub(super) fn prior(&self, hook: &HookId) -> Option<PriorHook> {
        self.earlier.lock().remove(hook)
    }

    /// Must be called before the command is run.
    pub(super) async fn begin(&self, hook: &HookId) -> Result<(), StoreError> {
        self.journal.append(json!({ BEGUN: hook })).await
    }

    pub(super) async fn end(&self, hook: &HookId, end: &HookEnd) -> Result<(), StoreError> {
        self.journal.append(json!({ ENDED: hook, "as": end })).await
    }

    /// Hooks of earlier attempts that this attempt has not reached: the pod is gone or was
    /// replaced, or the attempt ended early.
    pub(super) fn left(&self) -> BTreeMap<HookId, PriorHook> {
        std::mem::take(&mut self.earlier.lock())
    }
}

fn read(entries: &[Value]) -> Result<BTreeMap<HookId, PriorHook>, serde_json::Error> {
    let mut all = BTreeMap::new();
    for entry in entries {
        if let Some(begun) = entry.get(BEGUN) {
            all.insert(HookId::deserialize(begun)?, PriorHook::Unknown);
        }
        if let Some(ended) = entry.get(ENDED) {
            let hook = HookId::deserialize(ended)?;
            match HookEnd::deserialize(&entry["as"])? {
                HookEnd::Succeeded => all.insert(hook, PriorHook::Succeeded),
                HookEnd::Failed(why) => all.insert(hook, PriorHook::Failed(why)),
                HookEnd::NotRun => all.remove(&hook),
            };
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::journal::MemoryJournal;

    fn hook(number: usize) -> HookId {
        HookId {
            namespace: "a".into(),
            pod: "p".into(),
            uid: "u".into(),
            number,
            source: "hook r".into(),
            container: "c".into(),
        }
    }

    #[tokio::test]
    async fn the_next_attempt_knows_what_was_begun_and_how_it_has_ended() {
        let notes = Arc::new(MemoryJournal::default());
        let first = HookJournal::take_over(notes.clone(), &[]).unwrap();
        for number in 0..4 {
            first.begin(&hook(number)).await.unwrap();
        }
        let failed = HookEnd::Failed("exit code 1".into());
        for (number, end) in [(0, HookEnd::Succeeded), (1, failed), (2, HookEnd::NotRun)] {
            first.end(&hook(number), &end).await.unwrap();
        }
        let mut entries = notes.all();
        entries.insert(0, json!({ "actionBegun": 1 }));
        let next = HookJournal::take_over(notes, &entries).unwrap();
        assert_eq!(next.prior(&hook(0)), Some(PriorHook::Succeeded));
        assert_eq!(
            next.prior(&hook(1)),
            Some(PriorHook::Failed("exit code 1".into()))
        );
        assert_eq!(next.prior(&hook(2)), None);
        assert_eq!(next.prior(&hook(9)), None);
        assert_eq!(next.left(), BTreeMap::from([(hook(3), PriorHook::Unknown)]));
    }

    #[test]
    fn an_entry_that_cannot_be_decoded_is_an_error() {
        for entry in [json!({ BEGUN: 1 }), json!({ ENDED: hook(1), "as": "well" })] {
            assert!(HookJournal::take_over(Arc::new(MemoryJournal::default()), &[entry]).is_err());
        }
    }
}

//! Records of hooks in the journal of a restore: each hook is run once, over all attempts.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::job::step_journal::{StepJournal, StepState};

pub(crate) type HookJournal = StepJournal<PriorHook>;

/// A hook of one pod, by the pod's uid: a new pod of the same name has other hooks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HookId {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) number: usize,
    pub(crate) source: String,
    pub(crate) container: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HookEnd {
    Succeeded,
    /// The reason, without the output of the command.
    Failed(String),
    /// It was not run after all, and may be run later.
    NotRun,
}

/// State of a hook after earlier attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PriorHook {
    /// It was begun, and its outcome is unknown.
    Unknown,
    Succeeded,
    Failed(String),
}

impl StepState for PriorHook {
    const STEPS: &'static str = "hooks";
    const BEGUN: &'static str = "hookBegun";
    const ENDED: &'static str = "hookEnded";
    type Step = HookId;
    type Key = HookId;
    type End<'a> = &'a HookEnd;

    fn begun(hook: HookId) -> (HookId, Self) {
        (hook, Self::Unknown)
    }

    fn end_entry(hook: &HookId, end: &HookEnd) -> Value {
        json!({ Self::ENDED: hook, "as": end })
    }

    fn ended(entry: &Value) -> Result<(HookId, Option<Self>), serde_json::Error> {
        let hook = HookId::deserialize(&entry[Self::ENDED])?;
        let state = match HookEnd::deserialize(&entry["as"])? {
            HookEnd::Succeeded => Some(Self::Succeeded),
            HookEnd::Failed(why) => Some(Self::Failed(why)),
            HookEnd::NotRun => None,
        };
        Ok((hook, state))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

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

    /// A process of another version may read the journal of a restore that runs.
    #[tokio::test]
    async fn entries_are_those_that_other_versions_write() {
        let notes = Arc::new(MemoryJournal::default());
        let journal = HookJournal::take_over(notes.clone(), &[]).unwrap();
        journal.begin(&hook(7)).await.unwrap();
        let failed = HookEnd::Failed("exit code 1".into());
        for end in [HookEnd::Succeeded, failed, HookEnd::NotRun] {
            journal.end(&hook(7), &end).await.unwrap();
        }
        let of = json!({ "namespace": "a", "pod": "p", "uid": "u", "number": 7, "source": "hook r",
            "container": "c" });
        let expected = [
            json!({ "hookBegun": of }),
            json!({ "hookEnded": of, "as": "succeeded" }),
            json!({ "hookEnded": of, "as": { "failed": "exit code 1" } }),
            json!({ "hookEnded": of, "as": "notRun" }),
        ];
        assert_eq!(notes.all(), expected);
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
        assert_eq!(next.take_prior(&hook(0)), Some(PriorHook::Succeeded));
        assert_eq!(
            next.take_prior(&hook(1)),
            Some(PriorHook::Failed("exit code 1".into()))
        );
        assert_eq!(next.take_prior(&hook(2)), None);
        assert_eq!(next.take_prior(&hook(9)), None);
        assert_eq!(next.left(), BTreeMap::from([(hook(3), PriorHook::Unknown)]));
    }

    #[test]
    fn an_entry_that_cannot_be_decoded_is_an_error() {
        for entry in [
            json!({ "hookBegun": 1 }),
            json!({ "hookEnded": hook(1), "as": "well" }),
        ] {
            assert!(HookJournal::take_over(Arc::new(MemoryJournal::default()), &[entry]).is_err());
        }
    }
}

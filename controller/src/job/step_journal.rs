//! A journal of steps that must not be repeated unknowingly: an entry before each step and one
//! after it.
//!
//! The next attempt reads what was begun and what has ended. A step that was begun and has no end
//! has an unknown outcome.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_store::{EntryPosition, StoreError};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize as _, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::job::journal::{JournalWriter, undecodable};

/// What the entries of earlier attempts say about a step of one kind, and how they say it.
pub(crate) trait StepState: Clone {
    /// The steps, for messages.
    const STEPS: &'static str;
    /// Member of the entry before a step; its value is the step.
    const BEGUN: &'static str;
    /// Member that only the entry after a step has.
    const ENDED: &'static str;
    type Step: Serialize + DeserializeOwned;
    /// Identifies a step over all attempts.
    type Key: Ord;
    /// The outcome of a step.
    type End<'a>;

    /// The state of a step that was begun and has no end.
    fn begun(step: Self::Step) -> (Self::Key, Self);
    /// The entry after a step.
    fn end_entry(step: &Self::Step, end: Self::End<'_>) -> Value;
    /// Decodes the entry after a step. A step without a state may be begun again.
    fn ended(entry: &Value) -> Result<(Self::Key, Option<Self>), serde_json::Error>;
}

/// Decodes the states of all steps of one kind. Entries about other things are ignored.
pub(crate) fn states<S: StepState>(
    entries: &[Value],
) -> Result<BTreeMap<S::Key, S>, serde_json::Error> {
    let mut all = BTreeMap::new();
    for entry in entries {
        if let Some(begun) = entry.get(S::BEGUN) {
            let (key, state) = S::begun(S::Step::deserialize(begun)?);
            all.insert(key, state);
        }
        if entry.get(S::ENDED).is_some() {
            let (key, state) = S::ended(entry)?;
            match state {
                Some(state) => all.insert(key, state),
                None => all.remove(&key),
            };
        }
    }
    Ok(all)
}

/// The journal of the steps of one kind.
pub(crate) struct StepJournal<S: StepState> {
    writer: Arc<dyn JournalWriter>,
    /// Steps of earlier attempts, without those that were taken.
    earlier: Mutex<BTreeMap<S::Key, S>>,
}

impl<S: StepState> StepJournal<S> {
    /// Continues from these entries.
    ///
    /// # Errors
    /// An entry about these steps cannot be decoded: then it is unknown what was done.
    pub(crate) fn take_over(
        writer: Arc<dyn JournalWriter>,
        entries: &[Value],
    ) -> Result<Self, StoreError> {
        let earlier = states(entries).map_err(|error| undecodable(S::STEPS, &error))?;
        Ok(Self {
            writer,
            earlier: Mutex::new(earlier),
        })
    }

    /// The state of a step after earlier attempts; `None` if it may be begun.
    pub(crate) fn prior(&self, key: &S::Key) -> Option<S> {
        self.earlier.lock().get(key).cloned()
    }

    /// Like [`Self::prior`], but returns each state once.
    pub(crate) fn take_prior(&self, key: &S::Key) -> Option<S> {
        self.earlier.lock().remove(key)
    }

    /// The steps of earlier attempts whose states were not taken: this attempt has not reached
    /// them.
    pub(crate) fn left(&self) -> BTreeMap<S::Key, S> {
        std::mem::take(&mut *self.earlier.lock())
    }

    /// Records a step that is about to begin. Durable once the future has completed; the place of
    /// the entry is given before.
    pub(crate) fn begin(&self, step: &S::Step) -> BoxFuture<'_, Result<(), StoreError>> {
        self.begin_within(step, Duration::ZERO)
    }

    /// Like [`Self::begin`], but waits up to `patience` to share a write.
    pub(crate) fn begin_within(
        &self,
        step: &S::Step,
        patience: Duration,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let entry = json!({ S::BEGUN: step });
        self.writer.append_within(entry, patience)
    }

    /// Records the end of a step; see [`Self::begin`].
    pub(crate) fn end(
        &self,
        step: &S::Step,
        end: S::End<'_>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.end_within(step, end, Duration::ZERO)
    }

    /// Like [`Self::end`], but waits up to `patience` to share a write.
    pub(crate) fn end_within(
        &self,
        step: &S::Step,
        end: S::End<'_>,
        patience: Duration,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let entry = S::end_entry(step, end);
        self.writer.append_within(entry, patience)
    }

    /// The entry at this position, as written.
    pub(crate) async fn entry(&self, position: EntryPosition) -> Result<Value, StoreError> {
        self.writer.entry(position).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::journal::MemoryJournal;

    #[derive(Clone, Debug, PartialEq)]
    enum Meal {
        Unknown,
        Eaten(u32),
    }

    impl StepState for Meal {
        const STEPS: &'static str = "meals";
        const BEGUN: &'static str = "mealBegun";
        const ENDED: &'static str = "mealEnded";
        type Step = String;
        type Key = String;
        type End<'a> = Option<u32>;

        fn begun(name: String) -> (String, Self) {
            (name, Self::Unknown)
        }

        fn end_entry(name: &String, plates: Option<u32>) -> Value {
            json!({ Self::ENDED: name, "plates": plates })
        }

        fn ended(entry: &Value) -> Result<(String, Option<Self>), serde_json::Error> {
            let name = String::deserialize(&entry[Self::ENDED])?;
            let plates = Option::<u32>::deserialize(&entry["plates"])?;
            Ok((name, plates.map(Self::Eaten)))
        }
    }

    fn meals(journal: &MemoryJournal) -> StepJournal<Meal> {
        StepJournal::take_over(Arc::new(journal.clone()), &journal.all()).unwrap()
    }

    #[tokio::test]
    async fn the_next_attempt_knows_what_was_begun_and_how_it_has_ended() {
        let journal = MemoryJournal::default();
        let first = meals(&journal);
        let names = ["eaten", "not begun", "unknown"].map(str::to_owned);
        for name in &names {
            first.begin(name).await.unwrap();
        }
        first.end(&names[0], Some(2)).await.unwrap();
        first.end(&names[1], None).await.unwrap();
        assert!(
            first.left().is_empty(),
            "its own steps are not earlier ones"
        );
        let expected = [
            json!({ "mealBegun": "eaten" }),
            json!({ "mealBegun": "not begun" }),
            json!({ "mealBegun": "unknown" }),
            json!({ "mealEnded": "eaten", "plates": 2 }),
            json!({ "mealEnded": "not begun", "plates": null }),
        ];
        assert_eq!(journal.all(), expected);

        let next = meals(&journal);
        assert_eq!(next.prior(&names[0]), Some(Meal::Eaten(2)));
        assert_eq!(next.prior(&names[1]), None);
        assert_eq!(next.take_prior(&names[0]), Some(Meal::Eaten(2)));
        assert_eq!(next.take_prior(&names[0]), None, "it was taken");
        let left = BTreeMap::from([("unknown".to_owned(), Meal::Unknown)]);
        assert_eq!(next.left(), left);
        assert!(next.left().is_empty());
    }

    /// An entry takes its place when it is made, not when it is awaited.
    #[tokio::test]
    async fn entries_are_in_the_order_of_the_calls() {
        let journal = MemoryJournal::default();
        let meals = meals(&journal);
        let (first, second) = ("first".to_owned(), "second".to_owned());
        let end = meals.end_within(&first, Some(1), Duration::from_secs(1));
        meals.begin(&second).await.unwrap();
        end.await.unwrap();
        let expected = [
            json!({ "mealEnded": "first", "plates": 1 }),
            json!({ "mealBegun": "second" }),
        ];
        assert_eq!(journal.all(), expected);
    }

    #[test]
    fn entries_about_other_things_are_ignored_and_undecodable_ones_are_errors() {
        let other = [json!({ "hooksCompleted": "x" }), json!(1), Value::Null];
        assert!(states::<Meal>(&other).unwrap().is_empty());
        for entry in [json!({ "mealBegun": 1 }), json!({ "mealEnded": 1 })] {
            let journal = Arc::new(MemoryJournal::default());
            let error = StepJournal::<Meal>::take_over(journal, &[entry])
                .err()
                .unwrap();
            assert_says!(error, "an entry about meals");
        }
    }
}

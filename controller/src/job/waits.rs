//! What work waits for, so that users see it: each wait is registered while it lasts, and one that
//! lasts longer than [`SHOWN_AFTER`] is shown on the object and logged.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use backup_actions::ItemId;
use backup_core::{text::shortened, time::whole_seconds};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A wait that has lasted this long is shown.
pub(crate) const SHOWN_AFTER: Duration = Duration::from_secs(10);
/// Maximum length of the text of a shown wait (characters).
const MAX_TEXT: usize = 600;

/// The waits of one job. Cheap to clone; all clones belong to the same job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    /// In order of their start.
    waits: BTreeMap<u64, Wait>,
}

#[derive(Debug)]
struct Wait {
    since: Instant,
    began: Timestamp,
    subject: String,
    reason: Option<String>,
}

/// The longest wait of a job, for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownWait {
    id: u64,
    text: String,
    others: usize,
}

impl Waits {
    /// Registers a wait until the guard is dropped. `subject` completes the sentence "it has waited
    /// for ...".
    pub(crate) fn begin(&self, subject: impl Into<String>) -> WaitGuard {
        let mut inner = self.0.lock();
        let id = inner.next;
        inner.next += 1;
        inner.waits.insert(
            id,
            Wait {
                since: Instant::now(),
                began: whole_seconds(Timestamp::now()),
                subject: subject.into(),
                reason: None,
            },
        );
        WaitGuard {
            waits: self.clone(),
            id,
        }
    }

    /// Registers a wait for an action that works on an item.
    pub(crate) fn begin_action(&self, action: &str, item: &ItemId) -> WaitGuard {
        self.begin(format!("action {action} on {item}"))
    }

    /// Registers a wait while `future` lasts.
    pub(crate) async fn during<T>(
        &self,
        subject: impl Into<String>,
        future: impl Future<Output = T>,
    ) -> T {
        let _wait = self.begin(subject);
        future.await
    }

    /// The longest wait, if it has lasted for [`SHOWN_AFTER`].
    pub(crate) fn shown(&self) -> Option<ShownWait> {
        let inner = self.0.lock();
        let mut shown = inner
            .waits
            .iter()
            .filter(|(_, wait)| wait.since.elapsed() >= SHOWN_AFTER);
        let (
            id,
            Wait {
                began,
                subject,
                reason,
                ..
            },
        ) = shown.next()?;
        let reason = reason
            .as_ref()
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        let text = shortened(
            &format!("it has waited since {began} for {subject}{reason}"),
            MAX_TEXT,
        );
        Some(ShownWait {
            id: *id,
            text,
            others: shown.count(),
        })
    }
}

impl ShownWait {
    /// One sentence without a full stop.
    pub(crate) fn sentence(&self) -> String {
        let Self { text, others, .. } = self;
        match others {
            0 => text.clone(),
            1 => format!("{text} (and 1 more wait)"),
            others => format!("{text} (and {others} more waits)"),
        }
    }

    /// Whether both are the same wait; its reason may have changed.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// Decides which changes of the shown wait are logged.
#[derive(Debug, Default)]
pub(crate) struct WaitLog(Option<ShownWait>);

impl WaitLog {
    /// A line for the log if another wait is shown than before, or none any longer.
    pub(crate) fn line(&mut self, now: Option<&ShownWait>) -> Option<String> {
        let before = std::mem::replace(&mut self.0, now.cloned());
        match (before, now) {
            (Some(before), Some(now)) if before.is_same(now) => None,
            (_, Some(now)) => Some(now.sentence()),
            (Some(_), None) => Some("the wait is over".to_owned()),
            (None, None) => None,
        }
    }
}

/// Ends a wait when it is dropped.
#[derive(Debug)]
pub(crate) struct WaitGuard {
    waits: Waits,
    id: u64,
}

impl WaitGuard {
    /// Why the wait has not ended yet.
    pub(crate) fn because(&self, reason: impl Into<String>) {
        if let Some(wait) = self.waits.0.lock().waits.get_mut(&self.id) {
            wait.reason = Some(reason.into());
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.waits.0.lock().waits.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_is_shown_after_ten_seconds_until_it_ends() {
        let waits = Waits::default();
        let first = waits.begin("namespace \"a\" to be gone");
        tokio::time::advance(SHOWN_AFTER / 2).await;
        let second = waits.begin("an answer");
        assert_eq!(waits.shown(), None, "it is too short");
        tokio::time::advance(SHOWN_AFTER / 2).await;
        let (shown, mut log) = (waits.shown().unwrap(), WaitLog::default());
        assert_eq!(log.line(Some(&shown)), Some(shown.sentence()));
        assert!(
            shown.sentence().starts_with("it has waited since 2"),
            "{shown:?}"
        );
        assert!(
            shown
                .sentence()
                .ends_with("Z for namespace \"a\" to be gone"),
            "{shown:?}"
        );
        first.because("a pod has a finalizer");
        tokio::time::advance(SHOWN_AFTER / 2).await;
        let known = waits.shown().unwrap();
        let text = "to be gone: a pod has a finalizer (and 1 more wait)";
        assert!(known.sentence().ends_with(text), "{known:?}");
        assert_eq!(log.line(Some(&known)), None, "once for each wait");
        drop(first);
        let other = waits.shown().unwrap();
        assert!(other.sentence().ends_with("for an answer"), "{other:?}");
        assert_eq!(log.line(Some(&other)), Some(other.sentence()));
        drop(second);
        assert_eq!(waits.shown(), None);
        assert_eq!(log.line(None).as_deref(), Some("the wait is over"));
        assert_eq!(log.line(None), None);
    }
}

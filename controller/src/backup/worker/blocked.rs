//! Waiting for what is in the way, and telling people.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use backup_core::api::{Backup, BackupPhase};
use backup_runtime::retry;
use tokio::time::Instant;

use super::{Trouble, Worker};
use crate::{
    backup::{decide, observe, patches},
    location::{LocationError, is_read_only},
};

/// While the cause may pass: soon after it has passed, the outcome is published.
const SOON: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// When somebody has to do something first.
const LATER: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(1));
/// Between two notes about the same trouble in other words.
const TELL_AGAIN: Duration = Duration::from_mins(1);
/// How long a note is tried; it is best effort.
const TELL_BUDGET: Duration = Duration::from_secs(5);

/// How long a worker has waited, and waits next.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    since: Option<Instant>,
    steps: Option<(bool, ExponentialBackoff)>,
    /// When people were told last, and which words stand where they look.
    told: Option<(Instant, Option<String>)>,
}

impl Waiting {
    /// Nothing is in the way any more.
    pub fn over(&mut self) {
        *self = Self { told: self.told.take().map(|(at, _)| (at, None)), ..Self::default() };
    }

    /// Time since the trouble began.
    pub fn since(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    /// Before a look at what has changed.
    pub fn briefly(&mut self) -> Duration {
        self.next(true).min(SOON.0)
    }

    /// The next delay: doubling up to the cap, with jitter.
    pub fn next(&mut self, passing: bool) -> Duration {
        self.since(Instant::now());
        if self.steps.as_ref().is_none_or(|(of, _)| *of != passing) {
            let (first, cap) = if passing { SOON } else { LATER };
            let builder = ExponentialBuilder::default()
                .with_min_delay(first)
                .with_max_delay(cap)
                .without_max_times()
                .with_jitter();
            self.steps = Some((passing, builder.build()));
        }
        let next = self.steps.as_mut().and_then(|(_, steps)| steps.next());
        next.unwrap_or(LATER.1).min(LATER.1)
    }

    /// Whether people should be told: not what they read already, and not more often than once a minute.
    fn should_tell(&self, reason: &str, now: Instant) -> bool {
        !self.told.as_ref().is_some_and(|(at, words)| {
            words.as_deref() == Some(reason) || now.saturating_duration_since(*at) < TELL_AGAIN
        })
    }
}

impl Worker {
    /// Tells what is in the way (annotation, event, log) and says how long to wait.
    pub(super) async fn block(&mut self, reason: &str, passing: bool) -> Duration {
        let now = Instant::now();
        if self.waiting.should_tell(reason, now) {
            tracing::warn!(backup = self.name, reason, passing, "backup is blocked");
            let written = self.tell(reason).await;
            self.waiting.told = Some((now, written.then(|| reason.to_owned())));
        } else {
            tracing::debug!(backup = self.name, reason, passing, "backup is still blocked");
        }
        self.waiting.next(passing)
    }

    /// Event and annotation. Best effort; whether people can read it now.
    async fn tell(&self, reason: &str) -> bool {
        let Ok(Some(backup)) = observe::backup(&self.ctx, &self.name).await else { return false };
        if backup.metadata.uid.as_deref() != Some(&self.uid) {
            return false;
        }
        self.ctx.cluster.events.warning(&backup, "Blocked", reason);
        let api = self.ctx.cluster.api();
        // Carries the resourceVersion.
        let patch = |now: &Backup| patches::blocked(now, reason);
        let written =
            retry::status_patch_in(&api, &self.ctx.cluster.leadership, TELL_BUDGET, &backup, patch).await;
        written
            .inspect_err(
                |error| tracing::debug!(backup = self.name, %error, "the reason could not be written"),
            )
            .is_ok()
    }

    /// Whether anything may be written to the location of a Backup, as it is now: a person may have made it read-only, or
    /// deleted it, since it was opened. What can't be read now says nothing about it.
    pub(super) async fn may_write(&self, backup: &Backup) -> Result<(), Trouble> {
        let name = backup.spec.storage_location.as_deref().unwrap_or_default();
        let reason = match self.ctx.locations.get(name).await {
            Ok(location) if is_read_only(&location) => format!(
                "BackupStorageLocation {name} is read-only, so nothing is written there: this backup goes on once its \
                 spec.accessMode is ReadWrite"
            ),
            Err(error @ LocationError::NotFound { .. }) => {
                format!("{error}; this backup goes on once {name} is there again")
            }
            _ => return Ok(()),
        };
        Err(Trouble::Blocked { reason, passing: false })
    }

    /// Frees the slot of a backup that has begun and must wait: from InProgress to Finalizing. Collecting again is
    /// possible from there.
    pub(super) async fn leave_slot(&self, backup: &Backup) -> Result<(), Trouble> {
        if backup.phase() == BackupPhase::InProgress {
            let next = decide::finalizing(0);
            self.publish(backup, |now| patches::finalizing(now, &next, None)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_grow_to_a_cap_of_seconds_and_slowly_to_a_minute_when_it_is_final() {
        for (passing, cap) in [(true, SOON.1), (false, LATER.1)] {
            let mut waiting = Waiting::default();
            let delays: Vec<Duration> = (0..20).map(|_| waiting.next(passing)).collect();
            // Jitter adds at most the smallest delay.
            assert!(delays.iter().all(|delay| *delay <= cap * 2), "{delays:?}");
            assert!(delays[10] >= cap.min(LATER.1), "{delays:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_reason_is_told_once_and_other_words_a_minute_later() {
        let (mut waiting, now) = (Waiting::default(), Instant::now());
        assert!(waiting.should_tell("down", now));
        waiting.told = Some((now, Some("down".to_owned())));
        assert!(!waiting.should_tell("down", now + TELL_AGAIN * 5));
        assert!(!waiting.should_tell("denied", now + TELL_AGAIN / 2));
        assert!(waiting.should_tell("denied", now + TELL_AGAIN));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_can_read_is_told_again() {
        let now = Instant::now();
        let mut not_written = Waiting { told: Some((now, None)), ..Waiting::default() };
        assert!(not_written.should_tell("down", now + TELL_AGAIN));
        // Progress takes the annotation off.
        not_written.told = Some((now, Some("down".to_owned())));
        not_written.over();
        assert!(!not_written.should_tell("down", now + TELL_AGAIN / 2), "trouble that comes and goes");
        assert!(not_written.should_tell("down", now + TELL_AGAIN));
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_first_trouble_until_it_is_over() {
        let mut waiting = Waiting::default();
        waiting.next(true);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(waiting.since(Instant::now()), Duration::from_secs(7));
        waiting.over();
        assert_eq!(waiting.since(Instant::now()), Duration::ZERO);
    }
}

//! Waiting of a blocked object, with the reason on the object.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use backup_core::{event_reason::EventReason, labels::BLOCKED_ANNOTATION};
use backup_runtime::retry;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Worker;
use crate::job::{kind::JobKind, object::JobObject};

/// First and longest delay while the cause may pass: the end is published soon after that.
const PASSING_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// First and longest delay if a user has to act first.
const FINAL_DELAYS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(1));
/// Minimum time between two reports of the same trouble in different words.
const MIN_REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// Time limit for a report; it is best effort.
const REPORT_BUDGET: Duration = Duration::from_secs(5);

/// How long a worker has waited, and its next delays.
#[derive(Debug, Default)]
pub(in crate::job) struct BlockState {
    since: Option<Instant>,
    steps: Option<(bool, ExponentialBackoff)>,
    /// Time of the last report, and the reason that is on the object.
    reported: Option<(Instant, Option<String>)>,
}

impl BlockState {
    pub(crate) fn over(&mut self) {
        *self = Self {
            reported: self.reported.take().map(|(at, _)| (at, None)),
            ..Self::default()
        };
    }

    /// Time since the trouble began.
    pub(crate) fn since(&mut self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.since.get_or_insert(now))
    }

    /// The time until now no longer counts as trouble.
    pub(crate) fn count_anew(&mut self) {
        self.since = None;
    }

    /// Delay before a look at what has changed.
    pub(crate) fn briefly(&mut self) -> Duration {
        self.next(true).min(PASSING_DELAYS.0)
    }

    /// The next delay: doubling up to the cap, with jitter.
    pub(crate) fn next(&mut self, retryable: bool) -> Duration {
        self.since(Instant::now());
        if self.steps.as_ref().is_none_or(|(of, _)| *of != retryable) {
            let (first, cap) = if retryable {
                PASSING_DELAYS
            } else {
                FINAL_DELAYS
            };
            let builder = ExponentialBuilder::default()
                .with_min_delay(first)
                .with_max_delay(cap)
                .without_max_times()
                .with_jitter();
            self.steps = Some((retryable, builder.build()));
        }
        let next = self.steps.as_mut().and_then(|(_, steps)| steps.next());
        next.unwrap_or(FINAL_DELAYS.1).min(FINAL_DELAYS.1)
    }

    /// Whether to report the reason: not if users see it already, and at most once a minute.
    fn should_report(&self, reason: &str, now: Instant) -> bool {
        !self.reported.as_ref().is_some_and(|(at, words)| {
            words.as_deref() == Some(reason)
                || now.saturating_duration_since(*at) < MIN_REPORT_INTERVAL
        })
    }
}

impl<L: JobKind> Worker<L> {
    /// Reports why the object is blocked (annotation, event, log) and returns how long to wait.
    pub(crate) async fn report_blocked(&mut self, reason: &str, retryable: bool) -> Duration {
        let now = Instant::now();
        let noun = L::KIND.noun();
        if self.blocked.should_report(reason, now) {
            tracing::warn!(name = self.name, reason, retryable, "a {noun} is blocked");
            let written = self.write_reason(reason).await;
            self.blocked.reported = Some((now, written.then(|| reason.to_owned())));
        } else {
            tracing::debug!(
                name = self.name,
                reason,
                retryable,
                "a {noun} is still blocked"
            );
        }
        self.blocked.next(retryable)
    }

    pub(crate) fn unblocked(&mut self) {
        self.blocked.over();
    }

    /// Writes event and annotation. Best effort; returns whether users can read the reason now.
    async fn write_reason(&self, reason: &str) -> bool {
        let Ok(Some(object)) = self.read().await else {
            return false;
        };
        self.ctx
            .cluster
            .events
            .warning(&object, EventReason::Blocked, reason);
        let api = self.ctx.cluster.api::<L::Object>();
        let leadership = &self.ctx.cluster.leadership;
        // Carries the resourceVersion.
        let written = retry::status_patch_in(
            &api,
            leadership,
            REPORT_BUDGET,
            &object,
            |now: &L::Object| blocked_patch(now, reason),
        )
        .await;
        written
            .inspect_err(|error| tracing::debug!(name = self.name, %error, "the reason could not be written"))
            .is_ok()
    }
}

/// Writes to the annotation why an object is not done yet; `None` if it is there already or the
/// object has ended.
fn blocked_patch<O: JobObject>(object: &O, reason: &str) -> Option<Value> {
    let annotations = object.meta().annotations.as_ref();
    let known = annotations
        .and_then(|annotations| annotations.get(BLOCKED_ANNOTATION))
        .map(String::as_str);
    (!object.stage().is_terminal() && known != Some(reason))
        .then(|| json!({ "metadata": { "annotations": { BLOCKED_ANNOTATION: reason } } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn delays_grow_to_a_cap_of_seconds_and_slowly_to_a_minute_when_it_is_final() {
        for (retryable, cap) in [(true, PASSING_DELAYS.1), (false, FINAL_DELAYS.1)] {
            let mut waiting = BlockState::default();
            let delays: Vec<Duration> = (0..20).map(|_| waiting.next(retryable)).collect();
            // Jitter adds at most the smallest delay.
            assert!(delays.iter().all(|delay| *delay <= cap * 2), "{delays:?}");
            assert!(delays[10] >= cap.min(FINAL_DELAYS.1), "{delays:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_reason_is_reported_once_and_other_words_a_minute_later() {
        let (mut waiting, now) = (BlockState::default(), Instant::now());
        assert!(waiting.should_report("down", now));
        waiting.reported = Some((now, Some("down".to_owned())));
        assert!(!waiting.should_report("down", now + MIN_REPORT_INTERVAL * 5));
        assert!(!waiting.should_report("denied", now + MIN_REPORT_INTERVAL / 2));
        assert!(waiting.should_report("denied", now + MIN_REPORT_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reason_that_was_not_written_is_reported_again() {
        let now = Instant::now();
        let mut not_written = BlockState {
            reported: Some((now, None)),
            ..BlockState::default()
        };
        assert!(not_written.should_report("down", now + MIN_REPORT_INTERVAL));
        // Progress removes the annotation.
        not_written.reported = Some((now, Some("down".to_owned())));
        not_written.over();
        assert!(
            !not_written.should_report("down", now + MIN_REPORT_INTERVAL / 2),
            "trouble that comes and goes"
        );
        assert!(not_written.should_report("down", now + MIN_REPORT_INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_from_the_first_trouble_until_it_is_over() {
        let mut waiting = BlockState::default();
        waiting.next(true);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(waiting.since(Instant::now()), Duration::from_secs(7));
        waiting.count_anew();
        assert_eq!(waiting.since(Instant::now()), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(7)).await;
        waiting.over();
        assert_eq!(waiting.since(Instant::now()), Duration::ZERO);
    }

    #[test]
    fn a_reason_that_stands_on_the_object_is_not_written_again() {
        use backup_core::api::{Backup, BackupPhase};
        let mut backup = Backup::default();
        backup.status.phase = Some(BackupPhase::Finalizing);
        let patch = blocked_patch(&backup, "the store is down").unwrap();
        assert_eq!(
            patch["metadata"]["annotations"][BLOCKED_ANNOTATION],
            "the store is down"
        );
        backup.metadata.annotations = Some(
            [(
                BLOCKED_ANNOTATION.to_owned(),
                "the store is down".to_owned(),
            )]
            .into(),
        );
        assert_eq!(blocked_patch(&backup, "the store is down"), None);
        assert!(blocked_patch(&backup, "denied").is_some());
        backup.status.phase = Some(BackupPhase::Completed);
        assert_eq!(blocked_patch(&backup, "denied"), None);
    }
}

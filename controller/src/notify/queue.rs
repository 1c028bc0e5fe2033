//! Notifications that wait for their delivery: a bounded number, each once.

use std::collections::{HashMap, VecDeque};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::decide::{MAX_AGE, Notification};

#[derive(Debug)]
pub(super) struct Queue {
    /// Maximum number of waiting notifications.
    max: usize,
    state: Mutex<State>,
    added: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Notification>,
    /// Ids of the notifications that were added, with the time of the event; also of those that were
    /// delivered or given up, so that a change of their object does not add them again.
    known: HashMap<String, Timestamp>,
}

impl Queue {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max: max.max(1),
            state: Mutex::default(),
            added: Notify::new(),
        }
    }

    /// Adds a notification unless it was added before. If too many wait, the oldest is dropped and
    /// returned; it can be added again.
    pub(super) fn add(&self, notification: Notification, now: Timestamp) -> Option<Notification> {
        let mut state = self.state.lock();
        // Older events are not reported.
        state
            .known
            .retain(|_, at| now.duration_since(*at) <= MAX_AGE);
        let id = notification.id();
        if state.known.insert(id, notification.at).is_some() {
            return None;
        }
        state.waiting.push_back(notification);
        let dropped = if state.waiting.len() > self.max {
            state.waiting.pop_front()
        } else {
            None
        };
        if let Some(dropped) = &dropped {
            state.known.remove(&dropped.id());
        }
        self.added.notify_one();
        dropped
    }

    /// Takes the oldest notification; waits until there is one. One task at a time may wait.
    pub(super) async fn take(&self) -> Notification {
        loop {
            let next = self.state.lock().waiting.pop_front();
            if let Some(next) = next {
                return next;
            }
            self.added.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::Backup;
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::notify::decide::due;

    fn now() -> Timestamp {
        "2026-11-03T05:00:00Z".parse().unwrap()
    }

    fn notification(uid: &str, ended: &str) -> Notification {
        let object = json!({ "metadata": { "name": uid, "uid": uid }, "spec": {},
            "status": { "phase": "Failed", "completionTimestamp": ended } });
        let backup: Backup = serde_json::from_value(object).unwrap();
        due(&backup, now()).remove(0)
    }

    fn next(queue: &Queue) -> Option<String> {
        let taken = queue.take().now_or_never();
        taken.map(|notification| notification.data.uid)
    }

    #[test]
    fn each_notification_is_taken_once_in_the_order_of_adding() {
        let queue = Queue::new(10);
        let at = "2026-11-03T04:00:00Z";
        for uid in ["a", "b", "a"] {
            assert_eq!(queue.add(notification(uid, at), now()), None);
        }
        assert_eq!(next(&queue).as_deref(), Some("a"));
        // Its object has changed meanwhile.
        assert_eq!(queue.add(notification("a", at), now()), None);
        assert_eq!(next(&queue).as_deref(), Some("b"));
        assert_eq!(next(&queue), None);
        // Another event of the same object.
        let later = notification("a", "2026-11-03T04:30:00Z");
        assert_eq!(queue.add(later, now()), None);
        assert_eq!(next(&queue).as_deref(), Some("a"));
        let state = queue.state.lock();
        assert_eq!((state.waiting.len(), state.known.len()), (0, 3));
    }

    #[test]
    fn the_oldest_is_dropped_and_what_is_known_does_not_grow_without_bound() {
        let queue = Queue::new(2);
        let at = "2026-11-03T04:00:00Z";
        let mut dropped = Vec::new();
        for uid in ["a", "b", "c", "d"] {
            dropped.extend(queue.add(notification(uid, at), now()));
        }
        let names: Vec<&str> = dropped.iter().map(|one| one.data.uid.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(next(&queue).as_deref(), Some("c"));
        // A dropped one is found again.
        assert_eq!(queue.add(notification("a", at), now()), None);
        assert_eq!(next(&queue).as_deref(), Some("d"));
        assert_eq!(next(&queue).as_deref(), Some("a"));
        let tomorrow = "2026-11-04T05:00:00Z".parse().unwrap();
        let other = notification("e", "2026-11-03T04:59:00Z");
        queue.add(other, tomorrow);
        assert_eq!(queue.state.lock().known.len(), 1);
    }
}

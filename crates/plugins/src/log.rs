//! The output of plugins: while they work for a backup, it goes into the backup's log, else into
//! our own.
//!
//! One process works for many backups, and its lines do not name one: a line belongs to every
//! backup with a call in progress, and between calls to the backup that had the last one.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::log_line::{Level, LogLine};

const MAX_WAITING_LINES: usize = 1_000;
/// Maximum number of lines that all plugins together may write into one backup's log.
const MAX_LINES: usize = 10_000;
/// Maximum number of lines that go into our own log within [`OWN_LOG_PERIOD`].
const MAX_OWN_LOG_LINES: u64 = 100;
const OWN_LOG_PERIOD: Duration = Duration::from_secs(10);
/// Time to wait for a plugin's last lines after its last answer.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(50);

/// Lines for one backup. Clones share the log.
#[derive(Clone, Debug, Default)]
pub struct PluginLog(Arc<SharedLog>);

#[derive(Debug, Default)]
struct SharedLog {
    kept: Mutex<LogBuffer>,
    came: Notify,
}

#[derive(Debug, Default)]
struct LogBuffer {
    lines: VecDeque<LogLine>,
    all: usize,
    /// Number of lines dropped since lines were last taken.
    dropped: u64,
}

impl PluginLog {
    fn add(&self, said: LogLine) {
        let mut kept = lock(&self.0.kept);
        if kept.lines.len() >= MAX_WAITING_LINES || kept.all >= MAX_LINES {
            kept.dropped += 1;
            return;
        }
        kept.all += 1;
        kept.lines.push_back(said);
        self.0.came.notify_one();
    }

    /// Waits for the end of some work, and passes on plugins' lines meanwhile: users who read the
    /// log during a slow item see them at their time.
    pub async fn told_during<T>(
        &self,
        work: impl Future<Output = T>,
        mut tell: impl FnMut(Vec<LogLine>),
    ) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => {
                    tell(self.take());
                    return done;
                }
                () = self.0.came.notified() => tell(self.take()),
            }
        }
    }

    /// Waits briefly for the last lines, if a plugin was executed: they do not come with its
    /// answers.
    pub async fn settle(&self, tell: impl FnMut(Vec<LogLine>)) {
        let was_executed = Arc::weak_count(&self.0) > 0;
        let patience = if was_executed {
            LAST_LINES_TIMEOUT
        } else {
            Duration::ZERO
        };
        self.told_during(tokio::time::sleep(patience), tell).await;
    }

    /// Takes the lines that have come since the last call.
    fn take(&self) -> Vec<LogLine> {
        let mut kept = lock(&self.0.kept);
        let mut lines: Vec<_> = kept.lines.drain(..).collect();
        let dropped = std::mem::take(&mut kept.dropped);
        if dropped > 0 {
            let text = format!(
                "plugins have written {dropped} lines more than are kept; they are left out"
            );
            lines.push(LogLine {
                level: Level::Warning,
                text,
            });
        }
        lines
    }
}

/// The backups that a process works for. Output for none of them goes into our own log.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    all: Mutex<Vec<Listener>>,
    limit: LogRateLimit,
}

#[derive(Debug)]
struct Listener {
    log: Weak<SharedLog>,
    calls: usize,
}

impl Listeners {
    /// Registers a call, which lasts until the returned guard is dropped.
    pub(crate) fn begin(&self, log: &PluginLog) -> Listening<'_> {
        let mut all = lock(&self.all);
        let of = Arc::downgrade(&log.0);
        all.retain(|one| one.calls > 0 || one.log.ptr_eq(&of));
        match all.iter_mut().find(|one| one.log.ptr_eq(&of)) {
            Some(one) => one.calls += 1,
            None => all.push(Listener {
                log: Weak::clone(&of),
                calls: 1,
            }),
        }
        Listening {
            listeners: self,
            log: of,
        }
    }

    /// Passes on a line written by the plugin, or the binary, of this name.
    pub(crate) fn hear(&self, of: &str, said: &LogLine) {
        if said.level == Level::Debug {
            return;
        }
        let said = LogLine {
            text: format!("plugin {of}: {}", said.text),
            level: said.level,
        };
        if !self.tell(&said) {
            self.limit.log(&said);
        }
    }

    /// Passes a line to all listeners; returns whether there was one.
    fn tell(&self, said: &LogLine) -> bool {
        let logs: Vec<_> = lock(&self.all)
            .iter()
            .filter_map(|one| one.log.upgrade())
            .map(PluginLog)
            .collect();
        for log in &logs {
            log.add(said.clone());
        }
        !logs.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Listening<'a> {
    listeners: &'a Listeners,
    log: Weak<SharedLog>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let mut all = lock(&self.listeners.all);
        if let Some(one) = all.iter_mut().find(|one| one.log.ptr_eq(&self.log)) {
            one.calls = one.calls.saturating_sub(1);
        }
        if all.len() > 1 {
            all.retain(|one| one.calls > 0 || !one.log.ptr_eq(&self.log));
        }
    }
}

/// Limits the number of lines in our own log; further lines are dropped.
#[derive(Debug, Default)]
struct LogRateLimit(Mutex<Option<(Instant, u64)>>);

impl LogRateLimit {
    /// Writes a line into our own log, if the limit allows it.
    fn log(&self, said: &LogLine) {
        if said.level == Level::Debug || !self.take() {
            return;
        }
        let text = &said.text;
        match said.level {
            Level::Debug => {}
            Level::Info => tracing::info!("{text}"),
            Level::Warning => tracing::warn!("{text}"),
            Level::Error => tracing::error!("{text}"),
        }
    }

    fn take(&self) -> bool {
        let mut taken = lock(&self.0);
        let (since, count) = taken.take().unwrap_or_else(|| (Instant::now(), 0));
        let (since, count) = if since.elapsed() < OWN_LOG_PERIOD {
            (since, count)
        } else {
            (Instant::now(), 0)
        };
        *taken = Some((since, count + 1));
        count < MAX_OWN_LOG_LINES
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> LogLine {
        LogLine {
            level: Level::Info,
            text: text.to_owned(),
        }
    }

    fn texts(log: &PluginLog) -> Vec<String> {
        log.take().into_iter().map(|said| said.text).collect()
    }

    #[test]
    fn a_line_is_of_whoever_calls_and_then_of_whoever_called_last() {
        let (listeners, one, two) = (
            Listeners::default(),
            PluginLog::default(),
            PluginLog::default(),
        );
        assert!(!listeners.tell(&said("nobody")));
        let first = listeners.begin(&one);
        listeners.tell(&said("a"));
        let second = listeners.begin(&two);
        listeners.tell(&said("b"));
        drop(first);
        listeners.tell(&said("c"));
        drop(second);
        listeners.tell(&said("d"));
        assert_eq!(texts(&one), ["a", "b"]);
        assert_eq!(texts(&two), ["b", "c", "d"]);
        drop(listeners.begin(&one));
        listeners.tell(&said("e"));
        assert_eq!((texts(&one), texts(&two)), (vec!["e".to_owned()], vec![]));
        drop(one);
        assert!(!listeners.tell(&said("f")), "its backup is over");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_is_told_while_the_work_goes_on_and_at_its_end() {
        let (log, begun, mut told) = (
            PluginLog::default(),
            tokio::time::Instant::now(),
            Vec::new(),
        );
        let work = async {
            for text in ["at work", "and ready"] {
                tokio::time::sleep(Duration::from_secs(5)).await;
                log.add(said(text));
            }
        };
        let tell = |lines: Vec<LogLine>| {
            told.extend(
                lines
                    .into_iter()
                    .map(|said| (begun.elapsed().as_secs(), said.text)),
            );
        };
        log.told_during(work, tell).await;
        assert_eq!(
            told,
            [(5, "at work".to_owned()), (10, "and ready".to_owned())]
        );
    }

    #[test]
    fn a_flood_is_cut_and_said() {
        let log = PluginLog::default();
        for _ in 0..MAX_WAITING_LINES + 5 {
            log.add(said("x"));
        }
        let lines = log.take();
        assert_eq!(lines.len(), MAX_WAITING_LINES + 1);
        assert_eq!(lines[MAX_WAITING_LINES].level, Level::Warning);
        assert_says!(lines[MAX_WAITING_LINES].text, " 5 lines");
        for _ in 0..2 * MAX_LINES {
            log.add(said("x"));
            if lock(&log.0.kept).lines.len() == MAX_WAITING_LINES {
                log.take();
            }
        }
        assert_eq!(lock(&log.0.kept).all, MAX_LINES);
    }
}

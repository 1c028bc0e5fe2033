//! A watch of Backups: it reports each change at once, while polling would add pauses.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase};
use backup_tests::install::NAMESPACE;
use futures::{FutureExt as _, Stream, TryStreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};

/// Timeout for all that is waited for.
pub const TIMEOUT: Duration = Duration::from_mins(20);

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<Backup>>> + Send>>;

/// The last known states of Backups.
pub struct BackupWatch {
    events: Events,
    backups: BTreeMap<String, WatchedBackup>,
    writes: u32,
}

struct WatchedBackup {
    backup: Backup,
    ended: Option<Instant>,
    writes_while_it_waits: u32,
}

impl BackupWatch {
    pub async fn start(client: &Client) -> anyhow::Result<Self> {
        let api: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
        let events = Box::pin(watcher(api, watcher::Config::default()));
        let mut watch = Self {
            events,
            backups: BTreeMap::new(),
            writes: 0,
        };
        while !matches!(watch.next().await?, Event::InitDone) {}
        Ok(watch)
    }

    /// Waits until a backup has completed. Returns the time of completion.
    pub async fn completes(&mut self, name: &str) -> anyhow::Result<Instant> {
        let times = self.completed(&[name.to_owned()]).await?;
        times.first().copied().context("no backup")
    }

    /// Waits until all of these have completed. Returns the times of completion, earliest first.
    /// Fails if one ended otherwise, or after a timeout.
    pub async fn completed(&mut self, names: &[String]) -> anyhow::Result<Vec<Instant>> {
        let wanted: BTreeSet<&String> = names.iter().collect();
        self.until(names.len(), |backup| {
            backup.phase().is_terminal() && wanted.contains(&backup.name_any())
        })
        .await?;
        let times = names.iter().map(|name| self.backups.get(name)?.ended);
        let mut times: Vec<Instant> = times.collect::<Option<_>>().context("one has not ended")?;
        times.sort_unstable();
        Ok(times)
    }

    /// Waits until `backups` backups wait for `operations` operations each.
    pub async fn until_all_wait(&mut self, backups: u16, operations: u16) -> anyhow::Result<()> {
        self.until(backups.into(), |backup| {
            backup.phase() == BackupPhase::WaitingForPluginOperations
                && backup.status.backup_item_operations_attempted == i64::from(operations)
        })
        .await
    }

    /// Waits until `backups` backups have completed. Returns the highest number of writes of one
    /// backup while it waited.
    pub async fn until_all_ended(&mut self, backups: u16) -> anyhow::Result<u32> {
        self.writes()?;
        self.backups
            .values_mut()
            .for_each(|one| one.writes_while_it_waits = 0);
        self.until(backups.into(), |backup| backup.phase().is_terminal())
            .await?;
        Ok(self
            .backups
            .values()
            .map(|one| one.writes_while_it_waits)
            .max()
            .unwrap_or_default())
    }

    /// Number of writes of Backups so far.
    pub fn writes(&mut self) -> anyhow::Result<u32> {
        while let Some(event) = self.next().now_or_never() {
            event?;
        }
        Ok(self.writes)
    }

    /// Waits until the condition is true of `count` backups. Fails if one has ended and is not
    /// Completed.
    async fn until(&mut self, count: usize, is_so: impl Fn(&Backup) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        let mut told = 0;
        loop {
            let now = self
                .backups
                .values()
                .filter(|one| is_so(&one.backup))
                .count();
            for WatchedBackup { backup, .. } in self.backups.values() {
                let phase = backup.phase();
                let good = phase == BackupPhase::Completed || !phase.is_terminal();
                ensure!(good, "backup {} ended {phase}", backup.name_any());
            }
            if now >= count {
                return Ok(());
            }
            if now >= told + 10 {
                told = now;
                eprintln!("{now} of {count} backups");
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let event = tokio::time::timeout(left, self.next()).await;
            event
                .with_context(|| format!("only {now} of {count} backups within {TIMEOUT:?}"))??;
        }
    }

    async fn next(&mut self) -> anyhow::Result<Event<Backup>> {
        let event = self
            .events
            .try_next()
            .await?
            .context("the watch has ended")?;
        if let Event::Apply(backup) | Event::InitApply(backup) = &event {
            self.writes += 1;
            let one = self
                .backups
                .entry(backup.name_any())
                .or_insert_with(|| WatchedBackup {
                    backup: backup.clone(),
                    ended: None,
                    writes_while_it_waits: 0,
                });
            one.writes_while_it_waits +=
                u32::from(backup.phase() == BackupPhase::WaitingForPluginOperations);
            if backup.phase().is_terminal() {
                one.ended.get_or_insert_with(Instant::now);
            }
            one.backup = backup.clone();
        }
        Ok(event)
    }
}

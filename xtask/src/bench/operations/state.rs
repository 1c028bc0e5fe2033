//! What becomes of the Backups, and how often they are written meanwhile.

use std::{
    collections::BTreeMap,
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use backup_core::api::{Backup, BackupPhase};
use backup_tests::install::NAMESPACE;
use futures::{FutureExt as _, Stream, TryStreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<Backup>>> + Send>>;

/// Backups as they were last seen.
pub struct Seen {
    events: Events,
    backups: BTreeMap<String, (Backup, u32)>,
    writes: u32,
}

impl Seen {
    /// Watches from now on.
    pub async fn watch(client: &Client) -> anyhow::Result<Self> {
        let api: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
        let events = Box::pin(watcher(api, watcher::Config::default()));
        let mut seen = Self { events, backups: BTreeMap::new(), writes: 0 };
        while !matches!(seen.next().await?, Event::InitDone) {}
        Ok(seen)
    }

    /// Waits until so many backups wait for so many operations each.
    pub async fn until_all_wait(
        &mut self,
        backups: u16,
        operations: u16,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let waits = |backup: &Backup| {
            backup.phase() == BackupPhase::WaitingForPluginOperations
                && backup.status.backup_item_operations_attempted == i64::from(operations)
        };
        self.until(backups, patience, waits).await
    }

    /// Waits until so many backups have completed. How often the one that was written most was written while it waited.
    pub async fn until_all_ended(&mut self, backups: u16, patience: Duration) -> anyhow::Result<u32> {
        self.writes()?;
        self.backups.values_mut().for_each(|(_, writes)| *writes = 0);
        self.until(backups, patience, |backup| backup.phase().is_terminal()).await?;
        for (backup, _) in self.backups.values() {
            ensure!(
                backup.phase() == BackupPhase::Completed,
                "{} ended {}",
                backup.name_any(),
                backup.phase()
            );
        }
        Ok(self.backups.values().map(|(_, writes)| *writes).max().unwrap_or_default())
    }

    /// Writes of Backups so far.
    pub fn writes(&mut self) -> anyhow::Result<u32> {
        while let Some(event) = self.next().now_or_never() {
            event?;
        }
        Ok(self.writes)
    }

    async fn until(
        &mut self,
        count: u16,
        patience: Duration,
        there: impl Fn(&Backup) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        let mut told = 0;
        loop {
            let now = self.backups.values().filter(|(backup, _)| there(backup)).count();
            if now >= usize::from(count) {
                return Ok(());
            }
            if now >= told + 10 {
                told = now;
                eprintln!("{now} of {count} backups");
            }
            if let Some((backup, _)) = self
                .backups
                .values()
                .find(|(backup, _)| backup.phase().is_terminal() && backup.phase() != BackupPhase::Completed)
            {
                bail!("backup {} ended {}", backup.name_any(), backup.phase());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let event = tokio::time::timeout(left, self.next()).await;
            event.with_context(|| format!("only {now} of {count} backups within {patience:?}"))??;
        }
    }

    async fn next(&mut self) -> anyhow::Result<Event<Backup>> {
        let event = self.events.try_next().await?.context("the watch has ended")?;
        if let Event::Apply(backup) | Event::InitApply(backup) = &event {
            self.writes += 1;
            let (last, writes) = self.backups.entry(backup.name_any()).or_insert_with(|| (backup.clone(), 0));
            let waits = backup.phase() == BackupPhase::WaitingForPluginOperations;
            *writes += u32::from(waits);
            *last = backup.clone();
        }
        Ok(event)
    }
}

//! A watch for the end of backups: it tells of each at once, where asking again and again would add its own pauses.

use std::{
    collections::BTreeMap,
    pin::Pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use backup_core::api::{Backup, BackupPhase};
use backup_tests::install::NAMESPACE;
use futures::{Stream, TryStreamExt as _};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::watcher::{self, Event, watcher},
};

type Events = Pin<Box<dyn Stream<Item = watcher::Result<Event<Backup>>> + Send>>;

/// Backups as they end.
pub struct Ends {
    events: Events,
    ended: BTreeMap<String, (BackupPhase, Instant)>,
}

impl Ends {
    /// Watches from now on.
    pub async fn watch(client: &Client) -> anyhow::Result<Self> {
        let api: Api<Backup> = Api::namespaced(client.clone(), NAMESPACE);
        let mut ends =
            Self { events: Box::pin(watcher(api, watcher::Config::default())), ended: BTreeMap::new() };
        while !matches!(ends.next().await?, Event::InitDone) {}
        Ok(ends)
    }

    /// Waits until all of these have completed. When each of them did, earliest first. Errors: one ended otherwise, or not
    /// in time.
    pub async fn completed(&mut self, names: &[String], patience: Duration) -> anyhow::Result<Vec<Instant>> {
        let all = async {
            while !names.iter().all(|name| self.ended.contains_key(name)) {
                self.next().await?;
            }
            anyhow::Ok(())
        };
        if let Ok(done) = tokio::time::timeout(patience, all).await {
            done?;
        } else {
            let open = names.iter().filter(|name| !self.ended.contains_key(*name)).count();
            bail!("{open} of {} backups have not ended within {patience:?}", names.len());
        }
        let mut times = Vec::new();
        for name in names {
            let (phase, at) = self.ended.get(name).context("it has ended")?;
            ensure!(*phase == BackupPhase::Completed, "backup {name} ended {phase}");
            times.push(*at);
        }
        times.sort_unstable();
        Ok(times)
    }

    async fn next(&mut self) -> anyhow::Result<Event<Backup>> {
        let event = self.events.try_next().await?.context("the watch has ended")?;
        if let Event::Apply(backup) | Event::InitApply(backup) = &event
            && backup.phase().is_terminal()
        {
            self.ended.entry(backup.name_any()).or_insert_with(|| (backup.phase(), Instant::now()));
        }
        Ok(event)
    }
}

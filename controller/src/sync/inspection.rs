//! Checks whether the Backups with a folder in the bucket have their metadata and contents there.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;

use super::{
    comparison::ClusterBackup,
    pass::{Pass, mark_files},
};
use crate::error::ReconcileError;

/// A folder is inspected after this many passes, or this much time: each inspection is one listing.
const INTERVAL_PASSES: u64 = 10;
const INTERVAL: Duration = Duration::from_mins(10);
/// Maximum number of folders that one pass inspects, not counting the folders of marked Backups.
const MAX_PER_PASS: usize = 50;
/// Maximum number of folders of marked Backups that one pass inspects.
const MAX_MARKED_PER_PASS: usize = 500;
const MAX_CONCURRENT_READS: usize = 8;

/// Last inspection of each folder. Lost with the process; the next one starts again.
#[derive(Clone, Debug, Default)]
pub(super) struct Inspections {
    /// The number of this pass.
    pass: u64,
    /// By name: number of the pass, and time (monotonic clock). For a new Backup: when it was first
    /// seen, as its files existed then.
    last: HashMap<String, (u64, Duration)>,
}

impl Inspections {
    /// The names of the Backups whose folders this pass inspects, and whether they are marked: all
    /// marked ones, and of the others those whose last inspection is the longest ago.
    fn due(&mut self, all: &[(&str, &ClusterBackup)], now: Duration) -> Vec<(String, bool)> {
        self.pass += 1;
        let known: HashSet<&str> = all.iter().map(|(name, _)| *name).collect();
        self.last.retain(|name, _| known.contains(name.as_str()));
        let mut due = Vec::new();
        for (name, backup) in all {
            let (pass, at) = *self
                .last
                .entry((*name).to_owned())
                .or_insert((self.pass, now));
            if backup.marked
                || self.pass - pass >= INTERVAL_PASSES
                || now.saturating_sub(at) >= INTERVAL
            {
                due.push((!backup.marked, at, *name));
            }
        }
        due.sort_unstable();
        let marked = due
            .iter()
            .filter(|(is_unmarked, ..)| !is_unmarked)
            .take(MAX_MARKED_PER_PASS);
        let others = due
            .iter()
            .filter(|(is_unmarked, ..)| *is_unmarked)
            .take(MAX_PER_PASS);
        marked
            .chain(others)
            .map(|(is_unmarked, _, name)| ((*name).to_owned(), !is_unmarked))
            .collect()
    }

    fn record(&mut self, name: &str, now: Duration) {
        self.last.insert(name.to_owned(), (self.pass, now));
    }
}

/// Marks Backups without metadata or contents, and removes the mark from those that have both
/// again.
pub(super) async fn inspect(
    pass: &Pass<'_>,
    all: &[(&str, &ClusterBackup)],
    inspected: &mut Inspections,
    seen: Timestamp,
) -> Result<(), ReconcileError> {
    let due = inspected.due(all, pass.began);
    let mut looks = stream::iter(due)
        .map(|(name, marked)| async move {
            let folder = pass.store.inspect_folder(&name).await;
            (name, marked, folder)
        })
        .buffer_unordered(MAX_CONCURRENT_READS);
    while let Some((name, marked, folder)) = looks.next().await {
        let folder = folder?;
        inspected.record(&name, pass.began);
        let is_whole = folder.metadata.is_some() && folder.contents;
        if is_whole == marked {
            mark_files(pass, &name, (!is_whole).then_some(seen)).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_backups_are_looked_at_in_each_pass_and_the_others_in_turn() {
        let known = ClusterBackup::default();
        let marked = ClusterBackup {
            marked: true,
            ..ClusterBackup::default()
        };
        let names: Vec<String> = (0..120).map(|number| format!("b{number:03}")).collect();
        let mut all: Vec<(&str, &ClusterBackup)> =
            names.iter().map(|name| (name.as_str(), &known)).collect();
        all.push(("marked", &marked));
        let mut inspected = Inspections::default();
        let mut looks = HashMap::<String, Vec<u64>>::new();
        for minute in 0..60 {
            let now = Duration::from_mins(minute);
            let due = inspected.due(&all, now);
            assert!(
                due.len() <= MAX_PER_PASS + 1 && due[0] == ("marked".to_owned(), true),
                "{due:?}"
            );
            for (name, _) in due {
                inspected.record(&name, now);
                looks.entry(name).or_default().push(minute);
            }
        }
        assert_eq!(looks["marked"].len(), 60);
        for name in &names {
            let looks = &looks[name.as_str()];
            assert!(
                (10..13).contains(&looks[0]) && looks.len() == 5,
                "{name} {looks:?}"
            );
        }
        // Less frequent passes inspect each time.
        assert_eq!(
            inspected.due(&all, Duration::from_hours(2)).len(),
            MAX_PER_PASS + 1
        );
        inspected.due(&[], Duration::from_hours(3));
        assert!(inspected.last.is_empty());
    }
}

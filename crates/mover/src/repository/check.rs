//! Search for damage. Backups may run meanwhile, a prune may not.
//!
//! Data that is written during a check is never reported as damaged: packs are listed after the
//! index that names them was read, and snapshots before the index by which their folders are found.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
};

use backup_core::data_movement::{AffectedSnapshot, CheckReport};
use rustic_core::{
    CheckOptions, FileType, Id, IndexedFullStatus, LsOptions, OpenStatus, PackedId,
    ReadBackend as _, Repository as RusticRepository,
    repofile::{IndexFile, SnapshotFile},
};
use sha2::{Digest as _, Sha256};

use super::{
    Job, Repository,
    errors::{OrMoverError as _, brief},
    layout::key,
    session::Session,
};
use crate::{MoverError, failures::FailureLog};

/// Size of the pieces in which packs are read (bytes).
const PIECE: u64 = 16 << 20;

/// Maximum number of snapshots that are named.
const MAX_SNAPSHOTS: usize = 100;

/// How thorough a check is.
#[derive(Clone, Debug, Default)]
pub struct CheckRequest {
    /// Data to read, which finds packs that were changed in the store.
    pub read: DataToRead,
    /// Full ids of packs to read as well. Those that are in no index are left out.
    pub packs: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataToRead {
    #[default]
    Nothing,
    Part(DataPart),
    Everything,
}

/// One of several parts of the data, of about the same size. Each pack is in one of them, by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPart {
    /// From 1 on.
    pub part: u8,
    /// Number of all parts.
    pub parts: NonZeroU8,
}

impl CheckRequest {
    fn reads(&self, id: &Id) -> bool {
        let is_in_part = match self.read {
            DataToRead::Nothing => false,
            DataToRead::Part(DataPart { part, parts }) => {
                let parts = u32::from(parts.get());
                id.as_u32() % parts == u32::from(part) % parts
            }
            DataToRead::Everything => true,
        };
        is_in_part || self.packs.contains(id.to_hex().as_str())
    }
}

pub(super) fn check(
    repository: &Repository,
    request: &CheckRequest,
    job: &Job,
) -> Result<CheckReport, MoverError> {
    let session = Session::new(repository, job, None);
    let opened = session.open()?;
    let mut check = Check {
        session: &session,
        job,
        failures: FailureLog::default(),
        damaged: BTreeSet::new(),
        report: CheckReport::default(),
    };
    let mut packs = check.compare_packs(&opened)?;
    check.check_trees(&opened)?;
    packs.retain(|id, _| request.reads(id));
    check.read_packs(&packs)?;
    if check.failures.collected().count > 0 {
        check.find_affected(opened)?;
    }
    check.report.failures = check.failures.collected();
    Ok(check.report)
}

struct Check<'a> {
    session: &'a Session<'a>,
    job: &'a Job,
    failures: FailureLog,
    damaged: BTreeSet<Id>,
    report: CheckReport,
}

impl Check<'_> {
    /// Compares the packs in the indexes with those in the store. Returns those to read.
    fn compare_packs(
        &mut self,
        opened: &RusticRepository<OpenStatus>,
    ) -> Result<BTreeMap<Id, u32>, MoverError> {
        let url = self.session.url();
        let mut indexed = BTreeMap::new();
        let mut marked = BTreeSet::new();
        for file in opened.stream_files::<IndexFile>().ours(url)? {
            self.job.stop.check()?;
            let (_, index) = file.ours(url)?;
            indexed.extend(index.packs.iter().map(|pack| (*pack.id, pack.pack_size())));
            marked.extend(index.packs_to_delete.iter().map(|pack| *pack.id));
        }
        let backend = self.session.backend(None);
        let mut stored: BTreeMap<Id, u32> = backend
            .list_with_size(FileType::Pack)
            .ours(url)?
            .into_iter()
            .collect();
        self.report.packs = stored.len() as u64;
        let mut whole = BTreeMap::new();
        for (id, size) in indexed {
            match stored.remove(&id) {
                Some(found) if found == size => {
                    whole.insert(id, size);
                }
                Some(found) => {
                    self.damage(id, &format!("it has {found} bytes instead of {size}"));
                }
                None => self.damage(id, "it is missing"),
            }
        }
        // Packs that are marked for removal need not exist.
        stored.retain(|id, _| !marked.contains(id));
        self.report.orphaned_packs = stored.len() as u64;
        Ok(whole)
    }

    /// Walks over all folders of all snapshots. rustic_core lists the snapshots first, and then reads
    /// the index once more.
    fn check_trees(&mut self, opened: &RusticRepository<OpenStatus>) -> Result<(), MoverError> {
        let results = opened
            .check(CheckOptions::default())
            .ours(self.session.url())?;
        self.job.stop.check()?;
        if results.is_ok().is_ok() {
            return Ok(());
        }
        for (level, finding) in &results.0 {
            // The level has no public name. Findings about packs are ours already.
            let is_error = format!("{level:?}") == "Error";
            let text = brief(finding);
            if is_error && !text.starts_with("pack ") {
                self.failures.record("index".as_ref(), &text);
            }
        }
        Ok(())
    }

    /// Compares the contents of packs with their names, which are their checksums.
    fn read_packs(&mut self, packs: &BTreeMap<Id, u32>) -> Result<(), MoverError> {
        let total = packs.values().map(|size| u64::from(*size)).sum();
        self.job.progress.set_total(total);
        for (id, size) in packs {
            let key = key(FileType::Pack, id);
            let mut hasher = Sha256::new();
            let mut offset = 0;
            while offset < u64::from(*size) {
                let end = (offset + PIECE).min((*size).into());
                let piece = self.session.objects.get(&key, Some(offset..end))?;
                if piece.is_empty() {
                    break;
                }
                hasher.update(&piece);
                offset += piece.len() as u64;
                self.job.progress.add_bytes(piece.len() as u64);
            }
            self.report.read_bytes += offset;
            if Id::new(hasher.finalize().into()) != *id {
                self.damage(*id, "its contents were changed");
            }
            self.job.progress.add_file();
        }
        Ok(())
    }

    fn damage(&mut self, id: Id, reason: &str) {
        self.failures
            .record(key(FileType::Pack, &id).as_ref(), &reason);
        self.damaged.insert(id);
    }

    /// Names the snapshots that need a damaged pack, or folders that cannot be read.
    fn find_affected(&mut self, opened: RusticRepository<OpenStatus>) -> Result<(), MoverError> {
        let url = self.session.url().to_owned();
        let snapshots = opened.get_all_snapshots().ours(&url)?;
        let indexed = opened.to_indexed().ours(&url)?;
        for snapshot in snapshots {
            self.job.stop.check()?;
            let Some(example) = self.first_damage(&indexed, &snapshot) else {
                continue;
            };
            self.report.affected_count += 1;
            if self.report.affected.len() < MAX_SNAPSHOTS {
                self.report.affected.push(AffectedSnapshot {
                    id: snapshot.id.to_hex().to_string(),
                    host: snapshot.hostname,
                    label: snapshot.label,
                    tags: snapshot.tags.to_string(),
                    example,
                });
            }
        }
        Ok(())
    }

    fn first_damage(
        &self,
        indexed: &RusticRepository<IndexedFullStatus>,
        snapshot: &SnapshotFile,
    ) -> Option<String> {
        if self.is_damaged(indexed, &snapshot.tree) {
            return Some("the root folder".to_owned());
        }
        let Ok(root) = indexed.node_from_snapshot_and_path(snapshot, "") else {
            return Some("the root folder".to_owned());
        };
        let listing = LsOptions::default();
        let Ok(nodes) = indexed.ls(&root, &listing) else {
            return Some("the root folder".to_owned());
        };
        for node in nodes {
            let Ok((path, node)) = node else {
                return Some("a folder".to_owned());
            };
            let is_damaged = (node.subtree.iter()).any(|id| self.is_damaged(indexed, id))
                || (node.content.iter().flatten()).any(|id| self.is_damaged(indexed, id));
            if is_damaged {
                return Some(path.display().to_string());
            }
        }
        None
    }

    /// Whether this piece of a file or folder is missing, or in a damaged pack.
    fn is_damaged<T: PackedId>(
        &self,
        indexed: &RusticRepository<IndexedFullStatus>,
        id: &T,
    ) -> bool {
        match indexed.get_index_entry(id) {
            Ok(entry) => self.damaged.contains(&*entry.pack),
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pack_is_in_one_part_and_no_part_is_empty() {
        let parts = NonZeroU8::new(30).unwrap();
        let mut counts = vec![0; usize::from(parts.get()) + 1];
        for _ in 0..3000 {
            let id = Id::random();
            let of_part = |part: u8| CheckRequest {
                read: DataToRead::Part(DataPart { part, parts }),
                ..CheckRequest::default()
            };
            let found: Vec<u8> = (1..=parts.get())
                .filter(|part| of_part(*part).reads(&id))
                .collect();
            assert_eq!(found.len(), 1, "{id}");
            counts[usize::from(found[0])] += 1;
        }
        assert!(counts[1..].iter().all(|count| *count > 0), "{counts:?}");
    }
}

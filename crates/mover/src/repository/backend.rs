//! rustic_core's view of the object store.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use object_store::PutPayload;
use parking_lot::Mutex;
use rustic_core::{BytesList, FileType, Id, ReadBackend, RusticResult, WriteBackend};

use super::{errors::to_rustic, layout::key};
use crate::{MoverError, objects::Objects};

/// Largest pack of folders that is kept in memory (bytes). Larger ones are read piece by piece.
const MAX_CACHED_PACK: u64 = 16 << 20;

/// The backend of one operation.
#[derive(Debug)]
pub(super) struct ObjectBackend {
    objects: Objects,
    /// The only key that is visible; `None`: all of them.
    only_key: Option<Id>,
    /// The volume that is restored into: the operation is stopped when it is full.
    target: Option<PathBuf>,
    /// Folder in which each snapshot is noted before it is written.
    notes: Option<String>,
    tree_packs: PackCache,
    written_keys: Mutex<Vec<Id>>,
    /// Set once the config was read. It is not written then: changes are for this operation only.
    has_config: AtomicBool,
}

impl ObjectBackend {
    pub(super) fn new(objects: Objects, only_key: Option<Id>, target: Option<PathBuf>) -> Self {
        Self {
            tree_packs: PackCache::new(objects.tree_cache()),
            objects,
            only_key,
            target,
            notes: None,
            written_keys: Mutex::default(),
            has_config: AtomicBool::new(false),
        }
    }

    /// The same, with notes of snapshots in this folder.
    pub(super) fn noting(self, notes: Option<String>) -> Self {
        Self { notes, ..self }
    }

    /// The keys that this operation has written.
    pub(super) fn written_keys(&self) -> Vec<Id> {
        self.written_keys.lock().clone()
    }

    fn read_data(&self, key: &str, offset: u32, length: u32) -> Result<Bytes, MoverError> {
        let range = offset.into()..u64::from(offset) + u64::from(length);
        let read = self
            .check_room()
            .and_then(|()| self.objects.get_in_bounds(key, range))
            .and_then(|bytes| exactly(bytes, key, length));
        if let Err(error) = &read {
            // rustic_core's restore would read all other packs first.
            self.objects.stop().fail(error.clone());
        }
        read
    }

    fn read_tree(&self, id: &Id, key: &str, offset: u32, length: u32) -> Result<Bytes, MoverError> {
        let pack = self
            .tree_packs
            .get(id, || self.objects.get(key, Some(0..MAX_CACHED_PACK)))?;
        let begin = offset as usize;
        let end = begin + length as usize;
        if end <= pack.len() {
            return Ok(pack.slice(begin..end));
        }
        let range = offset.into()..u64::from(offset) + u64::from(length);
        let bytes = self.objects.get(key, Some(range))?;
        exactly(bytes, key, length)
    }

    fn check_room(&self) -> Result<(), MoverError> {
        let Some(target) = &self.target else {
            return Ok(());
        };
        match rustix::fs::statvfs(target) {
            Ok(room) if room.f_blocks > 0 && room.f_bfree == 0 => Err(MoverError::target(
                target,
                &"it is full: restore into a larger volume",
            )),
            _ => Ok(()),
        }
    }

    fn write(&self, file_type: FileType, id: &Id, content: BytesList) -> Result<(), MoverError> {
        self.objects.stop().check()?;
        let payload: PutPayload = content.into_vec().into_iter().collect();
        let key = key(file_type, id);
        match file_type {
            FileType::Pack => self.objects.upload_in_background(key, payload),
            FileType::Config => {
                if self.has_config.load(Ordering::Relaxed) || self.objects.create(&key, &payload)? {
                    return Ok(());
                }
                let url = self.objects.url().to_owned();
                Err(MoverError::RepositoryExists { url })
            }
            FileType::Key => {
                self.written_keys.lock().push(*id);
                self.objects.put(&key, payload)
            }
            // They refer to packs: all uploads in the background are done first.
            FileType::Index => self.objects.put(&key, payload),
            FileType::Snapshot => {
                if let Some(folder) = &self.notes {
                    let note = format!("{folder}/{}", &*id.to_hex());
                    self.objects.put(&note, PutPayload::new())?;
                }
                self.objects.put(&key, payload)
            }
        }
    }

    fn list(&self, file_type: FileType) -> Result<Vec<(Id, u32)>, MoverError> {
        if file_type == FileType::Config {
            let size = self.objects.size("config")?;
            return Ok(size
                .map(|size| (Id::default(), u32::try_from(size).unwrap_or(u32::MAX)))
                .into_iter()
                .collect());
        }
        let mut files = Vec::new();
        for (name, size) in self.objects.list(file_type.dirname())? {
            // Other names are not of a repository.
            let Ok(id) = name.parse::<Id>() else { continue };
            if file_type == FileType::Key && self.only_key.is_some_and(|only| only != id) {
                continue;
            }
            let size = u32::try_from(size).map_err(|_| {
                MoverError::damaged(&key(file_type, &id), &format!("it has {size} bytes"))
            })?;
            files.push((id, size));
        }
        Ok(files)
    }
}

impl ReadBackend for ObjectBackend {
    fn location(&self) -> String {
        self.objects.url().to_owned()
    }

    fn list_with_size(&self, file_type: FileType) -> RusticResult<Vec<(Id, u32)>> {
        self.list(file_type).map_err(to_rustic)
    }

    fn read_full(&self, file_type: FileType, id: &Id) -> RusticResult<Bytes> {
        let read = self.objects.get(&key(file_type, id), None);
        if file_type == FileType::Config && read.is_ok() {
            self.has_config.store(true, Ordering::Relaxed);
        }
        read.map_err(to_rustic)
    }

    fn read_partial(
        &self,
        file_type: FileType,
        id: &Id,
        cacheable: bool,
        offset: u32,
        length: u32,
    ) -> RusticResult<Bytes> {
        let key = key(file_type, id);
        let read = if cacheable && file_type == FileType::Pack {
            self.read_tree(id, &key, offset, length)
        } else {
            self.read_data(&key, offset, length)
        };
        read.map_err(to_rustic)
    }

    fn warmup_path(&self, file_type: FileType, id: &Id) -> String {
        key(file_type, id)
    }
}

impl WriteBackend for ObjectBackend {
    fn write_bytes(
        &self,
        file_type: FileType,
        id: &Id,
        _cacheable: bool,
        content: BytesList,
    ) -> RusticResult<()> {
        let written = self.write(file_type, id, content);
        match &written {
            Ok(()) | Err(MoverError::RepositoryExists { .. }) => {}
            // The source looks at it: what cannot be written need not be read.
            Err(error) => self.objects.stop().fail(error.clone()),
        }
        written.map_err(to_rustic)
    }

    fn remove(&self, file_type: FileType, id: &Id, _cacheable: bool) -> RusticResult<()> {
        self.objects.delete(&key(file_type, id)).map_err(to_rustic)
    }
}

/// Fails unless all bytes are there: rustic_core would panic.
fn exactly(bytes: Bytes, key: &str, length: u32) -> Result<Bytes, MoverError> {
    if bytes.len() == length as usize {
        return Ok(bytes);
    }
    Err(MoverError::damaged(key, "it is too short"))
}

/// Packs of folders, which are read in many small pieces: thousands of requests without a cache.
#[derive(Debug)]
struct PackCache {
    /// Maximum size of all packs (bytes).
    capacity: usize,
    packs: Mutex<CachedPacks>,
}

#[derive(Debug, Default)]
struct CachedPacks {
    packs: HashMap<Id, CachedPack>,
    uses: u64,
}

#[derive(Clone, Debug, Default)]
struct CachedPack {
    /// Locked while the pack is read, so that it is read once.
    content: Arc<Mutex<Option<Bytes>>>,
    size: usize,
    last_use: u64,
}

impl PackCache {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            packs: Mutex::default(),
        }
    }

    fn get(
        &self,
        id: &Id,
        read: impl FnOnce() -> Result<Bytes, MoverError>,
    ) -> Result<Bytes, MoverError> {
        let content = {
            let mut cached = self.packs.lock();
            cached.uses += 1;
            let now = cached.uses;
            let pack = cached.packs.entry(*id).or_default();
            pack.last_use = now;
            pack.content.clone()
        };
        let mut content = content.lock();
        if let Some(bytes) = &*content {
            return Ok(bytes.clone());
        }
        let bytes = read()?;
        *content = Some(bytes.clone());
        drop(content);
        self.make_room(id, bytes.len());
        Ok(bytes)
    }

    /// Removes the packs that were not used for the longest time, but not this one.
    fn make_room(&self, id: &Id, size: usize) {
        let mut cached = self.packs.lock();
        if let Some(pack) = cached.packs.get_mut(id) {
            pack.size = size;
        }
        while cached.packs.values().map(|pack| pack.size).sum::<usize>() > self.capacity {
            let oldest = cached
                .packs
                .iter()
                .filter(|(other, pack)| *other != id && pack.size > 0)
                .min_by_key(|(_, pack)| pack.last_use)
                .map(|(other, _)| *other);
            let Some(oldest) = oldest else { break };
            cached.packs.remove(&oldest);
        }
    }
}

//! The items of a stored tarball: download, check, index.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{self, BufWriter, Read, Write},
    os::unix::fs::FileExt,
};

use futures::TryStreamExt;
use sha2::{Digest, Sha256};
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::{paths::Entry, walk::walk};
use crate::{Location, StoreError};

/// What a person can do about a tarball that cannot be used.
const REMEDY: &str =
    "the backup cannot be restored; use another one, or put back the file from a copy of the bucket";

const CLUSTER: u32 = u32::MAX;

/// Where an item is. Names are not kept in memory: the object itself has its name, and on disk it stands before the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemRef {
    offset: u64,
    len: u32,
    namespace: u32,
}

impl ItemRef {
    /// The length of its JSON (bytes).
    pub fn size(&self) -> u64 {
        u64::from(self.len)
    }
}

/// The items of a backup, on local disk in an unlinked temporary file. Holds about 40 bytes of memory per item.
#[derive(Debug)]
pub struct Contents {
    url: String,
    data: File,
    namespaces: Vec<Box<str>>,
    types: BTreeMap<String, Vec<ItemRef>>,
    /// Where an item is in the list of its type, by a hash of its path; of two equal paths the last one wins.
    paths: HashMap<u128, u32>,
}

/// A hash of the path of an item: no two items have the same.
fn path_hash(group_resource: &str, namespace: Option<&str>, name: &str) -> u128 {
    let path = [group_resource, namespace.unwrap_or_default(), name].join("/");
    Sha256::digest(path).iter().take(16).fold(0, |hash, byte| hash << 8 | u128::from(*byte))
}

impl Contents {
    /// No items at all.
    pub fn none() -> Result<Self, StoreError> {
        Ok(Indexer::new("")?.contents)
    }

    /// Resources with at least one item, as `<resource>[.<group>]`, sorted.
    pub fn types(&self) -> Vec<String> {
        self.types.keys().cloned().collect()
    }

    /// Namespaces with at least one item.
    pub fn namespaces(&self) -> BTreeSet<String> {
        self.namespaces.iter().map(ToString::to_string).collect()
    }

    /// The items of a resource, in the order of the tarball; empty if there are none.
    pub fn items(&self, group_resource: &str) -> &[ItemRef] {
        self.types.get(group_resource).map_or(&[], Vec::as_slice)
    }

    /// The item of this resource and name; none if it is not there.
    pub fn find(&self, group_resource: &str, namespace: Option<&str>, name: &str) -> Option<ItemRef> {
        let at = self.paths.get(&path_hash(group_resource, namespace, name))?;
        self.items(group_resource).get(usize::try_from(*at).ok()?).copied()
    }

    /// The namespace of an item, as the tarball's path says; none for cluster-scoped items.
    pub fn namespace_of(&self, item: &ItemRef) -> Option<&str> {
        self.namespaces.get(usize::try_from(item.namespace).ok()?).map(AsRef::as_ref)
    }

    /// The JSON of an item. A short read from local disk; errors: that disk fails.
    pub fn read(&self, item: &ItemRef) -> Result<Vec<u8>, StoreError> {
        let mut json = vec![0; item.len as usize];
        let read = self.data.read_exact_at(&mut json, item.offset);
        read.map_err(|error| StoreError::io(format!("read an item of {} from local disk", self.url), error))?;
        Ok(json)
    }

    /// The name of an item, as the tarball's path says it, for one that says none itself. Errors: the local disk fails.
    pub fn name_of(&self, item: &ItemRef) -> Result<String, StoreError> {
        let failed = |error| StoreError::io(format!("read an item of {} from local disk", self.url), error);
        let mut size = [0; size_of::<u32>()];
        let end = item.offset.saturating_sub(size.len() as u64);
        self.data.read_exact_at(&mut size, end).map_err(failed)?;
        let size = u32::from_le_bytes(size);
        let mut name = vec![0; size as usize];
        self.data.read_exact_at(&mut name, end.saturating_sub(u64::from(size))).map_err(failed)?;
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    pub fn len(&self) -> usize {
        self.types.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

impl Location {
    /// Downloads the items of a backup to an unlinked temporary file, checks the whole archive, and indexes it.
    ///
    /// Nothing is returned before the end of the archive was seen: one that is cut short is an error, never fewer items.
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Corrupt`] naming the entry; [`StoreError::Unreachable`] if the
    /// download breaks off; [`StoreError::Io`] if the local disk is full.
    pub async fn read_contents(&self, backup: &str) -> Result<Contents, StoreError> {
        let key = self.layout().backup(backup)?.contents();
        let url = self.url_of(&key);
        let object = self.get(&key).await?.ok_or_else(|| StoreError::NotFound {
            what: url.clone(),
            remedy: "the backup has no contents; choose another backup".to_owned(),
        })?;
        let stream = object.into_stream().map_err(io::Error::other);
        let reader = SyncIoBridge::new(StreamReader::new(stream));
        // Runs to its end even if this future is dropped; the download then fails or completes into an unlinked file.
        tokio::task::spawn_blocking(move || index(&url, reader))
            .await
            .map_err(|error| StoreError::io("run the reader of a tarball", &error))?
    }
}

pub(super) fn index(url: &str, source: impl Read) -> Result<Contents, StoreError> {
    let mut source = Download { inner: source, failure: None };
    let result = Indexer::new(url).and_then(|indexer| indexer.run(&mut source));
    match (result, source.failure) {
        // A download that broke off looks like a damaged archive to everything above it. It is not.
        (Err(StoreError::Corrupt { .. }), Some(error)) => {
            Err(StoreError::Unreachable { action: "read".to_owned(), url: url.to_owned(), detail: error })
        }
        (Err(StoreError::Corrupt { url, detail }), None) => {
            Err(StoreError::Corrupt { url, detail: format!("{detail}; {REMEDY}") })
        }
        (result, _) => result,
    }
}

struct Indexer {
    contents: Contents,
    data: BufWriter<File>,
    offset: u64,
    namespace_ids: HashMap<Box<str>, u32>,
}

impl Indexer {
    fn new(url: &str) -> Result<Self, StoreError> {
        let failed = |error| StoreError::io("make a temporary file", &error);
        let file = tempfile::tempfile().map_err(failed)?;
        Ok(Self {
            data: BufWriter::with_capacity(256 * 1024, file.try_clone().map_err(failed)?),
            offset: 0,
            namespace_ids: HashMap::new(),
            contents: Contents {
                url: url.to_owned(),
                data: file,
                namespaces: Vec::new(),
                types: BTreeMap::new(),
                paths: HashMap::new(),
            },
        })
    }

    fn run(mut self, source: impl Read) -> Result<Contents, StoreError> {
        let url = self.contents.url.clone();
        let failed = |error| StoreError::io("write a temporary file", &error);
        walk(&url, source, |entry, json| {
            if let Entry::Item { group_resource, namespace, name } = *entry {
                let size = u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes();
                for part in [name.as_bytes(), &size, json] {
                    self.data.write_all(part).map_err(failed)?;
                }
                self.offset += (name.len() + size.len()) as u64;
                self.add(group_resource, namespace, name, json.len());
            }
            Ok(())
        })?;
        self.data.flush().map_err(failed)?;
        Ok(self.contents)
    }

    /// Of two items with the same path the last one counts, as if both had been unpacked.
    fn add(&mut self, group_resource: &str, namespace: Option<&str>, name: &str, size: usize) {
        // No item is larger than MAX_ITEM.
        let len = u32::try_from(size).unwrap_or(u32::MAX);
        let item = ItemRef { offset: self.offset, len, namespace: self.namespace_id(namespace) };
        self.offset += size as u64;
        let Contents { types, paths, .. } = &mut self.contents;
        let items = match types.get_mut(group_resource) {
            Some(items) => items,
            None => types.entry(group_resource.to_owned()).or_default(),
        };
        let next = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let at = *paths.entry(path_hash(group_resource, namespace, name)).or_insert(next);
        match items.get_mut(at as usize) {
            Some(earlier) => *earlier = item,
            None => items.push(item),
        }
    }

    fn namespace_id(&mut self, namespace: Option<&str>) -> u32 {
        let Some(namespace) = namespace else { return CLUSTER };
        if let Some(id) = self.namespace_ids.get(namespace) {
            return *id;
        }
        let id = u32::try_from(self.contents.namespaces.len()).unwrap_or(CLUSTER);
        self.contents.namespaces.push(namespace.into());
        self.namespace_ids.insert(namespace.into(), id);
        id
    }
}

/// Keeps the reason why a download broke off.
struct Download<R> {
    inner: R,
    failure: Option<String>,
}

impl<R: Read> Read for Download<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.failure = Some(error.to_string());
            }
        })
    }
}

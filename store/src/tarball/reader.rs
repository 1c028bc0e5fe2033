//! A stored tarball: download, check, index.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io::{self, BufWriter, Read, Write},
    rc::Rc,
};

use futures::TryStreamExt;
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::{
    Contents, ItemRef,
    index::{CLUSTER, path_hash},
    paths::Entry,
    walk::walk,
};
use crate::{Location, StoreError};

/// What a person can do about a tarball that can't be used.
const REMEDY: &str =
    "the backup can not be restored; use another one, or put back the file from a copy of the bucket";

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
        // Runs to its end even if nobody waits any more; the download then fails or completes into an unlinked file.
        tokio::task::spawn_blocking(move || index(&url, reader))
            .await
            .map_err(|error| StoreError::io("run the reader of a tarball", &error))?
    }
}

/// Reads a whole archive.
pub(super) fn index(url: &str, source: impl Read) -> Result<Contents, StoreError> {
    let failure = Rc::new(RefCell::new(None));
    let source = Download { inner: source, failure: Rc::clone(&failure) };
    let result = Indexer::new(url).and_then(|indexer| indexer.run(source));
    match (result, failure.borrow_mut().take()) {
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

struct Indexer<'a> {
    url: &'a str,
    data: BufWriter<std::fs::File>,
    offset: u64,
    namespaces: Vec<Box<str>>,
    namespace_ids: HashMap<Box<str>, u32>,
    types: BTreeMap<String, Vec<ItemRef>>,
    /// Where an item is in its list, by a hash of its path; of two equal paths the last one wins.
    paths: HashMap<u128, u32>,
}

impl<'a> Indexer<'a> {
    fn new(url: &'a str) -> Result<Self, StoreError> {
        let file = tempfile::tempfile().map_err(|error| StoreError::io("make a temporary file", &error))?;
        Ok(Self {
            url,
            data: BufWriter::with_capacity(256 * 1024, file),
            offset: 0,
            namespaces: Vec::new(),
            namespace_ids: HashMap::new(),
            types: BTreeMap::new(),
            paths: HashMap::new(),
        })
    }

    fn run(mut self, source: impl Read) -> Result<Contents, StoreError> {
        walk(self.url, source, |entry, json| match *entry {
            Entry::Item { group_resource, namespace, name } => {
                self.item(group_resource, namespace, name, json)
            }
            Entry::Version | Entry::Versioned { .. } | Entry::Other => Ok(()),
        })?;
        let data = self
            .data
            .into_inner()
            .map_err(|error| StoreError::io("write a temporary file", error.error()))?;
        let Self { url, namespaces, types, paths, .. } = self;
        Ok(Contents { url: url.to_owned(), data, namespaces, types, paths })
    }

    /// An item, into the temporary file.
    fn item(
        &mut self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
        json: &[u8],
    ) -> Result<(), StoreError> {
        let item = ItemRef {
            offset: self.offset,
            // No item is larger than MAX_ITEM.
            len: u32::try_from(json.len()).unwrap_or(u32::MAX),
            namespace: self.namespace_id(namespace),
        };
        self.data.write_all(json).map_err(|error| StoreError::io("write a temporary file", &error))?;
        self.offset += json.len() as u64;
        self.add(group_resource, namespace, name, item);
        Ok(())
    }

    /// Adds an item; of two with the same path the last one counts, as if both had been unpacked.
    fn add(&mut self, group_resource: &str, namespace: Option<&str>, name: &str, item: ItemRef) {
        let items = match self.types.get_mut(group_resource) {
            Some(items) => items,
            None => self.types.entry(group_resource.to_owned()).or_default(),
        };
        let next = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let at = *self.paths.entry(path_hash(group_resource, namespace, name)).or_insert(next);
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
        let id = u32::try_from(self.namespaces.len()).unwrap_or(CLUSTER);
        self.namespaces.push(namespace.into());
        self.namespace_ids.insert(namespace.into(), id);
        id
    }
}

/// Keeps the reason why a download broke off.
struct Download<R> {
    inner: R,
    failure: Rc<RefCell<Option<String>>>,
}

impl<R: Read> Read for Download<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                *self.failure.borrow_mut() = Some(error.to_string());
            }
        })
    }
}

//! A stored tarball: download, check, index.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    io::{self, BufReader, BufWriter, Read, Write},
    rc::Rc,
};

use flate2::bufread::MultiGzDecoder;
use futures::TryStreamExt;
use tar::{Archive, EntryType};
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::{
    Contents, FORMAT_VERSION, ItemRef, MAX_ITEM, MAX_TOTAL,
    index::{CLUSTER, path_hash},
    paths::{self, Entry},
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
        let decoder = MultiGzDecoder::new(BufReader::with_capacity(256 * 1024, source));
        let mut archive = Archive::new(Tail { inner: decoder, total: 0, zeros: 0 });
        let mut last = "its beginning".to_owned();
        let mut end = 0;
        let entries = archive.entries().map_err(|error| self.corrupt(&last, &error.to_string()))?;
        for entry in entries {
            let mut entry = entry.map_err(|error| self.damaged(&last, &error))?;
            let path = entry.path_bytes().into_owned();
            last = String::from_utf8_lossy(&path).into_owned();
            let size = entry.size();
            end = entry.raw_file_position().saturating_add(size.next_multiple_of(512));
            self.entry(&path, &last, size, &mut entry)?;
        }
        let mut tail = archive.into_inner();
        // To the very end: the checksum of the last gzip member, and the zero blocks that end a tar archive. Without
        // them the archive was cut at a place that happens to look like an end.
        io::copy(&mut tail, &mut io::sink()).map_err(|error| self.damaged(&last, &error))?;
        let after = tail.total.saturating_sub(end);
        if after < 1024 || tail.zeros < after {
            return Err(self.corrupt(
                &last,
                "the mark of the archive's end is missing after it: the file was cut short",
            ));
        }
        let data = self
            .data
            .into_inner()
            .map_err(|error| StoreError::io("write a temporary file", error.error()))?;
        let Self { url, namespaces, types, paths, .. } = self;
        Ok(Contents { url: url.to_owned(), data, namespaces, types, paths })
    }

    fn entry(
        &mut self,
        path: &[u8],
        shown: &str,
        size: u64,
        entry: &mut tar::Entry<'_, impl Read>,
    ) -> Result<(), StoreError> {
        match entry.header().entry_type() {
            EntryType::Regular => {}
            // Not written by any backup, but by people who repack one; they hold nothing.
            EntryType::Directory | EntryType::XGlobalHeader => return Ok(()),
            other => {
                return Err(self.corrupt(shown, &format!("it is not a regular file but of type {other:?}")));
            }
        }
        if size > MAX_ITEM {
            return Err(self.corrupt(shown, &format!("it has {size} bytes, at most {MAX_ITEM} are expected")));
        }
        match paths::parse(path).map_err(|why| self.corrupt(shown, why))? {
            Entry::Item { group_resource, namespace, name } => {
                let item = ItemRef {
                    offset: self.offset,
                    len: u32::try_from(size).map_err(|_| self.corrupt(shown, "it is too large"))?,
                    namespace: self.namespace_id(namespace),
                };
                self.copy(shown, size, entry)?;
                self.add(group_resource, namespace, name, item);
                Ok(())
            }
            Entry::Version => self.check_version(shown, entry),
            Entry::Other => Ok(()),
        }
    }

    /// The data of an item, into the temporary file.
    fn copy(&mut self, shown: &str, size: u64, entry: &mut impl Read) -> Result<(), StoreError> {
        let mut buffer = [0; 16 * 1024];
        let mut left = size;
        while left > 0 {
            let read = entry.read(&mut buffer).map_err(|error| self.damaged(shown, &error))?;
            if read == 0 {
                return Err(self.corrupt(shown, "the file ends inside it: it was cut short"));
            }
            self.data
                .write_all(&buffer[..read])
                .map_err(|error| StoreError::io("write a temporary file", &error))?;
            left = left.saturating_sub(read as u64);
            self.offset += read as u64;
        }
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

    fn check_version(&self, shown: &str, entry: &mut impl Read) -> Result<(), StoreError> {
        let mut text = String::new();
        entry.take(64).read_to_string(&mut text).map_err(|error| self.damaged(shown, &error))?;
        let text = text.trim();
        if text == "1" || text.starts_with("1.") {
            return Ok(());
        }
        Err(self
            .corrupt(shown, &format!("the layout has version {text:?}, this program knows {FORMAT_VERSION}")))
    }

    fn damaged(&self, shown: &str, error: &io::Error) -> StoreError {
        let how = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file was cut short there".to_owned(),
            _ => format!("the file is damaged there: {error}"),
        };
        self.corrupt(shown, &how)
    }

    fn corrupt(&self, shown: &str, why: &str) -> StoreError {
        StoreError::Corrupt { url: self.url.to_owned(), detail: format!("entry {shown}: {why}; {REMEDY}") }
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

/// Counts what was unpacked, and the zeros at its end. Ends with an error at [`MAX_TOTAL`].
struct Tail<R> {
    inner: R,
    total: u64,
    zeros: u64,
}

impl<R: Read> Read for Tail<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.total += read as u64;
        if self.total > MAX_TOTAL {
            return Err(io::Error::other(format!("it unpacks to more than {MAX_TOTAL} bytes")));
        }
        match buffer[..read].iter().rposition(|byte| *byte != 0) {
            Some(at) => self.zeros = (read - at - 1) as u64,
            None => self.zeros += read as u64,
        }
        Ok(read)
    }
}

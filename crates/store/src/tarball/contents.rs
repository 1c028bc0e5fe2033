//! The items of a stored tarball: download, check, index.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{self, BufWriter, Read, Write},
};

use backup_core::{json_size, text::shortened};
use futures::TryStreamExt;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::{
    Limits,
    paths::{self, Entry},
    walk::walk,
};
use crate::{Location, StoreError, file_at::FileAt as _};

/// What the user can do about an unusable tarball.
const REMEDY: &str = "the backup cannot be restored; use another one, or put back the file from a copy of the bucket";

const CLUSTER: u32 = u32::MAX;

/// Maximum number of types, of versions and of namespaces in one tarball; Kubernetes is tested with
/// 10,000 namespaces.
const MAX_NAMES: usize = 100_000;
/// Maximum mean length of the items' paths (bytes); long ones usually have 150.
const MAX_MEAN_PATH: u64 = 256;

/// Bytes read together with the JSON of an item: they hold the length of its path and, unless it is
/// unusually long, the path.
const TAIL_BYTES: usize = 256;
/// Largest JSON kept in memory while its item waits for memory (bytes). Larger JSON is read again.
const MAX_SMALL_JSON: usize = 16 * 1024;

/// Position of an item. Names are not kept in memory: path and object are on disk.
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

    /// Offset of the end of its JSON.
    fn end(&self) -> u64 {
        self.offset + self.size()
    }
}

/// An item that takes no more memory than the limit.
#[derive(Debug)]
pub struct MeasuredItem<'a> {
    contents: &'a Contents,
    item: ItemRef,
    size: u64,
    /// Its JSON and its path, if the JSON is small.
    stored: Option<(Vec<u8>, String)>,
}

impl MeasuredItem<'_> {
    /// Memory that it takes once decoded (bytes).
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Like [`Contents::object`], without measuring it again.
    pub fn object(self) -> Result<Map<String, Value>, StoreError> {
        let (json, path) = self
            .stored
            .map_or_else(|| self.contents.stored(&self.item), Ok)?;
        decode(&json, path)
    }
}

/// The items of a backup, on local disk in an unlinked temporary file: the JSON of each, the length
/// of its path in two bytes, its path; zeros at the end, so that `TAIL_BYTES` bytes can be read behind
/// each item. Holds about 60 bytes of memory per item.
#[derive(Debug)]
pub struct Contents {
    url: String,
    item_memory: u64,
    data: File,
    namespaces: Vec<Box<str>>,
    types: BTreeMap<String, Vec<ItemRef>>,
    versions: BTreeMap<String, Versions>,
    /// Index of an item in the list of its type or version, by a hash of its path; of two equal
    /// paths the last one wins.
    paths: HashMap<PathHash, u32>,
}

/// The versions of a type that have folders.
#[derive(Debug, Default)]
struct Versions {
    /// The version that the cluster of the backup preferred.
    preferred: Option<Box<str>>,
    /// The items in other versions, which were stored with `EnableAPIGroupVersions`.
    others: BTreeMap<Box<str>, Vec<ItemRef>>,
}

/// A hash that identifies an item by its path. As bytes it needs no padding in a table.
type PathHash = [u8; 16];

fn path_hash(path: &str) -> PathHash {
    let mut hash = PathHash::default();
    hash.iter_mut()
        .zip(Sha256::digest(path))
        .for_each(|(to, from)| *to = from);
    hash
}

impl Contents {
    /// Reads an archive to its end, checks it as a whole, and indexes it, as
    /// [`Location::read_contents`] does with a backup's. `url` names it in errors.
    pub fn index(url: &str, source: impl Read, limits: Limits) -> Result<Self, StoreError> {
        index(url, source, limits)
    }

    /// Contents without items.
    pub fn none() -> Result<Self, StoreError> {
        Ok(Indexer::new("", Limits::DEFAULT)?.contents)
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

    /// The item of this resource and name; `None` if it does not exist.
    pub fn find(
        &self,
        group_resource: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<ItemRef> {
        let at = self
            .paths
            .get(&path_hash(&paths::plain(group_resource, namespace, name)))?;
        self.items(group_resource)
            .get(usize::try_from(*at).ok()?)
            .copied()
    }

    /// The version of a type that the cluster of the backup preferred, in which its items are
    /// stored; `None` if no folder names it.
    pub fn preferred_version(&self, group_resource: &str) -> Option<&str> {
        self.versions.get(group_resource)?.preferred.as_deref()
    }

    /// Other versions in which items of a type are stored, too, sorted.
    pub fn other_versions(&self, group_resource: &str) -> Vec<&str> {
        self.versions
            .get(group_resource)
            .into_iter()
            .flat_map(|of| of.others.keys())
            .map(AsRef::as_ref)
            .collect()
    }

    /// The same item in one of the other versions; `None` if it does not exist. Errors: local disk
    /// fails.
    pub fn in_version(
        &self,
        item: &ItemRef,
        group_resource: &str,
        version: &str,
    ) -> Result<Option<ItemRef>, StoreError> {
        let path = paths::versioned(
            group_resource,
            version,
            self.namespace_of(item),
            &self.name_of(item)?,
        );
        let at = self
            .paths
            .get(&path_hash(&path))
            .and_then(|at| usize::try_from(*at).ok());
        let items = self
            .versions
            .get(group_resource)
            .and_then(|of| of.others.get(version));
        Ok(items.zip(at).and_then(|(items, at)| items.get(at)).copied())
    }

    /// The namespace of an item, from the tarball's path; `None` for cluster-scoped items.
    pub fn namespace_of(&self, item: &ItemRef) -> Option<&str> {
        self.namespaces
            .get(usize::try_from(item.namespace).ok()?)
            .map(AsRef::as_ref)
    }

    /// The JSON of an item, which takes no more memory than the limit once decoded. A short read
    /// from local disk.
    ///
    /// Errors: [`StoreError::UnreadableItem`], which names the item by its path: it is no JSON, or
    /// takes too much; [`StoreError::Io`]: that disk fails.
    pub fn read(&self, item: &ItemRef) -> Result<Vec<u8>, StoreError> {
        self.read_sized(item).map(|(json, ..)| json)
    }

    /// Measures the memory that a decoded item would take, using little memory itself. Errors: as
    /// for [`Self::read`].
    pub fn measure(&self, item: &ItemRef) -> Result<MeasuredItem<'_>, StoreError> {
        let (json, path, size) = self.read_sized(item)?;
        let stored = (json.len() <= MAX_SMALL_JSON).then_some((json, path));
        Ok(MeasuredItem {
            contents: self,
            item: *item,
            size,
            stored,
        })
    }

    /// An item, decoded. Errors: as for [`Self::read`]; it is not the object that its path names.
    pub fn object(&self, item: &ItemRef) -> Result<Map<String, Value>, StoreError> {
        let (json, path, _) = self.read_sized(item)?;
        decode(&json, path)
    }

    /// The JSON of an item, its path, and the memory that it takes once decoded.
    fn read_sized(&self, item: &ItemRef) -> Result<(Vec<u8>, String, u64), StoreError> {
        let (json, path) = self.stored(item)?;
        let size = match json_size::decoded(&json) {
            Ok(size) => size,
            Err(error) => {
                return Err(StoreError::UnreadableItem {
                    path,
                    detail: no_object(&error),
                });
            }
        };
        if size > self.item_memory {
            let detail = format!(
                "it takes {size} bytes of memory when it is decoded, and at most {} are used for one item; if it is meant to be \
                 so large, raise --restore-item-memory of the controller, of which one item takes an eighth, and its memory limit",
                self.item_memory
            );
            return Err(StoreError::UnreadableItem { path, detail });
        }
        Ok((json, path, size))
    }

    /// The stored bytes of an item, unchecked, and its path.
    pub(super) fn stored(&self, item: &ItemRef) -> Result<(Vec<u8>, String), StoreError> {
        let len = item.len as usize;
        let mut json = self.bytes(item.offset, len + TAIL_BYTES)?;
        let path = self.path_in(item, &json.split_off(len))?;
        Ok((json, path))
    }

    /// The path of an item in the tarball, by which users find it. Errors: local disk fails.
    pub fn path_of(&self, item: &ItemRef) -> Result<String, StoreError> {
        self.path_in(item, &self.bytes(item.end(), TAIL_BYTES)?)
    }

    /// Extracts the path from the bytes behind the JSON of an item.
    fn path_in(&self, item: &ItemRef, tail: &[u8]) -> Result<String, StoreError> {
        let (length, path) = tail.split_at(2);
        let length = length
            .iter()
            .rev()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        let path = match path.get(..length) {
            Some(path) => Cow::Borrowed(path),
            None => Cow::Owned(self.bytes(item.end() + 2, length)?),
        };
        Ok(String::from_utf8_lossy(&path).into_owned())
    }

    /// The name of an item, by its path. Errors: local disk fails.
    pub fn name_of(&self, item: &ItemRef) -> Result<String, StoreError> {
        Ok(name_in(&self.path_of(item)?).to_owned())
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = vec![0; len];
        let read = self.data.read_exact_at(&mut bytes, offset);
        read.map_err(|error| {
            StoreError::io(
                format!("read an item of {} from local disk", self.url),
                error,
            )
        })?;
        Ok(bytes)
    }

    pub fn len(&self) -> usize {
        self.types.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }
}

fn name_in(path: &str) -> &str {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_suffix(".json").unwrap_or(file)
}

fn decode(json: &[u8], path: String) -> Result<Map<String, Value>, StoreError> {
    decoded(json, name_in(&path)).map_err(|detail| StoreError::UnreadableItem { path, detail })
}

fn no_object(error: &serde_json::Error) -> String {
    format!("it is no Kubernetes object: {error}")
}

/// An item, decoded. Errors: a message that says how it differs from an object of this name, which
/// is the one in its path.
pub fn decoded(json: &[u8], name: &str) -> Result<Map<String, Value>, String> {
    let object: Map<String, Value> =
        serde_json::from_slice(json).map_err(|error| no_object(&error))?;
    let found = object
        .get("metadata")
        .and_then(|metadata| metadata.get("name"))
        .and_then(Value::as_str);
    if found == Some(name) {
        return Ok(object);
    }
    Err(format!(
        "the object in it is named {:?}",
        shortened(found.unwrap_or_default(), 100)
    ))
}

impl Location {
    /// Downloads the items of a backup to an unlinked temporary file, checks the whole archive, and
    /// indexes it.
    ///
    /// Returns only after reaching the end of the archive: a truncated archive is an error, never
    /// fewer items. Errors: [`StoreError::NotFound`]; [`StoreError::Corrupt`] naming the entry,
    /// also beyond the limits; [`StoreError::Unreachable`] if the download is interrupted;
    /// [`StoreError::Io`] if the local disk is full.
    pub async fn read_contents(
        &self,
        backup: &str,
        limits: Limits,
    ) -> Result<Contents, StoreError> {
        let key = self.layout().backup(backup)?.contents();
        let url = self.url_of(&key);
        let object = self.get(&key).await?.ok_or_else(|| StoreError::NotFound {
            what: url.clone(),
            remedy: "the backup has no contents; choose another backup".to_owned(),
        })?;
        let stream = object.into_stream().map_err(io::Error::other);
        let reader = SyncIoBridge::new(StreamReader::new(stream));
        // Continues even if this future is dropped; the download then fails or completes into an
        // unlinked file.
        tokio::task::spawn_blocking(move || index(&url, reader, limits))
            .await
            .map_err(|error| StoreError::io("run the reader of a tarball", &error))?
    }
}

pub(super) fn index(url: &str, source: impl Read, limits: Limits) -> Result<Contents, StoreError> {
    let mut source = Download::new(source);
    let result = Indexer::new(url, limits).and_then(|indexer| indexer.run(&mut source));
    match (result, source.failure) {
        // To all code above, an interrupted download looks like a damaged archive. It is not.
        (Err(StoreError::Corrupt { .. }), Some(error)) => Err(StoreError::Unreachable {
            action: "read".to_owned(),
            url: url.to_owned(),
            detail: error,
        }),
        (Err(StoreError::Corrupt { url, detail }), None) => Err(StoreError::Corrupt {
            url,
            detail: format!("{detail}; {REMEDY}"),
        }),
        (result, _) => result,
    }
}

struct Indexer {
    contents: Contents,
    limits: Limits,
    data: BufWriter<File>,
    offset: u64,
    namespace_ids: HashMap<Box<str>, u32>,
    items: usize,
    /// Number of versions of types.
    versions: usize,
    /// Total length of the paths of all items.
    path_bytes: u64,
}

impl Indexer {
    fn new(url: &str, limits: Limits) -> Result<Self, StoreError> {
        let file = tempfile::tempfile()
            .map_err(|error| StoreError::temporary("make a temporary file", &error))?;
        let writer = file
            .try_clone()
            .map_err(|error| StoreError::temporary("make a temporary file", &error))?;
        Ok(Self {
            data: BufWriter::with_capacity(256 * 1024, writer),
            limits,
            offset: 0,
            namespace_ids: HashMap::new(),
            items: 0,
            versions: 0,
            path_bytes: 0,
            contents: Contents {
                url: url.to_owned(),
                item_memory: limits.item_memory,
                data: file,
                namespaces: Vec::new(),
                types: BTreeMap::new(),
                versions: BTreeMap::new(),
                paths: HashMap::new(),
            },
        })
    }

    fn run(mut self, source: impl Read) -> Result<Contents, StoreError> {
        let url = self.contents.url.clone();
        walk(
            &url,
            source,
            self.limits.bytes,
            |entry, json| match *entry {
                Entry::Item {
                    group_resource,
                    namespace,
                    name,
                } => self.add(
                    group_resource,
                    None,
                    namespace,
                    &paths::plain(group_resource, namespace, name),
                    json,
                ),
                // The item is stored at its plain path, too.
                Entry::Versioned {
                    group_resource,
                    version,
                    preferred: true,
                    ..
                } => self.prefer(group_resource, version),
                Entry::Versioned {
                    group_resource,
                    version,
                    namespace,
                    name,
                    ..
                } => {
                    let path = paths::versioned(group_resource, version, namespace, name);
                    self.add(group_resource, Some(version), namespace, &path, json)
                }
                _ => Ok(()),
            },
        )?;
        let ended = self
            .data
            .write_all(&[0; TAIL_BYTES])
            .and_then(|()| self.data.flush());
        ended.map_err(|error| StoreError::temporary("write a temporary file", &error))?;
        Ok(self.contents)
    }

    /// Records the version of a type that its group prefers.
    fn prefer(&mut self, group_resource: &str, version: &str) -> Result<(), StoreError> {
        let versions = &mut self.contents.versions;
        if versions
            .get(group_resource)
            .is_some_and(|of| of.preferred.is_some())
        {
            return Ok(());
        }
        versions
            .entry(group_resource.to_owned())
            .or_default()
            .preferred = Some(version.into());
        self.versions += 1;
        self.check()
    }

    /// Of two items with the same path the last one counts, as if both had been unpacked. `version`
    /// is set if it is not the preferred one.
    fn add(
        &mut self,
        group_resource: &str,
        version: Option<&str>,
        namespace: Option<&str>,
        path: &str,
        json: &[u8],
    ) -> Result<(), StoreError> {
        // No item is larger than MAX_ITEM, and no path than MAX_PATH.
        let len = u32::try_from(json.len()).unwrap_or(u32::MAX);
        let path_len = u16::try_from(path.len()).unwrap_or(u16::MAX);
        let item = ItemRef {
            offset: self.offset,
            len,
            namespace: self.namespace_id(namespace),
        };
        for part in [json, &path_len.to_le_bytes(), path.as_bytes()] {
            self.data
                .write_all(part)
                .map_err(|error| StoreError::temporary("write a temporary file", &error))?;
            self.offset += part.len() as u64;
        }
        let Contents {
            types,
            versions,
            paths,
            ..
        } = &mut self.contents;
        let items = match (version, types.get_mut(group_resource)) {
            (Some(version), _) => {
                let others = &mut versions
                    .entry(group_resource.to_owned())
                    .or_default()
                    .others;
                if !others.contains_key(version) {
                    self.versions += 1;
                }
                others.entry(version.into()).or_default()
            }
            (None, Some(items)) => items,
            (None, None) => types.entry(group_resource.to_owned()).or_default(),
        };
        let next = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let at = *paths.entry(path_hash(path)).or_insert(next);
        if let Some(earlier) = items.get_mut(at as usize) {
            *earlier = item;
        } else {
            items.push(item);
            self.items += 1;
            self.path_bytes += u64::from(path_len);
        }
        self.check()
    }

    /// Memory use grows with the number of items, and with their names.
    fn check(&self) -> Result<(), StoreError> {
        let most = self.limits.items;
        if self.items > most {
            return Err(self.corrupt(format!(
                "the backup has more than {most} items, the most that is restored with the memory that the controller has; if \
                 it is meant to have them, raise --restore-max-items of the controller and its memory limit (500 bytes an item)"
            )));
        }
        if self.path_bytes > MAX_MEAN_PATH.saturating_mul(most as u64) {
            return Err(self.corrupt(format!(
                "the paths of the items before it have {} bytes, which is too much for {most} items; if they are meant to be so \
                 long, raise --restore-max-items of the controller and its memory limit (500 bytes an item)",
                self.path_bytes
            )));
        }
        if self.contents.types.len() + self.versions + self.contents.namespaces.len() > MAX_NAMES {
            return Err(self.corrupt(format!(
                "the backup has more than {MAX_NAMES} types and namespaces"
            )));
        }
        Ok(())
    }

    fn corrupt(&self, detail: String) -> StoreError {
        StoreError::Corrupt {
            url: self.contents.url.clone(),
            detail,
        }
    }

    fn namespace_id(&mut self, namespace: Option<&str>) -> u32 {
        let Some(namespace) = namespace else {
            return CLUSTER;
        };
        if let Some(id) = self.namespace_ids.get(namespace) {
            return *id;
        }
        let id = u32::try_from(self.contents.namespaces.len()).unwrap_or(CLUSTER);
        self.contents.namespaces.push(namespace.into());
        self.namespace_ids.insert(namespace.into(), id);
        id
    }
}

/// Keeps the reason why a download was interrupted.
pub(crate) struct Download<R> {
    inner: R,
    failure: Option<String>,
}

impl<R> Download<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            failure: None,
        }
    }

    /// Why the download was interrupted; `None` if it was not.
    pub(crate) fn into_failure(self) -> Option<String> {
        self.failure
    }
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

mod hostile;
mod places;
mod writers;

use std::{collections::BTreeMap, io::Read};

use flate2::read::MultiGzDecoder;
use object_store::{ObjectStoreExt, path::Path};
use proptest::prelude::*;

use super::{Contents, ItemPath, Limits, contents::index};
use crate::{Location, StoreError, gzip, testing::memory, upload::Upload};

/// Items as namespace and JSON, by resource, in order.
type Seen = BTreeMap<String, Vec<(Option<String>, String, Vec<u8>)>>;

#[derive(Clone, Debug, PartialEq)]
struct Item {
    resource: String,
    namespace: Option<String>,
    name: String,
    json: Vec<u8>,
}

impl Item {
    fn new(resource: &str, namespace: Option<&str>, name: &str, json: &[u8]) -> Self {
        let namespace = namespace.map(ToOwned::to_owned);
        Self {
            resource: resource.to_owned(),
            namespace,
            name: name.to_owned(),
            json: json.to_vec(),
        }
    }

    fn path(&self) -> ItemPath<'_> {
        ItemPath {
            group_resource: &self.resource,
            version: "v1",
            preferred: true,
            namespace: self.namespace.as_deref(),
            name: &self.name,
        }
    }
}

fn upload(location: &Location, key: &Path) -> Upload {
    Upload::new(location.clone(), key.clone(), None)
}

/// The tarball of these items as stored.
async fn written(location: &Location, items: &[Item]) -> Vec<u8> {
    let key = Path::from("t.tar.gz");
    let mut writer = super::Writer::new(upload(location, &key), 1_700_000_000).unwrap();
    for item in items {
        writer.item(&item.path(), &item.json).await.unwrap();
    }
    let staged = writer.finish().await.unwrap();
    location.publish(&key, &staged).await.unwrap();
    let size = staged.bytes();
    let bytes = location
        .store()
        .get(&key)
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap()
        .to_vec();
    assert_eq!(bytes.len() as u64, size);
    bytes
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut all).unwrap();
    all
}

fn read(bytes: &[u8]) -> Result<Contents, StoreError> {
    index("s3://b/t.tar.gz", bytes, Limits::DEFAULT)
}

/// The items that a restore would see: by resource, in order.
fn seen(contents: &Contents) -> Seen {
    let of = |resource: String| {
        let items = contents.items(&resource).iter();
        let items = items.map(|item| {
            let namespace = contents.namespace_of(item).map(ToOwned::to_owned);
            (
                namespace,
                contents.name_of(item).unwrap(),
                contents.stored(item).unwrap().0,
            )
        });
        (resource.clone(), items.collect())
    };
    contents.types().into_iter().map(of).collect()
}

fn expected(items: &[Item]) -> Seen {
    let mut all: BTreeMap<String, Vec<_>> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for item in items {
        let list = all.entry(item.resource.clone()).or_default();
        let place = *places
            .entry((&item.resource, &item.namespace, &item.name))
            .or_insert(list.len());
        list.resize_with(list.len().max(place + 1), Default::default);
        list[place] = (item.namespace.clone(), item.name.clone(), item.json.clone());
    }
    all
}

fn item() -> impl Strategy<Value = Item> {
    let resource = prop::sample::select(vec![
        "pods",
        "nodes",
        "deployments.apps",
        "roles.rbac.authorization.k8s.io",
    ]);
    let namespace = prop::option::of(prop::sample::select(vec![
        "a",
        "kube-system",
        "n-with-a-long-name",
    ]));
    // Long names need an extension of tar, and ':' is allowed in names of roles.
    let name = prop_oneof!["[a-z]{1,2}", "[a-z0-9:.-]{1,200}x", "[a-z]{246,250}"];
    let json = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2000),
        Just(vec![0; 4096]),
        (1_000_000_usize..2_500_000).prop_map(|size| vec![b'x'; size]),
    ];
    (resource, namespace, name, json).prop_map(|(resource, namespace, name, json)| Item {
        resource: resource.to_owned(),
        namespace: namespace.map(ToOwned::to_owned),
        name,
        json,
    })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_is_read_back_equal_and_in_order(items in prop::collection::vec(item(), 0..24)) {
        let contents = read(&run(written(&memory(""), &items))).unwrap();
        let expected = expected(&items);
        prop_assert_eq!(contents.len(), expected.values().map(Vec::len).sum::<usize>());
        prop_assert_eq!(contents.is_empty(), items.is_empty());
        prop_assert_eq!(contents.namespaces(), items.iter().filter_map(|item| item.namespace.clone()).collect());
        prop_assert!(seen(&contents) == expected);
    }
}

#[test]
fn the_archive_is_what_velero_writes() {
    let long = "x".repeat(253);
    let items = [
        Item::new("pods", Some("ns"), "p", b"{\"kind\":\"Pod\"}"),
        Item::new("clusterroles.rbac.authorization.k8s.io", None, &long, b"{}"),
    ];
    let raw = gunzip(&run(written(&memory(""), &items)));
    let mut archive = tar::Archive::new(raw.as_slice());
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        assert_eq!(entry.header().entry_type(), tar::EntryType::Regular);
        assert_eq!(entry.header().mode().unwrap(), 0o755);
        assert_eq!(entry.header().mtime().unwrap(), 1_700_000_000);
        let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut data = String::new();
        entry.read_to_string(&mut data).unwrap();
        found.push((path, data));
    }
    let roles = "resources/clusterroles.rbac.authorization.k8s.io";
    let expected = [
        ("metadata/version".to_owned(), "1.1.0\n"),
        (
            "resources/pods/namespaces/ns/p.json".to_owned(),
            "{\"kind\":\"Pod\"}",
        ),
        (
            "resources/pods/v1-preferredversion/namespaces/ns/p.json".to_owned(),
            "{\"kind\":\"Pod\"}",
        ),
        (format!("{roles}/cluster/{long}.json"), "{}"),
        (
            format!("{roles}/v1-preferredversion/cluster/{long}.json"),
            "{}",
        ),
    ];
    assert_eq!(found, expected.map(|(path, data)| (path, data.to_owned())));
}

#[test]
fn the_end_of_the_archive_is_marked_once_at_the_very_end() {
    // Random data, to get several gzip members.
    let data: Vec<u8> = (0..5_000_000_u32)
        .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2] | 1)
        .collect();
    let items: Vec<Item> = (0..3)
        .map(|n| Item::new("secrets", Some("a"), &n.to_string(), &data))
        .collect();
    let raw = gunzip(&run(written(&memory(""), &items)));
    assert_eq!(raw.len() % 512, 0);
    let zeros: Vec<usize> = raw
        .chunks(512)
        .enumerate()
        .filter(|(_, block)| block.iter().all(|b| *b == 0))
        .map(|(n, _)| n)
        .collect();
    assert_eq!(zeros, [raw.len() / 512 - 2, raw.len() / 512 - 1]);
}

#[test]
fn an_archive_cut_at_any_byte_is_an_error() {
    // Three members, one of which ends between two entries: cut there, gzip and tar both see a
    // clean end.
    let raw = gunzip(&run(written(
        &memory(""),
        &[
            Item::new("pods", Some("a"), "one", b"{\"a\":1}"),
            Item::new("nodes", None, "two", &[0; 1500]),
        ],
    )));
    let mut bytes = gzip::member(&raw[..1024]).unwrap();
    bytes.extend(gzip::member(&raw[1024..2048]).unwrap());
    bytes.extend(gzip::member(&raw[2048..]).unwrap());
    assert_eq!(read(&bytes).unwrap().len(), 2);
    for at in 0..bytes.len() {
        let error = read(&bytes[..at]).unwrap_err();
        assert_eq!(error.category(), "corrupt", "cut at {at}: {error}");
    }
    for at in (0..raw.len()).step_by(512) {
        let error = read(&gzip::member(&raw[..at]).unwrap()).unwrap_err();
        assert_eq!(error.category(), "corrupt", "cut at block {at}: {error}");
    }
}

#[test]
fn a_flipped_bit_never_changes_what_is_read() {
    let items = [Item::new("pods", Some("a"), "one", b"{\"some\":\"data\"}")];
    let bytes = run(written(&memory(""), &items));
    let mut accepted = 0;
    for at in 10..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        // A few bits of deflate are unused (padding of its last byte, codes that do not occur);
        // changing them may pass.
        if let Ok(contents) = read(&bytes) {
            assert_eq!(seen(&contents), expected(&items), "byte {at}");
            accepted += 1;
        }
    }
    assert!(
        accepted < 4,
        "{accepted} of {} flips went unnoticed",
        bytes.len()
    );
}

fn crafted(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, kind, data) in entries {
        let mut header = tar::Header::new_gnu();
        // Written directly to avoid the builder's checks.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *data).unwrap();
    }
    gzip::member(&builder.into_inner().unwrap()).unwrap()
}

#[test]
fn entries_that_would_leave_the_archive_are_refused_by_name() {
    use tar::EntryType as T;
    let table: [(&str, T, &str); 7] = [
        (
            "resources/../../etc/passwd",
            T::Regular,
            "leaves the archive",
        ),
        ("../x", T::Regular, "leaves the archive"),
        (
            "resources/pods/namespaces/../x.json",
            T::Regular,
            "leaves the archive",
        ),
        ("/etc/passwd", T::Regular, "absolute"),
        (
            "resources/pods/cluster/x.json",
            T::Symlink,
            "not a regular file",
        ),
        (
            "resources/pods/cluster/x.json",
            T::Link,
            "not a regular file",
        ),
        (
            "resources/pods/cluster/x.json",
            T::Fifo,
            "not a regular file",
        ),
    ];
    for (path, kind, why) in table {
        let error = read(&crafted(&[
            ("metadata/version", T::Regular, b"1.1.0\n"),
            (path, kind, b""),
        ]))
        .unwrap_err();
        assert_eq!(error.category(), "corrupt");
        let text = error.to_string();
        assert!(
            text.contains(path) && text.contains(why) && text.contains("s3://b/t.tar.gz"),
            "{text}"
        );
    }
}

#[test]
fn what_other_versions_wrote_is_read() {
    use tar::EntryType as T;
    let tarball = crafted(&[
        ("metadata/version", T::Regular, b"1"),
        ("./resources/", T::Directory, b""),
        ("./resources/pods/namespaces/a/p.json", T::Regular, b"old"),
        (
            "resources/pods/v1-preferredversion/namespaces/a/p.json",
            T::Regular,
            b"other",
        ),
        (
            "resources/pods/v1/namespaces/a/q.json",
            T::Regular,
            b"other",
        ),
        ("resources/nodes/cluster/n.json", T::Regular, b"node"),
        ("resources/pods/namespaces/a/p.json", T::Regular, b"new"),
    ]);
    let contents = read(&tarball).unwrap();
    assert_eq!(contents.types(), ["nodes", "pods"]);
    assert_eq!(
        seen(&contents)["pods"],
        [(Some("a".to_owned()), "p".to_owned(), b"new".to_vec())]
    );
    assert_eq!(
        seen(&contents)["nodes"],
        [(None, "n".to_owned(), b"node".to_vec())]
    );
    assert!(contents.items("secrets").is_empty());

    let error = read(&crafted(&[("metadata/version", T::Regular, b"2.0.0\n")])).unwrap_err();
    assert_says!(error, "\"2.0.0\"");
    assert!(read(&crafted(&[])).unwrap().is_empty());
}

#[test]
fn the_versions_of_an_item_are_found_in_their_folders() {
    use tar::EntryType as T;
    let tarball = crafted(&[
        ("metadata/version", T::Regular, b"1.1.0"),
        ("resources/w.x.io/namespaces/a/p.json", T::Regular, b"v2"),
        (
            "resources/w.x.io/v2-preferredversion/namespaces/a/p.json",
            T::Regular,
            b"v2",
        ),
        ("resources/w.x.io/namespaces/a/q.json", T::Regular, b"v2"),
        (
            "resources/w.x.io/v2-preferredversion/namespaces/a/q.json",
            T::Regular,
            b"v2",
        ),
        ("resources/w.x.io/v1/namespaces/a/p.json", T::Regular, b"v1"),
        (
            "resources/w.x.io/v1beta1/namespaces/b/p.json",
            T::Regular,
            b"v1beta1",
        ),
        ("resources/pods/cluster/p.json", T::Regular, b"pod"),
    ]);
    let contents = read(&tarball).unwrap();
    assert_eq!(contents.len(), 3);
    assert_eq!(contents.preferred_version("w.x.io"), Some("v2"));
    assert_eq!(contents.other_versions("w.x.io"), ["v1", "v1beta1"]);
    assert_eq!(
        (
            contents.preferred_version("pods"),
            contents.other_versions("pods")
        ),
        (None, vec![])
    );
    let [p, q] = contents.items("w.x.io") else {
        panic!()
    };
    let stored = |item, version| {
        let found = contents.in_version(item, "w.x.io", version).unwrap();
        found.map(|item| contents.stored(&item).unwrap())
    };
    assert_eq!(
        stored(p, "v1"),
        Some((
            b"v1".to_vec(),
            "resources/w.x.io/v1/namespaces/a/p.json".to_owned()
        ))
    );
    assert_eq!(
        (stored(p, "v1beta1"), stored(q, "v1"), stored(p, "v3")),
        (None, None, None)
    );
}

#[test]
fn an_entry_that_claims_to_be_huge_is_refused_before_it_is_read() {
    let mut header = tar::Header::new_gnu();
    header.set_path("resources/pods/cluster/x.json").unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(super::MAX_ITEM + 1);
    header.set_cksum();
    let error = read(&gzip::member(header.as_bytes()).unwrap()).unwrap_err();
    assert_says!(error, "at most");
}

#[test]
fn a_download_that_breaks_off_is_not_a_damaged_archive() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(std::io::Error::other("connection reset")),
                read => Ok(read),
            }
        }
    }
    let bytes = run(written(
        &memory(""),
        &[Item::new("pods", Some("a"), "one", b"{}")],
    ));
    let error = index("u", Broken(&bytes[..40]), Limits::DEFAULT).unwrap_err();
    assert!(
        error.is_transient() && error.to_string().contains("connection reset"),
        "{error}"
    );
}

#[tokio::test]
async fn an_item_that_can_not_be_stored_leaves_the_archive_whole() {
    let location = memory("");
    let key = Path::from("t.tar.gz");
    let mut writer = super::Writer::new(upload(&location, &key), 0).unwrap();
    let good = Item::new("pods", Some("a"), "one", b"{}");
    writer.item(&good.path(), &good.json).await.unwrap();
    let bad = Item::new("pods", Some("a/b"), "two", b"{}");
    assert!(
        writer
            .item(&bad.path(), &bad.json)
            .await
            .unwrap_err()
            .is_item()
    );
    let huge = vec![0; usize::try_from(super::MAX_ITEM).unwrap() + 1];
    assert!(
        writer
            .item(&good.path(), &huge)
            .await
            .unwrap_err()
            .is_item()
    );
    let staged = writer.finish().await.unwrap();
    location.publish(&key, &staged).await.unwrap();
    let bytes = location
        .store()
        .get(&key)
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    assert_eq!(seen(&read(&bytes).unwrap()), expected(&[good]));
}

#[tokio::test]
async fn a_write_that_was_dropped_half_way_ends_the_archive() {
    use futures::FutureExt;
    let location = memory("");
    let mut writer = super::Writer::new(upload(&location, &Path::from("t")), 0).unwrap();
    // More chunks than cores: the write has to wait for the pool, and is dropped meanwhile.
    let large = Item::new("pods", None, "p", &vec![b'x'; 60 * 1024 * 1024]);
    assert!(
        writer
            .item(&large.path(), &large.json)
            .now_or_never()
            .is_none()
    );
    let error = writer.item(&large.path(), b"{}").await.unwrap_err();
    assert_says!(error, "interrupted");
    assert!(writer.finish().await.is_err());
    assert!(location.store().head(&Path::from("t")).await.is_err());
}

//! Hostile archives, such as a small file that unpacks to a large one, and archives that are
//! unusual but valid.

use super::*;
use crate::tarball::MAX_TOTAL;

/// A gzipped tar archive (fastest level) that is never in memory as a whole.
struct Archive(flate2::write::GzEncoder<Vec<u8>>);

impl Archive {
    fn new() -> Self {
        Self(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ))
    }

    fn write(&mut self, bytes: &[u8]) {
        std::io::Write::write_all(&mut self.0, bytes).unwrap();
    }

    /// A header with a path of at most 100 bytes.
    fn header(&mut self, path: &str, kind: u8, size: u64) {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size(size);
        header.set_mode(0o644);
        header.set_cksum();
        self.write(header.as_bytes());
    }

    fn entry(&mut self, path: &str, kind: u8, data: &[u8]) {
        self.header(path, kind, data.len() as u64);
        self.write(data);
        self.write(&vec![0; data.len().next_multiple_of(512) - data.len()]);
    }

    fn zeros(&mut self, mut bytes: u64) {
        let block = vec![0; 1 << 20];
        while bytes > 0 {
            let part = block
                .len()
                .min(usize::try_from(bytes).unwrap_or(usize::MAX));
            self.write(&block[..part]);
            bytes -= part as u64;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.write(&[0; 1024]);
        self.0.finish().unwrap()
    }
}

const ITEM: &str = "resources/pods/cluster/p.json";

fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let digits = (rest + rest.to_string().len()).to_string().len();
    format!("{} {key}={value}\n", rest + digits)
}

fn refusal(archive: Archive, limits: Limits) -> String {
    let error = index("s3://b/t.tar.gz", &*archive.finish(), limits).unwrap_err();
    assert_eq!(error.category(), "corrupt", "{error}");
    assert!(!error.is_transient());
    error.to_string()
}

fn assert_refused(archive: Archive, limits: Limits, words: &[&str]) {
    let text = refusal(archive, limits);
    for word in ["s3://b/t.tar.gz"].iter().chain(words) {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn an_extended_header_is_refused_before_it_is_read() {
    for kind in [b'L', b'x'] {
        let mut archive = Archive::new();
        archive.entry("resources/pods/cluster/before.json", b'0', b"{}");
        // The announced bytes are missing: reading them would find the end of the file.
        archive.header("././@LongLink", kind, 8 << 30);
        let words = "before.json, the extended header after it: it has 8589934592 bytes, at most 65536 are expected";
        assert_refused(archive, Limits::DEFAULT, &[words]);
    }
}

/// Types and data of entries.
type Entries<'a> = &'a [(u8, &'a [u8])];

#[test]
fn extended_headers_that_belong_to_nothing_or_contradict_are_refused() {
    let long = format!("resources/pods/cluster/{}.json\0", "x".repeat(200));
    let path = record("path", ITEM);
    let (sized, wordy) = (record("size", "3"), record("size", "many"));
    let table: [(Entries<'_>, &str); 7] = [
        (
            &[
                (b'L', long.as_bytes()),
                (b'L', long.as_bytes()),
                (b'0', b"{}"),
            ],
            "second one for the same entry",
        ),
        (
            &[
                (b'x', path.as_bytes()),
                (b'x', path.as_bytes()),
                (b'0', b"{}"),
            ],
            "second one for the same entry",
        ),
        (&[(b'L', long.as_bytes())], "belongs to no entry"),
        (
            &[(b'x', sized.as_bytes()), (b'0', b"{}")],
            "different sizes",
        ),
        (&[(b'x', b"9 path=x"), (b'0', b"{}")], "malformed"),
        (&[(b'x', b"99999 path=x\n"), (b'0', b"{}")], "malformed"),
        (
            &[(b'x', wordy.as_bytes()), (b'0', b"{}")],
            "its size is no number",
        ),
    ];
    for (entries, why) in table {
        let mut archive = Archive::new();
        archive.entry("resources/pods/cluster/before.json", b'0', b"{}");
        for (kind, data) in entries {
            archive.entry(ITEM, *kind, data);
        }
        assert_refused(archive, Limits::DEFAULT, &[why, "resources/pods/cluster/"]);
    }
}

#[test]
fn long_paths_of_gnu_tar_and_of_go_are_read() {
    let names: Vec<String> = ["l", "x", "p", "k"].map(|name| name.repeat(250)).to_vec();
    let path = |name: &str| format!("resources/pods/cluster/{name}.json");
    let mut archive = Archive::new();
    archive.entry(
        "pax_global_header",
        b'g',
        record("comment", "by hand").as_bytes(),
    );
    archive.entry(
        "././@LongLink",
        b'L',
        format!("{}\0", path(&names[0])).as_bytes(),
    );
    archive.entry("resources/pods", b'0', b"gnu");
    // As Go writes it, with a multi-line value.
    let pax = record("SCHILY.xattr.user.a", "1\n7 a=b\n")
        + &record("mtime", "1.5")
        + &record("path", &path(&names[1]));
    archive.entry("PaxHeaders.0/x", b'x', pax.as_bytes());
    archive.entry("resources/pods", b'0', b"pax");
    let pax = record("path", &path(&names[2])) + &record("size", "5");
    archive.entry("PaxHeaders.0/p", b'x', pax.as_bytes());
    archive.entry("resources/pods", b'0', b"sized");
    archive.entry("././@LongLink", b'K', b"a link that is none\0");
    archive.entry(
        "././@LongLink",
        b'L',
        format!("{}\0", path(&names[3])).as_bytes(),
    );
    archive.entry("resources/pods", b'0', b"both");
    archive.entry("resources/pods/cluster/short.json", b'0', b"short");
    let contents = index("u", &*archive.finish(), Limits::DEFAULT).unwrap();
    let found: Vec<(String, Vec<u8>)> = contents
        .items("pods")
        .iter()
        .map(|item| {
            (
                contents.name_of(item).unwrap(),
                contents.stored(item).unwrap().0,
            )
        })
        .collect();
    let expected = names.iter().map(String::as_str).chain(["short"]);
    let expected = expected.zip(["gnu", "pax", "sized", "both", "short"]);
    assert_eq!(
        found,
        expected
            .map(|(name, data)| (name.to_owned(), data.into()))
            .collect::<Vec<_>>()
    );
    for (item, name) in contents.items("pods").iter().zip(names) {
        assert_eq!(contents.path_of(item).unwrap(), path(&name));
        assert_eq!(contents.find("pods", None, &name), Some(*item));
    }
}

#[test]
fn more_items_than_the_limit_are_refused_and_what_to_do_is_said() {
    let archive = |items: usize, same: bool| {
        let mut archive = Archive::new();
        for n in 0..items {
            let n = if same { 0 } else { n };
            archive.entry(
                &format!("resources/pods/namespaces/a/p{n}.json"),
                b'0',
                b"{}",
            );
            archive.entry(
                &format!("resources/pods/v1-preferredversion/namespaces/a/p{n}.json"),
                b'0',
                b"{}",
            );
        }
        archive
    };
    let limits = Limits {
        items: 1000,
        ..Limits::DEFAULT
    };
    assert_refused(
        archive(1001, false),
        limits,
        &[
            "/a/p1000.json",
            "more than 1000 items",
            "--restore-max-items",
        ],
    );
    for (items, same, expected) in [(1000, false, 1000), (3000, true, 1)] {
        let contents = index("u", &*archive(items, same).finish(), limits).unwrap();
        assert_eq!(contents.len(), expected);
    }
}

#[test]
fn names_that_would_fill_memory_are_refused() {
    // Paths of 4000 bytes, far above the mean of honest ones.
    let mut archive = Archive::new();
    for n in 0..20 {
        let path = format!("resources/pods/cluster/{n}{}.json\0", "x".repeat(3900));
        archive.entry("././@LongLink", b'L', path.as_bytes());
        archive.entry("resources/pods", b'0', b"{}");
    }
    let limits = Limits {
        items: 100,
        ..Limits::DEFAULT
    };
    assert_refused(
        archive,
        limits,
        &["the paths of the items", "--restore-max-items"],
    );

    for path in [
        |n| format!("resources/pods/namespaces/{n}/p.json"),
        |n| format!("resources/pods/v{n}/cluster/p.json"),
        |n| format!("resources/{n}/v1-preferredversion/cluster/p.json"),
    ] as [fn(usize) -> String; 3]
    {
        let mut archive = Archive::new();
        for n in 0..=100_000 {
            archive.entry(&path(n), b'0', b"{}");
        }
        assert_refused(
            archive,
            Limits::DEFAULT,
            &["more than 100000 types and namespaces"],
        );
    }
}

#[test]
fn what_unpacks_to_more_than_the_limit_is_refused() {
    let limits = Limits {
        bytes: 8 << 20,
        ..Limits::DEFAULT
    };
    let words = ["unpacks to more than 8388608 bytes", "--restore-max-size"];
    // In items, in an entry that is skipped, and after the end.
    let mut items = Archive::new();
    for n in 0..9 {
        items.entry(
            &format!("resources/pods/cluster/{n}.json"),
            b'0',
            &vec![b' '; 1 << 20],
        );
    }
    let mut passed = Archive::new();
    passed.header("other/", b'5', 16 << 20);
    passed.zeros(16 << 20);
    let mut after = Archive::new();
    after.zeros(16 << 20);
    for archive in [items, passed, after] {
        assert_refused(archive, limits, &words);
    }
    assert_eq!(Limits::DEFAULT.bytes, MAX_TOTAL);
}

#[test]
fn an_item_that_cannot_be_used_is_named_by_its_path() {
    let bomb = format!(
        "{{\"metadata\":{{\"name\":\"bomb\"}},\"spec\":[{}0]}}",
        r#"{"":0},"#.repeat(100_000)
    );
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let table: [(&str, &str, &str); 7] = [
        ("cut", r#"{"metadata":{"na"#, "it is no Kubernetes object"),
        ("empty", "", "it is no Kubernetes object"),
        ("list", "[1]", "it is no Kubernetes object"),
        ("deep", &deep, "recursion limit"),
        ("bomb", &bomb, "--restore-item-memory"),
        (
            "other",
            r#"{"metadata":{"name":"another"}}"#,
            "the object in it is named \"another\"",
        ),
        ("nameless", "{}", "the object in it is named \"\""),
    ];
    let mut archive = Archive::new();
    archive.entry(
        "resources/pods/namespaces/a/good.json",
        b'0',
        br#"{"metadata":{"name":"good"}}"#,
    );
    for (name, json, _) in table {
        archive.entry(
            &format!("resources/pods/namespaces/a/{name}.json"),
            b'0',
            json.as_bytes(),
        );
    }
    let contents = index("u", &*archive.finish(), Limits::DEFAULT).unwrap();
    let (good, bad) = contents.items("pods").split_first().unwrap();
    assert_eq!(contents.object(good).unwrap()["metadata"]["name"], "good");
    assert!(contents.measure(good).unwrap().size() < 4096);
    for (item, (name, _, why)) in bad.iter().zip(table) {
        let text = contents.object(item).unwrap_err().to_string();
        let path = format!("resources/pods/namespaces/a/{name}.json");
        assert_says!(text, &path, why);
    }
}

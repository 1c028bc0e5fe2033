//! One backup as written by different versions of Velero and by users who repack it: it always
//! reads as the same items.

use tar::{Builder, EntryType, Header};

use super::*;

/// The format of an archive. The default is Velero's.
struct Written {
    /// Content of `metadata/version`, if that exists.
    version: Option<&'static str>,
    /// Whether each item is also stored at a path with its version. Velero before 1.4 has no such
    /// paths.
    versioned: bool,
    header: fn() -> Header,
    kind: EntryType,
    /// Prefix of each path.
    prefix: &'static str,
    /// Whether folders are entries, too.
    folders: bool,
    /// Whether the path is in an extended header of PAX, with other fields.
    pax: bool,
    reversed: bool,
    /// Number of zeros after the end of the archive: tools write blocks of 20.
    padding: usize,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            version: Some("1.1.0\n"),
            versioned: true,
            header: Header::new_ustar,
            kind: EntryType::Regular,
            prefix: "",
            folders: false,
            pax: false,
            reversed: false,
            padding: 0,
        }
    }
}

fn items() -> Vec<Item> {
    vec![
        Item::new("pods", Some("ns"), "p", b"{\"kind\":\"Pod\"}"),
        Item::new(
            "clusterroles.rbac.authorization.k8s.io",
            None,
            "system:node",
            b"{}",
        ),
        // More than the 100 bytes that fit into a header.
        Item::new(
            "deployments.apps",
            Some("ns"),
            &"x".repeat(200),
            &[b'y'; 1500],
        ),
    ]
}

impl Written {
    fn entries(&self) -> Vec<(String, Vec<u8>)> {
        let mut entries: Vec<_> = self
            .version
            .iter()
            .map(|text| ("metadata/version".to_owned(), text.as_bytes().to_vec()))
            .collect();
        for item in items() {
            let paths = item
                .path()
                .paths()
                .unwrap()
                .into_iter()
                .take(if self.versioned { 2 } else { 1 });
            entries.extend(paths.map(|path| (path, item.json.clone())));
        }
        if self.reversed {
            entries.reverse();
        }
        entries
    }

    fn tar(&self) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        if self.folders {
            for folder in ["", "metadata/", "resources/", "resources/pods/"] {
                let mut header = (self.header)();
                header.set_entry_type(EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                builder
                    .append_data(&mut header, format!("./{folder}"), &[][..])
                    .unwrap();
            }
        }
        for (path, data) in self.entries() {
            let path = format!("{}{path}", self.prefix);
            let mut header = (self.header)();
            header.set_entry_type(self.kind);
            header.set_mode(0o755);
            header.set_mtime(1_600_000_000);
            header.set_size(data.len() as u64);
            if self.pax {
                let fields = [
                    ("mtime", &b"1600000000.5"[..]),
                    ("path", path.as_bytes()),
                    ("LIBARCHIVE.creationtime", b"1"),
                ];
                builder.append_pax_extensions(fields).unwrap();
                header.set_path("shortened").unwrap();
                header.set_cksum();
                builder.append(&header, data.as_slice()).unwrap();
            } else {
                // A path that is too long for the header is in a GNU header before it.
                builder
                    .append_data(&mut header, &path, data.as_slice())
                    .unwrap();
            }
        }
        let mut tar = builder.into_inner().unwrap();
        tar.resize(tar.len() + self.padding, 0);
        tar
    }
}

#[test]
fn a_tarball_is_read_however_it_was_written() {
    let default = Written::default;
    let table = [
        ("as Velero does", default()),
        (
            "without versions of types",
            Written {
                versioned: false,
                version: Some("1"),
                ..default()
            },
        ),
        (
            "with a version as a line",
            Written {
                version: Some("1\n"),
                ..default()
            },
        ),
        (
            "with a later version",
            Written {
                version: Some("1.9.2\n"),
                ..default()
            },
        ),
        (
            "without a version",
            Written {
                version: None,
                ..default()
            },
        ),
        (
            "in another order",
            Written {
                reversed: true,
                ..default()
            },
        ),
        (
            "with headers of GNU",
            Written {
                header: Header::new_gnu,
                ..default()
            },
        ),
        (
            "with old headers",
            Written {
                header: Header::new_old,
                kind: EntryType::new(0),
                ..default()
            },
        ),
        (
            "with headers of PAX",
            Written {
                pax: true,
                ..default()
            },
        ),
        (
            "repacked by GNU tar",
            Written {
                header: Header::new_gnu,
                prefix: "./",
                folders: true,
                reversed: true,
                padding: 18 * 512,
                ..default()
            },
        ),
        (
            "repacked by BSD tar",
            Written {
                pax: true,
                prefix: "./",
                folders: true,
                reversed: true,
                ..default()
            },
        ),
    ];
    for (name, how) in table {
        let tar = how.tar();
        let (first, second) = tar.split_at(tar.len() / 1024 * 512);
        let mut named = flate2::GzBuilder::new()
            .filename("b.tar")
            .mtime(1)
            .write(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut named, &tar).unwrap();
        for bytes in [
            gzip::member(&tar).unwrap(),
            named.finish().unwrap(),
            [gzip::member(first).unwrap(), gzip::member(second).unwrap()].concat(),
        ] {
            let contents = read(&bytes).unwrap();
            assert_eq!(seen(&contents), expected(&items()), "{name}");
            assert_eq!(contents.namespaces(), ["ns".to_owned()].into(), "{name}");
            let found = contents.find(
                "clusterroles.rbac.authorization.k8s.io",
                None,
                "system:node",
            );
            assert!(found.is_some(), "{name}");
        }
    }
}

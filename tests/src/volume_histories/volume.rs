//! Small volumes, whose files follow from the seed, and comparable listings of their files.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use crate::history::random::Random;

/// The files that a volume may have.
const NAMES: [&str; 8] = [
    "file-0",
    "file-1",
    "file-2",
    "file-3",
    "file-4",
    "folder/file-5",
    "folder/file-6",
    "folder/file-7",
];
const FOLDER: &str = "folder";
/// A file whose contents are new at each backup that a maintenance is due beside.
const LARGE: &str = "large";
/// Size of that file (bytes): more than a pack.
const LARGE_SIZE: usize = 150_000;
/// Sizes of the other files (bytes).
const SIZES: [usize; 6] = [0, 50, 3_000, 12_000, 30_000, 70_000];
/// Number of contents that all volumes of a history share. They come, go and come back, so that
/// snapshots share data, and data that is marked for removal is saved again.
const SHARED_CONTENTS: u64 = 16;
/// Maximum number of changes before a backup.
const MAX_CHANGES: u64 = 4;
const MODES: [u32; 4] = [0o600, 0o644, 0o751, 0o4755];
/// Owner and group of files, if the kit may give files away.
const OWNERS: [u32; 3] = [0, 1000, 65_534];
/// Mode of the root folder.
const ROOT_MODE: u32 = 0o2750;

/// A volume of one history.
#[derive(Debug)]
pub(super) struct Volume {
    folder: PathBuf,
    /// Decides the contents that the volumes share.
    seed: u64,
}

impl Volume {
    pub(super) fn new(folder: PathBuf, seed: u64) -> io::Result<Self> {
        fs::create_dir_all(folder.join(FOLDER))?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(ROOT_MODE))?;
        Ok(Self { folder, seed })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn listing(&self) -> io::Result<Listing> {
        Listing::of(&self.folder)
    }

    /// Writes, links and removes some files. Takes the same numbers whatever is in the volume.
    pub(super) fn change(&self, random: &mut Random) -> io::Result<()> {
        for _ in 0..=random.below(MAX_CHANGES) {
            self.change_file(random)?;
        }
        Ok(())
    }

    fn change_file(&self, random: &mut Random) -> io::Result<()> {
        let path = self.folder.join(random.pick(&NAMES));
        let change = random.below(10);
        let content = self.content(random);
        let mode = random.pick(&MODES);
        let owner = random.pick(&OWNERS);
        match change {
            0 | 1 => remove(&path),
            2 => {
                remove(&path)?;
                symlink(NAMES[0], &path)
            }
            3 => self.link(&path),
            4 => rewrite(&path, random.number()),
            _ => {
                remove(&path)?;
                fs::write(&path, content)?;
                if rustix::process::geteuid().is_root() {
                    chown(&path, Some(owner), Some(owner))?;
                }
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            }
        }
    }

    /// Adds contents of several packs that were never saved.
    pub(super) fn add_large(&self, random: &mut Random) -> io::Result<()> {
        fs::write(
            self.folder.join(LARGE),
            noise(self.seed, random.number(), LARGE_SIZE),
        )
    }

    /// Contents that other files have, too, or new ones.
    fn content(&self, random: &mut Random) -> Vec<u8> {
        let shared = random.below(SHARED_CONTENTS);
        let new = random.number();
        let id = if random.one_in(4) { new } else { shared };
        let size = Random::of(self.seed, id).pick(&SIZES);
        noise(self.seed, id, size)
    }

    /// Makes this the second name of a file, if there is one.
    fn link(&self, path: &Path) -> io::Result<()> {
        let other = self.folder.join(NAMES[0]);
        let is_file = fs::symlink_metadata(&other).is_ok_and(|metadata| metadata.is_file());
        if is_file && other != path {
            remove(path)?;
            fs::hard_link(other, path)?;
        }
        Ok(())
    }
}

/// New contents of the same size in a file that keeps its time: only its ctime tells.
fn rewrite(path: &Path, id: u64) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.is_file() {
        return Ok(());
    }
    let mut file = File::options().write(true).open(path)?;
    let size = usize::try_from(metadata.len()).unwrap_or_default();
    file.write_all(&noise(id, 0, size))?;
    file.set_modified(metadata.modified()?)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Bytes that do not compress, the same for the same numbers.
fn noise(seed: u64, id: u64, size: usize) -> Vec<u8> {
    let mut random = Random::of(seed, id);
    let mut bytes = Vec::with_capacity(size + size_of::<u64>());
    while bytes.len() < size {
        bytes.extend(random.number().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Everything in a folder that a restore has to bring back: paths, and what is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listing(BTreeMap<PathBuf, String>);

impl Listing {
    pub(super) fn of(root: &Path) -> io::Result<Self> {
        let mut lister = Lister {
            root,
            entries: BTreeMap::new(),
            first_names: HashMap::new(),
        };
        lister.add(Path::new(""))?;
        Ok(Self(lister.entries))
    }

    /// The first difference of what was restored.
    pub(super) fn difference(&self, restored: &Self) -> Option<String> {
        let paths: BTreeSet<&PathBuf> = self.0.keys().chain(restored.0.keys()).collect();
        paths.into_iter().find_map(|path| {
            let [saved, found] = [self, restored]
                .map(|listing| listing.0.get(path).map_or("missing", String::as_str));
            (saved != found).then(|| {
                let path = path.display();
                format!("/{path} was {saved} when it was saved, and is {found} now")
            })
        })
    }
}

struct Lister<'a> {
    root: &'a Path,
    entries: BTreeMap<PathBuf, String>,
    /// The first name of each file with several, by device and inode.
    first_names: HashMap<(u64, u64), PathBuf>,
}

impl Lister<'_> {
    /// Adds an entry and all below, in the order of the names.
    fn add(&mut self, path: &Path) -> io::Result<()> {
        let place = self.root.join(path);
        let metadata = fs::symlink_metadata(&place)?;
        let contents = self.contents(path, &place, &metadata)?;
        let attributes = format!(
            "mode {:o}, owner {}:{}, modified {}.{:09}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid(),
            metadata.mtime(),
            metadata.mtime_nsec()
        );
        self.entries
            .insert(path.to_owned(), format!("{contents}, {attributes}"));
        if metadata.is_dir() {
            let mut names = BTreeSet::new();
            for entry in fs::read_dir(&place)? {
                names.insert(entry?.file_name());
            }
            for name in names {
                self.add(&path.join(name))?;
            }
        }
        Ok(())
    }

    fn contents(
        &mut self,
        path: &Path,
        place: &Path,
        metadata: &fs::Metadata,
    ) -> io::Result<String> {
        if metadata.is_dir() {
            return Ok("a folder".to_owned());
        }
        if metadata.is_symlink() {
            return Ok(format!("a link to {}", fs::read_link(place)?.display()));
        }
        let digest = hex(&Sha256::digest(fs::read(place)?));
        let contents = format!("{} bytes, SHA-256 {digest}", metadata.len());
        if metadata.nlink() < 2 {
            return Ok(contents);
        }
        let first = self
            .first_names
            .entry((metadata.dev(), metadata.ino()))
            .or_insert_with(|| path.to_owned());
        Ok(format!("{contents}, the same as {}", first.display()))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(folder: &Path) -> Volume {
        let volume = Volume::new(folder.join("volume"), 1).unwrap();
        for (name, content) in [("file-0", "one"), ("file-1", "two"), ("folder/file-5", "")] {
            fs::write(volume.folder.join(name), content).unwrap();
        }
        volume
    }

    #[test]
    fn a_listing_finds_each_difference() {
        let changes: [fn(&Path) -> io::Result<()>; 7] = [
            |folder| fs::write(folder.join("file-1"), "six"),
            |folder| fs::remove_file(folder.join("file-1")),
            |folder| fs::write(folder.join("file-9"), ""),
            |folder| fs::set_permissions(folder.join("file-0"), fs::Permissions::from_mode(0o400)),
            |folder| rewrite(&folder.join("file-0"), 7),
            |folder| {
                fs::remove_file(folder.join("file-1"))?;
                fs::hard_link(folder.join("file-0"), folder.join("file-1"))
            },
            |folder| File::open(folder.join(FOLDER))?.set_modified(std::time::UNIX_EPOCH),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let volume = volume(folder.path());
            let before = volume.listing().unwrap();
            assert_eq!(before.difference(&before.clone()), None);
            change(&volume.folder).unwrap();
            let after = volume.listing().unwrap();
            assert!(before.difference(&after).is_some(), "change {number}");
        }
    }

    #[test]
    fn the_files_follow_from_the_seed() {
        let contents = || {
            let folder = tempfile::tempdir().unwrap();
            let volume = Volume::new(folder.path().join("volume"), 3).unwrap();
            let mut random = Random::of(3, 0);
            for _ in 0..20 {
                volume.change(&mut random).unwrap();
            }
            let files = NAMES.map(|name| fs::read(volume.folder.join(name)).ok());
            (files, random.number())
        };
        assert_eq!(contents(), contents());
    }
}

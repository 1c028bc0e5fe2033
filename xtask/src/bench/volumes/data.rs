//! Volumes with files of one kind.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use backup_tests::history::random::Random;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Files of a volume with large files.
const LARGE_FILES: u32 = 4;
/// Files in one folder.
const FILES_PER_FOLDER: u32 = 500;
/// A change concerns one file or byte in this number.
const CHANGED_PART: u32 = 100;
/// One MiB in this number of a sparse file is data.
const SPARSE_PART: u64 = 32;
const WORDS: [&str; 16] = [
    "volume", "claim", "of", "the", "snapshot", "is", "ready", "pod", "node", "with", "error",
    "info", "2026", "ended", "request", "GET",
];

/// What is in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Files of 4 to 44 KiB, half of them random, half of them text.
    Small,
    /// Four files: two random, one text, one sparse.
    Large,
    /// Files of 15 to 20 bytes.
    Tiny,
}

impl Contents {
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Tiny => "tiny",
        }
    }

    pub fn text(self, amount: u32) -> String {
        match self {
            Self::Small => format!("{amount} files of 4 to 44 KiB"),
            Self::Large => format!("{LARGE_FILES} files of {amount} MiB"),
            Self::Tiny => format!("{amount} files of 15 to 20 bytes"),
        }
    }
}

pub struct Volume {
    pub folder: PathBuf,
    pub contents: Contents,
    /// Number of files; MiB of each for large ones.
    amount: u32,
}

impl Volume {
    /// Writes the files into a new folder.
    pub fn create(folder: &Path, contents: Contents, amount: u32) -> anyhow::Result<Self> {
        fs::create_dir(folder)?;
        let volume = Self {
            folder: folder.to_owned(),
            contents,
            amount,
        };
        let files = match contents {
            Contents::Small | Contents::Tiny => amount,
            Contents::Large => LARGE_FILES,
        };
        for number in 0..files {
            if number % FILES_PER_FOLDER == 0 {
                fs::create_dir(volume.subfolder(number))?;
            }
            let mut random = Random::of(u64::from(number), 0);
            match contents {
                Contents::Small | Contents::Tiny => volume.write(number, &mut random)?,
                Contents::Large => volume.write_large(number, &mut random)?,
            }
        }
        Ok(volume)
    }

    pub fn text(&self) -> String {
        self.contents.text(self.amount)
    }

    /// Changes one percent, in each round in another way.
    pub fn change(&self, round: u8) -> anyhow::Result<()> {
        let history = u64::from(round) + 1;
        match self.contents {
            Contents::Small | Contents::Tiny => {
                for number in (0..self.amount).step_by(CHANGED_PART as usize) {
                    self.write(number, &mut Random::of(u64::from(number), history))?;
                }
            }
            Contents::Large => {
                let size = u64::from(self.amount) * MIB;
                for number in 0..LARGE_FILES {
                    let mut random = Random::of(u64::from(number), history);
                    let place = random.below(size / 2);
                    let part = noise(&mut random, size / u64::from(CHANGED_PART));
                    let file = File::options().write(true).open(self.file(number))?;
                    file.write_all_at(&part, place)?;
                }
            }
        }
        Ok(())
    }

    /// Writes a small or tiny file.
    fn write(&self, number: u32, random: &mut Random) -> anyhow::Result<()> {
        let contents = if self.contents == Contents::Tiny {
            let length = 5 + random.below(6);
            let mut line = format!("{number:010}").into_bytes();
            line.extend(text(random, length));
            line
        } else {
            let length = 4 * KIB + random.below(40 * KIB);
            if number.is_multiple_of(2) {
                text(random, length)
            } else {
                noise(random, length)
            }
        };
        Ok(fs::write(self.file(number), contents)?)
    }

    fn write_large(&self, number: u32, random: &mut Random) -> anyhow::Result<()> {
        let file = File::create(self.file(number))?;
        let size = u64::from(self.amount) * MIB;
        if number == 3 {
            file.set_len(size)?;
            for place in (0..size).step_by(usize::try_from(SPARSE_PART * MIB)?) {
                file.write_all_at(&noise(random, MIB), place)?;
            }
            return Ok(());
        }
        let mut file = BufWriter::new(file);
        for _ in 0..self.amount {
            file.write_all(&if number == 2 {
                text(random, MIB)
            } else {
                noise(random, MIB)
            })?;
        }
        Ok(file.flush()?)
    }

    fn subfolder(&self, number: u32) -> PathBuf {
        let folder = number / FILES_PER_FOLDER;
        self.folder.join(format!("folder-{folder:04}"))
    }

    fn file(&self, number: u32) -> PathBuf {
        self.subfolder(number).join(format!("file-{number:06}"))
    }
}

/// Bytes that do not compress.
fn noise(random: &mut Random, length: u64) -> Vec<u8> {
    let words = std::iter::repeat_with(|| random.below(u64::MAX).to_le_bytes());
    bytes(words, length)
}

/// Words that compress to about a tenth.
fn text(random: &mut Random, length: u64) -> Vec<u8> {
    let words = std::iter::repeat_with(|| random.pick(&WORDS));
    bytes(words.flat_map(|word| [word, " "]), length)
}

fn bytes(parts: impl Iterator<Item = impl AsRef<[u8]>>, length: u64) -> Vec<u8> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(part.as_ref());
        if bytes.len() >= length {
            break;
        }
    }
    bytes.truncate(length);
    bytes
}

//! An index of the items in a backup's tarball with their positions: built once, and kept for later
//! commands.
//!
//! An index holds names and positions, not the contents of items. It is in kubectl's cache folder,
//! readable only by its owner. With it, an item is read from a few MiB around it. If the tarball
//! has changed, it is indexed again.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use backup_actions::restore::json::Object;
use backup_core::{
    api::{Backup, download_request::DownloadTargetKind},
    digest::short_sha256,
};
use backup_store::tarball::{Entry, Member, Place, decoded, places};
use kube::ResourceExt as _;
use serde::{Deserialize, Serialize};

use super::{Part, StoredFile, Version, piped};
use crate::{
    Terminal,
    error::{Problem, ProblemKind},
    home,
    session::Session,
};

/// The folder in the cache folder, which kubectl shares with its plugins.
const FOLDER: &str = "kubectl-backup";
/// To be changed with the format.
const ENDING: &str = ".index-1";
/// Maximum number of kept indexes; the oldest are deleted.
const MAX_INDEXES: usize = 32;

/// Identifies an item.
#[derive(Clone, Debug)]
pub(crate) struct ItemName {
    /// `deployments.apps`.
    pub(crate) group_resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

/// The index of one tarball.
pub(crate) struct ArchiveIndex {
    head: Head,
    /// A line for each item; the head has been read.
    lines: BufReader<File>,
    /// Whether an earlier command built it.
    is_kept: bool,
}

/// The first line of an index.
#[derive(Serialize, Deserialize)]
struct Head {
    members: Vec<Member>,
    /// `None` if the tarball cannot be read in parts.
    version: Option<Version>,
}

/// Resource, namespace, name, offset, size.
type Line = (String, Option<String>, String, u64, u64);

impl ArchiveIndex {
    /// Opens the index of an earlier command, or builds a new one.
    pub(crate) async fn open(
        session: &Session,
        backup: &Backup,
        terminal: &mut Terminal,
    ) -> Result<Self, Problem> {
        let kept = kept_file(backup, terminal).and_then(|path| File::open(path).ok());
        match kept.and_then(|file| Self::load(file, true)) {
            Some(index) => Ok(index),
            None => Self::read(session, backup, terminal).await,
        }
    }

    /// Reads and indexes a tarball.
    async fn read(
        session: &Session,
        backup: &Backup,
        terminal: &mut Terminal,
    ) -> Result<Self, Problem> {
        let file = StoredFile::of(DownloadTargetKind::BackupContents, &backup.metadata);
        let title = format!("the tarball of {}", backup.name_any());
        let (listed, read) = piped(
            session,
            &file,
            move |source| list(&title, source),
            |line| terminal.say(line),
        )
        .await?;
        let (mut items, members) = listed?;
        let head = Head {
            members,
            version: read.version,
        };
        let kept = match kept_file(backup, terminal).map(|path| keep(&path, &head, &mut items)) {
            Some(Err(error)) => {
                terminal.say(&format!(
                    "warning: what the tarball has is not kept for the next look: {error}"
                ));
                None
            }
            kept => kept.transpose().unwrap_or_default(),
        };
        let written = kept.map_or_else(|| written(tempfile::tempfile()?, &head, &mut items), Ok);
        Self::load(written.map_err(|error| unwritten(&error))?, false)
            .ok_or_else(|| Problem::other("the index of the tarball cannot be read"))
    }

    fn load(file: File, is_kept: bool) -> Option<Self> {
        let mut lines = BufReader::new(file);
        let mut head = String::new();
        lines.read_line(&mut head).ok()?;
        Some(Self {
            head: serde_json::from_str(&head).ok()?,
            lines,
            is_kept,
        })
    }

    /// All items with their positions, each once, in the order of the tarball.
    pub(crate) fn items(&mut self) -> impl Iterator<Item = Result<(ItemName, Place), Problem>> {
        (&mut self.lines).lines().map(|line| {
            let line: Line = serde_json::from_str(&line.map_err(|error| unread(&error))?)
                .map_err(|error| unread(&error))?;
            let (group_resource, namespace, name, offset, size) = line;
            Ok((
                ItemName {
                    group_resource,
                    namespace,
                    name,
                },
                Place { offset, size },
            ))
        })
    }
}

/// The first item of a backup for which `is` is true, with its JSON; `None` if there is none.
pub(crate) async fn object(
    session: &Session,
    backup: &Backup,
    is: impl Fn(&ItemName) -> bool,
    terminal: &mut Terminal,
) -> Result<Option<(ItemName, Object)>, Problem> {
    let mut index = ArchiveIndex::open(session, backup, terminal).await?;
    loop {
        let wanted = index
            .items()
            .find(|item| item.as_ref().map_or(true, |(name, _)| is(name)));
        let Some((item, place)) = wanted.transpose()? else {
            return Ok(None);
        };
        match read(session, backup, &index.head, place).await {
            Err(problem) if problem.kind == ProblemKind::Changed && index.is_kept => {
                index = ArchiveIndex::read(session, backup, terminal).await?;
            }
            Err(problem) => return Err(problem),
            Ok(json) => {
                let object = decoded(&json, &item.name).map_err(|why| {
                    Problem::bad_file(format!("{:?} in the tarball: {why}", item.name))
                })?;
                return Ok(Some((item, object)));
            }
        }
    }
}

async fn read(
    session: &Session,
    backup: &Backup,
    head: &Head,
    place: Place,
) -> Result<Vec<u8>, Problem> {
    let mut file = StoredFile::of(DownloadTargetKind::BackupContents, &backup.metadata);
    let mut first = Member::default();
    if let Some(version) = &head.version {
        let (member, end) = place.members(&head.members);
        first = member;
        let range = first.stored..end.unwrap_or(version.size);
        file = file.part(Part {
            range,
            of: version.clone(),
        });
    }
    let (json, _) = piped(
        session,
        &file,
        move |source| place.read(source, first),
        |_| (),
    )
    .await?;
    json.map_err(|error| {
        Problem::bad_file(format!(
            "the tarball of {} cannot be read: {error}",
            backup.name_any()
        ))
    })
}

/// Reads a tarball. Returns a file with a line for each item, and the positions of the compressed
/// members.
fn list(title: &str, source: impl io::Read) -> Result<(File, Vec<Member>), Problem> {
    let mut items = BufWriter::new(tempfile::tempfile().map_err(|error| unwritten(&error))?);
    let mut written = Ok(());
    let members = places(title, source, |entry, Place { offset, size }| {
        if let (
            Entry::Item {
                group_resource,
                namespace,
                name,
            },
            Ok(()),
        ) = (entry, &written)
        {
            let line = (group_resource, namespace, name, offset, size);
            let line = serde_json::to_writer(&mut items, &line).map_err(io::Error::from);
            written = line.and_then(|()| items.write_all(b"\n"));
        }
        Ok(())
    });
    let members = members.map_err(|error| Problem::bad_file(error.to_string()))?;
    let items = written.and_then(|()| items.into_inner().map_err(io::IntoInnerError::into_error));
    Ok((items.map_err(|error| unwritten(&error))?, members))
}

/// Writes an index, and seeks to its beginning.
fn written(mut file: File, head: &Head, items: &mut File) -> io::Result<File> {
    serde_json::to_writer(&mut file, head)?;
    file.write_all(b"\n")?;
    items.rewind()?;
    io::copy(items, &mut file)?;
    file.rewind()?;
    Ok(file)
}

/// The path of a backup's index; `None` if there is no home folder.
fn kept_file(backup: &Backup, terminal: &Terminal) -> Option<PathBuf> {
    let cache = terminal
        .var("KUBECACHEDIR")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from);
    let cache =
        cache.or_else(|| home::home(terminal).map(|home| home.join(".kube").join("cache")))?;
    // The uid is hashed: a cluster could send one that is dangerous as a file name.
    let uid = short_sha256(backup.uid()?.as_bytes(), 32);
    Some(cache.join(FOLDER).join(uid + ENDING))
}

/// Stores an index under this path, completely or not at all, and deletes the oldest indexes.
fn keep(path: &Path, head: &Head, items: &mut File) -> io::Result<File> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)?;
    let (file, unnamed) = tempfile::NamedTempFile::new_in(folder)?.into_parts();
    let file = written(file, head, items)?;
    unnamed.persist(path).map_err(|error| error.error)?;
    let mut all: Vec<_> = fs::read_dir(folder)?
        .flatten()
        .filter(|one| one.file_name().to_string_lossy().ends_with(ENDING))
        .filter_map(|one| Some((one.metadata().ok()?.modified().ok()?, one.path())))
        .collect();
    all.sort();
    let too_many = all.len().saturating_sub(MAX_INDEXES);
    // Another command may have deleted it.
    all.iter()
        .take(too_many)
        .for_each(|(_, path)| drop(fs::remove_file(path)));
    Ok(file)
}

fn unread(error: &dyn std::fmt::Display) -> Problem {
    Problem::other(format!(
        "the index that was kept of the tarball cannot be read: {error}"
    ))
    .with_remedy(format!(
        "Remove the folder {FOLDER} in ~/.kube/cache (or $KUBECACHEDIR), and try again."
    ))
}

fn unwritten(error: &io::Error) -> Problem {
    Problem::other(format!("cannot write a temporary file: {error}"))
        .with_remedy("Make room in the temporary folder, or choose another one with TMPDIR.")
}

//! Contents of the installations' buckets, read from the S3 server's disk: without any proxy or
//! fault.

use std::path::PathBuf;

use anyhow::Context as _;
use serde_json::Value;

use super::{
    record::StoredEnd,
    whose::{SECOND, installation},
};
use crate::{
    World,
    archive::tarball,
    world::{BUCKET, other_cluster},
};

/// The folders of both buckets.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    first: PathBuf,
    second: PathBuf,
}

impl Buckets {
    pub(crate) fn of(world: &World) -> anyhow::Result<Self> {
        let s3 = world.s3()?;
        Ok(Self {
            first: s3.files(BUCKET),
            second: s3.files(SECOND),
        })
    }

    fn of_installation(&self, home: &str) -> &PathBuf {
        if home == SECOND {
            &self.second
        } else {
            &self.first
        }
    }

    /// The stored state of a backup of an installation.
    pub(crate) fn stored(&self, home: &str, backup: &str) -> StoredEnd {
        let folder = self.of_installation(home).join("backups").join(backup);
        let metadata = std::fs::read(folder.join("velero-backup.json")).unwrap_or_default();
        let metadata: Value = serde_json::from_slice(&metadata).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let contents = std::fs::metadata(folder.join(format!("{backup}.tar.gz")));
        StoredEnd {
            uid: text(&metadata["metadata"]["uid"]),
            phase: text(&metadata["status"]["phase"]),
            contents: contents.is_ok_and(|file| file.len() > 0),
        }
    }

    /// Puts a backup into the bucket of its installation, as another cluster would have, unless
    /// there is one.
    pub(crate) fn import(&self, backup: &str, phase: &str) -> anyhow::Result<()> {
        let folder = self
            .of_installation(installation(backup))
            .join("backups")
            .join(backup);
        let write = |name: &str, bytes: &[u8]| {
            std::fs::write(folder.join(name), bytes)
                .with_context(|| format!("write {name} of {backup}"))
        };
        if folder.exists() {
            return Ok(());
        }
        std::fs::create_dir_all(&folder)?;
        write(
            &format!("{backup}.tar.gz"),
            &tarball(&[("metadata/version", b"1.1.0\n")])?,
        )?;
        write(
            "velero-backup.json",
            other_cluster::metadata(backup, phase)
                .to_string()
                .as_bytes(),
        )
    }

    /// Removes the folders whose names begin with this prefix.
    pub(crate) fn sweep(&self, prefix: &str) {
        for folder in [&self.first, &self.second]
            .map(|bucket| [bucket.join("backups"), bucket.join("restores")])
        {
            let entries = folder
                .into_iter()
                .filter_map(|folder| std::fs::read_dir(folder).ok())
                .flatten();
            for entry in entries.filter_map(Result::ok) {
                if entry.file_name().to_string_lossy().starts_with(prefix) {
                    // Files written at the same time are removed with the next history, or with the
                    // world.
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
        }
    }
}

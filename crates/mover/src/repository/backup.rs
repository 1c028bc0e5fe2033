//! Saving of a volume.

use std::path::{Path, PathBuf};

use rustic_core::{
    BackupOptions, IndexedIdsStatus, Repository as RusticRepository, SnapshotOptions,
    repofile::SnapshotFile,
};

use super::{
    Job, Report, Repository, chunking, device_source::DeviceSource, errors::OrMoverError as _,
    record::VolumeRecord, session::Session, source::FolderSource,
};
use crate::MoverError;

/// What is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder with all that is in it, such as the mount of a volume.
    Folder(PathBuf),
    /// A block device, or a file in its place.
    Device(PathBuf),
}

/// How a volume is saved. Host, label and path are the names under which the next backup finds its
/// predecessor: only files that differ from it are read.
#[derive(Clone, Debug)]
pub struct BackupRequest {
    pub source: Source,
    pub host: String,
    pub label: String,
    /// The path that the snapshot shows; it does not say where the volume is mounted now.
    pub path: PathBuf,
    pub tags: Vec<String>,
    /// Folder of the repository in which the snapshot's id is noted before the snapshot is written
    /// ([`backup_core::data_movement::snapshot_notes`]).
    pub notes: Option<String>,
    /// Reads all files, also those that look like in the snapshot before.
    pub read_all: bool,
}

pub(super) fn backup(
    repository: &Repository,
    request: &BackupRequest,
    job: &Job,
) -> Result<Report, MoverError> {
    let session = Session::new(repository, job, None).noting(request.notes.clone());
    match &request.source {
        Source::Folder(folder) => {
            let mut source = FolderSource::open(folder, job)?;
            let record = VolumeRecord::folder(&source.root_attributes()?);
            let mut opened = open(&session)?;
            if let Some(limit) = chunking::whole_file_limit(opened.config())
                && source.has_only_files_below(limit)
            {
                chunking::cut_by_size(&mut opened, session.url())?;
            }
            let saved = opened
                .archive(
                    &options(request.read_all),
                    &source,
                    snapshot(request, &record, session.url())?,
                    std::slice::from_ref(&request.path),
                )
                .ours(session.url())?;
            let mut report = report(&saved);
            let expected = source.expected();
            if report.files != expected {
                // rustic_core logs an error of an entry and continues; ours are recorded, so this
                // is another.
                let lost = expected.abs_diff(report.files);
                let reason = format!("{lost} entries are missing in the snapshot");
                source.failures.record(Path::new(""), &reason);
            }
            report.failures = source.failures.collected();
            Ok(report)
        }
        Source::Device(device) => {
            let source = DeviceSource::open(device, job)?;
            let opened = open(&session)?;
            // A device has neither size nor times: it would always look unchanged.
            let saved = opened
                .archive(
                    &options(true),
                    &source,
                    snapshot(request, &VolumeRecord::block(), session.url())?,
                    std::slice::from_ref(&request.path),
                )
                .ours(session.url())?;
            Ok(report(&saved))
        }
    }
}

fn open(session: &Session<'_>) -> Result<RusticRepository<IndexedIdsStatus>, MoverError> {
    session.open()?.to_indexed_ids().ours(session.url())
}

fn options(read_all: bool) -> BackupOptions {
    let mut options = BackupOptions::default();
    options.parent_opts.force = read_all;
    options
}

fn snapshot(
    request: &BackupRequest,
    record: &VolumeRecord,
    url: &str,
) -> Result<SnapshotFile, MoverError> {
    let mut options = SnapshotOptions::default();
    options.host = Some(request.host.clone());
    options.label = Some(request.label.clone());
    options.description = Some(record.text());
    for tag in &request.tags {
        options = options.add_tags(tag).ours(url)?;
    }
    options.to_snapshot().ours(url)
}

fn report(saved: &SnapshotFile) -> Report {
    let summary = saved.summary.as_ref();
    Report {
        snapshot: Some(saved.id.to_hex().to_string()),
        files: summary.map_or(0, |summary| summary.total_files_processed),
        bytes: summary.map_or(0, |summary| summary.total_bytes_processed),
        new_bytes: summary.map_or(0, |summary| summary.data_added_packed),
        ..Report::default()
    }
}

#[cfg(test)]
mod tests;

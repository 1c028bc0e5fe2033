//! Checks whether the files stored under the name of a backup belong to it. A folder is identified
//! by its name only, so its files may belong to a backup of another cluster that shares the bucket,
//! or may have been copied by hand.

use backup_core::api::Backup;
use backup_store::{Contents, Limits, Location, Scope, StoreError};
use kube::ResourceExt as _;

use super::report::Report;
use crate::job::worker::WorkerError;

/// Reads the metadata, which is written last and deleted first: without it the other files are not,
/// or no longer, a backup. Not retryable if the files belong to another backup, or their owner
/// cannot be determined.
pub(super) async fn check_metadata(store: &Location, backup: &Backup) -> Result<(), WorkerError> {
    let name = backup.name_any();

    let repair = format!(
        "if {name}.tar.gz is its own, put back velero-backup.json, by `kubectl get backups.velero.io {name} -o json`, and restore \
         again"
    );
    let stored = match store.read_metadata(&name).await {
        Ok(Some(stored)) => stored,
        Ok(None) => {
            return Err(refused(format!(
                "its metadata, velero-backup.json, is not there; {repair}"
            )));
        }
        Err(error @ StoreError::Corrupt { .. }) => {
            return Err(refused(format!("{error}; {repair}")));
        }
        Err(error) => return Err(error.into()),
    };
    if is_another(backup, &stored) {
        return Err(refused(format!(
            "the files stored under its name are those of another backup, which began at {}; delete this one, and synchronise \
             the location again",
            started(&stored)
        )));
    }
    Ok(())
}

fn refused(reason: String) -> WorkerError {
    WorkerError::Blocked {
        reason,
        retryable: false,
    }
}

/// Whether the stored metadata belongs to another backup. A backup that was synchronised from
/// another cluster has another uid here, but the same start time.
pub(crate) fn is_another(backup: &Backup, stored: &Backup) -> bool {
    backup.uid() != stored.uid()
        && start_second(backup)
            .zip(start_second(stored))
            .is_none_or(|(here, there)| here != there)
}

/// The start time of a backup (seconds since 1970).
fn start_second(backup: &Backup) -> Option<i64> {
    let start = backup.status.start_timestamp.as_ref()?;
    Some(start.0.as_second())
}

fn started(backup: &Backup) -> String {
    backup
        .status
        .start_timestamp
        .as_ref()
        .map_or_else(|| "an unknown time".to_owned(), |time| time.0.to_string())
}

/// A warning if the tarball may be older than the last one of its backup: Velero publishes that a
/// backup is Completed before it stores the tarball with the changes of operations, and does so
/// even if that fails. Must be called before the tarball is read.
pub(super) async fn earlier_tarball(
    store: &Location,
    backup: &Backup,
) -> Result<Option<String>, StoreError> {
    if backup.status.backup_item_operations_attempted == 0 {
        return Ok(None);
    }
    let name = backup.name_any();
    let newer = store.inspect_folder(&name).await?.newer_metadata;
    Ok(newer.map(|written| {
        format!(
            "the tarball of backup {name:?} is older than its metadata, which was written at {written}: Velero stores it once more \
             when the operations of a backup have ended, so what these have changed in items may be missing, unless the files were \
             copied since"
        )
    }))
}

/// Compares a tarball with the list of its backup, and warns of items that are not listed.
pub(super) async fn check_list(
    store: &Location,
    name: &str,
    contents: &Contents,
    limits: Limits,
    report: &Report,
) -> Result<(), StoreError> {
    match store.listed_names(name, limits.items).await {
        Ok(Some(listed)) => {
            if let Some(unlisted) = listed.missing_of(contents)? {
                let message = format!(
                    "{} items of the tarball are not in the list of backup {name:?}, such as {}: a plugin has renamed them, or the \
                     tarball is that of another backup; `kubectl backup verify {name}` compares them",
                    unlisted.count, unlisted.example
                );
                report.warn(Scope::Velero, message);
            }
        }
        Ok(None) => warn_unchecked(
            report,
            name,
            &format!("{name}-resource-list.json.gz is not there"),
        ),
        Err(error @ StoreError::Corrupt { .. }) => {
            warn_unchecked(report, name, &error.to_string());
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

fn warn_unchecked(report: &Report, name: &str, why: &str) {
    let message =
        format!("whether the tarball of backup {name:?} is its own was not checked: {why}");
    report.warn(Scope::Velero, message);
}

#[cfg(test)]
mod tests {
    use std::fs;

    use backup_core::api::BackupSpec;
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[tokio::test]
    async fn a_tarball_that_is_older_than_the_metadata_of_velero_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let store =
            Location::open(&crate::testing::local_location(folder.path()), None, None).unwrap();
        let of = folder.path().join("backups/b");
        fs::create_dir_all(&of).unwrap();
        let write = |file: &str, second: u64| {
            let path = of.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(second);
            fs::File::create(path).unwrap().set_modified(at).unwrap();
        };
        let mut backup = Backup::new("b", BackupSpec::default());
        backup.status.backup_item_operations_attempted = 1;
        write("velero-backup.json", 2000);
        for (tarball, earlier) in [(1000, true), (2000, false), (3000, false)] {
            write("b.tar.gz", tarball);
            let said = earlier_tarball(&store, &backup).await.unwrap();
            assert_eq!(
                said.is_some_and(|text| text.contains("1970-01-01T00:33:20Z")),
                earlier,
                "{tarball}"
            );
        }
        write("b.tar.gz", 1000);
        write(".private/owner", 1000);
        assert_eq!(
            earlier_tarball(&store, &backup).await.unwrap(),
            None,
            "ours are stored before their metadata"
        );
        fs::remove_file(of.join(".private/owner")).unwrap();
        backup.status.backup_item_operations_attempted = 0;
        assert_eq!(
            earlier_tarball(&store, &backup).await.unwrap(),
            None,
            "Velero stores those once"
        );
    }

    #[test]
    fn a_backup_is_known_by_its_uid_or_by_when_it_began() {
        let backup = |uid: &str, began: Option<i64>| {
            let mut backup = Backup::new("b", BackupSpec::default());
            backup.metadata.uid = Some(uid.to_owned());
            backup.status.start_timestamp =
                began.map(|second| Time(Timestamp::from_millisecond(second * 1000 + 7).unwrap()));
            backup
        };
        for (here, stored, another) in [
            (("u", Some(1)), ("u", Some(1)), false),
            (("u", None), ("u", Some(1)), false),
            (("here", Some(1)), ("there", Some(1)), false),
            (("here", Some(1)), ("there", Some(2)), true),
            (("here", Some(1)), ("there", None), true),
            (("here", None), ("there", None), true),
        ] {
            assert_eq!(
                is_another(&backup(here.0, here.1), &backup(stored.0, stored.1)),
                another
            );
        }
    }
}

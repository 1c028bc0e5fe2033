use std::fs;

use rustic_core::jiff::SignedDuration;

use super::*;
use crate::{ExistingFiles, RestoreRequest};

/// Hours by which a clock was wrong.
const JUMP_HOURS: i64 = 10_000;

/// Saves the folder as if the clock was ahead.
fn save_ahead(repository: &Repository, request: &BackupRequest, folder: &Path) {
    let job = Job::default();
    let session = Session::new(repository, &job, None);
    let source = FolderSource::open(folder, &job).unwrap();
    let record = VolumeRecord::folder(&source.root_attributes().unwrap());
    let mut ahead = snapshot(request, &record, session.url()).unwrap();
    ahead.time = ahead
        .time
        .saturating_add(SignedDuration::from_hours(JUMP_HOURS));
    let paths = std::slice::from_ref(&request.path);
    let opened = open(&session).unwrap();
    opened
        .archive(&options(false), &source, ahead, paths)
        .unwrap();
}

fn save_and_restore_around_a_jump() {
    let folder = tempfile::tempdir().unwrap();
    let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
    for folder in [&source, &target] {
        fs::create_dir(folder).unwrap();
    }
    let repository = Repository::in_memory();
    repository.init(&Job::default()).unwrap();
    let request = BackupRequest {
        source: Source::Folder(source.clone()),
        host: "shop".to_owned(),
        label: "claim-1".to_owned(),
        path: "/".into(),
        tags: Vec::new(),
        notes: None,
        read_all: false,
    };
    fs::write(source.join("steady"), "steady").unwrap();
    fs::write(source.join("file"), "first.").unwrap();
    save_ahead(&repository, &request, &source);
    for contents in ["second", "third."] {
        fs::write(source.join("file"), contents).unwrap();
        let report = repository.backup(&request, &Job::default()).unwrap();
        assert_eq!(report.failures.count, 0, "{:?}", report.failures);
        let restore = RestoreRequest {
            snapshot: report.snapshot.unwrap(),
            target: target.clone(),
            existing: ExistingFiles::Replace,
        };
        repository.restore(&restore, &Job::default()).unwrap();
        let restored = |name: &str| fs::read_to_string(target.join(name)).unwrap();
        assert_eq!(restored("file"), contents);
        assert_eq!(restored("steady"), "steady");
    }
}

/// The snapshot from the future stays the predecessor of all others: a file counts as unchanged
/// only if its size, times and inode are those in there.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_was_ahead_hides_no_change() {
    let tested = tokio::task::spawn_blocking(save_and_restore_around_a_jump);
    tested.await.unwrap();
}

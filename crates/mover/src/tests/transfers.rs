//! Bounds on transfers, and their order.

use std::{
    num::NonZeroU64,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use super::*;
use crate::{CheckRequest, DataToRead};

#[test]
fn uploads_run_side_by_side_within_their_bound() {
    let mut world = World::new();
    world.limits.parallel_uploads = 3;
    for number in 0..6_u64 {
        world.write(&format!("file-{number}"), noise(number, 16 << 20));
    }
    world.store.delay.store(1500, Ordering::SeqCst);
    world.save();
    let most = world.store.packs_written.take_most();
    assert!((2..=3).contains(&most), "{most}");
}

#[test]
fn an_index_is_written_after_all_its_packs_and_a_snapshot_last() {
    let world = World::new();
    for number in 0..4_u64 {
        world.write(&format!("file-{number}"), noise(number, 10 << 20));
    }
    world.store.delay.store(300, Ordering::SeqCst);
    world.save();
    let written = world.store.written.lock().clone();
    let packs = written.iter().filter(|key| key.contains("/data/")).count();
    assert!(packs >= 4, "three of data, one of folders: {written:?}");
    let last_pack = written.iter().rposition(|key| key.contains("/data/"));
    let first_index = written.iter().position(|key| key.contains("/index/"));
    assert!(last_pack < first_index, "{written:?}");
    assert!(written.last().unwrap().contains("/snapshots/"));
}

/// The pod may be gone before its outcome is read: then only the note names the snapshot.
#[test]
fn a_snapshot_is_noted_before_it_is_written() {
    let world = World::new();
    world.write("file", "contents");
    let request = BackupRequest {
        notes: Some("uploads/uid-b/uid-1".to_owned()),
        ..world.request()
    };
    let report = world.run(|repository| repository.backup(&request, &Job::default()));
    let snapshot = report.unwrap().snapshot.unwrap();
    let written = world.store.written.lock().clone();
    let repository = "backups/restic/shop";
    let expected = [
        format!("{repository}/uploads/uid-b/uid-1/{snapshot}"),
        format!("{repository}/snapshots/{snapshot}"),
    ];
    assert_eq!(written[written.len() - 2..], expected);
    // Notes are no part of the repository.
    let restored = world.restore(&snapshot);
    assert_same(world.source.path(), restored.path());
    let check = CheckRequest {
        read: DataToRead::Everything,
        ..CheckRequest::default()
    };
    let report = world.run(|repository| repository.check(&check, &Job::default()));
    assert_eq!(report.unwrap().failures.count, 0);
}

/// So object lock, and credentials that may neither delete nor overwrite, do not prevent it.
#[test]
fn a_backup_removes_nothing_and_writes_no_key_twice() {
    let world = World::new();
    let request = BackupRequest {
        notes: Some("uploads/uid-b/uid-1".to_owned()),
        ..world.request()
    };
    let mut known = world.runtime.block_on(world.store.keys());
    world.write("steady", noise(1, 6 << 20));
    for number in 2..5_u64 {
        // A new file, one that changes, and one that goes.
        world.write("changing", noise(number, 20 << 20));
        world.write(&format!("file-{number}"), noise(number, 1 << 20));
        let _ = fs::remove_file(world.path(&format!("file-{}", number - 1)));
        let report = world.run(|repository| repository.backup(&request, &Job::default()));
        assert_eq!(report.unwrap().failures.count, 0);
    }
    let written = world.store.written.lock().clone();
    assert!(written.len() > 12, "{written:?}");
    for key in written {
        assert!(!known.contains(&key), "{key} was overwritten");
        known.push(key);
    }
    let removed = world.store.removed.lock().clone();
    assert!(removed.is_empty(), "{removed:?}");
}

#[test]
fn a_restore_reads_no_more_at_once_than_its_memory_allows() {
    let mut world = World::new();
    for number in 0..12_u64 {
        world.write(&format!("file-{number:02}"), noise(number, 8 << 20));
    }
    let snapshot = world.save();
    world.limits.read_memory = 1 << 20;
    world.store.delay.store(50, Ordering::SeqCst);
    world.store.packs_read.take_most();
    let restored = world.restore(&snapshot);
    assert_eq!(world.store.packs_read.take_most(), 1);
    assert_same(world.source.path(), restored.path());
    // With enough memory, packs are read side by side.
    world.limits.read_memory = 1 << 30;
    world.restore(&snapshot);
    assert!(world.store.packs_read.take_most() > 2);
}

#[test]
fn folders_are_read_with_few_requests() {
    let world = World::new();
    for folder in 0..200 {
        fs::create_dir(world.path(&format!("folder-{folder}"))).unwrap();
        world.write(&format!("folder-{folder}/file"), format!("{folder}"));
    }
    world.save();
    world.store.requests.store(0, Ordering::SeqCst);
    world.save();
    let requests = world.store.requests.load(Ordering::SeqCst);
    assert!(requests < 20, "{requests} requests");
}

#[test]
fn a_limit_of_bandwidth_is_kept() {
    let mut world = World::new();
    world.limits.upload_rate = NonZeroU64::new(10 << 20);
    for number in 0..3_u64 {
        world.write(&format!("file-{number}"), noise(number, 16 << 20));
    }
    let begun = Instant::now();
    world.save();
    // Of 48 MiB, the last pack is not waited for.
    assert!(
        begun.elapsed() > Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

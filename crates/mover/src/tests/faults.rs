//! What goes wrong is an error, or is counted and named.

use std::{
    fs,
    sync::{Barrier, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::*;

/// A second, and as much for a machine that is busy.
const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

#[test]
fn a_repository_that_has_lost_its_config_is_not_made_again() {
    use object_store::ObjectStoreExt as _;
    let world = World::new();
    world.write("a", "a");
    world.save();
    let config = "backups/restic/shop/config".into();
    world
        .runtime
        .block_on(world.store.inner.delete(&config))
        .unwrap();
    let made = world.run(|repository| repository.init(&Job::default()));
    assert_eq!(made.unwrap_err().category(), "config_missing");
}

#[test]
fn a_file_that_changes_during_the_backup_is_named() {
    let world = World::new();
    world.write("steady", noise(1, 100_000));
    world.write("growing", noise(2, 24 << 20));
    let growing = world.path("growing");
    let stop = StopFlag::default();
    let writing = stop.clone();
    let writer = thread::spawn(move || {
        use std::io::Write as _;
        let mut file = fs::File::options().append(true).open(growing).unwrap();
        while !writing.is_set() {
            file.write_all(b"more").unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let report = world.backup().unwrap();
    stop.cancel();
    writer.join().unwrap();
    assert_eq!(report.failures.count, 1, "{:?}", report.failures);
    assert_eq!(report.failures.first[0].path, "growing");
    assert!(report.failures.first[0].reason.contains("changed"));
    assert_eq!(report.files, 2, "it is saved nevertheless");
}

#[test]
fn a_failed_upload_stops_the_backup_at_once() {
    let world = World::new();
    for number in 0..30_u64 {
        world.write(&format!("file-{number:02}"), noise(number, 8 << 20));
    }
    world.store.refuses_packs.store(true, Ordering::SeqCst);
    let job = Job::default();
    let error = world.run(|repository| repository.backup(&world.request(), &job));
    let error = error.unwrap_err();
    assert_eq!(error.category(), "store");
    assert!(error.to_string().contains("no more"), "{error}");
    let progress = job.progress.snapshot();
    assert!(
        progress.bytes < 150 << 20,
        "{} of {} bytes were read",
        progress.bytes,
        240 << 20
    );
    let keys = world.runtime.block_on(world.store.keys());
    assert!(
        !keys.iter().any(|key| key.contains("/snapshots/")),
        "{keys:?}"
    );
}

#[test]
fn a_store_that_goes_away_for_a_while_is_waited_for() {
    let world = World::new();
    world.write("file", noise(1, 1 << 20));
    world.store.outages.store(3, Ordering::SeqCst);
    let snapshot = world.save();
    world.store.outages.store(3, Ordering::SeqCst);
    let restored = world.restore(&snapshot);
    assert_same(world.source.path(), restored.path());
}

#[test]
fn a_store_that_stays_away_is_an_error_in_time() {
    let mut world = World::new();
    world.limits.retry_budget = Duration::from_secs(1);
    world.store.outages.store(usize::MAX, Ordering::SeqCst);
    let begun = Instant::now();
    let error = world.backup().unwrap_err();
    assert_eq!(error.category(), "store");
    let message = error.to_string();
    let first = "could not look up memory://backups/restic/shop/config: ";
    assert!(message.starts_with(first), "{message}");
    for part in [
        "connection refused; it was tried again for ",
        "reach the store",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn two_inits_at_once_make_one_repository_that_opens() {
    for _ in 0..2 {
        let world = World::without_repository();
        let barrier = Barrier::new(2);
        let init = || {
            let job = Job::default();
            barrier.wait();
            world.run(|repository| repository.init(&job))
        };
        let ends = thread::scope(|scope| {
            let other = scope.spawn(init);
            [init(), other.join().unwrap()]
        });
        let made = ends.iter().filter(|end| end.is_ok()).count();
        assert_eq!(made, 1, "{ends:?}");
        world.write("file", "contents");
        let restored = world.restore(&world.save());
        assert_same(world.source.path(), restored.path());
    }
}

#[test]
fn a_key_of_an_interrupted_init_does_not_lock_the_repository() {
    // Names of keys are random: one of the orders has the wrong key first.
    let world = World::new();
    world.write("file", "contents");
    for _ in 0..3 {
        let other = World::without_repository();
        other
            .run(|repository| repository.init(&Job::default()))
            .unwrap();
        let keys = other.runtime.block_on(other.store.keys());
        let key = keys.iter().find(|key| key.contains("/keys/")).unwrap();
        world.runtime.block_on(async {
            use object_store::ObjectStoreExt as _;
            let path = object_store::path::Path::from(key.as_str());
            let bytes = other
                .store
                .inner
                .get(&path)
                .await
                .unwrap()
                .bytes()
                .await
                .unwrap();
            world.store.inner.put(&path, bytes.into()).await.unwrap();
        });
    }
    world.save();
}

#[test]
fn an_init_of_a_repository_that_exists_changes_nothing() {
    let world = World::new();
    let before = world.runtime.block_on(world.store.keys());
    let error = world.run(|repository| repository.init(&Job::default()));
    assert_eq!(error.unwrap_err().category(), "repository_exists");
    assert_eq!(world.runtime.block_on(world.store.keys()), before);
}

#[test]
fn a_wrong_password_and_a_missing_repository_are_told_apart() {
    let world = World::new();
    let _entered = world.runtime.enter();
    let wrong = world.repository_with("wrong");
    let error = wrong.backup(&world.request(), &Job::default()).unwrap_err();
    assert_eq!(error.category(), "wrong_password");
    assert!(!error.to_string().contains("wrong ("), "{error}");
    let missing = World::without_repository();
    assert_eq!(
        missing.backup().unwrap_err().category(),
        "repository_missing"
    );
}

#[test]
fn a_cancelled_backup_ends_within_a_second_without_snapshot() {
    let world = World::new();
    for number in 0..20_u64 {
        world.write(&format!("file-{number:02}"), noise(number, 8 << 20));
    }
    world.store.delay.store(300, Ordering::SeqCst);
    let job = Job::default();
    let stop = job.stop.clone();
    let progress = job.progress.clone();
    let watcher = thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_mins(1);
        while progress.snapshot().bytes < 20 << 20 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        stop.cancel();
        Instant::now()
    });
    let error = world.run(|repository| repository.backup(&world.request(), &job));
    let ended = Instant::now();
    let cancelled = watcher.join().unwrap();
    assert_eq!(error.unwrap_err(), MoverError::Cancelled);
    let took = ended.duration_since(cancelled);
    assert!(took < CANCELLED_WITHIN, "{took:?}");
    let keys = world.runtime.block_on(world.store.keys());
    assert!(!keys.iter().any(|key| key.contains("/snapshots/")));
}

#[test]
fn a_cancelled_restore_ends_within_a_second() {
    let world = World::new();
    for number in 0..20_u64 {
        world.write(&format!("file-{number:02}"), noise(number, 4 << 20));
    }
    let snapshot = world.save();
    world.store.delay.store(500, Ordering::SeqCst);
    let job = Job::default();
    let stop = job.stop.clone();
    let progress = job.progress.clone();
    let watcher = thread::spawn(move || {
        let deadline = Instant::now() + Duration::from_mins(1);
        while progress.snapshot().bytes == 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        stop.cancel();
        Instant::now()
    });
    let target = tempfile::tempdir().unwrap();
    let request = RestoreRequest {
        snapshot,
        target: target.path().to_owned(),
        existing: ExistingFiles::Refuse,
    };
    let error = world.run(|repository| repository.restore(&request, &job));
    let took = Instant::now().duration_since(watcher.join().unwrap());
    assert_eq!(error.unwrap_err(), MoverError::Cancelled);
    assert!(took < CANCELLED_WITHIN, "{took:?}");
}

#[test]
fn a_source_that_does_not_exist_is_an_error() {
    let world = World::new();
    let request = BackupRequest {
        source: Source::Folder("/does/not/exist".into()),
        ..world.request()
    };
    let error = world.run(|repository| repository.backup(&request, &Job::default()));
    assert_eq!(error.unwrap_err().category(), "source");
}

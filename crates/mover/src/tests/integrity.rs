//! Checks and maintenance.

use std::time::Duration;

use backup_core::data_movement::{CheckReport, MaintainReport};

use super::*;
use crate::{CheckRequest, DataPart, DataToRead, MaintainRequest};

fn check(world: &World, read_data: bool) -> CheckReport {
    let read = if read_data {
        DataToRead::Everything
    } else {
        DataToRead::Nothing
    };
    check_of(
        world,
        &CheckRequest {
            read,
            ..CheckRequest::default()
        },
    )
}

fn check_of(world: &World, request: &CheckRequest) -> CheckReport {
    world
        .run(|repository| repository.check(request, &Job::default()))
        .unwrap()
}

fn prune(world: &World, removal_delay: Duration) -> MaintainReport {
    let request = MaintainRequest {
        forget: Vec::new(),
        prune: true,
        removal_delay,
    };
    world
        .run(|repository| repository.maintain(&request, &Job::default()))
        .unwrap()
}

fn forget(world: &World, snapshot: &str) {
    assert_eq!(forgotten(world, snapshot), 1);
}

/// Number of snapshots that were forgotten.
fn forgotten(world: &World, snapshot: &str) -> u64 {
    let request = MaintainRequest {
        forget: vec![snapshot.to_owned()],
        prune: false,
        removal_delay: Duration::from_hours(1),
    };
    let report = world
        .run(|repository| repository.maintain(&request, &Job::default()))
        .unwrap();
    report.forgotten
}

fn packs(world: &World) -> Vec<String> {
    objects_below(world, "/data/")
}

fn objects_below(world: &World, folder: &str) -> Vec<String> {
    let mut keys = world.runtime.block_on(world.store.keys());
    keys.retain(|key| key.contains(folder));
    keys
}

/// The packs that this backup adds.
fn packs_of_backup(world: &World) -> (String, Vec<String>) {
    let before = packs(world);
    let snapshot = world.save();
    let mut added = packs(world);
    added.retain(|key| !before.contains(key));
    (snapshot, added)
}

/// The two packs of a backup by size: the larger one holds data, the other one folders.
fn by_size(world: &World, packs: Vec<String>) -> [String; 2] {
    let mut sizes: Vec<_> = packs
        .into_iter()
        .map(|key| (world.runtime.block_on(world.store.size(&key)), key))
        .collect();
    sizes.sort();
    let keys: Vec<String> = sizes.into_iter().map(|(_, key)| key).collect();
    keys.try_into().unwrap()
}

fn remove(world: &World, key: &str) {
    use object_store::ObjectStoreExt as _;
    let path = object_store::path::Path::from(key);
    let removed = world.runtime.block_on(world.store.inner.delete(&path));
    removed.unwrap();
}

/// The key of a pack below the repository.
fn below_repository(key: &str) -> &str {
    key.strip_prefix("backups/restic/shop/").unwrap()
}

/// Asserts that an error says in one line what is damaged, and what to do.
fn assert_names_damage(error: &MoverError, object: &str) {
    assert_eq!(error.category(), "damaged", "{error}");
    let message = error.to_string();
    for part in [
        object,
        "Volumes that do not need this data can be restored",
        "`kubectl backup repositories`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    for part in ["acktrace", "BACKTRACE", "rustic", "github", "\n"] {
        assert!(!message.contains(part), "{part}: {message}");
    }
    assert!(message.chars().count() < 400, "{message}");
}

#[test]
fn a_whole_repository_has_no_findings() {
    let world = World::new();
    world.write("file", noise(1, 3 << 20));
    world.save();
    let report = check(&world, true);
    assert_eq!(report.failures.count, 0, "{:?}", report.failures);
    assert_eq!(report.orphaned_packs, 0);
    assert!(
        report.packs >= 2 && report.read_bytes > 3 << 20,
        "{report:?}"
    );
}

#[test]
fn a_damaged_pack_is_named_with_the_snapshots_that_need_it() {
    let world = World::new();
    world.write("first", noise(1, 2 << 20));
    let whole = world.save();
    world.write("second", noise(2, 4 << 20));
    let (broken, added) = packs_of_backup(&world);
    let [_, data] = by_size(&world, added);
    world.runtime.block_on(world.store.damage(&data));
    assert_eq!(
        check(&world, false).failures.count,
        0,
        "only reading finds it"
    );
    let report = check(&world, true);
    assert_eq!(report.failures.count, 1, "{:?}", report.failures);
    assert!(data.ends_with(&report.failures.first[0].path), "{report:?}");
    assert_eq!(report.affected_count, 1);
    assert_eq!(report.affected[0].id, broken);
    assert_eq!(report.affected[0].label, "claim-1");
    assert_eq!(report.affected[0].example, "second");
    world.restore(&whole);
    let target = tempfile::tempdir().unwrap();
    let error = world.restore_to(&broken, target.path(), ExistingFiles::Refuse);
    assert!(error.is_err(), "damaged data is never restored as whole");
}

#[test]
fn a_restore_names_a_pack_of_data_that_is_damaged_or_missing() {
    for is_missing in [false, true] {
        let world = World::new();
        world.write("first", noise(1, 2 << 20));
        let whole = world.save();
        world.write("second", noise(2, 4 << 20));
        let (broken, added) = packs_of_backup(&world);
        let [_, data] = by_size(&world, added);
        if is_missing {
            remove(&world, &data);
        } else {
            world.runtime.block_on(world.store.damage(&data));
        }
        let target = tempfile::tempdir().unwrap();
        let error = world.restore_to(&broken, target.path(), ExistingFiles::Refuse);
        assert_names_damage(&error.unwrap_err(), below_repository(&data));
        world.restore(&whole);
    }
}

#[test]
fn a_restore_names_a_pack_of_folders_that_is_damaged_or_missing() {
    for is_missing in [false, true] {
        let world = World::new();
        world.write("file", noise(1, 4 << 20));
        let (broken, added) = packs_of_backup(&world);
        let [folders, _] = by_size(&world, added);
        let named = below_repository(&folders);
        let target = tempfile::tempdir().unwrap();
        let restore = || {
            let target = target.path();
            world.restore_to(&broken, target, ExistingFiles::Refuse)
        };
        if is_missing {
            remove(&world, &folders);
            assert_names_damage(&restore().unwrap_err(), named);
        } else {
            world.runtime.block_on(world.store.damage(&folders));
            // The folder of the pack, and the first digits of its id.
            let digits = &named[.."data/4f/4f1c0a7d".len()];
            assert_names_damage(&restore().unwrap_err(), digits);
        }
    }
}

/// Stores refuse to read behind the end of an object, which is no error of theirs.
#[test]
fn a_pack_that_was_cut_off_is_damage() {
    for (is_of_folders, bytes) in [(false, 0), (false, 100), (true, 0), (true, 10)] {
        let world = World::new();
        world.write("file", noise(1, 4 << 20));
        let (broken, added) = packs_of_backup(&world);
        let [folders, data] = by_size(&world, added);
        let key = if is_of_folders { folders } else { data };
        world.runtime.block_on(world.store.cut_off(&key, bytes));
        let target = tempfile::tempdir().unwrap();
        let error = world.restore_to(&broken, target.path(), ExistingFiles::Refuse);
        assert_names_damage(&error.unwrap_err(), below_repository(&key));
        let report = check(&world, false);
        let mut failures = report.failures.first.iter();
        let is_named = failures.any(|failure| key.ends_with(failure.path.as_str()));
        assert!(is_named, "{key}: {report:?}");
        assert_eq!(report.affected[0].id, broken);
    }
}

#[test]
fn a_restore_of_a_device_names_its_damaged_pack() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    fs::write(&device, noise(1, 4 << 20)).unwrap();
    let request = BackupRequest {
        source: Source::Device(device.clone()),
        ..world.request()
    };
    let saved = world.run(|repository| repository.backup(&request, &Job::default()));
    let snapshot = saved.unwrap().snapshot.unwrap();
    let [_, data] = by_size(&world, packs(&world));
    world.runtime.block_on(world.store.damage(&data));
    let error = world.restore_to(&snapshot, &device, ExistingFiles::Refuse);
    assert_names_damage(&error.unwrap_err(), below_repository(&data));
}

#[test]
fn a_check_names_a_damaged_folder_in_one_line() {
    let world = World::new();
    world.write("file", noise(1, 4 << 20));
    let (_, added) = packs_of_backup(&world);
    let [folders, _] = by_size(&world, added);
    world.runtime.block_on(world.store.damage(&folders));
    let report = check(&world, false);
    assert!(report.failures.count > 0);
    for failure in &report.failures.first {
        for part in ["acktrace", "rustic", "\n"] {
            assert!(!failure.reason.contains(part), "{failure:?}");
        }
    }
}

#[test]
fn a_damaged_folder_does_not_hide_damaged_data() {
    let world = World::new();
    world.write("file", noise(1, 4 << 20));
    let (snapshot, added) = packs_of_backup(&world);
    assert_eq!(added.len(), 2, "folders and data");
    for key in &added {
        world.runtime.block_on(world.store.damage(key));
    }
    let report = check(&world, true);
    let named: Vec<_> = report
        .failures
        .first
        .iter()
        .map(|failure| &failure.path)
        .collect();
    for key in &added {
        assert!(
            named.iter().any(|name| key.ends_with(name.as_str())),
            "{named:?}"
        );
    }
    assert_eq!(report.affected[0].id, snapshot);
}

#[test]
fn the_parts_of_the_data_are_all_of_it_and_each_is_read_once() {
    let world = World::new();
    for number in 0..3 {
        world.write("file", noise(number, 1 << 20));
        world.save();
    }
    let all = check(&world, true).read_bytes;
    let parts = 3_u8;
    let mut read = Vec::new();
    for part in 1..=parts {
        let part = DataPart {
            part,
            parts: parts.try_into().unwrap(),
        };
        let request = CheckRequest {
            read: DataToRead::Part(part),
            ..CheckRequest::default()
        };
        read.push(check_of(&world, &request).read_bytes);
    }
    assert_eq!(read.iter().sum::<u64>(), all, "{read:?}");
    assert!(read.iter().any(|bytes| *bytes < all), "{read:?}");
}

#[test]
fn a_pack_that_was_damaged_is_read_again_whatever_the_part() {
    let world = World::new();
    world.write("file", noise(1, 4 << 20));
    let (_, added) = packs_of_backup(&world);
    for key in &added {
        world.runtime.block_on(world.store.damage(key));
    }
    let names = added.iter().map(|key| key.rsplit('/').next().unwrap());
    let request = CheckRequest {
        read: DataToRead::Nothing,
        packs: names.map(str::to_owned).collect(),
    };
    let report = check_of(&world, &request);
    for key in &added {
        let mut failures = report.failures.first.iter();
        let is_named = failures.any(|failure| key.ends_with(failure.path.as_str()));
        assert!(is_named, "{key}: {report:?}");
    }
    let gone = CheckRequest {
        packs: ["ab".repeat(32)].into(),
        ..CheckRequest::default()
    };
    let report = check_of(&world, &gone);
    assert_eq!(report.read_bytes, 0, "a pack in no index is not read");
}

#[test]
fn a_missing_pack_is_found_without_reading_all() {
    let world = World::new();
    world.write("file", noise(1, 4 << 20));
    let (snapshot, added) = packs_of_backup(&world);
    remove(&world, &added[0]);
    let report = check(&world, false);
    assert!(report.failures.count >= 1);
    assert_eq!(report.affected[0].id, snapshot);
}

#[test]
fn data_is_marked_first_and_removed_only_later() {
    let world = World::new();
    world.write("keep", noise(1, 2 << 20));
    let kept = world.save();
    world.write("drop", noise(2, 6 << 20));
    let dropped = world.save();
    let all = packs(&world);
    forget(&world, &dropped);
    let again = forgotten(&world, &dropped);
    assert_eq!(again, 0, "it does not exist any longer");
    let marked = prune(&world, Duration::from_hours(1));
    assert!(marked.marked_packs >= 2, "{marked:?}");
    assert_eq!(marked.removed_packs, 0);
    assert!(
        all.iter().all(|pack| packs(&world).contains(pack)),
        "nothing is removed"
    );
    assert_eq!(
        prune(&world, Duration::from_hours(1)).removed_packs,
        0,
        "too early"
    );
    std::thread::sleep(Duration::from_millis(20));
    let removed = prune(&world, Duration::from_millis(10));
    assert!(removed.removed_packs >= 2, "{removed:?}");
    assert!(removed.removed_bytes > 6 << 20, "{removed:?}");
    assert_eq!(check(&world, true).failures.count, 0);
    let restored = world.restore(&kept);
    assert!(restored.path().join("keep").exists());
}

#[test]
fn marked_data_that_a_new_backup_needs_comes_back() {
    let world = World::new();
    world.write("file", noise(1, 2 << 20));
    let first = world.save();
    forget(&world, &first);
    prune(&world, Duration::from_hours(1));
    // It does not see the marked packs, and uploads its data again.
    let second = world.save();
    std::thread::sleep(Duration::from_millis(20));
    prune(&world, Duration::from_millis(10));
    assert_eq!(check(&world, true).failures.count, 0);
    assert_same(world.source.path(), world.restore(&second).path());
}

#[test]
fn packs_of_an_interrupted_backup_are_no_damage() {
    let world = World::new();
    world.write("file", noise(1, 2 << 20));
    let snapshot = world.save();
    // As if the process had ended before the index was written.
    let orphan = "backups/restic/shop/data/ab/".to_owned() + &"ab".repeat(32);
    world.runtime.block_on(async {
        use object_store::ObjectStoreExt as _;
        let path = object_store::path::Path::from(orphan.as_str());
        world
            .store
            .inner
            .put(&path, noise(5, 1000).into())
            .await
            .unwrap();
    });
    let report = check(&world, true);
    assert_eq!(report.failures.count, 0, "{:?}", report.failures);
    assert_eq!(report.orphaned_packs, 1);
    assert_same(world.source.path(), world.restore(&snapshot).path());
}

#[test]
fn a_maintenance_forgets_only_whole_ids() {
    let world = World::new();
    let snapshot = world.save();
    let request = MaintainRequest {
        forget: vec![snapshot[..8].to_owned()],
        prune: false,
        removal_delay: Duration::from_hours(1),
    };
    let error = world.run(|repository| repository.maintain(&request, &Job::default()));
    assert_eq!(error.unwrap_err().category(), "config");
    world.restore(&snapshot);
}

#[test]
fn lost_keys_are_no_wrong_password() {
    let world = World::new();
    let snapshot = world.save();
    for key in objects_below(&world, "/keys/") {
        remove(&world, &key);
    }
    let target = tempfile::tempdir().unwrap();
    let error = world
        .restore_to(&snapshot, target.path(), ExistingFiles::Refuse)
        .unwrap_err();
    assert_eq!(error.category(), "damaged");
    let text = error.to_string();
    assert!(
        text.contains("all keys are missing. Nothing can be saved or restored until it is back"),
        "{text}"
    );
}

#[test]
fn a_damaged_snapshot_is_said_to_concern_its_volume_only() {
    let world = World::new();
    world.save();
    let [snapshot]: [String; 1] = objects_below(&world, "/snapshots/").try_into().unwrap();
    let path = object_store::path::Path::from(snapshot.as_str());
    world.runtime.block_on(async {
        use object_store::ObjectStoreExt as _;
        world
            .store
            .inner
            .put(&path, noise(5, 300).into())
            .await
            .unwrap();
    });
    let check = world.run(|repository| repository.check(&CheckRequest::default(), &Job::default()));
    let text = check.unwrap_err().to_string();
    assert!(
        text.contains("snapshots/") && text.contains("Only the volume of this snapshot is lost"),
        "{text}"
    );
}

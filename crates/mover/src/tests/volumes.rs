//! Volumes that are saved and restored: devices, full ones, and ones with files in them.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt as _, symlink},
    process::Command,
};

use super::*;

/// A file as if it was a block device.
fn backup_device(world: &World, device: &Path) -> Result<Report, MoverError> {
    let request = BackupRequest {
        source: Source::Device(device.to_owned()),
        ..world.request()
    };
    world.run(|repository| repository.backup(&request, &Job::default()))
}

#[test]
fn a_volume_with_files_is_left_alone() {
    let world = World::new();
    world.write("file", "saved");
    let snapshot = world.save();
    let target = tempfile::tempdir().unwrap();
    fs::create_dir(target.path().join("lost+found")).unwrap();
    fs::write(target.path().join("file"), "mine").unwrap();
    let error = world
        .restore_to(&snapshot, target.path(), ExistingFiles::Refuse)
        .unwrap_err();
    assert_eq!(error.category(), "target");
    assert_eq!(fs::read(target.path().join("file")).unwrap(), b"mine");
    fs::remove_file(target.path().join("file")).unwrap();
    let report = world
        .restore_to(&snapshot, target.path(), ExistingFiles::Refuse)
        .unwrap();
    assert_eq!(report.failures.count, 0, "an empty lost+found is no file");
}

/// A volume with all that could go wrong when it is restored over.
fn fill_with_others(target: &Path, outside: &Path) {
    let path = |name: &str| target.join(name);
    fs::create_dir(path("other")).unwrap();
    fs::write(path("other/file"), "other").unwrap();
    fs::write(outside.join("victim"), "outside").unwrap();
    // Where the snapshot has a folder and files.
    symlink(outside, path("folder")).unwrap();
    symlink(outside.join("victim"), path("empty")).unwrap();
    fs::create_dir(path("link")).unwrap();
    // A sparse file with other data in its holes.
    fs::write(path("sparse"), vec![7; 60 << 20]).unwrap();
    // One file of the volume under a name that the snapshot has for another.
    fs::write(path("keep-me"), "linked").unwrap();
    fs::hard_link(path("keep-me"), path("hard-link")).unwrap();
}

#[test]
fn a_restore_over_other_files_brings_exactly_the_snapshot() {
    let world = World::new();
    round_trip::fill(world.source.path());
    let snapshot = world.save();
    for existing in [ExistingFiles::Replace, ExistingFiles::Update] {
        let (target, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill_with_others(target.path(), outside.path());
        let report = world
            .restore_to(&snapshot, target.path(), existing)
            .unwrap();
        assert_eq!(
            report.failures.count, 0,
            "{existing:?} {:?}",
            report.failures
        );
        assert_same(world.source.path(), target.path());
        let victim = outside.path().join("victim");
        assert_eq!(fs::read(victim).unwrap(), b"outside", "{existing:?}");
        let names = fs::read_dir(outside.path()).unwrap().count();
        assert_eq!(names, 1, "{existing:?}: nothing is written outside");
    }
}

#[test]
fn a_restore_may_keep_files_that_the_snapshot_does_not_have() {
    let world = World::new();
    round_trip::fill(world.source.path());
    let snapshot = world.save();
    for existing in [ExistingFiles::Overwrite, ExistingFiles::Amend] {
        let (target, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill_with_others(target.path(), outside.path());
        let report = world
            .restore_to(&snapshot, target.path(), existing)
            .unwrap();
        assert_eq!(
            report.failures.count, 0,
            "{existing:?} {:?}",
            report.failures
        );
        let read = |name: &str| fs::read(target.path().join(name)).unwrap();
        assert_eq!(read("other/file"), b"other", "{existing:?}");
        assert_eq!(read("keep-me"), b"linked", "{existing:?}");
        let victim = outside.path().join("victim");
        assert_eq!(fs::read(victim).unwrap(), b"outside", "{existing:?}");
        fs::remove_dir_all(target.path().join("other")).unwrap();
        fs::remove_file(target.path().join("keep-me")).unwrap();
        // Removing files has changed the time of the root, which was restored.
        let root = fs::metadata(world.source.path()).unwrap();
        let times = fs::FileTimes::new().set_modified(root.modified().unwrap());
        File::open(target.path()).unwrap().set_times(times).unwrap();
        assert_same(world.source.path(), target.path());
    }
}

#[test]
fn only_an_overwriting_restore_reads_a_file_that_looks_unchanged() {
    let world = World::new();
    world.write("file", "saved");
    let snapshot = world.save();
    let saved = fs::metadata(world.path("file")).unwrap();
    let times = fs::FileTimes::new().set_modified(saved.modified().unwrap());
    for (existing, expected) in [
        (ExistingFiles::Update, "other"),
        (ExistingFiles::Amend, "other"),
        (ExistingFiles::Overwrite, "saved"),
        (ExistingFiles::Replace, "saved"),
    ] {
        let target = tempfile::tempdir().unwrap();
        let file = target.path().join("file");
        fs::write(&file, "other").unwrap();
        let opened = File::options().write(true).open(&file).unwrap();
        opened.set_times(times).unwrap();
        world
            .restore_to(&snapshot, target.path(), existing)
            .unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), expected, "{existing:?}");
    }
}

#[test]
fn an_empty_lost_and_found_stays_when_all_files_are_replaced() {
    let world = World::new();
    world.write("file", "saved");
    let snapshot = world.save();
    let target = tempfile::tempdir().unwrap();
    fs::create_dir(target.path().join("lost+found")).unwrap();
    fs::write(target.path().join("other"), "other").unwrap();
    world
        .restore_to(&snapshot, target.path(), ExistingFiles::Replace)
        .unwrap();
    assert!(target.path().join("lost+found").exists());
    assert!(!target.path().join("other").exists());
    assert_eq!(fs::read(target.path().join("file")).unwrap(), b"saved");
}

#[test]
fn an_update_reads_only_what_differs() {
    let world = World::new();
    for number in 0..5_u64 {
        world.write(&format!("file-{number}"), noise(number, 3 << 20));
    }
    let snapshot = world.save();
    let target = world.restore(&snapshot);
    fs::write(target.path().join("file-2"), "changed").unwrap();
    let job = Job::default();
    let request = RestoreRequest {
        snapshot,
        target: target.path().to_owned(),
        existing: ExistingFiles::Update,
    };
    let report = world
        .run(|repository| repository.restore(&request, &job))
        .unwrap();
    assert_eq!(report.failures.count, 0, "{:?}", report.failures);
    assert_same(world.source.path(), target.path());
    let moved = job.progress.snapshot().moved_bytes;
    assert!(moved < 5 << 20, "{moved} bytes");
}

#[test]
fn a_device_is_never_unchanged() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let device = folder.path().join("device");
    fs::write(&device, noise(1, 10 << 20)).unwrap();
    let time = fs::metadata(&device).unwrap().modified().unwrap();
    backup_device(&world, &device).unwrap();
    let file = File::options().write(true).open(&device).unwrap();
    file.write_all_at(b"changed", 5 << 20).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(time))
        .unwrap();
    let report = backup_device(&world, &device).unwrap();
    assert_eq!((report.files, report.bytes), (1, 10 << 20));
    assert!(report.new_bytes > 0);

    let target = folder.path().join("target");
    let larger = vec![9; 11 << 20];
    fs::write(&target, &larger).unwrap();
    let snapshot = report.snapshot.unwrap();
    world
        .restore_to(&snapshot, &target, ExistingFiles::Refuse)
        .unwrap();
    let restored = fs::read(&target).unwrap();
    assert!(restored[..10 << 20] == fs::read(&device).unwrap()[..]);
    assert!(restored[10 << 20..] == larger[10 << 20..]);

    fs::write(&target, noise(1, 9 << 20)).unwrap();
    let error = world
        .restore_to(&snapshot, &target, ExistingFiles::Refuse)
        .unwrap_err();
    assert!(error.to_string().contains("large enough"), "{error}");
    assert!(
        fs::read(&target).unwrap() == noise(1, 9 << 20),
        "nothing is written"
    );
}

/// Detaches a loop device when the test ends.
struct LoopDevice(String);

impl LoopDevice {
    fn attach(file: &Path) -> Option<Self> {
        let output = Command::new("losetup")
            .arg("-f")
            .arg("--show")
            .arg(file)
            .output()
            .ok()?;
        if !output.status.success() {
            return None;
        }
        Some(Self(
            String::from_utf8(output.stdout).ok()?.trim().to_owned(),
        ))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_of_the_kernel_comes_back() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    fs::write(&one, noise(3, 8 << 20)).unwrap();
    fs::write(&other, vec![1; 8 << 20]).unwrap();
    let (Some(source), Some(target)) = (LoopDevice::attach(&one), LoopDevice::attach(&other))
    else {
        eprintln!("SKIPPED: no loop device can be attached here");
        return;
    };
    let first = backup_device(&world, source.0.as_ref()).unwrap();
    assert_eq!(first.bytes, 8 << 20, "the metadata say 0");
    let device = File::options().write(true).open(&source.0).unwrap();
    device.write_all_at(&noise(4, 4096), 1 << 20).unwrap();
    device.sync_all().unwrap();
    let second = backup_device(&world, source.0.as_ref()).unwrap();
    assert!(second.new_bytes > 0);
    let snapshot = second.snapshot.unwrap();
    world
        .restore_to(&snapshot, target.0.as_ref(), ExistingFiles::Refuse)
        .unwrap();
    assert!(fs::read(&source.0).unwrap() == fs::read(&target.0).unwrap());
}

/// Unmounts when the test ends.
struct SmallVolume(TempDir);

impl SmallVolume {
    fn mount(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(folder.path())
            .status()
            .ok()?;
        mounted.success().then_some(Self(folder))
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_volume_that_is_too_small_is_an_error_that_says_so() {
    let world = World::new();
    for number in 0..8_u64 {
        world.write(&format!("file-{number}"), noise(number, 2 << 20));
    }
    let snapshot = world.save();
    let Some(volume) = SmallVolume::mount("4m") else {
        eprintln!("SKIPPED: no tmpfs can be mounted here");
        return;
    };
    let error = world
        .restore_to(&snapshot, volume.0.path(), ExistingFiles::Refuse)
        .unwrap_err();
    assert_eq!(error.category(), "target", "{error}");
    assert!(error.to_string().contains("full"), "{error}");
}

#[test]
fn attributes_that_the_volume_cannot_hold_are_named() {
    let world = World::new();
    world.write("file", "contents");
    rustix::fs::lsetxattr(
        world.path("file"),
        "user.note",
        b"x",
        rustix::fs::XattrFlags::empty(),
    )
    .unwrap();
    let snapshot = world.save();
    // Pipes hold no attributes of users, and ramfs none at all.
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "ramfs", "ramfs"])
        .arg(folder.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: no ramfs can be mounted here");
        return;
    }
    let report = world.restore_to(&snapshot, folder.path(), ExistingFiles::Refuse);
    let _ = Command::new("umount").arg(folder.path()).status();
    let failures = report.unwrap().failures;
    let named = failures
        .first
        .iter()
        .any(|failure| failure.path == "file" && failure.reason.contains("user.note"));
    assert!(named, "{failures:?}");
}

#[test]
fn a_snapshot_is_named_by_its_id_only() {
    let world = World::new();
    world.write("file", "contents");
    let snapshot = world.save();
    let target = tempfile::tempdir().unwrap();
    for (id, category) in [
        ("latest", "config"),
        ("abc", "config"),
        ("0123456789abcdef", "snapshot_missing"),
    ] {
        let error = world
            .restore_to(id, target.path(), ExistingFiles::Refuse)
            .unwrap_err();
        assert_eq!(error.category(), category, "{id}");
    }
    world
        .restore_to(&snapshot[..8], target.path(), ExistingFiles::Refuse)
        .unwrap();
}

//! All that a folder may hold comes back.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink},
    },
    path::Path,
};

use object_store::ObjectStoreExt as _;
use rustix::fs::{CWD, FileType, Mode, XattrFlags, lgetxattr, lsetxattr, makedev, mknodat};

use super::*;

/// An ACL that lets user 1234 read, as the kernel has it: version 2, entries of tag, permissions
/// and id.
fn acl() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] = [
        (0x01, 6, u32::MAX),
        (0x02, 4, 1234),
        (0x04, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// `cap_net_bind_service=ep`, version 2.
fn capability() -> Vec<u8> {
    let mut bytes = 0x0200_0001_u32.to_le_bytes().to_vec();
    for word in [1_u32 << 10, 0, 0, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

fn special(path: &Path, kind: FileType, device: u64) {
    mknodat(CWD, path, kind, Mode::from_raw_mode(0o640), device).unwrap();
}

/// Makes one of each kind.
pub(crate) fn fill(root: &Path) {
    let path = |name: &str| root.join(name);
    fs::create_dir_all(path("folder/empty")).unwrap();
    fs::create_dir(path("private")).unwrap();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("folder/small"), "small").unwrap();
    fs::write(path("folder/large"), noise(1, 5 << 20)).unwrap();
    fs::write(path("private/key"), "secret").unwrap();
    fs::hard_link(path("folder/small"), path("hard-link")).unwrap();
    fs::hard_link(path("folder/small"), path("private/hard-link")).unwrap();
    symlink("folder/small", path("link")).unwrap();
    symlink("/does/not/exist", path("dangling")).unwrap();
    symlink(OsStr::from_bytes(b"target\xff"), path("odd-link")).unwrap();
    for name in [
        &b"not-utf8-\xff\xfe"[..],
        b"new\nline",
        b"quote\"back\\slash",
        b"-dash",
    ] {
        fs::write(root.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let sparse = File::create(path("sparse")).unwrap();
    sparse.write_all_at(b"begin", 0).unwrap();
    sparse.write_all_at(b"end", 40 << 20).unwrap();
    sparse.set_len(60 << 20).unwrap();
    special(&path("fifo"), FileType::Fifo, 0);
    special(
        &path("char-device"),
        FileType::CharacterDevice,
        makedev(1, 3),
    );
    special(&path("block-device"), FileType::BlockDevice, makedev(7, 77));
    special(&path("socket"), FileType::Socket, 0);

    chown(path("folder/large"), Some(1000), Some(2000)).unwrap();
    lchown(path("link"), Some(65_534), Some(65_534)).unwrap();
    chown(path("private"), Some(999), Some(999)).unwrap();
    for (name, mode) in [
        ("folder/large", 0o4755),
        ("folder/small", 0o000),
        ("folder", 0o2775),
        ("folder/empty", 0o1777),
        ("private", 0o700),
        ("private/key", 0o400),
    ] {
        fs::set_permissions(path(name), Permissions::from_mode(mode)).unwrap();
    }
    let set = |name: &str, attribute: &str, value: &[u8]| {
        lsetxattr(path(name), attribute, value, XattrFlags::empty()).unwrap();
    };
    set("folder/small", "user.note", b"\x00\xff binary");
    set("folder/small", "user.empty", b"");
    set("folder/large", "security.capability", &capability());
    set("private/key", "system.posix_acl_access", &acl());
    set("folder/empty", "system.posix_acl_default", &acl());
    set("link", "trusted.link", b"on the link itself");
    // The root as PostgreSQL wants its data folder.
    set("", "user.root", b"of the root");
    chown(root, Some(999), Some(998)).unwrap();
    fs::set_permissions(root, Permissions::from_mode(0o2700)).unwrap();
    let after_1970 = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    let before_1970 = std::time::UNIX_EPOCH - std::time::Duration::new(315_619_199, 876_543_211);
    for (name, time) in [
        ("folder/large", after_1970),
        ("empty", before_1970),
        ("folder/empty", before_1970),
        ("folder", after_1970),
        ("", after_1970),
    ] {
        let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
        File::open(path(name)).unwrap().set_times(times).unwrap();
    }
}

#[test]
fn everything_in_a_volume_comes_back() {
    let world = World::new();
    fill(world.source.path());
    let report = world.backup().unwrap();
    assert_eq!(report.failures.count, 0, "{:?}", report.failures);
    let restored = world.restore(&report.snapshot.unwrap());
    assert_same(world.source.path(), restored.path());

    // Not by the code that is under test.
    let path = |name: &str| restored.path().join(name);
    let attribute = |name: &str, attribute: &str| {
        let mut value = vec![0; 200];
        let length = lgetxattr(path(name), attribute, &mut value[..]).unwrap();
        value.truncate(length);
        value
    };
    assert_eq!(attribute("private/key", "system.posix_acl_access"), acl());
    assert_eq!(attribute("folder/empty", "system.posix_acl_default"), acl());
    assert_eq!(
        attribute("folder/large", "security.capability"),
        capability()
    );
    assert_eq!(attribute("", "user.root"), b"of the root");
    let root = fs::metadata(restored.path()).unwrap();
    assert_eq!(
        (root.uid(), root.gid(), root.mode() & 0o7777),
        (999, 998, 0o2700)
    );
    let small = fs::metadata(path("folder/small")).unwrap();
    assert_eq!(small.nlink(), 3);
    assert_eq!(small.ino(), fs::metadata(path("hard-link")).unwrap().ino());
    let sparse = fs::metadata(path("sparse")).unwrap();
    assert!(
        sparse.blocks() * 512 < 20 << 20,
        "{} blocks",
        sparse.blocks()
    );
    assert_eq!(
        fs::read_link(path("odd-link"))
            .unwrap()
            .as_os_str()
            .as_bytes(),
        b"target\xff"
    );
    assert!(path("folder/large").metadata().unwrap().mtime() == 1_000_000_000);
}

#[test]
fn an_empty_volume_comes_back() {
    let world = World::new();
    let report = world.backup().unwrap();
    assert_eq!(report.files, 0);
    let restored = world.restore(&report.snapshot.unwrap());
    assert_same(world.source.path(), restored.path());
}

#[test]
fn a_second_backup_adds_only_what_was_changed() {
    let world = World::new();
    for number in 0..10_u64 {
        world.write(&format!("file-{number}"), noise(number, 500_000));
    }
    let first = world.backup().unwrap();
    assert!(first.new_bytes > 4_900_000);
    world.write("file-3", noise(77, 500_000));
    fs::remove_file(world.path("file-4")).unwrap();
    let second = world.backup().unwrap();
    assert!(second.new_bytes < 600_000, "{}", second.new_bytes);
    assert_eq!((first.files, second.files), (10, 9));
    let restored = world.restore(&second.snapshot.unwrap());
    assert_same(world.source.path(), restored.path());
    assert!(
        world
            .restore(&first.snapshot.unwrap())
            .path()
            .join("file-4")
            .exists()
    );
}

#[test]
fn small_files_are_the_same_data_beside_a_large_one() {
    let world = World::new();
    let path = object_store::path::Path::from("backups/restic/shop/config");
    let config = || {
        world.runtime.block_on(async {
            let object = world.store.inner.get(&path).await.unwrap();
            object.bytes().await.unwrap()
        })
    };
    let before = config();
    for number in 0..20_u64 {
        world.write(&format!("file-{number}"), noise(number, 100_000));
    }
    world.save();
    assert_eq!(before, config());
    // Now files are cut by their contents.
    world.write("large", noise(77, 3_000_000));
    let request = BackupRequest {
        read_all: true,
        ..world.request()
    };
    let saved = world.run(|repository| repository.backup(&request, &Job::default()));
    let saved = saved.unwrap();
    assert!(saved.new_bytes < 3_200_000, "{}", saved.new_bytes);
    let restored = world.restore(&saved.snapshot.unwrap());
    assert_same(world.source.path(), restored.path());
}

#[test]
fn a_file_without_times_of_change_is_read_again() {
    // A program may set a file's time back; its time of change remains.
    let world = World::new();
    world.write("file", "before");
    let metadata = fs::metadata(world.path("file")).unwrap();
    world.save();
    world.write("file", "behind");
    let times = fs::FileTimes::new().set_modified(metadata.modified().unwrap());
    File::options()
        .write(true)
        .open(world.path("file"))
        .unwrap()
        .set_times(times)
        .unwrap();
    let restored = world.restore(&world.save());
    assert_eq!(fs::read(restored.path().join("file")).unwrap(), b"behind");
}

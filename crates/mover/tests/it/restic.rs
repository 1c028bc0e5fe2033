//! Debian's restic reads what the mover writes, and the other way round.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use backup_core::data_movement::{MoverOutcome, MoverResult};
use tempfile::TempDir;

const PASSWORD: &str = "shared";

struct World {
    folder: TempDir,
}

impl World {
    /// `None` where restic is not installed.
    fn new() -> Option<Self> {
        let installed = Command::new("restic").arg("version").output();
        if installed.is_err() {
            eprintln!("SKIPPED: restic is not installed (apt-get install restic)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["source", "target"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Some(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mover(&self, args: &[&str]) -> MoverOutcome {
        self.mover_with(PASSWORD, args)
    }

    fn mover_with(&self, password: &str, args: &[&str]) -> MoverOutcome {
        let outcome = self.outcome(password, args);
        assert_eq!(outcome.result, MoverResult::Complete, "{outcome:?}");
        outcome
    }

    /// `PASSWORD` is also the other password, whose keys are changed.
    fn outcome(&self, password: &str, args: &[&str]) -> MoverOutcome {
        let store = self.path("store").display().to_string();
        let output = Command::new(env!("CARGO_BIN_EXE_backup-mover"))
            .args(args)
            .args(["--provider", "local", "--bucket", &store])
            .args(["--repository", "repository"])
            .env("BACKUP_REPOSITORY_PASSWORD", password)
            .env("BACKUP_REPOSITORY_OTHER_PASSWORD", PASSWORD)
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn restic(&self, args: &[&str], folder: &Path) -> String {
        self.restic_with(PASSWORD, args, folder)
    }

    fn restic_with(&self, password: &str, args: &[&str], folder: &Path) -> String {
        let output = Command::new("restic")
            .args(args)
            .args(["--no-cache", "--repo"])
            .arg(self.path("store/repository"))
            .env("RESTIC_PASSWORD", password)
            .current_dir(folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "restic {args:?}: {stdout}{stderr}");
        stdout
    }

    /// Makes a repository, and saves the filled source in it. Returns the snapshot.
    fn save(&self, more: &[&str]) -> String {
        self.fill();
        self.mover(&["init"]);
        let source = self.path("source").display().to_string();
        let args = ["backup", "--host", "shop", "--folder", &source];
        self.mover(&[&args[..], more].concat()).snapshot.unwrap()
    }

    /// Removes the index, or makes it unreadable.
    fn damage_index(&self, is_missing: bool) {
        for file in fs::read_dir(self.path("store/repository/index")).unwrap() {
            let path = file.unwrap().path();
            if is_missing {
                fs::remove_file(path).unwrap();
            } else {
                let mut bytes = fs::read(&path).unwrap();
                bytes[50] ^= 1;
                fs::write(path, bytes).unwrap();
            }
        }
    }

    /// Without sockets, which restic leaves out.
    fn fill(&self) {
        let path = |name: &str| self.path("source").join(name);
        fs::create_dir_all(path("folder/empty")).unwrap();
        fs::write(path("folder/file"), "contents").unwrap();
        fs::write(path("large"), vec![5; 9 << 20]).unwrap();
        fs::write(path("no-mode"), "secret").unwrap();
        fs::hard_link(path("large"), path("folder/link")).unwrap();
        symlink("folder/file", path("symlink")).unwrap();
        chown(path("folder/file"), Some(1234), Some(2345)).unwrap();
        for (name, mode) in [("folder/file", 0o4750), ("folder", 0o1770), ("no-mode", 0)] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let value = b"value\x00\xff";
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(path("folder/file"), "user.note", value, flags).unwrap();
        let device = rustix::fs::makedev(1, 5);
        let kind = rustix::fs::FileType::CharacterDevice;
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, path("device"), kind, mode, device).unwrap();
    }

    fn assert_restored(&self) {
        let (source, target) = (self.path("source"), self.path("target"));
        let names = [
            "folder",
            "folder/empty",
            "folder/file",
            "folder/link",
            "large",
            "no-mode",
            "symlink",
            "device",
        ];
        for name in names {
            let [one, other] = [&source, &target].map(|root| {
                let metadata = fs::symlink_metadata(root.join(name)).unwrap();
                format!(
                    "{name} {:o} {}:{} {} {}",
                    metadata.mode(),
                    metadata.uid(),
                    metadata.gid(),
                    metadata.mtime_nsec(),
                    metadata.rdev()
                )
            });
            assert_eq!(one, other);
        }
        for name in ["folder/file", "folder/link", "large", "no-mode"] {
            let [one, other] = [&source, &target].map(|root| fs::read(root.join(name)).unwrap());
            assert!(one == other, "{name}");
        }
        let mut value = [0; 32];
        let file = target.join("folder/file");
        let length = rustix::fs::lgetxattr(file, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"value\x00\xff");
        assert_eq!(fs::metadata(target.join("large")).unwrap().nlink(), 2);
    }
}

#[test]
fn restic_checks_and_restores_what_the_mover_saved() {
    let Some(world) = World::new() else { return };
    let snapshot = world.save(&["--tag", "a", "--note", "uid-b/uid-1"]);
    let notes = world.path("store/repository/uploads/uid-b/uid-1");
    assert!(notes.join(&snapshot).is_file(), "restic ignores it");
    let target = world.path("target");
    assert!(
        world
            .restic(&["snapshots"], &target)
            .contains(&snapshot[..8])
    );
    world.restic(&["check", "--read-data"], &target);
    world.restic(&["restore", &snapshot, "--target", "."], &target);
    world.assert_restored();
}

#[test]
fn the_mover_checks_and_restores_what_restic_saved() {
    let Some(world) = World::new() else { return };
    world.fill();
    fs::create_dir_all(world.path("store/repository")).unwrap();
    world.restic(&["init"], &world.path("source"));
    world.restic(&["backup", ".", "--host", "velero"], &world.path("source"));
    let snapshots = fs::read_dir(world.path("store/repository/snapshots")).unwrap();
    let names = snapshots.map(|file| file.unwrap().file_name().into_string().unwrap());
    let snapshot = names.into_iter().next().unwrap();
    world.mover(&["check", "--read-data"]);
    let target = world.path("target").display().to_string();
    let args = ["restore", "--snapshot", &snapshot, "--target", &target];
    world.mover(&args);
    world.assert_restored();
}

#[test]
fn restic_opens_a_repository_by_the_key_of_a_new_password() {
    let Some(world) = World::new() else { return };
    let snapshot = world.save(&[]);
    world.mover_with("rotated", &["add-key"]);
    world.mover_with("rotated", &["remove-key"]);
    world.mover_with("rotated", &["open"]);
    let target = world.path("target");
    let args = ["restore", &snapshot, "--target", "."];
    world.restic_with("rotated", &args, &target);
    world.assert_restored();
}

/// The command of docs/operate/stores.md, under the name that all versions of restic know.
#[test]
fn restic_makes_an_index_again_that_is_missing_or_unreadable() {
    for is_missing in [true, false] {
        let Some(world) = World::new() else { return };
        let snapshot = world.save(&[]);
        world.damage_index(is_missing);
        let target = world.path("target").display().to_string();
        let restore = ["restore", "--snapshot", &snapshot, "--target", &target];
        for args in [&restore[..], &["check"], &["maintain", "--prune"]] {
            let outcome = world.outcome(PASSWORD, args);
            assert_eq!(outcome.reason.as_deref(), Some("damaged"), "{outcome:?}");
        }
        world.restic(&["rebuild-index"], &world.path("target"));
        world.mover(&["check", "--read-data"]);
        world.mover(&["maintain", "--prune"]);
        world.mover(&restore);
        world.assert_restored();
    }
}

//! The program with a folder as store.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use backup_core::data_movement::{MoverOutcome, MoverResult};
use tempfile::TempDir;

const PASSWORD: &str = "Zm9vLWJhcg-17";

/// A user without rights.
const NOBODY: u32 = 65_534;

/// A second, and as much for a machine that is busy.
const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

/// A folder as store, and one to save.
struct World {
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["store", "source", "target"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let world = Self { folder };
        assert_eq!(world.run(&["init"]).result, MoverResult::Complete);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_backup-mover")), args)
    }

    fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .args(["--provider", "local", "--bucket", &self.text("store")])
            .args(["--prefix", "location", "--repository", "restic/shop"])
            .env("BACKUP_REPOSITORY_PASSWORD", PASSWORD)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> MoverOutcome {
        read(&self.command(args).output().unwrap())
    }

    fn backup(&self) -> MoverOutcome {
        self.run(&["backup", "--host", "shop", "--folder", &self.text("source")])
    }

    fn restore(&self, snapshot: &str) -> MoverOutcome {
        let target = self.text("target");
        let args = ["restore", "--snapshot", snapshot, "--target", &target];
        self.run(&[&args[..], &["--existing", "replace"]].concat())
    }

    fn packs(&self) -> usize {
        let data = self.path("store/location/restic/shop/data");
        let Ok(folders) = fs::read_dir(data) else {
            return 0;
        };
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        // Those that are being written have another name.
        files
            .filter(|file| file.as_ref().unwrap().file_name().len() == 64)
            .count()
    }

    /// Files that take a while.
    fn fill(&self, files: u32) {
        for file in 0..files {
            fs::write(
                self.path("source").join(format!("file-{file}")),
                noise(file),
            )
            .unwrap();
        }
    }
}

/// 4 MiB that do not compress.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = u64::from(seed)
        .wrapping_add(1)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(4 << 20).collect()
}

/// The outcome, which says the same as the exit code. The password is nowhere.
fn read(output: &Output) -> MoverOutcome {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(!stdout.contains(PASSWORD) && !stderr.contains(PASSWORD));
    for line in stderr.lines() {
        let parsed = serde_json::from_str::<serde_json::Value>(line);
        assert!(parsed.is_ok(), "no JSON: {line}");
    }
    let outcome: MoverOutcome = serde_json::from_str(&stdout)
        .unwrap_or_else(|error| panic!("{error}: {stdout:?}, stderr {stderr}"));
    assert_eq!(output.status.code(), Some(outcome.result.code().into()));
    outcome
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Waits until a condition holds.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn kill(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// `diff` of two folders.
fn assert_same(one: &Path, other: &Path) {
    let diff = Command::new("diff").arg("-r").args([one, other]).output();
    let diff = diff.unwrap();
    assert!(diff.status.success(), "{}", text(&diff.stdout));
}

#[test]
fn a_volume_is_saved_and_restored() {
    let world = World::new();
    world.fill(2);
    let log = world.text("termination-log");
    let source = world.text("source");
    let args = ["backup", "--host", "shop", "--folder", &source];
    let saved = world.run(&[&args[..], &["--termination-log", &log]].concat());
    assert_eq!(saved.result, MoverResult::Complete);
    assert_eq!((saved.files, saved.bytes), (2, 8 << 20));
    assert!(saved.new_bytes > 8 << 20 && saved.moved_bytes > 8 << 20);
    let kept: MoverOutcome = serde_json::from_slice(&fs::read(log).unwrap()).unwrap();
    assert_eq!(kept, saved);
    let restored = world.restore(saved.snapshot.as_deref().unwrap());
    assert_eq!(restored.result, MoverResult::Complete);
    assert_same(&world.path("source"), &world.path("target"));
    let checked = world.run(&["check", "--read-data"]);
    assert_eq!(checked.result, MoverResult::Complete);
    assert!(checked.check.unwrap().read_bytes > 8 << 20);
}

#[test]
fn an_unreadable_file_makes_a_backup_incomplete() {
    let world = World::new();
    let source = world.path("source");
    for (name, mode) in [("public", 0o644), ("private", 0o600)] {
        fs::write(source.join(name), name).unwrap();
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(source.join("locked")).unwrap();
    fs::write(source.join("locked/inner"), "inner").unwrap();
    fs::set_permissions(source.join("locked"), fs::Permissions::from_mode(0o700)).unwrap();
    // The user must reach the program and the store.
    let program = world.path("backup-mover");
    fs::copy(env!("CARGO_BIN_EXE_backup-mover"), &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let owned = Command::new("chown")
        .arg("-R")
        .arg(format!("{NOBODY}:{NOBODY}"))
        .arg(world.path("store"))
        .status();
    assert!(owned.unwrap().success());
    let text = world.text("source");
    let args = ["backup", "--host", "shop", "--folder", &text];
    let mut command = world.command_of(&program, &args);
    command.uid(NOBODY).gid(NOBODY);
    let outcome = read(&command.output().unwrap());
    assert_eq!(outcome.result, MoverResult::Incomplete, "{outcome:?}");
    assert_eq!(outcome.failures.count, 2, "{:?}", outcome.failures);
    let paths: Vec<_> = outcome
        .failures
        .first
        .iter()
        .map(|failure| &failure.path[..])
        .collect();
    assert_eq!(paths, ["locked", "private"]);
    assert_eq!(outcome.files, 1);

    // Restored by the same user, the owner is another one than root.
    let snapshot = outcome.snapshot.unwrap();
    let target = world.text("target");
    let owned = Command::new("chown")
        .arg(NOBODY.to_string())
        .arg(&target)
        .status();
    assert!(owned.unwrap().success());
    let args = ["restore", "--snapshot", &snapshot, "--target", &target];
    let mut command = world.command_of(&program, &args);
    command.uid(NOBODY).gid(NOBODY);
    let outcome = read(&command.output().unwrap());
    assert_eq!(outcome.result, MoverResult::Incomplete, "{outcome:?}");
    let named = outcome
        .failures
        .first
        .iter()
        .find(|failure| failure.path == "public");
    assert!(
        named.unwrap().reason.contains("owner"),
        "{:?}",
        outcome.failures
    );
}

#[test]
fn a_killed_backup_leaves_nothing_that_harms_the_next() {
    let world = World::new();
    world.fill(24);
    let source = world.text("source");
    let args = ["backup", "--host", "shop", "--folder", &source];
    let mut child = world
        .command(
            &[
                &args[..],
                &["--upload-limit", "16Mi", "--parallel-uploads", "2"],
            ]
            .concat(),
        )
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("packs are uploaded", || world.packs() >= 2);
    kill(&child, "-KILL");
    child.wait().unwrap();
    let checked = world.run(&["check", "--read-data"]);
    assert_eq!(checked.result, MoverResult::Complete, "{checked:?}");
    assert!(checked.check.unwrap().orphaned_packs >= 2);
    let saved = world.backup();
    assert_eq!(saved.result, MoverResult::Complete, "{saved:?}");
    let restored = world.restore(saved.snapshot.as_deref().unwrap());
    assert_eq!(restored.result, MoverResult::Complete, "{restored:?}");
    assert_same(&world.path("source"), &world.path("target"));
    let checked = world.run(&["check", "--read-data"]);
    assert_eq!(checked.result, MoverResult::Complete, "{checked:?}");
}

#[test]
fn a_killed_restore_is_done_again() {
    let world = World::new();
    world.fill(16);
    let snapshot = world.backup().snapshot.unwrap();
    let target = world.text("target");
    let args = ["restore", "--snapshot", &snapshot, "--target", &target];
    let mut child = world
        .command(&[&args[..], &["--download-limit", "16Mi"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("files are written", || {
        fs::read_dir(&target).unwrap().next().is_some()
    });
    kill(&child, "-KILL");
    child.wait().unwrap();
    let again = world.run(&args);
    assert_eq!(
        again.reason.as_deref(),
        Some("target"),
        "it is not empty: {again:?}"
    );
    for existing in ["amend", "overwrite", "update", "replace"] {
        let again = world.run(&[&args[..], &["--existing", existing]].concat());
        assert_eq!(again.result, MoverResult::Complete, "{again:?}");
        assert_same(&world.path("source"), &world.path("target"));
    }
}

#[test]
fn a_signal_cancels_within_a_second() {
    for signal in ["-TERM", "-INT"] {
        let world = World::new();
        world.fill(20);
        let source = world.text("source");
        let args = ["backup", "--host", "shop", "--folder", &source];
        let mut child = world
            .command(
                &[
                    &args[..],
                    &["--upload-limit", "8Mi", "--progress-interval", "100ms"],
                ]
                .concat(),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
        loop {
            let line: serde_json::Value =
                serde_json::from_str(&progress.next().unwrap().unwrap()).unwrap();
            if line["progress"]["bytes"].as_u64() > Some(10 << 20) {
                assert!(line["progress"]["total_bytes"].as_u64() == Some(80 << 20));
                break;
            }
        }
        let begun = Instant::now();
        kill(&child, signal);
        thread::spawn(move || progress.for_each(drop));
        let output = child.wait_with_output().unwrap();
        assert!(begun.elapsed() < CANCELLED_WITHIN, "{:?}", begun.elapsed());
        let outcome: MoverOutcome = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(outcome.result, MoverResult::Cancelled);
        assert_eq!(output.status.code(), Some(130));
        assert!(!world.path("store/location/restic/shop/snapshots").exists());
    }
}

#[test]
fn what_is_missing_is_said() {
    let world = World::new();
    let mut command = world.command(&["check"]);
    command.env_remove("BACKUP_REPOSITORY_PASSWORD");
    let outcome = read(&command.output().unwrap());
    assert_eq!(outcome.reason.as_deref(), Some("config"));
    assert!(outcome.message.contains("BACKUP_REPOSITORY_PASSWORD"));
    let mut command = world.command(&["check"]);
    command.env("BACKUP_REPOSITORY_PASSWORD", "wrong");
    let outcome = read(&command.output().unwrap());
    assert_eq!(outcome.reason.as_deref(), Some("wrong_password"));
    let outcome = world.run(&["init"]);
    assert_eq!(outcome.reason.as_deref(), Some("repository_exists"));
    let help = world.command(&["--help"]).output().unwrap();
    let help = text(&help.stdout);
    for part in ["Exit codes", "130", "Examples", "BACKUP_STORE_CREDENTIALS"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

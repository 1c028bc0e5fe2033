//! The programs that save volumes, each with a bucket and a folder of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use backup_core::data_movement::{CREDENTIALS_VARIABLE, MoverOutcome, PASSWORD_VARIABLE};
use backup_tests::{
    World,
    object_store::{ACCESS, S3, SECRET},
};
use serde_json::Value;
use tokio::process::Command;

use super::cost::{self, Cost};

const PASSWORD: &str = "benchmark";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mover,
    Restic,
    Kopia,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Mover => "mover",
            Self::Restic => "restic",
            Self::Kopia => "kopia",
        }
    }
}

pub struct Program {
    pub kind: Kind,
    pub path: PathBuf,
}

/// A program with a repository.
pub struct Subject<'a> {
    program: &'a Program,
    s3: &'a S3,
    bucket: String,
    /// Folder of its configuration, cache and output.
    folder: PathBuf,
    /// The last snapshot.
    snapshot: String,
}

impl<'a> Subject<'a> {
    /// Makes the bucket and the repository. `run` is part of the bucket's name.
    pub async fn create(world: &'a World, program: &'a Program, run: &str) -> anyhow::Result<Self> {
        let s3 = world.s3()?;
        let bucket = format!("bench-{run}-{}", program.kind.name());
        let folder = world.folder().join(&bucket);
        s3.create_bucket(&bucket).await?;
        std::fs::create_dir(&folder)?;
        let subject = Self {
            program,
            s3,
            bucket,
            folder,
            snapshot: String::new(),
        };
        let mut command = subject.command();
        match program.kind {
            Kind::Mover | Kind::Restic => command.arg("init"),
            Kind::Kopia => command
                .args(["repository", "create", "s3", "--disable-tls"])
                .args(["--no-check-for-updates", "--region", "us-east-1"])
                .args(["--bucket", &subject.bucket])
                .args(["--endpoint", &s3.address().to_string()])
                .arg("--cache-directory")
                .arg(subject.cache()),
        };
        subject.run(command).await?;
        Ok(subject)
    }

    /// Saves a volume.
    pub async fn back_up(&mut self, volume: &Path) -> anyhow::Result<Cost> {
        let mut command = self.command();
        match self.program.kind {
            Kind::Mover => command
                .args(["backup", "--host", "bench", "--folder"])
                .arg(volume),
            // The volume is the root of the snapshot then, as it is with the others.
            Kind::Restic => command
                .current_dir(volume)
                .args(["backup", ".", "--host", "bench", "--json", "--quiet"]),
            Kind::Kopia => command.args(["snapshot", "create", "--json"]).arg(volume),
        };
        let (cost, printed) = self.run(command).await?;
        self.snapshot = self
            .snapshot(&printed)
            .with_context(|| format!("no snapshot in {printed:?}"))?;
        Ok(cost)
    }

    fn snapshot(&self, printed: &str) -> Option<String> {
        match self.program.kind {
            Kind::Mover => serde_json::from_str::<MoverOutcome>(printed).ok()?.snapshot,
            Kind::Restic => text(
                &serde_json::from_str(printed.lines().last()?).ok()?,
                "snapshot_id",
            ),
            Kind::Kopia => text(&serde_json::from_str(printed).ok()?, "id"),
        }
    }

    /// Restores the last snapshot into an empty folder, compares that with the volume, and removes
    /// it.
    pub async fn restore(&self, volume: &Path) -> anyhow::Result<Cost> {
        let target = self.folder.join("target");
        std::fs::create_dir(&target)?;
        let mut command = self.command();
        match self.program.kind {
            Kind::Mover => command.args(["restore", "--snapshot", &self.snapshot]),
            Kind::Restic => command.args(["restore", &self.snapshot, "--quiet"]),
            Kind::Kopia => command.args(["snapshot", "restore", &self.snapshot]),
        };
        if self.program.kind != Kind::Kopia {
            command.arg("--target");
        }
        command.arg(&target);
        let (cost, _) = self.run(command).await?;
        let output = Command::new("diff")
            .args(["--recursive", "--no-dereference"])
            .args([volume, target.as_path()])
            .output()
            .await?;
        ensure!(
            output.status.success(),
            "{} has restored something else: {}",
            self.program.kind.name(),
            String::from_utf8_lossy(&output.stdout)
        );
        std::fs::remove_dir_all(&target)?;
        Ok(cost)
    }

    /// Folder of its objects.
    pub fn objects(&self) -> PathBuf {
        self.s3.files(&self.bucket)
    }

    /// Removes all that it has written.
    pub fn remove(self) -> anyhow::Result<()> {
        std::fs::remove_dir_all(self.objects())?;
        Ok(std::fs::remove_dir_all(&self.folder)?)
    }

    fn cache(&self) -> PathBuf {
        self.folder.join("cache")
    }

    /// Runs a command with an empty cache.
    async fn run(&self, command: Command) -> anyhow::Result<(Cost, String)> {
        if self.cache().exists() {
            std::fs::remove_dir_all(self.cache())?;
        }
        cost::run(command, &self.folder).await
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program.path);
        let address = self.s3.address();
        match self.program.kind {
            Kind::Mover => command
                .args(["--provider", "aws", "--bucket", &self.bucket])
                .args(["--config", "region=us-east-1"])
                .args(["--config", "s3ForcePathStyle=true"])
                .args(["--config", &format!("s3Url=http://{address}")])
                .args(["--repository", "restic/bench"])
                .env(CREDENTIALS_VARIABLE, S3::credentials())
                .env(PASSWORD_VARIABLE, PASSWORD)
                // As in its pod.
                .env("MALLOC_ARENA_MAX", "2"),
            Kind::Restic => command
                .env(
                    "RESTIC_REPOSITORY",
                    format!("s3:http://{address}/{}/restic", self.bucket),
                )
                .env("RESTIC_PASSWORD", PASSWORD)
                .env("RESTIC_CACHE_DIR", self.cache()),
            // Without what the other programs do not do in a backup: maintenance and log files.
            Kind::Kopia => command
                .args(["--no-auto-maintenance", "--no-progress"])
                .args(["--disable-file-logging", "--disable-content-log"])
                .arg("--disable-repository-log")
                .env("KOPIA_CONFIG_PATH", self.folder.join("kopia.config"))
                .env("KOPIA_PASSWORD", PASSWORD),
        };
        command
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_DEFAULT_REGION", "us-east-1");
        command
    }
}

fn text(document: &Value, field: &str) -> Option<String> {
    Some(document[field].as_str()?.to_owned())
}

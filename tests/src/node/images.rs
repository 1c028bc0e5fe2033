//! Images for the container runtime: the project's images are built by its Dockerfile.
//!
//! The last stages of the Dockerfile are run unchanged. The stages that they copy from are not
//! built in containers here: `build` has the programs that the tests were built with, `system` the
//! C library of this machine, which these programs need, with its certificate authorities and the
//! one of the tests' store.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tokio::process::Command;

use super::machine::AUTHORITIES;
use crate::{
    binaries::{Programs, root},
    kubectl_backup::Ran,
};

/// An image with a shell, for pods of tests.
pub const TOOLS: &str = "tools:tests";

/// Programs of the project that have an image.
pub const PROGRAMS: [&str; 3] = ["backup-webhook", "backup-controller", "backup-mover"];

/// The image of a program under its name in `deploy/`.
pub fn image_of(program: &str) -> String {
    format!("{program}:v{}", env!("CARGO_PKG_VERSION"))
}

/// Builds images in a folder.
pub(super) struct Images {
    folder: PathBuf,
}

impl Images {
    /// For images that need nothing of the project.
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Prepares the sources of the project's images; `authority` (PEM) is trusted in them, too.
    pub(super) async fn prepare(
        folder: &Path,
        programs: &Programs,
        authority: &str,
    ) -> anyhow::Result<Self> {
        let images = Self::in_folder(folder);
        let built = folder.join("build/src/target/release");
        std::fs::create_dir_all(&built)?;
        let mut libraries = BTreeSet::new();
        for program in [&programs.webhook, &programs.controller, &programs.mover] {
            let name = program.file_name().context("no name")?;
            run("strip", &[Path::new("-o"), &built.join(name), program]).await?;
            libraries.extend(libraries_of(program).await?);
        }
        let system = folder.join("system/root-fs");
        for name in ["usr/lib", "usr/lib64", "etc/ssl/certs", "tmp", "plugins"] {
            std::fs::create_dir_all(system.join(name))?;
        }
        for name in ["lib", "lib64"] {
            std::os::unix::fs::symlink(Path::new("usr").join(name), system.join(name))?;
        }
        for library in libraries {
            copy_into(&system, &library)?;
        }
        let authorities = std::fs::read_to_string(AUTHORITIES)?;
        std::fs::write(
            system.join("etc/ssl/certs/ca-certificates.crt"),
            format!("{authorities}\n{authority}"),
        )?;
        // As in the real image: the programs do not run as root.
        run("chmod", &[Path::new("1777"), &system.join("tmp")]).await?;
        Ok(images)
    }

    /// Builds all images that the node needs. Returns their archives.
    pub(super) async fn build(&self) -> anyhow::Result<Vec<PathBuf>> {
        let dockerfile = root().join("Dockerfile");
        let contexts = ["build", "system"].map(|stage| {
            format!(
                "--build-context={stage}={}",
                self.folder.join(stage).display()
            )
        });
        let mut archives = Vec::new();
        for program in PROGRAMS {
            let target = format!("--target={program}");
            let flags = [contexts[0].as_str(), &contexts[1], &target];
            archives.push(self.image(&image_of(program), &dockerfile, &flags).await?);
        }
        for (image, program, recipe) in [
            (
                "pause:tests",
                "/usr/bin/catatonit",
                "COPY catatonit /\nENTRYPOINT [\"/catatonit\", \"-P\"]\n",
            ),
            (
                TOOLS,
                "/usr/bin/busybox",
                "COPY busybox /bin/\nENTRYPOINT [\"/bin/busybox\"]\n",
            ),
        ] {
            let context = self.context(image)?;
            std::fs::copy(
                program,
                context.join(Path::new(program).file_name().context("no name")?),
            )?;
            archives.push(self.bare_image(image, recipe).await?);
        }
        Ok(archives)
    }

    /// Builds an image from nothing but its build context, by this recipe. Returns its archive.
    pub(super) async fn bare_image(&self, image: &str, recipe: &str) -> anyhow::Result<PathBuf> {
        let file = self.folder.join(format!("{}.dockerfile", file_name(image)));
        std::fs::write(&file, format!("FROM scratch\n{recipe}"))?;
        self.image(image, &file, &[]).await
    }

    /// Builds an image and writes it to an archive.
    async fn image(&self, image: &str, recipe: &Path, flags: &[&str]) -> anyhow::Result<PathBuf> {
        let context = self.context(image)?;
        let mut build = self.buildah("bud");
        build
            .args(["--network=none", "--pull-never", "--timestamp=0", "--quiet"])
            .args(flags);
        build
            .args(["--tag", image, "--file"])
            .arg(recipe)
            .arg(&context);
        Ran::of(build)
            .await?
            .expect_code(0)
            .with_context(|| format!("build {image}"))?;
        let archive = self.folder.join(format!("{}.tar", file_name(image)));
        let mut push = self.buildah("push");
        push.args([
            "--quiet",
            image,
            &format!("docker-archive:{}:{image}", archive.display()),
        ]);
        Ran::of(push)
            .await?
            .expect_code(0)
            .with_context(|| format!("write the archive of {image}"))?;
        Ok(archive)
    }

    /// The build context of an image: a folder for the caller to fill.
    pub(super) fn context(&self, image: &str) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join("contexts").join(file_name(image));
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    fn buildah(&self, task: &str) -> Command {
        let mut command = Command::new("buildah");
        for (flag, folder) in [("--root", "storage"), ("--runroot", "storage-run")] {
            command.arg(flag).arg(self.folder.join(folder));
        }
        command.args(["--storage-driver=vfs", task]);
        command
    }
}

/// Name of the files that belong to an image.
fn file_name(image: &str) -> String {
    image.replace(':', "-")
}

/// The libraries that a program is linked with, and its loader.
pub(super) async fn libraries_of(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let needed = run("ldd", &[program]).await?;
    let words = needed.stdout.split_whitespace();
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// Copies a file of this machine into the root folder of an image, under the same path.
pub(super) fn copy_into(root: &Path, file: &Path) -> anyhow::Result<()> {
    let copy = root.join(file.strip_prefix("/")?);
    std::fs::create_dir_all(copy.parent().context("no folder")?)?;
    std::fs::copy(file, &copy).with_context(|| format!("copy {}", file.display()))?;
    Ok(())
}

pub(super) async fn run(program: &str, args: &[&Path]) -> anyhow::Result<Ran> {
    let mut command = Command::new(program);
    command.args(args);
    Ran::of(command)
        .await?
        .expect_code(0)
        .with_context(|| format!("run {program}"))
}

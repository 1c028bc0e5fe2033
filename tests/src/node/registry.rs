//! A registry of images on loopback, and a release for it, made by `cargo xtask release` of the
//! programs of this node. The commands are those of docs/operate/release.md.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use rcgen::KeyPair;
use serde_json::Value;
use tokio::process::Command;

use super::{
    Node, allow_pulls,
    images::{PROGRAMS, run},
};
use crate::{
    binaries::{build_helm, build_oras, build_registry, root, target},
    control_plane::loopback_address,
    kubectl_backup::Ran,
    process::{Process, Spec},
};

/// Time of the files in a release (seconds since 1970): there may be no repository to read it from.
const SOURCE_DATE_EPOCH: &str = "1700000000";

/// Builds the programs that tests of a registry need. A node has no network to download modules.
pub fn build_registry_programs() -> anyhow::Result<()> {
    build_registry()?;
    build_oras()?;
    build_helm().map(drop)
}

/// A registry, which keeps what is pushed in memory and speaks HTTP without TLS.
#[derive(Debug)]
pub struct Registry {
    process: Process,
    address: SocketAddr,
    oras: PathBuf,
}

impl Registry {
    async fn start(folder: &Path) -> anyhow::Result<Self> {
        let address = loopback_address()?;
        let spec = Spec {
            name: "registry".to_owned(),
            program: build_registry()?,
            args: vec![address.to_string()],
            env: BTreeMap::new(),
        };
        Ok(Self {
            process: Process::start_listening(spec, address, folder).await?,
            address,
            oras: build_oras()?,
        })
    }

    /// Its part of the names of images.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Pushes a tag of an image layout, with all that refers to it, under this name. The layout is
    /// a folder or an archive.
    pub async fn push(&self, layout: &Path, tag: &str, name: &str) -> anyhow::Result<()> {
        let source = format!("{}:{tag}", layout.display());
        let copy = format!("{name}:{tag}");
        let args = [
            "cp",
            "--recursive",
            "--to-plain-http",
            "--from-oci-layout",
            &source,
            &copy,
        ];
        self.oras(&args).await.map(drop)
    }

    /// Digest of the manifest of an image, such as `sha256:0123…`.
    pub async fn digest(&self, image: &str) -> anyhow::Result<String> {
        let digest = self.oras(&["resolve", "--plain-http", image]).await?;
        Ok(digest.trim().to_owned())
    }

    /// The manifest of an image.
    pub async fn manifest(&self, image: &str) -> anyhow::Result<Value> {
        let args = ["manifest", "fetch", "--plain-http", image];
        let text = self.oras(&args).await?;
        serde_json::from_str(&text).with_context(|| format!("the manifest of {image}: {text}"))
    }

    /// The manifests that refer to an image.
    pub async fn referrers(&self, image: &str) -> anyhow::Result<Vec<Value>> {
        let args = ["discover", "--plain-http", "--format=json", image];
        let found: Value = serde_json::from_str(&self.oras(&args).await?)?;
        let mut manifests = Vec::new();
        for referrer in found["referrers"].as_array().into_iter().flatten() {
            let name = referrer["reference"].as_str().context("no reference")?;
            manifests.push(self.manifest(name).await?);
        }
        Ok(manifests)
    }

    /// Writes a blob of an image's repository to a file.
    pub async fn blob(&self, name: &str, digest: &str, file: &Path) -> anyhow::Result<()> {
        let output = format!("--output={}", file.display());
        let blob = format!("{name}@{digest}");
        let args = ["blob", "fetch", "--plain-http", &output, &blob];
        self.oras(&args).await.map(drop)
    }

    /// Runs oras. Returns what it writes.
    async fn oras(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.oras);
        command.args(args);
        let ran = Ran::of(command).await?.expect_code(0);
        let ran = ran.with_context(|| format!("oras {args:?}: {}", self.process.tail(15)))?;
        Ok(ran.stdout)
    }
}

/// An image or the chart of a release.
#[derive(Clone, Debug)]
pub struct Artefact {
    /// Folder of its image layout.
    layout: PathBuf,
    /// Name in the registry, without the tag.
    pub name: String,
    pub tag: String,
}

impl Artefact {
    /// Name in the registry, with the tag.
    pub fn tagged(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }
}

/// A release of the programs of a node.
#[derive(Debug)]
pub struct Release {
    folder: PathBuf,
    /// Registry and path of its images.
    pub registry: String,
    /// File with the public key of its signatures (PEM).
    pub key: PathBuf,
}

impl Release {
    /// Folder of the files to download.
    pub fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// The image of a program.
    pub fn image(&self, program: &str) -> Artefact {
        Artefact {
            layout: self.folder.join("images").join(program),
            name: format!("{}/{program}", self.registry),
            tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    pub fn chart(&self) -> Artefact {
        Artefact {
            layout: self.folder.join("chart"),
            name: format!("{}/charts/backup", self.registry),
            tag: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The images of all programs.
    pub fn images(&self) -> [Artefact; 3] {
        PROGRAMS.map(|program| self.image(program))
    }

    /// Pushes images and chart, and the signature of each.
    pub async fn push(&self, registry: &Registry) -> anyhow::Result<()> {
        for artefact in self.images().into_iter().chain([self.chart()]) {
            let Artefact { layout, name, tag } = &artefact;
            registry.push(layout, tag, name).await?;
            let digest = registry.digest(&artefact.tagged()).await?;
            registry.push(layout, &signature_tag(&digest), name).await?;
        }
        Ok(())
    }
}

/// The architecture of this machine in names of files and images.
pub fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("a release has no images for {other}"),
    }
}

/// Tag of the signature of a manifest.
pub fn signature_tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

impl Node {
    /// Starts a registry from which this node pulls.
    pub async fn start_registry(&self) -> anyhow::Result<Registry> {
        let registry = Registry::start(&self.folder().join("registry")).await?;
        let host = registry.host();
        allow_pulls(&host, &format!("server = \"http://{host}\"\n"))?;
        Ok(registry)
    }

    /// Makes a release of the programs of this node, for images below this name, signed with a new
    /// key. Pushes nothing.
    pub async fn make_release(&self, registry: &str) -> anyhow::Result<Release> {
        let folder = self.folder().join("release");
        let built = folder.join("programs");
        let own = built.join(format!("linux-{}", architecture()?));
        std::fs::create_dir_all(&own)?;
        let programs = &self.programs;
        for program in [
            &programs.webhook,
            &programs.controller,
            &programs.mover,
            &programs.kubectl_backup,
        ] {
            let copy = own.join(program.file_name().context("no name")?);
            run("strip", &[Path::new("-o"), &copy, program]).await?;
        }
        let key = KeyPair::generate()?;
        let private = folder.join("key.pem");
        let release = Release {
            folder: folder.join("out"),
            registry: registry.to_owned(),
            key: folder.join("public.pem"),
        };
        std::fs::write(&private, key.serialize_pem())?;
        std::fs::write(&release.key, key.public_key_pem())?;
        let mut make = Command::new(target().join("debug/xtask"));
        make.current_dir(root())
            .env("SOURCE_DATE_EPOCH", SOURCE_DATE_EPOCH)
            .args(["release", "--registry", registry, "--programs"])
            .arg(&built)
            .arg("--key")
            .arg(&private)
            .arg("--out")
            .arg(&release.folder);
        let ran = Ran::of(make).await.and_then(|ran| ran.expect_code(0));
        ran.context("make a release, by the program that `cargo build --bin xtask` builds")?;
        Ok(release)
    }
}

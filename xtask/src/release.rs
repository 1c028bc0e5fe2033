//! The files of a release, made by one command: images with lists of what they are made of and
//! statements about how, archives of the command, chart, manifest for krew, checksums and
//! signatures. Nothing is published.

mod archive;
mod build;
mod bundle;
mod chart;
mod facts;
mod images;
mod krew;
mod oci;
mod platforms;
mod provenance;
mod sbom;
mod sign;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use backup_tests::binaries::{root, target};

use bundle::{Bundle, COMMAND, Inputs, bundle};
use facts::Facts;
use platforms::{PLATFORMS, Platform, Tools, linker};
use sign::Key;

const BYTES_PER_MEGABYTE: usize = 1_000_000;

#[derive(clap::Args)]
pub struct Args {
    /// Registry and path of the images
    #[arg(long, default_value = "registry.example.com/backup")]
    registry: String,
    /// Owner and name of the repository on GitHub
    #[arg(long, default_value = "example/backup", value_name = "OWNER/NAME")]
    repository: String,
    /// Empty folder for the release [default: release-files in the target folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Folder with programs that were built elsewhere, in a folder for each platform such as
    /// linux-arm64. Nothing is built
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
    /// Private key (PEM, ECDSA P-256) to sign images, chart and checksums with
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// URI of what builds, for the statements about how the files were made
    #[arg(
        long,
        value_name = "URI",
        default_value = "https://localhost/cargo-xtask-release"
    )]
    builder: String,
}

/// A line of the table.
struct Row {
    object: String,
    made: &'static str,
    remark: String,
}

impl Row {
    fn made(object: impl Into<String>, remark: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            made: "yes",
            remark: remark.into(),
        }
    }

    fn missing(object: impl Into<String>, remark: impl Into<String>) -> Self {
        Self {
            object: object.into(),
            made: "no",
            remark: remark.into(),
        }
    }
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| target().join("release-files"));
    let is_empty = fs::read_dir(&out).map_or(true, |mut entries| entries.next().is_none());
    ensure!(is_empty, "{} is not empty: remove it", out.display());
    let key = args.key.as_deref().map(read_key).transpose()?;
    let mut rows = Vec::new();
    let inputs = inputs(args, &out, &mut rows)?;
    let mut bundle = bundle(&inputs)?;
    for (name, layout) in &bundle.images {
        let index = layout.tagged(&inputs.facts.tag())?;
        let archive = bundle.files.get(&format!("{name}.oci.tar"));
        let size = archive.map_or(0, Vec::len) / BYTES_PER_MEGABYTE;
        rows.push(Row::made(
            format!("image {name}"),
            format!("{}, all architectures {size} MB", index.digest),
        ));
    }
    rows.push(Row::made("chart, manifest for krew, checksums", ""));
    if let Some(key) = &key {
        sign_all(&mut bundle, &inputs.facts, key)?;
        rows.push(Row::made("signatures", "by the given key"));
    } else {
        rows.push(Row::missing("signatures", "no --key"));
    }
    write(&bundle, &out)?;
    println!("\n| | made | |\n| --- | --- | --- |");
    for row in &rows {
        println!("| {} | {} | {} |", row.object, row.made, row.remark);
    }
    println!("\nThe release is in {}.", out.display());
    Ok(())
}

fn read_key(path: &Path) -> anyhow::Result<Key> {
    let pem = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    Key::from_pem(&pem).with_context(|| format!("the key in {}", path.display()))
}

/// Builds or reads all that a release is made of, and adds to the table what could be built and
/// what not.
fn inputs(args: Args, out: &Path, rows: &mut Vec<Row>) -> anyhow::Result<Inputs> {
    let facts = facts(&args.registry, args.repository, args.builder)?;
    if facts.revision.is_none() {
        rows.push(Row::missing(
            "commit in the statements",
            "files differ from it, or there is no repository",
        ));
    }
    let tools = build::tools()?;
    let programs = match &args.programs {
        Some(folder) => read_all(folder, rows)?,
        None => build_all(&tools, facts.time, rows)?,
    };
    ensure!(!programs.is_empty(), "no platform can be built here");
    let mut systems = BTreeMap::new();
    for platform in programs.keys().filter(|platform| platform.has_images()) {
        match build::system(platform.arch) {
            Ok(tree) => {
                systems.insert(platform.arch.to_owned(), tree);
            }
            Err(error) => rows.push(Row::missing(
                format!("images for {}", platform.name()),
                format!("{error:#}"),
            )),
        }
    }
    let platforms: Vec<_> = programs.keys().copied().collect();
    let linux: Vec<_> = platforms
        .iter()
        .copied()
        .filter(Platform::has_images)
        .collect();
    let mut manifests = BTreeMap::new();
    let own = platforms.iter().find(|one| one.target == tools.host);
    if let Some(platform) = own {
        manifests = manifests_by(&programs[platform][COMMAND], out, &facts.registry)?;
    } else {
        rows.push(Row::missing(
            "engine.yaml and guard.yaml",
            "no command that runs here",
        ));
    }
    Ok(Inputs {
        metadata_of_images: build::metadata(&linux)?,
        metadata: build::metadata(&platforms)?,
        programs,
        systems,
        lock_sha256: oci::sha256(&read("Cargo.lock")?),
        chart: files_below(&root().join("deploy/chart"))?,
        krew: String::from_utf8(read("deploy/krew/backup.yaml")?)?,
        license: read("LICENSE")?,
        manifests,
        facts,
    })
}

/// Version, time and commit of the working tree.
fn facts(registry: &str, repository: String, builder: String) -> anyhow::Result<Facts> {
    let time = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(time) => time,
        Err(_) => git(&["log", "-1", "--format=%ct"])
            .context("set SOURCE_DATE_EPOCH, or run it in a git repository")?,
    };
    let changes = git(&["status", "--porcelain", "--untracked-files=no"]);
    let revision = git(&["rev-parse", "HEAD"]);
    Ok(Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        time: time
            .trim()
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH is no number of seconds: {time}"))?,
        revision: match (changes, revision) {
            (Ok(changes), Ok(revision)) => changes.is_empty().then(|| revision.trim().to_owned()),
            _ => None,
        },
        repository,
        // Names of images have no capitals.
        registry: registry.to_lowercase(),
        builder,
    })
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    build::output(Command::new("git").args(args).current_dir(root()))
}

type Programs = BTreeMap<Platform, BTreeMap<String, Vec<u8>>>;

fn build_all(tools: &Tools, time: u64, rows: &mut Vec<Row>) -> anyhow::Result<Programs> {
    let mut programs = Programs::new();
    for platform in PLATFORMS {
        let object = format!("programs for {}", platform.name());
        match linker(&platform, tools) {
            Ok(linker) => {
                println!("==> {object}");
                programs.insert(platform, build::programs(&platform, &linker, time)?);
                rows.push(Row::made(object, linker.needs(&platform)));
            }
            Err(reason) => rows.push(Row::missing(object, reason)),
        }
    }
    Ok(programs)
}

fn read_all(folder: &Path, rows: &mut Vec<Row>) -> anyhow::Result<Programs> {
    let mut programs = Programs::new();
    for platform in PLATFORMS {
        let object = format!("programs for {}", platform.name());
        let own = folder.join(platform.name());
        if own.is_dir() {
            programs.insert(platform, build::read_programs(&platform, &own)?);
            rows.push(Row::made(object, "built elsewhere"));
        } else {
            rows.push(Row::missing(object, format!("no folder {}", own.display())));
        }
    }
    Ok(programs)
}

/// The manifests by a command that runs here. Runs a copy of it, since a command that was built
/// elsewhere may have lost the right to be executed.
fn manifests_by(
    command: &[u8],
    out: &Path,
    registry: &str,
) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let path = out.join(COMMAND);
    fs::write(&path, command).with_context(|| format!("write {}", path.display()))?;
    build::output(Command::new("chmod").arg("755").arg(&path))?;
    let manifests = build::manifests(&path, registry);
    fs::remove_file(&path)?;
    manifests
}

/// Signs images, chart and checksums, and adds the public key.
fn sign_all(bundle: &mut Bundle, facts: &Facts, key: &Key) -> anyhow::Result<()> {
    for (program, layout) in &mut bundle.images {
        let index = layout.tagged(&facts.tag())?.clone();
        sign::sign(
            layout,
            &index,
            &format!("{}/{program}", facts.registry),
            key,
        )?;
    }
    let chart = bundle.chart.tagged(&facts.version)?.clone();
    let name = format!("{}/charts/backup", facts.registry);
    sign::sign(&mut bundle.chart, &chart, &name, key)?;
    let signature = key.sign(&bundle.files["SHA256SUMS"])?;
    let files = [
        ("SHA256SUMS.sig", signature),
        ("cosign.pub", key.public_pem()?),
    ];
    for (name, text) in files {
        bundle.files.insert(name.to_owned(), text.into_bytes());
    }
    Ok(())
}

fn write(bundle: &Bundle, out: &Path) -> anyhow::Result<()> {
    for (program, layout) in &bundle.images {
        layout.tree().write(&out.join("images").join(program))?;
    }
    bundle.chart.tree().write(&out.join("chart"))?;
    let files = out.join("files");
    fs::create_dir_all(&files)?;
    for (name, bytes) in &bundle.files {
        fs::write(files.join(name), bytes).with_context(|| format!("write {name}"))?;
    }
    Ok(())
}

/// A file of the project.
fn read(path: &str) -> anyhow::Result<Vec<u8>> {
    fs::read(root().join(path)).with_context(|| format!("read {path}"))
}

/// The files in a folder and in the folders below it, by path from there.
fn files_below(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let name = path
                .strip_prefix(folder)?
                .to_str()
                .with_context(|| format!("{} is no UTF-8", path.display()))?
                .to_owned();
            let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            files.insert(name, bytes);
        }
    }
    Ok(files)
}

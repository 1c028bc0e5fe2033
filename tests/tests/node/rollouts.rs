//! Rollouts to another version and back, with a hold in force, a restore that waits for it, and
//! creations.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use backup_core::{
    api::{Restore, RestorePhase, RestoreSpec},
    labels::ON_CONFLICT_ANNOTATION,
};
use backup_tests::{
    KubectlBackup, Skip,
    api::ApiExt as _,
    node::{IMAGES, Node, Registry, architecture},
};
use flate2::read::GzDecoder;
use kube::{Api, ResourceExt as _};

use crate::{
    creations::Creations,
    installation::{FREQUENT_POLLS, PROGRAMS, SOON, pods},
    published::remove_all,
    steps::{LONG, lose, restores, while_data_moves, with_state},
    writer::{FILES, create_application, is_same, listing, wait_for_application},
};

/// Variable with the absolute path of a folder with the files of the last release.
const LAST_RELEASE: &str = "BACKUP_TESTS_LAST_RELEASE";
const NO_LAST_RELEASE: Skip = Skip(
    "BACKUP_TESTS_LAST_RELEASE does not name a folder with the files of the last release, by its absolute path",
);
/// Tag of the images of this version.
const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Another tag of the same images represents another version.
pub(crate) async fn a_rollout_to_another_tag_and_back_keeps_holds_and_the_queue(
    node: &mut Node,
) -> anyhow::Result<()> {
    let plugin = node.kubectl_backup();
    node.tag_images("next").await?;
    let maintenance = Maintenance::begin(node, "first").await?;
    let creations = Creations::begin(node).await?;
    for tag in ["next", TAG] {
        let choice = format!("--tag={tag}");
        roll_out(node, &plugin, &[choice.as_str()], "", tag).await?;
        maintenance.still_holds(tag).await?;
    }
    finish(creations, maintenance).await
}

/// By the command of each version, with a backup whose data is moved during the upgrade, and a
/// restore of that data during the way back.
pub(crate) async fn from_the_last_release_to_this_version_and_back_no_work_fails(
    node: &mut Node,
) -> anyhow::Result<()> {
    const FIRST: &str = "before-the-upgrade";
    const MOVED: &str = "during-the-upgrade";
    const BACK: &str = "on-the-way-back";
    let node: &Node = node;
    let Some(files) = std::env::var_os(LAST_RELEASE).map(PathBuf::from) else {
        return Err(NO_LAST_RELEASE.into());
    };
    remove_all(node).await?;
    let registry = node.start_registry().await?;
    let last = LastRelease::push(node, &registry, &files).await?;
    let this = node.kubectl_backup();
    let images = format!("--registry={}", last.registry);
    let install = [
        "install",
        &images,
        "--replicas=2",
        FREQUENT_POLLS,
        "--timeout=90s",
    ];
    last.plugin.succeeds(&install).await?;
    node.create_location_with_authority("last-release").await?;
    node.create_shop().await?;
    node.wait_for_shop().await?;
    create_application(node).await?;
    wait_for_application(node).await?;
    let before = listing(node).await?;
    let create = ["create", FIRST, "--include-namespaces=shop", "--wait"];
    last.plugin.succeeds(&create).await?;

    let maintenance = Maintenance::begin(node, FIRST).await?;
    let creations = Creations::begin(node).await?;
    let scope = format!("--include-namespaces={FILES}");
    let create = ["create", MOVED, &scope, "--snapshot-move-data"];
    while_data_moves(node, "DataUpload", &create, async |_| {
        roll_out(node, &this, &["--registry="], "", TAG).await
    })
    .await?;
    maintenance.still_holds("this version").await?;
    let wait = ["wait", MOVED, "--timeout=150s"];
    let completed = this.succeeds(&wait).await;
    with_state(node, &["describe", MOVED, "--details"], completed).await?;

    lose(node, FILES).await?;
    let name = format!("--name={BACK}");
    let restore = ["restore", "--from-backup", MOVED, &name];
    while_data_moves(node, "DataDownload", &restore, async |_| {
        let path = format!("{}/", last.registry);
        roll_out(node, &last.plugin, &[images.as_str()], &path, &last.tag).await
    })
    .await?;
    maintenance.still_holds("the last release").await?;
    let is_completed = |one: &Restore| one.status.phase == Some(RestorePhase::Completed);
    let completed = restores(node)
        .wait_until(BACK, "is completed", LONG, is_completed)
        .await;
    let describe = ["restore", "describe", BACK, "--details"];
    with_state(node, &describe, completed).await?;
    wait_for_application(node).await?;
    is_same(&before, &listing(node).await?)?;
    finish(creations, maintenance).await
}

/// Has the command of a version roll it out with these flags, and checks the images of the pods: the
/// path before the name of a program, and the tag.
async fn roll_out(
    node: &Node,
    plugin: &KubectlBackup,
    flags: &[&str],
    path: &str,
    tag: &str,
) -> anyhow::Result<()> {
    let upgrade = ["upgrade", "--timeout=90s"];
    plugin.succeeds(&[&upgrade[..], flags].concat()).await?;
    for program in PROGRAMS {
        let expected = format!("{path}{program}:{tag}");
        for pod in pods(node, program).await? {
            let image = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.containers.first()?.image.as_deref());
            ensure!(
                image == Some(expected.as_str()),
                "{} has the image {image:?}, and not {expected}",
                pod.name_any()
            );
        }
    }
    Ok(())
}

/// Ends creations and maintenance after the last rollout.
async fn finish(creations: Creations, maintenance: Maintenance) -> anyhow::Result<()> {
    // The last of the replaced pods is still terminating.
    tokio::time::sleep(Duration::from_secs(6)).await;
    creations.end_without_failure().await?;
    maintenance.end().await
}

/// A hold of a namespace, and a Restore into it that waits for the hold.
struct Maintenance {
    plugin: KubectlBackup,
    restores: Api<Restore>,
}

impl Maintenance {
    const QUEUED: &str = "queued";

    /// Restores from this backup of the namespace `shop`.
    async fn begin(node: &Node, backup: &str) -> anyhow::Result<Self> {
        let plugin = node.kubectl_backup();
        plugin
            .succeeds(&[
                "locks",
                "hold",
                "maintenance",
                "--namespaces=held",
                "--reason=a rollout",
            ])
            .await?;
        let restores = restores(node);
        let spec = RestoreSpec {
            backup_name: Some(backup.to_owned()),
            included_resources: vec!["configmaps".to_owned()],
            included_namespaces: vec!["shop".to_owned()],
            namespace_mapping: [("shop".to_owned(), "held".to_owned())].into(),
            ..RestoreSpec::default()
        };
        let mut restore = Restore::new(Self::QUEUED, spec);
        restore
            .annotations_mut()
            .insert(ON_CONFLICT_ANNOTATION.to_owned(), "queue".to_owned());
        restores.create_object(&restore).await?;
        Ok(Self { plugin, restores })
    }

    /// Checks that the hold is in force with this version, and that the Restore waits.
    async fn still_holds(&self, version: &str) -> anyhow::Result<()> {
        let locks = self.plugin.succeeds(&["locks"]).await?.stdout;
        ensure!(
            locks.contains("maintenance") && locks.contains(Self::QUEUED),
            "with {version}: {locks}"
        );
        let phase = self.restores.get(Self::QUEUED).await?.status.phase;
        ensure!(
            phase.is_none_or(|phase| phase == RestorePhase::New),
            "with {version} it began within a hold"
        );
        Ok(())
    }

    /// Releases the hold, and waits until the Restore is completed.
    async fn end(self) -> anyhow::Result<()> {
        self.plugin
            .succeeds(&[
                "locks",
                "release",
                "hold/maintenance",
                "--reason=it is over",
                "--yes",
            ])
            .await?;
        let completed = |restore: &Restore| restore.status.phase == Some(RestorePhase::Completed);
        self.restores
            .wait_until(Self::QUEUED, "is completed", SOON, completed)
            .await
            .map(drop)
    }
}

/// The last release: its command, and its images in a registry.
struct LastRelease {
    plugin: KubectlBackup,
    /// Registry and path of its images.
    registry: String,
    tag: String,
}

impl LastRelease {
    /// Pushes its images from a folder with its files, and unpacks its command.
    async fn push(node: &Node, registry: &Registry, files: &Path) -> anyhow::Result<Self> {
        let tag = format!("v{}", version_in(files)?);
        let path = format!("{}/last", registry.host());
        for program in IMAGES {
            let archive = files.join(format!("{program}.oci.tar"));
            let name = format!("{path}/{program}");
            registry.push(&archive, &tag, &name).await?;
        }
        let archive = format!("kubectl-backup-linux-{}.tar.gz", architecture()?);
        let archive = files.join(archive);
        let folder = node.folder().join("last-release");
        let file = File::open(&archive).with_context(|| format!("open {}", archive.display()))?;
        tar::Archive::new(GzDecoder::new(file)).unpack(&folder)?;
        Ok(Self {
            plugin: node.kubectl_backup_of(&folder.join("kubectl-backup")),
            registry: path,
            tag,
        })
    }
}

/// The version of the files of a release, from the name of the chart.
fn version_in(files: &Path) -> anyhow::Result<String> {
    let entries = std::fs::read_dir(files)
        .with_context(|| format!("{LAST_RELEASE}: read {}", files.display()))?;
    for entry in entries {
        let name = entry?.file_name();
        let version = name
            .to_str()
            .and_then(|name| name.strip_prefix("backup-")?.strip_suffix(".tgz"));
        if let Some(version) = version {
            return Ok(version.to_owned());
        }
    }
    bail!(
        "{LAST_RELEASE}: no chart backup-VERSION.tgz in {}",
        files.display()
    )
}

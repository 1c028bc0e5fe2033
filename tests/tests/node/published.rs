//! What a release publishes, in a registry on loopback: signed, with its documents, and installed
//! from there, by Helm and by the command.

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use backup_tests::{
    api::{ApiExt as _, all_objects},
    install::{NAMESPACE, webhook_path},
    kubectl_backup::Ran,
    node::{Artefact, IMAGES, Node, Registry, Release, signature_tag},
};
use kube::ResourceExt as _;
use serde_json::Value;
use tokio::process::Command;

use crate::{
    installation::{PROGRAMS, pods},
    steps::back_up,
    writer::{FILES, create_application, wait_for_application},
};

/// Annotation of the layer of a signature.
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
/// Annotation of the layer of a document: its file name.
const TITLE: &str = "org.opencontainers.image.title";

pub(crate) async fn a_release_is_signed_and_installed_from_a_registry(
    node: &mut Node,
) -> anyhow::Result<()> {
    remove_all(node).await?;
    let registry = node.start_registry().await?;
    let release = node
        .make_release(&format!("{}/backup", registry.host()))
        .await?;
    release.push(&registry).await?;
    for artefact in release.images().iter().chain([&release.chart()]) {
        is_signed(&registry, &release, artefact).await?;
    }
    let sums = checked_sums(&release).await?;
    for program in IMAGES {
        has_documents(&registry, &release, program, &sums).await?;
    }
    node.create_shop().await?;
    node.wait_for_shop().await?;
    create_application(node).await?;
    wait_for_application(node).await?;
    let by_helm = install_with_helm(node, &registry, &release).await?;
    let by_command = install_with_the_command(node, &registry, &release).await?;
    println!(
        "    installed and ready: by Helm in {:.1} s, with images pulled from the registry; by the \
         command in {:.1} s, with images on the node (30 s are asked for)",
        by_helm.as_secs_f64(),
        by_command.as_secs_f64()
    );
    Ok(())
}

/// Removes an installation with its definitions and all their objects, so that the cluster has
/// nothing but the namespace.
pub(crate) async fn remove_all(node: &Node) -> anyhow::Result<()> {
    let definitions = "apiextensions.k8s.io/v1";
    let definitions = all_objects(&node.client, definitions, "CustomResourceDefinition");
    if !definitions.exists("backups.velero.io").await? {
        return Ok(());
    }
    let uninstall = [
        "uninstall",
        "--yes",
        "--force",
        "--with-definitions",
        "--with-ledgers",
        "--timeout=150s",
    ];
    node.kubectl_backup().succeeds(&uninstall).await.map(drop)
}

/// Installs the chart, makes a backup, and removes the release. Returns the time until the programs
/// were ready.
async fn install_with_helm(
    node: &Node,
    registry: &Registry,
    release: &Release,
) -> anyhow::Result<Duration> {
    let helm = node.helm()?;
    let chart = release.chart();
    let name = format!("oci://{}", chart.name);
    let start = Instant::now();
    let install = ["install", "backup", &name, "--version", &chart.tag];
    let into = ["--namespace", NAMESPACE, "--create-namespace"];
    let flags = ["--plain-http", "--wait", "--timeout=90s"];
    helm.succeeds(&[&install[..], &into, &flags].concat())
        .await?;
    let elapsed = start.elapsed();
    // Helm does not wait until the API server can call the webhook.
    webhook_path(&node.client).await?;
    runs_what_was_pushed(node, registry, release).await?;
    node.create_location_with_authority("published").await?;
    let create = [
        "create",
        "published-helm",
        "--include-namespaces=shop",
        "--wait",
    ];
    node.kubectl_backup().succeeds(&create).await?;
    let uninstall = ["uninstall", "backup", "--namespace", NAMESPACE, "--wait"];
    helm.succeeds(&uninstall).await?;
    Ok(elapsed)
}

/// Installs with the command, makes a backup with the data of volumes, and removes the
/// installation. Returns the time until the webhook had answered.
async fn install_with_the_command(
    node: &Node,
    registry: &Registry,
    release: &Release,
) -> anyhow::Result<Duration> {
    let plugin = node.kubectl_backup();
    let images = format!("--registry={}", release.registry);
    let start = Instant::now();
    plugin
        .succeeds(&["install", &images, "--timeout=90s"])
        .await?;
    let elapsed = start.elapsed();
    runs_what_was_pushed(node, registry, release).await?;
    // The image of the mover comes from the registry, too.
    back_up(node, FILES, "published-command").await?;
    // The objects of the installation by Helm have stayed.
    plugin.succeeds(&["describe", "published-helm"]).await?;
    // The clones of the volumes may not all be removed yet, which counts as work.
    let uninstall = ["uninstall", "--yes", "--force", "--timeout=90s"];
    plugin.succeeds(&uninstall).await?;
    Ok(elapsed)
}

/// Checks that the pods run the images in the registry, by digest.
async fn runs_what_was_pushed(
    node: &Node,
    registry: &Registry,
    release: &Release,
) -> anyhow::Result<()> {
    for program in PROGRAMS {
        let image = release.image(program);
        let digest = registry.digest(&image.tagged()).await?;
        let expected = format!("{}@{digest}", image.name);
        let pods = pods(node, program).await?;
        ensure!(!pods.is_empty(), "{program} has no pod");
        for pod in pods {
            let status = pod.status.as_ref();
            let containers = status.and_then(|status| status.container_statuses.as_deref());
            for container in containers.unwrap_or_default() {
                ensure!(
                    container.image_id == expected,
                    "{} runs {}, and not {expected}",
                    pod.name_any(),
                    container.image_id
                );
            }
        }
    }
    Ok(())
}

/// Checks as cosign does, by code of OpenSSL, that an artefact in the registry is signed by the key
/// of the release under its name there.
async fn is_signed(
    registry: &Registry,
    release: &Release,
    artefact: &Artefact,
) -> anyhow::Result<()> {
    let name = &artefact.name;
    let digest = registry.digest(&artefact.tagged()).await?;
    let signed = format!("{name}:{}", signature_tag(&digest));
    let signed = registry.manifest(&signed).await?;
    let layer = &signed["layers"][0];
    let signature = layer["annotations"][SIGNATURE]
        .as_str()
        .with_context(|| format!("{name} has no signature: {signed}"))?;
    let blob = layer["digest"].as_str().context("no digest")?;
    let file = release.key.with_file_name("payload");
    registry.blob(name, blob, &file).await?;
    ensure!(
        verifies(&release.key, &file, signature).await?,
        "the signature of {name} is not by the key of the release"
    );
    let payload: Value = serde_json::from_slice(&std::fs::read(&file)?)?;
    let critical = &payload["critical"];
    ensure!(
        critical["image"]["docker-manifest-digest"] == digest
            && critical["identity"]["docker-reference"] == *name,
        "the signature of {name} at {digest} is about another: {payload}"
    );
    Ok(())
}

/// Checks the files to download against `SHA256SUMS`, and its signature. Returns its text.
async fn checked_sums(release: &Release) -> anyhow::Result<String> {
    let files = release.files();
    let mut check = Command::new("sha256sum");
    check
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&files);
    Ran::of(check).await?.expect_code(0)?;
    let sums = files.join("SHA256SUMS");
    let signature = std::fs::read_to_string(files.join("SHA256SUMS.sig"))?;
    ensure!(
        verifies(&release.key, &sums, &signature).await?,
        "SHA256SUMS is not signed by the key of the release"
    );
    ensure!(
        !verifies(&release.key, &files.join("krew.yaml"), &signature).await?,
        "a signature of one file is taken for another"
    );
    Ok(std::fs::read_to_string(sums)?)
}

/// Whether a signature (base64) is one of a file by a key (PEM).
async fn verifies(key: &Path, file: &Path, signature: &str) -> anyhow::Result<bool> {
    let text = key.with_file_name("signature.base64");
    let bytes = key.with_file_name("signature");
    std::fs::write(&text, signature)?;
    let mut decode = Command::new("openssl");
    decode.args(["base64", "-d", "-A", "-in"]).arg(&text);
    decode.arg("-out").arg(&bytes);
    Ran::of(decode).await?.expect_code(0)?;
    let mut verify = Command::new("openssl");
    verify.args(["dgst", "-sha256", "-verify"]).arg(key);
    verify.arg("-signature").arg(&bytes).arg(file);
    let ran = Ran::of(verify).await?;
    ensure!(matches!(ran.code, 0 | 1), "{ran:?}");
    Ok(ran.code == 0)
}

/// Checks that an image in the registry has SBOM and provenance as referrers, which are the files
/// of the release.
async fn has_documents(
    registry: &Registry,
    release: &Release,
    program: &str,
    sums: &str,
) -> anyhow::Result<()> {
    let image = release.image(program).tagged();
    let mut titles = BTreeSet::new();
    for manifest in registry.referrers(&image).await? {
        let layer = &manifest["layers"][0];
        let title = layer["annotations"][TITLE].as_str().context("no title")?;
        let digest = layer["digest"].as_str().context("no digest")?;
        let hash = digest.trim_start_matches("sha256:");
        ensure!(
            sums.contains(&format!("{hash}  {title}\n")),
            "{title} of {image} is not the file of the release"
        );
        titles.insert(title.to_owned());
    }
    let expected = ["cdx.json", "provenance.json"].map(|ending| format!("{program}.{ending}"));
    ensure!(
        titles == BTreeSet::from(expected),
        "the documents of {image} are {titles:?}"
    );
    Ok(())
}

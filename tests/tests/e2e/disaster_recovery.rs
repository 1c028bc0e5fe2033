//! The walk-through of docs/operate/disaster-recovery.md: its commands, unchanged, on a new
//! cluster.

use std::path::Path;

use backup_tests::{binaries::root, kubectl_backup::Ran, object_store::S3};

use crate::prelude::*;

crate::tests! {
    the_page_on_disaster_recovery_brings_an_application_back,
}

const PAGE: &str = "docs/operate/disaster-recovery.md";
const INSTALLATION: &str = "docs/operate/install.md";
/// The backup and its namespace, named as on the page.
const BACKUP: &str = "nightly";
const NAMESPACE_BACKED_UP: &str = "shop";
const MAPS: usize = 3;

/// The blocks of commands in a chapter of a page.
fn commands(page: &str, chapter: &str) -> anyhow::Result<Vec<String>> {
    let content = std::fs::read_to_string(root().join(page))?;
    let text = content
        .split("\n## ")
        .find_map(|part| part.strip_prefix(chapter));
    let blocks = text
        .with_context(|| format!("{page} has no chapter {chapter:?}"))?
        .split("```sh\n")
        .skip(1);
    Ok(blocks
        .filter_map(|block| block.split("```").next())
        .map(str::to_owned)
        .collect())
}

/// A folder with the files that the page takes from outside of the cluster.
fn kept(folder: &Path, url: &str) -> anyhow::Result<()> {
    let mut location = json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
        "metadata": { "name": "default", "namespace": NAMESPACE },
        "spec": S3::location_spec(BUCKET, url) });
    location["spec"]["default"] = json!(true);
    std::fs::write(folder.join("location.yaml"), location.to_string())?;
    std::fs::write(folder.join("credentials"), S3::credentials())?;
    Ok(std::os::unix::fs::symlink(
        root().join("deploy"),
        folder.join("deploy"),
    )?)
}

/// Runs a block of commands, each of which must succeed.
async fn run(world: &World, folder: &Path, block: &str) -> anyhow::Result<Ran> {
    let ran = world
        .kubectl()?
        .shell(world.kubectl_backup().program(), folder, block)
        .await?;
    ran.expect_code(0).with_context(|| world.logs(15))
}

async fn the_page_on_disaster_recovery_brings_an_application_back(
    here: &mut World,
) -> anyhow::Result<()> {
    let url = here.s3()?.url();
    here.config_maps(NAMESPACE_BACKED_UP, MAPS).await?;
    here.back_up(BACKUP, of_namespaces(&[NAMESPACE_BACKED_UP]))
        .await?;

    // The other cluster, as after an installation: without location and credentials.
    let mut there = World::builder().webhooks(1).files().start().await?;
    there.remove_location("default").await?;
    let secrets = objects_in(&there.client, NAMESPACE, "v1", "Secret");
    secrets.delete_object("cloud-credentials").await?;
    let folder = tempfile::tempdir()?;
    kept(folder.path(), &url)?;
    let [location, import, restore] = &commands(PAGE, "The cluster is lost")?[..] else {
        bail!("{PAGE} has other steps than this test knows");
    };
    run(&there, folder.path(), location).await?;
    says(
        &run(&there, folder.path(), import).await?.stdout,
        &[BACKUP, "Completed"],
    )?;
    says(
        &run(&there, folder.path(), restore).await?.stdout,
        &["can be read", "Completed"],
    )?;
    let maps: Api<ConfigMap> = Api::namespaced(there.client.clone(), NAMESPACE_BACKED_UP);
    let restored = maps
        .list_all()
        .await?
        .iter()
        .filter(|map| map.name_any() != "kube-root-ca.crt")
        .count();
    ensure!(restored == MAPS, "{restored} ConfigMaps");

    // The same cluster loses its definitions, and with them all objects of ours. The restore has
    // left one with a finalizer.
    let definitions = all_objects(
        &there.client,
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    );
    let ours = definitions.names().await?;
    let ours: Vec<&String> = ours
        .iter()
        .filter(|name| name.ends_with(".velero.io"))
        .collect();
    let gone = async || {
        for name in &ours {
            definitions.wait_gone(name, Duration::from_mins(1)).await?;
        }
        anyhow::Ok(())
    };
    for name in &ours {
        definitions.delete_object(name).await?;
    }
    gone().await.with_context(|| there.logs(15))?;
    run(&there, folder.path(), "kubectl apply -k deploy/once\n").await?;
    let [again] = &commands(PAGE, "The definitions are deleted")?[..] else {
        bail!("{PAGE} has other steps than this test knows");
    };
    says(
        &run(&there, folder.path(), again).await?.stdout,
        &[BACKUP, "Completed"],
    )?;

    // Everything is removed, after the programs.
    there.restore("last", from_backup(BACKUP)).await?;
    for controller in &mut there.controllers {
        controller.kill().await?;
    }
    let [_, _, with_objects] = &commands(INSTALLATION, "Uninstall")?[..] else {
        bail!("{INSTALLATION} has other steps than this test knows");
    };
    run(&there, folder.path(), with_objects).await?;
    gone().await
}

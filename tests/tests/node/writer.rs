//! An application that keeps files of all kinds in two volumes.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use backup_tests::{
    kubectl_backup::Ran,
    node::{
        Node, TOOLS,
        csi::{LATE_STORAGE_CLASS, STORAGE_CLASS},
    },
};
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use serde_json::json;
use tokio::process::Command;

use crate::steps::{in_pod_of, wait_for_deployment};

/// Namespace of the application.
pub(crate) const FILES: &str = "files";
/// Number of its claims.
pub(crate) const CLAIMS: usize = 2;
/// The claim with the large files.
pub(crate) const LARGE: &str = "first";
/// The claim with the small files.
pub(crate) const SMALL: &str = "second";
/// An extended attribute, which busybox cannot set, and its value.
const ATTRIBUTE: (&str, &[u8]) = ("user.colour", b"blue");

/// Fills both volumes, unless that was done before.
const FILL: &str = r#"
set -e
if ! [ -e /first/complete ]; then
  cd /first
  dd if=/dev/urandom of=large bs=1M count=20
  ln large other-name-of-large
  truncate -s 64M sparse
  echo end >> sparse
  mkdir -p private/deep 'with blanks'
  echo secret > private/deep/key
  chmod 0600 private/deep/key
  chmod 0700 private private/deep
  chown -R 1000:1000 private
  ln -s private/deep/key link
  ln -s /nowhere 'with blanks/link without target'
  echo program > program
  chown 7:8 program
  chmod 4755 program
  mkfifo pipe
  touch -d '2001-02-03 04:05:06' old
  mkdir empty
  chmod 1777 empty
  cd /second
  for number in $(seq 100); do echo "$number" > "file-$number"; done
  chown 1000:1000 /first
  chmod 0700 /first
  touch /second/complete /first/complete
fi
exec sleep 1000000
"#;

/// Lists the folders of both volumes with modes and owners.
const LIST_FOLDERS: &str = "stat -c '%n %a %u:%g' /first /second\n";

/// Lists everything in both volumes, below the folder in `ROOT`, with types, modes, owners, times,
/// sizes, numbers of names, targets of links, and checksums.
const LIST: &str = r#"
set -e
for volume in /first /second; do
  cd "$ROOT$volume"
  find . -mindepth 1 | sort | while read -r name; do
    if [ -L "$name" ]; then
      stat -c "$volume %n %F %u:%g %Y" "$name"
      readlink "$name"
    elif [ -d "$name" ]; then
      stat -c "$volume %n %F %a %u:%g %Y" "$name"
    else
      stat -c "$volume %n %F %a %u:%g %Y %s %h" "$name"
    fi
    if [ -f "$name" ] && ! [ -L "$name" ]; then md5sum "$name"; fi
  done
done
"#;

/// Creates two claims, of which the second is provisioned only when a pod uses it, and a pod that
/// fills their volumes.
pub(crate) async fn create_application(node: &Node) -> anyhow::Result<()> {
    let labels = json!({ "app": "writer" });
    let claim = |name: &str, class: &str| {
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": FILES },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": { "requests": { "storage": "200Mi" } } } })
    };
    let volume =
        |name: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
    let mount = |name: &str| json!({ "name": name, "mountPath": format!("/{name}") });
    let ready = ["busybox", "test", "-e", "/second/complete"];
    let pod = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{ "name": "writer", "image": TOOLS, "args": ["sh", "-c", FILL],
            "readinessProbe": { "exec": { "command": ready }, "periodSeconds": 1 },
            "volumeMounts": [mount(LARGE), mount(SMALL)] }],
        "volumes": [volume(LARGE), volume(SMALL)],
    });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": FILES } }),
        claim(LARGE, STORAGE_CLASS),
        claim(SMALL, LATE_STORAGE_CLASS),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "writer", "namespace": FILES },
            "spec": { "replicas": 1, "strategy": { "type": "Recreate" },
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod } } }),
    ];
    node.apply(&objects).await
}

/// Waits until the pod runs with both volumes.
pub(crate) async fn wait_for_application(node: &Node) -> anyhow::Result<()> {
    wait_for_deployment(node, FILES, "writer").await
}

/// Everything in both volumes, with their own folders.
pub(crate) async fn listing(node: &Node) -> anyhow::Result<String> {
    in_pod(node, &format!("{LIST_FOLDERS}{LIST}")).await
}

/// Everything in the folders of both volumes.
pub(crate) async fn entries(node: &Node) -> anyhow::Result<String> {
    in_pod(node, LIST).await
}

/// The same for copies of the volumes in a folder of this machine.
pub(crate) async fn entries_below(folder: &Path) -> anyhow::Result<String> {
    let mut list = Command::new("busybox");
    list.args(["sh", "-c", LIST]).env("ROOT", folder);
    Ok(Ran::of(list).await?.expect_code(0)?.stdout)
}

/// Runs a script in the application's pod. Returns its output.
pub(crate) async fn in_pod(node: &Node, script: &str) -> anyhow::Result<String> {
    in_pod_of(node, FILES, "writer", script).await
}

/// Errors: the listings differ.
pub(crate) fn is_same(before: &str, after: &str) -> anyhow::Result<()> {
    let lines = [before, after].map(|text| text.lines().collect::<BTreeSet<_>>());
    let [old, new] = &lines;
    let lost: Vec<_> = old.difference(new).collect();
    let added: Vec<_> = new.difference(old).collect();
    ensure!(
        before == after,
        "the volumes differ; before: {lost:#?}, after: {added:#?}"
    );
    Ok(())
}

/// The file with the extended attribute, in the storage system.
fn marked_file(node: &Node) -> anyhow::Result<PathBuf> {
    let volumes = node.csi.volumes()?.into_iter();
    let mut files = volumes.map(|volume| volume.join("program"));
    files
        .find(|file| file.exists())
        .context("no volume has the file")
}

/// Sets an extended attribute of a file in a volume.
pub(crate) fn set_attribute(node: &Node) -> anyhow::Result<()> {
    let (name, value) = ATTRIBUTE;
    Ok(lsetxattr(
        marked_file(node)?,
        name,
        value,
        XattrFlags::empty(),
    )?)
}

pub(crate) fn has_attribute(node: &Node) -> anyhow::Result<bool> {
    let (name, expected) = ATTRIBUTE;
    let mut value = [0; 64];
    let length = lgetxattr(marked_file(node)?, name, &mut value[..])?;
    Ok(value.get(..length) == Some(expected))
}

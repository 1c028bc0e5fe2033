//! Loop devices, by which pods see block volumes. They belong to the whole machine: unlike anything
//! else of a node, they do not end with its namespaces.

use std::{fs::OpenOptions, path::Path, process::Command};

use anyhow::{Context as _, ensure};

const CONTROL: &str = "/dev/loop-control";
const LOSETUP: &str = "losetup";
/// Start of the path of a node's file after the node and its mounts have ended.
const ABANDONED: &str = "/backup-tests-";

/// A device that has contents.
struct LoopDevice {
    name: String,
    /// File system of the contents.
    file_system: String,
    /// File with the contents.
    file: String,
}

/// Whether this machine has loop devices.
pub fn are_available() -> bool {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL);
    control.is_ok() && Command::new(LOSETUP).arg("--version").output().is_ok()
}

/// The files in this folder that are contents of loop devices.
pub fn attached_files(folder: &Path) -> anyhow::Result<Vec<String>> {
    let files = attached()?.into_iter().map(|device| device.file);
    Ok(files
        .filter(|file| Path::new(file).starts_with(folder))
        .collect())
}

/// Detaches the devices of nodes that have ended. The CSI driver's devices are detached once they
/// are closed; but kubelet lays another device over each, so that it stays open. Such a device
/// would also keep the memory of the node.
pub(super) fn detach_abandoned() {
    if are_available()
        && let Err(error) = detach()
    {
        eprintln!("loop devices of a node that has ended are left: {error:#}");
    }
}

fn detach() -> anyhow::Result<()> {
    let (of_driver, others): (Vec<_>, Vec<_>) = attached()?
        .into_iter()
        .partition(|device| device.file.starts_with(ABANDONED));
    for device in others {
        // Kubelet's name of the driver's device is in the same file system as its contents.
        let is_kubelets = of_driver
            .iter()
            .any(|other| other.file_system == device.file_system);
        if is_kubelets {
            losetup(&["--detach", &device.name])?;
        }
    }
    Ok(())
}

fn attached() -> anyhow::Result<Vec<LoopDevice>> {
    let columns = "NAME,BACK-MAJ:MIN,BACK-FILE";
    let text = losetup(&["--list", "--noheadings", "--raw", "--output", columns])?;
    Ok(text.lines().filter_map(device).collect())
}

/// A line of the list; blanks in names are encoded.
fn device(line: &str) -> Option<LoopDevice> {
    let mut fields = line.split_whitespace().map(str::to_owned);
    Some(LoopDevice {
        name: fields.next()?,
        file_system: fields.next()?,
        file: fields.next()?,
    })
}

fn losetup(args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(LOSETUP)
        .args(args)
        .output()
        .context("run losetup")?;
    ensure!(
        output.status.success(),
        "losetup {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

//! Whether this machine can be a node, and the namespaces of a node.
//!
//! 1. [`missing`] says what a machine lacks.
//! 2. [`run_inside`] starts this program again in separate namespaces and control groups, below a
//!    first process that reaps the orphans of pods.
//! 3. When that program or this one ends, for whatever reason, the kernel ends every process
//!    inside, and removes mounts and networks. The empty folders of the control groups, and loop
//!    devices ([`loops`]), are removed by this program, or by the next run.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use super::{ADDRESS, loops};
use crate::{
    binaries::{
        PROGRAMS, Programs, build_clients, build_control_plane, build_csi, build_dns,
        build_node_programs, go_available,
    },
    snapshots,
};

/// This variable is set inside.
const INSIDE: &str = "BACKUP_TESTS_NODE";
/// Programs of a node, and their Debian packages.
const NEEDED: [(&str, &str); 13] = [
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("buildah", "buildah"),
    ("catatonit", "catatonit"),
    ("busybox", "busybox-static"),
    ("iptables", "iptables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("strip", "binutils"),
    ("openssl", "openssl"),
];
/// Files of a node, and their Debian packages.
const FILES: [(&str, &str); 2] = [
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    (AUTHORITIES, "ca-certificates"),
];
pub(super) const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const NAMESPACES: [&str; 9] = [
    "--mount",
    "--net",
    "--pid",
    "--cgroup",
    "--ipc",
    "--uts",
    "--fork",
    "--kill-child=SIGKILL",
    "--mount-proc",
];
/// Uses the kernel features that are needed: bridges, pairs of interfaces, address translation,
/// overlays.
const PROBE: &str = "mount -t tmpfs probe /mnt && mkdir /mnt/lower /mnt/upper /mnt/work /mnt/all && \
    mount -t overlay -o lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work probe /mnt/all && \
    ip link add probe type bridge && ip link add probe0 type veth peer name probe1 && \
    iptables --wait --table nat --append POSTROUTING --match comment --comment probe --jump MASQUERADE";

/// Why no node can be made here; `None` if one can.
pub fn missing() -> anyhow::Result<Option<String>> {
    let others = ["KUBECONFIG_FOR_TESTS", "KUBEBUILDER_ASSETS"];
    if let Some(name) = others
        .into_iter()
        .find(|name| std::env::var_os(name).is_some())
    {
        return Ok(Some(format!(
            "{name} is set, and a node is made beside the kit's own control plane"
        )));
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(Some("a node is made by root".to_owned()));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has =
        |program: &str| std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    let programs = NEEDED.into_iter().filter(|(program, _)| !has(program));
    let files = FILES
        .into_iter()
        .filter(|(file, _)| !Path::new(file).exists());
    let (names, mut packages): (Vec<_>, Vec<_>) = programs.chain(files).unzip();
    if !names.is_empty() {
        packages.dedup();
        return Ok(Some(format!(
            "there is no {}: apt-get install --no-install-recommends {}",
            names.join(", "),
            packages.join(" ")
        )));
    }
    if !go_available() {
        return Ok(Some(
            "kubelet is built from its Go module, and there is no Go".to_owned(),
        ));
    }
    if groups()?.is_empty() {
        return Ok(Some(
            "there are no control groups of version 1 in /sys/fs/cgroup".to_owned(),
        ));
    }
    let probe = Command::new("unshare")
        .args(NAMESPACES)
        .args(["sh", "-ec", PROBE])
        .output()?;
    let said = String::from_utf8_lossy(&probe.stderr);
    Ok((!probe.status.success())
        .then(|| format!("the kernel does not let a node be made: {}", said.trim())))
}

pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this program inside with these arguments and this input. Returns whether it succeeded.
pub fn run_inside(arguments: &[String], input: Stdio) -> anyhow::Result<bool> {
    // Joins the groups before the `--`, and then executes the command after it.
    const JOIN: &str =
        "until [ \"$1\" = -- ]; do echo $$ > \"$1/cgroup.procs\"; shift; done; shift; exec \"$@\"";
    // Builds and downloads happen here: there is no way out from inside.
    let programs = Programs::build("dev")?;
    build_control_plane()?;
    build_clients()?;
    build_node_programs()?;
    build_dns()?;
    build_csi()?;
    snapshots::definitions()?;
    loops::detach_abandoned();
    let groups = Groups::make()?;
    // Killed with this program; unshare's child is killed with unshare.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "sh", "-ec", JOIN, "sh"])
        .args(&groups.0)
        .args(["--", "unshare"]);
    command
        .args(NAMESPACES)
        .args(["catatonit", "--", "sh", "-ec", include_str!("prepare.sh")]);
    command
        .arg(ADDRESS.to_string())
        .arg(std::env::current_exe()?)
        .args(arguments);
    command
        .env(INSIDE, "yes")
        .env(PROGRAMS, programs.folder())
        .stdin(input);
    let status = command.status().context("run setpriv")?;
    loops::detach_abandoned();
    Ok(status.success())
}

/// Control groups of one run: the folder of each controller, below the group that this process is
/// in.
struct Groups(Vec<PathBuf>);

impl Groups {
    const PREFIX: &str = "backup-tests-node-";

    fn make() -> anyhow::Result<Self> {
        let mut made = Self(Vec::new());
        for parent in groups()? {
            remove_abandoned(&parent)?;
            let folder = parent.join(format!("{}{}", Self::PREFIX, std::process::id()));
            std::fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
            made.0.push(folder.clone());
            // A group for processors and memory accepts no process before these are set.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = std::fs::read(parent.join(file)) {
                    std::fs::write(folder.join(file), all)?;
                }
            }
        }
        Ok(made)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        // The last processes have been killed, and may still be ending.
        let end = Instant::now() + Duration::from_secs(10);
        for folder in &self.0 {
            while let Err(error) = remove(folder) {
                if Instant::now() > end {
                    eprintln!("{} is left: {error:#}", folder.display());
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// The groups of version 1 that this process is in, as folders.
fn groups() -> anyhow::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(names), Some(path)) = (fields.next(), fields.next()) else {
            bail!("/proc/self/cgroup: {line}")
        };
        let mount = Path::new("/sys/fs/cgroup").join(names.trim_start_matches("name="));
        let folder = mount.join(path.trim_start_matches('/'));
        if !names.is_empty() && folder.join("cgroup.procs").exists() {
            folders.push(folder);
        }
    }
    Ok(folders)
}

/// Removes the groups of runs that could not do so themselves.
fn remove_abandoned(parent: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(run) = name
            .to_str()
            .and_then(|name| name.strip_prefix(Groups::PREFIX))
        else {
            continue;
        };
        if !Path::new("/proc").join(run).exists() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a group and its subgroups, which must not have processes.
fn remove(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    std::fs::remove_dir(folder).with_context(|| format!("remove {}", folder.display()))
}

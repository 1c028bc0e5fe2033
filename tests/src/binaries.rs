//! Paths of the programs: ours from cargo's target folder, the control plane's built once from the
//! Go module.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .unwrap_or_default()
}

pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this, without the variables that it sets about the current package: ring's
/// build script reads them, so ring and all its dependents would be rebuilt at every change between
/// a cargo started by a user and one started by cargo.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in std::env::vars_os() {
        let of_package = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_BIN_",
            "CARGO_CRATE_",
            "CARGO_PRIMARY_",
        ];
        if of_package
            .iter()
            .any(|prefix| name.to_string_lossy().starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Variable with a folder of programs to use instead of those that cargo builds.
pub(crate) const PROGRAMS: &str = "BACKUP_TESTS_PROGRAMS";

/// Cargo's arguments for the four programs. The data mover is the last one.
static TARGETS: [&str; 4] = [
    "--bin=backup-webhook",
    "--bin=backup-controller",
    "--bin=kubectl-backup",
    "--bin=backup-mover",
];

/// The four programs of the project, built with this profile (`dev` or `release`).
#[derive(Clone, Debug)]
pub struct Programs {
    pub webhook: PathBuf,
    pub controller: PathBuf,
    pub kubectl_backup: PathBuf,
    pub mover: PathBuf,
}

impl Programs {
    /// Builds them once (cargo does nothing when they are fresh) and returns their paths. If
    /// `BACKUP_TESTS_PROGRAMS` is set, uses those in that folder instead: an older build for
    /// comparison, or released programs.
    pub fn build(profile: &str) -> anyhow::Result<Self> {
        Self::build_targets(profile, &TARGETS)
    }

    /// Like `build`, but without the data mover, which runs only on nodes: together with the
    /// libraries that only it uses it is a sixth of a first build.
    pub fn build_without_mover(profile: &str) -> anyhow::Result<Self> {
        Self::build_targets(profile, &TARGETS[..3])
    }

    fn build_targets(profile: &str, targets: &'static [&'static str]) -> anyhow::Result<Self> {
        type Build = (String, &'static [&'static str]);
        // Worlds that start at the same time wait here for the first one.
        static BUILT: Mutex<BTreeMap<Build, Programs>> = Mutex::new(BTreeMap::new());
        if let Some(folder) = std::env::var_os(PROGRAMS) {
            return Ok(Self::in_folder(Path::new(&folder)));
        }
        let build = (profile.to_owned(), targets);
        let mut known = BUILT.lock();
        if let Some(programs) = known.get(&build) {
            return Ok(programs.clone());
        }
        let mut command = cargo();
        // Selects the packages of the whole workspace, so that features are the same as in every
        // other build and nothing is built twice.
        command
            .args(["build", "--workspace", "--profile", profile])
            .args(targets);
        if profile != "dev" {
            // Measured programs are built by the compiler itself, not by the wrapper that lints.
            command.env_remove("RUSTC_WORKSPACE_WRAPPER");
        }
        let status = command.status().context("run cargo")?;
        if !status.success() {
            bail!("cargo build failed ({status})");
        }
        let programs =
            Self::in_folder(&target().join(if profile == "dev" { "debug" } else { profile }));
        known.insert(build, programs.clone());
        Ok(programs)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.controller.parent().unwrap_or(&self.controller)
    }

    /// The programs that were built into this folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            webhook: folder.join("backup-webhook"),
            controller: folder.join("backup-controller"),
            kubectl_backup: folder.join("kubectl-backup"),
            mover: folder.join("backup-mover"),
        }
    }
}

#[derive(Clone, Debug)]
pub enum PlanePrograms {
    /// One binary of ours with all components (`tests/control-plane`) and the S3 server.
    Ours(PathBuf),
    /// A folder that holds `etcd`, `kube-apiserver` and perhaps `kube-controller-manager`.
    Folder(PathBuf),
}

impl PlanePrograms {
    /// From `KUBEBUILDER_ASSETS`, or built from the Go module for the Kubernetes version in
    /// `BACKUP_TESTS_KUBERNETES`, once for each checksum of its sources.
    pub fn find() -> anyhow::Result<Self> {
        if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS") {
            return Ok(Self::Folder(folder.into()));
        }
        match std::env::var(KUBERNETES) {
            Ok(version) if version != DEFAULT_KUBERNETES => {
                Ok(Self::Ours(build_other_kubernetes(&version)?))
            }
            _ => Ok(Self::Ours(build_control_plane()?)),
        }
    }

    /// Program and first arguments of a component.
    pub fn command(&self, component: &str) -> (PathBuf, Vec<String>) {
        match self {
            Self::Ours(binary) => (binary.clone(), vec![component.to_owned()]),
            Self::Folder(folder) => (folder.join(component), Vec::new()),
        }
    }

    pub fn has(&self, component: &str) -> bool {
        match self {
            Self::Ours(_) => true,
            Self::Folder(folder) => folder.join(component).exists(),
        }
    }
}

/// Variable with the Kubernetes version that tests run on, such as `1.37`.
pub const KUBERNETES: &str = "BACKUP_TESTS_KUBERNETES";
/// The version in `tests/control-plane/go.mod`.
pub const DEFAULT_KUBERNETES: &str = "1.34";

/// Kubernetes versions that can be built: the one in `go.mod`, and one for each file in
/// `tests/control-plane/kubernetes`.
pub fn kubernetes_versions() -> anyhow::Result<Vec<String>> {
    let mut versions = vec![DEFAULT_KUBERNETES.to_owned()];
    for entry in std::fs::read_dir(root().join("tests/control-plane/kubernetes"))? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        versions.extend(name.strip_suffix(".mod").map(str::to_owned));
    }
    versions.sort();
    Ok(versions)
}

/// Whether the S3 server is available: it needs Go, unless it was built before. A machine without
/// Go, with its own cluster or binaries, tests on a local folder instead.
pub(crate) fn s3_available() -> bool {
    let others = ["KUBECONFIG_FOR_TESTS", "KUBEBUILDER_ASSETS"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    !others || go_available()
}

/// Builds `tests/control-plane`, unless these sources were built before. Returns the path of the
/// binary.
pub(crate) fn build_control_plane() -> anyhow::Result<PathBuf> {
    build_go(
        "control-plane",
        ".",
        "control-plane",
        "the control plane from Go modules: about 7 minutes on 2 cores, once",
    )
}

/// Builds etcd, kube-apiserver and kube-controller-manager of this Kubernetes version
/// (`tests/control-plane/kubernetes`): the same sources with another `go.mod`, without the programs
/// that are not part of Kubernetes. Returns the path of the binary.
fn build_other_kubernetes(version: &str) -> anyhow::Result<PathBuf> {
    let modules = format!("kubernetes/{version}.mod");
    let file = root().join("tests/control-plane").join(&modules);
    if !file.exists() {
        let known = kubernetes_versions()?.join(", ");
        bail!(
            "{KUBERNETES}={version}: only {known} can be built, as tests/control-plane/kubernetes says"
        );
    }
    let exact = kubernetes_of(&std::fs::read_to_string(file)?)
        .with_context(|| format!("{modules} does not name k8s.io/kubernetes"))?;
    build_go_as(
        "control-plane",
        ".",
        &format!("kubernetes-{version}"),
        &format!("Kubernetes {exact} from Go modules: about 9 minutes on 2 cores, once"),
        &ldflags(&exact),
        &["-tags", "planeonly", "-modfile", &modules],
    )
}

/// The Kubernetes version that a `go.mod` requires.
fn kubernetes_of(modules: &str) -> Option<String> {
    let required = modules
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))?;
    Some(required.split_whitespace().next()?.to_owned())
}

/// Builds kubectl and the client-go program (`tests/control-plane/clients`). Returns the path of
/// the binary with both.
pub fn build_clients() -> anyhow::Result<PathBuf> {
    build_go(
        "control-plane",
        "./clients",
        "clients",
        "kubectl from Go modules: about half a minute after the control plane",
    )
}

/// Builds kubelet, kube-scheduler and kube-proxy (`tests/control-plane/node`). Returns the path of
/// the binary with all of them.
pub(crate) fn build_node_programs() -> anyhow::Result<PathBuf> {
    build_go(
        "control-plane",
        "./node",
        "node",
        "kubelet from Go modules: about a minute after the control plane",
    )
}

/// Builds CoreDNS (`tests/dns`). Returns its path.
pub(crate) fn build_dns() -> anyhow::Result<PathBuf> {
    build_go(
        "dns",
        ".",
        "dns",
        "CoreDNS from Go modules: about two minutes on 2 cores, once",
    )
}

/// The CSI driver of the node and its sidecars.
pub(crate) struct CsiPrograms {
    pub(crate) driver: PathBuf,
    pub(crate) provisioner: PathBuf,
    pub(crate) snapshotter: PathBuf,
    pub(crate) snapshot_controller: PathBuf,
}

/// Builds the CSI driver and its sidecars (`tests/csi`).
pub(crate) fn build_csi() -> anyhow::Result<CsiPrograms> {
    let sidecar = |package: &str, name: &str| {
        let package = format!("github.com/kubernetes-csi/{package}/cmd/{name}");
        let what = format!("{name} from Go modules: about two minutes on 2 cores, once");
        build_go("csi", &package, name, &what)
    };
    Ok(CsiPrograms {
        driver: build_go("csi", ".", "csi", "the CSI driver from Go modules")?,
        provisioner: sidecar("external-provisioner/v5", "csi-provisioner")?,
        snapshotter: sidecar("external-snapshotter/v8", "csi-snapshotter")?,
        snapshot_controller: sidecar("external-snapshotter/v8", "snapshot-controller")?,
    })
}

/// Builds Helm (`tests/helm`). Returns its path. It needs Go: see `go_available`.
pub(crate) fn build_helm() -> anyhow::Result<PathBuf> {
    build_go(
        "helm",
        "helm.sh/helm/v3/cmd/helm",
        "helm",
        "Helm from Go modules: about a minute and a half on 2 cores, once",
    )
}

/// Builds the registry of images (`tests/registry`). Returns its path.
pub(crate) fn build_registry() -> anyhow::Result<PathBuf> {
    build_go("registry", ".", "registry", "a registry from Go modules")
}

/// Builds oras (`tests/registry`). Returns its path.
pub(crate) fn build_oras() -> anyhow::Result<PathBuf> {
    build_go(
        "registry",
        "oras.land/oras/cmd/oras",
        "oras",
        "oras from Go modules: about a quarter of a minute on 2 cores, once",
    )
}

/// Builds restic (`tests/movers`). Returns its path. It needs Go: see `go_available`.
pub fn build_restic() -> anyhow::Result<PathBuf> {
    build_go(
        "movers",
        "github.com/restic/restic/cmd/restic",
        "restic",
        "restic from Go modules: about a minute on 2 cores, once",
    )
}

/// Builds kopia (`tests/movers`). Returns its path. It needs Go: see `go_available`.
pub fn build_kopia() -> anyhow::Result<PathBuf> {
    build_go(
        "movers",
        "github.com/kopia/kopia",
        "kopia",
        "kopia from Go modules: about a minute and a half on 2 cores, once",
    )
}

/// Builds the plugin binary (`tests/plugins`). Returns its path. It needs Go: see `go_available`.
pub(crate) fn build_plugins() -> anyhow::Result<PathBuf> {
    build_go(
        "plugins",
        ".",
        "plugins",
        "plugins on Velero's framework: about 3 minutes on 2 cores, once",
    )
}

/// Whether Go is installed.
pub(crate) fn go_available() -> bool {
    Command::new("go")
        .arg("version")
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Keeps the compiler from writing debug information, which takes a sixth of its time and which the
/// linker leaves out anyway (`-w`).
const NO_DEBUG_INFORMATION: &str = "-gcflags=all=-dwarf=false";

/// Builds a package of a module in `tests`, unless these sources were built before.
fn build_go(module: &str, package: &str, name: &str, what: &str) -> anyhow::Result<PathBuf> {
    build_go_as(module, package, name, what, &ldflags("v1.34.4"), &[])
}

/// Like `build_go`, with these linker settings and `go build` flags. Another `go.mod` in a folder
/// beside the sources counts as a source only if a flag names it.
fn build_go_as(
    module: &str,
    package: &str,
    name: &str,
    what: &str,
    ldflags: &str,
    flags: &[&str],
) -> anyhow::Result<PathBuf> {
    // Worlds that start at the same time wait here for the first one.
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock();
    let source = root().join("tests").join(module);
    let others = flags.last().map(|flag| source.join(flag));
    let binary = target()
        .join(module)
        .join(checksum(&source, others.as_deref(), ldflags)?)
        .join(name);
    if binary.exists() {
        return Ok(binary);
    }
    eprintln!("building {what}");
    let folder = binary.parent().context("no parent")?;
    std::fs::create_dir_all(folder)?;
    let partial = folder.join(format!("{name}.partial"));
    let status = Command::new("go")
        .current_dir(&source)
        .env_remove("GOFLAGS")
        .args(["build", "-trimpath", "-buildvcs=false", NO_DEBUG_INFORMATION])
        .args(["-ldflags", ldflags])
        .args(flags)
        .arg("-o")
        .arg(&partial)
        .arg(package)
        .status()
        .context(
            "run go: the tests need Go to build etcd, kube-apiserver and plugins. Install Go, or set KUBEBUILDER_ASSETS to a folder \
             with the binaries, or KUBECONFIG_FOR_TESTS to the kubeconfig of a cluster",
        )?;
    if !status.success() {
        bail!("go build {package} in tests/{module} failed ({status})");
    }
    // The rename makes an interrupted build invisible.
    std::fs::rename(&partial, &binary)?;
    Ok(binary)
}

/// Linker flags that set the version reported by the API server: kubectl refuses v0.0.0.
fn ldflags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    format!(
        "-s -w -X k8s.io/component-base/version.gitVersion={version} \
         -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor={minor}"
    )
}

/// Checksum of the sources of a module. Of the `go.mod` files for other Kubernetes versions, only
/// the one used in this build counts.
fn checksum(source: &Path, modules: Option<&Path>, ldflags: &str) -> anyhow::Result<String> {
    let mut files = Vec::new();
    let mut folders = vec![source.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if path != source.join("kubernetes") {
                    folders.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|ext| ["go", "mod", "sum"].iter().any(|known| ext == *known))
            {
                files.push(path);
            }
        }
    }
    if let Some(modules) = modules {
        // Sources that are not linked do not count.
        files.retain(|file| {
            file.parent() == Some(source) && file.extension().is_some_and(|ext| ext == "go")
        });
        files.extend([modules.to_owned(), modules.with_extension("sum")]);
    }
    files.sort();
    let mut hash = Sha256::new();
    hash.update(ldflags);
    for file in files {
        hash.update(file.strip_prefix(source)?.as_os_str().as_encoded_bytes());
        hash.update(std::fs::read(&file)?);
    }
    Ok(hash
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_builds_each_program_and_no_other_one() {
        let programs = Programs::in_folder(Path::new(""));
        let paths = [
            programs.webhook,
            programs.controller,
            programs.kubectl_backup,
            programs.mover,
        ];
        assert_eq!(
            paths.map(|path| format!("--bin={}", path.display())),
            TARGETS
        );
    }
}

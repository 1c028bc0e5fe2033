//! A real node: containerd, kubelet, kube-scheduler and kube-proxy beside the kit's control plane,
//! to test what is shipped: the images of the Dockerfile, and `deploy/` as a user applies it.
//!
//! All of it runs in separate namespaces ([`machine`]). Pods have a network, Services with names
//! (CoreDNS), volumes ([`csi`]), and a store with TLS.

pub mod csi;
mod images;
pub mod loops;
pub mod machine;
mod postgres;
mod registry;
mod restic;
mod shop;

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use backup_core::api::{BackupStorageLocation, LocationPhase};
use csi::Csi;
use images::Images;
pub use images::{PROGRAMS as IMAGES, TOOLS, image_of};
use k8s_openapi::{ByteString, api::core::v1::Node as NodeObject};
use kube::{Api, Client};
pub use postgres::{POSTGRES, POSTGRES_USER, postgres_version};
pub use registry::{
    Artefact, Registry, Release, architecture, build_registry_programs, signature_tag,
};
pub use restic::has_restic;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    KubectlBackup,
    api::ApiExt as _,
    binaries::{Programs, build_clients, build_dns, build_node_programs},
    control_plane::ControlPlane,
    helm::Helm,
    install::{NAMESPACE, ensure_secret},
    kubectl::Kubectl,
    kubectl_backup::Ran,
    object_store::{S3, TlsFront},
    pki::Pki,
    process::{Process, Spec},
    proxy::Proxy,
    wait::until,
    world::BUCKET,
};

/// The node's address: reserved for documentation, and not in use (RFC 5737).
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The node's name.
pub const NAME: &str = "node";
/// Folder with a folder for each registry that the node may pull from. In containerd.toml, too.
const REGISTRIES: &str = "/run/registries";
const START: Duration = Duration::from_mins(1);

/// A running node and its cluster. Everything ends when this is dropped.
pub struct Node {
    /// A client of a cluster administrator.
    pub client: Client,
    pub plane: ControlPlane,
    pub s3: S3,
    store: TlsFront,
    /// Proxy in front of the store, to which pods connect.
    pub store_front: Proxy,
    containerd: Process,
    pub kubelet: Process,
    /// Storage for volumes of pods.
    pub csi: Csi,
    /// Scheduler, proxy and CoreDNS.
    others: [Process; 3],
    programs: Programs,
    /// Certificate (PEM) of the authority of the store.
    authority: String,
    folder: TempDir,
}

impl Node {
    /// Starts control plane and node, with the images of the project and an empty bucket; `deploy/`
    /// is not applied. Only inside ([`machine::run_inside`]).
    pub async fn start() -> anyhow::Result<Self> {
        ensure!(
            machine::is_inside(),
            "a node starts in namespaces of its own"
        );
        let _ = rustls::crypto::ring::default_provider().install_default();
        // In memory; removed with the namespaces.
        let folder = tempfile::Builder::new()
            .prefix("backup-tests-")
            .tempdir_in("/var/lib")?;
        let path = folder.path();
        let programs = Programs::build("dev")?;
        let store_folder = path.join("store");
        std::fs::create_dir_all(&store_folder)?;
        let authority = Pki::new(&store_folder)?;
        let (plane, containerd) = tokio::try_join!(
            ControlPlane::start_for_nodes(path, ADDRESS),
            start_containerd(path, &programs, authority.ca_pem()),
        )?;
        let [kubelet, others @ ..] = start_kubernetes(path, &plane)?;
        let s3 = S3::start(path).await?;
        s3.create_bucket(BUCKET).await?;
        let store = s3.start_with_tls(&authority.server("store")?).await?;
        let store_front = Proxy::start_at(ADDRESS, vec![store.address]).await?;
        let client = plane.admin().await?;
        let csi = Csi::start(&client, &plane, path).await?;
        let mut node = Self {
            client,
            plane,
            s3,
            store,
            store_front,
            containerd,
            kubelet,
            csi,
            others,
            programs,
            authority: authority.ca_pem(),
            folder,
        };
        node.wait_ready()
            .await
            .map_err(|error| error.context(node.logs(15)))?;
        Ok(node)
    }

    /// Waits until pods can be put on the node.
    pub async fn wait_ready(&mut self) -> anyhow::Result<()> {
        let nodes: Api<NodeObject> = Api::all(self.client.clone());
        until("the node is ready", START, async || {
            let others = self.others.iter_mut();
            for process in others.chain([&mut self.containerd, &mut self.kubelet]) {
                process.check()?;
            }
            self.csi.check()?;
            let node = serde_json::to_value(nodes.get(NAME).await?)?;
            let conditions = node["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten();
            let ready = conditions
                .into_iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True");
            // The taint of an unready node is removed a moment later.
            anyhow::Ok(ready && node["spec"]["taints"] == Value::Null)
        })
        .await?;
        self.csi.wait_registered(&self.client).await
    }

    /// Creates the location `default` for the bucket, and its credentials as the README does, and
    /// waits until it is available: the store's certificate is signed by an authority in the image.
    pub async fn create_location(&self) -> anyhow::Result<()> {
        self.locate(json!({ "bucket": BUCKET })).await
    }

    /// Like [`Self::create_location`], for images of a release: they do not have the authority, so
    /// the location names it. The backups are in this folder of the bucket.
    pub async fn create_location_with_authority(&self, folder: &str) -> anyhow::Result<()> {
        let authority = ByteString(self.authority.clone().into_bytes());
        self.locate(json!({ "bucket": BUCKET, "prefix": folder, "caCert": authority }))
            .await
    }

    /// Creates the location `default` for a part of the object storage.
    async fn locate(&self, object_storage: Value) -> anyhow::Result<()> {
        ensure_secret(
            &self.client,
            NAMESPACE,
            "cloud-credentials",
            "cloud",
            &S3::credentials(),
        )
        .await?;
        let locations: Api<BackupStorageLocation> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut spec =
            S3::location_spec(BUCKET, &format!("https://{}", self.store_front.address()));
        spec["objectStorage"] = object_storage;
        spec["default"] = json!(true);
        let location = BackupStorageLocation::new("default", serde_json::from_value(spec)?);
        locations.create_object(&location).await?;
        let available =
            |one: &BackupStorageLocation| one.status.phase == Some(LocationPhase::Available);
        locations
            .wait_until("default", "is available", START, available)
            .await
            .map(drop)
    }

    /// kubectl as the cluster's administrator.
    pub fn kubectl(&self) -> anyhow::Result<Kubectl> {
        Kubectl::new(
            build_clients()?,
            self.plane.admin_kubeconfig(),
            self.folder(),
        )
    }

    /// Our kubectl plugin as the cluster's administrator.
    pub fn kubectl_backup(&self) -> KubectlBackup {
        self.kubectl_backup_of(&self.programs.kubectl_backup)
    }

    /// This version of our kubectl plugin as the cluster's administrator.
    pub fn kubectl_backup_of(&self, program: &Path) -> KubectlBackup {
        KubectlBackup::new(program, self.plane.admin_kubeconfig())
    }

    /// Helm as the cluster's administrator.
    pub fn helm(&self) -> anyhow::Result<Helm> {
        Helm::new(self.plane.admin_kubeconfig(), self.folder())
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Adds another tag to the images of the project.
    pub async fn tag_images(&self, tag: &str) -> anyhow::Result<()> {
        for program in images::PROGRAMS {
            tag_image(&image_of(program), &format!("{program}:{tag}")).await?;
        }
        Ok(())
    }

    /// Removes the name of a program's image: new pods with it cannot start, as there is no
    /// registry.
    pub async fn hide_image(&self, program: &str) -> anyhow::Result<()> {
        let image = image_of(program);
        tag_image(&image, &hidden(program)).await?;
        ctr(&["images", "rm", &stored_name(&image)]).await
    }

    /// Reverses [`Self::hide_image`].
    pub async fn show_image(&self, program: &str) -> anyhow::Result<()> {
        tag_image(&hidden(program), &image_of(program)).await
    }

    /// Kills one of the processes in pods that run this program.
    pub fn kill_one(&self, program: &str) -> anyhow::Result<()> {
        let running = running(program)?;
        Ok(kill_process(running[0], Signal::KILL)?)
    }

    /// Kills all processes in pods that run this program.
    pub fn kill_all(&self, program: &str) -> anyhow::Result<()> {
        signal_all(program, Signal::KILL)
    }

    /// Pauses all processes in pods that run this program, until they are killed.
    pub fn pause_all(&self, program: &str) -> anyhow::Result<()> {
        signal_all(program, Signal::STOP)
    }

    /// The end of the log of every process and every container, for a test that failed.
    pub fn logs(&self, lines: usize) -> String {
        let own = [
            &self.containerd,
            &self.kubelet,
            &self.s3.process,
            &self.store.process,
        ];
        let processes = self.plane.processes().chain(own).chain(&self.others);
        let processes = processes.chain(self.csi.processes());
        let processes = processes.map(|one| (one.name().to_owned(), one.tail(lines)));
        let containers = container_logs(Path::new("/var/log/pods"))
            .into_iter()
            .map(|file| {
                let text = std::fs::read_to_string(&file).unwrap_or_default();
                let all: Vec<&str> = text.lines().collect();
                (
                    file.display().to_string(),
                    all[all.len().saturating_sub(lines)..].join("\n"),
                )
            });
        processes
            .chain(containers)
            .map(|(name, text)| format!("--- {name} ---\n{text}\n"))
            .collect()
    }
}

/// Gives an image another name, whatever had that name.
async fn tag_image(image: &str, name: &str) -> anyhow::Result<()> {
    let names = [stored_name(image), stored_name(name)];
    ctr(&["images", "tag", "--force", &names[0], &names[1]]).await
}

/// Name that keeps the contents of a hidden image.
fn hidden(program: &str) -> String {
    format!("{program}:hidden")
}

/// Name of an image in the container runtime.
fn stored_name(image: &str) -> String {
    format!("docker.io/library/{image}")
}

/// Imports the archive of an image.
async fn import(archive: &Path) -> anyhow::Result<()> {
    let path = archive.display().to_string();
    ctr(&["images", "import", &path])
        .await
        .with_context(|| format!("import {path}"))
}

/// Runs the command line of the container runtime.
async fn ctr(args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("ctr");
    command.arg("--namespace=k8s.io").args(args);
    Ran::of(command).await?.expect_code(0).map(drop)
}

/// Sends a signal to all processes of this program. Errors: there are none.
fn signal_all(program: &str, signal: Signal) -> anyhow::Result<()> {
    for process in running(program)? {
        kill_process(process, signal)?;
    }
    Ok(())
}

/// Processes of this program, at least one.
fn running(program: &str) -> anyhow::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if command.split(|byte| *byte == 0).next() == Some(program.as_bytes()) {
            found.push(Pid::from_raw(id).context("no process")?);
        }
    }
    ensure!(!found.is_empty(), "no process runs {program}");
    Ok(found)
}

/// Tells the container runtime how to pull from a registry. It reads this at each pull.
fn allow_pulls(registry: &str, hosts: &str) -> anyhow::Result<()> {
    let folder = Path::new(REGISTRIES).join(registry);
    std::fs::create_dir_all(&folder)?;
    Ok(std::fs::write(folder.join("hosts.toml"), hosts)?)
}

/// Starts the container runtime, and imports the images.
async fn start_containerd(
    folder: &Path,
    programs: &Programs,
    authority: String,
) -> anyhow::Result<Process> {
    const SOCKET: &str = "/run/containerd/containerd.sock";
    std::fs::create_dir_all("/run/cni")?;
    std::fs::write("/run/cni/pods.conflist", include_str!("node/network.json"))?;
    allow_pulls("_default", include_str!("node/registry.toml"))?;
    let config = folder.join("containerd.toml");
    std::fs::write(&config, include_str!("node/containerd.toml"))?;
    let flags = vec!["--config".to_owned(), config.display().to_string()];
    let mut containerd = start("containerd", Path::new("containerd"), flags, folder)?;
    let archives = Images::prepare(&folder.join("images"), programs, &authority)
        .await?
        .build()
        .await?;
    until("containerd listens", START, async || {
        containerd.check()?;
        anyhow::Ok(Path::new(SOCKET).exists())
    })
    .await?;
    for archive in archives {
        import(&archive).await?;
    }
    Ok(containerd)
}

/// Starts kubelet, scheduler, proxy, and the DNS server of pods.
fn start_kubernetes(folder: &Path, plane: &ControlPlane) -> anyhow::Result<[Process; 4]> {
    let binary = build_node_programs()?;
    // Names outside the cluster cannot be resolved.
    std::fs::write("/run/resolv.conf", format!("nameserver {ADDRESS}\n"))?;
    let config = folder.join("kubelet.json");
    std::fs::write(&config, include_str!("node/kubelet.json"))?;
    let kubeconfig = |name: &str, user: &str, groups: &[&str]| {
        let path = plane.user_kubeconfig(name, user, groups)?;
        anyhow::Ok(format!("--kubeconfig={}", path.display()))
    };
    let programs = [
        (
            "kubelet",
            vec![
                kubeconfig("kubelet", &format!("system:node:{NAME}"), &["system:nodes"])?,
                format!("--config={}", config.display()),
                format!("--hostname-override={NAME}"),
                format!("--node-ip={ADDRESS}"),
            ],
        ),
        (
            "kube-scheduler",
            vec![
                kubeconfig("scheduler", "system:kube-scheduler", &[])?,
                "--leader-elect=false".to_owned(),
                "--secure-port=0".to_owned(),
            ],
        ),
        (
            "kube-proxy",
            vec![
                kubeconfig("proxy", "system:kube-proxy", &[])?,
                format!("--hostname-override={NAME}"),
                "--proxy-mode=iptables".to_owned(),
                // Packets that stay on the bridge of the pods bypass the rules: answers have to
                // return through the node.
                "--masquerade-all".to_owned(),
                // Leaves the machine's own settings unchanged.
                "--conntrack-max-per-core=0".to_owned(),
            ],
        ),
    ];
    let [kubelet, scheduler, proxy] = programs.map(|(name, mut flags)| {
        flags.insert(0, name.to_owned());
        start(name, &binary, flags, folder)
    });
    let rules = folder.join("Corefile");
    let names = plane.user_kubeconfig("dns", "dns", &["system:masters"])?;
    let plugins = format!(
        "errors\nready\nkubernetes cluster.local {{\nkubeconfig {}\n}}",
        names.display()
    );
    std::fs::write(&rules, format!(".:53 {{\n{plugins}\n}}\n"))?;
    let dns = start(
        "coredns",
        &build_dns()?,
        vec!["-conf".to_owned(), rules.display().to_string()],
        folder,
    )?;
    Ok([kubelet?, scheduler?, proxy?, dns])
}

fn start(name: &str, program: &Path, args: Vec<String>, folder: &Path) -> anyhow::Result<Process> {
    let spec = Spec {
        name: name.to_owned(),
        program: program.to_owned(),
        args,
        env: BTreeMap::new(),
    };
    Process::start(spec, folder)
}

/// Log files of containers.
fn container_logs(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.append(&mut container_logs(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

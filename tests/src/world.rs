//! Everything a test needs at once: control plane, object store, the installed project, and its
//! programs running with their own ServiceAccounts.

pub mod backups;
mod builder;
pub mod controllers;
pub mod downloads;
mod events;
pub mod lock;
mod namespaces;
pub mod other_cluster;
pub mod scripted;
pub mod stored;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use backup_core::api::{BackupStorageLocation, LocationPhase};
pub use builder::WorldBuilder;
use kube::Client;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    api::{ApiExt as _, dry_run, objects_in},
    audit::Audit,
    binaries::{Programs, build_clients, s3_available},
    control_plane::{ControlPlane, loopback_address},
    helm::Helm,
    install::{self, NAMESPACE},
    kubectl::Kubectl,
    kubectl_backup::KubectlBackup,
    naive,
    object_store::S3,
    pki::Pki,
    process::Process,
    proxy::{Fault, Proxy},
    replica::{self, Addresses, answers},
    served::Served,
    skip::Skip,
    velero_plugins::VeleroPlugins,
    wait::{Probe, eventually, until},
};

/// The bucket of the default location.
pub const BUCKET: &str = "backups";
const START: Duration = Duration::from_mins(1);

pub struct World {
    builder: WorldBuilder,
    programs: Programs,
    /// A client of a cluster administrator: the user at the terminal, never the programs under
    /// test.
    pub client: Client,
    pub plane: ControlPlane,
    pub s3: Option<S3>,
    pub webhooks: Vec<Process>,
    /// Addresses of their /livez, /readyz and /metrics.
    pub webhook_health: Vec<SocketAddr>,
    /// Proxy in front of the webhook replicas, like a Service.
    pub webhook_front: Option<Proxy>,
    /// Authority of their certificate (PEM).
    pub webhook_ca: String,
    /// The control: a webhook that looks and then allows.
    pub naive: Option<Served>,
    pub controllers: Vec<Process>,
    /// Addresses of their /livez, /readyz and /metrics.
    pub controller_health: Vec<SocketAddr>,
    /// Plugins of Velero's kind, where they were requested and can be built.
    pub plugins: Option<VeleroPlugins>,
    /// Requests of our programs to the API server, where it logs them.
    pub audit: Option<Audit>,
    folder: TempDir,
}

impl World {
    /// The usual world: one API server, two webhook replicas, one controller, an S3 server.
    pub fn builder() -> WorldBuilder {
        WorldBuilder::default()
    }

    /// A folder of this world, removed with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Runs our kubectl plugin as the cluster's administrator.
    pub fn kubectl_backup(&self) -> KubectlBackup {
        KubectlBackup::new(&self.programs.kubectl_backup, self.plane.admin_kubeconfig())
    }

    /// Like `kubectl_backup`, in another cluster.
    pub fn kubectl_backup_in(&self, plane: &ControlPlane) -> KubectlBackup {
        KubectlBackup::new(&self.programs.kubectl_backup, plane.admin_kubeconfig())
    }

    /// Like `kubectl_backup`, as a ServiceAccount in the installation's namespace, which is
    /// created, with this ClusterRole there (or none).
    pub async fn kubectl_backup_as(
        &self,
        name: &str,
        role: Option<&str>,
    ) -> anyhow::Result<KubectlBackup> {
        let kubeconfig = self.person(name, role).await?;
        Ok(KubectlBackup::new(
            &self.programs.kubectl_backup,
            &kubeconfig,
        ))
    }

    /// Like `kubectl_backup`, as a user who may read backups and restores.
    pub async fn reader(&self) -> anyhow::Result<KubectlBackup> {
        self.kubectl_backup_as("reader", Some("backup-reader"))
            .await
    }

    /// The kubeconfig of a ServiceAccount in the installation's namespace, which is created, with
    /// this ClusterRole there (or none).
    pub async fn person(&self, name: &str, role: Option<&str>) -> anyhow::Result<PathBuf> {
        install::ensure_account(&self.client, name, role).await?;
        self.plane.service_account_kubeconfig(NAMESPACE, name).await
    }

    /// kubectl and a client-go program, as the cluster's administrator. Built from Go modules at
    /// first use; skips the test if that is impossible.
    pub fn kubectl(&self) -> anyhow::Result<Kubectl> {
        if !s3_available() {
            return Err(Skip("there is no kubectl of ours without Go").into());
        }
        Kubectl::new(
            build_clients()?,
            self.plane.admin_kubeconfig(),
            self.folder.path(),
        )
    }

    /// Helm, as the cluster's administrator. Built from its Go module at first use; skips the test
    /// if that is impossible.
    pub fn helm(&self) -> anyhow::Result<Helm> {
        if !s3_available() {
            return Err(Skip("there is no Helm without Go").into());
        }
        Helm::new(self.plane.admin_kubeconfig(), self.folder.path())
    }

    /// The proxy in front of the API servers; skips the test if they belong to an existing cluster.
    pub fn plane_front(&self) -> anyhow::Result<&Proxy> {
        let skip = Skip("there is no proxy before an API server that was there");
        self.plane.front.as_ref().ok_or_else(|| skip.into())
    }

    /// Skips a test if etcd and the API servers belong to an existing cluster.
    pub fn needs_own_plane(&self) -> anyhow::Result<()> {
        let skip = Skip("etcd and API server belong to a cluster that was there");
        if self.plane.api_servers.is_empty() {
            Err(skip.into())
        } else {
            Ok(())
        }
    }

    /// Number of decisions of this kind by the running webhook replicas since their start; an empty
    /// `decision` counts all.
    pub async fn admissions(&self, decision: &str) -> anyhow::Result<u64> {
        let mut sum = 0;
        for address in &self.webhook_health {
            let Ok(answer) = reqwest::get(format!("http://{address}/metrics")).await else {
                continue;
            };
            let text = answer.text().await?;
            let lines = text
                .lines()
                .filter(|line| line.starts_with("backup_webhook_admissions_total"));
            let chosen = lines
                .filter(|line| decision.is_empty() || line.contains(&format!("\"{decision}\"")));
            sum += chosen
                .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(sum)
    }

    /// Ends faults that an earlier test may have left, and waits until the default location is
    /// usable.
    pub async fn calm(&mut self) -> anyhow::Result<()> {
        let fronts = [&self.plane.front, &self.webhook_front];
        let store = self.s3.as_ref().map(|s3| &s3.front);
        for front in fronts.into_iter().flatten().chain(store) {
            front.set(Fault::None);
        }
        self.controllers_run().await?;
        if self.controllers.is_empty() {
            Ok(())
        } else {
            self.location_available("default").await
        }
    }

    /// The end of every process's log, for a test that failed.
    pub fn logs(&self, lines: usize) -> String {
        let processes = self
            .plane
            .processes()
            .chain(self.s3.iter().map(|s3| &s3.process));
        let ours = self.webhooks.iter().chain(&self.controllers);
        processes
            .chain(ours)
            .map(|process| format!("--- {} ---\n{}\n", process.name(), process.tail(lines)))
            .collect()
    }

    async fn start_webhooks(&mut self) -> anyhow::Result<()> {
        let pki_folder = self.folder.path().join("webhook");
        std::fs::create_dir_all(&pki_folder)?;
        let pki = Pki::new(&pki_folder)?;
        let identity = pki.server("webhook")?;
        if self.builder.naive {
            let naive = naive::start(self.client.clone(), &identity).await?;
            let url = format!("https://{}", naive.address());
            install::register_webhook(&self.client, &url, Some("/validate"), &pki.ca_pem()).await?;
            self.naive = Some(naive);
            return self.webhook_is_asked().await;
        }
        if self.builder.webhooks == 0 {
            return Ok(());
        }
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(NAMESPACE, "backup-webhook")
            .await?;
        let all = Addresses::free(self.builder.webhooks)?;
        for (number, addresses) in all.iter().enumerate() {
            let (ca, own) = (pki.ca(), self.builder.own_certificates);
            let ca = Some(ca.as_path()).filter(|_| !own);
            let mut flags = if self.builder.peers {
                replica::knows_peers(&all, *addresses, ca)
            } else {
                Vec::new()
            };
            if own {
                flags.push(format!("--self-signed-service={}", install::SERVICE));
            }
            let identity = Some(&identity).filter(|_| !own);
            flags.extend(self.builder.webhook_args.iter().cloned());
            let name = format!("backup-webhook-{number}");
            let (folder, programs) = (self.folder.path(), &self.programs);
            let mut process = replica::start(
                &name,
                programs,
                &kubeconfig,
                identity,
                *addresses,
                &flags,
                folder,
            )?;
            answers(&mut process, addresses.health, "/readyz").await?;
            self.webhooks.push(process);
            self.webhook_health.push(addresses.health);
        }
        let front = Proxy::start(all.iter().map(|addresses| addresses.reviews).collect()).await?;
        self.webhook_ca = pki.ca_pem();
        install::register_webhook(
            &self.client,
            &format!("https://{}", front.address()),
            None,
            &pki.ca_pem(),
        )
        .await?;
        self.webhook_front = Some(front);
        self.webhook_is_asked().await
    }

    /// Waits until the API servers have seen the registration: only the webhook refuses a dry run
    /// of a Backup with a bad namespace name.
    async fn webhook_is_asked(&self) -> anyhow::Result<()> {
        if self.builder.naive {
            // The control makes no decision that is visible from outside; it counts its calls.
            let naive = self.naive.as_ref().context("no control")?;
            let before = naive.calls();
            return until("the control is asked", START, async || {
                self.dry_run().await;
                anyhow::Ok(naive.calls() > before)
            })
            .await;
        }
        eventually("the webhook is asked", START, async || {
            anyhow::Ok(match self.dry_run().await {
                Some(kube::Error::Api(status)) if status.message.contains("admission webhook") => {
                    Probe::Ready(())
                }
                other => Probe::NotYet(format!("{other:?}")),
            })
        })
        .await
    }

    async fn dry_run(&self) -> Option<kube::Error> {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "is-the-webhook-there" }, "spec": { "ttl": "tomorrow" } });
        let api = objects_in(&self.client, NAMESPACE, "velero.io/v1", "Backup");
        api.create(&dry_run(), &serde_json::from_value(object).ok()?)
            .await
            .err()
    }

    async fn start_location(&self) -> anyhow::Result<()> {
        let mut spec = match &self.s3 {
            Some(s3) => {
                s3.create_bucket(BUCKET).await?;
                install::ensure_secret(
                    &self.client,
                    NAMESPACE,
                    "cloud-credentials",
                    "cloud",
                    &S3::credentials(),
                )
                .await?;
                S3::location_spec(BUCKET, &s3.url())
            }
            None => json!({
                "provider": "local", "objectStorage": { "bucket": self.folder.path().join("local-store") },
            }),
        };
        spec["default"] = json!(true);
        self.apply_location("default", spec).await
    }

    pub async fn apply_location(&self, name: &str, spec: serde_json::Value) -> anyhow::Result<()> {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "BackupStorageLocation",
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
        self.locations().apply_object(name, &object).await?;
        Ok(())
    }

    pub async fn remove_location(&self, name: &str) -> anyhow::Result<()> {
        Ok(self.locations().delete_object(name).await?)
    }

    pub async fn location_available(&self, name: &str) -> anyhow::Result<()> {
        let available = self
            .location_in(name, LocationPhase::Available, START)
            .await;
        available
            .map(drop)
            .map_err(|error| error.context(self.logs(15)))
    }

    /// Waits until a location is in this phase.
    pub async fn location_in(
        &self,
        name: &str,
        phase: LocationPhase,
        deadline: Duration,
    ) -> anyhow::Result<BackupStorageLocation> {
        let what = format!("is {phase:?}");
        self.locations()
            .wait_until(name, &what, deadline, |one| {
                one.status.phase == Some(phase.clone())
            })
            .await
    }

    pub(crate) async fn start_controller(&mut self, number: usize) -> anyhow::Result<()> {
        let kubeconfig = self
            .plane
            .service_account_kubeconfig(NAMESPACE, "backup-controller")
            .await?;
        let health = loopback_address()?;
        let mut args = vec![
            format!("--namespace={NAMESPACE}"),
            format!("--metrics-address={health}"),
        ];
        args.extend(
            self.plugins
                .iter()
                .map(|plugins| format!("--plugin-dir={}", plugins.folder().display())),
        );
        args.extend(self.builder.controller_args.iter().cloned());
        if let Some(network) = self.builder.files {
            let address = network.free_address()?;
            args.push(format!("--files-address={address}"));
            install::lead_to_files(&self.client, number, address).await?;
        }
        // Only locations with their own period are compared with the cluster: most tests put
        // ownerless files into buckets.
        if !args
            .iter()
            .any(|arg| arg.starts_with("--backup-sync-period"))
        {
            args.push("--backup-sync-period=0".to_owned());
        }
        let (name, program) = (
            format!("backup-controller-{number}"),
            &self.programs.controller,
        );
        let mut process = Process::start_program(&name, program, args, &kubeconfig, self.folder())?;
        answers(&mut process, health, "/livez").await?;
        self.controllers.push(process);
        self.controller_health.push(health);
        Ok(())
    }

    /// The profiles that the programs read at their start ([`WorldBuilder::own_profile`]).
    pub fn profiles_folder(&self) -> PathBuf {
        self.folder().join("profiles")
    }

    /// Restarts one webhook replica, killed or not, and waits until it is ready.
    pub async fn restart_webhook(&mut self, number: usize) -> anyhow::Result<()> {
        self.webhooks[number].restart().await?;
        answers(
            &mut self.webhooks[number],
            self.webhook_health[number],
            "/readyz",
        )
        .await
    }

    /// Restarts every webhook replica, killed or not, and waits until all are ready.
    pub async fn restart_webhooks(&mut self) -> anyhow::Result<()> {
        for number in 0..self.webhooks.len() {
            self.restart_webhook(number).await?;
        }
        Ok(())
    }
}

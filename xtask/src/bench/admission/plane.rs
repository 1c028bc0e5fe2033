//! The control plane, with the guard and the controls beside one another.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use backup_tests::{
    World,
    allowing::AllowingWebhook,
    binaries::root,
    control_plane::client_without_retries,
    install::{self, ensure_namespace},
    pki::{Identity, Pki},
    updating::UpdatingWebhook,
    wait::{Probe, eventually, when},
};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{Api, Client, api::DeleteParams};
use serde_json::json;

use super::{
    register::{Registration, register},
    replicas::Replicas,
    sweep,
};

/// Namespaces, each with the webhook that is asked about its objects.
pub const GUARDED: &str = "bench-guarded";
/// Whoever is asked says yes.
pub const ALLOWED: &str = "bench-allowed";
/// Whoever is asked says no.
pub const REFUSED: &str = "bench-refused";
/// Whoever is asked updates a Lease of each scope, from memory.
pub const UPDATED: &str = "bench-updated";
const ALL: [&str; 4] = [GUARDED, ALLOWED, REFUSED, UPDATED];
const CLIENTS: usize = 32;
/// Grace of the replica that frees claims between rounds.
const GRACE: &str = "--orphan-grace=1s";

pub struct Plane {
    pub world: World,
    /// Clients, each with connections of its own.
    pub clients: Vec<Client>,
    /// The control that only answers.
    pub allowing: AllowingWebhook,
    /// The control that writes for each request.
    pub updating: UpdatingWebhook,
    guard: Option<Replicas>,
    sweeper: Option<Replicas>,
    pki: Pki,
    identity: Identity,
}

impl Plane {
    /// Starts everything but the guard.
    pub async fn start() -> anyhow::Result<Self> {
        let mut world = World::builder().profile("release").webhooks(0).controllers(0).start().await?;
        world.plane.stop_controller_manager().await?;
        for namespace in ALL {
            ensure_namespace(&world.client, namespace).await?;
        }
        let folder = world.folder().join("bench");
        std::fs::create_dir_all(&folder)?;
        let pki = Pki::new(&folder)?;
        let identity = pki.server("webhook")?;
        let kubeconfig = world.plane.admin_kubeconfig().to_owned();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(client_without_retries(&kubeconfig).await?);
        }
        let allowing = AllowingWebhook::start(&identity).await?;
        let updating = UpdatingWebhook::start(&kubeconfig, &identity).await?;
        Ok(Self { world, clients, allowing, updating, guard: None, sweeper: None, pki, identity })
    }

    /// The client of whoever works alone.
    pub fn client(&self) -> &Client {
        &self.clients[0]
    }

    pub fn guard(&self) -> anyhow::Result<&Replicas> {
        self.guard.as_ref().context("the guard was not started")
    }

    pub fn ca(&self) -> PathBuf {
        self.pki.ca()
    }

    /// Starts the guard anew with so many replicas and these flags, and waits until it is asked.
    pub async fn start_guard(&mut self, count: usize, args: &[&str]) -> anyhow::Result<()> {
        (self.guard, self.sweeper) = (None, None);
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let sweeping: Vec<String> = args.iter().cloned().chain([GRACE.to_owned()]).collect();
        let (world, ca) = (&self.world, self.pki.ca());
        let guard = Replicas::start(world, &self.identity, &ca, "guard", count, &args).await?;
        let sweeper = Replicas::start(world, &self.identity, &ca, "sweeper", 1, &sweeping).await?;
        let address = guard.address();
        (self.guard, self.sweeper) = (Some(guard), Some(sweeper));
        self.sweep().await?;
        self.register(GUARDED, &root().join("deploy/base"), address, "/validate").await?;
        self.refuses_nonsense().await
    }

    /// Registers a control, and waits until it is asked.
    pub async fn register_control(
        &self,
        namespace: &str,
        address: SocketAddr,
        path: &str,
    ) -> anyhow::Result<()> {
        self.register(namespace, &root().join("deploy/base"), address, path).await?;
        let before = self.asked();
        eventually("the control is asked", Duration::from_secs(30), async || {
            let _ = self.dry_run(namespace, json!({})).await;
            anyhow::Ok(when(self.asked() > before, "not asked"))
        })
        .await
    }

    /// Registers whoever listens there for the objects of a namespace, as the configuration in a folder would.
    pub async fn register(
        &self,
        namespace: &str,
        folder: &Path,
        address: SocketAddr,
        path: &str,
    ) -> anyhow::Result<()> {
        let ca_pem = self.pki.ca_pem();
        let registration = Registration { folder, namespace, port: address.port(), path, ca_pem: &ca_pem };
        register(&self.world.client, &registration).await
    }

    fn asked(&self) -> u64 {
        self.allowing.calls() + self.updating.calls()
    }

    /// Waits until the guard refuses what only it would.
    async fn refuses_nonsense(&self) -> anyhow::Result<()> {
        eventually("the guard is asked", Duration::from_secs(30), async || {
            anyhow::Ok(match self.dry_run(GUARDED, json!({ "ttl": "tomorrow" })).await {
                Err(kube::Error::Api(status)) if status.message.contains("admission webhook") => {
                    Probe::Ready(())
                }
                other => Probe::NotYet(format!("{other:?}")),
            })
        })
        .await
    }

    async fn dry_run(&self, namespace: &str, spec: serde_json::Value) -> kube::Result<String> {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "is-it-asked" }, "spec": spec });
        let request =
            http::Request::post(format!("/apis/velero.io/v1/namespaces/{namespace}/backups?dryRun=All"))
                .header("content-type", "application/json")
                .body(object.to_string().into_bytes())
                .map_err(kube::Error::HttpError)?;
        self.world.client.request_text(request).await
    }

    /// Deletes what was created, and waits until the ledgers are empty.
    pub async fn sweep(&self) -> anyhow::Result<()> {
        let sweeper = self.sweeper.as_ref().context("the guard was not started")?;
        sweep::sweep(self.client(), sweeper, &ALL.map(str::to_owned)).await
    }

    pub fn logs(&self, lines: usize) -> String {
        let replicas = self.guard.iter().chain(&self.sweeper).flat_map(Replicas::processes);
        let ends = replicas.map(|process| format!("--- {} ---\n{}\n", process.name(), process.tail(lines)));
        ends.chain([self.world.logs(lines)]).collect()
    }

    /// Applies what a profile needs, but for its registration: that is for all namespaces.
    pub async fn install_profile(&self, name: &str) -> anyhow::Result<()> {
        let client = &self.world.client;
        install::install_test_crds(client, name).await?;
        install::install_profile(client, name, "https://127.0.0.1:1", &self.pki.ca_pem()).await?;
        let registrations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        registrations.delete(&format!("backup-webhook-{name}"), &DeleteParams::default()).await?;
        Ok(())
    }
}

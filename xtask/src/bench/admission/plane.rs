//! The control plane, with the guard and the controls.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use backup_core::labels::INSTALLATIONS_ANNOTATION;
use backup_tests::{
    World, allowing,
    api::{ApiExt as _, dry_run, objects_in},
    binaries::root,
    control_plane::client_without_retries,
    install::{self, NAMESPACE, ensure_namespace},
    pki::{Identity, Pki},
    served::Served,
    updating,
    wait::{Probe, eventually, when},
};
use http::Method;
use k8s_openapi::{
    api::admissionregistration::v1::ValidatingWebhookConfiguration,
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{
    Api, Client, ResourceExt,
    core::{DynamicObject, ObjectMeta},
};
use serde_json::{Value, json};

use super::replicas::Replicas;
use crate::bench::raw;

/// Namespaces, each with its own webhook; this one has the guard.
pub const GUARDED: &str = "bench-guarded";
/// Its webhook allows every request.
pub const ALLOWED: &str = "bench-allowed";
/// Its webhook refuses every request.
pub const REFUSED: &str = "bench-refused";
/// Its webhook updates a Lease of each scope, without reading it first.
pub const UPDATED: &str = "bench-updated";
const ALL: [&str; 4] = [GUARDED, ALLOWED, REFUSED, UPDATED];
const CLIENTS: usize = 32;
/// Orphan grace of the replica that frees claims between rounds.
const GRACE: &str = "--orphan-grace=1s";
/// The collections in which rounds create objects.
const COLLECTIONS: [&str; 3] = [
    "/apis/velero.io/v1/namespaces/{}/restores",
    "/apis/velero.io/v1/namespaces/{}/backups",
    "/apis/ps.percona.com/v1/namespaces/{}/perconaservermysqlbackups",
];

pub struct Plane<'w> {
    pub world: &'w mut World,
    /// Time that each measurement takes.
    pub budget: Duration,
    /// Clients, each with its own connections.
    pub clients: Vec<Client>,
    /// The control that answers without writing.
    pub allowing: Served,
    /// The control that writes once per request.
    pub updating: Served,
    guard: Option<Replicas>,
    /// The measured replicas have the grace of production, in which the claim of an admitted object
    /// remains for minutes. So this additional one, which the API server does not call, frees
    /// claims between rounds; it is paused (SIGSTOP) during measurements.
    sweeper: Option<Replicas>,
    pki: Pki,
    identity: Identity,
}

impl<'w> Plane<'w> {
    /// Starts everything except the guard.
    pub async fn start(world: &'w mut World, budget: Duration) -> anyhow::Result<Self> {
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
        let allowing = allowing::start(&identity).await?;
        let updating = updating::start(&kubeconfig, &identity).await?;
        Ok(Self {
            world,
            budget,
            clients,
            allowing,
            updating,
            guard: None,
            sweeper: None,
            pki,
            identity,
        })
    }

    /// The client for measurements with only one client.
    pub fn client(&self) -> &Client {
        &self.clients[0]
    }

    pub fn guard(&self) -> anyhow::Result<&Replicas> {
        self.guard.as_ref().context("the guard was not started")
    }

    pub fn ca(&self) -> PathBuf {
        self.pki.ca()
    }

    /// Restarts the guard with `count` replicas and these flags, and waits until the API server
    /// calls it.
    pub async fn start_guard(&mut self, count: usize, args: &[&str]) -> anyhow::Result<()> {
        self.guard = None;
        self.sweeper = None;
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let sweeping: Vec<String> = args.iter().cloned().chain([GRACE.to_owned()]).collect();
        let world = &self.world;
        let ca = self.pki.ca();
        let guard = Replicas::start(world, &self.identity, &ca, "guard", count, &args).await?;
        let sweeper = Replicas::start(world, &self.identity, &ca, "sweeper", 1, &sweeping).await?;
        let address = guard.address();
        self.guard = Some(guard);
        self.sweeper = Some(sweeper);
        self.sweep().await?;
        self.register(GUARDED, &root().join("deploy/base"), address, None)
            .await?;
        self.refuses_nonsense().await
    }

    /// Registers a control, and waits until the API server calls it.
    pub async fn register_control(
        &self,
        namespace: &str,
        address: SocketAddr,
        path: &str,
    ) -> anyhow::Result<()> {
        self.register(namespace, &root().join("deploy/base"), address, Some(path))
            .await?;
        let before = self.asked();
        eventually(
            "the control is asked",
            Duration::from_secs(30),
            async || {
                let _ = self.dry_run(namespace, json!({})).await;
                anyhow::Ok(when(self.asked() > before, "not asked"))
            },
        )
        .await
    }

    /// Registers the webhook at this address for the objects of a namespace, instead of the
    /// previous one. Rules, conditions and limits come from the registration in a folder, without
    /// the rules for deletions: rounds are cleaned up by deletions. The Service is named like the
    /// namespace, and so is the registration, except for the guard's own, which gets its path from
    /// the guard.
    pub async fn register(
        &self,
        namespace: &str,
        folder: &Path,
        address: SocketAddr,
        path: Option<&str>,
    ) -> anyhow::Result<()> {
        let made = install::registrations(folder, "https://unused", &self.pki.ca_pem())?;
        let own = made
            .first()
            .map(ResourceExt::name_any)
            .filter(|_| path.is_none());
        let name = own.unwrap_or_else(|| namespace.to_owned());
        let mut webhooks: Vec<_> = made
            .into_iter()
            .flat_map(|one| one.webhooks.unwrap_or_default())
            .collect();
        webhooks.retain(|webhook| !webhook.name.starts_with("deletions."));
        for (number, webhook) in webhooks.iter_mut().enumerate() {
            webhook.name = format!("w{number}.{namespace}.velero.io");
            webhook.namespace_selector = Some(LabelSelector {
                match_labels: Some(
                    [(
                        "kubernetes.io/metadata.name".to_owned(),
                        namespace.to_owned(),
                    )]
                    .into(),
                ),
                ..LabelSelector::default()
            });
        }
        let annotations = [(INSTALLATIONS_ANNOTATION.to_owned(), namespace.to_owned())].into();
        let metadata = ObjectMeta {
            name: Some(name.clone()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let mut configuration = ValidatingWebhookConfiguration {
            metadata,
            webhooks: Some(webhooks),
        };
        let client = &self.world.client;
        install::ask_by_service(client, namespace, address.port(), path, &mut configuration)
            .await?;
        self.registrations()
            .apply_object(&name, &configuration)
            .await?;
        Ok(())
    }

    fn registrations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.world.client.clone())
    }

    fn asked(&self) -> u64 {
        self.allowing.calls() + self.updating.calls()
    }

    /// Waits until the guard refuses a request that only it would refuse.
    async fn refuses_nonsense(&self) -> anyhow::Result<()> {
        eventually("the guard is asked", Duration::from_secs(30), async || {
            anyhow::Ok(
                match self.dry_run(GUARDED, json!({ "ttl": "tomorrow" })).await {
                    Err(kube::Error::Api(status))
                        if status.message.contains("admission webhook") =>
                    {
                        Probe::Ready(())
                    }
                    other => Probe::NotYet(format!("{other:?}")),
                },
            )
        })
        .await
    }

    async fn dry_run(&self, namespace: &str, spec: Value) -> kube::Result<DynamicObject> {
        let object = json!({ "apiVersion": "velero.io/v1", "kind": "Backup",
            "metadata": { "name": "is-it-asked" }, "spec": spec });
        let backups = objects_in(&self.world.client, namespace, "velero.io/v1", "Backup");
        backups
            .create(
                &dry_run(),
                &serde_json::from_value(object).map_err(kube::Error::SerdeError)?,
            )
            .await
    }

    /// Deletes all created objects, and waits until no ledger contains a claim.
    pub async fn sweep(&self) -> anyhow::Result<()> {
        let client = self.client();
        let sweeper = self.sweeper.as_ref().context("the guard was not started")?;
        for (namespace, collection) in ALL.iter().flat_map(|one| COLLECTIONS.map(|it| (one, it))) {
            let path = collection.replace("{}", namespace);
            match raw::send(client, Method::DELETE, &path, Vec::new()).await {
                // A kind that is not served has no objects.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => {
                    other.with_context(|| format!("empty {namespace}"))?;
                }
            }
        }
        for process in sweeper.processes() {
            process.resume()?;
        }
        let deadline = Duration::from_mins(1);
        let empty = eventually("no ledger holds a claim", deadline, async || {
            let held = claims(client).await?;
            anyhow::Ok(when(held == 0, format!("{held} claims")))
        })
        .await;
        for process in sweeper.processes() {
            process.pause()?;
        }
        empty
    }

    pub fn logs(&self, lines: usize) -> String {
        let replicas = self
            .guard
            .iter()
            .chain(&self.sweeper)
            .flat_map(Replicas::processes);
        replicas
            .map(|process| format!("--- {} ---\n{}\n", process.name(), process.tail(lines)))
            .collect()
    }

    /// Applies the manifests of a profile except its registration, which would apply to all
    /// namespaces.
    pub async fn install_profile(&self, name: &str) -> anyhow::Result<()> {
        let client = &self.world.client;
        install::install_test_crds(client, name).await?;
        install::install_profile(client, name, "https://127.0.0.1:1", &self.pki.ca_pem()).await?;
        Ok(self
            .registrations()
            .delete_object(&format!("backup-webhook-{name}"))
            .await?)
    }
}

/// Number of claims in all ledgers.
async fn claims(client: &Client) -> anyhow::Result<usize> {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let leases: Value = serde_json::from_str(&raw::get(client, &path).await?)?;
    let ledgers = leases["items"].as_array().into_iter().flatten();
    Ok(ledgers
        .filter_map(|lease| lease["metadata"]["annotations"]["backup-lock/ledger"].as_str())
        .map(held)
        .sum())
}

/// Parsed leniently, so that a change of the ledger's format does not break the benchmark.
fn held(ledger: &str) -> usize {
    let parsed: Option<Value> = serde_json::from_str(ledger).ok();
    parsed
        .and_then(|ledger| ledger["claims"].as_array().map(Vec::len))
        .unwrap_or_default()
}

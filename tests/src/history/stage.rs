//! Sets up the run: taps before and behind the webhook replicas, the second webhook, the operator,
//! the watch on etcd; and removes them at the end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::Router;
use backup_lock::LedgerStore;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, rbac::v1::ClusterRoleBinding,
};
use kube::Api;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{
    buckets::Buckets,
    clients::Clients,
    etcd,
    faults::Faults,
    fleet::Fleet,
    operator::{self, Wishes},
    plan::{Area, Create, How, Kind, Object},
    run::Options,
    tap,
    timeline::Timeline,
    whose::{SECOND, Whose},
};
use crate::{
    World,
    api::ApiExt as _,
    control_plane::{client_from, loopback_address},
    install::{self, NAMESPACE},
    naive, percona,
    pki::Identity,
    process::Process,
    replica::{self, Addresses},
    served::Served,
    sibling::Sibling,
    snapshots::SnapshotController,
    wait::{eventually, when},
};

mod controllers;
mod taps;

use taps::{ToApi, ToWebhook, Writer};

/// Grace of the replicas for orphans.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long a refused restore keeps backups out.
const INTENT: Duration = Duration::from_millis(500);
const REPLICAS: usize = 3;
const START: Duration = Duration::from_mins(1);
const CLIENTS: &str = "history-clients";

/// All that runs for the histories.
pub(crate) struct Stage {
    pub clients: Arc<Clients>,
    pub timeline: Arc<Timeline>,
    pub faults: Arc<Faults>,
    pub wishes: Arc<Wishes>,
    etcd_url: String,
    tasks: Vec<JoinHandle<()>>,
    _served: Vec<Served>,
    _naive: Option<Served>,
    _volumes: Option<SnapshotController>,
    sibling: Option<Sibling>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

struct Making<'w> {
    world: &'w mut World,
    pki_ca: String,
    identity: Identity,
    http: reqwest::Client,
    served: Vec<Served>,
}

impl Stage {
    /// Starts in a world without webhooks and controllers.
    pub(crate) async fn start(world: &mut World, options: &Options) -> anyhow::Result<Self> {
        let pki = world
            .plane
            .pki()
            .context("the histories need a control plane of their own")?;
        let (pki_ca, identity) = (pki.ca_pem(), pki.server("histories")?);
        let http = tap::client(&pki_ca)?;
        let etcd_url = world.plane.etcd_url.clone().context("no etcd")?;
        let mut making = Making {
            world,
            pki_ca,
            identity,
            http,
            served: Vec::new(),
        };
        let buckets = if options.controllers {
            Some(Buckets::of(making.world)?)
        } else {
            None
        };
        let (timeline, [changes, guarded]) = Timeline::new(buckets.clone());
        let timeline = Arc::new(timeline);

        let servers = std::mem::take(&mut making.world.plane.api_servers);
        let addresses = making.world.plane.addresses.clone();
        let servers = Fleet::new(
            addresses
                .iter()
                .copied()
                .zip(servers.into_iter().map(Some))
                .collect(),
        );
        // The addresses of the replicas are known before they run: their taps need the fleet.
        let all = Addresses::free(if options.naive { 0 } else { REPLICAS })?;
        let (replicas, naive) = if options.naive {
            let naive = naive::start(making.world.client.clone(), &making.identity).await?;
            (Fleet::new(vec![(naive.address(), None)]), Some(naive))
        } else {
            (
                Fleet::new(
                    all.iter()
                        .map(|addresses| (addresses.reviews, None))
                        .collect(),
                ),
                None,
            )
        };
        let controllers = if options.controllers {
            controllers::HOMES.len()
        } else {
            0
        };
        let addresses = (0..controllers)
            .map(|_| loopback_address())
            .collect::<anyhow::Result<Vec<_>>>()?;
        let controllers = Fleet::new(addresses.iter().map(|address| (*address, None)).collect());
        let faults = Arc::new(Faults::new(servers, replicas, controllers));
        let mut tasks = Vec::new();

        let to_api = making.tap_to_api(&faults, Writer::Operator).await?;
        let plane = &making.world.plane;
        let account = plane
            .service_account_kubeconfig_by(to_api, NAMESPACE, "backup-controller")
            .await?;
        for replica in 0..all.len() {
            let to_api = making.tap_to_api(&faults, Writer::Webhook(replica)).await?;
            let process = making.replica(replica, &all, to_api).await?;
            faults.webhooks.put(replica, process);
        }
        let to_webhook = making.tap_to_webhook(&faults, &timeline).await?;
        let url = format!("https://{}", to_webhook.address());
        let path = options.naive.then_some("/validate");
        install::register_webhook(&making.world.client, &url, path, &making.pki_ca).await?;
        percona::ensure(making.world).await?;
        if !options.naive {
            install::install_profile(&making.world.client, percona::PROFILE, &url, &making.pki_ca)
                .await?;
        }
        let sibling = if options.faults {
            Some(Sibling::start(&making.world.client, making.world.folder()).await?)
        } else {
            None
        };

        let token = making.clients_token().await?;
        let wishes = Arc::new(Wishes::default());
        let tap = making
            .serve(taps::for_clients(
                tap::client(&making.pki_ca)?,
                faults.clone(),
            ))
            .await?;
        let store = LedgerStore::new(making.world.client.clone(), NAMESPACE);
        let ledgers = options.controllers.then_some(store);
        let (http, told, hit, wanted) = (
            making.http.clone(),
            timeline.clone(),
            faults.clone(),
            wishes.clone(),
        );
        let mut clients = Clients::new(http, token, tap, told, hit, wanted, ledgers);
        clients.buckets = buckets.filter(|_| options.soak.is_some());
        making
            .asked_by_all(&clients, &to_webhook, options.naive)
            .await?;
        making.served.push(to_webhook);

        let (ready, watching) = tokio::sync::oneshot::channel();
        let (told, url) = (timeline.clone(), etcd_url.clone());
        tasks.push(tokio::spawn(async move {
            let ready = move || {
                let _ = ready.send(());
            };
            if let Err(error) = etcd::watch(&url, ready, |change| told.take(&change)).await {
                told.broke(&format!("{error:#}"));
            }
        }));
        tokio::time::timeout(START, watching)
            .await
            .context("etcd does not answer")?
            .context("the watch on etcd broke")?;
        let mut volumes = None;
        if options.controllers {
            volumes = controllers::start(
                making.world,
                to_api,
                &faults,
                &addresses,
                options.soak.is_some(),
            )
            .await?;
            let supervised = faults.clone();
            tasks.push(tokio::spawn(async move {
                supervised.controllers.supervise().await;
            }));
            let client = making.world.client.clone();
            tasks.push(tokio::spawn(controllers::hit(
                client,
                timeline.clone(),
                faults.clone(),
                changes,
            )));
        } else {
            let client = client_from(&account).await?;
            let store = (!options.naive).then(|| LedgerStore::new(client.clone(), NAMESPACE));
            let running = operator::run(
                client,
                false,
                store,
                timeline.clone(),
                faults.clone(),
                wishes.clone(),
                changes,
            );
            tasks.push(tokio::spawn(running));
        }
        let client = making.world.plane.impersonate(percona::OPERATOR).await?;
        let (told, hit, wanted) = (timeline.clone(), faults.clone(), wishes.clone());
        tasks.push(tokio::spawn(operator::run(
            client, true, None, told, hit, wanted, guarded,
        )));
        let served = making.served;
        Ok(Self {
            clients: Arc::new(clients),
            timeline,
            faults,
            wishes,
            etcd_url,
            tasks,
            _served: served,
            _naive: naive,
            _volumes: volumes,
            sibling,
        })
    }

    /// Deletes the objects whose names have this prefix: they have ended, and would only slow down
    /// later histories.
    pub(crate) async fn sweep(&self, prefix: &str) -> anyhow::Result<()> {
        for (kind, home) in [Kind::Backup, Kind::Restore]
            .into_iter()
            .flat_map(|kind| [(kind, NAMESPACE), (kind, SECOND)])
        {
            etcd::sweep(
                &self.etcd_url,
                &format!("velero.io/{}/{home}/{prefix}", kind.plural()),
            )
            .await?;
        }
        if let Some(buckets) = &self.clients.buckets {
            buckets.sweep(prefix);
            for (plural, home) in ["deletebackuprequests", "schedules"]
                .into_iter()
                .flat_map(|plural| [(plural, NAMESPACE), (plural, SECOND)])
            {
                etcd::sweep(
                    &self.etcd_url,
                    &format!("velero.io/{plural}/{home}/{prefix}"),
                )
                .await?;
            }
        }
        for kind in [Kind::Backup, Kind::Restore] {
            let key = format!(
                "ps.percona.com/perconaservermysql{}/{}/{prefix}",
                kind.plural(),
                percona::NAMESPACE
            );
            etcd::sweep(&self.etcd_url, &key).await?;
        }
        // Namespaces first: nothing is recreated in a namespace that is gone.
        for restored in ["namespaces", "configmaps", "serviceaccounts"] {
            etcd::sweep(&self.etcd_url, &format!("{restored}/{prefix}")).await?;
        }
        Ok(())
    }

    /// Ends the run and returns the API servers to the world.
    pub(crate) async fn end(mut self, world: &mut World) -> anyhow::Result<()> {
        self.tasks.iter().for_each(JoinHandle::abort);
        world.plane.api_servers = self.faults.servers.give_back();
        drop(self.faults.webhooks.give_back());
        drop(self.faults.controllers.give_back());
        let registrations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
        registrations.delete_object("backup-webhook").await?;
        // The naive webhook is not registered for kinds of guarded operators.
        let _ = registrations
            .delete_object("backup-webhook-percona-ps")
            .await;
        if let Some(sibling) = self.sibling.take() {
            sibling.remove().await?;
        }
        Ok(())
    }
}

impl Making<'_> {
    async fn serve(&mut self, app: Router) -> anyhow::Result<SocketAddr> {
        let served = Served::start(&self.identity, app).await?;
        let address = served.address();
        self.served.push(served);
        Ok(address)
    }

    async fn tap_to_api(
        &mut self,
        faults: &Arc<Faults>,
        writer: Writer,
    ) -> anyhow::Result<SocketAddr> {
        let state = ToApi {
            http: tap::client(&self.pki_ca)?,
            faults: faults.clone(),
            writer,
        };
        self.serve(taps::to_api(state)).await
    }

    async fn tap_to_webhook(
        &self,
        faults: &Arc<Faults>,
        timeline: &Arc<Timeline>,
    ) -> anyhow::Result<Served> {
        let http = tap::client(&self.pki_ca)?;
        let state = ToWebhook {
            http,
            faults: faults.clone(),
            timeline: timeline.clone(),
        };
        Served::start(&self.identity, taps::to_webhook(state)).await
    }

    async fn replica(
        &self,
        number: usize,
        all: &[Addresses],
        tap: SocketAddr,
    ) -> anyhow::Result<Process> {
        let plane = &self.world.plane;
        let kubeconfig = plane
            .service_account_kubeconfig_by(tap, NAMESPACE, "backup-webhook")
            .await?;
        let ca = plane.pki().context("no authority")?.ca();
        // A burst of requests is forwarded to one replica, even to a stopped one.
        let mut flags = replica::knows_peers(all, all[number], Some(&ca));
        flags.extend([
            "--peer-name=localhost".to_owned(),
            format!("--orphan-grace={}ms", GRACE.as_millis()),
            format!("--intent={}ms", INTENT.as_millis()),
            format!("--guard={}", percona::PROFILE),
        ]);
        let (name, programs) = (format!("history-webhook-{number}"), self.world.programs());
        let (addresses, folder) = (all[number], self.world.folder());
        let mut process = replica::start(
            &name,
            programs,
            &kubeconfig,
            Some(&self.identity),
            addresses,
            &flags,
            folder,
        )?;
        replica::answers(&mut process, addresses.health, "/readyz").await?;
        Ok(process)
    }

    /// A token of an account with all rights of a user.
    async fn clients_token(&self) -> anyhow::Result<String> {
        install::ensure_account(&self.world.client, CLIENTS, None).await?;
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": CLIENTS },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "kind": "ServiceAccount", "name": CLIENTS, "namespace": NAMESPACE }] });
        let bindings: Api<ClusterRoleBinding> = Api::all(self.world.client.clone());
        bindings.apply_object(CLIENTS, &binding).await?;
        self.world
            .plane
            .service_account_token(NAMESPACE, CLIENTS)
            .await
    }

    /// Waits until each API server calls the webhook for creations of our kinds, and of the guarded
    /// ones.
    async fn asked_by_all(
        &self,
        clients: &Clients,
        webhook: &Served,
        naive: bool,
    ) -> anyhow::Result<()> {
        let guarded = Whose::Operators { cluster: 0 };
        let whose = if naive {
            vec![Whose::Ours]
        } else {
            vec![Whose::Ours, guarded]
        };
        for (address, whose) in self
            .world
            .plane
            .addresses
            .iter()
            .flat_map(|one| whose.iter().map(move |whose| (one, whose)))
        {
            eventually("the webhook is asked", START, async || {
                let before = webhook.calls();
                let object = Object {
                    kind: Kind::Backup,
                    name: "is-the-webhook-there".to_owned(),
                    area: Area(1),
                };
                let create = Create {
                    object,
                    how: How::Post,
                    dry_run: true,
                    fault: None,
                };
                let path = whose.path(Kind::Backup, &create.object.name);
                let url = format!("https://{address}{path}?dryRun=All");
                let request = self
                    .http
                    .post(url)
                    .bearer_auth(&clients.token)
                    .header("content-type", "application/json");
                let body = whose.body(&create, "nowhere-", 0).to_string();
                let answer = request.body(body).send().await?.text().await?;
                anyhow::Ok(when(webhook.calls() > before, answer))
            })
            .await?;
        }
        Ok(())
    }
}

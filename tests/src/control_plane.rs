//! A real control plane: etcd, one or more API servers over it, and the controller manager, on free
//! loopback ports.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams, config::KubeConfigOptions};
use serde_json::{Value, json};

use crate::{
    binaries::PlanePrograms,
    pki::{Identity, Pki},
    process::{Process, Spec},
    proxy::Proxy,
    wait::{Probe, eventually},
};

const START: Duration = Duration::from_secs(90);

/// A running control plane, or an existing cluster (`KUBECONFIG_FOR_TESTS`).
#[derive(Default)]
pub struct ControlPlane {
    folder: PathBuf,
    pki: Option<Pki>,
    admin: PathBuf,
    /// etcd; `None` for an existing cluster.
    pub etcd: Option<Process>,
    /// Client URL of etcd; `None` for an existing cluster.
    pub etcd_url: Option<String>,
    pub api_servers: Vec<Process>,
    /// Addresses of the API servers, in the same order.
    pub addresses: Vec<SocketAddr>,
    pub controller_manager: Option<Process>,
    /// Proxy in front of the API servers; the programs under test connect to it.
    pub front: Option<Proxy>,
}

impl ControlPlane {
    /// Starts a control plane with this many API servers and these extra flags for them; its files
    /// are in `folder`.
    pub async fn start(
        folder: &Path,
        api_servers: usize,
        flags: &[String],
    ) -> anyhow::Result<Self> {
        Self::start_with(folder, api_servers, flags, &[]).await
    }

    /// Starts a control plane for nodes: pods reach its API server at this address, and controllers
    /// manage nodes and quotas.
    pub(crate) async fn start_for_nodes(folder: &Path, address: Ipv4Addr) -> anyhow::Result<Self> {
        let server = [
            "--bind-address=0.0.0.0".to_owned(),
            format!("--advertise-address={address}"),
            "--endpoint-reconciler-type=lease".to_owned(),
            // In addition to RBAC: flags that are lists add up.
            "--authorization-mode=Node".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            // This machine cannot resolve the node's name.
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        let controllers = "node-lifecycle-controller,taint-eviction-controller,\
            pod-garbage-collector-controller,resourcequota-controller,\
            persistentvolumeclaim-protection-controller,persistentvolume-protection-controller";
        Self::start_with(
            folder,
            1,
            &server,
            &[format!("--controllers={controllers}")],
        )
        .await
    }

    async fn start_with(
        folder: &Path,
        api_servers: usize,
        server_flags: &[String],
        manager_flags: &[String],
    ) -> anyhow::Result<Self> {
        let folder = folder.join("plane");
        std::fs::create_dir_all(&folder)?;
        if let Some(existing) = std::env::var_os("KUBECONFIG_FOR_TESTS") {
            return Ok(Self {
                folder,
                admin: existing.into(),
                ..Self::default()
            });
        }
        let programs = PlanePrograms::find()?;
        let pki = Pki::new(&folder)?;
        let starting = Starting {
            programs: &programs,
            pki: &pki,
            folder: &folder,
            server_flags,
            manager_flags,
        };

        let (etcd, etcd_url) = starting.etcd()?;
        let serving = pki.server("apiserver")?;
        let accounts = pki.server("service-accounts")?;
        let mut servers = Vec::new();
        let mut addresses = Vec::new();
        for number in 0..api_servers.max(1) {
            let (process, address) = starting.api_server(number, &etcd_url, &serving, &accounts)?;
            servers.push(process);
            addresses.push(address);
        }
        let front = Proxy::start(addresses.clone()).await?;
        let admin = write_kubeconfig(
            &folder.join("admin.kubeconfig"),
            addresses[0],
            &pki.ca(),
            &identity_user(&pki.client("admin", "admin", &["system:masters"])?),
        )?;
        let mut plane = Self {
            folder: folder.clone(),
            admin,
            etcd: Some(etcd),
            etcd_url: Some(etcd_url),
            api_servers: servers,
            addresses: addresses.clone(),
            front: Some(front),
            ..Self::default()
        };
        plane.wait_ready(&addresses).await?;
        if programs.has("kube-controller-manager") {
            let manager = pki.client("kcm", "system:kube-controller-manager", &[])?;
            let config = write_kubeconfig(
                &folder.join("kcm.kubeconfig"),
                addresses[0],
                &pki.ca(),
                &identity_user(&manager),
            )?;
            plane.controller_manager = Some(starting.controller_manager(&config, &accounts)?);
        }
        plane.pki = Some(pki);
        Ok(plane)
    }

    async fn wait_ready(&mut self, addresses: &[SocketAddr]) -> anyhow::Result<()> {
        for (number, address) in addresses.iter().enumerate() {
            std::fs::write(
                self.admin_kubeconfig_of(number),
                std::fs::read_to_string(&self.admin)?
                    .replace(&addresses[0].to_string(), &address.to_string()),
            )?;
            let client = client_from(&self.admin_kubeconfig_of(number)).await?;
            eventually("API server ready", START, async || {
                for process in self.etcd.iter_mut().chain(&mut self.api_servers) {
                    process.check()?;
                }
                let request = http::Request::get("/readyz").body(Vec::new())?;
                anyhow::Ok(Probe::Ready(client.request_text(request).await?))
            })
            .await?;
        }
        Ok(())
    }

    /// Compacts etcd to the current revision, as it does by itself after some minutes: paged lists
    /// that began before cannot be continued.
    pub async fn forget_the_past(&self) -> anyhow::Result<()> {
        let etcd = self
            .etcd_url
            .as_deref()
            .context("the cluster is not ours")?;
        let ask = async |method: &str, question: Value| -> anyhow::Result<Value> {
            let request = reqwest::Client::new()
                .post(format!("{etcd}/v3/kv/{method}"))
                .body(question.to_string());
            Ok(serde_json::from_str(
                &request.send().await?.error_for_status()?.text().await?,
            )?)
        };
        // The key is one zero byte.
        let now = ask("range", json!({ "key": "AA==" })).await?["header"]["revision"].clone();
        ask("compaction", json!({ "revision": now, "physical": true }))
            .await
            .map(|_| ())
    }

    /// Stops the controller manager, which processes every object that is created.
    pub async fn stop_controller_manager(&mut self) -> anyhow::Result<()> {
        match self.controller_manager.take() {
            Some(mut manager) => manager.kill().await,
            None => Ok(()),
        }
    }

    /// Kubeconfig of a cluster administrator for the first API server, without the proxy.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin
    }

    /// Like `admin_kubeconfig`, for any of the API servers.
    fn admin_kubeconfig_of(&self, server: usize) -> PathBuf {
        self.folder.join(format!("admin-{server}.kubeconfig"))
    }

    /// A client of a cluster administrator, or of the impersonated `user`, for one of the API
    /// servers, without the proxy. It does not retry.
    pub async fn client_of(&self, server: usize, user: Option<&str>) -> anyhow::Result<Client> {
        let mut config = config_from(&self.admin_kubeconfig_of(server)).await?;
        config.auth_info.impersonate = user.map(str::to_owned);
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    pub async fn admin(&self) -> anyhow::Result<Client> {
        client_from(&self.admin).await
    }

    /// A client of a user (`name`) or of a ServiceAccount
    /// (`system:serviceaccount:<namespace>:<name>`), by impersonation, for the first API server,
    /// without the proxy.
    pub async fn impersonate(&self, user: &str) -> anyhow::Result<Client> {
        self.acting_as(user, None).await
    }

    /// Like `impersonate`, for a user who may do everything.
    pub async fn administrator(&self, user: &str) -> anyhow::Result<Client> {
        self.acting_as(user, Some(vec!["system:masters".to_owned()]))
            .await
    }

    async fn acting_as(&self, user: &str, groups: Option<Vec<String>>) -> anyhow::Result<Client> {
        let mut config = config_from(&self.admin).await?;
        config.auth_info.impersonate = Some(user.to_owned());
        config.auth_info.impersonate_groups = groups;
        Ok(Client::try_from(config)?)
    }

    /// The certificate authority, for webhooks; `None` for an existing cluster.
    pub fn pki(&self) -> Option<&Pki> {
        self.pki.as_ref()
    }

    /// A kubeconfig with a token of this ServiceAccount, through the proxy in front of the API
    /// servers.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<PathBuf> {
        if let Some(front) = &self.front {
            return self
                .service_account_kubeconfig_by(front.address(), namespace, name)
                .await;
        }
        let token = self.service_account_token(namespace, name).await?;
        let mut config = serde_saphyr::from_str::<Value>(&std::fs::read_to_string(&self.admin)?)?;
        for user in config["users"].as_array_mut().into_iter().flatten() {
            user["user"] = json!({ "token": token });
        }
        let path = self.folder.join(format!("{namespace}-{name}.kubeconfig"));
        std::fs::write(&path, config.to_string())?;
        Ok(path)
    }

    /// Like `service_account_kubeconfig`, with this address instead of the proxy's.
    pub async fn service_account_kubeconfig_by(
        &self,
        address: SocketAddr,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<PathBuf> {
        let ca = self.pki.as_ref().context("the cluster is not ours")?.ca();
        let token = self.service_account_token(namespace, name).await?;
        let path = self
            .folder
            .join(format!("{namespace}-{name}-{}.kubeconfig", address.port()));
        write_kubeconfig(&path, address, &ca, &json!({ "token": token }))
    }

    pub(crate) async fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: Vec::new(),
                bound_object_ref: None,
                expiration_seconds: Some(24 * 3600),
            },
            ..TokenRequest::default()
        };
        let answer = api
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("token for ServiceAccount {namespace}/{name}"))?;
        Ok(answer.status.context("no token in the answer")?.token)
    }

    /// A kubeconfig with a certificate of this user, for the first API server, without the proxy.
    pub(crate) fn user_kubeconfig(
        &self,
        name: &str,
        user: &str,
        groups: &[&str],
    ) -> anyhow::Result<PathBuf> {
        let pki = self.pki.as_ref().context("the cluster is not ours")?;
        let identity = identity_user(&pki.client(name, user, groups)?);
        let path = self.folder.join(format!("{name}.kubeconfig"));
        write_kubeconfig(&path, self.addresses[0], &pki.ca(), &identity)
    }

    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.etcd
            .iter()
            .chain(&self.api_servers)
            .chain(&self.controller_manager)
    }
}

/// A client from a kubeconfig file, with timeouts for tests.
pub(crate) async fn client_from(kubeconfig: &Path) -> anyhow::Result<Client> {
    Ok(Client::try_from(config_from(kubeconfig).await?)?)
}

/// Like `client_from`, but without kube's retries of 429 and 503 answers.
pub async fn client_without_retries(kubeconfig: &Path) -> anyhow::Result<Client> {
    let mut config = config_from(kubeconfig).await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

async fn config_from(kubeconfig: &Path) -> anyhow::Result<Config> {
    let parsed = kube::config::Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
    config.read_timeout = Some(Duration::from_mins(1));
    Ok(config)
}

/// A free loopback port, below the range that the kernel gives to outgoing connections: such a port
/// was once taken between this check and the API server's start.
fn free_port() -> anyhow::Result<u16> {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 22_000;
    static ASKED: AtomicU32 = AtomicU32::new(0);
    // Runs at the same time begin far from one another.
    let begin = std::process::id().wrapping_mul(7_919);
    for _ in 0..COUNT {
        let next = begin.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + next)?;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!(
        "no port of 127.0.0.1 between {FIRST} and {} is free",
        FIRST + COUNT
    )
}

/// An address of loopback with a free port.
pub(crate) fn loopback_address() -> anyhow::Result<SocketAddr> {
    Ok(SocketAddr::from(([127, 0, 0, 1], free_port()?)))
}

fn identity_user(identity: &Identity) -> Value {
    json!({ "client-certificate": identity.cert, "client-key": identity.key })
}

fn write_kubeconfig(
    path: &Path,
    server: SocketAddr,
    ca: &Path,
    user: &Value,
) -> anyhow::Result<PathBuf> {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{ "name": "tests", "cluster": { "server": format!("https://{server}"), "certificate-authority": ca } }],
        "users": [{ "name": "tests", "user": user }],
        "contexts": [{ "name": "tests", "context": { "cluster": "tests", "user": "tests" } }],
    });
    // JSON is YAML.
    std::fs::write(path, config.to_string())?;
    Ok(path.to_owned())
}

/// Controllers that an application needs; others would only use memory.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,statefulset-controller,daemonset-controller,\
    job-controller,cronjob-controller,endpoints-controller,endpointslice-controller,garbage-collector-controller,\
    namespace-controller,serviceaccount-controller,serviceaccount-token-controller,disruption-controller,\
    root-ca-certificate-publisher-controller,clusterrole-aggregation-controller,persistentvolume-binder-controller,\
    validatingadmissionpolicy-status-controller";

struct Starting<'a> {
    programs: &'a PlanePrograms,
    pki: &'a Pki,
    folder: &'a Path,
    server_flags: &'a [String],
    manager_flags: &'a [String],
}

impl Starting<'_> {
    fn run(&self, component: &str, name: &str, flags: &[String]) -> anyhow::Result<Process> {
        let (program, mut args) = self.programs.command(component);
        args.extend_from_slice(flags);
        Process::start(
            Spec {
                name: name.to_owned(),
                program,
                args,
                env: BTreeMap::new(),
            },
            self.folder,
        )
    }

    fn etcd(&self) -> anyhow::Result<(Process, String)> {
        let client = format!("http://{}", loopback_address()?);
        let peer = format!("http://{}", loopback_address()?);
        let flags = [
            "--name=tests".to_owned(),
            format!("--data-dir={}", self.folder.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=tests={peer}"),
            // A test's cluster ends with the test and need not survive a power cut.
            "--unsafe-no-fsync".to_owned(),
            "--heartbeat-interval=10".to_owned(),
            "--election-timeout=100".to_owned(),
            "--log-level=warn".to_owned(),
        ];
        Ok((self.run("etcd", "etcd", &flags)?, client))
    }

    fn api_server(
        &self,
        number: usize,
        etcd: &str,
        serving: &Identity,
        accounts: &Identity,
    ) -> anyhow::Result<(Process, SocketAddr)> {
        let address = loopback_address()?;
        let mut flags = vec![
            format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", address.port()),
            format!("--tls-cert-file={}", serving.cert.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--client-ca-file={}", self.pki.ca().display()),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", accounts.cert.display()),
            format!(
                "--service-account-signing-key-file={}",
                accounts.key.display()
            ),
            "--authorization-mode=RBAC".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // The servers are on loopback, which is not allowed for endpoints of a Service.
            "--endpoint-reconciler-type=none".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            "--profiling=false".to_owned(),
        ];
        flags.extend_from_slice(self.server_flags);
        Ok((
            self.run(
                "kube-apiserver",
                &format!("kube-apiserver-{number}"),
                &flags,
            )?,
            address,
        ))
    }

    fn controller_manager(
        &self,
        kubeconfig: &Path,
        accounts: &Identity,
    ) -> anyhow::Result<Process> {
        let mut flags = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!(
                "--service-account-private-key-file={}",
                accounts.key.display()
            ),
            format!("--root-ca-file={}", self.pki.ca().display()),
            "--secure-port=0".to_owned(),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            "--kube-api-qps=500".to_owned(),
            "--kube-api-burst=1000".to_owned(),
            "--concurrent-namespace-syncs=10".to_owned(),
            // Time after which a claim is retried whose volume was not seen yet.
            "--pvclaimbinder-sync-period=1s".to_owned(),
            format!("--controllers={CONTROLLERS}"),
        ];
        flags.extend_from_slice(self.manager_flags);
        self.run("kube-controller-manager", "kube-controller-manager", &flags)
    }
}

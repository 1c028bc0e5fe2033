//! Replicas of the webhook as processes, without controllers.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use backup_tests::{
    World,
    control_plane::free_port,
    install::NAMESPACE,
    pki::Identity,
    process::{Process, Spec},
    proxy::Proxy,
    wait::{Probe, eventually, when},
};
use serde_json::Value;

/// Running replicas; they end when dropped.
pub struct Replicas {
    processes: Vec<Process>,
    addresses: Vec<SocketAddr>,
    health: Vec<SocketAddr>,
    /// In front of more than one, as a Service would be.
    front: Option<Proxy>,
}

impl Replicas {
    /// Starts so many, which know each other if the program has a flag for that, and waits until they are ready.
    pub async fn start(
        world: &World,
        identity: &Identity,
        ca: &Path,
        name: &str,
        count: usize,
        args: &[String],
    ) -> anyhow::Result<Self> {
        let mut replicas =
            Self { processes: Vec::new(), addresses: Vec::new(), health: Vec::new(), front: None };
        for _ in 0..count {
            replicas.addresses.push(format!("127.0.0.1:{}", free_port()?).parse()?);
            replicas.health.push(format!("127.0.0.1:{}", free_port()?).parse()?);
        }
        let kubeconfig = kubeconfig(world).await?;
        let peers: Vec<String> = replicas.addresses.iter().map(ToString::to_string).collect();
        let peers = (count > 1 && knows(world, "--peers")?).then(|| peers.join(","));
        for (number, (address, health)) in replicas.addresses.iter().zip(&replicas.health).enumerate() {
            let mut all = vec![
                format!("--listen={address}"),
                format!("--health-listen={health}"),
                format!("--tls-cert={}", identity.cert.display()),
                format!("--tls-key={}", identity.key.display()),
                format!("--namespace={NAMESPACE}"),
            ];
            if let Some(peers) = &peers {
                all.push(format!("--peers={peers}"));
                all.push(format!("--peer-ca={}", ca.display()));
                all.push("--identity=127.0.0.1".to_owned());
            }
            all.extend_from_slice(args);
            let spec = Spec {
                name: format!("{name}-{number}"),
                program: world.programs().webhook.clone(),
                args: all,
                env: BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig.display().to_string())]),
            };
            replicas.processes.push(Process::start(spec, world.folder())?);
        }
        for (process, health) in replicas.processes.iter_mut().zip(&replicas.health) {
            ready(process, *health).await?;
        }
        if count > 1 {
            replicas.front = Some(Proxy::start(replicas.addresses.clone()).await?);
        }
        Ok(replicas)
    }

    /// Where the API server finds them.
    pub fn address(&self) -> SocketAddr {
        self.front.as_ref().map_or(self.addresses[0], Proxy::address)
    }

    /// Their process ids.
    pub fn ids(&self) -> Vec<u32> {
        self.processes.iter().filter_map(Process::id).collect()
    }

    /// The processes.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// A metric whose name ends like this (without labels), summed over the replicas.
    pub async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for health in &self.health {
            let text = reqwest::get(format!("http://{health}/metrics")).await?.text().await?;
            let values = text.lines().filter_map(|line| line.split_once(' ')).filter(|(key, _)| {
                !key.starts_with('#') && key.split('{').next().is_some_and(|key| key.ends_with(name))
            });
            sum += values.filter_map(|(_, value)| value.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(sum)
    }
}

/// Whether the program under test knows a flag; older builds may be measured too.
pub fn knows(world: &World, flag: &str) -> anyhow::Result<bool> {
    let help = std::process::Command::new(&world.programs().webhook).arg("--help").output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains(flag))
}

/// A kubeconfig of the webhook's account that goes straight to the API server, as the clients do: the kit's own goes
/// through a proxy, which would count against the guard.
async fn kubeconfig(world: &World) -> anyhow::Result<PathBuf> {
    let proxied = world.plane.service_account_kubeconfig(NAMESPACE, "backup-webhook").await?;
    let read = |path: &Path| -> anyhow::Result<Value> {
        serde_json::from_slice(&std::fs::read(path)?).context("a kubeconfig of the kit")
    };
    if world.plane.front.is_none() {
        return Ok(proxied);
    }
    let mut config = read(&proxied)?;
    let admin = read(world.plane.admin_kubeconfig())?;
    config["clusters"][0]["cluster"]["server"] = admin["clusters"][0]["cluster"]["server"].clone();
    let direct = world.folder().join("bench-webhook.kubeconfig");
    std::fs::write(&direct, config.to_string())?;
    Ok(direct)
}

async fn ready(process: &mut Process, health: SocketAddr) -> anyhow::Result<()> {
    eventually("webhook ready", Duration::from_mins(1), async || {
        process.check()?;
        anyhow::Ok(match reqwest::get(format!("http://{health}/readyz")).await {
            Ok(answer) => when(answer.status().is_success(), answer.status().to_string()),
            Err(error) => Probe::NotYet(error.to_string()),
        })
    })
    .await
    .with_context(|| process.tail(20))
}

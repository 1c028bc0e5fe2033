//! Replicas of the webhook as processes; no controllers.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use backup_tests::{
    World,
    install::NAMESPACE,
    pki::Identity,
    process::Process,
    proxy::Proxy,
    replica::{self, Addresses, knows_peers},
};

/// Running replicas; they end when dropped.
pub struct Replicas {
    processes: Vec<Process>,
    addresses: Vec<Addresses>,
    /// Load balancer if there is more than one replica, like a Service.
    front: Option<Proxy>,
}

impl Replicas {
    /// Starts replicas that know each other, and waits until they are ready.
    pub async fn start(
        world: &World,
        identity: &Identity,
        ca: &Path,
        name: &str,
        count: usize,
        args: &[String],
    ) -> anyhow::Result<Self> {
        let all = Addresses::free(count)?;
        let mut replicas = Self {
            processes: Vec::new(),
            addresses: all.clone(),
            front: None,
        };
        let kubeconfig = kubeconfig(world).await?;
        for (number, addresses) in all.iter().enumerate() {
            let mut flags = if count > 1 {
                knows_peers(&all, *addresses, Some(ca))
            } else {
                Vec::new()
            };
            flags.extend_from_slice(args);
            let name = format!("{name}-{number}");
            let programs = world.programs();
            let process = replica::start(
                &name,
                programs,
                &kubeconfig,
                Some(identity),
                *addresses,
                &flags,
                world.folder(),
            )?;
            replicas.processes.push(process);
        }
        for (process, addresses) in replicas.processes.iter_mut().zip(&all) {
            replica::answers(process, addresses.health, "/readyz").await?;
        }
        if count > 1 {
            replicas.front =
                Some(Proxy::start(all.iter().map(|addresses| addresses.reviews).collect()).await?);
        }
        Ok(replicas)
    }

    /// The address for the API server.
    pub fn address(&self) -> SocketAddr {
        self.front
            .as_ref()
            .map_or(self.addresses[0].reviews, Proxy::address)
    }

    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The sum over the replicas of a metric, found by the end of its name (without labels).
    pub async fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for Addresses { health, .. } in &self.addresses {
            let text = reqwest::get(format!("http://{health}/metrics"))
                .await?
                .text()
                .await?;
            let values = text
                .lines()
                .filter_map(|line| line.split_once(' '))
                .filter(|(key, _)| {
                    !key.starts_with('#')
                        && key.split('{').next().is_some_and(|key| key.ends_with(name))
                });
            sum += values
                .filter_map(|(_, value)| value.parse::<f64>().ok())
                .sum::<f64>();
        }
        Ok(sum)
    }
}

/// A kubeconfig for the webhook's account with a direct connection to the API server, as the
/// clients have: the kit's own uses a proxy, which would slow the guard down.
async fn kubeconfig(world: &World) -> anyhow::Result<PathBuf> {
    const NAME: &str = "backup-webhook";
    match world.plane.addresses.first() {
        Some(server) => {
            world
                .plane
                .service_account_kubeconfig_by(*server, NAMESPACE, NAME)
                .await
        }
        None => {
            world
                .plane
                .service_account_kubeconfig(NAMESPACE, NAME)
                .await
        }
    }
}

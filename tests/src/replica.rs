//! A replica of the webhook as a process, without anything around it.

use std::{net::SocketAddr, path::Path, time::Duration};

use crate::{
    binaries::Programs,
    control_plane::loopback_address,
    install::NAMESPACE,
    pki::Identity,
    process::Process,
    wait::{eventually, when},
};

/// Timeout for a program of ours to answer.
const START: Duration = Duration::from_mins(1);

#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    pub reviews: SocketAddr,
    pub health: SocketAddr,
}

impl Addresses {
    /// Free addresses for `count` replicas.
    pub fn free(count: usize) -> anyhow::Result<Vec<Self>> {
        (0..count)
            .map(|_| {
                Ok(Self {
                    reviews: loopback_address()?,
                    health: loopback_address()?,
                })
            })
            .collect()
    }
}

/// The flags that tell the replica at `own` about the others; `ca` signs their certificates, unless
/// they make these themselves.
pub fn knows_peers(all: &[Addresses], own: Addresses, ca: Option<&Path>) -> Vec<String> {
    let peers: Vec<String> = all
        .iter()
        .map(|addresses| addresses.reviews.to_string())
        .collect();
    let mut flags = vec![
        format!("--peers={}", peers.join(",")),
        format!("--identity={}", own.reviews.ip()),
    ];
    flags.extend(ca.map(|ca| format!("--peer-ca={}", ca.display())));
    flags
}

/// Starts a replica; its log and temporary files are in `folder`. Without an identity, the flags
/// must set the source of its certificate.
pub fn start(
    name: &str,
    programs: &Programs,
    kubeconfig: &Path,
    identity: Option<&Identity>,
    addresses: Addresses,
    flags: &[String],
    folder: &Path,
) -> anyhow::Result<Process> {
    let mut args = vec![
        format!("--listen={}", addresses.reviews),
        format!("--health-listen={}", addresses.health),
        format!("--namespace={NAMESPACE}"),
    ];
    if let Some(identity) = identity {
        args.push(format!("--tls-cert={}", identity.cert.display()));
        args.push(format!("--tls-key={}", identity.key.display()));
    }
    args.extend_from_slice(flags);
    Process::start_program(name, &programs.webhook, args, kubeconfig, folder)
}

/// Waits until a program answers this path of its health server.
pub async fn answers(process: &mut Process, health: SocketAddr, path: &str) -> anyhow::Result<()> {
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(2))
        .build()?;
    let url = format!("http://{health}{path}");
    eventually(
        &format!("{} answers {path}", process.name()),
        START,
        async || {
            process.check()?;
            let status = client.get(&url).send().await?.status();
            anyhow::Ok(when(status.is_success(), status.to_string()))
        },
    )
    .await
    .map_err(|error| error.context(process.tail(20)))
}

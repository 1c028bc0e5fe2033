//! The client for the API server.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use backup_lock::connection;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// Longer than a watch stays silent (the API server ends it after about five minutes). Single
/// requests have their own, shorter limits.
const READ_TIMEOUT: Duration = Duration::from_secs(330);

/// A client for single requests and watches, and one for connections that may be silent while a
/// command in a pod runs.
pub(crate) async fn clients(kubeconfig: Option<&Path>) -> anyhow::Result<(Client, Client)> {
    let config = config(kubeconfig).await?;
    let mut silent = config.clone();
    silent.read_timeout = None;
    Ok((client(config)?, client(silent)?))
}

fn client(config: Config) -> anyhow::Result<Client> {
    // The error's text includes its causes.
    connection::client(config)
        .map_err(|error| anyhow!("the configuration of the cluster can not be used: {error}"))
}

/// The configuration from this kubeconfig; without one from `$KUBECONFIG`, `~/.kube/config`, or the
/// pod's service account. An error is one sentence with the remedy.
async fn config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .map_err(|error| anyhow!("--kubeconfig {} can not be read: {error}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(|error| anyhow!("--kubeconfig {} can not be used: {error}", path.display()))?
        }
        None => Config::infer().await.map_err(|error| match std::env::var_os("KUBECONFIG") {
            Some(files) => {
                anyhow!("the kubeconfig in KUBECONFIG ({}) can not be used: {error}", files.display())
            }
            None => anyhow!(
                "no cluster to talk to: run this in a pod with a service account, or give a kubeconfig with \
                 --kubeconfig or KUBECONFIG ({error})"
            ),
        })?,
    };
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    // Compressing a list costs the API server more time than sending it to a nearby program.
    config.disable_compression = true;
    Ok(config)
}

//! Debian's restic, by which a user reads the moved data of volumes without a cluster.

use anyhow::Context as _;
use backup_core::data_movement::{PASSWORD_KEY, PASSWORD_SECRET, repository_path};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tokio::process::Command;

use super::Node;
use crate::{
    install::NAMESPACE,
    kubectl_backup::Ran,
    object_store::{ACCESS, SECRET},
    world::BUCKET,
};

/// Whether this machine has restic.
pub fn has_restic() -> bool {
    std::process::Command::new("restic")
        .arg("version")
        .output()
        .is_ok()
}

impl Node {
    /// Runs restic on the repository of a namespace, with the password of the cluster's Secret.
    pub async fn restic(&self, namespace: &str, args: &[&str]) -> anyhow::Result<Ran> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let secret = secrets.get(PASSWORD_SECRET).await?;
        let mut data = secret.data.unwrap_or_default();
        let password = data.remove(PASSWORD_KEY).context("no password")?;
        let mut command = Command::new("restic");
        command
            .args(["--no-cache", "--repo"])
            .arg(format!(
                "s3:http://{}/{BUCKET}/{}",
                self.s3.address(),
                repository_path(namespace)
            ))
            .args(args);
        command
            .env("RESTIC_PASSWORD", String::from_utf8(password.0)?)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        Ran::of(command).await?.expect_code(0)
    }
}

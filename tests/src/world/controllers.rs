//! The controllers of a world: killed at named points, paused, restarted.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use backup_core::api::{Backup, BackupPhase, BackupSpec};
use backup_store::crash;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use object_store::ObjectStoreExt as _;

use super::{World, backups::of_namespaces};
use crate::{
    skip::Skip,
    wait::{eventually, when},
};

/// The controller's flag that lets the next process work at once.
pub const ALONE: &str = "--leader-elect=false";
/// Timeout for a backup or restore to reach a named point.
pub const POINT_TIMEOUT: Duration = Duration::from_mins(2);
const START: Duration = Duration::from_mins(1);
/// Last log message of a controller that ends because it has lost its lease.
const LEASE_LOST: &str = "this replica ends and starts again";

/// A backup that ends before its work begins.
pub struct EndsEarly {
    /// The named point before its end is published.
    pub point: &'static str,
    pub name: String,
    pub spec: BackupSpec,
    pub phase: BackupPhase,
}

impl World {
    /// Skips a test if the programs have no named points (`backup_store::crash`).
    pub fn needs_debug_build(&self) -> anyhow::Result<()> {
        let release = self
            .programs
            .controller
            .display()
            .to_string()
            .contains("/release/");
        if release {
            Err(Skip("a release build has no such points").into())
        } else {
            Ok(())
        }
    }

    /// Restarts the first controller so that it kills itself at a named point.
    pub async fn crash_at(&mut self, point: &str) -> anyhow::Result<()> {
        self.controllers[0]
            .restart_with(&[("BACKUP_CRASH_AT", point)])
            .await
    }

    /// Waits until the first controller has killed itself, and restarts it without a point.
    pub async fn crashed(&mut self, point: &str) -> anyhow::Result<()> {
        let killed = self.controllers[0].killed(POINT_TIMEOUT).await;
        killed.with_context(|| format!("{point} was not reached"))?;
        self.controllers[0].restart().await
    }

    /// A backup without a location, and one whose name is taken in the bucket; both end before
    /// their work begins.
    pub async fn refused_and_failed(&self, prefix: &str) -> anyhow::Result<[EndsEarly; 2]> {
        let [refusal, failure] = crash::REFUSAL_POINTS;
        let (refused, failed) = (format!("{prefix}-refused"), format!("{prefix}-failed"));
        self.s3()?.create_bucket(&failed).await?;
        self.s3_location(&failed, &self.s3()?.url()).await?;
        let mut other = Backup::new(&failed, BackupSpec::default());
        other.metadata.uid = Some("of-another-cluster".to_owned());
        let key = format!("backups/{failed}/velero-backup.json");
        self.s3()?
            .bucket(&failed)?
            .put(&key.into(), serde_json::to_vec(&other)?.into())
            .await?;
        let into = |location: &str| BackupSpec {
            storage_location: Some(location.to_owned()),
            ..of_namespaces(&["default"])
        };
        Ok([
            EndsEarly {
                point: refusal,
                spec: into("nowhere"),
                name: refused,
                phase: BackupPhase::FailedValidation,
            },
            EndsEarly {
                point: failure,
                spec: into(&failed),
                name: failed,
                phase: BackupPhase::Failed,
            },
        ])
    }

    /// Restarts all controllers with these extra flags.
    pub async fn controllers_with(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        for controller in &mut self.controllers {
            controller.restart_with_flags(flags).await?;
        }
        Ok(())
    }

    /// Restarts controllers that lost their lease, as a Deployment does: a long pause loses the
    /// lease, and how long a test pauses a controller depends on the machine. Errors: a controller
    /// has ended for another reason.
    pub async fn controllers_run(&mut self) -> anyhow::Result<()> {
        for controller in &mut self.controllers {
            if !controller.has_ended() {
                continue;
            }
            let last = controller.tail(1);
            ensure!(
                last.contains(LEASE_LOST),
                "{} ended by itself: {last}",
                controller.name()
            );
            controller.restart().await?;
        }
        Ok(())
    }

    /// Stops a controller as an upgrade does, restarts it, and waits until it leads.
    pub async fn renew_controller(&mut self, number: usize) -> anyhow::Result<()> {
        let before = self.lease_holder().await?;
        self.controllers[number].stop(START).await?;
        self.starts_to_lead(number, &before).await
    }

    /// Kills a controller as an OOM kill does, restarts it, and waits until it leads.
    pub async fn kill_controller(&mut self, number: usize) -> anyhow::Result<()> {
        let before = self.lease_holder().await?;
        self.controllers[number].kill().await?;
        self.starts_to_lead(number, &before).await
    }

    async fn starts_to_lead(&mut self, number: usize, before: &str) -> anyhow::Result<()> {
        self.controllers[number].restart().await?;
        eventually("the new controller leads", START, async || {
            let now = self.lease_holder().await?;
            Ok::<_, kube::Error>(when(!now.is_empty() && now != before, now))
        })
        .await
    }

    pub async fn leader(&self) -> anyhow::Result<usize> {
        let holder = self.lease_holder().await?;
        ensure!(!holder.is_empty(), "no controller leads");
        let leader = self
            .controllers
            .iter()
            .position(|process| is_of(&process.log(), &holder));
        leader.with_context(|| format!("{holder} is none of ours"))
    }

    async fn lease_holder(&self) -> Result<String, kube::Error> {
        lease_holder(&self.api()).await
    }

    /// The value of a series among the metrics of the first controller; `None` if it is not there.
    pub async fn metric(&self, series: &str) -> anyhow::Result<Option<f64>> {
        let address = self.controller_health.first().context("no controller")?;
        let text = reqwest::get(format!("http://{address}/metrics"))
            .await?
            .text()
            .await?;
        Ok(text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok()))
    }
}

/// The leader of an installation's controllers; empty if there is none.
pub(crate) async fn lease_holder(leases: &Api<Lease>) -> Result<String, kube::Error> {
    let spec = leases
        .get("backup-controller")
        .await?
        .spec
        .unwrap_or_default();
    Ok(spec.holder_identity.unwrap_or_default())
}

/// Whether this is the log of the controller with this identity in the Lease.
pub(crate) fn is_of(log: &str, holder: &str) -> bool {
    log.contains(&format!("\"identity\":\"{holder}\""))
}

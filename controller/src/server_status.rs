//! ServerStatusRequests: a client asks which version runs here, and with which plugins. Answered
//! once, and removed a minute later.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use backup_actions::{backup, restore};
use backup_client::errors::found;
use backup_core::api::{
    ServerStatusRequest,
    server_status_request::{PluginInfo, ServerStatusRequestPhase as Phase},
};
use backup_plugins::{Host, catalog::Kind};
use backup_runtime::{
    Cluster, delete,
    health::Health,
    queue::{Action, Key, run_queue},
    retry, watch,
};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::error::ReconcileError;

/// Maximum number of requests that are reconciled concurrently.
const CONCURRENCY: usize = 4;
/// Time for which a request stays after its answer (Velero
/// `pkg/controller/server_status_request_controller.go`, v1.18).
const TTL: Duration = Duration::from_mins(1);
/// Timeout for plugin binaries to list their plugins. Velero's command line waits five seconds for
/// the whole answer.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Names this program, so that it is not mistaken for a version of Velero's server.
const VERSION: &str = concat!("backup-controller v", env!("CARGO_PKG_VERSION"));

pub(crate) struct ServerStatusController {
    pub(crate) cluster: Cluster,
    pub(crate) plugins: Host,
    pub(crate) csi: bool,
    /// Built-in providers whose locations are served by a plugin.
    pub(crate) object_store_plugins: Vec<String>,
}

impl ServerStatusController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, health: Health, stop: CancellationToken) {
        let keys =
            watch::keys::<ServerStatusRequest>(&self.cluster, &health, "server status requests");
        let controller = Arc::new(self);
        run_queue("server status", keys, CONCURRENCY, stop, move |key| {
            Arc::clone(&controller).reconcile(key)
        })
        .await;
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Action, ReconcileError> {
        let request = found(
            self.cluster
                .api::<ServerStatusRequest>()
                .get(&key.name)
                .await,
            &key.name,
        )?;
        let Some(request) = request else {
            return Ok(Action::AwaitChange);
        };
        match decide(&request, Timestamp::now()) {
            Plan::Answer => {
                let plugins = self.plugins().await;
                retry::status_patch(&self.cluster, &request, |current| {
                    matches!(current.status.phase, None | Some(Phase::New)).then(|| {
                        json!({"status": {
                            "phase": Phase::Processed,
                            "processedTimestamp": Time(Timestamp::now()),
                            "serverVersion": VERSION,
                            "plugins": plugins,
                        }})
                    })
                })
                .await?;
                Ok(Action::RequeueAfter(TTL))
            }
            Plan::Keep(time) => Ok(Action::RequeueAfter(time)),
            Plan::Remove => {
                self.cluster.leadership.check()?;
                delete::delete_unchanged(&self.cluster, &request).await?;
                Ok(Action::AwaitChange)
            }
        }
    }

    /// All plugins, by kind and name: the built-in ones, by their names in Velero, and the plugins
    /// of binaries.
    async fn plugins(&self) -> Vec<PluginInfo> {
        let mut all = self.built_in();
        all.extend(self.plugins.installed(PLUGIN_TIMEOUT).await);
        let mut infos: Vec<_> = all
            .into_iter()
            .map(|(kind, name)| PluginInfo {
                name,
                kind: format!("{kind:?}"),
                ..PluginInfo::default()
            })
            .collect();
        infos.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
        infos
    }

    fn built_in(&self) -> BTreeSet<(Kind, String)> {
        let backup_item = backup::built_in(&self.cluster, self.csi, &Arc::default())
            .into_iter()
            .map(|action| {
                let v2 = action.name().starts_with(backup::CSI_PREFIX);
                (
                    if v2 {
                        Kind::BackupItemActionV2
                    } else {
                        Kind::BackupItemAction
                    },
                    action.name().to_owned(),
                )
            });
        let item_block = backup::built_in_blocks(&self.cluster.client)
            .into_iter()
            .map(|action| (Kind::ItemBlockAction, action.name().to_owned()));
        let restore_item = restore::names().map(|name| (Kind::RestoreItemAction, name.to_owned()));
        let csi_restore =
            restore::CSI_NAMES.map(|name| (Kind::RestoreItemActionV2, name.to_owned()));
        let by_plugin: Vec<String> = self
            .object_store_plugins
            .iter()
            .map(|name| backup_store::plugin_of(name.trim()))
            .collect();
        let stores = backup_store::BUILT_IN
            .into_iter()
            .map(backup_store::plugin_of);
        let stores = stores
            .filter(|name| !by_plugin.contains(name))
            .map(|name| (Kind::ObjectStore, name));
        backup_item
            .chain(item_block)
            .chain(restore_item)
            .chain(csi_restore)
            .chain(stores)
            .collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    Answer,
    /// It was answered; check again after this time.
    Keep(Duration),
    /// It was answered longer than [`TTL`] ago.
    Remove,
}

fn decide(request: &ServerStatusRequest, now: Timestamp) -> Plan {
    if matches!(request.status.phase, None | Some(Phase::New)) {
        return Plan::Answer;
    }
    let processed = request.status.processed_timestamp.as_ref();
    let since = processed
        .or(request.metadata.creation_timestamp.as_ref())
        .map(|time| time.0);
    // A time in the future, from a wrong clock, counts as now.
    let age = since.map_or(Duration::ZERO, |since| {
        Duration::try_from(now.duration_since(since)).unwrap_or_default()
    });
    let left = TTL.saturating_sub(age);
    if left.is_zero() {
        Plan::Remove
    } else {
        Plan::Keep(left)
    }
}

#[cfg(test)]
mod tests {
    use backup_core::api::server_status_request::ServerStatusRequestSpec;
    use backup_testkit::FakeApi;
    use jiff::SignedDuration;

    use super::*;
    use crate::testing;

    /// Velero's `pkg/cmd/server/plugin/plugin.go`, v1.18. Velero also has `crd-remap-version`, the
    /// plugins of the data mover (`dataupload`, `dataupload-delete`), of files in repositories
    /// (`pod-volume-restore`), and a third one on blocks.
    #[tokio::test]
    async fn the_built_in_actions_have_the_names_of_velero() {
        let names = |csi, kind: Kind| -> Vec<String> {
            let controller = ServerStatusController {
                cluster: testing::cluster(FakeApi::new().client()),
                plugins: Host::none(),
                csi,
                object_store_plugins: Vec::new(),
            };
            let of_kind = controller
                .built_in()
                .into_iter()
                .filter(|(own, _)| *own == kind);
            of_kind
                .map(|(_, name)| name.strip_prefix("velero.io/").unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            names(false, Kind::BackupItemAction),
            ["pod", "pv", "service-account"]
        );
        assert_eq!(names(false, Kind::BackupItemActionV2), [""; 0]);
        let csi = [
            "pvc-backupper",
            "volumesnapshot-backupper",
            "volumesnapshotclass-backupper",
            "volumesnapshotcontent-backupper",
        ];
        assert_eq!(
            names(true, Kind::BackupItemActionV2),
            csi.map(|name| format!("csi-{name}"))
        );
        assert_eq!(names(false, Kind::ItemBlockAction), ["pod", "pvc"]);
        let restore = [
            "add-pvc-from-pod",
            "admission-webhook-configuration",
            "apiservice",
            "change-image-name",
            "change-storage-class",
            "cluster-role-bindings",
            "crd-preserve-fields",
            "init-restore-hook",
            "job",
            "pod",
            "pvc",
            "role-bindings",
            "secret",
            "service",
            "service-account",
        ];
        assert_eq!(names(false, Kind::RestoreItemAction), restore);
        let csi = [
            "pvc-restorer",
            "volumesnapshot-restorer",
            "volumesnapshotclass-restorer",
            "volumesnapshotcontent-restorer",
        ];
        assert_eq!(
            names(false, Kind::RestoreItemActionV2),
            csi.map(|name| format!("csi-{name}"))
        );
    }

    #[test]
    fn a_request_is_answered_once_and_goes_a_minute_later() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let ago = |seconds: i64| {
            Some(Time(
                now.checked_sub(SignedDuration::from_secs(seconds)).unwrap(),
            ))
        };
        let keep = |seconds| Plan::Keep(Duration::from_secs(seconds));
        for (phase, created, processed, expected) in [
            (None, Some(5000), None, Plan::Answer),
            (Some("New"), Some(0), None, Plan::Answer),
            (Some("Processed"), Some(100), Some(0), keep(60)),
            (Some("Processed"), Some(100), Some(59), keep(1)),
            (Some("Processed"), Some(100), Some(60), Plan::Remove),
            (Some("Processed"), Some(100), Some(-1000), keep(60)),
            (Some("Processed"), Some(100), None, Plan::Remove),
            (Some("Tomorrow"), Some(10), None, keep(50)),
        ] {
            let mut request = ServerStatusRequest::new("r", ServerStatusRequestSpec::default());
            request.metadata.creation_timestamp = created.and_then(ago);
            request.status.phase = phase.map(Phase::from);
            request.status.processed_timestamp = processed.and_then(ago);
            assert_eq!(
                decide(&request, now),
                expected,
                "{phase:?} {created:?} {processed:?}"
            );
        }
    }
}

//! Actions on items of a backup. Source: Velero `pkg/backup/actions` and `pkg/itemblock/actions`,
//! v1.18, which also gave them their names.

mod action;
mod claim;
mod claim_block;
mod list;
mod pod;
mod service_account;

use std::sync::Arc;

use backup_runtime::Cluster;

use crate::{
    csi::{self, SnapshotApi},
    selector::{ActionSet, sort_by_name},
};

pub use crate::{
    csi::backup::{NoClass, choose_class},
    volumes::{
        backup_uploads::{complete_moved, has_moved},
        backup_volumes::{BackupVolumes, ClaimVolume, VolumeDecision, VolumePolicy, complete_info},
        transfers::UploadApi,
    },
};
pub use action::{BackupActionOutput, BackupItemAction, ItemBlockAction};

/// Prefix of the names of the actions on CSI volumes.
pub const CSI_PREFIX: &str = "velero.io/csi-";

/// The built-in actions, with Velero's names (`pkg/cmd/server/plugin`, v1.18). Created for one
/// backup: they may cache what they read. The actions on CSI volumes, which are included with
/// `csi`, record their results in `volumes`.
///
/// Velero's `velero.io/crd-remap-version` is not included: it reads a definition again in an API
/// version that no cluster has served since Kubernetes 1.22.
pub fn built_in(
    cluster: &Cluster,
    csi: bool,
    volumes: &Arc<BackupVolumes>,
) -> Vec<Arc<dyn BackupItemAction>> {
    let mut all: Vec<Arc<dyn BackupItemAction>> = vec![
        Arc::new(claim::ClaimAction),
        Arc::new(pod::PodAction),
        Arc::new(service_account::ServiceAccountAction::new(
            cluster.client.clone(),
        )),
    ];
    if csi {
        all.append(&mut csi::backup::actions(
            &SnapshotApi::new(&cluster.client, &cluster.leadership),
            &UploadApi::new(&cluster.client, &cluster.namespace, &cluster.leadership),
            volumes,
        ));
    }
    all
}

/// The built-in actions on blocks: pods that mount the same claims, claims that are snapshotted
/// together (Velero `pkg/itemblock/actions`, v1.18). Created for one backup: they may cache what
/// they read.
///
/// Velero has a third one, on service accounts. It names the same items that the action on items
/// (`velero.io/service-account`) requests anyway, so we do not need it.
pub fn built_in_blocks(client: &kube::Client) -> Vec<Arc<dyn ItemBlockAction>> {
    vec![
        Arc::new(claim_block::ClaimBlock::new(client.clone())),
        Arc::new(pod::PodAction),
    ]
}

/// The actions of one backup, by name, first built-in ones, then plugins'. Of the built-in ones,
/// actions on CSI volumes come last: they put marks on claims that `velero.io/pv` takes for
/// leftovers (Velero runs its older kind of actions first, to the same effect). `resolve` completes
/// the name of a resource as users write it.
pub fn ordered(
    mut built_in: Vec<Arc<dyn BackupItemAction>>,
    mut plugins: Vec<Arc<dyn BackupItemAction>>,
    resolve: &dyn Fn(&str) -> Option<String>,
) -> ActionSet<dyn BackupItemAction> {
    sort_by_name(&mut built_in);
    built_in.sort_by_key(|action| action.name().starts_with(CSI_PREFIX));
    sort_by_name(&mut plugins);
    ActionSet::new("action", built_in.into_iter().chain(plugins), resolve)
}

//! Actions on items of a restore, and changes to every item. Source: Velero `pkg/restore/actions`,
//! v1.18, whose names the built-in ones use where Velero has them.

mod account;
mod action;
mod action_config;
mod add_pvc_from_pod;
mod built_in;
mod change_image_name;
mod change_storage_class;
mod cluster;
mod endpoints;
pub mod equality;
pub mod existing;
mod init_hooks;
pub mod json;
pub mod links;
pub mod mapped_links;
pub mod modifiers;
pub mod owners;
mod rules;
mod service;
pub mod stored;
pub mod transform;
pub mod volume;
mod webhooks;
mod workload;

pub use crate::{
    csi::restore::{NAMES as CSI_NAMES, actions as csi_actions, snapshot_of_claim},
    volumes::{
        moved::{
            ClaimProperties, MovedClaims, MovedRestore, NAME as MOVED_NAME, action as moved_action,
            operating,
        },
        restored_volumes::RestoredVolumes,
        transfers::DownloadApi,
    },
};
pub use action::{RestoreActionInput, RestoreActionOutput, RestoreItemAction, RestoreWait};
pub use action_config::{ActionConfigs, ConfigMapData};
pub use add_pvc_from_pod::{AddClaimsOfPods, PRIORITY_CLASSES};
pub use built_in::{built_in, names, ordered, skip_reason};
pub use init_hooks::{INIT_HOOK, INIT_HOOKS, pods_of_hook};
pub use rules::RestoreRules;

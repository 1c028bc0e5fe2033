//! What is to be in a backup: flags of `create` and of `schedules create`, under velero's names where velero has one.

use std::{collections::BTreeMap, path::PathBuf};

use backup_core::api::{
    GoDuration,
    backup::{BackupResourceHookSpec, BackupType},
};
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{duration, hooks, key_value, selector};

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "What is backed up")]
pub(crate) struct BackupSpecArgs {
    /// Namespaces to include, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) include_namespaces: Vec<String>,
    /// Namespaces to leave out
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) exclude_namespaces: Vec<String>,
    /// Resources to include, such as deployments.apps [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) include_resources: Vec<String>,
    /// Resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) exclude_resources: Vec<String>,
    /// Cluster-scoped resources to include; not together with the flags for resources of any scope
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) include_cluster_scoped_resources: Vec<String>,
    /// Cluster-scoped resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) exclude_cluster_scoped_resources: Vec<String>,
    /// Namespaced resources to include
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) include_namespace_scoped_resources: Vec<String>,
    /// Namespaced resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES")]
    pub(crate) exclude_namespace_scoped_resources: Vec<String>,
    /// Whether to include cluster-scoped resources [default: as fits the namespaces]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) include_cluster_resources: Option<bool>,
    /// Only items with these labels, such as app=shop,tier!=cache
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = selector::parse, conflicts_with = "or_selector")]
    pub(crate) selector: Option<LabelSelector>,
    /// Only items that match one of these, such as 'app=shop or app=db'
    #[arg(long, value_name = "SELECTORS", value_parser = selector::parse_or)]
    pub(crate) or_selector: Option<selector::Alternatives>,
    /// Order within a resource, such as 'pods=ns1/p1,ns1/p2;persistentvolumes=pv1'
    #[arg(long, value_name = "ORDER", value_parser = ordered)]
    pub(crate) ordered_resources: Option<Ordered>,
    /// Commands to run in pods around their backup: an entry of spec.hooks.resources, as YAML; may be repeated
    #[arg(long = "hook", value_name = "YAML", value_parser = hooks::of_backup)]
    pub(crate) hooks: Vec<BackupResourceHookSpec>,
    /// ConfigMap with policies for volumes
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_policies_configmap: Option<String>,
    /// Location to store the backup in [default: the default one]
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_location: Option<String>,
    /// How long to keep the backup, such as 720h [default: as the server is set]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<GoDuration>,
    #[command(flatten)]
    pub(crate) volumes: VolumeArgs,
}

/// How volumes are backed up.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Volumes")]
pub(crate) struct VolumeArgs {
    /// Whether volumes are snapshot [default: as the server is set]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) snapshot_volumes: Option<bool>,
    /// Locations of volume snapshots, one for each provider
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) volume_snapshot_locations: Vec<String>,
    /// Whether the data of snapshots is moved to the storage location
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) snapshot_move_data: Option<bool>,
    /// Who moves it [default: the built-in one]
    #[arg(long, value_name = "NAME")]
    pub(crate) data_mover: Option<String>,
    /// Whether all volumes are backed up file by file
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) default_volumes_to_fs_backup: Option<bool>,
    /// Files read at once from one volume
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) parallel_files_upload: Option<i64>,
    /// Label of claims that are snapshot together
    #[arg(long, value_name = "KEY")]
    pub(crate) volume_group_snapshot_label_key: Option<String>,
    /// How long a CSI snapshot may take to become ready, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) csi_snapshot_timeout: Option<GoDuration>,
    /// Deadline of every asynchronous operation, such as 4h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) item_operation_timeout: Option<GoDuration>,
    /// Full or Incremental
    #[arg(long, value_name = "TYPE", value_parser = ["Full", "Incremental"].map(clap::builder::PossibleValue::new), hide_possible_values = true)]
    pub(crate) backup_type: Option<String>,
}

impl VolumeArgs {
    /// The type as the API has it.
    pub(crate) fn backup_type(&self) -> Option<BackupType> {
        self.backup_type.as_deref().map(BackupType::from)
    }
}

/// What an object itself is made of: labels, annotations, and a manifest that flags go over.
#[derive(Args, Debug, Default)]
pub(crate) struct ObjectArgs {
    /// Labels of the object itself, such as team=shop
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Annotations of the object itself
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) annotations: Vec<(String, String)>,
}

/// A manifest to begin with.
#[derive(Args, Debug, Default)]
pub(crate) struct FileArgs {
    /// Begin with this manifest, YAML or JSON; - is stdin. Flags go over it
    #[arg(short = 'f', long = "filename", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// Resources, and the order of their items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ordered(pub(crate) BTreeMap<String, String>);

fn ordered(text: &str) -> Result<Ordered, String> {
    let one = |part: &str| match part.split_once('=') {
        Some((resource, items)) if !resource.trim().is_empty() && !items.trim().is_empty() => {
            Ok((resource.trim().to_owned(), items.trim().to_owned()))
        }
        _ => Err(format!("{part:?} is no order: expected RESOURCE=ITEM,ITEM, with ; between resources")),
    };
    text.split(';').map(one).collect::<Result<_, _>>().map(Ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_velero_reads_them() {
        let Ordered(all) = ordered("pods=ns1/p1,ns1/p2;persistentvolumes=pv1").unwrap();
        assert_eq!(all["pods"], "ns1/p1,ns1/p2");
        assert_eq!(all["persistentvolumes"], "pv1");
        for wrong in ["", "pods", "pods=", "=a", "pods=a;"] {
            assert!(ordered(wrong).is_err(), "{wrong}");
        }
    }
}

//! What is to be in a backup or restore, under velero's names where velero has one, and how it is
//! created.

use std::{collections::BTreeMap, path::PathBuf};

use backup_core::api::{
    Extra, GoDuration, backup::BackupResourceHookSpec, drill::DrillCheck,
    restore::RestoreResourceHookSpec,
};
use clap::{Args, ValueEnum};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::de::DeserializeOwned;

use super::{Output, duration, key_value, output::FormParser, selector};

/// Which items are backed up or restored.
#[derive(Args, Debug, Default)]
pub(crate) struct ItemArgs {
    /// Namespaces to include, with wildcards [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = name)]
    pub(crate) include_namespaces: Vec<String>,
    /// Namespaces to leave out
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = name)]
    pub(crate) exclude_namespaces: Vec<String>,
    /// Resources to include, such as deployments.apps [default: all]
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) include_resources: Vec<String>,
    /// Resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) exclude_resources: Vec<String>,
    /// Whether to include cluster-scoped resources [default: as fits the namespaces]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) include_cluster_resources: Option<bool>,
    /// Only items with these labels, such as app=shop,tier!=cache
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = selector::parse, conflicts_with = "or_selector")]
    pub(crate) selector: Option<LabelSelector>,
    /// Only items that match one of these, such as 'app=shop or app=db'
    #[arg(long, value_name = "SELECTORS", value_parser = selector::parse_or)]
    pub(crate) or_selector: Option<selector::Alternatives>,
}

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "What is backed up")]
pub(crate) struct BackupSpecArgs {
    #[command(flatten)]
    pub(crate) items: ItemArgs,
    /// Cluster-scoped resources to include; not together with the flags for resources of any scope
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) include_cluster_scoped_resources: Vec<String>,
    /// Cluster-scoped resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) exclude_cluster_scoped_resources: Vec<String>,
    /// Namespaced resources to include
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) include_namespace_scoped_resources: Vec<String>,
    /// Namespaced resources to leave out
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) exclude_namespace_scoped_resources: Vec<String>,
    /// Order within a resource, such as 'pods=ns1/p1,ns1/p2;persistentvolumes=pv1'
    #[arg(long, value_name = "ORDER", value_parser = ordered)]
    pub(crate) ordered_resources: Option<ItemOrder>,
    /// Commands to run in pods around their backup: an entry of spec.hooks.resources, as YAML; may
    /// be repeated
    #[arg(long = "hook", value_name = "YAML", value_parser = backup_hook)]
    pub(crate) hooks: Vec<BackupResourceHookSpec>,
    /// ConfigMap with policies for volumes
    #[arg(long, value_name = "NAME")]
    pub(crate) resource_policies_configmap: Option<String>,
    /// Location to store the backup in [default: the default one]
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_location: Option<String>,
    /// How long to keep the backup, such as 720h or 30d [default: the server's setting]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<GoDuration>,
    #[command(flatten)]
    pub(crate) volumes: VolumeArgs,
}

/// How volumes are backed up.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Volumes")]
pub(crate) struct VolumeArgs {
    /// Whether snapshots of volumes are taken [default: the server's setting]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) snapshot_volumes: Option<bool>,
    /// Locations of volume snapshots, one for each provider
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = name)]
    pub(crate) volume_snapshot_locations: Vec<String>,
    /// Whether the data of CSI snapshots is moved into the bucket of the storage location
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) snapshot_move_data: Option<bool>,
    /// Data mover [default: the built-in one]
    #[arg(long, value_name = "NAME")]
    pub(crate) data_mover: Option<String>,
    /// Whether all volumes are backed up file by file
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) default_volumes_to_fs_backup: Option<bool>,
    /// Number of files read from one volume in parallel
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) parallel_files_upload: Option<i64>,
    /// Label of claims whose snapshots are taken together
    #[arg(long, value_name = "KEY")]
    pub(crate) volume_group_snapshot_label_key: Option<String>,
    /// Maximum time for a CSI snapshot to become ready, such as 10m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) csi_snapshot_timeout: Option<GoDuration>,
    /// Deadline of every asynchronous operation, such as 4h
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) item_operation_timeout: Option<GoDuration>,
    /// Full or Incremental
    #[arg(long, value_name = "TYPE", value_parser = ["Full", "Incremental"].map(clap::builder::PossibleValue::new), hide_possible_values = true)]
    pub(crate) backup_type: Option<String>,
}

/// Labels and annotations of an object that is created.
#[derive(Args, Debug, Default)]
pub(crate) struct ObjectArgs {
    /// Labels of the object itself, such as team=shop
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) labels: Vec<(String, String)>,
    /// Annotations of the object itself
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) annotations: Vec<(String, String)>,
}

#[derive(Args, Debug, Default)]
pub(crate) struct FileArgs {
    /// Begin with this manifest, YAML or JSON; - is stdin. Flags go over it
    #[arg(short = 'f', long = "filename", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

/// How a backup or restore is created.
#[derive(Args, Debug, Default)]
pub(crate) struct CreationArgs {
    #[command(flatten)]
    pub(crate) object: ObjectArgs,
    /// Create nothing: client validates locally, server sends a dry run
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        hide_possible_values = true,
        conflicts_with = "wait"
    )]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the object: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true)]
    pub(crate) output: Option<Output>,
    /// Retry a refused creation for up to this long, such as 10m, waiting as each refusal asks;
    /// exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Waiting")]
    pub(crate) retry_for: Option<GoDuration>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DryRun {
    /// Only check here, and print what would be sent.
    Client,
    /// Ask the cluster, which stores nothing.
    Server,
}

/// Whether to wait, and how long.
#[derive(Args, Debug, Clone, Copy, Default)]
#[command(next_help_heading = "Waiting")]
pub(crate) struct WaitArgs {
    /// Wait for the end; exit with 3 unless it is Completed
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Maximum time to wait, such as 30m; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "12h", requires = "wait")]
    pub(crate) timeout: GoDuration,
}

/// A name in a list. An empty one selects nothing.
pub(super) fn name(text: &str) -> Result<String, String> {
    if text.is_empty() {
        Err("expected a name; without the flag all are meant".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// The order of items, by resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemOrder(pub(crate) BTreeMap<String, String>);

fn ordered(text: &str) -> Result<ItemOrder, String> {
    text.split(';')
        .map(order_of_resource)
        .collect::<Result<_, _>>()
        .map(ItemOrder)
}

/// A resource and the order of its items.
fn order_of_resource(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(resource, items)| (resource.trim(), items.trim()))
        .filter(|(resource, items)| !resource.is_empty() && !items.is_empty())
        .map(|(resource, items)| (resource.to_owned(), items.to_owned()))
        .ok_or_else(|| {
            format!("{text:?} is no order: expected RESOURCE=ITEM,ITEM, with ; between resources")
        })
}

/// A hook as a flag: an entry of `spec.hooks.resources`, as YAML or JSON.
fn backup_hook(text: &str) -> Result<BackupResourceHookSpec, String> {
    let hook: BackupResourceHookSpec = read(text)?;
    check_entry(
        &hook.extra,
        hook.pre.is_empty() && hook.post.is_empty(),
        "pre or post",
    )?;
    Ok(hook)
}

pub(super) fn restore_hook(text: &str) -> Result<RestoreResourceHookSpec, String> {
    let hook: RestoreResourceHookSpec = read(text)?;
    check_entry(&hook.extra, hook.post_hooks.is_empty(), "postHooks")?;
    Ok(hook)
}

/// A check as a flag: an entry of `spec.drill.checks`, as YAML or JSON.
pub(super) fn drill_check(text: &str) -> Result<DrillCheck, String> {
    let check: DrillCheck = read(text)?;
    let runs_nothing = check.expression.is_none() && check.job.is_null();
    check_entry(&check.extra, runs_nothing, "expression or job")?;
    Ok(check)
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    // Only the first line: the parser also quotes the lines around it.
    serde_saphyr::from_str(text).map_err(|error| {
        error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    })
}

/// What a server would store and never run is a mistake.
fn check_entry(unknown: &Extra, runs_nothing: bool, expected: &str) -> Result<(), String> {
    if let Some(field) = unknown.keys().next() {
        return Err(format!("{field:?} is no field of it"));
    }
    if runs_nothing {
        return Err(format!("it runs nothing: expected {expected}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_velero_reads_them() {
        let ItemOrder(all) = ordered("pods=ns1/p1,ns1/p2;persistentvolumes=pv1").unwrap();
        assert_eq!(all["pods"], "ns1/p1,ns1/p2");
        assert_eq!(all["persistentvolumes"], "pv1");
        for wrong in ["", "pods", "pods=", "=a", "pods=a;"] {
            assert!(ordered(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hook_that_would_never_run_is_refused() {
        let good = "{name: a, includedNamespaces: [db], pre: [{exec: {command: [/bin/sync], timeout: 30s}}]}";
        let hook = backup_hook(good).unwrap();
        assert_eq!(hook.pre[0].exec.command, ["/bin/sync"]);
        let restored =
            restore_hook(r#"{"name": "a", "postHooks": [{"exec": {"command": ["/bin/true"]}}]}"#)
                .unwrap();
        assert_eq!(restored.post_hooks.len(), 1);
        for (text, why) in [
            ("{name: a}", "pre or post"),
            ("{name: a, before: []}", "\"before\" is no field"),
            ("{pre: [{exec: {command: [a]}}]}", "name"),
            ("{name: a, pre: [{exec: {}}]}", "command"),
            ("{name: a, pre: [", ""),
            ("a", ""),
        ] {
            let error = backup_hook(text).unwrap_err();
            assert!(
                error.contains(why) && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
        assert_says!(restore_hook(good).unwrap_err(), "no field");
    }

    #[test]
    fn a_check_is_an_expression_or_a_job() {
        let expression =
            "{name: all, namespace: shop, resource: pods, expression: objects.size() == 3}";
        let check = drill_check(expression).unwrap();
        assert_eq!(check.expression.as_deref(), Some("objects.size() == 3"));
        let job = "{name: smoke, namespace: shop, timeout: 1m, job: {template: {}}}";
        assert!(drill_check(job).unwrap().job.is_object());
        for (text, why) in [
            ("{name: a, namespace: b}", "expression or job"),
            (
                "{name: a, namespace: b, expression: 'true', every: 1h}",
                "\"every\" is no field",
            ),
            ("{namespace: b, expression: 'true'}", "name"),
            ("{name: a, expression: 'true'}", "namespace"),
            ("{name: a, namespace: b, timeout: soon, job: {}}", "soon"),
            ("a", ""),
        ] {
            let error = drill_check(text).unwrap_err();
            assert!(
                error.contains(why) && error.lines().count() == 1,
                "{text}: {error}"
            );
        }
    }
}

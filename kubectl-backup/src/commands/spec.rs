//! Builds specs from flags and manifests: flags override the manifest.

use std::{io::Read, path::Path};

use backup_core::api::{
    BackupSpec,
    backup::{BackupType, UploaderConfigForBackup},
    common::LocalReference,
    schedule::ScheduledDrill,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::prelude::*;
use crate::cli::{Alternatives, BackupSpecArgs, FileArgs, ItemArgs, ObjectArgs};

/// Maximum size of a manifest (bytes).
const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// Replaces the list by the values of the flag, if there are any.
pub(crate) fn set(field: &mut Vec<String>, flag: &[String]) {
    if !flag.is_empty() {
        *field = flag.to_vec();
    }
}

/// Replaces the value by that of the flag, if it is set.
pub(crate) fn over<T: Clone>(field: &mut Option<T>, flag: Option<&T>) {
    if flag.is_some() {
        *field = flag.cloned();
    }
}

/// A selector flag replaces both kinds of selectors, because a spec may have only one of them.
pub(crate) fn select(
    one: &mut Option<LabelSelector>,
    several: &mut Option<Vec<LabelSelector>>,
    items: &ItemArgs,
) {
    if let Some(selector) = &items.selector {
        *one = Some(selector.clone());
        *several = None;
    }
    if let Some(Alternatives(selectors)) = &items.or_selector {
        *one = None;
        *several = Some(selectors.clone());
    }
}

pub(crate) fn config_map(name: &str) -> LocalReference {
    LocalReference {
        api_group: None,
        kind: "configmap".to_owned(),
        name: name.to_owned(),
    }
}

/// Sets all fields of a backup that have flags.
pub(crate) fn fill(spec: &mut BackupSpec, args: &BackupSpecArgs) {
    let items = &args.items;
    set(&mut spec.included_namespaces, &items.include_namespaces);
    set(&mut spec.excluded_namespaces, &items.exclude_namespaces);
    set(&mut spec.included_resources, &items.include_resources);
    set(&mut spec.excluded_resources, &items.exclude_resources);
    set(
        &mut spec.included_cluster_scoped_resources,
        &args.include_cluster_scoped_resources,
    );
    set(
        &mut spec.excluded_cluster_scoped_resources,
        &args.exclude_cluster_scoped_resources,
    );
    set(
        &mut spec.included_namespace_scoped_resources,
        &args.include_namespace_scoped_resources,
    );
    set(
        &mut spec.excluded_namespace_scoped_resources,
        &args.exclude_namespace_scoped_resources,
    );
    over(
        &mut spec.include_cluster_resources,
        items.include_cluster_resources.as_ref(),
    );
    select(
        &mut spec.label_selector,
        &mut spec.or_label_selectors,
        items,
    );
    if let Some(ordered) = &args.ordered_resources {
        spec.ordered_resources.clone_from(&ordered.0);
    }
    if !args.hooks.is_empty() {
        spec.hooks
            .get_or_insert_default()
            .resources
            .clone_from(&args.hooks);
    }
    over(
        &mut spec.resource_policy,
        args.resource_policies_configmap
            .as_deref()
            .map(config_map)
            .as_ref(),
    );
    over(&mut spec.storage_location, args.storage_location.as_ref());
    over(&mut spec.ttl, args.ttl.as_ref());
    let volumes = &args.volumes;
    over(
        &mut spec.snapshot_volumes,
        volumes.snapshot_volumes.as_ref(),
    );
    set(
        &mut spec.volume_snapshot_locations,
        &volumes.volume_snapshot_locations,
    );
    over(
        &mut spec.snapshot_move_data,
        volumes.snapshot_move_data.as_ref(),
    );
    over(&mut spec.datamover, volumes.data_mover.as_ref());
    over(
        &mut spec.default_volumes_to_fs_backup,
        volumes.default_volumes_to_fs_backup.as_ref(),
    );
    if let Some(count) = volumes.parallel_files_upload {
        let config: &mut UploaderConfigForBackup = spec.uploader_config.get_or_insert_default();
        config.parallel_files_upload = count;
    }
    over(
        &mut spec.volume_group_snapshot_label_key,
        volumes.volume_group_snapshot_label_key.as_ref(),
    );
    over(
        &mut spec.csi_snapshot_timeout,
        volumes.csi_snapshot_timeout.as_ref(),
    );
    over(
        &mut spec.item_operation_timeout,
        volumes.item_operation_timeout.as_ref(),
    );
    over(
        &mut spec.backup_type,
        volumes
            .backup_type
            .as_deref()
            .map(BackupType::from)
            .as_ref(),
    );
}

/// Says what `--ttl=0` means, which may be taken for "for ever" or "remove it at once".
pub(crate) fn explain_zero_ttl(args: &BackupSpecArgs, terminal: &mut Terminal) {
    if args.ttl.is_some_and(GoDuration::is_zero) {
        terminal.say(
            "note: with --ttl=0 a backup is kept for the server's default time (--default-backup-ttl of the controller: 720h \
             unless it was changed), and not for ever",
        );
    }
}

pub(crate) fn describe_object(meta: &mut ObjectMeta, args: &ObjectArgs) {
    if !args.labels.is_empty() {
        meta.labels
            .get_or_insert_default()
            .extend(args.labels.iter().cloned());
    }
    if !args.annotations.is_empty() {
        meta.annotations
            .get_or_insert_default()
            .extend(args.annotations.iter().cloned());
    }
}

/// Reads the text of a file; `-` is stdin.
pub(crate) fn read(path: &Path, terminal: &mut Terminal) -> std::io::Result<String> {
    let mut text = String::new();
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(&mut terminal.input)
    } else {
        Box::new(std::fs::File::open(path)?)
    };
    source.take(MAX_MANIFEST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// The object of a manifest, without fields that a server sets; a new object if no file is named.
pub(crate) fn start<K>(args: &FileArgs, terminal: &mut Terminal) -> Result<K, Problem>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Default,
{
    let Some(path) = &args.file else {
        return Ok(K::default());
    };
    let expected = format!(
        "It has to be one {} of {}.",
        K::kind(&()),
        K::api_version(&())
    );
    let (shown, mut value) = content(path, &expected, terminal)?;
    if value["kind"] != K::kind(&()).as_ref() || value["apiVersion"] != K::api_version(&()).as_ref()
    {
        let kind = plain(value["kind"].as_str().unwrap_or("no kind"));
        return Err(unusable(&shown, &format!("it is {kind}"), &expected));
    }
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    let mut object: K =
        serde_json::from_value(value).map_err(|error| unparsable(&shown, &error, &expected))?;
    let meta = object.meta_mut();
    // The manifest may come from a cluster: keep only metadata of new objects.
    *meta = ObjectMeta {
        name: meta.name.take(),
        labels: meta.labels.take(),
        annotations: meta.annotations.take(),
        ..ObjectMeta::default()
    };
    Ok(object)
}

/// The name of a file, for messages, and its content, YAML or JSON.
fn content(
    path: &Path,
    expected: &str,
    terminal: &mut Terminal,
) -> Result<(String, Value), Problem> {
    let shown = if path.as_os_str() == "-" {
        "stdin".to_owned()
    } else {
        path.display().to_string()
    };
    let text = read(path, terminal).map_err(|error| {
        unusable(
            &shown,
            &error.to_string(),
            "Check the path after -f; - is stdin.",
        )
    })?;
    let value =
        serde_saphyr::from_str(&text).map_err(|error| unparsable(&shown, &error, expected))?;
    Ok((shown, value))
}

/// The drill that a file describes: the fields of `spec.drill` of a Schedule, and no others.
pub(crate) fn drill(path: &Path, terminal: &mut Terminal) -> Result<ScheduledDrill, Problem> {
    let expected = "It has to have the fields of spec.drill of a schedule, such as checks.";
    let (shown, value) = content(path, expected, terminal)?;
    let drill: ScheduledDrill =
        serde_json::from_value(value).map_err(|error| unparsable(&shown, &error, expected))?;
    let checks = &drill.settings.checks;
    let of_checks = checks.iter().flat_map(|check| check.extra.keys());
    if let Some(field) = drill.extra.keys().chain(of_checks).next() {
        let why = format!("{field:?} is no field of a drill");
        return Err(unusable(&shown, &why, expected));
    }
    Ok(drill)
}

fn unusable(manifest: &str, why: &str, remedy: &str) -> Problem {
    Problem::other(format!("cannot use the manifest {manifest}: {why}")).with_remedy(remedy)
}

fn unparsable(manifest: &str, error: &dyn std::fmt::Display, expected: &str) -> Problem {
    // Only the first line: the following lines quote the text around the error.
    let why = plain(error.to_string().lines().next().unwrap_or_default());
    unusable(manifest, &why, expected)
}

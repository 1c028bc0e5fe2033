//! Imports that most tests need.

pub(crate) use std::time::Duration;

pub(crate) use anyhow::{Context as _, bail, ensure};
pub(crate) use backup_core::api::{
    Backup, BackupPhase, BackupSpec, Restore, RestorePhase, RestoreSpec,
};
pub(crate) use backup_tests::{
    Skip, World,
    api::{ApiExt as _, all_objects, create_all, dry_run, objects_in},
    install::{NAMESPACE, ensure_namespace},
    wait::{Probe, TIMEOUT, eventually, until, when},
    world::{
        BUCKET,
        backups::{
            Operations as _, annotated, blocked_reason, from_backup, into_location, into_namespace,
            of_namespaces, of_place,
        },
        controllers::POINT_TIMEOUT,
        lock::refusal,
        scripted::{into_back, of_scripted},
        stored::is_whole,
    },
};
pub(crate) use k8s_openapi::api::core::v1::ConfigMap;
pub(crate) use kube::{Api, ResourceExt, api::DynamicObject};
pub(crate) use serde_json::{Value, json};

/// What a test returns.
pub(crate) type TestResult = anyhow::Result<()>;

/// Checks that a text contains all of these words.
pub(crate) fn says(text: &str, words: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    ensure!(missing.is_empty(), "nothing of {missing:?}: {text}");
    Ok(())
}

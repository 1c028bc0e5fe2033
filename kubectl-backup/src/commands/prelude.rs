//! Imports for nearly every command: the user's terminal, the session with the cluster, and
//! problems.

pub(crate) use std::time::Duration;

pub(crate) use backup_core::api::{Backup, BackupStorageLocation, GoDuration, Restore, Schedule};
pub(crate) use jiff::Timestamp;
pub(crate) use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta, PostParams},
    core::DeserializeGuard,
};
pub(crate) use serde_json::{Value, json};

pub(super) use super::named::{get_named, get_named_metadata, hinted};

pub(crate) use crate::{
    Terminal,
    error::{About, CommandResult, Exit, Problem, ProblemKind, optional},
    fetched::{FetchResult, fetched},
    print::{json, plain},
    session::{FIELD_MANAGER, Session},
    view::{TableKind, Workload, full_name},
};

//! Schedule: backups made from a template at the times of a cron expression.
//!
//! Velero: `pkg/apis/velero/v1/schedule_types.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::{
    backup::BackupSpec,
    common::{Extra, is_false, null_default},
    kind::{column, string_enum, velero_kind},
};

velero_kind! {
    /// A plan that makes backups at given times.
    Schedule, "v1", "schedules",
    spec: ScheduleSpec, status: ScheduleStatus,
    short: ["sched"],
    columns: [
        column("Status", "string", ".status.phase"),
        column("Schedule", "string", ".spec.schedule"),
        column("LastBackup", "date", ".status.lastBackup"),
        column("Age", "date", ".metadata.creationTimestamp"),
        column("Paused", "boolean", ".spec.paused"),
    ]
}

/// When to back up, and what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleSpec {
    /// The spec of each backup.
    pub template: BackupSpec,
    /// Cron expression: five fields, a descriptor such as `@daily`, optionally after `CRON_TZ=zone`.
    pub schedule: String,
    /// Whether each backup names this schedule as its owner, and goes with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_owner_references_in_backup: Option<bool>,
    /// Whether no backups are made for the time being.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Whether a backup that is due at once is left out; unset: as the server is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_immediately: Option<bool>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

string_enum! {
    /// Whether a Schedule is working.
    SchedulePhase {
        /// Not looked at yet.
        New = "New",
        /// Backups are made when due.
        Enabled = "Enabled",
        /// The cron expression or the template is not valid.
        FailedValidation = "FailedValidation",
    }
}

/// What has been made and found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// Whether the schedule is working; unset is New.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SchedulePhase>,
    /// When the latest backup was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_backup: Option<Time>,
    /// When a due backup was last left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_skipped: Option<Time>,
    /// What is not valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub validation_errors: Vec<String>,
    /// Fields unknown to this version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub extra: Extra,
}

//! Schedule: backups made from a template at the times of a cron expression.
//!
//! Velero: `pkg/apis/velero/v1/schedule_types.go`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    GoDuration,
    backup::{BackupCopy, BackupSpec},
    drill::DrillSettings,
    kind::{api_struct, column, string_enum, velero_kind},
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

api_struct! {
    /// When to back up, and what.
    ScheduleSpec {
        /// The spec of each backup.
        template: BackupSpec,
        /// Cron expression: five fields, a descriptor such as `@daily`, optionally after
        /// `CRON_TZ=zone`.
        schedule: String,
        /// Whether each backup names this schedule as its owner, and goes with it.
        use_owner_references_in_backup?: Option<bool>,
        /// Whether no backups are made for the time being.
        paused?: bool,
        /// Whether a backup that is due at once is left out; unset: as the server is set.
        skip_immediately?: Option<bool>,
        /// How the stored files of its backups are verified; unset: they are not.
        verify?: Option<VerifySpec>,
        /// Which of its backups are kept beyond their ttl; unset: none.
        keep?: Option<KeepRules>,
        /// Copies of each backup in other locations. Not of Velero.
        copies?: Vec<BackupCopy>,
        /// How its backups are restored on trial; unset: they are not.
        drill?: Option<ScheduledDrill>,
    }
}

api_struct! {
    /// A verification of stored files that is repeated.
    VerifySpec {
        /// Time between two verifications, at least one minute. Each is of one backup.
        every?: Option<GoDuration>,
        /// Which backup is verified: the newest (unset), a random one, or all in turn.
        which?: Option<BackupChoice>,
    }
}

api_struct! {
    /// Drills of a schedule's backups that are repeated.
    ScheduledDrill {
        /// Time between two drills, at least five minutes. Each is of one backup.
        every?: Option<GoDuration>,
        /// Which backup is restored: the newest (unset), a random one, or all in turn.
        which?: Option<BackupChoice>,
        /// Namespaces of the backup to restore, without globs; empty is all.
        included_namespaces?: Vec<String>,
        #[serde(flatten)]
        settings: DrillSettings,
    }
}

string_enum! {
    /// Which backup of a schedule is verified, or restored on trial.
    BackupChoice {
        Newest = "newest",
        Random = "random",
        /// The one whose last turn is the longest ago.
        All = "all",
    }
}

api_struct! {
    /// For each rule the newest good backup of each of the last periods that have one is kept; the
    /// number of these periods. 0 is no rule. Not in Velero.
    KeepRules {
        /// Number of newest backups to keep.
        last?: i64,
        /// Number of hours of which to keep the newest backup.
        hourly?: i64,
        /// Number of days of which to keep the newest backup.
        daily?: i64,
        /// Number of weeks of which to keep the newest backup; weeks begin on Monday.
        weekly?: i64,
        /// Number of months of which to keep the newest backup.
        monthly?: i64,
        /// Number of years of which to keep the newest backup.
        yearly?: i64,
    }
}

string_enum! {
    /// Whether a Schedule is working.
    SchedulePhase {
        New = "New",
        Enabled = "Enabled",
        /// The cron expression or the template is not valid.
        FailedValidation = "FailedValidation",
    }
}

api_struct! {
    /// What has been made and found.
    ScheduleStatus {
        /// Whether the schedule is working; unset is New.
        phase?: Option<SchedulePhase>,
        /// When the latest backup was made.
        last_backup?: Option<Time>,
        /// When a due backup was last left out.
        last_skipped?: Option<Time>,
        /// What is not valid.
        validation_errors?: Vec<String>,
    }
}

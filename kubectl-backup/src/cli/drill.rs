//! `drill`: a backup is restored on trial. Also the flags of schedules for their drills.

use std::path::PathBuf;

use backup_core::api::{GoDuration, drill::DrillCheck, schedule::BackupChoice};
use clap::Args;

use super::{
    CreationArgs, duration, key_value,
    scheduled::backup_choice,
    spec::{drill_check, name},
};

/// Which backup is restored: one of them.
#[derive(Args, Debug, Default)]
#[group(id = "drilled", required = true, multiple = false)]
pub(crate) struct DrilledArgs {
    /// Name of the backup
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Restore the newest completed backup of this schedule, as its spec.drill says
    #[arg(long, value_name = "NAME")]
    pub(crate) schedule: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct DrillArgs {
    #[command(flatten)]
    pub(crate) drilled: DrilledArgs,
    /// Namespaces of the backup to restore [default: all, but those of Kubernetes and the one of the
    /// installation]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = name)]
    pub(crate) include_namespaces: Vec<String>,
    /// Begin with this file, YAML or JSON (- is stdin): the fields of spec.drill of a schedule, checks
    /// among them. Flags go over it
    #[arg(short = 'f', long = "filename", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) flags: DrillFlags<false>,
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
}

/// How a drill restores, and what it checks. `OF_SCHEDULE` puts `drill-` before the names of the
/// flags, as a schedule has many others.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct DrillFlags<const OF_SCHEDULE: bool> {
    /// Limits of each scratch namespace, such as pods=20,requests.cpu=4
    #[arg(long = flag(OF_SCHEDULE, "drill-quota"), value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) quota: Vec<(String, String)>,
    /// Types to restore besides those without effects outside of their namespace, such as
    /// certificates.cert-manager.io
    #[arg(long = flag(OF_SCHEDULE, "drill-additional-resources"), value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) additional_resources: Vec<String>,
    /// Restore claims, too, whose data the backup has in CSI snapshots or in the bucket; their
    /// volumes are removed again
    #[arg(id = "drill_volumes", long = flag(OF_SCHEDULE, "drill-volumes"), value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) volumes: Option<bool>,
    /// Run the hooks of restores in the restored pods
    #[arg(id = "drill_hooks", long = flag(OF_SCHEDULE, "drill-hooks"), value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) hooks: Option<bool>,
    /// How long to wait for workloads to become ready, such as 20m [default: 10m]
    #[arg(long = flag(OF_SCHEDULE, "drill-ready-timeout"), value_name = "DURATION", value_parser = duration)]
    pub(crate) ready_timeout: Option<GoDuration>,
    /// Fail if workloads are not ready by then
    #[arg(long = flag(OF_SCHEDULE, "drill-require-ready"), value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) require_ready: Option<bool>,
    /// Expression that has to be true, or Job that has to succeed: an entry of spec.drill.checks, as
    /// YAML, such as '{name: all, namespace: shop, resource: pods, expression: objects.size() == 3}';
    /// may be repeated. A check of the same name is replaced
    #[arg(long = flag(OF_SCHEDULE, "drill-check"), value_name = "YAML", value_parser = drill_check)]
    pub(crate) checks: Vec<DrillCheck>,
}

/// The name of a flag, which begins with `drill-` for a schedule only.
fn flag(of_schedule: bool, name: &'static str) -> &'static str {
    if of_schedule {
        name
    } else {
        name.strip_prefix("drill-").unwrap_or(name)
    }
}

/// How the backups of a schedule are restored on trial.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Drills")]
pub(crate) struct ScheduledDrillFlags {
    /// Time between two drills, such as 24h, at least 5m; each is of one backup. 0 ends them
    #[arg(long = "drill-every", value_name = "DURATION", value_parser = duration)]
    pub(crate) every: Option<GoDuration>,
    /// Backup to restore: newest, random, or all in turn [default: newest]
    #[arg(long = "drill-which", value_name = "WHICH", value_parser = backup_choice(), hide_possible_values = true)]
    pub(crate) which: Option<BackupChoice>,
    /// Namespaces of the backup to restore, without wildcards [default: all, but those of Kubernetes
    /// and the one of the installation]
    #[arg(id = "drill_include_namespaces", long = "drill-include-namespaces", value_delimiter = ',', value_name = "NAMES", value_parser = name)]
    pub(crate) include_namespaces: Vec<String>,
    #[command(flatten)]
    pub(crate) settings: DrillFlags<true>,
}

//! `drill`: a backup is restored on trial.

use std::path::PathBuf;

use backup_core::api::GoDuration;
use clap::Args;

use super::{CreationArgs, duration, key_value, spec::name};

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
    /// Limits of each scratch namespace, such as pods=20,requests.cpu=4
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) quota: Vec<(String, String)>,
    /// Types to restore besides those without effects outside of their namespace, such as
    /// certificates.cert-manager.io
    #[arg(long, value_delimiter = ',', value_name = "RESOURCES", value_parser = name)]
    pub(crate) additional_resources: Vec<String>,
    /// Run the hooks of restores in the restored pods
    #[arg(long)]
    pub(crate) hooks: bool,
    /// How long to wait for workloads to become ready, such as 20m [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ready_timeout: Option<GoDuration>,
    /// Fail if workloads are not ready by then
    #[arg(long)]
    pub(crate) require_ready: bool,
    #[command(flatten)]
    pub(crate) creation: CreationArgs,
}

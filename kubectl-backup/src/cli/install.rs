//! `install`, `upgrade` and `uninstall`: what can be chosen, and how it is rolled out.

use backup_core::api::GoDuration;
use backup_deploy::{Mode, Options};
use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{DryRun, Output, duration, output::FormParser};

#[derive(Args, Debug)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    /// Replace existing CRDs, such as those of a removed Velero server; objects are kept
    #[arg(long)]
    pub(crate) replace_definitions: bool,
    #[command(flatten)]
    pub(crate) rollout: RolloutArgs,
}

#[derive(Args, Debug)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    pub(crate) choice: ChoiceArgs,
    #[command(flatten)]
    pub(crate) rollout: RolloutArgs,
}

/// What is installed. An upgrade keeps what is not given; `none` empties a list.
#[derive(Args, Debug, Default)]
#[command(
    next_help_heading = "What is installed (an upgrade keeps what is not given; none empties a list)"
)]
pub(crate) struct ChoiceArgs {
    /// engine: our controller runs backups and restores; guard: a Velero server does [default:
    /// engine]
    #[arg(long, value_parser = mode(), value_name = "MODE", hide_possible_values = true)]
    pub(crate) mode: Option<Mode>,
    /// Operator to guard as well, such as percona-ps; may be repeated
    #[arg(long = "profile", value_parser = profile, value_name = "NAME")]
    pub(crate) profiles: Vec<String>,
    /// Registry and path of the images, such as registry.example.com/backup [default: none, the
    /// bare names]
    #[arg(long, value_name = "REGISTRY")]
    pub(crate) registry: Option<String>,
    /// Tag of all images [default: the version of this program]
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,
    /// Replicas of each program [default: 2, or 1 if pods can run on one node only]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) replicas: Option<u16>,
    /// Whether the programs listen in the network of their nodes, for a control plane that does not
    /// reach pods [default: false]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) host_network: Option<bool>,
    /// Whether to install PodMonitors, alerts and a dashboard for the Prometheus operator [default:
    /// if the cluster has it]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) monitoring: Option<bool>,
    /// Whether NetworkPolicies restrict the connections of the pods; the object store has to be
    /// reached at port 443
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) network_policies: Option<bool>,
    /// Whether snapshots of CSI volumes are taken [default: if the cluster has what they need]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) snapshots: Option<bool>,
    /// Whether the data of volumes can be moved into the bucket, where spec.snapshotMoveData asks
    /// for it [default: true]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) data_mover: Option<bool>,
    /// Features of the controller, such as EnableAPIGroupVersions
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) features: Vec<String>,
    /// Further flag of the webhook, such as --webhook-arg=--mode=warn; may be repeated
    #[arg(long = "webhook-arg", value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) webhook_args: Vec<String>,
    /// Further flag of the controller, such as --controller-arg=--plugin-timeout=10m; may be
    /// repeated
    #[arg(
        long = "controller-arg",
        value_name = "FLAG",
        allow_hyphen_values = true
    )]
    pub(crate) controller_args: Vec<String>,
}

impl ChoiceArgs {
    /// What was chosen before, with what is given now over it. The tag is this program's version
    /// unless it is given: it is what an upgrade is for.
    pub(crate) fn over(&self, before: Options) -> Options {
        let mut options = Options {
            mode: self.mode.unwrap_or(before.mode),
            profiles: given_or_before(&self.profiles, before.profiles),
            host_network: self.host_network.unwrap_or(before.host_network),
            monitoring: self.monitoring.unwrap_or(before.monitoring),
            network_policies: self.network_policies.unwrap_or(before.network_policies),
            registry: self.registry.clone().or(before.registry),
            tag: self.tag.clone(),
            replicas: self.replicas.or(before.replicas),
            without_data_mover: self.data_mover.map_or(before.without_data_mover, |on| !on),
            features: given_or_before(&self.features, before.features),
            webhook_args: given_or_before(&self.webhook_args, before.webhook_args),
            controller_args: given_or_before(&self.controller_args, before.controller_args),
        };
        if let Some(on) = self.snapshots {
            options.set_snapshots(on);
        }
        options
    }

    /// Whether a flag says if snapshots of CSI volumes are taken.
    pub(crate) fn decides_on_snapshots(&self) -> bool {
        self.snapshots.is_some()
            || !self.features.is_empty()
            || self
                .controller_args
                .iter()
                .any(|arg| arg.starts_with("--features"))
    }
}

/// The given list, or else the earlier one. `none` is the empty list.
fn given_or_before(given: &[String], before: Vec<String>) -> Vec<String> {
    match given {
        [] => before,
        [none] if none == NONE => Vec::new(),
        given => given.to_vec(),
    }
}

/// How it is rolled out.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "How")]
pub(crate) struct RolloutArgs {
    /// Store nothing, and print what would be sent: server, as without a value, makes the choices
    /// and checks by the cluster; client makes none
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true, num_args = 0..=1, default_missing_value = "server")]
    pub(crate) dry_run: Option<DryRun>,
    /// Print the objects: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true, requires = "dry_run")]
    pub(crate) output: Option<Output>,
    /// Whether to wait until the programs are ready, and to register the webhook only then
    /// [default: true]
    #[arg(long, value_name = "BOOL", hide_possible_values = true, num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set, hide_default_value = true)]
    pub(crate) wait: bool,
    /// Maximum time to wait, such as 10m; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub(crate) timeout: GoDuration,
}

/// The only dry run of a removal: it reads what is installed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientDryRun {
    /// Print what would be sent.
    Client,
}

#[derive(Args, Debug)]
pub(crate) struct UninstallArgs {
    /// Don't ask
    #[arg(short, long, visible_alias = "confirm")]
    pub(crate) yes: bool,
    /// Remove it even while backups or restores run; they continue once a controller runs again
    #[arg(long)]
    pub(crate) force: bool,
    /// Also remove the ledgers of the lock, their markers, and the webhook's certificate
    #[arg(long)]
    pub(crate) with_ledgers: bool,
    /// Also remove the definitions, and with them every Backup, Restore and Schedule in the cluster
    #[arg(long)]
    pub(crate) with_definitions: bool,
    /// Also remove the namespace with everything in it, such as locations and credentials
    #[arg(long)]
    pub(crate) with_namespace: bool,
    /// Remove nothing: client prints what would be removed
    #[arg(long, value_enum, value_name = "HOW", hide_possible_values = true)]
    pub(crate) dry_run: Option<ClientDryRun>,
    /// Print the objects: json, yaml or name
    #[arg(short, long, value_parser = FormParser(&["json", "yaml", "name"]), value_name = "FORM", hide_possible_values = true, requires = "dry_run")]
    pub(crate) output: Option<Output>,
    /// Maximum time to wait until the programs have stopped, such as 10m; exit with 124 on timeout
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub(crate) timeout: GoDuration,
}

/// Empties a list that was chosen before.
const NONE: &str = "none";

fn profile(text: &str) -> Result<String, String> {
    if text == NONE || Options::knows_profile(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "expected {} or {NONE}; your own profiles take an overlay",
        Options::known_profiles().join(", ")
    ))
}

fn mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(["engine", "guard"]).map(|name| {
        if name == "guard" {
            Mode::Guard
        } else {
            Mode::Engine
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_keeps_what_is_not_given_but_the_version() {
        let before = Options {
            mode: Mode::Guard,
            profiles: vec!["percona-ps".to_owned()],
            host_network: true,
            registry: Some("r".to_owned()),
            tag: Some("v0".to_owned()),
            replicas: Some(3),
            without_data_mover: true,
            features: vec!["EnableCSI".to_owned()],
            ..Options::default()
        };
        let kept = ChoiceArgs::default().over(before.clone());
        assert_eq!(
            kept,
            Options {
                tag: None,
                ..before.clone()
            }
        );
        let given = ChoiceArgs {
            host_network: Some(false),
            data_mover: Some(true),
            tag: Some("v1".to_owned()),
            profiles: vec!["percona-pg".to_owned()],
            features: vec![NONE.to_owned()],
            ..ChoiceArgs::default()
        };
        let changed = given.over(before.clone());
        let profiles = vec!["percona-pg".to_owned()];
        let expected = Options {
            tag: Some("v1".to_owned()),
            host_network: false,
            without_data_mover: false,
            profiles,
            features: Vec::new(),
            ..before
        };
        assert_eq!(changed, expected);
        assert!(!ChoiceArgs::default().decides_on_snapshots() && given.decides_on_snapshots());
    }

    #[test]
    fn snapshots_are_a_feature_among_others() {
        let features = |snapshots: Option<bool>, given: &[&str], before: &[&str]| {
            let list = |names: &[&str]| {
                names
                    .iter()
                    .map(|name| (*name).to_owned())
                    .collect::<Vec<_>>()
            };
            let choice = ChoiceArgs {
                snapshots,
                features: list(given),
                ..ChoiceArgs::default()
            };
            choice
                .over(Options {
                    features: list(before),
                    ..Options::default()
                })
                .features
        };
        let (csi, versions) = ("EnableCSI", "EnableAPIGroupVersions");
        assert_eq!(features(Some(true), &[], &[versions]), [versions, csi]);
        assert_eq!(features(Some(true), &[csi], &[]), [csi]);
        assert_eq!(features(Some(false), &[], &[csi, versions]), [versions]);
        assert_eq!(features(None, &[], &[csi]), [csi]);
    }
}

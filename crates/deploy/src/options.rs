//! The options of an installation.

use backup_core::profile::Profile;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{MOVER, MOVER_ARG, MOVER_VARIABLE, PROGRAMS, kustomize};

/// The program that runs backups and restores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Our controller.
    #[default]
    Engine,
    /// A Velero server; our programs only keep its backups and restores apart.
    Guard,
}

impl Mode {
    /// Its name in flags and files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Guard => "guard",
        }
    }
}

/// The options. Unset ones are as in `deploy/`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Engine or guard.
    pub mode: Mode,
    /// Built-in profiles of other operators to guard, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<String>,
    /// Whether the programs use the host network.
    pub host_network: bool,
    /// Whether PodMonitors are created for the Prometheus operator.
    pub monitoring: bool,
    /// Whether NetworkPolicies restrict the connections of the pods.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub network_policies: bool,
    /// Registry of the images, such as `registry.example.com/backup`; images are named like the
    /// programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// Tag of all images; unset: the version in `deploy/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Replicas of each program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u16>,
    /// Whether the controller gets no image for moving volume data, so that backups that ask for it
    /// are refused.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_data_mover: bool,
    /// Features of the controller, such as `EnableCSI`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Further arguments of the webhook.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhook_args: Vec<String>,
    /// Further arguments of the controller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controller_args: Vec<String>,
}

/// Flag of both programs: the dialect of cron expressions.
const CRON_DIALECT: &str = "--cron-dialect=";
/// Flag of the controller: the image of the data mover.
const MOVER_IMAGE: &str = "--mover-image";
/// Feature of the controller: snapshots of CSI volumes.
const CSI_FEATURE: &str = "EnableCSI";

impl Options {
    /// Whether the controller takes snapshots of CSI volumes.
    pub fn takes_snapshots(&self) -> bool {
        self.features.iter().any(|name| name == CSI_FEATURE)
            || enables_snapshots(&self.controller_args)
    }

    /// Turns snapshots of CSI volumes on or off.
    pub fn set_snapshots(&mut self, on: bool) {
        self.features.retain(|name| name != CSI_FEATURE);
        if on {
            self.features.push(CSI_FEATURE.to_owned());
        }
    }

    /// The available profiles: the built-in ones, except Velero's own, which guard mode implies.
    pub fn known_profiles() -> Vec<String> {
        let others = Profile::builtin()
            .into_iter()
            .filter(|profile| !profile.is_velero());
        others.map(|profile| profile.name).collect()
    }

    /// The folders of `deploy/` that are added, in the order of `docs/operate/install.md`.
    pub(crate) fn components(&self) -> Vec<String> {
        let flags = [
            (self.host_network, "platforms/host-network"),
            (self.mode == Mode::Guard, "modes/guard"),
            (self.monitoring, "monitoring"),
            (self.network_policies, "network-policies"),
        ];
        let chosen = flags
            .into_iter()
            .filter(|(is_chosen, _)| *is_chosen)
            .map(|(_, folder)| folder.to_owned());
        chosen
            .chain(self.profiles.iter().map(|name| format!("profiles/{name}")))
            .collect()
    }

    /// Applies the options to a Deployment.
    pub(crate) fn change(&self, object: &mut Value) {
        let Some(program) = PROGRAMS
            .into_iter()
            .find(|program| crate::id(object) == ("Deployment", program))
        else {
            return;
        };
        if let Some(replicas) = self.replicas {
            object["spec"]["replicas"] = json!(replicas);
        }
        let mut more = self.webhook_args.clone();
        // The webhook must read Schedules in the same dialect as the controller.
        if !more.iter().any(|arg| arg.starts_with(CRON_DIALECT)) {
            let of_controller = self
                .controller_args
                .iter()
                .rfind(|arg| arg.starts_with(CRON_DIALECT));
            more.extend(of_controller.cloned());
        }
        if program == "backup-controller" {
            let features = (!self.features.is_empty())
                .then(|| format!("--features={}", self.features.join(",")));
            more = features
                .into_iter()
                .chain(self.controller_args.clone())
                .collect();
        }
        let container = &mut object["spec"]["template"]["spec"]["containers"][0];
        if let Some(args) = container["args"].as_array_mut() {
            args.retain(|arg| !(self.without_data_mover && *arg == MOVER_ARG));
            args.extend(more.into_iter().map(Value::from));
        }
        container["image"] = self.image(&container["image"], program);
        if let Some(variables) = container["env"].as_array_mut() {
            let is_mover = |variable: &Value| variable["name"] == MOVER_VARIABLE;
            variables.retain(|variable| !(self.without_data_mover && is_mover(variable)));
            for variable in variables.iter_mut().filter(|variable| is_mover(variable)) {
                variable["value"] = self.image(&variable["value"], MOVER);
            }
        }
    }

    /// The image of a program in the selected registry, with the selected tag.
    fn image(&self, image: &Value, program: &str) -> Value {
        let image = image.as_str().unwrap_or_default();
        let (name, tag) = image.rsplit_once(':').unwrap_or((image, ""));
        let registry = self
            .registry
            .as_ref()
            .map(|registry| registry.trim_end_matches('/'));
        let registry = registry.filter(|registry| !registry.is_empty());
        let name = registry.map_or_else(
            || name.to_owned(),
            |registry| format!("{registry}/{program}"),
        );
        json!(format!("{name}:{}", self.tag.as_deref().unwrap_or(tag)))
    }

    /// Whether `deploy/` has a profile of this name.
    pub fn knows_profile(name: &str) -> bool {
        kustomize::folders("profiles").contains(&name)
            && Self::known_profiles().iter().any(|known| known == name)
    }
}

/// Whether arguments of the controller enable snapshots of CSI volumes.
pub fn enables_snapshots(args: &[String]) -> bool {
    let mut lists = values(args, "--features");
    lists.any(|list| list.split(',').any(|name| name.trim() == CSI_FEATURE))
}

/// Whether arguments of the controller let it move volume data.
pub fn enables_data_mover(args: &[String]) -> bool {
    values(args, MOVER_IMAGE).any(|image| !image.is_empty())
}

/// The values of a flag, which follow `=` or are the next argument.
fn values<'a>(args: &'a [String], flag: &'static str) -> impl Iterator<Item = &'a str> {
    let joined = args
        .iter()
        .filter_map(move |arg| arg.strip_prefix(flag)?.strip_prefix('='));
    let apart = args
        .windows(2)
        .filter(move |pair| pair[0] == flag)
        .map(|pair| pair[1].as_str());
    joined.chain(apart)
}

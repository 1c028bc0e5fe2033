//! The Deployment of a Velero server and the DaemonSets of its node agents, as far as a move depends
//! on them. Pure.

use std::{collections::BTreeMap, fmt};

use backup_core::{cluster, cron::Dialect};
use serde_json::{Value, json};

use crate::print::plain;

/// Name of the Deployment that `velero install` makes.
const DEFAULT_NAME: &str = "velero";
/// Flags that may be given several times, and then mean all values.
const LISTS: [&str; 3] = [
    "features",
    "disable-controllers",
    "default-volume-snapshot-locations",
];
/// Fields of a pod that `velero install` does not set, and that our Deployment has in its own way.
const PLACEMENT: [&str; 8] = [
    "dnsConfig",
    "hostAliases",
    "hostNetwork",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "runtimeClassName",
    "tolerations",
];
/// Volumes that `velero install` makes; ours has what they are for.
const USUAL_VOLUMES: [&str; 3] = ["plugins", "scratch", "cloud-credentials"];
/// Variables with the path of a file of credentials (Velero `pkg/install/deployment.go`, v1.18).
pub(crate) const CREDENTIALS_FILES: [&str; 4] = [
    "ALIBABA_CLOUD_CREDENTIALS_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AZURE_CREDENTIALS_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Server {
    /// Name of the Deployment.
    pub(crate) name: String,
    /// Tag of its image, such as `v1.18.2`; `None` if it is no version.
    pub(crate) version: Option<String>,
    pub(crate) replicas: i64,
    /// The tool that would undo changes of the Deployment.
    pub(crate) manager: Option<Manager>,
    /// Label selector of its pods, such as `deploy=velero`.
    pub(crate) selector: String,
    pub(crate) service_account: String,
    pub(crate) flags: Vec<Flag>,
    /// Environment variables (`env`).
    pub(crate) variables: Vec<Value>,
    /// ConfigMaps and Secrets with environment variables (`envFrom`).
    pub(crate) variable_sources: Vec<Value>,
    pub(crate) init_containers: Vec<Value>,
    pub(crate) pod_labels: BTreeMap<String, String>,
    /// The mounted file of credentials, for locations that name none.
    pub(crate) credentials: Option<SecretEntry>,
    /// Fields, volumes and containers of its pod that `velero install` does not make.
    pub(crate) extras: Vec<String>,
}

/// A flag of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Flag {
    /// Without the dashes.
    pub(crate) name: String,
    pub(crate) value: Option<String>,
}

impl Flag {
    /// Whether a switch is on (Go `strconv.ParseBool`).
    pub(crate) fn is_on(&self) -> bool {
        let value = self.value.as_deref().unwrap_or("true");
        !matches!(value, "0" | "f" | "F" | "false" | "False" | "FALSE")
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value } = self;
        match value {
            Some(value) => write!(f, "--{name}={value}"),
            None => write!(f, "--{name}"),
        }
    }
}

/// An entry of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretEntry {
    pub(crate) secret: String,
    pub(crate) key: String,
}

/// Tool or object that keeps an object as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// A release of Helm.
    Helm(String),
    ArgoCd,
    Flux,
    /// Another object, as `Kind name`.
    Owner(String),
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Helm(release) => write!(f, "the release {release} of Helm"),
            Self::ArgoCd => f.write_str("Argo CD"),
            Self::Flux => f.write_str("Flux"),
            Self::Owner(owner) => f.write_str(owner),
        }
    }
}

impl Manager {
    fn of(metadata: &Value) -> Option<Self> {
        let text = |group: &str, key: &str| metadata[group][key].as_str().map(plain);
        let has_label = |start: &str| {
            let labels = metadata["labels"].as_object();
            labels.is_some_and(|labels| labels.keys().any(|key| key.starts_with(start)))
        };
        if let Some(owner) = metadata["ownerReferences"].get(0) {
            let field = |name: &str| plain(owner[name].as_str().unwrap_or_default());
            return Some(Self::Owner(format!("{} {}", field("kind"), field("name"))));
        }
        // These tools often apply what Helm has rendered.
        if text("annotations", "argocd.argoproj.io/tracking-id").is_some()
            || has_label("argocd.argoproj.io/")
        {
            return Some(Self::ArgoCd);
        }
        if has_label("kustomize.toolkit.fluxcd.io/") || has_label("helm.toolkit.fluxcd.io/") {
            return Some(Self::Flux);
        }
        text("annotations", "meta.helm.sh/release-name").map(Self::Helm)
    }
}

impl Server {
    /// `None` if the Deployment is no Velero server.
    pub(crate) fn of(deployment: &Value) -> Option<Self> {
        let metadata = &deployment["metadata"];
        let name = metadata["name"].as_str()?;
        let pod = &deployment["spec"]["template"]["spec"];
        let container =
            cluster::velero_container(deployment).or_else(|| server_of_another_image(name, pod))?;
        let image = container["image"].as_str().unwrap_or_default();
        Some(Self {
            name: name.to_owned(),
            version: version(image),
            replicas: deployment["spec"]["replicas"].as_i64().unwrap_or(1),
            manager: Manager::of(metadata),
            selector: selector(&deployment["spec"]["selector"]["matchLabels"]),
            service_account: pod["serviceAccountName"]
                .as_str()
                .unwrap_or("default")
                .to_owned(),
            flags: flags(words(container)),
            variables: list(&container["env"]),
            variable_sources: list(&container["envFrom"]),
            init_containers: list(&pod["initContainers"]),
            pod_labels: texts(&deployment["spec"]["template"]["metadata"]["labels"]),
            credentials: credentials(pod, container),
            extras: extras(pod, container),
        })
    }

    pub(crate) fn flag(&self, name: &str) -> Option<&Flag> {
        self.flags.iter().find(|flag| flag.name == name)
    }

    /// Value of a flag that is set and not empty.
    pub(crate) fn flag_value(&self, name: &str) -> Option<&str> {
        let value = self.flag(name)?.value.as_deref();
        value.filter(|value| !value.is_empty())
    }

    /// Value of an environment variable that is written in the Deployment itself.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let variable = self.variables.iter().find(|one| one["name"] == name)?;
        variable["value"].as_str()
    }

    /// The library by which this version reads cron expressions; `None` if the version is unknown.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        let numbers = numbers(self.version.as_deref()?);
        match numbers.as_slice() {
            [] | [_] | [1, 18] => None,
            known if known <= [1, 18, 2].as_slice() => Some(Dialect::Robfig),
            _ => Some(Dialect::Netresearch),
        }
    }
}

/// A server whose image has another name, as vendors give it, in a Deployment with Velero's name.
fn server_of_another_image<'a>(name: &str, pod: &'a Value) -> Option<&'a Value> {
    let containers = pod["containers"].as_array()?;
    containers
        .iter()
        .find(|container| name == DEFAULT_NAME && words(container).any(|word| word == "server"))
}

/// A DaemonSet of node agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeAgent {
    /// Name of the DaemonSet.
    pub(crate) name: String,
    /// ConfigMap with its settings.
    pub(crate) config_map: Option<String>,
}

impl NodeAgent {
    /// `None` if the DaemonSet is none of Velero's. Before v1.10 it was called `restic`.
    pub(crate) fn of(daemon_set: &Value) -> Option<Self> {
        let name = daemon_set["metadata"]["name"].as_str()?;
        let containers = daemon_set["spec"]["template"]["spec"]["containers"].as_array()?;
        let container = containers.iter().find(|container| {
            words(container).any(|word| word == "node-agent" || word == "restic")
        })?;
        let flags = flags(words(container));
        let named = flags
            .into_iter()
            .find(|flag| flag.name == "node-agent-configmap");
        Some(Self {
            name: name.to_owned(),
            config_map: named
                .and_then(|flag| flag.value)
                .filter(|name| !name.is_empty()),
        })
    }
}

/// The words of a container's command line.
fn words(container: &Value) -> impl Iterator<Item = &str> {
    ["command", "args"]
        .into_iter()
        .filter_map(move |list| container[list].as_array())
        .flatten()
        .filter_map(Value::as_str)
}

/// The flags of a command line, each once: of a flag that is given twice the last value counts, or
/// all values of a list, as with Velero.
fn flags<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for flag in repeated_flags(words) {
        let Some(before) = flags.iter_mut().find(|before| before.name == flag.name) else {
            flags.push(flag);
            continue;
        };
        before.value = match (before.value.take(), flag.value) {
            (Some(values), Some(value)) if LISTS.contains(&flag.name.as_str()) => {
                Some(format!("{values},{value}"))
            }
            (_, value) => value,
        };
    }
    flags
}

/// The flags in their order. A word that follows a flag without `=` is its value: the server takes no
/// other words.
fn repeated_flags<'a>(words: impl Iterator<Item = &'a str>) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for word in words {
        if let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) {
            let value = flag.split_once('=').map(|(_, value)| value.to_owned());
            let name = flag.split('=').next().unwrap_or(flag);
            let name = if name == "n" { "namespace" } else { name };
            flags.push(Flag {
                name: name.to_owned(),
                value,
            });
        } else if let Some(before) = flags.last_mut().filter(|flag| flag.value.is_none()) {
            before.value = Some(word.to_owned());
        }
    }
    flags
}

/// The tag of an image, if it begins with two numbers.
fn version(image: &str) -> Option<String> {
    let (_, tag) = last_part(image).split_once(':')?;
    (numbers(tag).len() >= 2).then(|| plain(tag))
}

/// The last part of an image's name, without tag and digest.
pub(crate) fn repository(image: &str) -> &str {
    last_part(image).split(':').next().unwrap_or_default()
}

/// The last part of an image's name, with its tag.
fn last_part(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    name.rsplit('/').next().unwrap_or_default()
}

/// Up to three numbers at the beginning of a version such as `v1.18.2`.
fn numbers(version: &str) -> Vec<u32> {
    version
        .trim_start_matches('v')
        .split(['.', '-'])
        .map_while(|part| part.parse().ok())
        .take(3)
        .collect()
}

fn selector(labels: &Value) -> String {
    let pairs = texts(labels);
    let pairs = pairs.iter().map(|(key, value)| format!("{key}={value}"));
    pairs.collect::<Vec<_>>().join(",")
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

pub(crate) fn texts(value: &Value) -> BTreeMap<String, String> {
    let fields = value.as_object().into_iter().flatten();
    fields
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// The Secret behind the file that a variable for credentials names.
fn credentials(pod: &Value, container: &Value) -> Option<SecretEntry> {
    let variables = container["env"].as_array()?;
    let file = variables
        .iter()
        .find(|one| CREDENTIALS_FILES.iter().any(|name| one["name"] == *name))?["value"]
        .as_str()?;
    let mounts = container["volumeMounts"].as_array()?;
    let (volume, key) = mounts.iter().find_map(|mount| {
        let folder = mount["mountPath"].as_str()?.trim_end_matches('/');
        let key = file.strip_prefix(folder)?.strip_prefix('/')?;
        Some((&mount["name"], key))
    })?;
    let volumes = pod["volumes"].as_array()?;
    let volume = volumes.iter().find(|one| one["name"] == *volume)?;
    Some(SecretEntry {
        secret: volume["secret"]["secretName"].as_str()?.to_owned(),
        key: key.to_owned(),
    })
}

/// The affinity that `velero install` sets: not on nodes with Windows.
fn usual_affinity() -> Value {
    let not_windows =
        json!({ "key": "kubernetes.io/os", "operator": "NotIn", "values": ["windows"] });
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [not_windows] }] } } })
}

fn extras(pod: &Value, container: &Value) -> Vec<String> {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let fields = PLACEMENT.iter().filter(|name| is_set(&pod[**name]));
    let mut extras: Vec<String> = fields.map(|name| (*name).to_owned()).collect();
    if is_set(&pod["affinity"]) && pod["affinity"] != usual_affinity() {
        extras.push("affinity".to_owned());
    }
    let names = |list: &str| {
        let items = pod[list].as_array().into_iter().flatten();
        items
            .filter_map(|item| item["name"].as_str())
            .map(plain)
            .collect::<Vec<_>>()
    };
    let volumes = names("volumes").into_iter();
    let volumes = volumes.filter(|name| !USUAL_VOLUMES.contains(&name.as_str()));
    extras.extend(volumes.map(|name| format!("volume {name}")));
    let containers = names("containers").into_iter();
    let others = containers.filter(|name| container["name"] != name.as_str());
    extras.extend(others.map(|name| format!("container {name}")));
    extras
}

#[cfg(test)]
mod tests;

//! Commands in containers of pods, run as hooks of backups and restores.

mod annotations;
pub(crate) mod exec;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, time::Duration};

use backup_actions::json::{list, text as text_of};
use backup_core::api::GoDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use annotations::{HookAnnotations, HookKeys};

/// Timeout of a command without its own (Velero `pkg/podexec`, v1.18).
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum timeout of a command (likewise).
const MAX_TIMEOUT: Duration = Duration::from_hours(4);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hook {
    /// Where the hook is defined, for messages.
    pub(crate) source: String,
    pub(crate) container: String,
    pub(crate) command: Vec<String>,
    /// Whether a failure stops further steps for the pod (`onError: Fail`): it is not backed up, or
    /// runs no more hooks of the restore.
    pub(crate) fails: bool,
    pub(crate) timeout: Duration,
}

impl Hook {
    /// The beginning of a sentence about the hook; `when` is for example "before the backup".
    /// Without the command itself: users put passwords there.
    pub(crate) fn subject(&self, when: &str, namespace: &str, pod: &str) -> String {
        let Self {
            source, container, ..
        } = self;
        format!("the command {when} of pod {namespace}/{pod}, container {container} ({source}),")
    }
}

/// The timeout of a command. Zero counts as not given, as in Velero.
pub(crate) fn limited(timeout: Option<GoDuration>) -> Duration {
    timeout
        .map(GoDuration::as_std)
        .filter(|timeout| !timeout.is_zero())
        .map_or(DEFAULT_TIMEOUT, |it| it.min(MAX_TIMEOUT))
}

/// The fields that select its hooks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Names of its containers, without init containers. At least one.
    pub(crate) containers: Vec<String>,
}

impl Pod {
    /// From a Pod as JSON; `None` if required fields are missing.
    pub(crate) fn new(pod: &Value) -> Option<Self> {
        let containers = list(pod, "/spec/containers").filter_map(|one| text_of(one, "/name"));
        let containers: Vec<String> = containers.map(str::to_owned).collect();
        (!containers.is_empty()).then_some(())?;
        Some(Self {
            namespace: owned_text(pod, "/metadata/namespace")?,
            name: owned_text(pod, "/metadata/name")?,
            uid: owned_text(pod, "/metadata/uid").unwrap_or_default(),
            phase: owned_text(pod, "/status/phase").unwrap_or_default(),
            labels: string_map(pod, "/metadata/labels").unwrap_or_default(),
            annotations: string_map(pod, "/metadata/annotations").unwrap_or_default(),
            containers,
        })
    }

    /// The container named by the hook, or the pod's first.
    pub(crate) fn container(&self, named: Option<&str>) -> String {
        let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
        named
            .or_else(|| self.containers.first().cloned())
            .unwrap_or_default()
    }
}

fn owned_text(pod: &Value, pointer: &str) -> Option<String> {
    text_of(pod, pointer).map(str::to_owned)
}

fn string_map(pod: &Value, pointer: &str) -> Option<BTreeMap<String, String>> {
    BTreeMap::deserialize(pod.pointer(pointer)?).ok()
}

//! Commands in containers of pods, as hooks of backups and restores run them.

mod annotations;
pub(crate) mod exec;
#[cfg(test)]
pub(crate) mod fake;

use std::{collections::BTreeMap, time::Duration};

use backup_actions::json::{list, text as text_of};
use backup_core::api::GoDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use annotations::{HookAnnotations, HookKeys};

/// How long a command may take that does not say so itself (Velero `pkg/podexec`, v1.18).
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// No command may take longer (likewise).
const MAX_TIMEOUT: Duration = Duration::from_hours(4);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hook {
    /// What asks for it, for people.
    pub(crate) source: String,
    pub(crate) container: String,
    pub(crate) command: Vec<String>,
    /// Whether a failure ends what is done with the pod (`onError: Fail`): it is not backed up, or runs no more hooks of the
    /// restore.
    pub(crate) fails: bool,
    pub(crate) timeout: Duration,
}

impl Hook {
    /// The beginning of a sentence about it; `when` is as in "before the backup". Without the command itself: people put
    /// passwords there.
    pub(crate) fn subject(&self, when: &str, namespace: &str, pod: &str) -> String {
        let Self { source, container, .. } = self;
        format!("the command {when} of pod {namespace}/{pod}, container {container} ({source}),")
    }
}

/// How long a command may take. Zero is "not given", as in Velero.
pub(crate) fn limited(timeout: Option<GoDuration>) -> Duration {
    timeout
        .map(GoDuration::as_std)
        .filter(|timeout| !timeout.is_zero())
        .map_or(TIMEOUT, |it| it.min(MAX_TIMEOUT))
}

/// What hooks are chosen by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Names of its containers, init containers not among them. At least one.
    pub(crate) containers: Vec<String>,
}

impl Pod {
    /// From a Pod as JSON; `None` if it is none.
    pub(crate) fn new(pod: &Value) -> Option<Self> {
        let field = |pointer| text_of(pod, pointer).map(str::to_owned);
        let map = |pointer| BTreeMap::deserialize(pod.pointer(pointer)?).ok();
        let containers = list(pod, "/spec/containers").filter_map(|one| text_of(one, "/name"));
        let containers: Vec<String> = containers.map(str::to_owned).collect();
        (!containers.is_empty()).then_some(())?;
        Some(Self {
            namespace: field("/metadata/namespace")?,
            name: field("/metadata/name")?,
            uid: field("/metadata/uid").unwrap_or_default(),
            phase: field("/status/phase").unwrap_or_default(),
            labels: map("/metadata/labels").unwrap_or_default(),
            annotations: map("/metadata/annotations").unwrap_or_default(),
            containers,
        })
    }

    /// The container of a hook: that which it names, else the first.
    pub(crate) fn container(&self, named: Option<&str>) -> String {
        let named = named.filter(|name| !name.is_empty()).map(str::to_owned);
        named.or_else(|| self.containers.first().cloned()).unwrap_or_default()
    }
}

//! Which commands belong to a pod: those of its annotations, or those of the Backup. Pure.

use std::{collections::BTreeMap, time::Duration};

use backup_actions::json::text as text_of;
use backup_core::{
    api::{
        GoDuration,
        backup::{BackupHooks, BackupResourceHook},
        common::HookErrorMode,
    },
    resources::full_names,
    selection::{IncludesExcludes, LabelFilter},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How long a command may take that does not say so itself (Velero `pkg/podexec`, v1.18).
const TIMEOUT: Duration = Duration::from_secs(30);
/// No command may take longer (likewise).
const MAX_TIMEOUT: Duration = Duration::from_hours(4);
/// End of the keys of annotations.
const KEY: &str = "hook.backup.velero.io/";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hook {
    /// What asks for it, for people.
    pub(crate) source: String,
    pub(crate) container: String,
    pub(crate) command: Vec<String>,
    /// Whether a failure costs the pod its place in the backup.
    pub(crate) fails: bool,
    pub(crate) timeout: Duration,
}

/// The commands around the backup of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodHooks {
    pub(crate) pre: Vec<Hook>,
    pub(crate) post: Vec<Hook>,
    /// What is wrong with them, as sentences.
    pub(crate) problems: Vec<String>,
}

impl PodHooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    first_container: String,
}

impl Pod {
    /// From the text of a Pod; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let pod: Value = serde_json::from_str(text).ok()?;
        let field = |pointer| text_of(&pod, pointer).map(str::to_owned);
        let map = |pointer| BTreeMap::deserialize(pod.pointer(pointer)?).ok();
        Some(Self {
            namespace: field("/metadata/namespace")?,
            name: field("/metadata/name")?,
            uid: field("/metadata/uid").unwrap_or_default(),
            phase: field("/status/phase").unwrap_or_default(),
            labels: map("/metadata/labels").unwrap_or_default(),
            annotations: map("/metadata/annotations").unwrap_or_default(),
            first_container: field("/spec/containers/0/name")?,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HookRules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    namespaces: IncludesExcludes,
    labels: LabelFilter,
    pre: Vec<BackupResourceHook>,
    post: Vec<BackupResourceHook>,
}

impl HookRules {
    /// Those that apply to pods: nothing else can run a command. `resolve` completes names of resources.
    pub(crate) fn new(hooks: Option<&BackupHooks>, resolve: &dyn Fn(&str) -> Option<String>) -> Self {
        let rules = hooks.into_iter().flat_map(|hooks| &hooks.resources).filter(|hook| {
            let (included, excluded) = (&hook.included_resources, &hook.excluded_resources);
            IncludesExcludes::new(&full_names(included, resolve), &full_names(excluded, resolve))
                .includes("pods")
        });
        Self(
            rules
                .map(|hook| Rule {
                    name: hook.name.clone(),
                    namespaces: IncludesExcludes::new(&hook.included_namespaces, &hook.excluded_namespaces),
                    labels: LabelFilter::of(&hook.label_selector, &None),
                    pre: hook.pre.clone(),
                    post: hook.post.clone(),
                })
                .collect(),
        )
    }

    /// A pod and its commands; `None` if it has none. `text` is only read if there can be some.
    pub(crate) fn of_text(&self, text: &str, annotations: &str) -> Option<(Pod, PodHooks)> {
        if self.0.is_empty() && !annotations.contains(KEY) {
            return None;
        }
        let pod = Pod::parse(text)?;
        let hooks = self.for_pod(&pod);
        (!hooks.is_empty()).then_some((pod, hooks))
    }

    /// The commands of a pod. Annotations for before, or for after, take the place of what the Backup says for that.
    pub(crate) fn for_pod(&self, pod: &Pod) -> PodHooks {
        let mut problems = Vec::new();
        let pre = annotated(pod, "pre.", &mut problems).or_else(|| annotated(pod, "", &mut problems));
        let post = annotated(pod, "post.", &mut problems);
        let applying: Vec<&Rule> = self
            .0
            .iter()
            .filter(|rule| rule.namespaces.includes(&pod.namespace) && rule.labels.matches(&pod.labels))
            .collect();
        let of_rules = |choose: fn(&Rule) -> &[BackupResourceHook]| -> Vec<Hook> {
            let all = applying.iter().flat_map(|rule| choose(rule).iter().map(|hook| (&rule.name, hook)));
            all.map(|(name, hook)| specified(pod, name, hook)).collect()
        };
        PodHooks {
            pre: pre.map_or_else(|| of_rules(|rule| &rule.pre), |hook| vec![hook]),
            post: post.map_or_else(|| of_rules(|rule| &rule.post), |hook| vec![hook]),
            problems,
        }
    }
}

/// The hook of annotations that begin so, if there is a command.
fn annotated(pod: &Pod, phase: &str, problems: &mut Vec<String>) -> Option<Hook> {
    let value = |name: &str| {
        let found = pod.annotations.get(&format!("{phase}{KEY}{name}"));
        found.map(|text| text.trim()).filter(|text| !text.is_empty())
    };
    let command = command_of(value("command")?);
    let fails = match value("on-error") {
        None | Some("Fail") => true,
        Some("Continue") => false,
        Some(other) => {
            problems.push(format!(
                "annotation {phase}{KEY}on-error is {other:?}, not Fail or Continue; Fail is meant"
            ));
            true
        }
    };
    let timeout = value("timeout").and_then(|text| match text.parse::<GoDuration>() {
        Ok(timeout) => Some(timeout),
        Err(error) => {
            problems.push(format!("annotation {phase}{KEY}timeout: {error}; 30s is meant"));
            None
        }
    });
    Some(Hook {
        source: "annotation".to_owned(),
        container: value("container").unwrap_or(&pod.first_container).to_owned(),
        command,
        fails,
        timeout: limited(timeout),
    })
}

fn specified(pod: &Pod, name: &str, hook: &BackupResourceHook) -> Hook {
    let exec = &hook.exec;
    let container = exec.container.as_deref().filter(|container| !container.is_empty());
    Hook {
        source: format!("hook {name}"),
        container: container.unwrap_or(&pod.first_container).to_owned(),
        command: exec.command.clone(),
        fails: exec.on_error != Some(HookErrorMode::Continue),
        timeout: limited(exec.timeout),
    }
}

/// A JSON list of texts, or a command without arguments.
fn command_of(text: &str) -> Vec<String> {
    let listed = text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten();
    listed.filter(|command: &Vec<String>| !command.is_empty()).unwrap_or_else(|| vec![text.to_owned()])
}

/// Zero is "not given", as in Velero.
fn limited(timeout: Option<GoDuration>) -> Duration {
    timeout
        .map(GoDuration::as_std)
        .filter(|timeout| !timeout.is_zero())
        .map_or(TIMEOUT, |it| it.min(MAX_TIMEOUT))
}

#[cfg(test)]
mod tests;

//! Which commands belong to a pod: from its annotations, or from the Backup. Pure.

use backup_actions::{
    RuleUse,
    hook::{Filter, PodSelector, command},
};
use backup_core::api::{
    backup::{BackupHooks, BackupResourceHook},
    common::HookErrorMode,
};

use crate::hooks::{Hook, HookAnnotations, HookKeys, Pod, limited};

/// Common part of the keys of annotations.
const KEY: &str = "hook.backup.velero.io/";
const KEYS: HookKeys = HookKeys {
    main: "command",
    others: &["container", "on-error", "timeout"],
    without_main: "nothing is run",
};

/// The commands around the backup of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodHooks {
    pub(crate) pre: Vec<Hook>,
    pub(crate) post: Vec<Hook>,
    /// Messages about errors in them.
    pub(crate) problems: Vec<String>,
}

impl PodHooks {
    pub(crate) fn is_empty(&self) -> bool {
        self.pre.is_empty() && self.post.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HookRules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    /// `None`: it applies to other types only.
    pods: Option<PodSelector>,
    used: RuleUse,
    pre: Vec<BackupResourceHook>,
    post: Vec<BackupResourceHook>,
}

impl Rule {
    fn applies_to(&self, pod: &Pod) -> bool {
        self.pods
            .as_ref()
            .is_some_and(|pods| pods.matches(&pod.namespace, &pod.labels))
    }
}

impl HookRules {
    pub(crate) fn new(hooks: Option<&BackupHooks>) -> Self {
        let hooks = hooks
            .into_iter()
            .flat_map(|hooks| &hooks.resources)
            .enumerate();
        let rules = hooks.map(|(at, hook)| {
            let namespaces = Filter {
                included: &hook.included_namespaces,
                excluded: &hook.excluded_namespaces,
            };
            let resources = Filter {
                included: &hook.included_resources,
                excluded: &hook.excluded_resources,
            };
            Rule {
                name: hook.name.clone(),
                pods: PodSelector::new(namespaces, resources, &hook.label_selector),
                used: RuleUse::new(format!("spec.hooks.resources[{at}]: hook {:?}", hook.name)),
                pre: hook.pre.clone(),
                post: hook.post.clone(),
            }
        });
        Self(rules.collect())
    }

    /// A pod and its commands; `None` if there are neither commands nor errors in annotations.
    /// `text` is only parsed if there may be some.
    pub(crate) fn of_text(&self, text: &str, annotations: &str) -> Option<(Pod, PodHooks)> {
        if self.0.is_empty() && !annotations.contains(KEY) {
            return None;
        }
        let pod = Pod::new(&serde_json::from_str(text).ok()?)?;
        let hooks = self.for_pod(&pod);
        let nothing = hooks.is_empty() && hooks.problems.is_empty();
        (!nothing).then_some((pod, hooks))
    }

    /// Messages about hooks of the Backup that have applied to no pod.
    pub(crate) fn idle(&self) -> Vec<String> {
        let to = "pod of this backup, so no command of it was run";
        self.0
            .iter()
            .filter_map(|rule| rule.used.idle(to, "namespaces, resources and labels"))
            .collect()
    }

    /// The commands of a pod. Pre or post annotations replace the pre or post commands of the
    /// Backup.
    pub(crate) fn for_pod(&self, pod: &Pod) -> PodHooks {
        let mut problems = Vec::new();
        let pre =
            annotated(pod, "pre.", &mut problems).or_else(|| annotated(pod, "", &mut problems));
        let post = annotated(pod, "post.", &mut problems);
        let applying: Vec<&Rule> = self.0.iter().filter(|rule| rule.applies_to(pod)).collect();
        for rule in &applying {
            rule.used.note();
        }
        PodHooks {
            pre: pre.map_or_else(
                || hooks_of_rules(&applying, pod, |rule| &rule.pre),
                |hook| vec![hook],
            ),
            post: post.map_or_else(
                || hooks_of_rules(&applying, pod, |rule| &rule.post),
                |hook| vec![hook],
            ),
            problems,
        }
    }
}

/// The hook of annotations that begin with `phase`, if there is a command.
fn annotated(pod: &Pod, phase: &str, problems: &mut Vec<String>) -> Option<Hook> {
    let prefix = format!("{phase}{KEY}");
    let mut annotations = HookAnnotations::new(pod, &prefix, KEYS, problems);
    Some(Hook {
        source: "annotation".to_owned(),
        command: command(annotations.main()?),
        container: pod.container(annotations.value("container")),
        fails: annotations.fails(true),
        timeout: limited(annotations.duration("timeout", "30s")),
    })
}

/// The hooks of rules for a pod, in their order. `choose` selects the pre or post hooks of a rule.
fn hooks_of_rules(
    rules: &[&Rule],
    pod: &Pod,
    choose: fn(&Rule) -> &[BackupResourceHook],
) -> Vec<Hook> {
    rules
        .iter()
        .flat_map(|rule| choose(rule).iter().map(|hook| (&rule.name, hook)))
        .map(|(name, hook)| specified(pod, name, hook))
        .collect()
}

fn specified(pod: &Pod, name: &str, hook: &BackupResourceHook) -> Hook {
    let exec = &hook.exec;
    Hook {
        source: format!("hook {name}"),
        container: pod.container(exec.container.as_deref()),
        command: exec.command.clone(),
        fails: exec.on_error != Some(HookErrorMode::Continue),
        timeout: limited(exec.timeout),
    }
}

#[cfg(test)]
mod tests;

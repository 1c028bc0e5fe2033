//! Which hooks a restored pod has: the one in its annotations, or the hooks of the Restore. Pure.

use std::time::Duration;

use backup_actions::{
    RuleUse,
    hook::{PodSelector, command},
    restore::{INIT_HOOK, pods_of_hook},
};
use backup_core::api::{
    GoDuration,
    common::HookErrorMode,
    restore::{ExecRestoreHook, RestoreHooks},
};

use crate::hooks::{Hook, HookAnnotations, HookKeys, Pod, limited};

/// Prefix of the annotation keys of a command.
const EXEC_HOOK: &str = "post.hook.restore.velero.io/";
const EXEC_KEYS: HookKeys = HookKeys {
    main: "command",
    others: &[
        "container",
        "on-error",
        "exec-timeout",
        "wait-timeout",
        "wait-for-ready",
    ],
    without_main: "nothing is run",
};
/// The keys of an init container. Its timeout has no effect, as with Velero: Kubernetes has no
/// timeout for init containers.
const INIT_KEYS: HookKeys = HookKeys {
    main: "container-image",
    others: &["container-name", "command", "timeout"],
    without_main: "no init container is added",
};
const TRUE: [&str; 6] = ["1", "t", "T", "true", "TRUE", "True"];
const FALSE: [&str; 6] = ["0", "f", "F", "false", "FALSE", "False"];

/// A command after the restore of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExecHook {
    pub(super) hook: Hook,
    /// Timeout for its container to be up, counted from the restore of the pod.
    pub(super) wait: Duration,
    /// Whether the container has to be ready, not only running.
    pub(super) ready: bool,
    /// Its index among the hooks of the pod.
    pub(super) number: usize,
}

/// The hooks of a pod, in the order in which they run where all containers are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodHooks {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) hooks: Vec<ExecHook>,
    /// Messages about errors in its annotations.
    pub(super) problems: Vec<String>,
}

/// The hooks of a Restore.
#[derive(Clone, Debug)]
pub(super) struct HookRules {
    rules: Vec<Rule>,
    /// Wait timeout of hooks that set none.
    wait: Duration,
}

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    /// `None`: it applies to other types only.
    pods: Option<PodSelector>,
    used: RuleUse,
    hooks: Vec<ExecRestoreHook>,
}

impl HookRules {
    pub(super) fn new(hooks: Option<&RestoreHooks>, wait: Duration) -> Self {
        let hooks = hooks
            .into_iter()
            .flat_map(|hooks| &hooks.resources)
            .enumerate();
        let rules = hooks.map(|(at, hook)| Rule {
            name: hook.name.clone(),
            pods: pods_of_hook(hook),
            used: RuleUse::new(format!("spec.hooks.resources[{at}]: hook {:?}", hook.name)),
            hooks: hook
                .post_hooks
                .iter()
                .filter_map(|hook| hook.exec.clone())
                .collect(),
        });
        Self {
            rules: rules.collect(),
            wait,
        }
    }

    /// Records which rules apply to a pod that is restored or existed before.
    pub(super) fn note(&self, pod: &Pod) {
        self.applying(pod).for_each(|rule| rule.used.note());
    }

    /// Messages about hooks of the Restore that have applied to no pod.
    pub(super) fn idle(&self) -> Vec<String> {
        let to = "pod of this restore, so nothing of it was run";
        let conditions = "namespaces (those that pods are restored into), resources and labels";
        self.rules
            .iter()
            .filter_map(|rule| rule.used.idle(to, conditions))
            .collect()
    }

    fn applying(&self, pod: &Pod) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| {
            rule.pods
                .as_ref()
                .is_some_and(|pods| pods.matches(&pod.namespace, &pod.labels))
        })
    }

    /// The hooks of a pod, by its namespace in the cluster; `None` if there are neither hooks nor
    /// errors to report.
    pub(super) fn for_pod(&self, pod: &Pod) -> Option<PodHooks> {
        let mut problems = init_problems(pod);
        let mut hooks = match self.annotated(pod, &mut problems) {
            Some(hook) => vec![hook],
            None => self.specified(pod),
        };
        wait_for_ready_together(&mut hooks);
        for (number, hook) in hooks.iter_mut().enumerate() {
            hook.number = number;
        }
        if hooks.is_empty() && problems.is_empty() {
            return None;
        }
        Some(PodHooks {
            namespace: pod.namespace.clone(),
            pod: pod.name.clone(),
            hooks,
            problems,
        })
    }

    fn annotated(&self, pod: &Pod, problems: &mut Vec<String>) -> Option<ExecHook> {
        let mut annotations = HookAnnotations::new(pod, EXEC_HOOK, EXEC_KEYS, problems);
        let text = annotations.main()?;
        let ready = match annotations.value("wait-for-ready") {
            None => false,
            Some(text) => parsed_bool(text).unwrap_or_else(|| {
                annotations.problem(
                    "wait-for-ready",
                    &format!(" is {text:?}, not true or false; false is meant"),
                );
                false
            }),
        };
        let default_wait = GoDuration::from(self.wait).to_string();
        Some(ExecHook {
            hook: Hook {
                source: "annotation".to_owned(),
                container: pod.container(annotations.value("container")),
                command: command(text),
                fails: annotations.fails(false),
                timeout: limited(annotations.duration("exec-timeout", "30s")),
            },
            wait: self.wait(annotations.duration("wait-timeout", &default_wait)),
            ready,
            number: 0,
        })
    }

    fn specified(&self, pod: &Pod) -> Vec<ExecHook> {
        let all = self
            .applying(pod)
            .flat_map(|rule| rule.hooks.iter().map(|exec| (&rule.name, exec)));
        all.map(|(name, exec)| ExecHook {
            hook: Hook {
                source: format!("hook {name}"),
                container: pod.container(exec.container.as_deref()),
                command: exec.command.clone(),
                fails: exec.on_error == Some(HookErrorMode::Fail),
                timeout: limited(exec.exec_timeout),
            },
            wait: self.wait(exec.wait_timeout),
            ready: exec.wait_for_ready == Some(true),
            number: 0,
        })
        .collect()
    }

    /// Zero is "not given", as in Velero.
    fn wait(&self, given: Option<GoDuration>) -> Duration {
        given
            .map(GoDuration::as_std)
            .filter(|wait| !wait.is_zero())
            .unwrap_or(self.wait)
    }
}

/// A boolean, as Go parses it (`strconv.ParseBool`).
fn parsed_bool(text: &str) -> Option<bool> {
    if TRUE.contains(&text) {
        Some(true)
    } else if FALSE.contains(&text) {
        Some(false)
    } else {
        None
    }
}

/// If one hook of a container waits until that is ready, all do (Velero `isContainerUp`, v1.18).
fn wait_for_ready_together(hooks: &mut [ExecHook]) {
    let ready = hooks
        .iter()
        .filter(|hook| hook.ready)
        .map(|hook| hook.hook.container.clone());
    let ready: Vec<String> = ready.collect();
    for hook in hooks {
        hook.ready = ready.contains(&hook.hook.container);
    }
}

/// Messages about errors in the annotations from which an action adds an init container.
fn init_problems(pod: &Pod) -> Vec<String> {
    let mut problems = Vec::new();
    let mut annotations = HookAnnotations::new(pod, INIT_HOOK, INIT_KEYS, &mut problems);
    if annotations.main().is_some() {
        annotations.duration("timeout", "no limit");
    }
    problems
}

#[cfg(test)]
mod tests;

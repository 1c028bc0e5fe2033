//! Chooses the hooks of pods that were created.

use std::time::Duration;

use backup_actions::restore::json::Object;
use backup_core::api::Restore;
use backup_store::Scope;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::rules::{HookRules, PodHooks};
use crate::{hooks::Pod, restore::report::Report};

pub(in crate::restore) struct HookPlanner<'a> {
    rules: HookRules,
    report: &'a Report,
    /// Sends to the runner; dropped when no more pods follow.
    pods: Sender<PodHooks>,
}

impl<'a> HookPlanner<'a> {
    /// `wait` is the wait timeout of hooks that set none.
    pub(in crate::restore) fn new(
        restore: &Restore,
        wait: Duration,
        report: &'a Report,
        pods: Sender<PodHooks>,
    ) -> Self {
        let hooks = restore.spec.hooks.as_ref();
        for hook in hooks.into_iter().flat_map(|hooks| &hooks.resources) {
            let name = &hook.name;
            if hook
                .post_hooks
                .iter()
                .filter_map(|hook| hook.init.as_ref())
                .any(|init| init.timeout.is_some())
            {
                report.info(&format!(
                    "the timeout of init containers (hook {name}) is not enforced, as with Velero"
                ));
            }
        }
        Self {
            rules: HookRules::new(hooks, wait),
            report,
            pods,
        }
    }

    /// Records which rules apply to a pod that is in the cluster, or would be.
    pub(in crate::restore) fn restored(&self, pod: &Object) {
        if let Some(pod) = Pod::new(&Value::Object(pod.clone())) {
            self.rules.note(&pod);
        }
    }

    /// Messages about hooks of the Restore that have applied to no pod.
    pub(in crate::restore) fn idle(&self) -> Vec<String> {
        self.rules.idle()
    }

    /// Sends the hooks of a created pod to the runner.
    pub(in crate::restore) async fn created(&self, pod: &Object) {
        let Some(hooks) =
            Pod::new(&Value::Object(pod.clone())).and_then(|pod| self.rules.for_pod(&pod))
        else {
            return;
        };
        let PodHooks { namespace, pod, .. } = &hooks;
        for problem in &hooks.problems {
            self.report.warn(
                Scope::Namespace(namespace),
                format!("pod {namespace}/{pod}: {problem}"),
            );
        }
        self.report.hooks_attempted(hooks.hooks.len());
        if !hooks.hooks.is_empty() {
            // Cannot fail: the runner receives until this sender is dropped.
            let _ = self.pods.send(hooks).await;
        }
    }
}

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
    /// To the runner; once this is gone, no more pods come.
    pods: Sender<PodHooks>,
}

impl<'a> HookPlanner<'a> {
    /// `wait` is that of a hook that does not say how long.
    pub(in crate::restore) fn new(
        restore: &Restore,
        wait: Duration,
        report: &'a Report,
        pods: Sender<PodHooks>,
    ) -> Self {
        let hooks = restore.spec.hooks.as_ref();
        for hook in hooks.into_iter().flat_map(|hooks| &hooks.resources) {
            let name = &hook.name;
            if hook.post_hooks.iter().filter_map(|hook| hook.init.as_ref()).any(|init| init.timeout.is_some())
            {
                report.info(&format!(
                    "the timeout of init containers (hook {name}) is not enforced, as with Velero"
                ));
            }
        }
        Self { rules: HookRules::new(hooks, wait), report, pods }
    }

    /// A pod is in the cluster, or would be, as this object.
    pub(in crate::restore) fn restored(&self, pod: &Object) {
        if let Some(pod) = Pod::new(&Value::Object(pod.clone())) {
            self.rules.note(&pod);
        }
    }

    /// The hooks of the Restore that have applied to no pod, as sentences.
    pub(in crate::restore) fn idle(&self) -> Vec<String> {
        self.rules.idle()
    }

    /// A pod was created, as this object.
    pub(in crate::restore) async fn created(&self, pod: &Object) {
        let Some(hooks) = Pod::new(&Value::Object(pod.clone())).and_then(|pod| self.rules.for_pod(&pod))
        else {
            return;
        };
        let PodHooks { namespace, pod, .. } = &hooks;
        for problem in &hooks.problems {
            self.report.warn(Scope::Namespace(namespace), format!("pod {namespace}/{pod}: {problem}"));
        }
        self.report.hooks_attempted(hooks.hooks.len());
        if !hooks.hooks.is_empty() {
            // The runner waits for pods as long as this one is there.
            let _ = self.pods.send(hooks).await;
        }
    }
}

//! Items that belong together, and the commands in pods around them: first all commands before, then everything is written
//! with what it brings along, then all commands after. So what the pods hold still is held still at the same time, and no
//! longer than needed.

use backup_runtime::errors::plain;
use backup_store::Scope as Area;

use super::{CollectError, Collector, Present, Sink, tell::full_name};
use crate::backup::{
    hooks::{Hook, Hooks, Pod, PodHooks},
    items::Item,
};

impl<S: Sink> Collector<'_, S> {
    /// Runs commands, and writes an item with the rest of its block. Whether the item itself was written.
    pub(super) async fn block(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        depth: u8,
        runner: &Hooks,
    ) -> Result<bool, CollectError> {
        let members = self.gather(of, item, text).await?;
        let mut pods = Vec::new();
        let takes_part = self.hold(of, item, text, runner, &mut pods).await?;
        for member in members.iter().filter(|member| is_pod(&member.of)) {
            let Some(text) = self.waiting.get(&member.id).cloned() else { continue };
            // It was read before.
            let Ok(pod) = Item::parse(&text) else { continue };
            if !self.hold(&member.of, &pod, &text, runner, &mut pods).await? {
                self.waiting.remove(&member.id);
                self.written.seen.insert(&member.of.group_resource, pod.namespace(), pod.name());
            }
        }
        // If this ends the collection, the pods are still owed their commands: whoever ended it runs them.
        let written = takes_part && self.store(of, item, text, depth).await?;
        for member in &members {
            if let Some(text) = self.waiting.remove(&member.id) {
                self.take_member(&member.of, &text, depth).await?;
            }
        }
        for (pod, hooks) in &pods {
            for hook in &hooks.post {
                let result = runner.after(pod, hook).await;
                self.tell_command("after", pod, hook, &result);
            }
            runner.paid(pod).await?;
        }
        Ok(written)
    }

    /// The commands around the backup of an item; none if it is no pod, or has none.
    pub(super) fn hooks_of(&self, of: &Present, item: &Item<'_>, text: &str) -> Option<(Pod, PodHooks)> {
        if !is_pod(of) {
            return None;
        }
        self.order.hooks.of_text(text, item.raw_annotations())
    }

    /// Runs the commands before, if the item is a pod that has some; then it is one of `pods`. Whether it may be backed up.
    async fn hold(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        runner: &Hooks,
        pods: &mut Vec<(Pod, PodHooks)>,
    ) -> Result<bool, CollectError> {
        let Some((pod, hooks)) = self.hooks_of(of, item, text) else { return Ok(true) };
        let (name, area) = (full_name(item), Area::Namespace(&pod.namespace));
        for odd in &hooks.odd {
            self.report.warn(area, format!("pod {name}: {odd}"));
        }
        match runner.is_running(&pod).await {
            Ok(true) => {}
            Ok(false) => {
                self.tell_not_running(&pod);
                return Ok(true);
            }
            Err(error) => {
                let message = format!(
                    "pod {name} is not in this backup: its commands could not be run: {}",
                    plain(&error)
                );
                self.report.error(area, message);
                return Ok(false);
            }
        }
        self.go_on()?;
        if !hooks.pre.is_empty() {
            runner.owe(&pod, &hooks.post).await?;
        }
        let may = self.run_before(runner, &pod, &hooks.pre).await;
        pods.push((pod, hooks));
        Ok(may)
    }

    /// Runs the commands before. Whether the pod may be backed up.
    async fn run_before(&mut self, runner: &Hooks, pod: &Pod, hooks: &[Hook]) -> bool {
        for hook in hooks {
            let result = runner.before(pod, hook).await;
            self.tell_command("before", pod, hook, &result);
            if result.is_err() && hook.fails {
                let message = format!(
                    "pod {}/{} is not in this backup: the command before its backup failed",
                    pod.namespace, pod.name
                );
                self.report.error(Area::Namespace(&pod.namespace), message);
                return false;
            }
        }
        true
    }

    fn tell_command(&mut self, when: &str, pod: &Pod, hook: &Hook, result: &Result<String, String>) {
        let Hook { source, container, .. } = hook;
        // Not the command itself: people put passwords there.
        let what = format!(
            "the command {when} the backup of pod {}/{}, container {container} ({source}),",
            pod.namespace, pod.name
        );
        match result {
            Ok(output) if output.is_empty() => self.report.info(&format!("{what} has run")),
            Ok(output) => self.report.info(&format!("{what} has run and printed: {output}")),
            Err(reason) => {
                self.report.error(Area::Namespace(&pod.namespace), format!("{what} failed: {reason}"));
            }
        }
    }

    fn tell_not_running(&mut self, pod: &Pod) {
        let Pod { namespace, name, phase, .. } = pod;
        let message = format!("the commands around the backup of pod {namespace}/{name} are not run: ");
        if matches!(phase.as_str(), "Succeeded" | "Failed") {
            self.report.info(&format!("{message}it has ended"));
        } else {
            self.report.warn(Area::Namespace(namespace), format!("{message}it does not run ({phase})"));
        }
    }
}

fn is_pod(of: &Present) -> bool {
    of.group_resource == "pods"
}

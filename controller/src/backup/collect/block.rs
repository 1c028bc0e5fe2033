//! A pod with commands around its backup: they are run, and between them the pod is written with everything that it brings
//! along, so that what they hold still is held still no longer than needed.

use backup_store::Scope as Area;

use super::{CollectError, Collector, Present, Sink, tell::full_name};
use crate::{
    backup::{
        hooks::{Hook, Hooks, Pod, PodHooks},
        items::Item,
    },
    runtime::errors::plain,
};

impl<S: Sink> Collector<'_, S> {
    /// Runs the commands and writes the pod. Whether it was written.
    pub(super) async fn block(
        &mut self,
        of: &Present,
        item: &Item<'_>,
        text: &str,
        depth: u8,
        (runner, pod, hooks): (&Hooks, &Pod, &PodHooks),
    ) -> Result<bool, CollectError> {
        let (name, area) = (full_name(item), Area::Namespace(&pod.namespace));
        for odd in &hooks.odd {
            self.report.warn(area, format!("pod {name}: {odd}"));
        }
        match runner.is_running(pod).await {
            Ok(true) => {}
            Ok(false) => {
                self.tell_not_running(pod);
                return self.store(of, item, text, depth).await;
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
            runner.owe(pod, &hooks.post).await?;
        }
        let mut written = false;
        if self.run_before(runner, pod, &hooks.pre).await {
            // If this ends the collection, the pod is still owed its commands: whoever ended it runs them.
            written = self.store(of, item, text, depth).await?;
        }
        for hook in &hooks.post {
            let result = runner.after(pod, hook).await;
            self.tell_command("after", pod, hook, &result);
        }
        runner.paid(pod).await?;
        Ok(written)
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

//! Running what pods are owed, by whoever has to do with a backup next: the process that stops it, or the one that takes it up.

use backup_runtime::errors::plain;
use backup_store::StoreError;

use super::{Executor, Owed, exec};
use crate::job::journal::JournalWriter;

/// Runs all that is owed, and notes that it was paid. What went wrong, as sentences; a pod that is gone or was replaced is
/// owed nothing. One that can't be paid now is not noted as paid.
///
/// # Errors
/// Of the notes.
pub async fn settle(
    executor: &dyn Executor,
    journal: &dyn JournalWriter,
    all: &[Owed],
) -> Result<Vec<String>, StoreError> {
    let mut problems = Vec::new();
    for owed in all {
        let name = format!("{}/{}", owed.namespace, owed.pod);
        let there = match executor.find(&owed.namespace, &owed.pod).await {
            Ok(found) => found.is_some_and(|found| found.uid == owed.uid && found.running),
            Err(error) => {
                problems.push(format!(
                    "pod {name} is owed commands after its backup, and could not be read: {}",
                    plain(&error)
                ));
                continue;
            }
        };
        let mut begun = true;
        for hook in owed.post.iter().filter(|_| there) {
            tracing::info!(pod = name, container = hook.container, "running a command that is owed");
            if let Err(error) = exec::insist(executor, &owed.namespace, &owed.pod, hook).await {
                begun &= error.has_begun();
                problems.push(format!(
                    "the command after the backup of pod {name}, container {} ({}), failed: {error}",
                    hook.container, hook.source
                ));
            }
        }
        if begun {
            journal.append(owed.paid()).await?;
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backup::hooks::{
        Hook,
        exec::ExecError,
        fake::{FakePods, Kept},
    };

    fn owed(pod: &str) -> Owed {
        let hook = |name: &str| Hook {
            source: "annotation".to_owned(),
            container: "c".to_owned(),
            command: vec![name.to_owned()],
            fails: true,
            timeout: Duration::from_secs(1),
        };
        Owed {
            namespace: "a".to_owned(),
            pod: pod.to_owned(),
            uid: format!("a-{pod}"),
            post: vec![hook("thaw"), hook("tell")],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_command_that_is_owed_is_run_once_and_noted() {
        let (pods, notes) = (FakePods::running(&["p", "q"]), Kept::default());
        let all = [owed("p"), owed("q")];
        assert!(settle(&pods, &notes, &all).await.unwrap().is_empty());
        assert_eq!(pods.ran(), ["p thaw", "p tell", "q thaw", "q tell"]);
        let mut written: Vec<_> = all.iter().map(Owed::note).collect();
        written.extend(notes.all());
        assert!(Owed::of(&written).unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_is_gone_or_was_replaced_is_owed_nothing() {
        let (pods, notes) = (FakePods::running(&["p"]), Kept::default());
        let replaced = Owed { uid: "another".to_owned(), ..owed("p") };
        assert!(settle(&pods, &notes, &[replaced, owed("gone")]).await.unwrap().is_empty());
        assert!(pods.ran().is_empty());
        assert_eq!(notes.all().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_does_not_begin_is_tried_again_for_a_while_and_stays_owed() {
        let pods =
            FakePods::running(&["p"]).answering(|_, _, _| Err(ExecError::NotBegun("no kubelet".into())));
        let notes = Kept::default();
        let problems = settle(&pods, &notes, &[owed("p")]).await.unwrap();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(pods.ran().len() > 4, "{:?}", pods.ran());
        assert!(notes.all().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_fails_has_run() {
        let pods = FakePods::running(&["p"]).answering(|_, command, _| match command {
            "thaw" => Err(ExecError::Failed { reason: "exit code 1".into(), output: String::new() }),
            _ => Ok(String::new()),
        });
        let notes = Kept::default();
        let problems = settle(&pods, &notes, &[owed("p")]).await.unwrap();
        assert!(problems[0].contains("exit code 1") && problems.len() == 1, "{problems:?}");
        assert_eq!((pods.ran(), notes.all().len()), (vec!["p thaw".to_owned(), "p tell".to_owned()], 1));
    }
}

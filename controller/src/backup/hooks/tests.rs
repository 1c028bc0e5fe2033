use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{hooks::tests::fake::FakePods, job::journal::MemoryJournal};

fn pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": { "namespace": "a", "name": name, "uid": format!("a-{name}") },
        "spec": { "containers": [{ "name": "c" }] }, "status": { "phase": "Running" },
    });
    Pod::new(&pod).unwrap()
}

fn hook(command: &str) -> Hook {
    Hook {
        source: "annotation".to_owned(),
        container: "c".to_owned(),
        command: vec![command.to_owned()],
        fails: true,
        timeout: Duration::from_millis(1500),
    }
}

/// Pending commands of a pod in namespace `a`.
fn pending(pod_name: &str) -> PendingPostHooks {
    PendingPostHooks::new(&pod(pod_name), &[hook("thaw"), hook("tell")])
}

#[tokio::test(start_paused = true)]
async fn a_takeover_runs_pending_hooks_and_reports_unknown_outcomes() {
    let (pods, journal) = (
        Arc::new(FakePods::running(&["p", "q"])),
        MemoryJournal::default(),
    );
    let hooks = || {
        Hooks::new(
            Arc::clone(&pods) as _,
            Arc::new(journal.clone()),
            Progress::default(),
        )
    };
    // The first process dies after the pre command of q.
    let first = hooks();
    for name in ["p", "q"] {
        first.begin(&pod(name), &[hook("thaw")]).await.unwrap();
        first.run_pre(&pod(name), &hook("freeze")).await.unwrap();
    }
    first.run_post(&pod("p"), &hook("thaw")).await.unwrap();
    first.complete(&pod("p")).await.unwrap();

    let taken = hooks().take_over(&journal.all()).await.unwrap();
    assert_eq!(pods.ran(), ["p freeze", "q freeze", "p thaw", "q thaw"]);
    let [error] = &taken.errors[..] else {
        panic!("{taken:?}")
    };
    assert_says!(error, "pod a/q", "not known");
    assert_says!(taken.again.unwrap(), "a/p, a/q");
    // No command runs twice.
    assert!(
        hooks()
            .take_over(&journal.all())
            .await
            .unwrap()
            .errors
            .is_empty()
    );
    assert_eq!(pods.ran().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_in_order_runs_what_is_pending() {
    let (pods, journal) = (
        Arc::new(FakePods::running(&["p"])),
        MemoryJournal::default(),
    );
    let hooks = Hooks::new(
        Arc::clone(&pods) as _,
        Arc::new(journal.clone()),
        Progress::default(),
    );
    hooks.begin(&pod("p"), &[hook("thaw")]).await.unwrap();
    assert!(hooks.run_pending().await.is_empty());
    assert!(hooks.run_pending().await.is_empty());
    assert_eq!(pods.ran(), ["p thaw"]);
    assert!(PendingPostHooks::read(&journal.all()).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_in_the_journal_is_not_begun() {
    struct Full;
    #[async_trait::async_trait]
    impl JournalWriter for Full {
        async fn entry(&self, _: backup_store::EntryPosition) -> Result<Value, StoreError> {
            unreachable!("nothing is in it")
        }

        fn append(&self, _: Value) -> futures::future::BoxFuture<'_, Result<(), StoreError>> {
            let full = StoreError::Io {
                action: "write".to_owned(),
                detail: "full".to_owned(),
            };
            Box::pin(std::future::ready(Err(full)))
        }
    }
    let hooks = Hooks::new(
        Arc::new(FakePods::running(&["p"])),
        Arc::new(Full),
        Progress::default(),
    );
    assert!(hooks.begin(&pod("p"), &[hook("thaw")]).await.is_err());
    assert!(
        hooks.begin(&pod("p"), &[]).await.is_ok(),
        "without commands after it no entry is needed"
    );
    assert!(hooks.run_pending().await.is_empty());
}

#[test]
fn what_is_pending_is_read_from_the_journal() {
    let (a, b) = (pending("p"), pending("q"));
    let entries = [
        a.pending_entry(),
        json!({ "operation": 1 }),
        b.pending_entry(),
        a.completed_entry(),
    ];
    assert_eq!(
        PendingPostHooks::read(&entries).unwrap(),
        std::slice::from_ref(&b)
    );
    assert_eq!(PendingPostHooks::earlier_pods(&entries).unwrap().len(), 2);
    let again = [a.pending_entry(), a.completed_entry(), a.pending_entry()];
    assert_eq!(
        PendingPostHooks::read(&again).unwrap(),
        [a],
        "pending again in a later attempt"
    );
    assert!(PendingPostHooks::read(&[json!({ "hooksPending": { "pod": "x" } })]).is_err());
}

#[tokio::test(start_paused = true)]
async fn every_pending_command_is_run_once() {
    let (pods, journal) = (FakePods::running(&["p", "q"]), MemoryJournal::default());
    let all = [pending("p"), pending("q")];
    assert!(run_pending(&pods, &journal, &all).await.unwrap().is_empty());
    assert_eq!(pods.ran(), ["p thaw", "p tell", "q thaw", "q tell"]);
    let mut entries: Vec<_> = all.iter().map(PendingPostHooks::pending_entry).collect();
    entries.extend(journal.all());
    assert!(PendingPostHooks::read(&entries).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_run_in_a_pod_that_is_gone_or_was_replaced() {
    let (pods, journal) = (FakePods::running(&["p"]), MemoryJournal::default());
    let replaced = PendingPostHooks {
        uid: "another".to_owned(),
        ..pending("p")
    };
    assert!(
        run_pending(&pods, &journal, &[replaced, pending("gone")])
            .await
            .unwrap()
            .is_empty()
    );
    assert!(pods.ran().is_empty());
    assert_eq!(journal.all().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_begin_is_retried_and_stays_pending() {
    let pods =
        FakePods::running(&["p"]).answering(|_, _| Err(ExecError::NotBegun("no kubelet".into())));
    let journal = MemoryJournal::default();
    let problems = run_pending(&pods, &journal, &[pending("p")]).await.unwrap();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(pods.ran().len() > 4, "{:?}", pods.ran());
    assert!(journal.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_has_run() {
    let pods = FakePods::running(&["p"]).answering(|_, command| match command {
        "thaw" => Err(ExecError::Failed {
            reason: "exit code 1".into(),
            output: String::new(),
        }),
        _ => Ok(String::new()),
    });
    let journal = MemoryJournal::default();
    let problems = run_pending(&pods, &journal, &[pending("p")]).await.unwrap();
    assert!(
        problems[0].contains("exit code 1") && problems.len() == 1,
        "{problems:?}"
    );
    assert_eq!(
        (pods.ran(), journal.all().len()),
        (vec!["p thaw".to_owned(), "p tell".to_owned()], 1)
    );
}

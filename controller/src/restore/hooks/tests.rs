//! Pods in a fake server, which run fake commands.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use backup_core::{
    api::{Restore, common::HookStatus},
    labels,
};
use backup_runtime::leader::Leadership;
use backup_store::{EntryPosition, StoreError};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    hooks::{
        Hook,
        exec::{ExecError, Executor},
        tests::fake::FakePods,
    },
    job::{
        cancellation::Cancellation,
        journal::{JournalWriter, MemoryJournal},
    },
    restore::{
        report::Report,
        tests::fake::{self, FakeApi},
    },
};

/// Wait timeout of hooks that set none.
const WAIT: Duration = Duration::from_mins(10);

/// A restore that has created pods in a server.
struct Setup {
    api: FakeApi,
    executor: Arc<dyn Executor>,
    journal: MemoryJournal,
    cancellation: Cancellation,
    hooks: Value,
}

#[derive(Debug)]
struct Outcome {
    errors: Vec<String>,
    warnings: Vec<String>,
    hooks: HookStatus,
}

impl Outcome {
    fn counts(&self) -> (i64, i64) {
        (self.hooks.hooks_attempted, self.hooks.hooks_failed)
    }
}

fn setup(executor: Arc<dyn Executor>, hooks: Value) -> Setup {
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    Setup {
        api: fake::server(),
        executor,
        journal: MemoryJournal::default(),
        cancellation,
        hooks,
    }
}

impl Setup {
    /// Creates the pods and runs their hooks, with the journal of earlier attempts.
    async fn run(&self, pods: &[Value]) -> Outcome {
        let journal =
            HookJournal::take_over(Arc::new(self.journal.clone()), &self.journal.all()).unwrap();
        self.run_with(&journal, pods).await.unwrap()
    }

    async fn run_with(&self, journal: &HookJournal, pods: &[Value]) -> Result<Outcome, StoreError> {
        let report = Report::new().unwrap();
        let calls = fake::calls_of(&self.api, self.cancellation.clone());
        let context = HookContext {
            executor: &*self.executor,
            journal,
        };
        let runner = HookRunner::new(
            context,
            &calls,
            &report,
            Duration::from_secs(5),
            "r".to_owned(),
        );
        let (sender, receiver) = mpsc::channel(1);
        let spec = json!({ "hooks": { "resources": self.hooks } });
        let restore = Restore::new("r", serde_json::from_value(spec).unwrap());
        let restored = async {
            let planner = HookPlanner::new(&restore, WAIT, &report, sender);
            for pod in pods {
                planner.created(pod.as_object().unwrap()).await;
            }
        };
        let ((), ran) = tokio::join!(restored, runner.run(receiver));
        ran?;
        runner.report_left();
        let hooks = report.summary().hooks.unwrap_or_default();
        let results = report.into_files().results;
        let of_a = |all: &std::collections::BTreeMap<String, Vec<String>>| {
            all.get("a").cloned().unwrap_or_default()
        };
        Ok(Outcome {
            errors: of_a(&results.errors.namespaces),
            warnings: of_a(&results.warnings.namespaces),
            hooks,
        })
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.api.edit(&at(name), change);
    }

    fn create(&self, name: &str, status: Value) {
        let mut created = pod(name);
        (created["metadata"]["uid"], created["status"]) = (json!(format!("uid-{name}")), status);
        self.api.put(&at(name), created);
    }
}

fn at(pod: &str) -> String {
    format!("/api/v1/namespaces/a/pods/{pod}")
}

/// A pod as it was restored.
fn pod(name: &str) -> Value {
    json!({
        "metadata": { "namespace": "a", "name": name, "labels": { labels::RESTORE_NAME: "r" } },
        "spec": { "nodeName": "n", "containers": [{ "name": "main" }, { "name": "tools" }] },
    })
}

fn running() -> Value {
    let container = |name| json!({ "name": name, "ready": true, "state": { "running": {} } });
    json!({ "phase": "Running", "containerStatuses": [container("main"), container("tools")] })
}

fn hooks(execs: &Value) -> Value {
    let execs: Vec<Value> = execs
        .as_array()
        .unwrap()
        .iter()
        .map(|exec| json!({ "exec": exec }))
        .collect();
    json!([{ "name": "load", "postHooks": execs }])
}

fn failing() -> FakePods {
    FakePods::default().answering(|_, command| match command {
        "bad" => Err(ExecError::Failed {
            reason: "exit code 1".into(),
            output: "secret".into(),
        }),
        _ => Ok(String::new()),
    })
}

#[tokio::test(start_paused = true)]
async fn hooks_run_once_their_container_is_up_in_their_order() {
    let pods = Arc::new(FakePods::default());
    let execs = json!([{ "command": ["one"] }, { "command": ["other"], "container": "tools", "waitForReady": true },
        { "command": ["two"] }]);
    let setup = setup(Arc::clone(&pods) as _, hooks(&execs));
    setup.create("p", json!({ "phase": "Pending" }));
    let start = async {
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(pods.ran().is_empty());
        setup.change("p", |pod| {
            pod["status"] = running();
            pod["status"]["containerStatuses"][1]["ready"] = json!(false);
        });
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(pods.ran(), ["p one", "p two"]);
        setup.change("p", |pod| pod["status"] = running());
    };
    let created = [pod("p")];
    let (outcome, ()) = tokio::join!(setup.run(&created), start);
    assert_eq!(pods.ran(), ["p one", "p two", "p other"]);
    assert_eq!(
        (outcome.counts(), outcome.errors.len()),
        ((3, 0), 0),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_never_starts_is_an_error_that_says_what_was_waited_for() {
    let pods = Arc::new(FakePods::default());
    let execs = json!([{ "command": ["a"], "waitTimeout": "5s" }, { "command": ["b"], "waitForReady": true }]);
    let setup = setup(Arc::clone(&pods) as _, hooks(&execs));
    setup.create(
        "p",
        json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "message": "0/3 nodes fit" }] }),
    );
    setup.create("q", running());
    let begun = Instant::now();
    let outcome = setup.run(&[pod("p"), pod("q")]).await;
    assert!(
        begun.elapsed() >= WAIT && begun.elapsed() < WAIT + Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(pods.ran(), ["q a", "q b"], "others go on");
    assert_eq!(outcome.counts(), (4, 2));
    for (error, wait) in outcome.errors.iter().zip(["5s", "10m0s"]) {
        let whole = format!(
            "the command after the restore of pod a/p, container main (hook load), was not run: {wait} were not \
            enough for the container to be ready: the pod is not scheduled: 0/3 nodes fit"
        );
        assert_eq!(*error, whole);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_an_error_and_ends_the_hooks_of_its_pod_if_it_says_so() {
    for (on_error, ran, errors) in [
        (
            "Continue",
            vec!["p bad", "p after", "q bad", "q after"],
            vec!["exit code 1", "exit code 1"],
        ),
        (
            "Fail",
            vec!["p bad", "q bad"],
            vec![
                "exit code 1",
                "onError is Fail",
                "exit code 1",
                "onError is Fail",
            ],
        ),
    ] {
        let pods = Arc::new(failing());
        let execs = json!([{ "command": ["bad"], "onError": on_error }, { "command": ["after"], "container": "tools" }]);
        let setup = setup(Arc::clone(&pods) as _, hooks(&execs));
        setup.create("p", running());
        setup.create("q", running());
        let mut outcome = setup.run(&[pod("p"), pod("q")]).await;
        let mut all = pods.ran();
        all.sort_by_key(|command| command.starts_with('q'));
        assert_eq!(all, ran, "{on_error}");
        outcome
            .errors
            .sort_by_key(|error| error.contains("pod a/q"));
        assert_eq!(outcome.errors.len(), errors.len(), "{outcome:?}");
        for (error, says) in outcome.errors.iter().zip(errors) {
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
        }
        assert_eq!(
            outcome.counts(),
            (4, i64::try_from(outcome.errors.len()).unwrap())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_run_in_a_pod_that_is_not_the_restored_one() {
    type Change = fn(&Setup);
    let cases: [(Change, &str); 5] = [
        (|setup| setup.api.delete(&at("p")), "the pod was deleted"),
        (
            |setup| setup.change("p", |pod| pod["metadata"]["uid"] = json!("other")),
            "replaced by another one",
        ),
        (
            |setup| setup.change("p", |pod| pod["status"]["phase"] = json!("Succeeded")),
            "has ended before (Succeeded)",
        ),
        (
            |setup| {
                setup.change("p", |pod| {
                    pod["spec"]["containers"] = json!([{ "name": "other" }]);
                });
            },
            "the pod has no such container",
        ),
        (
            |setup| {
                setup.api.fail(|request| request.path == at("p"));
            },
            "the pod could not be read",
        ),
    ];
    for (change, says) in cases {
        let pods = Arc::new(FakePods::default());
        let setup = setup(
            Arc::clone(&pods) as _,
            hooks(
                &json!([{ "command": ["x"], "waitTimeout": "30s" }, { "command": ["y"], "waitTimeout": "30s" }]),
            ),
        );
        setup.create("p", json!({ "phase": "Pending" }));
        let later = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            change(&setup);
        };
        let created = [pod("p")];
        let (outcome, ()) = tokio::join!(setup.run(&created), later);
        assert!(pods.ran().is_empty());
        assert_eq!(
            (outcome.errors.len(), outcome.counts()),
            (2, (2, 2)),
            "{says}: {outcome:?}"
        );
        assert!(
            outcome.errors.iter().all(|error| error.contains(says)),
            "{says}: {outcome:?}"
        );
    }
    // It was replaced before the first read.
    let pods = Arc::new(FakePods::default());
    let setup = setup(
        Arc::clone(&pods) as _,
        hooks(&json!([{ "command": ["x"] }])),
    );
    setup.create("p", running());
    setup.change("p", |pod| pod["metadata"]["labels"] = json!({}));
    assert_says!(
        setup.run(&[pod("p")]).await.errors[0],
        "replaced by another one"
    );
    assert!(pods.ran().is_empty());
}

/// Runs commands that do not end.
#[derive(Default)]
struct Endless(Notify);

#[async_trait]
impl Executor for Endless {
    async fn is_running(&self, _: &str, _: &str, _: &str) -> Result<bool, kube::Error> {
        Ok(true)
    }

    async fn run(&self, _: &str, _: &str, _: &Hook) -> Result<String, ExecError> {
        self.0.notify_one();
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_a_restore_is_told_which_hooks_did_not_run() {
    type Stop = fn(&Cancellation);
    let cases: [(Stop, &str); 2] = [
        (Cancellation::cancel, "the restore was cancelled by a user"),
        (
            |cancellation| cancellation.fence().lose(),
            "the claim of the restore was released",
        ),
    ];
    for (stop, says) in cases {
        let executor = Arc::new(Endless::default());
        let setup = setup(
            Arc::clone(&executor) as _,
            hooks(&json!([{ "command": ["x"] }, { "command": ["y"] }])),
        );
        setup.create("p", running());
        setup.create("q", json!({ "phase": "Pending" }));
        let stopped = async {
            executor.0.notified().await;
            stop(&setup.cancellation);
        };
        let begun = Instant::now();
        let created = [pod("p"), pod("q")];
        let (outcome, ()) = tokio::join!(setup.run(&created), stopped);
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            outcome.errors.iter().all(|error| error.contains(says)),
            "{outcome:?}"
        );
        let unknown = outcome
            .errors
            .iter()
            .filter(|error| error.contains("what came of it is not known"))
            .count();
        assert_eq!(
            (outcome.counts(), outcome.errors.len(), unknown),
            ((4, 4), 4, 1),
            "{outcome:?}"
        );
        // The interrupted command is not run by a later attempt either.
        assert_eq!(setup.journal.all().len(), 1, "{:?}", setup.journal.all());
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_runs_once_in_all_attempts() {
    let execs = json!([{ "command": ["one"] }, { "command": ["bad"] }, { "command": ["three"] }, { "command": ["four"] }]);
    // The first process dies while it runs the third command.
    let dies = Arc::new(Endless::default());
    let first = Arc::new(failing());
    let mut setup = setup(
        Arc::clone(&first) as _,
        hooks(&json!([{ "command": ["one"] }, { "command": ["bad"] }])),
    );
    setup.create("p", running());
    setup.run(&[pod("p")]).await;
    assert_eq!(first.ran(), ["p one", "p bad"]);
    (setup.executor, setup.hooks) = (Arc::clone(&dies) as _, hooks(&execs));
    {
        let created = [pod("p")];
        tokio::select! {
            _ = setup.run(&created) => panic!("it does not end"),
            () = dies.0.notified() => {}
        }
    }
    let second = Arc::new(failing());
    setup.executor = Arc::clone(&second) as _;
    let outcome = setup.run(&[pod("p")]).await;
    assert_eq!(second.ran(), ["p four"]);
    let [failed, unknown] = &outcome.errors[..] else {
        panic!("{outcome:?}")
    };
    assert!(failed.ends_with("failed: exit code 1"), "{failed}");
    assert_says!(unknown, "not known: it is not run again");
    assert_eq!(outcome.counts(), (4, 2));
    // A new pod of the same name is another one; hooks that were run in the old one are reported.
    setup.change("p", |pod| pod["metadata"]["uid"] = json!("uid-2"));
    let third = Arc::new(failing());
    setup.executor = Arc::clone(&third) as _;
    let outcome = setup.run(&[pod("p")]).await;
    assert_eq!(third.ran(), ["p one", "p bad", "p three", "p four"]);
    assert_eq!(outcome.counts(), (8, 3), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_a_failed_hook_still_ends_those_of_its_pod() {
    let execs = json!([{ "command": ["bad"], "onError": "Fail" }, { "command": ["after"], "container": "tools" }]);
    let pods = Arc::new(failing());
    let setup = setup(Arc::clone(&pods) as _, hooks(&execs));
    setup.create("p", running());
    let first = setup.run(&[pod("p")]).await;
    let again = setup.run(&[pod("p")]).await;
    assert_eq!(pods.ran(), ["p bad"]);
    assert_eq!((first.errors, first.hooks), (again.errors, again.hooks));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_noted_is_not_run() {
    struct Full;
    #[async_trait]
    impl JournalWriter for Full {
        async fn entry(&self, _: EntryPosition) -> Result<Value, StoreError> {
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
    let pods = Arc::new(FakePods::default());
    let setup = setup(
        Arc::clone(&pods) as _,
        hooks(&json!([{ "command": ["x"] }])),
    );
    setup.create("p", running());
    // The attempt has failed, so it does not wait for this pod.
    setup.create("q", json!({ "phase": "Pending" }));
    let journal = HookJournal::take_over(Arc::new(Full), &[]).unwrap();
    let begun = Instant::now();
    assert!(
        setup
            .run_with(&journal, &[pod("q"), pod("p")])
            .await
            .is_err()
    );
    assert!(pods.ran().is_empty() && begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn many_pods_that_wait_are_looked_at_at_a_bounded_pace() {
    let setup = setup(
        Arc::new(FakePods::default()),
        hooks(&json!([{ "command": ["x"], "waitTimeout": "1m" }])),
    );
    let pods: Vec<Value> = (0..300).map(|n| pod(&format!("p{n}"))).collect();
    for n in 0..300 {
        setup.create(&format!("p{n}"), json!({ "phase": "Pending" }));
    }
    let outcome = setup.run(&pods).await;
    assert_eq!(outcome.counts(), (300, 300));
    let looks = setup
        .api
        .log()
        .iter()
        .filter(|line| line.starts_with("GET /api/v1/namespaces/a/pods/"))
        .count();
    assert!((600..60 * 55 + 600).contains(&looks), "{looks} in a minute");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_annotations_is_a_warning_that_names_the_pod() {
    let setup = setup(Arc::new(FakePods::default()), json!([]));
    let mut wrong = pod("p");
    wrong["metadata"]["annotations"] = json!({ "post.hook.restore.velero.io/command": "x",
        "post.hook.restore.velero.io/exec-timeout": "soon" });
    setup.create("p", running());
    let outcome = setup.run(&[wrong]).await;
    assert_eq!(
        (outcome.counts(), outcome.warnings.len()),
        ((1, 0), 1),
        "{outcome:?}"
    );
    assert!(
        outcome.warnings[0]
            .starts_with("pod a/p: annotation post.hook.restore.velero.io/exec-timeout")
    );
}

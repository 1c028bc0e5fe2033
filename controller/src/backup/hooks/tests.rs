use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;

use super::{
    fake::{FakePods, Kept},
    *,
};

fn pod(name: &str) -> Pod {
    let text = json!({
        "metadata": { "namespace": "a", "name": name, "uid": format!("a-{name}") },
        "spec": { "containers": [{ "name": "c" }] }, "status": { "phase": "Running" },
    });
    Pod::parse(&text.to_string()).unwrap()
}

fn hook(command: &str) -> Hook {
    Hook {
        source: "annotation".to_owned(),
        container: "c".to_owned(),
        command: vec![command.to_owned()],
        fails: true,
        timeout: Duration::from_secs(1),
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_a_backup_up_pays_first_and_says_that_the_outcome_is_unknown() {
    let (pods, notes) = (Arc::new(FakePods::running(&["p", "q"])), Kept::default());
    let hooks = || Hooks::new(Arc::clone(&pods) as _, Arc::new(notes.clone()), Progress::default());
    // The first process dies after the command before the backup of q.
    let first = hooks();
    for name in ["p", "q"] {
        first.owe(&pod(name), &[hook("thaw")]).await.unwrap();
        first.before(&pod(name), &hook("freeze")).await.unwrap();
    }
    first.after(&pod("p"), &hook("thaw")).await.unwrap();
    first.paid(&pod("p")).await.unwrap();

    let taken = hooks().take_over(&notes.all()).await.unwrap();
    assert_eq!(pods.ran(), ["p freeze", "q freeze", "p thaw", "q thaw"]);
    let [error] = &taken.errors[..] else { panic!("{taken:?}") };
    assert!(error.contains("pod a/q") && error.contains("not known"), "{error}");
    assert!(taken.again.unwrap().contains("a/p, a/q"));
    // Nobody pays twice.
    assert!(hooks().take_over(&notes.all()).await.unwrap().errors.is_empty());
    assert_eq!(pods.ran().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_in_order_pays_at_once() {
    let (pods, notes) = (Arc::new(FakePods::running(&["p"])), Kept::default());
    let hooks = Hooks::new(Arc::clone(&pods) as _, Arc::new(notes.clone()), Progress::default());
    hooks.owe(&pod("p"), &[hook("thaw")]).await.unwrap();
    assert!(hooks.settle_here().await.is_empty());
    assert!(hooks.settle_here().await.is_empty());
    assert_eq!(pods.ran(), ["p thaw"]);
    assert!(Owed::of(&notes.all()).unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_never_noted_is_not_begun() {
    struct Full;
    impl JournalWriter for Full {
        fn append(&self, _: Value) -> BoxFuture<'_, Result<(), StoreError>> {
            let error = StoreError::Io { action: "write".to_owned(), detail: "full".to_owned() };
            Box::pin(std::future::ready(Err(error)))
        }
    }
    let hooks = Hooks::new(Arc::new(FakePods::running(&["p"])), Arc::new(Full), Progress::default());
    assert!(hooks.owe(&pod("p"), &[hook("thaw")]).await.is_err());
    assert!(hooks.owe(&pod("p"), &[]).await.is_ok(), "what nothing is owed for needs no note");
    assert!(hooks.settle_here().await.is_empty());
}

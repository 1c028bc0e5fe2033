//! The cost of looking at ledgers while nothing is claimed, and the events that cause an earlier
//! look.

use tokio::{task::JoinHandle, time::sleep};

use super::*;
use crate::{LedgerReconciler, RunningObjects, collect::look_period};

fn velero(api: &FakeApi) -> ProtectedProfile {
    ProtectedProfile::new(api.client(), "velero", Profile::velero(), GRACE)
}

/// Maintains the ledgers of a profile, as each program does.
pub(super) fn keep(protected: &ProtectedProfile) -> JoinHandle<()> {
    let mut reconciler = LedgerReconciler::new(protected.clone());
    let now = || tokio::time::Instant::now().into_std();
    tokio::spawn(async move {
        loop {
            reconciler.wait().await;
            for scope in reconciler.scopes([], now()).await.unwrap() {
                reconciler.look(&scope, now()).await.unwrap();
            }
        }
    })
}

/// An empty ledger after one minute of looks.
async fn idle() -> (FakeApi, ProtectedProfile) {
    let api = FakeApi::new();
    let protected = velero(&api);
    protected.store.open(VELERO_SCOPE).await.unwrap();
    keep(&protected);
    sleep(Duration::from_secs(65)).await;
    (api, protected)
}

#[tokio::test(start_paused = true)]
async fn an_idle_ledger_costs_two_requests_a_minute() {
    let (api, _) = idle().await;
    let (before, writes) = (api.log().len(), api.writes());
    sleep(Duration::from_mins(20)).await;
    let asked = api.log().split_off(before);
    // Twice the ledger itself is read as well, and checked again soon after.
    assert!(asked.len() <= 20 * 2 + 2 * 5, "{}: {asked:?}", asked.len());
    assert_eq!(api.writes(), writes);
}

#[tokio::test(start_paused = true)]
async fn a_claim_after_a_long_pause_is_looked_at_as_soon_as_any_other() {
    let (api, protected) = idle().await;
    sleep(Duration::from_secs(5)).await;
    admit(&protected.store, &backup("orphan"), "1")
        .await
        .unwrap();
    // First sight, suspicion and end, each within a period.
    sleep(GRACE + 3 * look_period(GRACE)).await;
    assert!(ledger(&protected.store).await.is_empty());
    assert!(api.get(&velero_path("Backup", "orphan")).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lost_ledger_that_somebody_needs_is_rebuilt_at_once() {
    let (api, protected) = idle().await;
    api.delete(LEDGER_PATH);
    assert_eq!(trouble(&protected.store).await, Some("rebuilding"));
    sleep(look_period(GRACE) + Duration::from_secs(1)).await;
    assert!(api.get(LEDGER_PATH).is_some(), "it was not looked after");
    sleep(GRACE + look_period(GRACE)).await;
    assert_eq!(trouble(&protected.store).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_lists_do_not_show_is_repaired_all_the_same() {
    let (api, protected) = idle().await;
    for path in [LEDGER_PATH, MARKER_PATH] {
        api.edit(path, |object| object["metadata"]["labels"] = json!({}));
    }
    api.edit(LEDGER_PATH, |lease| {
        lease["metadata"]["annotations"]["backup-lock/ledger"] = json!("{}");
    });
    sleep(Duration::from_mins(11) + GRACE).await;
    assert_eq!(trouble(&protected.store).await, None);
}

/// The ledger of a database cluster is temporary: it is checked until it is removed.
#[tokio::test(start_paused = true)]
async fn an_empty_ledger_of_a_profile_is_removed_although_nothing_happens() {
    let api = FakeApi::new();
    let protected = percona(&api);
    protected.store.open(PERCONA_SCOPE).await.unwrap();
    keep(&protected);
    sleep(Duration::from_mins(11)).await;
    assert!(api.get(&paths(PERCONA_SCOPE).0).is_none());
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_known_by_a_watch_and_asks_for_attention() {
    let api = FakeApi::new();
    let protected = velero(&api);
    let installations = crate::Installations::default();
    installations.update(["velero".to_owned()].into());
    let protected = protected.only_in(&installations);
    let (store, running) = (
        protected.store.clone(),
        std::sync::Arc::new(RunningObjects::default()),
    );
    api.put_velero("Backup", "before", "1", "InProgress", &all());
    api.put_velero("Backup", "ended", "2", "Completed", &all());
    let (followed, its_store) = (std::sync::Arc::clone(&running), store.clone());
    tokio::spawn(async move { followed.follow(&its_store).await });
    let names = async || {
        sleep(Duration::from_secs(1)).await;
        let seen = running.by_scope(store.objects()).into_values().flatten();
        let mut names: Vec<String> = seen.map(|seen| seen.key.name).collect();
        names.sort_unstable();
        names.join(" ")
    };
    let asks = async || {
        tokio::time::timeout(Duration::from_secs(1), store.attention())
            .await
            .is_ok()
    };
    assert_eq!(names().await, "before");
    assert!(asks().await && !asks().await);
    api.put_velero("Restore", "later", "3", "", &all());
    assert_eq!(names().await, "before later");
    assert!(asks().await);
    api.put_velero("Backup", "before", "1", "Completed", &all());
    assert_eq!(names().await, "later");
    assert!(!asks().await, "an end is released by whoever ends it");
    api.delete_velero("Restore", "later");
    assert_eq!(names().await, "");
    api.put("/apis/velero.io/v1/namespaces/elsewhere/backups/b", json!({
        "apiVersion": "velero.io/v1", "kind": "Backup", "metadata": {"name": "b", "namespace": "elsewhere", "uid": "4"}}));
    assert_eq!(names().await, "", "no installation works there");
}

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use backup_actions::{
    ActionError, AppliesTo, ItemAction, OperationProgress,
    backup::{BackupActionOutput, BackupItemAction},
};
use backup_core::operation::Counts;
use backup_core::{
    api::Backup,
    operation::{BackupOperation, BackupOperationSpec},
};
use tokio::time::Instant;

use super::*;
use backup_plugins::Host;

const HOUR: Duration = Duration::from_hours(1);

/// An action that answers by the first word of an operation's id.
#[derive(Default)]
struct Scripted {
    asked: Mutex<Vec<String>>,
    under_way: AtomicUsize,
    most: AtomicUsize,
}

impl ItemAction for Scripted {
    fn name(&self) -> &'static str {
        "test/scripted"
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo::default()
    }
}

#[async_trait]
impl BackupItemAction for Scripted {
    async fn execute(
        &self,
        _: &serde_json::Value,
        _: &Backup,
    ) -> Result<BackupActionOutput, ActionError> {
        Ok(BackupActionOutput::default())
    }

    async fn progress(
        &self,
        operation: &str,
        _: &Backup,
    ) -> Result<OperationProgress, ActionError> {
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.asked.lock().unwrap().push(operation.to_owned());
        let progress = OperationProgress::default();
        let answer = match operation.split('-').next().unwrap() {
            "done" => Ok(OperationProgress {
                completed: true,
                ..progress
            }),
            "hangs" => std::future::pending().await,
            "runs" => Ok(progress),
            "moves" => {
                let asked = i64::try_from(self.asked.lock().unwrap().len()).unwrap();
                Ok(OperationProgress {
                    done: asked,
                    total: 1000,
                    ..progress
                })
            }
            _ => Err(ActionError::Final {
                action: "test/scripted".into(),
                reason: "unknown id".into(),
            }),
        };
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    async fn cancel(&self, _: &str, _: &Backup) -> Result<(), ActionError> {
        Ok(())
    }
}

fn following(
    ids: &[&str],
    permits: usize,
    timeout: Duration,
) -> (OperationPoller<Backup>, Arc<Scripted>) {
    looked_at(&FlushRequests::default(), ids, permits, timeout)
}

/// An operation that has progressed at each call, every ten seconds.
pub(in crate::job::operations) fn moving(requests: &FlushRequests) -> OperationPoller<Backup> {
    looked_at(requests, &["moves"], 1, HOUR).0
}

fn looked_at(
    requests: &FlushRequests,
    ids: &[&str],
    permits: usize,
    timeout: Duration,
) -> (OperationPoller<Backup>, Arc<Scripted>) {
    let action = Arc::new(Scripted::default());
    let known: Arc<dyn BackupItemAction> = action.clone();
    let config = PollConfig {
        registry: Arc::new(Registry::new([known], [], Host::none())),
        permits: Arc::new(Semaphore::new(permits)),
        flush_requests: requests.clone(),
        pace: Pace::of(Duration::from_secs(10)),
        clock: Clock::Tokio(Instant::now()),
    };
    let operation = |id: &&str| BackupOperation {
        spec: BackupOperationSpec {
            operation_id: (*id).to_owned(),
            backup_item_action: if *id == "orphan" {
                "test/gone"
            } else {
                "test/scripted"
            }
            .to_owned(),
            ..BackupOperationSpec::default()
        },
        ..BackupOperation::default()
    };
    (
        OperationPoller::new(
            config,
            &Backup::default(),
            ids.iter().map(operation).collect(),
            timeout,
        ),
        action,
    )
}

async fn to_the_end(following: &mut OperationPoller<Backup>) -> Duration {
    let started = Instant::now();
    while !following.all_ended() {
        following.next().await;
    }
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_that_hangs_holds_no_other_and_ends_by_its_deadline() {
    let (mut following, _) = following(&["hangs", "done", "orphan", "odd"], 4, HOUR);
    let started = Instant::now();
    while following.counts().completed + following.counts().failed < 3 {
        following.next().await;
    }
    assert!(
        started.elapsed() <= Duration::from_secs(2),
        "{:?}",
        started.elapsed()
    );
    let took = to_the_end(&mut following).await;
    // Four calls that hang, each until its timeout: the one in flight, the last one, and two to
    // confirm.
    assert!(took <= HOUR + Duration::from_secs(4 * 30 + 1), "{took:?}");
    let ended = following.operations();
    assert!(
        ended[0]
            .status
            .error
            .starts_with("Asynchronous action timed out"),
        "{}",
        ended[0].status.error
    );
    assert_eq!(ended[1].status.phase.as_str(), "Completed");
    assert_says!(ended[2].status.error, "no action test/gone");
    assert_eq!(ended[3].status.error, "unknown id");
    assert_eq!(
        following.counts(),
        Counts {
            attempted: 4,
            completed: 1,
            failed: 3
        }
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_calls_are_under_way_than_allowed() {
    let ids: Vec<String> = (0..100).map(|n| format!("done-{n}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let (mut following, action) = following(&ids, 7, HOUR);
    let took = to_the_end(&mut following).await;
    assert_eq!(action.most.load(Ordering::SeqCst), 7);
    assert!(
        took <= Duration::from_secs(15 + 1),
        "a round is as long as the answers over the permits: {took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn all_of_them_can_be_stopped() {
    let (mut following, _) = following(&["runs-1", "runs-2"], 4, HOUR);
    following.next().await;
    following.stop();
    let took = to_the_end(&mut following).await;
    assert!(took <= Duration::from_mins(1), "{took:?}");
    assert!(
        following
            .operations()
            .iter()
            .all(|one| one.status.error.starts_with("cancelled"))
    );
}

#[tokio::test(start_paused = true)]
async fn none_is_over_at_once() {
    let (following, _) = following(&[], 1, HOUR);
    assert!(following.all_ended() && following.counts() == Counts::default());
}

#[tokio::test(start_paused = true)]
async fn a_round_is_over_when_each_that_runs_has_answered() {
    let (mut following, action) = following(&["done", "runs-1", "runs-2"], 1, HOUR);
    let asked = || action.asked.lock().unwrap().len();
    let mut over = Vec::new();
    while over.len() < 3 {
        following.next().await;
        if following.rounds() > over.len() as u64 {
            over.push(asked());
        }
    }
    assert_eq!(over, [3, 5, 7], "all three, then the two that run");
}

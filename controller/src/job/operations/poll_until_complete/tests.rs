use backup_core::operation::BackupOperation;

use backup_runtime::leader::Leadership;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::job::operations::{flush_requests::FlushRequests, poller::tests::moving};

/// Times at which a state was stored, and the progress of the operation then.
#[derive(Default)]
struct Record(Vec<(u64, i64)>);

impl StateStore<BackupOperation> for Record {
    type Error = StopReason;

    async fn store(&mut self, operations: &[BackupOperation]) -> Result<StoreResult, StopReason> {
        self.0.push((now(), operations[0].status.n_completed));
        Ok(StoreResult::Yes)
    }

    async fn publish(&mut self, _: &[BackupOperation]) -> Result<(), StopReason> {
        Ok(())
    }
}

thread_local! {
    static BEGIN: Instant = Instant::now();
}

/// Seconds since the test began.
fn now() -> u64 {
    BEGIN.with(Instant::elapsed).as_secs()
}

/// The states stored in a hundred seconds in which users look at these times.
async fn kept(looks_at: &[u64]) -> Vec<(u64, i64)> {
    now();
    let requests = FlushRequests::default();
    let (mut poller, mut record) = (moving(&requests), Record::default());
    let people = async {
        for second in looks_at {
            tokio::time::sleep(Duration::from_secs(second - now())).await;
            requests.flush("").await;
            assert_eq!(now(), *second, "somebody waited");
        }
    };
    let cancellation = Cancellation::new(Leadership::always(), CancellationToken::new());
    let end = async {
        tokio::time::sleep(Duration::from_secs(100)).await;
        cancellation.delete();
    };
    let (stopped, (), ()) = tokio::join!(
        poll_until_complete(&mut poller, &mut record, &cancellation),
        people,
        end
    );
    assert_eq!(stopped, Err(StopReason::Deleted));
    record.0
}

#[tokio::test(start_paused = true)]
async fn what_comes_further_is_kept_once_a_minute() {
    assert_eq!(kept(&[]).await, [(60, 6)]);
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_sees_what_is_known_and_nothing_is_kept_twice() {
    // The second look is in the same second, and nothing was learned before the last one.
    assert_eq!(kept(&[25, 25, 47, 49]).await, [(25, 3), (47, 5)]);
}

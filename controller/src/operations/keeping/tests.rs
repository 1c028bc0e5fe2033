use backup_core::operation::BackupOperation;

use super::*;
use crate::operations::{following::tests::moving, looks::Looks};

/// When a state was kept, and how far the operation had come.
#[derive(Default)]
struct Record(Vec<(u64, i64)>);

impl Keeper<BackupOperation> for Record {
    type Trouble = ();

    fn check(&self) -> Result<(), ()> {
        Ok(())
    }

    async fn keep(&mut self, operations: &[BackupOperation]) -> Result<Kept, ()> {
        self.0.push((now(), operations[0].status.n_completed));
        Ok(Kept::Done)
    }

    async fn show(&mut self, _: &[BackupOperation]) -> Result<(), ()> {
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

/// What is kept in a hundred seconds in which somebody looks at these.
async fn kept(looks_at: &[u64]) -> Vec<(u64, i64)> {
    now();
    let looks = Looks::default();
    let (mut following, mut record) = (moving(&looks), Record::default());
    let people = async {
        for second in looks_at {
            tokio::time::sleep(Duration::from_secs(second - now())).await;
            looks.look("").await;
            assert_eq!(now(), *second, "somebody waited");
        }
    };
    let end = tokio::time::sleep(Duration::from_secs(100));
    let (seen, ()) =
        tokio::join!(see_to_the_end(&mut following, &mut record, end, std::future::pending()), people);
    assert_eq!(seen, Ok(Seen::Pulled));
    record.0
}

#[tokio::test(start_paused = true)]
async fn what_comes_further_is_kept_once_a_minute() {
    assert_eq!(kept(&[]).await, [(60, 6)]);
}

#[tokio::test(start_paused = true)]
async fn whoever_looks_sees_what_is_known_and_nothing_is_kept_twice() {
    // The second look comes in the same second, and nothing was learned before the last.
    assert_eq!(kept(&[25, 25, 47, 49]).await, [(25, 3), (47, 5)]);
}

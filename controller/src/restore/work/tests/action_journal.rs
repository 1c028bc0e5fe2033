//! Journal entries around the calls of an action that may start something.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use backup_actions::{ActionError, AppliesTo, ItemAction, restore::RestoreActionInput};
use backup_runtime::leader::Leadership;
use backup_store::{EntryPosition, Location};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::job::journal::JobJournal;

/// Number of items; two of them may be noted without an end.
const ITEMS: usize = 200;

/// Starts an operation for each item.
struct Operating {
    location: Location,
    /// Whether it reads the journal first, which takes longer than a write.
    looks: bool,
    at_work: AtomicUsize,
    /// Maximum number of items noted without an end that it has seen.
    open: AtomicUsize,
    called: Mutex<Vec<String>>,
    /// Cancelled by the item of this number.
    stop: Option<(usize, CancellationToken)>,
}

impl Operating {
    fn new(location: &Location, stop: Option<(usize, CancellationToken)>) -> Arc<Self> {
        Arc::new(Self {
            looks: true,
            stop,
            ..Self::quick(location)
        })
    }

    fn quick(location: &Location) -> Self {
        let (at_work, open) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self {
            location: location.clone(),
            looks: false,
            at_work,
            open,
            called: Mutex::default(),
            stop: None,
        }
    }
}

impl ItemAction for Operating {
    fn name(&self) -> &'static str {
        "x/operating"
    }

    fn applies_to(&self) -> AppliesTo {
        AppliesTo {
            included_resources: vec!["configmaps".to_owned()],
            ..AppliesTo::default()
        }
    }
}

#[async_trait]
impl RestoreItemAction for Operating {
    fn is_executed_once(&self) -> bool {
        true
    }

    async fn execute(
        &self,
        input: RestoreActionInput<'_>,
    ) -> Result<RestoreActionOutput, ActionError> {
        assert_eq!(
            self.at_work.fetch_add(1, Ordering::SeqCst),
            0,
            "one item at a time"
        );
        let name = json::text(input.item, &["metadata"], "name")
            .unwrap()
            .to_owned();
        if self.looks {
            let (begun, ended) = noted(&self.location).await;
            assert!(
                begun.contains(&name) && !ended.contains(&name),
                "{name} is not noted"
            );
            self.open
                .fetch_max(begun.len() - ended.len(), Ordering::SeqCst);
        }
        let called = {
            let mut called = self.called.lock();
            called.push(name.clone());
            called.len()
        };
        if let Some((last, stop)) = &self.stop
            && called == *last
        {
            stop.cancel();
        }
        self.at_work.fetch_sub(1, Ordering::SeqCst);
        Ok(RestoreActionOutput {
            operation: Some(name),
            ..RestoreActionOutput::default()
        })
    }
}

/// Turns of a restore of many items.
fn many() -> PluginTurns {
    let turns = PluginTurns::default();
    turns.expect(10_000);
    turns
}

/// Items whose actions have begun, and items whose actions have ended, by the journal.
async fn noted(location: &Location) -> (BTreeSet<String>, BTreeSet<String>) {
    let (_, notes) = location
        .journal::<Restore>("r", "u", |_, _| {})
        .await
        .unwrap();
    let names = |what: &str| {
        let names = notes
            .iter()
            .filter_map(|note| note[what]["item"]["name"].as_str());
        names.map(str::to_owned).collect()
    };
    (names("actionBegun"), names("actionEnded"))
}

/// Number of keys of the journal.
async fn writes(location: &Location) -> usize {
    let key = |position: EntryPosition, note: &mut Value| *note = json!(position.key);
    let (_, keys) = location.journal::<Restore>("r", "u", key).await.unwrap();
    keys.iter()
        .filter_map(Value::as_u64)
        .collect::<BTreeSet<_>>()
        .len()
}

async fn operated(
    calls: &Calls,
    fake: &FakeApi,
    action: &Arc<Operating>,
    turns: PluginTurns,
) -> Result<Vec<StartedOperation>, RestoreError> {
    let items: Vec<_> = (0..ITEMS)
        .map(|number| {
            (
                "configmaps",
                Some("a"),
                item("v1", "ConfigMap", &format!("c{number}")),
            )
        })
        .collect();
    let claimed = Footprint::everything();
    let journal = action.location.new_journal::<Restore>("r", "u").unwrap();
    let journal = Arc::new(JobJournal::new(journal, Leadership::always()));
    let plugins = vec![Arc::clone(action) as _];
    let world = World {
        plugins,
        journal,
        turns,
        ..World::new(fake, calls, &claimed)
    };
    world.run(&items, json!({})).await.1
}

#[tokio::test]
async fn an_item_is_noted_before_its_call_and_after_it() {
    for (turns, most) in [(PluginTurns::default(), 2), (many(), MAX_OPEN_ITEMS)] {
        let (_folder, location, _) = backup::stored(&[]).await;
        let (fake, action) = (fake::server(), Operating::new(&location, None));
        let started = operated(&fake::calls(&fake), &fake, &action, turns)
            .await
            .unwrap();
        assert_eq!((started.len(), action.called.lock().len()), (ITEMS, ITEMS));
        let (begun, ended) = noted(&location).await;
        assert_eq!((begun.len(), ended.len()), (ITEMS, ITEMS));
        // Items that a crash would leave open.
        let open = action.open.load(Ordering::SeqCst);
        assert!(open <= most && open > most / 2, "{open} of {most}");
    }
}

#[tokio::test]
async fn items_that_wait_for_the_journal_share_its_writes() {
    let (_folder, location, _) = backup::stored(&[]).await;
    let (fake, action) = (fake::server(), Arc::new(Operating::quick(&location)));
    let turns = many();
    operated(&fake::calls(&fake), &fake, &action, turns)
        .await
        .unwrap();
    let (begun, ended) = noted(&action.location).await;
    assert_eq!((begun.len(), ended.len()), (ITEMS, ITEMS));
    let writes = writes(&action.location).await;
    assert!(writes <= 16, "{writes} writes of {} notes", 2 * ITEMS);
}

/// A stopping replica leaves no item open whose action it has not called.
#[tokio::test]
async fn what_was_noted_and_not_called_has_an_end_when_work_stops() {
    let (_folder, location, _) = backup::stored(&[]).await;
    let (fake, stop) = (fake::server(), CancellationToken::new());
    let action = Operating::new(&location, Some((50, stop.clone())));
    let turns = many();
    let done = operated(&fake::calls_until(&fake, stop), &fake, &action, turns).await;
    assert!(
        matches!(done, Err(RestoreError::Stopped(StopReason::ShuttingDown))),
        "{done:?}"
    );
    let (begun, ended) = noted(&location).await;
    assert!(
        begun.len() > 50 && action.called.lock().len() == 50,
        "{} begun",
        begun.len()
    );
    assert_eq!(begun, ended);
}

//! Looks after the ledgers while this replica leads: frees claims that nobody holds any more, rebuilds ledgers that were
//! lost, and finds objects that run without a claim.

mod unclaimed;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use backup_lock::{Collector, Guard, Keeper, LedgerError, VELERO_SCOPE};

use crate::context::Context;
use unclaimed::Unclaimed;

/// Between passes at most. The end of a backup or restore releases its claim at once; this is for what was missed.
const PERIOD: Duration = Duration::from_secs(10);
/// For one pass, however many claims there are.
const DEADLINE: Duration = Duration::from_mins(1);
/// An empty ledger of a profile is removed after this; Velero's stays.
const IDLE: Duration = Duration::from_mins(10);

/// What is remembered about the ledgers of a profile between passes.
struct Memory {
    guard: Guard,
    keeper: Keeper,
    collectors: HashMap<String, Collector>,
    unclaimed: Unclaimed,
}

/// Runs until the process is asked to end.
pub(crate) async fn run(ctx: Context) -> anyhow::Result<()> {
    let grace = ctx.args.orphan_grace.as_std();
    let period = (grace / 8).clamp(Duration::from_millis(250), PERIOD);
    let new = |guard: &Guard| Memory {
        guard: guard.clone(),
        keeper: Keeper::new(grace, IDLE),
        collectors: HashMap::new(),
        unclaimed: Unclaimed::default(),
    };
    let mut memories: Vec<Memory> = ctx.guards.iter().map(new).collect();
    loop {
        tokio::select! {
            () = ctx.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(period) => {}
        }
        for memory in &mut memories {
            if !ctx.leadership.is_leader() {
                continue;
            }
            let profile = memory.guard.profile.name.clone();
            match tokio::time::timeout(DEADLINE, pass(&ctx, memory)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(profile, category = error.category(), %error, "ledgers were not looked at");
                }
                Err(_) => tracing::warn!(profile, "ledgers were not looked at in time; trying again"),
            }
        }
    }
}

async fn pass(ctx: &Context, memory: &mut Memory) -> Result<(), LedgerError> {
    let Memory { guard, keeper, collectors, unclaimed } = memory;
    let mut scopes = guard.store.scopes().await?;
    scopes.extend(guard.store.objects().scopes().await?);
    if guard.profile.group == VELERO_SCOPE {
        scopes.insert(VELERO_SCOPE.to_owned());
    }
    collectors.retain(|scope, _| scopes.contains(scope));
    for scope in &scopes {
        // One that fails does not stop the others; it has told why.
        let now = Instant::now();
        let collector = collectors.entry(scope.clone()).or_insert_with(|| guard.collector());
        let look = async {
            keeper.tend(&guard.store, scope, now).await?;
            collector.collect(&guard.store, scope, now).await?;
            unclaimed.look(ctx, guard, scope).await
        };
        if let Err(error) = look.await {
            tracing::warn!(scope, category = error.category(), %error, "a ledger was not looked at");
        }
    }
    unclaimed.forget(&ctx.metrics, &guard.profile.name);
    Ok(())
}

//! Reconciles the ledgers while this replica leads: frees claims that nobody holds any more, rebuilds ledgers that were
//! lost, and finds objects that run without a claim.

mod unclaimed;

use std::time::{Duration, Instant};

use backup_lock::{LedgerError, LedgerReconciler, ProtectedProfile};

use crate::context::Context;
use unclaimed::Unclaimed;

/// For one pass, however many claims there are.
const DEADLINE: Duration = Duration::from_mins(1);

/// Runs until the process is asked to end.
pub(crate) async fn run(ctx: Context) -> anyhow::Result<()> {
    let period = LedgerReconciler::period(ctx.args.orphan_grace.as_std());
    let new = |guard: &ProtectedProfile| (LedgerReconciler::new(guard.clone()), Unclaimed::default());
    let mut memories: Vec<(LedgerReconciler, Unclaimed)> = ctx.guards.iter().map(new).collect();
    loop {
        tokio::select! {
            () = ctx.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(period) => {}
        }
        for (reconciler, unclaimed) in &mut memories {
            if !ctx.cluster.leadership.is_leader() {
                continue;
            }
            let profile = reconciler.protected().profile.name.clone();
            match tokio::time::timeout(DEADLINE, pass(&ctx, reconciler, unclaimed)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(profile, category = error.category(), %error, "ledgers were not looked at");
                }
                Err(_) => tracing::warn!(profile, "ledgers were not looked at in time; trying again"),
            }
        }
    }
}

async fn pass(
    ctx: &Context,
    reconciler: &mut LedgerReconciler,
    unclaimed: &mut Unclaimed,
) -> Result<(), LedgerError> {
    let guard = reconciler.protected().clone();
    let mut running = guard.store.objects().running(None).await?;
    for scope in reconciler.scopes(running.keys().cloned()).await? {
        // One that fails does not stop the others; it has told why.
        let look = async {
            reconciler.look(&scope, Instant::now()).await?;
            unclaimed.look(ctx, &guard, &scope, running.remove(&scope).unwrap_or_default()).await
        };
        if let Err(error) = look.await {
            tracing::warn!(scope, category = error.category(), %error, "a ledger was not looked at");
        }
    }
    unclaimed.forget(&ctx.metrics, &guard.profile.name);
    Ok(())
}

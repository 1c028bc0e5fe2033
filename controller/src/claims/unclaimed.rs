//! Objects that run without a claim: created while the webhook was off, or stored long after they were admitted. They are
//! claimed where nobody is in their way, and reported where somebody is. And phases that nobody knows: those objects hold
//! their place, and may do so for ever.

use std::collections::HashSet;

use backup_lock::{LedgerError, ProtectedProfile, State, ledger::Ask, observe::Observed};
use tokio::time::{Duration, Instant};

use crate::{context::Context, metrics::Metrics};

/// For one change of a ledger.
const BUDGET: Duration = Duration::from_secs(10);
/// Objects remembered as reported; beyond it they are reported again.
const MAX_REPORTED: usize = 10_000;

/// What was reported, and what this pass has found.
#[derive(Default)]
pub struct Unclaimed {
    reported: HashSet<(String, &'static str)>,
    conflicting: usize,
    unknown: usize,
}

impl Unclaimed {
    /// FlushRequests at all that runs in a scope.
    pub async fn look(
        &mut self,
        ctx: &Context,
        guard: &ProtectedProfile,
        scope: &str,
        running: Vec<Observed>,
    ) -> Result<(), LedgerError> {
        if running.is_empty() {
            return Ok(());
        }
        let Some(stored) = guard.store.read(scope).await? else { return Ok(()) };
        for seen in running {
            if !seen.known {
                self.unknown += 1;
                let why = format!(
                    "this version does not know the phase {:?}: it counts as running, and keeps its place in the lock \
                     until it has ended or `kubectl backup locks release` takes it",
                    seen.phase
                );
                self.report(ctx, guard, &seen, "UnknownPhase", &why);
            }
            let entry = stored.ledger.entry(&seen.key, &seen.uid);
            if entry.is_some_and(|entry| entry.state >= State::Waiting) {
                continue;
            }
            // It may have ended, and given its place back, since it was listed.
            match guard.store.objects().read(&seen.key).await {
                Ok(Some(now)) if now.uid == seen.uid && !now.over => {}
                Ok(_) => continue,
                Err(error) => return Err(error.into()),
            }
            let footprint = guard.store.objects().footprint(&seen.key, &seen.spec).await?;
            let change = |ledger: &mut backup_lock::Ledger| {
                let admitted = ledger.admit(&seen.key, &seen.uid, &footprint, &seen.created, &Ask::default());
                // Ours is not started, and keeps nobody out. Another operator's runs already.
                if admitted.is_err() && !guard.profile.engine {
                    ledger.adopt(&seen.key, &seen.uid, &footprint, seen.state(), &seen.created);
                }
                admitted.err().map(|refusal| refusal.to_string())
            };
            let refusal = guard.store.change(scope, Instant::now() + BUDGET, change).await?;
            match refusal {
                None => {
                    tracing::info!(key = %seen.key, uid = seen.uid, "claimed an object that had no claim");
                }
                Some(refusal) => {
                    self.conflicting += 1;
                    let note = format!("it runs without a place in the lock, beside others: {refusal}");
                    self.report(ctx, guard, &seen, "Unclaimed", &note);
                }
            }
        }
        Ok(())
    }

    /// Ends a pass.
    pub fn forget(&mut self, metrics: &Metrics, profile: &str) {
        metrics.lock(profile, self.conflicting, self.unknown);
        (self.conflicting, self.unknown) = (0, 0);
    }

    fn report(
        &mut self,
        ctx: &Context,
        guard: &ProtectedProfile,
        seen: &Observed,
        reason: &'static str,
        note: &str,
    ) {
        if self.reported.len() >= MAX_REPORTED {
            self.reported.clear();
        }
        if !self.reported.insert((seen.uid.clone(), reason)) {
            return;
        }
        tracing::warn!(key = %seen.key, uid = seen.uid, reason, note);
        if let Some(object) = backup_lock::observe::reference(&guard.profile, &seen.key, &seen.uid) {
            ctx.cluster.events.warning_on(object, reason, note);
        }
    }
}

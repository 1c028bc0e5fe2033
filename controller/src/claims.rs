//! Maintains the ledgers while this replica leads: releases claims of objects that are gone,
//! rebuilds ledgers that were lost, and finds objects that run without a claim (created while the
//! webhook was off, or stored long after they were admitted). These get a claim if nothing
//! conflicts with it, and are reported otherwise. Objects in an unknown phase keep their claim,
//! possibly for ever, and are reported, too.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use backup_core::event_reason::EventReason;
use backup_lock::{
    Entry, Ledger, LedgerError, LedgerReconciler, ProtectedProfile, RunningObjects, ledger::Ask,
    observe::ObservedObject, reconciler::collect_gone,
};
use backup_runtime::Cluster;
use futures::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// Timeout of one pass, for any number of claims.
const PASS_DEADLINE: Duration = Duration::from_mins(1);
/// Time limit for one change of a ledger.
const RETRY_BUDGET: Duration = Duration::from_secs(10);
/// Delay before the claims of deleted objects are checked again, after an error or while another
/// replica leads.
const GONE_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of objects remembered as reported; then all are reported again.
const MAX_REPORTED: usize = 10_000;

pub(crate) struct ClaimsController {
    pub(crate) cluster: Cluster,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) protected: Arc<[ProtectedProfile]>,
}

/// A protected profile, and the state of the passes over it.
struct Profile {
    ledgers: LedgerReconciler,
    /// Uid and reason of each report.
    reported: HashSet<(String, EventReason)>,
    conflicting: u64,
    unknown: u64,
}

impl ClaimsController {
    /// Runs until the process is asked to end.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let all = self.protected.iter().map(async |protected| {
            let running = RunningObjects::default();
            tokio::join!(
                running.follow(&protected.store),
                self.look_after(protected, &running),
                self.free_gone(protected, &running)
            );
        });
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(all) => {}
        }
    }

    /// Maintains the ledgers of a profile; never returns.
    async fn look_after(&self, protected: &ProtectedProfile, running: &RunningObjects) {
        let mut profile = Profile {
            ledgers: LedgerReconciler::new(protected.clone()),
            reported: HashSet::new(),
            conflicting: 0,
            unknown: 0,
        };
        let name = &protected.profile.name;
        loop {
            profile.ledgers.wait().await;
            if !self.cluster.leadership.is_leader() {
                continue;
            }
            let running = running.by_scope(protected.store.objects());
            match tokio::time::timeout(PASS_DEADLINE, self.pass(&mut profile, running)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let category = error.category();
                    tracing::warn!(profile = name, category, %error, "ledgers were not checked");
                }
                Err(_) => {
                    tracing::warn!(
                        profile = name,
                        "ledgers were not checked in time; trying again"
                    );
                }
            }
        }
    }

    /// Frees the claims of objects as soon as a watch shows that they are gone; never returns. A
    /// replica that does not lead records them, and frees their claims once it leads.
    async fn free_gone(&self, protected: &ProtectedProfile, running: &RunningObjects) {
        loop {
            while !self.cluster.leadership.is_leader() {
                tokio::time::sleep(GONE_RETRY_INTERVAL).await;
            }
            let mut failed = false;
            for (scope, gone) in running.gone(protected.store.objects()).await {
                if let Err(error) = collect_gone(protected, &scope, &gone).await {
                    tracing::warn!(scope, category = error.category(), %error, "claims of deleted objects were not freed");
                    running.note_gone(gone);
                    failed = true;
                }
            }
            if failed {
                tokio::time::sleep(GONE_RETRY_INTERVAL).await;
            }
        }
    }

    async fn pass(
        &self,
        profile: &mut Profile,
        mut running: BTreeMap<String, Vec<ObservedObject>>,
    ) -> Result<(), LedgerError> {
        let protected = profile.ledgers.protected().clone();
        let now = std::time::Instant::now();
        for scope in profile.ledgers.scopes(running.keys().cloned(), now).await? {
            // An error in one scope does not stop the others.
            let checked = async {
                profile
                    .ledgers
                    .look(&scope, std::time::Instant::now())
                    .await?;
                let running = running.remove(&scope).unwrap_or_default();
                self.claim_unclaimed(profile, &protected, &scope, running)
                    .await
            };
            if let Err(error) = checked.await {
                tracing::warn!(scope, category = error.category(), %error, "a ledger was not checked");
            }
        }
        self.metrics.lock(
            &protected.profile.name,
            profile.conflicting,
            profile.unknown,
        );
        profile.conflicting = 0;
        profile.unknown = 0;
        Ok(())
    }

    /// Claims a place for each object that runs in a scope without one.
    async fn claim_unclaimed(
        &self,
        profile: &mut Profile,
        protected: &ProtectedProfile,
        scope: &str,
        running: Vec<ObservedObject>,
    ) -> Result<(), LedgerError> {
        if running.is_empty() {
            return Ok(());
        }
        let Some(stored) = protected.store.read(scope).await? else {
            return Ok(());
        };
        for seen in running {
            if !seen.known {
                profile.unknown += 1;
                let why = format!(
                    "this version does not know the phase {:?}: it counts as running, and keeps its place in the lock \
                     until it has ended or `kubectl backup locks release` takes it",
                    seen.phase
                );
                self.report(profile, protected, &seen, EventReason::UnknownPhase, &why);
            }
            let entry = stored.ledger.entry(&seen.key, &seen.uid);
            // A claim that an operator released by force stays released.
            if entry.is_some_and(Entry::has_its_place) {
                continue;
            }
            // It may have ended, and released its place, since it was seen.
            let now = protected.store.objects().read(&seen.key).await?;
            if now.is_none_or(|now| now.uid != seen.uid || now.over) {
                continue;
            }
            let footprint = protected
                .store
                .objects()
                .footprint(&seen.key, &seen.spec)
                .await?;
            let deadline = Instant::now() + RETRY_BUDGET;
            let refusal = protected
                .store
                .change(scope, deadline, |ledger: &mut Ledger| {
                    let admitted = ledger.admit(
                        &seen.key,
                        &seen.uid,
                        &footprint,
                        &seen.created,
                        &Ask::default(),
                    );
                    // An object of ours is not started, and blocks nothing. One of another operator
                    // runs already.
                    if admitted.is_err() && !protected.profile.engine {
                        ledger.adopt(
                            &seen.key,
                            &seen.uid,
                            &footprint,
                            seen.state(),
                            &seen.created,
                        );
                    }
                    admitted.err().map(|refusal| refusal.to_string())
                })
                .await?;
            match refusal {
                None => {
                    tracing::info!(key = %seen.key, uid = seen.uid, "claimed an object that had no claim");
                }
                Some(refusal) => {
                    profile.conflicting += 1;
                    let note =
                        format!("it runs without a place in the lock, beside others: {refusal}");
                    self.report(profile, protected, &seen, EventReason::Unclaimed, &note);
                }
            }
        }
        Ok(())
    }

    fn report(
        &self,
        profile: &mut Profile,
        protected: &ProtectedProfile,
        seen: &ObservedObject,
        reason: EventReason,
        note: &str,
    ) {
        if profile.reported.len() >= MAX_REPORTED {
            profile.reported.clear();
        }
        if !profile.reported.insert((seen.uid.clone(), reason)) {
            return;
        }
        tracing::warn!(key = %seen.key, uid = seen.uid, reason = reason.as_str(), note);
        if let Some(object) =
            backup_lock::observe::reference(&protected.profile, &seen.key, &seen.uid)
        {
            self.cluster.events.warning_on(object, reason, note);
        }
    }
}

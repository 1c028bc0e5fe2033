//! Reviews an object that needs a claim: whether its author may create it, what is asked of the
//! ledger, and the answer to the verdict.

use backup_core::{
    event_reason::EventReason,
    profile::{Mode, OnConflict, Profile, ScopeRule},
};
use backup_lock::{
    Footprint, ObjectKey, ObjectKind,
    admission::{ClaimRequest, Running},
    ledger::Ask,
    observe::{Objects, ObserveError, ObservedObject},
};
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::Status;
use tokio::time::{Instant, timeout_at};

use super::{Answer, Webhook, author::Author, in_time, is_of_installation, name_of};
use crate::{
    admit::{
        WantedClaim,
        denial::{self, Blocker, ConflictingRequest},
    },
    claims::{Claims, Verdict},
};

/// The review of an object that needs a claim.
pub(super) struct ClaimReview<'a> {
    pub(super) webhook: &'a Webhook,
    pub(super) claims: &'a Claims,
    pub(super) wanted: WantedClaim,
    pub(super) user: &'a UserInfo,
    pub(super) deadline: Instant,
}

impl ClaimReview<'_> {
    /// Claims a place. An error is a failure of the webhook.
    pub(super) async fn answer(&self) -> Result<Answer, String> {
        let WantedClaim {
            key, spec, scope, ..
        } = &self.wanted;
        let protected = self.claims.protected();
        let objects = protected.store.objects();
        let footprint = in_time(self.deadline, objects.footprint(key, spec));
        let is_owner = self.webhook.is_owner(protected, key, self.user);
        let is_owner = in_time(self.deadline, is_owner);
        let (footprint, is_taken, is_owner) =
            tokio::join!(footprint, self.name_is_taken(), is_owner);
        // Regardless of the object that has the name: a refused one is never stored, so it needs no
        // place.
        if is_taken? {
            let refusal = denial::exists(&protected.profile, key);
            return Ok(Answer::refuse(refusal, "invalid"));
        }
        let footprint = footprint?;
        let author = Author {
            user: self.user,
            is_owner: is_owner?,
        };
        if let Some(refusal) = self.lacking(&footprint, author).await? {
            return Ok(Answer::refuse(refusal, "denied"));
        }
        let mut ask = self.ask();
        if let Some(reason) = &self.wanted.break_glass {
            if !self.may_break_glass().await? {
                let group = &protected.profile.group;
                let refusal = denial::may_not_break(group, key, name_of(self.user));
                return Ok(Answer::refuse(refusal, "denied"));
            }
            ask.forced = Some(format!("{}: {reason}", name_of(self.user)));
            ask.urgent = true;
        }
        let broken = ask.forced.is_some();
        if protected.profile.policy.mode == Mode::Warn && !broken {
            // Our own controller waits for its turn; another operator starts at once.
            ask.queue = protected.profile.engine && !key.kind.is_deletion();
            ask.forced = (!ask.queue).then(|| "mode warn".to_owned());
        }
        let foreign = self.webhook.external_leases.holder(protected, scope);
        let foreign = in_time(self.deadline, foreign).await?;
        let request = self.claim_request(footprint.clone(), ask, foreign);
        let verdict = if self.wanted.dry_run {
            self.claims.evaluate(scope, request, self.deadline).await
        } else {
            self.claims.claim(scope, request, self.deadline).await
        };
        Ok(self.answer_to(verdict, &footprint, broken).await)
    }

    /// Whether the object is to be created, and another one of its name is stored.
    async fn name_is_taken(&self) -> Result<bool, String> {
        let WantedClaim {
            key, uid, revives, ..
        } = &self.wanted;
        if !revives.is_empty() || key.kind == ObjectKind::Deletion {
            return Ok(false);
        }
        let objects = self.claims.protected().store.objects();
        in_time(self.deadline, Box::pin(is_taken(objects, key, uid))).await
    }

    /// The refusal of an object that does what its author may not do directly.
    async fn lacking(
        &self,
        footprint: &Footprint,
        author: Author<'_>,
    ) -> Result<Option<Status>, String> {
        let WantedClaim { key, spec, .. } = &self.wanted;
        let protected = self.claims.protected();
        let lacking = self
            .webhook
            .lacking(protected, key, spec, footprint, author);
        if let Some(refusal) = in_time(self.deadline, Box::pin(lacking)).await? {
            return Ok(Some(refusal));
        }
        self.webhook
            .lacking_deletion(protected, key, spec, footprint, self.user, self.deadline)
            .await
    }

    /// The wishes of the request, apart from break-glass.
    fn ask(&self) -> Ask {
        let WantedClaim {
            key,
            on_conflict,
            revives,
            schedule,
            ..
        } = &self.wanted;
        let profile = &self.claims.protected().profile;
        Ask {
            queue: *on_conflict == OnConflict::Queue,
            insists: *on_conflict == OnConflict::Wait,
            creates: revives.is_empty() && !key.kind.is_deletion(),
            revives: revives.clone(),
            requester: requester(self.user, profile, key, schedule.as_deref()),
            ..Ask::default()
        }
    }

    async fn may_break_glass(&self) -> Result<bool, String> {
        let namespace = &self.wanted.key.namespace;
        let authorization = &self.webhook.authorization;
        let may = authorization.may_break_glass(self.user, namespace);
        in_time(self.deadline, may).await
    }

    /// The request to the ledger. `foreign` is the object that holds the lease of another operator.
    fn claim_request(
        &self,
        footprint: Footprint,
        ask: Ask,
        foreign: Option<ObservedObject>,
    ) -> ClaimRequest {
        let WantedClaim {
            key, uid, since, ..
        } = &self.wanted;
        let foreign = foreign.filter(|holder| holder.key != *key);
        let times = &self.claims.protected().times;
        ClaimRequest {
            key: key.clone(),
            uid: uid.clone(),
            footprint,
            since: since.clone(),
            intent: key.kind == ObjectKind::Restore && !times.intent.is_zero(),
            ask,
            running: foreign.map(|holder| Running {
                key: holder.key,
                uid: holder.uid,
                since: holder.created,
            }),
        }
    }

    /// The answer to a verdict of the ledger. `broken`: the user broke the glass.
    async fn answer_to(&self, verdict: Verdict, footprint: &Footprint, broken: bool) -> Answer {
        let WantedClaim {
            key, on_conflict, ..
        } = &self.wanted;
        let profile = &self.claims.protected().profile;
        let group = &profile.group;
        let asked = ConflictingRequest {
            group,
            key,
            footprint,
            whole_scope: !matches!(profile.scope, ScopeRule::Cluster),
            may_queue: profile.engine && key.kind == ObjectKind::Restore,
        };
        match verdict {
            Verdict::Granted => Answer::pass("admitted"),
            Verdict::Waiting(blockers) => {
                let turn = "is admitted, and starts once nothing is in its way";
                Answer::warn(denial::warning(key, &blockers, turn), "queued")
            }
            Verdict::Forced(blockers) if broken => self.broken_glass(&blockers),
            Verdict::Forced(blockers) => {
                let done = "would be refused if this were not mode warn";
                Answer::warn(denial::warning(key, &blockers, done), "warned")
            }
            Verdict::Blocked(blockers)
                if key.kind == ObjectKind::Deletion && self.is_terminating().await =>
            {
                let done = "goes with its namespace, beside";
                Answer::warn(denial::warning(key, &blockers, done), "passed")
            }
            Verdict::Blocked(blockers) => {
                let wait = *on_conflict == OnConflict::Wait;
                Answer::refuse(denial::conflict(asked, &blockers, wait), "denied")
            }
            Verdict::Full(why) => Answer::refuse(denial::full(group, key, &why), "denied"),
            Verdict::Trouble(why, seconds) => {
                Answer::refuse(denial::trouble(&why, seconds), "errored")
            }
        }
    }

    /// The answer to a user who broke the glass. An event records it.
    fn broken_glass(&self, blockers: &[Blocker]) -> Answer {
        let WantedClaim { key, uid, .. } = &self.wanted;
        let warning = denial::warning(key, blockers, "is admitted by break-glass beside");
        if !self.wanted.dry_run {
            let note = format!("{} by {}", warning, name_of(self.user));
            self.webhook.authorization.emit_event(
                &self.claims.protected().profile,
                key,
                uid,
                EventReason::BreakGlass,
                &note,
            );
        }
        Answer::warn(warning, "forced")
    }

    /// Whether the namespace of the object is being deleted: then none of its objects can be kept.
    async fn is_terminating(&self) -> bool {
        let objects = self.claims.protected().store.objects();
        let read = objects.namespace_is_terminating(&self.wanted.key.namespace);
        matches!(timeout_at(self.deadline, read).await, Ok(Ok(true)))
    }
}

/// Whether another object of this name is stored. If the API server does not accept the name, no
/// object has it.
async fn is_taken(objects: &Objects, key: &ObjectKey, uid: &str) -> Result<bool, ObserveError> {
    match objects.read(key).await {
        Ok(stored) => Ok(stored.is_some_and(|stored| stored.uid != uid)),
        Err(error) if error.is_final() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The requester whose share of the ledger an object counts against: the user, or the schedule if
/// an account of the object's installation created it for one; empty: none. Labels set by any other
/// user are not trusted.
pub(super) fn requester(
    user: &UserInfo,
    profile: &Profile,
    key: &ObjectKey,
    schedule: Option<&str>,
) -> String {
    let name = name_of(user);
    if !profile.is_velero() || !is_of_installation(name, &key.namespace) {
        return format!("user {name:?}");
    }
    schedule
        .map(|schedule| format!("schedule {}/{schedule}", key.namespace))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_persons_or_a_schedules_of_the_installation() {
        for (user, namespace, schedule, expected) in [
            ("alice", "velero", None, "user \"alice\""),
            ("alice", "velero", Some("forged"), "user \"alice\""),
            (
                "system:serviceaccount:velero:backup-controller",
                "velero",
                Some("nightly"),
                "schedule velero/nightly",
            ),
            (
                "system:serviceaccount:velero:backup-controller",
                "velero",
                None,
                "",
            ),
            (
                "system:serviceaccount:team:robot",
                "velero",
                Some("forged"),
                "user \"system:serviceaccount:team:robot\"",
            ),
        ] {
            let user = UserInfo {
                username: Some(user.to_owned()),
                ..UserInfo::default()
            };
            let key = ObjectKey::backup(namespace, "b");
            assert_eq!(
                requester(&user, &Profile::velero(), &key, schedule),
                expected
            );
        }
    }
}

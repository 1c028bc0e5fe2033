//! Turns of a schedule's backups, which verifications and drills take: when the next one is due, and
//! which backup has it.

mod decide;

use std::{collections::BTreeSet, time::Duration};

use backup_client::errors::found;
use backup_core::{
    api::{Backup, Schedule},
    labels::{self, annotation},
};
use backup_runtime::{Cluster, list, queue::Action};
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject},
};

use crate::{
    error::ReconcileError,
    location::{Locations, is_available},
};
pub(crate) use decide::{Candidate, Plan, Terms, has_files};

/// Maximum sleep of a schedule, as the clock may be set.
pub(crate) const MAX_SLEEP: Duration = Duration::from_mins(15);
/// Delay before a turn that is due, and not possible now, is tried again.
pub(crate) const RETRY_INTERVAL: Duration = Duration::from_mins(5);

/// Maximum difference between the clocks of two controllers that is ignored.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);

/// Whether a record of this time can be true. One of a clock that was wrong would otherwise count
/// until its time has come.
pub(crate) fn is_credible(at: Timestamp, now: Timestamp) -> bool {
    at.duration_since(now) <= MAX_CLOCK_SKEW
}

/// The schedule of this name; `None` if there is none that can be decoded. The controller of
/// schedules reports those that cannot.
pub(crate) async fn read_schedule(
    cluster: &Cluster,
    name: &str,
) -> Result<Option<Schedule>, kube::Error> {
    let kind = ApiResource::erase::<Schedule>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &kind);
    let object = found(api.get(name).await, name)?;
    Ok(object.and_then(|object| list::decode(&object).ok()))
}

/// Chooses the backup of a turn that is due: `next` is the result of [`Terms::next`], and the
/// annotation `last_turn` of the schedule records the last turn.
pub(crate) async fn plan(
    cluster: &Cluster,
    locations: &Locations,
    schedule: &Schedule,
    terms: &Terms,
    next: Option<Timestamp>,
    last_turn: &str,
    candidate: impl Fn(&Backup) -> Option<Candidate>,
) -> Result<Plan, ReconcileError> {
    let name = labels::valid_value(&schedule.name_any());
    let label = format!("{}={name}", labels::SCHEDULE_NAME);
    let candidates = list::raw::<Backup, _>(cluster, &label, |object| {
        candidate(&list::decode::<Backup>(&object).ok()?)
    })
    .await?;
    let locations = locations.all().await?;
    let readable: BTreeSet<String> = locations
        .iter()
        .filter(|location| is_available(location))
        .map(ResourceExt::name_any)
        .collect();
    let seed = seed(schedule, last_turn);
    Ok(decide::decide(terms, next, &seed, candidates, |location| {
        readable.contains(location)
    }))
}

/// The same for each attempt of one turn: the annotation `last_turn` records the last turn.
pub(crate) fn seed(schedule: &Schedule, last_turn: &str) -> String {
    let last = annotation(schedule, last_turn).unwrap_or_default();
    format!("{}/{last}", schedule.uid().unwrap_or_default())
}

pub(crate) fn sleep_until(at: Timestamp, now: Timestamp) -> Action {
    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
    Action::RequeueAfter(left.min(MAX_SLEEP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_more_than_a_minute_ahead_comes_from_a_wrong_clock() {
        let now = Timestamp::UNIX_EPOCH;
        let ahead = |seconds| now + SignedDuration::from_secs(seconds);
        assert!(is_credible(ahead(60), now));
        assert!(!is_credible(ahead(61), now));
    }
}

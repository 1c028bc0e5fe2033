//! Judges the record of a history by the promises of the design, and by nothing of the code under
//! test.

mod outcomes;

use std::{fmt, time::Duration};

use super::{
    plan::Kind,
    record::{Answer, At, Attempt, Life, Record, Span, Standing, Work, Write},
    whose::installation,
};

pub(crate) use outcomes::OPERATIONS;

/// Delay with which the kit may see a creation: etcd reports it a little after it was stored.
const SLACK: Duration = Duration::from_secs(2);
/// Longest time for which work may continue after a forced release of its claim, plus a request of
/// it that is under way then and seen late.
const STOPS_WITHIN: Duration = Duration::from_millis(2000 + 1300);
/// Longest stop of an API server: a request that had reached it may be stored that much later.
const STANDS_STILL: Duration = Duration::from_secs(6);
/// Time between the check for an object and the write that collects its claim. An object stored in
/// between counts as late, too: only the order of both tells it from one stored a moment later, and
/// neither may work. Less than a second, but 3.1 s when 40 processes shared two cores.
const LOOK_AND_WRITE: Duration = Duration::from_secs(5);

/// How long other replicas wait after a leader's Lease was deleted, and how long the old leader may
/// continue.
const LEASE: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(10));

/// What the checker needs to know about the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Minimum age at which a claim is collected as an orphan.
    pub grace: Duration,
    /// Longest time that a claim may be held after its work has ended, or its object is gone or was
    /// never stored.
    pub freed_within: Duration,
    /// Whether working objects have claims: false behind the naive webhook.
    pub claims: bool,
    /// Whether real controllers run.
    pub controllers: bool,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub promise: Promise,
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Promise {
    /// P1: no two conflicting objects work at the same time.
    WorkApart,
    /// P1: of two conflicting creations at most one is admitted while the other's claim is held.
    AdmittedApart,
    /// P2: a denied creation is never stored.
    DeniedNeverStored,
    /// P2: every claim is freed in bounded time.
    Freed,
    /// P3: a refusal names an object that was there.
    RefusedForAReason,
    /// P1: work begins, and a restore writes, only while the claim is held.
    UnderClaim,
    /// P1: only one controller of an installation works, also when the leader's Lease was deleted.
    OneLeader,
    /// P2: a creation under a name that is stored gets no place in the ledger.
    StoredNameTakesNothing,
    /// A dry run writes nothing.
    DryRunWritesNothing,
    /// Answers to clients are true.
    ToldTheTruth,
    /// P4: `Completed` and `PartiallyFailed` mean that contents and metadata are in the bucket.
    EndIsStored,
    /// P5: phases only move forward.
    PhasesForward,
    /// P6 and P7: an outage or a crash is no reason to fail.
    FailedForAReason,
    /// P8: operations end.
    OperationsEnd,
    /// P9: synchronisation starts, revives and removes no object wrongly.
    SafeSync,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

fn broken(promise: Promise, what: String) -> Violation {
    Violation { promise, what }
}

/// All promises that this history shows to be broken.
pub(crate) fn check(record: &Record, rules: Rules) -> Vec<Violation> {
    let mut found = Vec::new();
    work_apart(record, rules, &mut found);
    if rules.claims {
        under_claim(record, &mut found);
        stored_name_takes_nothing(record, &mut found);
    }
    one_leader(record, &mut found);
    admitted_apart(record, rules, &mut found);
    denied_never_stored(record, &mut found);
    freed(record, rules, &mut found);
    refused_for_a_reason(record, &mut found);
    dry_run_writes_nothing(record, &mut found);
    told_the_truth(record, &mut found);
    outcomes::ends_are_stored(record, &mut found);
    outcomes::phases_move_forward(record, &mut found);
    outcomes::failed_for_a_reason(record, rules, &mut found);
    outcomes::operations_end(record, rules, &mut found);
    outcomes::synchronisation_is_safe(record, &mut found);
    found
}

/// Number of pairs of conflicting creations of which the later was sent before the object of the
/// earlier was over. A history without any shows nothing.
pub(crate) fn conflicts(record: &Record) -> usize {
    let real: Vec<&Attempt> = record
        .attempts
        .iter()
        .filter(|attempt| !attempt.dry_run)
        .collect();
    let over = |attempt: &Attempt| match &attempt.answer {
        Answer::Done { uid } => record.lives.get(uid).map_or(attempt.answered, |life| {
            life.over().map_or(record.closed, |at| at.time)
        }),
        _ => attempt.answered,
    };
    let meet = |one: &Attempt, other: &Attempt| one.sent <= over(other) && other.sent <= over(one);
    pairs(&real)
        .filter(|(one, other)| one.object.collides(&other.object) && meet(one, other))
        .count()
}

/// Late arrivals: objects that were stored when their claim had been collected, or was about to be.
pub(crate) fn late_arrivals(record: &Record, rules: Rules) -> usize {
    record
        .lives
        .values()
        .filter(|life| landed_late(record, life, rules))
        .count()
}

fn pairs<T>(all: &[T]) -> impl Iterator<Item = (&T, &T)> {
    all.iter()
        .enumerate()
        .flat_map(|(index, one)| all[index + 1..].iter().map(move |other| (one, other)))
}

/// (1) Intervals of work, on one clock.
fn work_apart(record: &Record, rules: Rules, found: &mut Vec<Violation>) {
    // A guarded operator starts late arrivals, too: the grace has to be longer than any request
    // takes.
    let late = |work: &Work| {
        let mut lives = record.lives.values().filter(|life| life.uid == work.uid);
        lives.any(|life| life.guarded && landed_late(record, life, rules))
    };
    let before_end = |begin: Duration, of: &Work| of.end.is_none_or(|end| begin < end);
    for (one, other) in pairs(&record.work) {
        if one.uid == other.uid || !one.object.collides(&other.object) || late(one) || late(other) {
            continue;
        }
        if before_end(one.begin, other) && before_end(other.begin, one) {
            found.push(broken(
                Promise::WorkApart,
                format!("{one:?} and {other:?} were at work together"),
            ));
        }
        if !fenced(one, other) {
            found.push(broken(
                Promise::WorkApart,
                format!("{one:?} and {other:?} can't be told apart by their tokens"),
            ));
        }
    }
}

/// (1) Work begins, and a restore writes, while the claim is held, by the order of revisions; after
/// a forced release, for as long as a stop may take. A start that was in flight then may be stored
/// later if the object ends as Failed.
fn under_claim(record: &Record, found: &mut Vec<Violation>) {
    let released_within = |uid: &String, at: At, time: Duration| {
        record
            .releases
            .get(uid)
            .is_some_and(|released| at.time <= released.time + time)
    };
    let may = |uid: &String, at: At| {
        let stands = record
            .standings
            .get(uid)
            .is_some_and(|standing| standing.at(at.revision));
        stands || released_within(uid, at, STOPS_WITHIN)
    };
    for life in record.lives.values() {
        let was_on_its_way = |began: At| {
            life.phase == "Failed" && released_within(&life.uid, began, STOPS_WITHIN + STANDS_STILL)
        };
        if life
            .began
            .is_some_and(|began| !may(&life.uid, began) && !was_on_its_way(began))
        {
            let (claim, release) = (
                record.standings.get(&life.uid),
                record.releases.get(&life.uid),
            );
            let what = format!(
                "{life:?} began without a claim; its claim: {claim:?}, released: {release:?}"
            );
            found.push(broken(Promise::UnderClaim, what));
        }
    }
    for write in &record.writes {
        let of_it =
            |life: &&Life| life.object.kind == Kind::Restore && life.object.name == write.restore;
        let uids = record.lives.values().filter(of_it).map(|life| &life.uid);
        if !uids.clone().any(|uid| may(uid, write.at)) {
            let claims: Vec<_> = uids.clone().map(|uid| record.standings.get(uid)).collect();
            let releases: Vec<_> = uids.map(|uid| record.releases.get(uid)).collect();
            let Write { restore, item, at } = write;
            let what = format!(
                "{restore} wrote {item} at {at:?} without a claim; its claims: {claims:?}, released: {releases:?}"
            );
            found.push(broken(Promise::UnderClaim, what));
        }
    }
}

/// (1) After a leader's Lease was deleted, no new one is made until that leader has stopped, and
/// the leader stops before that: no restore writes, and no phase changes.
fn one_leader(record: &Record, found: &mut Vec<Violation>) {
    let (others_wait, goes_on) = LEASE;
    for (home, gone) in &record.leaderless {
        if gone
            .until
            .is_some_and(|made| made.time + SLACK < gone.from.time + others_wait)
        {
            found.push(broken(
                Promise::OneLeader,
                format!("the Lease in {home} was made again: {gone:?}"),
            ));
        }
        let late = |name: &str, at: At| {
            installation(name) == home
                && gone.holds(at.revision)
                && at.time > gone.from.time + goes_on
        };
        if let Some(write) = record
            .writes
            .iter()
            .find(|write| late(&write.restore, write.at))
        {
            found.push(broken(
                Promise::OneLeader,
                format!("{write:?} without a leader: {gone:?}"),
            ));
        }
        let moved = |life: &&Life| {
            let mut phases = life
                .phases
                .iter()
                .filter(|(phase, _)| !life.guarded && !phase.is_empty());
            phases.any(|(_, at)| late(&life.object.name, *at))
        };
        if let Some(life) = record.lives.values().find(moved) {
            found.push(broken(
                Promise::OneLeader,
                format!("{life:?} was moved on without a leader: {gone:?}"),
            ));
        }
    }
}

/// (3) A creation under a name that was stored before, and stays stored, gets no place.
fn stored_name_takes_nothing(record: &Record, found: &mut Vec<Violation>) {
    for review in record.reviews.iter().filter(|review| !review.dry_run) {
        let attempt = record
            .attempts
            .iter()
            .find(|attempt| attempt.number == review.attempt);
        let place = record
            .standings
            .get(&review.uid)
            .and_then(|standing| standing.spans.first());
        let (Some(attempt), Some(place)) = (attempt, place) else {
            continue;
        };
        let was_there = |(uid, life): &(&String, &Life)| {
            let goes = [life.deleted, life.gone].into_iter().flatten();
            **uid == life.uid
                && **uid != review.uid
                && (life.object.kind, &life.object.name)
                    == (attempt.object.kind, &attempt.object.name)
                && life.created.time < attempt.sent
                && goes.into_iter().all(|at| at.revision > place.from.revision)
        };
        if let Some((_, life)) = record.lives.iter().find(was_there) {
            let what = format!("{attempt:?} took a place, {place:?}, and there was {life:?}");
            found.push(broken(Promise::StoredNameTakesNothing, what));
        }
    }
}

/// Whether the tokens of two conflicting pieces of work keep the earlier out once the later has
/// begun. Every restore increases the epoch: two restores never share one, and no work has an epoch
/// from before an earlier piece of work.
fn fenced(one: &Work, other: &Work) -> bool {
    let (Some((lease, early)), Some((other_lease, late))) = (&one.token, &other.token) else {
        return true;
    };
    let (early, late) = if one.begin <= other.begin {
        (early, late)
    } else {
        (late, early)
    };
    let both = one.object.kind == Kind::Restore && other.object.kind == Kind::Restore;
    lease != other_lease || early < late || early == late && !both
}

/// (2) No two conflicting claims in one ledger; and no two conflicting objects stored and not over
/// at the same time, except one that was stored after its claim had been collected, as an orphan's
/// may be.
fn admitted_apart(record: &Record, rules: Rules, found: &mut Vec<Violation>) {
    let standings: Vec<&Standing> = record.standings.values().collect();
    for (one, other) in pairs(&standings) {
        let meet = one.spans.iter().any(|span| other.at(span.from.revision))
            || other.spans.iter().any(|span| one.at(span.from.revision));
        if meet && one.object.collides(&other.object) {
            found.push(broken(
                Promise::AdmittedApart,
                format!("{one:?} and {other:?} stood in one ledger"),
            ));
        }
    }
    let lives: Vec<&Life> = record.lives.values().collect();
    let released = |life: &Life| record.releases.contains_key(&life.uid);
    for life in lives
        .iter()
        .filter(|life| landed_late(record, life, rules) && !released(life))
    {
        let Some(claim) = claim_of(record, life) else {
            continue;
        };
        // A claim that is collected after the grace, and made again by the same review, is the same
        // entry to a replica that did not look in between: it is collected again at once.
        let is_made_again = record.standings.get(&life.uid).is_some_and(|standing| {
            standing.spans.iter().any(|span| {
                let until = span.until.filter(|until| until.time <= claim.from.time);
                until.is_some_and(|until| {
                    until.time.saturating_sub(span.from.time) >= seen_grace(rules)
                })
            })
        });
        if is_made_again {
            continue;
        }
        let stood = claim.until.map_or(Duration::MAX, |until| {
            until.time.saturating_sub(made(record, life, claim))
        });
        if stood < seen_grace(rules) {
            found.push(broken(
                Promise::AdmittedApart,
                format!("the claim of {life:?} was collected after {stood:?}"),
            ));
        }
    }
    for (one, other) in pairs(&lives) {
        if one.meets(other)
            && one.object.collides(&other.object)
            && !released(one)
            && !released(other)
            && !landed_late(record, one, rules)
            && !landed_late(record, other, rules)
            && !left_to(record, one, other)
            && !left_to(record, other, one)
        {
            let claims = [
                record.standings.get(&one.uid),
                record.standings.get(&other.uid),
            ];
            let what =
                format!("{one:?} and {other:?} were stored together, not over; claims: {claims:?}");
            found.push(Violation {
                promise: Promise::AdmittedApart,
                what,
            });
        }
    }
}

/// Whether an object was being deleted and had freed its claim when the other one was created. Its
/// worker frees the claim once it has stopped, and then removes the finalizer; [`work_apart`] and
/// [`under_claim`] check that it has stopped.
fn left_to(record: &Record, one: &Life, other: &Life) -> bool {
    let freed = claim_of(record, one).and_then(|claim| claim.until);
    let (Some(deleted), Some(freed)) = (one.deleted, freed) else {
        return false;
    };
    deleted.revision <= freed.revision && freed.revision <= other.created.revision
}

/// The claim that an object was stored with.
fn claim_of<'a>(record: &'a Record, life: &Life) -> Option<&'a Span> {
    let spans = &record.standings.get(&life.uid)?.spans;
    let before = |span: &&Span| span.from.revision <= life.created.revision;
    spans.iter().rfind(before).or_else(|| spans.first())
}

/// When a claim was made: when etcd reported it or, if earlier, when the webhook admitted the
/// object (always after the claim). A watch can be seconds late when there are many changes.
fn made(record: &Record, life: &Life, claim: &Span) -> Duration {
    let first = record
        .standings
        .get(&life.uid)
        .and_then(|standing| standing.spans.first());
    let of_it = record
        .reviews
        .iter()
        .filter(|review| review.uid == life.uid && review.allowed == Some(true));
    let admitted = of_it.filter_map(|review| review.answered).min();
    let admitted = admitted.filter(|_| first.is_some_and(|first| first.from == claim.from));
    admitted.map_or(claim.from.time, |admitted| admitted.min(claim.from.time))
}

/// Whether the claim of an object was collected before the object was stored, or while it was being
/// stored after the grace.
fn landed_late(record: &Record, life: &Life, rules: Rules) -> bool {
    let Some(claim) = claim_of(record, life) else {
        return false;
    };
    let Some(until) = claim.until else {
        return false;
    };
    let after_the_grace =
        life.created.time.saturating_sub(made(record, life, claim)) >= seen_grace(rules);
    let unseen = until.time.saturating_sub(life.created.time) <= LOOK_AND_WRITE;
    until.revision < life.created.revision || after_the_grace && unseen
}

/// The kit sees both ends of a claim a little late, by different delays.
fn seen_grace(rules: Rules) -> Duration {
    rules.grace.mul_f64(0.8)
}

/// (3) An object that our webhook denied is not stored.
fn denied_never_stored(record: &Record, found: &mut Vec<Violation>) {
    for review in record
        .reviews
        .iter()
        .filter(|review| review.allowed == Some(false))
    {
        if let Some(life) = record.lives.get(&review.uid) {
            found.push(broken(
                Promise::DeniedNeverStored,
                format!("{review:?} was denied, and stored: {life:?}"),
            ));
        }
    }
}

/// (3) A claim ends soon after its work or its object or, if the object was never stored, after the
/// claim was made.
fn freed(record: &Record, rules: Rules, found: &mut Vec<Violation>) {
    for standing in record.standings.values() {
        let Some(last) = standing.spans.last() else {
            continue;
        };
        let life = record.lives.get(&standing.uid);
        let over = match life {
            Some(life) => life.over().map(|at| at.time),
            None => Some(last.from.time),
        };
        let works = record.work.iter().filter(|work| work.uid == standing.uid);
        let worked = works.map(|work| work.end.unwrap_or(record.closed)).max();
        let Some(over) = over else {
            found.push(broken(
                Promise::Freed,
                format!("{life:?} never came to an end"),
            ));
            continue;
        };
        let begin = over.max(worked.unwrap_or_default()).max(last.from.time);
        let stood = last
            .until
            .map_or(record.closed, |until| until.time)
            .saturating_sub(begin);
        if last.until.is_none() || stood > rules.freed_within {
            found.push(broken(
                Promise::Freed,
                format!("{standing:?} stood for {stood:?} after the end of {life:?}"),
            ));
        }
    }
}

/// (4) A refusal names another object of the history that was stored and not over, or had a place
/// in the ledger, at some time between request and answer; or an object whose claim was released by
/// force, which may be its own.
fn refused_for_a_reason(record: &Record, found: &mut Vec<Violation>) {
    for attempt in &record.attempts {
        let Answer::Refused { text } = &attempt.answer else {
            continue;
        };
        let began = |time: Duration| time <= attempt.answered + SLACK;
        let named = |uid: &str, name: &str| {
            names(text, uid) || name != attempt.object.name && names(text, name)
        };
        let lives: Vec<&Life> = record
            .lives
            .values()
            .filter(|life| named(&life.uid, &life.object.name))
            .collect();
        let claims: Vec<&Standing> = record
            .standings
            .values()
            .chain(record.marks.values())
            .filter(|standing| named(&standing.uid, &standing.object.name))
            .collect();
        let stored = lives.iter().any(|life| {
            began(life.created.time) && life.over().is_none_or(|over| over.time >= attempt.sent)
        });
        let claimed = claims
            .iter()
            .flat_map(|standing| &standing.spans)
            .any(|span| {
                began(span.from.time) && span.until.is_none_or(|until| until.time >= attempt.sent)
            });
        let of = |uid: &String| record.standings.get(uid).or_else(|| record.marks.get(uid));
        let released = record.releases.iter().any(|(uid, at)| {
            began(at.time) && of(uid).is_some_and(|standing| names(text, &standing.object.name))
        });
        if !stored && !claimed && !released {
            let what =
                format!("{attempt:?} names nobody who was there then; named: {lives:?} {claims:?}");
            found.push(Violation {
                promise: Promise::RefusedForAReason,
                what,
            });
        }
    }
}

/// Whether a text contains a name, and not only as a part of a longer one.
fn names(text: &str, name: &str) -> bool {
    let part = |letter: Option<char>| {
        letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '-')
    };
    text.match_indices(name).any(|(at, _)| {
        !part(text[..at].chars().next_back()) && !part(text[at + name.len()..].chars().next())
    })
}

/// (5) A uid that was only seen in a dry run is nowhere.
fn dry_run_writes_nothing(record: &Record, found: &mut Vec<Violation>) {
    for review in record.reviews.iter().filter(|review| review.dry_run) {
        let standing = record
            .standings
            .get(&review.uid)
            .or_else(|| record.marks.get(&review.uid));
        let life = record.lives.get(&review.uid);
        if standing.is_some() || life.is_some() {
            found.push(broken(
                Promise::DryRunWritesNothing,
                format!("{review:?} left {standing:?} {life:?}"),
            ));
        }
    }
}

/// An object whose creation was confirmed to a client was stored, and was admitted by our webhook.
fn told_the_truth(record: &Record, found: &mut Vec<Violation>) {
    for attempt in record.attempts.iter().filter(|attempt| !attempt.dry_run) {
        if let Answer::Done { uid } = &attempt.answer
            && !record.lives.contains_key(uid)
        {
            found.push(broken(
                Promise::ToldTheTruth,
                format!("{attempt:?} was answered, and never stored"),
            ));
        }
    }
    for life in record.lives.values() {
        let admitted = |review: &super::record::Review| {
            review.uid == life.uid && !review.dry_run && review.allowed != Some(false)
        };
        // Objects imported from a bucket bear no mark of the kit.
        if !life.is_imported() && !record.reviews.iter().any(admitted) {
            found.push(broken(
                Promise::ToldTheTruth,
                format!("{life:?} was stored and never admitted"),
            ));
        }
    }
}

#[cfg(test)]
mod tests;

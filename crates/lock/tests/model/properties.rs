//! Properties that must always hold, and events that each scenario must reach to be meaningful.

use backup_lock::{ObjectKind, State};
use stateright::Property;

use super::{
    actions::open_ledger,
    next::{Lock, uid_text},
    scenarios::Wish,
    state::{Collecting, Object, Phase, Replica, Stage, Worker, World},
};

// A mistake violates each of these.
pub const WORK_IS_APART: &str = "P1: no two conflicting objects are at work together";
pub const SOURCES_STAY: &str = "P1: no restore works from a backup that is going";
pub const WORK_IS_CLAIMED: &str = "P1: whoever is at work has an Active claim";
pub const NOTHING_BESIDE: &str = "admission: nothing is granted beside what it conflicts with";
pub const NO_HASTE: &str = "P2: a creation in flight keeps its claim for a whole grace";
pub const NO_BARE_REFUSAL: &str = "P3: nothing is refused without something in its way";
pub const NO_OVERTAKING: &str = "queue: nobody overtakes who waits";
pub const ALL_FREED: &str = "P2: every claim is freed";
pub const TURNS_COME: &str = "queue: who waits gets its turn";
pub const EPOCH_FORWARD: &str = "the epoch never goes back";
pub const RELEASED_STOPS: &str = "what was released by force stops in time, and never works again";

pub fn all() -> Vec<Property<Lock>> {
    vec![
        Property::always(WORK_IS_APART, work_is_apart),
        Property::always(SOURCES_STAY, sources_stay),
        Property::always(WORK_IS_CLAIMED, work_is_claimed),
        Property::always(
            "admission: no two conflicting claims stand in one ledger",
            claims_are_apart,
        ),
        Property::always(NOTHING_BESIDE, |_: &Lock, world: &World| {
            !world.wrong.beside
        }),
        Property::always("P2: what was refused is never stored", refused_stays_out),
        Property::always(ALL_FREED, claims_are_freed),
        Property::always(NO_HASTE, |_: &Lock, world: &World| !world.wrong.hasty),
        Property::always(NO_BARE_REFUSAL, |_: &Lock, world: &World| {
            !world.wrong.unjustified
        }),
        Property::always(NO_OVERTAKING, |_: &Lock, world: &World| {
            !world.wrong.overtook
        }),
        Property::always(TURNS_COME, waiting_ends),
        Property::always(EPOCH_FORWARD, |_: &Lock, world: &World| {
            !world.wrong.epoch_back
        }),
        Property::always(RELEASED_STOPS, released_stops),
        Property::sometimes(SEEN_WORK, |_: &Lock, world: &World| {
            at_work(world).next().is_some()
        }),
        Property::sometimes(SEEN_REFUSAL, |_: &Lock, world: &World| {
            let ended = |worker: &Worker| matches!(worker, Worker::Refused(_));
            world.requests.contains(&Stage::Refused) || world.workers.iter().any(ended)
        }),
    ]
}

pub const SEEN_WORK: &str = "something works";
pub const SEEN_REFUSAL: &str = "something is refused";

fn at_work(world: &World) -> impl Iterator<Item = &Object> {
    world
        .objects
        .iter()
        .flatten()
        .filter(|object| object.phase == Phase::InProgress)
}

/// Restores that a user has ended while their worker still writes. A backup's reads after its end
/// are never stored.
fn ended_at_work(model: &Lock, world: &World) -> impl Iterator<Item = usize> {
    let of = |(name, worker): (usize, &Worker)| {
        let (Worker::Working(uid) | Worker::Released(uid)) = *worker else {
            return None;
        };
        let is_restore = model.scenario.names[name].kind == ObjectKind::Restore;
        let works = |object: &Object| object.uid == uid && object.phase == Phase::InProgress;
        (is_restore && !world.objects[name].as_ref().is_some_and(works)).then_some(uid)
    };
    world.workers.iter().enumerate().filter_map(of)
}

/// No two conflicting objects work, except those that were released by force, for which
/// [`released_stops`] holds.
fn work_is_apart(model: &Lock, world: &World) -> bool {
    let stored = at_work(world).map(|object| object.uid);
    let awake = (0..world.requests.len()).filter(|uid| world.paused.awake.has(*uid));
    let all = stored.chain(awake).chain(ended_at_work(model, world));
    let works: Vec<usize> = all.filter(|uid| !world.released.has(*uid)).collect();
    works
        .iter()
        .all(|one| works.iter().all(|other| !model.clash(*one, *other)))
}

fn released_stops(_: &Lock, world: &World) -> bool {
    world.workers.iter().all(|worker| match worker {
        Worker::Right(uid) | Worker::Working(uid) => !world.stopped.has(*uid),
        _ => true,
    })
}

fn sources_stay(model: &Lock, world: &World) -> bool {
    at_work(world).all(|object| match model.scenario.requests[object.uid].wish {
        Wish::Create {
            source: Some(backup),
            ..
        } => world.objects[backup].is_some_and(|backup| !backup.deleting),
        _ => true,
    })
}

/// An object that was listed as new and began before the rebuilt ledger opened is Reserved there.
fn work_is_claimed(model: &Lock, world: &World) -> bool {
    let Some(ledger) = open_ledger(world) else {
        return true;
    };
    model.scenario.on_sight
        || at_work(world).all(|object| {
            let key = model.key(model.scenario.requests[object.uid].name);
            let entry = ledger.entry(&key, &uid_text(object.uid));
            let forced = world.released.has(object.uid);
            forced
                || entry.is_some_and(|entry| {
                    entry.state == State::Active || world.adopted.has(object.uid)
                })
        }) && ended_at_work(model, world).all(|uid| {
            let key = model.key(model.scenario.requests[uid].name);
            let entry = ledger.entry(&key, &uid_text(uid));
            let keeps = |state| matches!(state, State::Active | State::Settling);
            world.released.has(uid) || entry.is_some_and(|entry| keeps(entry.state))
        })
}

fn claims_are_apart(model: &Lock, world: &World) -> bool {
    let Some(lease) = &world.lease else {
        return true;
    };
    let held = |claim: &backup_lock::Claim| -> Vec<usize> {
        let holds = |state| matches!(state, State::Reserved | State::Active | State::Settling);
        let entries = claim.entries.iter().filter(|entry| holds(entry.state));
        entries
            .filter_map(|entry| model.request_of(&claim.key, &entry.uid))
            .collect()
    };
    let held: Vec<usize> = lease.ledger.claims.iter().flat_map(held).collect();
    let adopted = |request: usize| world.adopted.has(request);
    held.iter().all(|one| {
        held.iter()
            .all(|other| !model.clash(*one, *other) || adopted(*one) || adopted(*other))
    })
}

fn refused_stays_out(model: &Lock, world: &World) -> bool {
    let stored = |request: usize| {
        let created = matches!(model.scenario.requests[request].wish, Wish::Create { .. });
        created
            && world
                .objects
                .iter()
                .flatten()
                .any(|object| object.uid == request)
    };
    (0..world.requests.len())
        .all(|request| world.requests[request] != Stage::Refused || !stored(request))
}

/// Only the collector has anything to do: every stored object is over, or waits.
fn rests(model: &Lock, world: &World) -> bool {
    let done = |stage: &Stage| matches!(stage, Stage::Landed | Stage::Dropped | Stage::Refused);
    let Some(ledger) = open_ledger(world) else {
        return false;
    };
    let over_or_waits = |object: &Object| {
        let key = model.key(model.scenario.requests[object.uid].name);
        let entry = ledger.entry(&key, &uid_text(object.uid));
        object.phase == Phase::Over || entry.is_some_and(|entry| entry.state == State::Waiting)
    };
    world.requests.iter().all(done)
        && world
            .collecting
            .iter()
            .all(|collecting| *collecting == Collecting::Idle)
        && world.workers.iter().all(|worker| *worker == Worker::Idle)
        && world
            .replicas
            .iter()
            .all(|replica: &Replica| replica.deciding.is_none())
        && world.objects.iter().flatten().all(over_or_waits)
        && !world.objects.iter().flatten().any(|object| object.held)
}

/// With all other processes idle and all objects over, the collector alone empties the ledger.
fn claims_are_freed(model: &Lock, world: &World) -> bool {
    let over = |object: &Object| object.phase == Phase::Over;
    if !world.objects.iter().flatten().all(over) || !rests(model, world) {
        return true;
    }
    model.drained(world).is_some_and(|ledger| ledger.is_empty())
}

/// With all other processes idle, the collector alone gets at least one waiting entry reserved.
fn waiting_ends(model: &Lock, world: &World) -> bool {
    let waits = |object: &&Object| object.phase != Phase::Over;
    let waiting: Vec<&Object> = world.objects.iter().flatten().filter(waits).collect();
    if waiting.is_empty() || !rests(model, world) {
        return true;
    }
    let Some(ledger) = model.drained(world) else {
        return true;
    };
    waiting.iter().any(|object| {
        let name = &model.scenario.requests[object.uid].name;
        let entry = ledger.entry(&model.key(*name), &uid_text(object.uid));
        // Without backups that yield, only a restore waits in the ledger.
        (model.scenario.yields || model.scenario.names[*name].kind == ObjectKind::Restore)
            && entry.is_some_and(|entry| entry.state == State::Reserved)
    })
}

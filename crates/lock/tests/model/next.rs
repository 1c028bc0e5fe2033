//! The model: how each step changes the world. Every change of a ledger is a production transition,
//! called by path.

mod admit;
mod collect;
mod keep;
mod work;

use std::sync::Arc;

use backup_lock::{
    Footprint, Ledger, ObjectKey, ObjectKind, State, admission::ClaimRequest, conflict::Rules,
    ledger::Ask, transition::ObservedState,
};
use stateright::{Model, Property};

use super::{
    actions::Action,
    mistakes::Mistake,
    properties,
    scenarios::{Scenario, Wish},
    state::{
        Bits, Collecting, Lease, Left, Marker, Object, Paused, Phase, Replica, Stage, Worker,
        World, Wrong,
    },
};

const NAMESPACE: &str = "velero";
/// Epochs between two writes of the marker; production uses more, so that such writes are rare.
const EPOCHS: u64 = 2;

/// A scenario with its claim requests.
#[derive(Clone, Debug)]
pub struct Lock {
    pub scenario: Scenario,
    wants: Vec<ClaimRequest>,
}

impl Lock {
    pub fn new(scenario: Scenario) -> Self {
        let wants = (0..scenario.requests.len())
            .map(|request| want_of(&scenario, request))
            .collect();
        Self { scenario, wants }
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.scenario.mistake == Some(mistake)
    }

    pub fn rules(&self) -> Rules {
        Rules {
            backups_yield: self.scenario.yields,
            ..Rules::default()
        }
    }

    pub fn key(&self, name: usize) -> ObjectKey {
        key_of(&self.scenario, name)
    }

    /// The index of a key's name; a deletion has its backup's.
    pub fn name_of(&self, key: &ObjectKey) -> Option<usize> {
        self.scenario
            .names
            .iter()
            .position(|name| name.text == key.name)
    }

    /// The claim request of a request, in production types.
    pub fn want(&self, request: usize) -> &ClaimRequest {
        &self.wants[request]
    }

    /// A fresh read of the object of this key.
    pub fn observed(&self, world: &World, key: &ObjectKey) -> ObservedState {
        let object = self.name_of(key).and_then(|name| world.objects[name]);
        match object {
            None => ObservedState {
                settled: true,
                ..ObservedState::default()
            },
            Some(object) => ObservedState {
                uid: Some(uid_text(object.uid)),
                version: version_text(object.revived),
                over: object.phase == Phase::Over,
                deleting: object.deleting,
                settled: !object.held || self.makes(Mistake::EndByHandFrees),
            },
        }
    }

    /// Whether the objects of two creations must not work at the same time. Derived from the
    /// scenario, not from footprints.
    pub fn clash(&self, one: usize, other: usize) -> bool {
        let created = |request: usize| match self.scenario.requests[request].wish {
            Wish::Revive { target } => &self.scenario.requests[target],
            _ => &self.scenario.requests[request],
        };
        let (a, b) = (created(one), created(other));
        let restores = |name: usize| self.scenario.names[name].kind == ObjectKind::Restore;
        match (&a.wish, &b.wish) {
            (Wish::Create { mask, .. }, Wish::Create { mask: others, .. }) => {
                a.name != b.name && mask & others != 0 && (restores(a.name) || restores(b.name))
            }
            (Wish::Create { source, .. }, Wish::Delete { .. }) => *source == Some(b.name),
            (Wish::Delete { .. }, Wish::Create { source, .. }) => *source == Some(a.name),
            _ => false,
        }
    }

    /// The request that an entry came from.
    pub fn request_of(&self, key: &ObjectKey, uid: &str) -> Option<usize> {
        (0..self.wants.len())
            .find(|request| self.wants[*request].uid == uid && self.wants[*request].key == *key)
    }

    /// Writes a ledger, unless another was written since `over` was read. Returns whether it was
    /// written.
    fn write(&self, world: &mut World, over: &Lease, mut ledger: Ledger) -> bool {
        if world.lease.as_ref() != Some(over) {
            return false;
        }
        if self.makes(Mistake::PromotedToActive) {
            turn_promoted(&over.ledger, &mut ledger, State::Active);
        }
        if self.makes(Mistake::NobodyPromotes) {
            turn_promoted(&over.ledger, &mut ledger, State::Waiting);
        }
        // As in `lease::LedgerStore::write`: the marker first, then the ledger.
        if ledger.epoch > ledger.bound {
            ledger.bound = ledger.epoch + EPOCHS;
            world.marker.epoch = world.marker.epoch.max(ledger.bound);
        }
        world.lease = Some(Lease {
            uid: over.uid,
            ledger: Arc::new(ledger),
        });
        true
    }

    /// Reads, changes and writes without interference: one step. A ledger that is not open is left
    /// unchanged.
    fn update<T>(&self, world: &mut World, change: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
        super::actions::open_ledger(world)?;
        let over = world.lease.clone()?;
        let mut ledger = Ledger::clone(&over.ledger);
        let value = change(&mut ledger);
        if ledger != *over.ledger {
            self.write(world, &over, ledger);
        }
        Some(value)
    }

    fn step(&self, world: &mut World, action: &Action) -> Option<()> {
        match action {
            Action::Take { replica, wants } => self.take(world, *replica, wants),
            Action::Look { replica, aged } => self.look(world, *replica, *aged),
            Action::Blind { replica } => {
                world.replicas[*replica].deciding.as_mut()?.looks.push(None);
                Some(())
            }
            Action::Answer { replica, lost } => self.answer(world, *replica, *lost),
            Action::Land(request) => self.land(world, *request),
            Action::Drop(request) => {
                world.requests[*request] = Stage::Dropped;
                Some(())
            }
            Action::Remove(name) => {
                world.left.removals -= 1;
                remove(&mut world.objects[*name]);
                Some(())
            }
            Action::Read(name) => work::read(world, *name),
            Action::Activate { name, lost } => self.activate(world, *name, *lost),
            Action::Begin(name) => self.begin(world, *name),
            Action::Publish(name) => work::publish(world, *name),
            Action::Release(name) => self.release(world, *name),
            Action::Force(name) => self.force(world, *name),
            Action::EndByHand(name) => work::end_by_hand(world, *name),
            Action::Stop(uid) => {
                self.stop(world, *uid);
                Some(())
            }
            Action::Pause => {
                work::pause(world);
                Some(())
            }
            Action::Wake(uid) => {
                world.paused.works.remove(*uid);
                if self.makes(Mistake::WakesAndWorks) {
                    world.paused.awake.add(*uid);
                }
                Some(())
            }
            Action::BeginLate(uid) => {
                work::begin_late(world, *uid);
                Some(())
            }
            Action::Crash => {
                world.left.crashes -= 1;
                work::forget(world);
                Some(())
            }
            Action::CollectRead { collector, claim } => collect::read(world, *collector, *claim),
            Action::Collect {
                collector,
                claim,
                aged,
            } => {
                collect::read(world, *collector, *claim)?;
                self.collect_look(world, *collector, *aged)
            }
            Action::CollectLook { collector, aged } => self.collect_look(world, *collector, *aged),
            Action::CollectWrite(collector) => self.collect_write(world, *collector),
            Action::Lose => {
                world.left.losses -= 1;
                world.lease = None;
                Some(())
            }
            Action::Tend => {
                self.repair(world);
                Some(())
            }
            Action::List => {
                self.list(world);
                Some(())
            }
            Action::Open => self.open(world),
            Action::Expire(claim) => self.expire(world, *claim),
        }
    }
}

impl Model for Lock {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let scenario = &self.scenario;
        let mut ledger = Ledger {
            bound: EPOCHS,
            rules: self.rules(),
            ..Ledger::default()
        };
        for request in scenario.completed.iter().filter(|_| scenario.unfreed) {
            let ClaimRequest {
                key,
                uid,
                footprint,
                since,
                ask,
                ..
            } = self.want(*request);
            let admitted = ledger.admit(key, uid, footprint, since, ask);
            assert!(admitted.is_ok(), "{admitted:?}");
        }
        let mut world = World {
            lease: Some(Lease {
                uid: 0,
                ledger: Arc::new(ledger),
            }),
            marker: Marker {
                ledger: 0,
                epoch: EPOCHS,
            },
            objects: vec![None; scenario.names.len()],
            requests: vec![Stage::Unsent; scenario.requests.len()],
            replicas: vec![Replica::default(); scenario.replicas],
            workers: vec![Worker::Idle; scenario.names.len()],
            collecting: vec![Collecting::Idle; scenario.collectors],
            listed: None,
            seen: Bits::default(),
            adopted: Bits::default(),
            released: Bits::default(),
            stopped: Bits::default(),
            paused: Paused::default(),
            left: Left {
                crashes: scenario.crashes,
                losses: scenario.losses,
                lost_replies: scenario.lost_replies,
                removals: scenario.removals,
                releases: scenario.releases,
                ends: scenario.ends_by_hand,
                pauses: scenario.pauses,
            },
            top: 0,
            wrong: Wrong::default(),
        };
        for uid in &scenario.completed {
            let object = Object {
                uid: *uid,
                phase: Phase::Over,
                deleting: false,
                held: false,
                revived: 0,
            };
            world.objects[scenario.requests[*uid].name] = Some(object);
            world.requests[*uid] = Stage::Landed;
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.possible(world, actions);
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        self.step(&mut world, &action)?;
        if let Some(lease) = &world.lease {
            world.wrong.epoch_back |= lease.ledger.epoch < world.top;
            world.top = world.top.max(lease.ledger.epoch);
        }
        self.justify(&mut world);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

pub fn uid_text(request: usize) -> String {
    format!("u{request}")
}

fn version_text(revived: u8) -> String {
    format!("v{revived}")
}

/// Marks an object for deletion; without a finalizer it is gone at once.
fn remove(slot: &mut Option<Object>) {
    match slot {
        Some(object) if object.phase == Phase::InProgress || object.held => object.deleting = true,
        slot => *slot = None,
    }
}

/// Changes entries that a write promoted to another state.
fn turn_promoted(before: &Ledger, after: &mut Ledger, to: State) {
    for claim in &mut after.claims {
        for entry in &mut claim.entries {
            let waited = before
                .entry(&claim.key, &entry.uid)
                .is_some_and(|entry| entry.state == State::Waiting);
            if waited && entry.state == State::Reserved {
                entry.state = to;
            }
        }
    }
}

fn key_of(scenario: &Scenario, name: usize) -> ObjectKey {
    let name = &scenario.names[name];
    ObjectKey::new(name.kind, NAMESPACE, name.text)
}

fn want_of(scenario: &Scenario, request: usize) -> ClaimRequest {
    let asked = &scenario.requests[request];
    let name = scenario.names[asked.name].text;
    let want = |key, uid, footprint, queue, intent| ClaimRequest {
        key,
        uid,
        footprint,
        since: String::new(),
        ask: Ask {
            queue,
            ..Ask::default()
        },
        intent,
        running: None,
    };
    match asked.wish {
        Wish::Create {
            mask,
            source,
            queue,
            intent,
        } => {
            let namespaces = ["a", "b"]
                .into_iter()
                .enumerate()
                .filter(|(bit, _)| mask & (1 << bit) != 0);
            let footprint = Footprint::namespaces(namespaces.map(|(_, namespace)| namespace));
            let footprint = match source {
                Some(backup) => footprint.from_backup(NAMESPACE, Some(scenario.names[backup].text)),
                None => footprint,
            };
            want(
                key_of(scenario, asked.name),
                uid_text(request),
                footprint,
                queue,
                intent,
            )
        }
        Wish::Revive { target } => {
            let created = want_of(scenario, target);
            let ask = Ask {
                revives: version_text(0),
                ..Ask::default()
            };
            ClaimRequest { ask, ..created }
        }
        Wish::Delete { target } => {
            let key = ObjectKey::new(ObjectKind::Deletion, NAMESPACE, name);
            want(
                key,
                uid_text(target),
                Footprint::of_deletion(NAMESPACE, name),
                false,
                false,
            )
        }
    }
}

//! The possible actions, and their conditions.

use backup_lock::{Ledger, ledger::Status};

use super::{
    mistakes::Mistake,
    next::Lock,
    state::{Collecting, Object, Phase, Stage, Worker, World},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A replica takes requests and reads the ledger, or trusts the one it remembers.
    Take {
        replica: usize,
        wants: Vec<usize>,
    },
    /// It reads the object of a conflicting claim. `aged`: the object has been missing for the
    /// whole grace.
    Look {
        replica: usize,
        aged: bool,
    },
    /// It cannot read that object.
    Blind {
        replica: usize,
    },
    /// It writes the ledger by compare-and-swap and answers. `lost`: the write is done, but its
    /// response is lost, and it retries.
    Answer {
        replica: usize,
        lost: bool,
    },
    /// The API server stores an admitted creation, or carries out an admitted deletion.
    Land(usize),
    /// The creation is never stored.
    Drop(usize),
    /// A user deletes the object of this name.
    Remove(usize),
    Read(usize),
    /// It activates the claim. `lost`: the response is lost, and it begins again.
    Activate {
        name: usize,
        lost: bool,
    },
    /// It writes the phase and the finalizer, and starts the work.
    Begin(usize),
    /// The work has ended, or was stopped; the terminal phase is written and the finalizer removed.
    /// If a user has written another end, the worker has stopped, and that end stays.
    Publish(usize),
    /// The claim is released. If a user has ended the object, its finalizer is removed too.
    Release(usize),
    /// A user writes the terminal phase of the object of this name.
    EndByHand(usize),
    /// A user releases the claim of this name by force.
    Force(usize),
    /// The time within which the work of a released uid must stop has passed.
    Stop(usize),
    /// The leader is paused past its lease; its successor knows only stored state.
    Pause,
    /// It resumes, and continues with this uid.
    Wake(usize),
    /// The late patch that begins this uid arrives.
    BeginLate(usize),
    /// The controller crashes; its successor knows only stored state.
    Crash,
    /// A collector reads a claim and its object, and judges.
    Collect {
        collector: usize,
        claim: usize,
        aged: bool,
    },
    CollectRead {
        collector: usize,
        claim: usize,
    },
    CollectLook {
        collector: usize,
        aged: bool,
    },
    /// It applies its judgement to the current ledger.
    CollectWrite(usize),
    Lose,
    /// The repair replaces it by one that grants nothing.
    Tend,
    /// A grace later it lists the stored objects.
    List,
    /// It fills the ledger and opens it.
    Open,
    /// Only for a mistake: an Active claim is dropped because of its age.
    Expire(usize),
}

impl Lock {
    /// All actions that are possible now. Each step itself excludes actions without effect.
    pub fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        self.of_webhook(world, actions);
        self.of_api_servers(world, actions);
        self.of_controller(world, actions);
        self.of_collector(world, actions);
        of_keeper(world, actions);
    }

    fn of_webhook(&self, world: &World, actions: &mut Vec<Action>) {
        for (replica, does) in world.replicas.iter().enumerate() {
            let Some(deciding) = &does.deciding else {
                let mine = |request: &usize| {
                    world.requests[*request] == Stage::Unsent
                        && self.scenario.requests[*request].replica == replica
                };
                let waiting: Vec<usize> = (0..world.requests.len()).filter(mine).collect();
                actions.extend(waiting.iter().map(|want| Action::Take {
                    replica,
                    wants: vec![*want],
                }));
                if self.scenario.merges && waiting.len() > 1 {
                    let back: Vec<usize> = waiting.iter().rev().copied().collect();
                    actions.push(Action::Take {
                        replica,
                        wants: waiting,
                    });
                    actions.push(Action::Take {
                        replica,
                        wants: back,
                    });
                }
                continue;
            };
            if self.to_read(deciding).is_some() {
                actions.push(Action::Look {
                    replica,
                    aged: false,
                });
                if self.scenario.watchful {
                    actions.push(Action::Look {
                        replica,
                        aged: true,
                    });
                }
                if self.scenario.blind {
                    actions.push(Action::Blind { replica });
                }
            } else {
                actions.push(Action::Answer {
                    replica,
                    lost: false,
                });
                if world.left.lost_replies > 0 {
                    actions.push(Action::Answer {
                        replica,
                        lost: true,
                    });
                }
            }
        }
    }

    fn of_api_servers(&self, world: &World, actions: &mut Vec<Action>) {
        for (request, stage) in world.requests.iter().enumerate() {
            if *stage == Stage::Admitted {
                actions.push(Action::Land(request));
                if self.scenario.drops {
                    actions.push(Action::Drop(request));
                }
            }
        }
        if world.left.removals > 0 {
            // An object that was ended before it began is not removed between two reads (see
            // docs/evidence/models.md).
            let stays = |object: Object| self.scenario.ends_by_hand > 0 && !needs_worker(object);
            let is_removable =
                |name: &&usize| world.objects[**name].is_some_and(|object| !stays(object));
            let removable = self.scenario.removable.iter().filter(is_removable);
            actions.extend(removable.map(|name| Action::Remove(*name)));
        }
    }

    fn of_controller(&self, world: &World, actions: &mut Vec<Action>) {
        for (name, worker) in world.workers.iter().enumerate() {
            match worker {
                Worker::Idle if world.objects[name].is_some_and(needs_worker) => {
                    actions.push(Action::Read(name));
                }
                Worker::Idle => {}
                Worker::Seen { .. } => {
                    actions.push(Action::Activate { name, lost: false });
                    if world.left.lost_replies > 0 {
                        actions.push(Action::Activate { name, lost: true });
                    }
                }
                Worker::Right(_) => actions.push(Action::Begin(name)),
                Worker::Working(_) if self.makes(Mistake::ReleaseFirst) => {
                    actions.push(Action::Release(name));
                }
                Worker::Working(_)
                    if self.makes(Mistake::EndedWorks)
                        && world.objects[name].is_some_and(|object| object.held) =>
                {
                    actions.push(Action::Release(name));
                }
                Worker::Working(_) | Worker::Refused(_) | Worker::Released(_) => {
                    actions.push(Action::Publish(name));
                }
                Worker::Ended(_) => actions.push(Action::Release(name)),
            }
        }
        if world.left.crashes > 0 {
            actions.push(Action::Crash);
        }
        if world.left.pauses > 0 {
            actions.push(Action::Pause);
        }
        let uids = || 0..world.requests.len();
        actions.extend(
            uids()
                .filter(|uid| world.paused.works.has(*uid))
                .map(Action::Wake),
        );
        actions.extend(
            uids()
                .filter(|uid| world.paused.begins.has(*uid))
                .map(Action::BeginLate),
        );
        let runs = |uid: &usize| world.released.has(*uid) && !world.stopped.has(*uid);
        actions.extend(uids().filter(runs).map(Action::Stop));
        if world.left.releases > 0 {
            actions.extend((0..world.objects.len()).map(Action::Force));
        }
        if world.left.ends > 0 {
            let names = 0..world.objects.len();
            let runs = |name: &usize| {
                world.objects[*name].is_some_and(|object| object.phase != Phase::Over)
            };
            actions.extend(names.filter(runs).map(Action::EndByHand));
        }
    }

    fn of_collector(&self, world: &World, actions: &mut Vec<Action>) {
        let Some(ledger) = open_ledger(world) else {
            return;
        };
        if self.makes(Mistake::ExpiryByClock) {
            actions.extend((0..ledger.claims.len()).map(Action::Expire));
        }
        for (collector, collecting) in world.collecting.iter().enumerate() {
            let claims = 0..ledger.claims.len();
            match collecting {
                Collecting::Idle if self.scenario.slow_collector => {
                    actions.extend(claims.map(|claim| Action::CollectRead { collector, claim }));
                }
                Collecting::Idle => {
                    let judge = |claim| {
                        [false, true].map(|aged| Action::Collect {
                            collector,
                            claim,
                            aged,
                        })
                    };
                    actions.extend(claims.flat_map(judge));
                }
                Collecting::Read(_) => {
                    actions
                        .extend([false, true].map(|aged| Action::CollectLook { collector, aged }));
                }
                Collecting::Judged(_) => actions.push(Action::CollectWrite(collector)),
            }
        }
    }
}

/// Whether the controller still has work to do for an object.
fn needs_worker(object: Object) -> bool {
    object.phase != Phase::Over || object.held
}

pub fn open_ledger(world: &World) -> Option<&Ledger> {
    let ledger = &world.lease.as_ref()?.ledger;
    (ledger.status == Status::Open).then_some(&**ledger)
}

fn of_keeper(world: &World, actions: &mut Vec<Action>) {
    match world.lease.as_ref().map(|lease| lease.ledger.status) {
        None => actions.push(Action::Tend),
        Some(Status::Rebuilding) => {
            actions.push(if world.listed.is_none() {
                Action::List
            } else {
                Action::Open
            });
        }
        Some(_) if world.left.losses > 0 => actions.push(Action::Lose),
        Some(_) => {}
    }
}

//! Checks every interleaving of two uploads, the maintenance of their repository, crashes of the
//! controller and a node that is cut off: no upload ever runs beside a maintenance.
//!
//! On a node that is cut off a maintenance may run although its pod is being deleted. A change of
//! keys has the name of the maintenance pod, and so excludes it, too; it needs no other exclusion:
//! see the model of the rotation.
//!
//! A task of the controller looks, then writes. Between the two the cluster may change, and the
//! process may be killed; the write may have been stored then. The mutex is one of the process, so
//! a crash frees it.

use backup_core::api::transfer::MovePhase;
use stateright::{Checker as _, HasDiscoveries, Model, Property};

use super::decide::{NodeState, is_in_use};

/// Number of crashes and of maintenances in one history.
const MAX_CRASHES: u8 = 2;
const MAX_MAINTENANCES: u8 = 2;

/// What a mistaken controller would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// Tasks do not exclude each other.
    NoMutex,
    /// An upload counts by its phase alone.
    IgnoresObjects,
    /// A pod that does not end is removed wherever it is.
    ForcesAnyPod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum UploadPhase {
    New,
    Accepted,
    InProgress,
    /// Its pod may still run.
    Ended,
}

impl UploadPhase {
    fn phase(self) -> MovePhase {
        match self {
            Self::New => MovePhase::New,
            Self::Accepted => MovePhase::Accepted,
            Self::InProgress => MovePhase::InProgress,
            Self::Ended => MovePhase::Canceled,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Upload {
    phase: UploadPhase,
    has_finalizer: bool,
    has_pod: bool,
}

/// A task of the controller: it accepts one of the uploads, or begins a maintenance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Idle,
    /// It holds the mutex.
    Begun,
    /// It has looked, and may write.
    Free,
}

const UPLOADS: usize = 2;
/// Index of the task that begins a maintenance, after the tasks of the uploads.
const MAINTENANCE: usize = UPLOADS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    uploads: [Upload; UPLOADS],
    /// Whether the pod of a maintenance exists, and whether its process may run.
    has_maintenance_pod: bool,
    is_maintained: bool,
    /// Node of the maintenance pod: `Unknown` as long as it answers.
    node: NodeState,
    maintenances: u8,
    tasks: [Task; UPLOADS + 1],
    crashes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Begin(usize),
    Look(usize),
    Write(usize),
    /// The process is killed. The write of this task was sent before, and is stored.
    Crash(Option<usize>),
    /// The pod of an accepted upload starts.
    Start(usize),
    /// An upload ends, or is cancelled while its pod runs.
    End(usize),
    /// The pod of an ended upload is gone, then the finalizer is removed.
    RemovePod(usize),
    Release(usize),
    /// The pod of the maintenance is gone, with its process.
    EndMaintenance,
    /// The node of the maintenance is cut off; its process may end there; the node is turned off,
    /// and Kubernetes knows that.
    CutNode,
    EndProcess,
    TurnOffNode,
    /// The controller removes the pod without its node.
    ForcePod,
}

impl World {
    fn is_used(&self, mistake: Mistake) -> bool {
        self.uploads.iter().any(|upload| {
            let has_objects = upload.has_finalizer && mistake != Mistake::IgnoresObjects;
            is_in_use(&upload.phase.phase(), has_objects)
        })
    }

    /// What a task that has looked writes.
    fn write(&mut self, task: usize) {
        if task == MAINTENANCE {
            self.has_maintenance_pod = true;
            self.is_maintained = true;
            self.node = NodeState::Unknown;
            self.maintenances += 1;
        } else {
            let upload = &mut self.uploads[task];
            // Guarded by the resourceVersion: only a new upload is accepted.
            if upload.phase == UploadPhase::New {
                upload.phase = UploadPhase::Accepted;
                upload.has_finalizer = true;
            }
        }
    }

    fn is_wanted(&self, task: usize) -> bool {
        if task == MAINTENANCE {
            !self.has_maintenance_pod && self.maintenances < MAX_MAINTENANCES
        } else {
            self.uploads[task].phase == UploadPhase::New
        }
    }
}

impl Model for Mistake {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let upload = Upload {
            phase: UploadPhase::New,
            has_finalizer: false,
            has_pod: false,
        };
        vec![World {
            uploads: [upload; UPLOADS],
            has_maintenance_pod: false,
            is_maintained: false,
            node: NodeState::Unknown,
            maintenances: 0,
            tasks: [Task::Idle; UPLOADS + 1],
            crashes: 0,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let is_locked = world.tasks.iter().any(|task| *task != Task::Idle);
        for (number, task) in world.tasks.iter().enumerate() {
            match task {
                Task::Idle if world.is_wanted(number) => {
                    if !is_locked || *self == Self::NoMutex {
                        steps.push(Step::Begin(number));
                    }
                }
                Task::Idle => {}
                Task::Begun => steps.push(Step::Look(number)),
                Task::Free => {
                    steps.push(Step::Write(number));
                    if world.crashes < MAX_CRASHES {
                        steps.push(Step::Crash(Some(number)));
                    }
                }
            }
        }
        if world.crashes < MAX_CRASHES {
            steps.push(Step::Crash(None));
        }
        for (number, upload) in world.uploads.iter().enumerate() {
            match upload.phase {
                UploadPhase::Accepted => steps.extend([Step::Start(number), Step::End(number)]),
                UploadPhase::InProgress => steps.push(Step::End(number)),
                UploadPhase::Ended if upload.has_pod => steps.push(Step::RemovePod(number)),
                UploadPhase::Ended if upload.has_finalizer => steps.push(Step::Release(number)),
                UploadPhase::New | UploadPhase::Ended => {}
            }
        }
        if world.has_maintenance_pod {
            match world.node {
                NodeState::Unknown => steps.extend([Step::EndMaintenance, Step::CutNode]),
                NodeState::Present => steps.extend([Step::EndProcess, Step::TurnOffNode]),
                NodeState::Gone => {}
            }
            let is_cut = world.node != NodeState::Unknown;
            if world.node.is_off() || is_cut && *self == Self::ForcesAnyPod {
                steps.push(Step::ForcePod);
            }
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = *before;
        match step {
            Step::Begin(task) => world.tasks[task] = Task::Begun,
            Step::Look(task) => {
                let is_free = if task == MAINTENANCE {
                    !world.is_used(*self)
                } else {
                    !world.has_maintenance_pod
                };
                world.tasks[task] = if is_free { Task::Free } else { Task::Idle };
            }
            Step::Write(task) => {
                world.write(task);
                world.tasks[task] = Task::Idle;
            }
            Step::Crash(sent) => {
                if let Some(task) = sent {
                    world.write(task);
                }
                world.tasks = [Task::Idle; UPLOADS + 1];
                world.crashes += 1;
            }
            Step::Start(upload) => {
                world.uploads[upload].has_pod = true;
                world.uploads[upload].phase = UploadPhase::InProgress;
            }
            Step::End(upload) => world.uploads[upload].phase = UploadPhase::Ended,
            Step::RemovePod(upload) => world.uploads[upload].has_pod = false,
            Step::Release(upload) => world.uploads[upload].has_finalizer = false,
            Step::EndMaintenance => {
                world.has_maintenance_pod = false;
                world.is_maintained = false;
            }
            Step::CutNode => world.node = NodeState::Present,
            Step::EndProcess => world.is_maintained = false,
            Step::TurnOffNode => {
                world.node = NodeState::Gone;
                world.is_maintained = false;
            }
            Step::ForcePod => world.has_maintenance_pod = false,
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("an upload and a maintenance never meet", |_, world| {
                !(world.is_maintained && world.uploads.iter().any(|upload| upload.has_pod))
            }),
            Property::<Self>::sometimes("uploads continue without a node", |_, world| {
                let is_off = world.node == NodeState::Gone && world.maintenances > 0;
                is_off && world.uploads.iter().any(|upload| upload.has_pod)
            }),
            Property::<Self>::sometimes("both uploads run", |_, world| {
                world.uploads.iter().all(|upload| upload.has_pod)
            }),
            Property::<Self>::sometimes("it is maintained after an upload", |_, world| {
                let is_over = |upload: &Upload| upload.phase == UploadPhase::Ended;
                world.is_maintained && world.uploads.iter().any(is_over)
            }),
        ]
    }
}

#[test]
fn uploads_and_maintenance_exclude_each_other_whatever_happens() {
    let checker = Mistake::None.checker().spawn_bfs().join();
    checker.assert_properties();
}

#[test]
fn the_model_finds_the_mistakes_that_it_is_for() {
    for mistake in [
        Mistake::NoMutex,
        Mistake::IgnoresObjects,
        Mistake::ForcesAnyPod,
    ] {
        let checker = mistake
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let found = checker.discovery("an upload and a maintenance never meet");
        assert!(found.is_some(), "{mistake:?}");
    }
}

//! Checks every interleaving of a rotation with the making of a repository, a transfer, changes of
//! keys and crashes of the controller: the current password opens every repository at any time, and
//! no transfer meets a key that is gone.
//!
//! The decision is the one of production. A container reads the Secret when it starts, which may be
//! long before it opens the repository.

use backup_core::repository_records::{KeyChange, KeyWork, PasswordRotation, RotationStage};
use jiff::Timestamp;
use stateright::{Checker as _, HasDiscoveries, Model, Property};

use super::decide::{RotatedRepository, RotationFacts, RotationPlan, decide};

const MAX_CRASHES: u8 = 1;
/// Index of the repository that is made during the rotation.
const NEW: usize = 1;

const OPENS: &str = "the current password opens every repository";
const NO_FAILURE: &str = "no transfer is refused by its repository";

/// What a mistaken controller would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// A repository may be made while the Secret is switched.
    NoExclusion,
    /// The switch does not look for pods that make a repository.
    IgnoresInitPods,
    /// The switch does not look for repositories that were made since.
    IgnoresNewRepositories,
    /// Keys are removed although a pod began with the previous password.
    IgnoresEarlierPods,
    /// A change of keys counts for any version of the Secret.
    IgnoresVersions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Password {
    Old,
    New,
    /// By a user, who replaces the next one.
    Own,
}

/// The Secret. Its version grows with each write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Secret {
    version: u8,
    current: Password,
    next: Option<Password>,
    previous: Option<Password>,
    is_copied: bool,
}

impl Secret {
    fn stage(self) -> Option<RotationStage> {
        match (self.previous, self.next) {
            (Some(_), _) if self.is_copied => Some(RotationStage::Removing),
            (Some(_), _) => Some(RotationStage::Switched),
            (None, Some(_)) => Some(RotationStage::Adding),
            (None, None) => None,
        }
    }

    /// The password whose keys are changed.
    fn other(self, work: KeyWork) -> Option<Password> {
        match work {
            KeyWork::Add => self.next,
            KeyWork::Remove => self.previous,
        }
    }
}

/// A pod that changes keys: what it was created for, and the current and the other password that it
/// has read.
type KeyPod = (KeyWork, u8, Option<(Password, Password)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Repository {
    exists: bool,
    /// Whether it has a key of each password.
    keys: [bool; 3],
    /// Work, version of the Secret, and whether it is done.
    change: Option<(KeyWork, u8, bool)>,
    pod: Option<KeyPod>,
}

impl Repository {
    fn opens(self, password: Password) -> bool {
        self.keys[password as usize]
    }

    fn set(&mut self, password: Password, has_key: bool) {
        self.keys[password as usize] = has_key;
    }
}

/// A pod that reads the password when it starts, and uses it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pod {
    None,
    Created,
    Started(Password),
    Done,
}

/// What the controller has decided, for this version of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Request(KeyWork, [bool; 2]),
    Switch,
    /// The switch was found to be allowed, under the exclusion.
    WriteSwitch,
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct World {
    secret: Secret,
    repositories: [Repository; 2],
    /// Makes the new repository.
    init: Pod,
    /// Uses the first repository.
    transfer: Pod,
    /// Whether the transfer was created in the present stage.
    is_transfer_late: bool,
    was_refused: bool,
    plan: Option<(u8, Step)>,
    crashes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    /// A user asks for another password, replaces it, or says that it was copied.
    Ask,
    Replace,
    Copy,
    Look,
    Act,
    /// The process is killed; the write that was on its way is stored, or not.
    Crash(bool),
    CreateKeyPod(usize),
    StartKeyPod(usize),
    EndKeyPod(usize),
    CreateInit,
    StartInit,
    EndInit,
    CreateTransfer,
    StartTransfer,
    OpenTransfer,
}

impl World {
    fn write(&mut self, change: impl FnOnce(&mut Secret)) {
        let stage = self.secret.stage();
        change(&mut self.secret);
        self.secret.version += 1;
        if self.secret.stage() != stage {
            self.is_transfer_late = false;
        }
    }

    fn look(&self, mistake: Mistake) -> Option<Step> {
        let stage = self.secret.stage()?;
        let version = self.secret.version.to_string();
        let existing = self.repositories.iter().enumerate();
        let existing = existing.filter(|(_, repository)| repository.exists);
        let repositories = existing
            .map(|(number, repository)| {
                let change = repository.change.map(|(work, of, is_done)| {
                    let is_for_any = mistake == Mistake::IgnoresVersions;
                    let of = if is_for_any { self.secret.version } else { of };
                    KeyChange {
                        is_done,
                        ..KeyChange::requested(work, &of.to_string())
                    }
                });
                RotatedRepository {
                    name: number.to_string(),
                    change,
                }
            })
            .collect();
        let is_earlier = matches!(self.transfer, Pod::Created | Pod::Started(_))
            && !self.is_transfer_late
            && mistake != Mistake::IgnoresEarlierPods;
        let plan = decide(&RotationFacts {
            rotation: PasswordRotation {
                stage,
                since: Timestamp::UNIX_EPOCH,
            },
            secret: &version,
            repositories,
            obstacles: Vec::new(),
            earlier_pods: is_earlier
                .then(|| "transfer".to_owned())
                .into_iter()
                .collect(),
            now: Timestamp::from_second(3600).unwrap(),
        });
        match plan {
            RotationPlan::Request(change, names) => {
                let is_named = |number: usize| names.contains(&number.to_string());
                Some(Step::Request(change.work, [is_named(0), is_named(1)]))
            }
            RotationPlan::Switch => Some(Step::Switch),
            RotationPlan::Finish => Some(Step::Finish),
            RotationPlan::Wait(_) | RotationPlan::Blocked(_) => None,
        }
    }

    /// Whether the Secret may be switched, as far as the controller looks.
    fn may_switch(&self, mistake: Mistake) -> bool {
        let is_made = matches!(self.init, Pod::Created | Pod::Started(_));
        let is_confirmed = self.repositories.iter().all(|repository| {
            let version = self.secret.version;
            !repository.exists || repository.change == Some((KeyWork::Add, version, true))
        });
        (!is_made || mistake == Mistake::IgnoresInitPods)
            && (is_confirmed
                || matches!(
                    mistake,
                    Mistake::IgnoresNewRepositories | Mistake::IgnoresVersions
                ))
    }

    /// Carries out a write of the controller. Each names the version that was read.
    fn store(&mut self, version: u8, step: Step) {
        if let Step::Request(work, wanted) = step {
            for (repository, is_wanted) in self.repositories.iter_mut().zip(wanted) {
                if is_wanted {
                    repository.change = Some((work, version, false));
                }
            }
            return;
        }
        if version != self.secret.version {
            return;
        }
        match step {
            Step::WriteSwitch => self.write(|secret| {
                secret.previous = Some(secret.current);
                secret.current = secret.next.take().unwrap_or(secret.current);
            }),
            Step::Finish => self.write(|secret| {
                secret.previous = None;
                secret.is_copied = false;
            }),
            Step::Request(..) | Step::Switch => {}
        }
    }

    fn end_key_pod(&mut self, number: usize) {
        let repository = &mut self.repositories[number];
        let Some((work, version, Some((current, other)))) = repository.pod.take() else {
            return;
        };
        if !repository.opens(current) && !repository.opens(other) {
            return;
        }
        repository.set(current, true);
        repository.set(other, work == KeyWork::Add);
        if repository.change == Some((work, version, false)) {
            repository.change = Some((work, version, true));
        }
    }
}

impl Model for Mistake {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let repository = Repository {
            exists: true,
            keys: [true, false, false],
            change: None,
            pod: None,
        };
        let new = Repository {
            exists: false,
            keys: [false; 3],
            ..repository
        };
        vec![World {
            secret: Secret {
                version: 0,
                current: Password::Old,
                next: None,
                previous: None,
                is_copied: false,
            },
            repositories: [repository, new],
            init: Pod::None,
            transfer: Pod::None,
            is_transfer_late: false,
            was_refused: false,
            plan: None,
            crashes: 0,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let secret = &world.secret;
        if secret.version == 0 {
            actions.push(Action::Ask);
        }
        match secret.stage() {
            Some(RotationStage::Adding) if secret.next == Some(Password::New) => {
                actions.push(Action::Replace);
            }
            Some(RotationStage::Switched) => actions.push(Action::Copy),
            _ => {}
        }
        match world.plan {
            None => actions.push(Action::Look),
            Some(_) => actions.push(Action::Act),
        }
        if world.crashes < MAX_CRASHES && world.plan.is_some() {
            actions.extend([Action::Crash(false), Action::Crash(true)]);
        }
        for (number, repository) in world.repositories.iter().enumerate() {
            match (repository.pod, repository.change) {
                (None, Some((_, version, false))) if version == secret.version => {
                    actions.push(Action::CreateKeyPod(number));
                }
                (Some((work, _, None)), _) if secret.other(work).is_some() => {
                    actions.push(Action::StartKeyPod(number));
                }
                // Also one that cannot start: it is removed in the end.
                (Some(_), _) => actions.push(Action::EndKeyPod(number)),
                _ => {}
            }
        }
        let is_exclusive = matches!(world.plan, Some((_, Step::WriteSwitch)));
        match world.init {
            Pod::None if !is_exclusive || *self == Self::NoExclusion => {
                actions.push(Action::CreateInit);
            }
            Pod::Created => actions.push(Action::StartInit),
            Pod::Started(_) => actions.push(Action::EndInit),
            Pod::None | Pod::Done => {}
        }
        match world.transfer {
            Pod::None => actions.push(Action::CreateTransfer),
            Pod::Created => actions.push(Action::StartTransfer),
            Pod::Started(_) => actions.push(Action::OpenTransfer),
            Pod::Done => {}
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = *before;
        match action {
            Action::Ask => world.write(|secret| secret.next = Some(Password::New)),
            Action::Replace => world.write(|secret| secret.next = Some(Password::Own)),
            Action::Copy => world.write(|secret| secret.is_copied = true),
            Action::Look => {
                let step = world.look(*self)?;
                world.plan = Some((world.secret.version, step));
            }
            Action::Act => {
                let (version, step) = world.plan.take()?;
                if step == Step::Switch {
                    let may_switch = version == world.secret.version && world.may_switch(*self);
                    world.plan = may_switch.then_some((version, Step::WriteSwitch));
                } else {
                    world.store(version, step);
                }
            }
            Action::Crash(is_stored) => {
                let (version, step) = world.plan.take()?;
                if is_stored {
                    world.store(version, step);
                }
                world.crashes += 1;
            }
            Action::CreateKeyPod(number) => {
                let repository = &mut world.repositories[number];
                let (work, version, _) = repository.change?;
                repository.pod = Some((work, version, None));
            }
            Action::StartKeyPod(number) => {
                let secret = world.secret;
                let (work, version, _) = world.repositories[number].pod?;
                let passwords = (secret.current, secret.other(work)?);
                world.repositories[number].pod = Some((work, version, Some(passwords)));
            }
            Action::EndKeyPod(number) => world.end_key_pod(number),
            Action::CreateInit => world.init = Pod::Created,
            Action::StartInit => world.init = Pod::Started(world.secret.current),
            Action::EndInit => {
                let Pod::Started(password) = world.init else {
                    return None;
                };
                world.repositories[NEW].exists = true;
                world.repositories[NEW].set(password, true);
                world.init = Pod::Done;
            }
            Action::CreateTransfer => {
                world.transfer = Pod::Created;
                world.is_transfer_late = true;
            }
            Action::StartTransfer => world.transfer = Pod::Started(world.secret.current),
            Action::OpenTransfer => {
                let Pod::Started(password) = world.transfer else {
                    return None;
                };
                world.was_refused = !world.repositories[0].opens(password);
                world.transfer = Pod::Done;
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always(OPENS, |_, world| {
                let mut existing = world.repositories.iter().filter(|one| one.exists);
                existing.all(|repository| repository.opens(world.secret.current))
            }),
            Property::<Self>::always(NO_FAILURE, |_, world| !world.was_refused),
            Property::<Self>::sometimes("the rotation ends", |_, world| {
                let has_ended = world.secret.version > 0 && world.secret.stage().is_none();
                let mut repositories = world.repositories.iter();
                has_ended && !repositories.any(|one| one.opens(Password::Old))
            }),
            Property::<Self>::sometimes("a repository is made meanwhile", |_, world| {
                world.repositories[NEW].exists && world.secret.stage().is_some()
            }),
        ]
    }
}

#[test]
fn the_current_password_opens_every_repository_whatever_happens() {
    let checker = Mistake::None.checker().spawn_bfs().join();
    checker.assert_properties();
}

#[test]
fn the_model_finds_the_mistakes_that_it_is_for() {
    for (mistake, property) in [
        (Mistake::NoExclusion, OPENS),
        (Mistake::IgnoresInitPods, OPENS),
        (Mistake::IgnoresNewRepositories, OPENS),
        (Mistake::IgnoresEarlierPods, NO_FAILURE),
        (Mistake::IgnoresVersions, OPENS),
    ] {
        let checker = mistake
            .checker()
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        assert!(checker.discovery(property).is_some(), "{mistake:?}");
    }
}

//! The operations of one history's clients, made from a seed: the same seed makes the same plan.

use std::{fmt, time::Duration};

use backup_core::labels::{BACKUP_WORK_FINALIZER, RESTORE_WORK_FINALIZER};
use backup_lock::ObjectKey;
use serde_json::Value;

use super::{
    faults::Point,
    random::Random,
    soak_op::{self, SoakOp},
    whose::Whose,
};

/// Number of namespaces that a history's backups and restores are about.
pub(crate) const NAMESPACES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Reads.
    Backup,
    /// Writes.
    Restore,
}

impl Kind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "Backup",
            Self::Restore => "Restore",
        }
    }

    /// Keeps an object of ours while it is worked on. For the lock, a deleted object without it is
    /// over.
    pub(crate) fn work_finalizer(self) -> &'static str {
        match self {
            Self::Backup => BACKUP_WORK_FINALIZER,
            Self::Restore => RESTORE_WORK_FINALIZER,
        }
    }

    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Backup => "backups",
            Self::Restore => "restores",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Key of an object in the ledger.
pub(crate) fn key_of(kind: Kind, namespace: &str, name: &str) -> ObjectKey {
    match kind {
        Kind::Backup => ObjectKey::backup(namespace, name),
        Kind::Restore => ObjectKey::restore(namespace, name),
    }
}

/// Some of a history's namespaces, a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Area(pub u8);

impl Area {
    /// The namespaces that fulfil a condition.
    pub(crate) fn of(prefix: &str, is_in: impl Fn(&str) -> bool) -> Self {
        Self(
            (0..NAMESPACES)
                .map(|index| u8::from(is_in(&namespace(prefix, index))) << index)
                .sum(),
        )
    }

    /// Whether a namespace is in both areas.
    pub(crate) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub kind: Kind,
    /// Its name, or with [`How::Generate`] the first part of it.
    pub name: String,
    /// The namespaces that it reads or writes.
    pub area: Area,
}

impl Object {
    /// Whether two objects must not be at work together, by the rules of the design and not by our
    /// code: one is a restore, and they touch the same namespace. Objects of one name never
    /// conflict.
    pub(crate) fn collides(&self, other: &Self) -> bool {
        let same = self.kind == other.kind && self.name == other.name;
        let writes = self.kind == Kind::Restore || other.kind == Kind::Restore;
        !same && writes && self.area.meets(other.area)
    }
}

/// How an object is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Post,
    Generate,
    Apply,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub object: Object,
    pub how: How,
    pub dry_run: bool,
    /// The planned fault.
    pub fault: Option<Point>,
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Create(Create),
    /// Asks the operator to end the work on this name now.
    Finish(Kind, String),
    /// Releases a claim of the history by force.
    Release,
    /// Revives a failed restore of the history, as its operator may.
    Revive,
    Delete(Kind, String),
    /// An operation that only a soak has.
    Soak(SoakOp),
}

/// An operation, the pause before it, and the API server that it goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub after: Duration,
    pub server: usize,
    pub op: Op,
}

/// A history: concurrent clients, each with its steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub number: u64,
    /// Prefix of all its names.
    pub prefix: String,
    pub whose: Whose,
    pub clients: Vec<Vec<Step>>,
    /// How long the operator works on an object unless it is asked to end.
    pub work: Duration,
}

/// The environment of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    pub servers: usize,
    pub faults: bool,
    /// Real controllers of two installations work, instead of the operator that the kit plays.
    pub controllers: bool,
    /// Some histories are about objects of a guarded operator.
    pub guarded: bool,
    /// Clients also perform the operations of a soak.
    pub soak: bool,
}

/// Prefix of a history's names.
pub(crate) fn prefix(number: u64) -> String {
    format!("h{number:06}-")
}

/// The history that a name belongs to.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    name.strip_prefix('h')?
        .get(..6)?
        .parse()
        .ok()
        .filter(|_| name.as_bytes().get(7) == Some(&b'-'))
}

/// Whether this is the name of a backup that was put into a bucket as another cluster would have.
pub(crate) fn is_foreign(name: &str) -> bool {
    number_of(name).is_some() && name.as_bytes().get(8) == Some(&b'x')
}

/// The name of a history's namespace, which need not exist.
pub(crate) fn namespace(prefix: &str, index: usize) -> String {
    format!(
        "{prefix}{}",
        char::from(b'a' + u8::try_from(index).unwrap_or_default())
    )
}

/// The namespaces that a stored object of this spec touches. A restore touches the targets of its
/// mapping, and not the sources.
pub(crate) fn area_of(prefix: &str, spec: &Value) -> Area {
    let mapping = spec["namespaceMapping"].as_object();
    let included = spec["includedNamespaces"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let stay = included.filter(|name| mapping.is_none_or(|mapping| !mapping.contains_key(*name)));
    let targets = mapping
        .into_iter()
        .flatten()
        .filter_map(|(_, to)| to.as_str());
    let names: Vec<&str> = stay.chain(targets).collect();
    Area::of(prefix, |namespace| {
        let is = |name: &str| {
            name == namespace
                || name
                    .strip_suffix('*')
                    .is_some_and(|stem| namespace.starts_with(stem))
        };
        names.iter().any(|name| is(name))
    })
}

impl Plan {
    /// The plan of this history. `process` is a fault that stops or kills a process; it hits the
    /// first creation of the history that reaches its point.
    pub(crate) fn new(seed: u64, number: u64, setting: Setting, process: Option<Point>) -> Self {
        let mut random = Random::of(seed, number);
        loop {
            let plan = Self::draw(&mut random, number, setting, process);
            if plan.may_collide() {
                return plan;
            }
        }
    }

    fn draw(random: &mut Random, number: u64, setting: Setting, process: Option<Point>) -> Self {
        let prefix = prefix(number);
        let whose = Whose::of(number, setting);
        let fixed = [Area(random.area()), Area(random.area())];
        let clients = 2 + random.below(2);
        let work = Duration::from_millis(random.below(60));
        let mut lists = vec![Vec::new(); usize::try_from(clients).unwrap_or(2)];
        for list in &mut lists {
            for _ in 0..5 - clients + random.below(3) {
                let op = draw_op(random, &prefix, fixed, setting, &whose);
                let server =
                    usize::try_from(random.below(setting.servers as u64)).unwrap_or_default();
                let mut after = Duration::from_millis(random.below(15));
                // The work is over before some of the steps.
                let longest = match whose {
                    Whose::Ours => 0,
                    Whose::Operators { .. } => 150,
                    Whose::Installations { .. } => 1500,
                };
                if longest > 0 && random.one_in(3) {
                    after += Duration::from_millis(random.below(longest));
                }
                // Now and then long enough for an orphan to be collected in between.
                if setting.faults && random.one_in(100) {
                    after += Duration::from_millis(2500 + random.below(2000));
                }
                list.push(Step { after, server, op });
            }
        }
        if whose == (Whose::Installations { slow: true }) {
            // Usually in the middle of a restore.
            let after = Duration::from_millis(1000 + random.below(1500));
            lists.push(vec![Step {
                after,
                server: 0,
                op: Op::Release,
            }]);
        }
        let mut plan = Self {
            number,
            prefix,
            whose,
            clients: lists,
            work,
        };
        if process == Some(Point::ApiServerStopped) {
            plan.play_late_landing();
        }
        plan
    }

    /// One client's creation is delayed by a stopped server. Another client retries a conflicting
    /// creation until the orphaned claim is collected; then the first may be stored late.
    fn play_late_landing(&mut self) {
        let full = |what: &str| format!("{}{what}", self.prefix);
        let create = |kind, what: &str| {
            let object = Object {
                kind,
                name: full(what),
                area: Area(1),
            };
            Op::Create(Create {
                object,
                how: How::Post,
                dry_run: false,
                fault: None,
            })
        };
        let late = Step {
            after: Duration::ZERO,
            server: 0,
            op: create(Kind::Backup, "late"),
        };
        let mut asking = vec![Step {
            after: Duration::from_millis(1500),
            server: 1,
            op: create(Kind::Restore, "asks-0"),
        }];
        for number in 1..12 {
            let op = create(Kind::Restore, &format!("asks-{number}"));
            asking.push(Step {
                after: Duration::from_millis(350),
                server: 1,
                op,
            });
        }
        self.work = Duration::from_millis(1500);
        self.clients = vec![vec![late], asking];
    }

    /// Sets the same fault for every creation.
    pub(crate) fn hit_all(&mut self, fault: Point) {
        for step in self.clients.iter_mut().flatten() {
            if let Op::Create(create) = &mut step.op
                && !create.dry_run
                && self.whose.can_meet(fault)
            {
                create.fault = Some(fault);
            }
        }
    }

    fn may_collide(&self) -> bool {
        let creations = |list: &[Step]| -> Vec<Create> {
            let create = |step: &Step| {
                if let Op::Create(create) = &step.op {
                    Some(create.clone())
                } else {
                    None
                }
            };
            list.iter()
                .filter_map(create)
                .filter(|create| !create.dry_run)
                .collect()
        };
        let lists: Vec<_> = self.clients.iter().map(|list| creations(list)).collect();
        lists.iter().enumerate().any(|(index, list)| {
            let others = || lists[index + 1..].iter().flatten();
            list.iter()
                .any(|one| others().any(|other| one.object.collides(&other.object)))
        })
    }
}

/// Names are few, so that they are used again. The second of each kind always has the same area,
/// because it may be applied: an apply to an existing object is an update.
fn draw_op(
    random: &mut Random,
    prefix: &str,
    fixed: [Area; 2],
    setting: Setting,
    whose: &Whose,
) -> Op {
    let kind = if random.one_in(2) {
        Kind::Backup
    } else {
        Kind::Restore
    };
    let which = random.below(2);
    let letter = if kind == Kind::Backup { 'b' } else { 'r' };
    let name = format!("{prefix}{letter}{which}");
    match random.below(20) {
        0..=2 => Op::Delete(kind, name),
        3..=4 if matches!(whose, Whose::Installations { .. }) => Op::Release,
        3..=4 => Op::Finish(kind, name),
        5..=9 if matches!(whose, Whose::Operators { .. }) => Op::Revive,
        _ if setting.soak && matches!(whose, Whose::Installations { .. }) && random.one_in(3) => {
            Op::Soak(soak_op::draw(random, prefix))
        }
        sort => {
            let how = match (sort, which) {
                (5..=7, _) => How::Generate,
                (8..=12, 1) => How::Apply,
                _ => How::Post,
            };
            let fixed = fixed[usize::from(kind == Kind::Restore)];
            let area = if matches!(whose, Whose::Operators { .. }) {
                // A database cluster is indivisible.
                Area(1)
            } else if which == 1 && how != How::Generate {
                fixed
            } else {
                Area(random.area())
            };
            let dry_run = random.one_in(8);
            let name = if how == How::Generate {
                format!("{name}-")
            } else {
                name
            };
            let hit = setting.faults && !dry_run && random.one_in(10);
            let fault = hit
                .then(|| random.pick(&Point::OF_ONE_REQUEST))
                .filter(|fault| {
                    let can_repeat = how != How::Generate || *fault != Point::SecondCreation;
                    can_repeat && whose.can_meet(*fault)
                });
            Op::Create(Create {
                object: Object { kind, name, area },
                how,
                dry_run,
                fault,
            })
        }
    }
}

#[cfg(test)]
mod tests;

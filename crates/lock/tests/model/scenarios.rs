//! Small worlds, each explored completely: who asks for what, and which faults may happen.

use backup_lock::{ObjectKind, transition::EndRules};

use super::mistakes::Mistake;

const A: u8 = 1;
const B: u8 = 2;

#[derive(Clone, Debug)]
pub struct Name {
    pub kind: ObjectKind,
    pub text: &'static str,
}

#[derive(Clone, Debug)]
pub enum Wish {
    Create {
        /// A bit for each namespace.
        mask: u8,
        source: Option<usize>,
        /// Wait for a place.
        queue: bool,
        /// A refusal leaves word.
        intent: bool,
    },
    /// The backup that this request created is to be deleted.
    Delete { target: usize },
    /// What this request created has ended, and is to work again.
    Revive { target: usize },
}

/// A request of a client. Its place in the list is the uid of what it creates.
#[derive(Clone, Debug)]
pub struct Request {
    /// Place of the name in the list of names.
    pub name: usize,
    pub wish: Wish,
    pub replica: usize,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called where states are counted.
    pub title: &'static str,
    pub names: Vec<Name>,
    pub requests: Vec<Request>,
    /// Requests that were stored and have ended before the beginning.
    pub completed: Vec<usize>,
    /// Whether their claims still stand then.
    pub unfreed: bool,
    pub replicas: usize,
    pub crashes: u8,
    pub losses: u8,
    /// Ledger writes whose answers are lost.
    pub lost_replies: u8,
    pub removals: u8,
    pub removable: Vec<usize>,
    /// Claims that a person takes by force.
    pub releases: u8,
    /// Objects whose end a person writes.
    pub ends_by_hand: u8,
    /// Leaders that are paused past their lease.
    pub pauses: u8,
    /// Whether admitted creations may never be stored.
    pub drops: bool,
    /// Whether they may be stored after their claims were collected.
    pub late: bool,
    /// Replicas that collect.
    pub collectors: usize,
    /// Whether the collector reads a claim and its object in two steps.
    pub slow_collector: bool,
    /// Whether a replica decides on several requests together.
    pub merges: bool,
    pub blind: bool,
    /// Whether the webhook, too, knows how long an object has been missing, and collects.
    pub watchful: bool,
    /// Whether replicas remember the ledger that they wrote.
    pub remembers: bool,
    /// Whether an operator starts on sight, without activation.
    pub on_sight: bool,
    pub ends: EndRules,
    /// Whether backups that have not begun let a restore go first.
    pub yields: bool,
    pub mistake: Option<Mistake>,
}

impl Scenario {
    pub fn with(self, mistake: Mistake) -> Self {
        Self { mistake: Some(mistake), ..self }
    }

    /// Calm: no faults but creations that come late or never, and a collector.
    fn new(title: &'static str, names: &[(ObjectKind, &'static str)], requests: Vec<Request>) -> Self {
        Self {
            title,
            names: names.iter().map(|(kind, text)| Name { kind: *kind, text }).collect(),
            requests,
            completed: Vec::new(),
            unfreed: false,
            replicas: 2,
            crashes: 0,
            losses: 0,
            lost_replies: 0,
            removals: 0,
            removable: Vec::new(),
            releases: 0,
            ends_by_hand: 0,
            pauses: 0,
            drops: true,
            late: true,
            collectors: 1,
            slow_collector: false,
            merges: false,
            blind: false,
            watchful: false,
            remembers: false,
            on_sight: false,
            ends: EndRules::default(),
            yields: false,
            mistake: None,
        }
    }
}

fn create(name: usize, mask: u8, replica: usize) -> Request {
    Request { name, wish: Wish::Create { mask, source: None, queue: false, intent: false }, replica }
}

impl Request {
    fn queued(mut self) -> Self {
        if let Wish::Create { queue, .. } = &mut self.wish {
            *queue = true;
        }
        self
    }

    fn insisting(mut self) -> Self {
        if let Wish::Create { intent, .. } = &mut self.wish {
            *intent = true;
        }
        self
    }

    fn from(mut self, backup: usize) -> Self {
        if let Wish::Create { source, .. } = &mut self.wish {
            *source = Some(backup);
        }
        self
    }
}

const BACKUP: (ObjectKind, &str) = (ObjectKind::Backup, "nightly");
const OTHER: (ObjectKind, &str) = (ObjectKind::Backup, "hourly");
const RESTORE: (ObjectKind, &str) = (ObjectKind::Restore, "undo");
const SECOND: (ObjectKind, &str) = (ObjectKind::Restore, "redo");

/// A backup against a restore, through two replicas; the controller crashes, an answer is lost.
pub fn duel() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new("a backup against a restore", &[BACKUP, RESTORE], requests);
    Scenario { crashes: 1, lost_replies: 1, slow_collector: true, watchful: true, ..calm }
}

/// Two backups that may run together against a restore of both.
pub fn sharing() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, B, 1), create(2, A | B, 0)];
    let calm = Scenario::new("two backups against a restore", &[BACKUP, OTHER, RESTORE], requests);
    Scenario { drops: false, ..calm }
}

/// A name that is used twice, the second time for more, against a restore of what came with it.
pub fn reuse() -> Scenario {
    let requests = vec![create(0, A, 0), create(0, A | B, 0), create(1, B, 0)];
    let calm = Scenario::new("a name used twice", &[BACKUP, RESTORE], requests);
    Scenario { replicas: 1, late: false, ..calm }
}

/// Running objects are deleted, and the controller crashes.
pub fn deletion() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new("objects deleted while they work", &[BACKUP, RESTORE], requests);
    Scenario { crashes: 1, removals: 2, removable: vec![0, 1], ..calm }
}

/// A finished backup is deleted while a restore from it is asked for.
pub fn source() -> Scenario {
    let delete = Request { name: 0, wish: Wish::Delete { target: 0 }, replica: 0 };
    let requests = vec![create(0, A, 0), create(1, B, 1).from(0), delete];
    let calm = Scenario::new("a backup deleted under a restore from it", &[BACKUP, RESTORE], requests);
    Scenario { completed: vec![0], crashes: 1, lost_replies: 1, removals: 1, removable: vec![1], ..calm }
}

/// The ledger is deleted under a backup and a restore.
pub fn loss() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new("a lost ledger", &[BACKUP, RESTORE], requests);
    Scenario { losses: 1, crashes: 1, watchful: true, ..calm }
}

/// A restore that queues behind a backup, and a backup that would overtake it.
pub fn queue() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).queued()];
    let calm = Scenario::new("a restore that waits", &[BACKUP, OTHER, RESTORE], requests);
    Scenario { replicas: 1, late: false, ..calm }
}

/// Backups that let a restore go first while the controller starts them.
pub fn yielding() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).queued()];
    let calm = Scenario::new("backups that let a restore go first", &[BACKUP, OTHER, RESTORE], requests);
    Scenario { yields: true, replicas: 1, drops: false, late: false, ..calm }
}

/// A backup that lets a restore go first while answers and the ledger are lost and the controller crashes.
pub fn yielding_loss() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1).queued()];
    let calm =
        Scenario::new("a backup that lets a restore go first in a lost ledger", &[BACKUP, RESTORE], requests);
    Scenario { yields: true, losses: 1, crashes: 1, lost_replies: 1, ..calm }
}

/// Two restores that queue, behind a backup and behind one another.
pub fn queues() -> Scenario {
    let requests = vec![create(0, A | B, 0), create(1, A, 1).queued(), create(2, A | B, 0).queued()];
    let calm = Scenario::new("two restores that wait", &[BACKUP, RESTORE, SECOND], requests);
    Scenario { drops: false, late: false, ..calm }
}

/// A refused restore leaves word and tries again, while backups come.
pub fn intent() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).insisting()];
    let calm = Scenario::new("a restore that insists", &[BACKUP, OTHER, RESTORE], requests);
    Scenario { replicas: 1, drops: false, late: false, ..calm }
}

/// A replica decides on a backup and a restore in one write, another on a backup; blockers cannot be read at times.
pub fn batch() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, B, 1), create(2, A | B, 0)];
    let calm = Scenario::new("requests merged into one write", &[BACKUP, OTHER, RESTORE], requests);
    Scenario { watchful: true, merges: true, blind: true, drops: false, late: false, collectors: 0, ..calm }
}

/// Replicas that decide on the ledger that they remember.
pub fn memory() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, B, 1), create(2, A, 1)];
    let calm = Scenario::new("replicas that remember", &[BACKUP, OTHER, RESTORE], requests);
    Scenario { remembers: true, late: false, drops: false, collectors: 0, ..calm }
}

/// What a restore wrote has to settle before it is touched again.
pub fn settling() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).queued()];
    let calm = Scenario::new("a restore that settles", &[BACKUP, RESTORE, SECOND], requests);
    Scenario {
        ends: EndRules { settles: true, tombstones: false },
        replicas: 1,
        drops: false,
        late: false,
        ..calm
    }
}

/// An operator that starts on sight. Creations come while their claim or its tombstone stands, not later.
pub fn guarded() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1), create(0, A, 1)];
    let calm = Scenario::new("an operator that starts on sight", &[BACKUP, RESTORE], requests);
    Scenario {
        on_sight: true,
        late: false,
        ends: EndRules { settles: false, tombstones: true },
        watchful: true,
        ..calm
    }
}

/// A person takes claims by force, in whatever state they are, and the controller crashes.
pub fn force() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0).queued()];
    let calm = Scenario::new("claims taken by force", &[BACKUP, RESTORE], requests);
    Scenario { replicas: 1, releases: 2, crashes: 1, late: false, ..calm }
}

/// A person writes the end of objects, at work or not, deletes the restore, and the controller crashes.
pub fn ended_by_hand() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0)];
    let calm = Scenario::new("objects that a person ends", &[BACKUP, RESTORE], requests);
    let hands = Scenario { ends_by_hand: 2, removals: 1, removable: vec![1], ..calm };
    Scenario { replicas: 1, crashes: 1, watchful: true, late: false, ..hands }
}

/// A leader is paused past its lease while it works, or while its patch that begins is under way, and wakes.
pub fn pause() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new("a leader that is paused, and wakes", &[BACKUP, RESTORE], requests);
    Scenario { pauses: 1, lost_replies: 1, ..calm }
}

/// An operator's backup that has failed is taken back to life, while a restore is asked for.
pub fn revival() -> Scenario {
    let revive = Request { name: 0, wish: Wish::Revive { target: 0 }, replica: 0 };
    let requests = vec![create(0, A, 0), create(1, A, 1), revive];
    let calm = Scenario::new("a backup that is taken back to life", &[BACKUP, RESTORE], requests);
    Scenario {
        completed: vec![0],
        on_sight: true,
        late: false,
        ends: EndRules { settles: false, tombstones: true },
        watchful: true,
        ..calm
    }
}

/// The same while two replicas collect what it had before it failed.
pub fn revival_at_once() -> Scenario {
    let title = "a backup that is taken back to life while two collect its first claim";
    Scenario { title, unfreed: true, collectors: 2, watchful: false, ..revival() }
}

//! Small worlds, each explored completely: their requests, and their possible faults.

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
        /// Wait in the queue.
        queue: bool,
        /// A refusal leaves an intent.
        intent: bool,
    },
    /// Delete the backup that this request created.
    Delete { target: usize },
    /// Revive the ended object that this request created.
    Revive { target: usize },
}

/// A request of a client. Its index is the uid of the object it creates.
#[derive(Clone, Debug)]
pub struct Request {
    /// Index of the name in the list of names.
    pub name: usize,
    pub wish: Wish,
    pub replica: usize,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in the list of state counts.
    pub title: &'static str,
    pub names: Vec<Name>,
    pub requests: Vec<Request>,
    /// Requests whose objects were stored and have ended before the start.
    pub completed: Vec<usize>,
    /// Whether their claims still exist then.
    pub unfreed: bool,
    pub replicas: usize,
    pub crashes: u8,
    pub losses: u8,
    /// Number of ledger writes whose answers are lost.
    pub lost_replies: u8,
    pub removals: u8,
    pub removable: Vec<usize>,
    /// Number of claims that a user releases by force.
    pub releases: u8,
    /// Number of objects whose terminal phase a user writes.
    pub ends_by_hand: u8,
    /// Number of leaders that are paused past their lease.
    pub pauses: u8,
    /// Whether admitted creations may never be stored.
    pub drops: bool,
    /// Whether they may be stored after their claims were collected.
    pub late: bool,
    /// Number of replicas that collect.
    pub collectors: usize,
    /// Whether the collector reads a claim and its object in two steps.
    pub slow_collector: bool,
    /// Whether a replica decides on several requests together.
    pub merges: bool,
    pub blind: bool,
    /// Whether the webhook, too, tracks how long an object has been missing, and collects.
    pub watchful: bool,
    /// Whether replicas remember the ledger that they wrote.
    pub remembers: bool,
    /// Whether an operator starts on sight, without activation.
    pub on_sight: bool,
    pub ends: EndRules,
    /// Whether backups that have not begun yield to a restore.
    pub yields: bool,
    pub mistake: Option<Mistake>,
}

impl Scenario {
    pub fn with(self, mistake: Mistake) -> Self {
        Self {
            mistake: Some(mistake),
            ..self
        }
    }

    /// Calm: the only faults are creations that arrive late or never; with a collector.
    fn new(
        title: &'static str,
        names: &[(ObjectKind, &'static str)],
        requests: Vec<Request>,
    ) -> Self {
        Self {
            title,
            names: names
                .iter()
                .map(|(kind, text)| Name { kind: *kind, text })
                .collect(),
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
    Request {
        name,
        wish: Wish::Create {
            mask,
            source: None,
            queue: false,
            intent: false,
        },
        replica,
    }
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
    Scenario {
        crashes: 1,
        lost_replies: 1,
        slow_collector: true,
        watchful: true,
        ..calm
    }
}

/// Two backups that may run together against a restore of both.
pub fn sharing() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, B, 1), create(2, A | B, 0)];
    let calm = Scenario::new(
        "two backups against a restore",
        &[BACKUP, OTHER, RESTORE],
        requests,
    );
    Scenario {
        drops: false,
        ..calm
    }
}

/// A name that is used twice, the second time for more, against a restore of the added namespace.
pub fn reuse() -> Scenario {
    let requests = vec![create(0, A, 0), create(0, A | B, 0), create(1, B, 0)];
    let calm = Scenario::new("a name used twice", &[BACKUP, RESTORE], requests);
    Scenario {
        replicas: 1,
        late: false,
        ..calm
    }
}

/// Running objects are deleted, and the controller crashes.
pub fn deletion() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new(
        "objects deleted while they work",
        &[BACKUP, RESTORE],
        requests,
    );
    Scenario {
        crashes: 1,
        removals: 2,
        removable: vec![0, 1],
        ..calm
    }
}

/// A finished backup is deleted while a restore from it is requested.
pub fn source() -> Scenario {
    let delete = Request {
        name: 0,
        wish: Wish::Delete { target: 0 },
        replica: 0,
    };
    let requests = vec![create(0, A, 0), create(1, B, 1).from(0), delete];
    let calm = Scenario::new(
        "a backup deleted under a restore from it",
        &[BACKUP, RESTORE],
        requests,
    );
    Scenario {
        completed: vec![0],
        crashes: 1,
        lost_replies: 1,
        removals: 1,
        removable: vec![1],
        ..calm
    }
}

/// The ledger is deleted under a backup and a restore.
pub fn loss() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new("a lost ledger", &[BACKUP, RESTORE], requests);
    Scenario {
        losses: 1,
        crashes: 1,
        watchful: true,
        ..calm
    }
}

/// A restore that queues behind a backup, and a backup that would overtake it.
pub fn queue() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).queued()];
    let calm = Scenario::new("a restore that waits", &[BACKUP, OTHER, RESTORE], requests);
    Scenario {
        replicas: 1,
        late: false,
        ..calm
    }
}

/// Backups that yield to a restore while the controller starts them.
pub fn yielding() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).queued()];
    let calm = Scenario::new(
        "backups that let a restore go first",
        &[BACKUP, OTHER, RESTORE],
        requests,
    );
    Scenario {
        yields: true,
        replicas: 1,
        drops: false,
        late: false,
        ..calm
    }
}

/// A backup that yields to a restore while answers and the ledger are lost and the controller
/// crashes.
pub fn yielding_loss() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1).queued()];
    let calm = Scenario::new(
        "a backup that lets a restore go first in a lost ledger",
        &[BACKUP, RESTORE],
        requests,
    );
    Scenario {
        yields: true,
        losses: 1,
        crashes: 1,
        lost_replies: 1,
        ..calm
    }
}

/// Two restores that queue, behind a backup and behind one another.
pub fn queues() -> Scenario {
    let requests = vec![
        create(0, A | B, 0),
        create(1, A, 1).queued(),
        create(2, A | B, 0).queued(),
    ];
    let calm = Scenario::new(
        "two restores that wait",
        &[BACKUP, RESTORE, SECOND],
        requests,
    );
    Scenario {
        drops: false,
        late: false,
        ..calm
    }
}

/// A refused restore leaves an intent and retries, while new backups are requested.
pub fn intent() -> Scenario {
    let requests = vec![
        create(0, A, 0),
        create(1, A, 0),
        create(2, A, 0).insisting(),
    ];
    let calm = Scenario::new(
        "a restore that insists",
        &[BACKUP, OTHER, RESTORE],
        requests,
    );
    Scenario {
        replicas: 1,
        drops: false,
        late: false,
        ..calm
    }
}

/// A replica decides on a backup and a restore in one write, another on a backup; blockers cannot
/// be read at times.
pub fn batch() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, B, 1), create(2, A | B, 0)];
    let calm = Scenario::new(
        "requests merged into one write",
        &[BACKUP, OTHER, RESTORE],
        requests,
    );
    Scenario {
        watchful: true,
        merges: true,
        blind: true,
        drops: false,
        late: false,
        collectors: 0,
        ..calm
    }
}

/// Replicas that decide on the ledger that they remember.
pub fn memory() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, B, 1), create(2, A, 1)];
    let calm = Scenario::new(
        "replicas that remember",
        &[BACKUP, OTHER, RESTORE],
        requests,
    );
    Scenario {
        remembers: true,
        late: false,
        drops: false,
        collectors: 0,
        ..calm
    }
}

/// The data that a restore wrote has to settle before it is touched again.
pub fn settling() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0), create(2, A, 0).queued()];
    let calm = Scenario::new(
        "a restore that settles",
        &[BACKUP, RESTORE, SECOND],
        requests,
    );
    Scenario {
        ends: EndRules {
            settles: true,
            tombstones: false,
        },
        replicas: 1,
        drops: false,
        late: false,
        ..calm
    }
}

/// An operator that starts on sight. Objects arrive while their claim or its tombstone exists, not
/// later.
pub fn guarded() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1), create(0, A, 1)];
    let calm = Scenario::new(
        "an operator that starts on sight",
        &[BACKUP, RESTORE],
        requests,
    );
    Scenario {
        on_sight: true,
        late: false,
        ends: EndRules {
            settles: false,
            tombstones: true,
        },
        watchful: true,
        ..calm
    }
}

/// A user releases claims by force, in any state, and the controller crashes.
pub fn force() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0).queued()];
    let calm = Scenario::new("claims taken by force", &[BACKUP, RESTORE], requests);
    Scenario {
        replicas: 1,
        releases: 2,
        crashes: 1,
        late: false,
        ..calm
    }
}

/// A user writes the terminal phase of objects, running or not, deletes the restore, and the
/// controller crashes.
pub fn ended_by_hand() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 0)];
    let calm = Scenario::new("objects that a person ends", &[BACKUP, RESTORE], requests);
    let hands = Scenario {
        ends_by_hand: 2,
        removals: 1,
        removable: vec![1],
        ..calm
    };
    Scenario {
        replicas: 1,
        crashes: 1,
        watchful: true,
        late: false,
        ..hands
    }
}

/// A leader is paused past its lease while it works, or while its patch that begins the work is in
/// flight, and resumes.
pub fn pause() -> Scenario {
    let requests = vec![create(0, A, 0), create(1, A, 1)];
    let calm = Scenario::new(
        "a leader that is paused, and wakes",
        &[BACKUP, RESTORE],
        requests,
    );
    Scenario {
        pauses: 1,
        lost_replies: 1,
        ..calm
    }
}

/// An operator's failed backup is revived, while a restore is requested.
pub fn revival() -> Scenario {
    let revive = Request {
        name: 0,
        wish: Wish::Revive { target: 0 },
        replica: 0,
    };
    let requests = vec![create(0, A, 0), create(1, A, 1), revive];
    let calm = Scenario::new(
        "a backup that is taken back to life",
        &[BACKUP, RESTORE],
        requests,
    );
    Scenario {
        completed: vec![0],
        on_sight: true,
        late: false,
        ends: EndRules {
            settles: false,
            tombstones: true,
        },
        watchful: true,
        ..calm
    }
}

/// The same while two replicas collect the claim it had before it failed.
pub fn revival_at_once() -> Scenario {
    let title = "a backup that is taken back to life while two collect its first claim";
    Scenario {
        title,
        unfreed: true,
        collectors: 2,
        watchful: false,
        ..revival()
    }
}

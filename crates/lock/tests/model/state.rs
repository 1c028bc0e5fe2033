//! The model's world: the ledger in its Lease, its marker, the stored objects, and the progress of
//! each process.

use std::sync::Arc;

use backup_lock::{Claim, Ledger, collect::Judgement, transition::ObservedState};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub lease: Option<Lease>,
    pub marker: Marker,
    pub objects: Vec<Option<Object>>,
    /// The stage of each client request. A creation's index in this list is the uid of its object.
    pub requests: Vec<Stage>,
    pub replicas: Vec<Replica>,
    /// The state of the controller for each name.
    pub workers: Vec<Worker>,
    /// The state of each collector.
    pub collecting: Vec<Collecting>,
    /// The objects that the repair has listed to fill a lost ledger.
    pub listed: Option<Arc<Ledger>>,
    /// Uids that the collector has seen stored; lost with its process.
    pub seen: Bits,
    /// Uids that were adopted into a ledger because they were stored, not admitted.
    pub adopted: Bits,
    /// Uids whose claim a user released by force.
    pub released: Bits,
    /// The released uids whose time to stop working has passed.
    pub stopped: Bits,
    pub paused: Paused,
    pub left: Left,
    /// The highest epoch of any ledger so far.
    pub top: u64,
    /// Violations that have happened; a set field stays set.
    pub wrong: Wrong,
}

/// A small set of numbers below eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bits(u8);

impl Bits {
    pub fn has(self, number: usize) -> bool {
        self.0 & (1 << number) != 0
    }

    pub fn add(&mut self, number: usize) {
        self.0 |= 1 << number;
    }

    pub fn remove(&mut self, number: usize) {
        self.0 &= !(1 << number);
    }
}

/// The uids that a leader was working on when it was paused past its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Paused {
    pub works: Bits,
    /// The patch that begins the work was sent, and may still arrive.
    pub begins: Bits,
    /// Only for a mistake: it works again, while another leads.
    pub awake: Bits,
}

/// The Lease: what a compare-and-swap compares. Equal ledgers under one uid count as the same
/// version; a write that would fail for its version alone succeeds here, as it would after a fresh
/// read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub uid: u8,
    pub ledger: Arc<Ledger>,
}

/// The marker of the scope; outlives the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Uid of the Lease that holds the ledger.
    pub ledger: u8,
    /// No epoch of that ledger is larger.
    pub epoch: u64,
}

/// A stored Backup or Restore. An object of the engine has the work finalizer while it is
/// `InProgress`: the same patch writes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its uid: the index of the creation request.
    pub uid: usize,
    pub phase: Phase,
    pub deleting: bool,
    /// A user has written its end while it was `InProgress`: it still has the finalizer.
    pub held: bool,
    /// Number of times it was revived: the part of its resourceVersion that a revival depends on.
    pub revived: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    New,
    /// Running, as far as any observer can tell: from the patch that begins to the patch that ends,
    /// including while no worker runs because the controller has crashed.
    InProgress,
    Over,
}

/// Stage of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Unsent,
    Taken,
    /// Allowed by us; whether and when it is stored is unknown.
    Admitted,
    Landed,
    /// Never stored: denied by another webhook, lost with its API server, a name that is taken, our
    /// 503.
    Dropped,
    Refused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replica {
    pub deciding: Option<Deciding>,
    /// The ledger as it last wrote it, if the scenario lets it remember.
    pub remembered: Option<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deciding {
    pub wants: Vec<usize>,
    pub base: Lease,
    /// The observations of the blockers' objects so far, and whether each has been so for its
    /// timeout. `None`: unreadable.
    pub looks: Vec<Option<(ObservedState, bool)>>,
    /// Requests with a conflict at some time since they were taken.
    pub justified: Bits,
    /// The outcome of a mistaken replica that looks at the objects instead of claiming.
    pub looked: Option<bool>,
}

/// State of the controller for one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    Idle,
    Seen {
        uid: usize,
        new: bool,
    },
    /// Its claim was activated.
    Right(usize),
    /// It works. The end of the work is internal until it is published.
    Working(usize),
    /// Its activation was refused: the object must fail without having started.
    Refused(usize),
    /// The terminal phase is written, or the object is gone.
    Ended(usize),
    /// Only for mistakes: the claim is released, and the work continues.
    Released(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collecting {
    Idle,
    /// It has read a claim, but not the object yet.
    Read(Arc<Claim>),
    Judged(Vec<Judgement>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub crashes: u8,
    pub losses: u8,
    /// Number of ledger writes whose answer is lost.
    pub lost_replies: u8,
    pub removals: u8,
    /// Number of releases by force.
    pub releases: u8,
    /// Number of ends that a user writes.
    pub ends: u8,
    pub pauses: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// A claim was granted beside a conflicting claim, or beside conflicting work.
    pub beside: bool,
    /// A backup was granted although a conflicting restore waited.
    pub overtook: bool,
    /// The claim of a creation in flight was ended as if its object had existed.
    pub hasty: bool,
    /// A request was refused although nothing had conflicted since it was sent.
    pub unjustified: bool,
    pub epoch_back: bool,
}

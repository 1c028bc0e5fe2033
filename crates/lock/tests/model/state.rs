//! What the model's world looks like: the ledger in its Lease, its marker, the stored objects, and how far everybody is.

use std::sync::Arc;

use backup_lock::{Claim, Ledger, collect::Judged, transition::ObservedState};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub lease: Option<Lease>,
    pub marker: Marker,
    pub objects: Vec<Option<Object>>,
    /// How far each request of a client is. A creation's place in this list is the uid of its object.
    pub requests: Vec<Stage>,
    pub replicas: Vec<Replica>,
    /// What the controller does for each name.
    pub workers: Vec<Worker>,
    /// What each of those who collect does.
    pub collecting: Vec<Collecting>,
    /// What the repair has listed to fill a lost ledger with.
    pub listed: Option<Arc<Ledger>>,
    /// Uids that the collector has seen stored; lost with its process.
    pub seen: Bits,
    /// Uids that came into a ledger because they were stored, not because they were admitted.
    pub adopted: Bits,
    /// Uids whose claim a person took by force.
    pub released: Bits,
    /// Those of them for which the time has passed in which their work has to stop.
    pub stopped: Bits,
    pub paused: Paused,
    pub left: Left,
    /// The highest epoch of any ledger so far.
    pub top: u64,
    /// What was done that must never be done; stays once set.
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

/// What a leader had in hand when it was paused past its lease: uids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Paused {
    pub works: Bits,
    /// The patch that begins was sent, and may arrive yet.
    pub begins: Bits,
    /// Only of a mistake: it works again, and another leads.
    pub awake: Bits,
}

/// The Lease: what a compare-and-swap compares. Equal ledgers under one uid count as the same version; a write that would
/// fail for its version alone succeeds here, as it would after a fresh read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub uid: u8,
    pub ledger: Arc<Ledger>,
}

/// Outlives the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Uid of the Lease that is the ledger.
    pub ledger: u8,
    /// No epoch of that ledger is larger.
    pub epoch: u64,
}

/// A stored Backup or Restore. One of the engine bears the finalizer of its work while it is `InProgress`: both are written
/// by the same patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Its uid: the creation that it came from.
    pub uid: usize,
    pub phase: Phase,
    pub deleting: bool,
    /// A person has written its end while it was `InProgress`: it still bears the finalizer.
    pub held: bool,
    /// How often it was taken back to life: as much of its resourceVersion as a revival depends on.
    pub revived: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    New,
    /// At work, as far as anybody can tell: from the patch that begins to the patch that ends, also while nobody works
    /// on it because the controller has crashed.
    InProgress,
    Over,
}

/// How far a request of a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    Unsent,
    Taken,
    /// Allowed by us; nobody knows whether and when it is stored.
    Admitted,
    Landed,
    /// Never stored: denied by another webhook, lost with its API server, a name that is taken, our 503.
    Dropped,
    Refused,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Replica {
    pub deciding: Option<Deciding>,
    /// The ledger as it wrote it last, where the scenario lets it remember.
    pub remembered: Option<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deciding {
    pub wants: Vec<usize>,
    pub base: Lease,
    /// What was seen of the blockers' objects so far, and whether they have been so for their time. None: not readable.
    pub looks: Vec<Option<(ObservedState, bool)>>,
    /// Requests for which something stood in the way at some time since they were taken.
    pub justified: Bits,
    /// The verdict of a mistaken replica that looks at the objects instead of claiming.
    pub looked: Option<bool>,
}

/// What the controller does for one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Worker {
    Idle,
    Seen {
        uid: usize,
        new: bool,
    },
    /// The ledger gave the right to work.
    Right(usize),
    /// It works. The end of the work is its own affair until it is published.
    Working(usize),
    /// It has no right to work: to be ended without having started.
    Refused(usize),
    /// The terminal phase is written, or the object is gone.
    Ended(usize),
    /// Only of mistakes: the claim is given back, and the work goes on.
    Released(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Collecting {
    Idle,
    /// It has read a claim, and not yet the object.
    Read(Arc<Claim>),
    Judged(Vec<Judged>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub crashes: u8,
    pub losses: u8,
    /// Writes of the ledger whose answer is lost.
    pub lost_replies: u8,
    pub removals: u8,
    /// Releases by force.
    pub releases: u8,
    /// Ends that a person writes.
    pub ends: u8,
    pub pauses: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wrong {
    /// Something was granted beside a conflicting claim, or beside conflicting work.
    pub beside: bool,
    /// A backup was granted although a restore that it conflicts with waited.
    pub overtook: bool,
    /// The claim of a creation in flight was ended as if its object had been there.
    pub hasty: bool,
    /// Something was refused although nothing was in its way since it was sent.
    pub unjustified: bool,
    pub epoch_back: bool,
}

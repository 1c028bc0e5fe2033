//! What is known of a history: what its clients asked and were told, what the webhook was asked and said, who worked when,
//! and what stood in etcd at which revision. The checker looks at nothing else.

use std::{collections::HashMap, time::Duration};

use super::plan::{Kind, Object};

/// A moment: a revision of etcd, which orders all that is stored, and when the kit saw it, since the start of the run on
/// one monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct At {
    pub revision: u64,
    /// When the kit saw it.
    pub time: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was made, or is there.
    Done {
        uid: String,
    },
    /// 403 by our webhook.
    Refused {
        /// The message and all causes.
        text: String,
    },
    /// Refused for another reason, or failed: the code, and what was said.
    Other {
        code: u16,
        text: String,
    },
    Lost,
}

#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub object: Object,
    pub dry_run: bool,
    pub sent: Duration,
    pub answered: Duration,
    pub answer: Answer,
}

/// A creation that our webhook was asked about.
#[derive(Clone, Debug)]
pub(crate) struct Review {
    /// The attempt that it came from.
    pub attempt: u64,
    pub uid: String,
    pub dry_run: bool,
    /// What was answered; none if nothing was.
    pub allowed: Option<bool>,
    pub code: u16,
}

/// A time during which the operator worked on an object.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub uid: String,
    /// With the area that the right to work was for.
    pub object: Object,
    /// Uid of the ledger and epoch: the fencing token; none without a lock.
    pub token: Option<(String, u64)>,
    pub begin: Duration,
    /// When it ended; none: it has not.
    pub end: Option<Duration>,
}

/// An item that a restore wrote.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// Name of the restore.
    pub restore: String,
    pub item: String,
    pub at: At,
}

#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub uid: String,
    pub object: Object,
    /// Whether it is one of an operator that is guarded. Such a one has another life when it is revived.
    pub guarded: bool,
    pub created: At,
    /// When its work began, by its phase.
    pub began: Option<At>,
    /// When it came to a terminal phase.
    pub ended: Option<At>,
    pub gone: Option<At>,
    pub phase: String,
    pub deleting: bool,
    pub finalizer: bool,
    /// Its resourceVersion: the revision at which it was written last.
    pub version: u64,
}

impl Life {
    /// The first moment at which it no longer could work: ended, or gone.
    pub(crate) fn over(&self) -> Option<At> {
        [self.ended, self.gone].into_iter().flatten().min_by_key(|at| at.revision)
    }

    /// Whether it was stored and not over at some revision that the other was, too.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let before =
            |one: &Self, other: &Self| other.over().is_none_or(|over| one.created.revision < over.revision);
        before(self, other) && before(other, self)
    }
}

/// A time during which an entry of a uid stood in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first ledger that holds it.
    pub from: At,
    /// The first that no longer does.
    pub until: Option<At>,
}

impl Span {
    fn holds(&self, revision: u64) -> bool {
        self.from.revision <= revision && self.until.is_none_or(|until| revision < until.revision)
    }
}

/// The entry of a uid in the ledger, through all versions of it.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub uid: String,
    pub object: Object,
    /// When it stood there, holding a place for its object.
    pub spans: Vec<Span>,
}

impl Standing {
    pub(crate) fn at(&self, revision: u64) -> bool {
        self.spans.iter().any(|span| span.holds(revision))
    }
}

impl Attempt {
    /// Whether nobody can tell what became of it.
    pub(crate) fn is_unsure(&self) -> bool {
        match &self.answer {
            Answer::Lost => true,
            Answer::Other { code, .. } => *code >= 500,
            Answer::Done { .. } | Answer::Refused { .. } => false,
        }
    }
}

/// All that is known of one history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The creations, in the order in which they were sent.
    pub attempts: Vec<Attempt>,
    pub reviews: Vec<Review>,
    pub work: Vec<Work>,
    /// By uid; the earlier lives of what was revived by the uid and their ends.
    pub lives: HashMap<String, Life>,
    /// What had a place in the ledger.
    pub standings: HashMap<String, Standing>,
    /// What else stood there: intents, who waits, deletions.
    pub marks: HashMap<String, Standing>,
    /// When the claim of a uid was taken by force.
    pub releases: HashMap<String, At>,
    /// What restores wrote, where real ones did.
    pub writes: Vec<Write>,
    /// Other operations: finished, released, deleted.
    pub other_operations: u64,
    /// What the operator met, for people.
    pub operator_errors: Vec<String>,
    pub closed: Duration,
}

impl Record {
    /// Takes the phases of the objects for the work of real controllers. Work whose claim was taken by force has until then.
    pub(crate) fn work_by_phases(&mut self) {
        for life in self.lives.values() {
            let Some(began) = life.began else { continue };
            let ends = [life.over(), self.releases.get(&life.uid).copied()];
            let (uid, object) = (life.uid.clone(), life.object.clone());
            let end = ends.into_iter().flatten().map(|at| at.time).min();
            self.work.push(Work { uid, object, token: None, begin: began.time, end });
        }
    }

    /// The name of a restore that can be taken back to life.
    pub(crate) fn failed_restore(&self) -> Option<String> {
        let failed =
            |life: &&Life| life.phase == "Error" && life.object.kind == Kind::Restore && life.gone.is_none();
        self.lives.values().find(failed).map(|life| life.object.name.clone())
    }

    /// Whether something may still be on its way.
    pub(crate) fn is_unsure(&self) -> bool {
        self.attempts.iter().any(Attempt::is_unsure)
    }
}

//! What is known of a history: what its clients asked and were told, what the webhook was asked and said, who worked when,
//! and what stood in etcd at which revision. The checker looks at nothing else.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

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
    pub number: u64,
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
    pub answered: Option<Duration>,
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
    /// Every phase that it has been in, and when it came to that.
    pub phases: Vec<(String, At)>,
    /// When it needed nothing of the cluster and so no claim: a backup of ours that only its bucket has still to take
    /// (`docs/design/lock.md`).
    pub rests: Vec<Span>,
    /// What the bucket held when its terminal phase was seen; none where that was not looked at.
    pub stored: Option<StoredEnd>,
    /// Why it failed, as its status says.
    pub failure_reason: String,
    /// When its deletion was asked for.
    pub deleted: Option<At>,
    /// Whether it says that it never ends unless it is deleted: its claim was taken by force, and it would have to collect again.
    pub stuck: bool,
    pub finalizer: bool,
    /// Its resourceVersion: the revision at which it was written last.
    pub version: u64,
}

/// What a bucket holds of a backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredEnd {
    /// Of the metadata; empty if there is none.
    pub uid: String,
    pub phase: String,
    /// Whether there are contents.
    pub contents: bool,
}

impl Life {
    /// Whether it was made as one that has ended: from a bucket.
    pub(crate) fn is_imported(&self) -> bool {
        self.ended.is_some_and(|ended| ended.revision == self.created.revision)
    }

    /// The first moment at which it no longer could work: ended, or gone.
    pub(crate) fn over(&self) -> Option<At> {
        [self.ended, self.gone].into_iter().flatten().min_by_key(|at| at.revision)
    }

    /// Whether it was stored, not over, and did not rest, at some revision that the other did so, too.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let meet = |one: &Span, other: &Span| {
            let before =
                |from: At, until: Option<At>| until.is_none_or(|until| from.revision < until.revision);
            before(one.from, other.until) && before(other.from, one.until)
        };
        let (own, others) = (self.awake(self.created, self.over()), other.awake(other.created, other.over()));
        own.iter().any(|one| others.iter().any(|other| meet(one, other)))
    }

    /// Of this time, all but what it rested.
    fn awake(&self, from: At, until: Option<At>) -> Vec<Span> {
        let begins = std::iter::once(Some(from)).chain(self.rests.iter().map(|rest| rest.until));
        let ends = self.rests.iter().map(|rest| Some(rest.from)).chain([None]);
        let awake = |(from, end): (Option<At>, Option<At>)| {
            let until = [end, until].into_iter().flatten().min_by_key(|at| at.revision);
            let from = from.filter(|from| until.is_none_or(|until| from.revision < until.revision))?;
            Some(Span { from, until })
        };
        begins.zip(ends).filter_map(awake).collect()
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
    pub(crate) fn holds(&self, revision: u64) -> bool {
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
    /// When the Lease of an installation's leader was gone, by the namespace of the installation.
    pub leaderless: Vec<(String, Span)>,
    /// What restores wrote, where real ones did.
    pub writes: Vec<Write>,
    /// Operations that create nothing that is looked at, by what they are.
    pub other_operations: BTreeMap<&'static str, u64>,
    /// Names of backups that a person asked to be deleted with their files.
    pub deletions: HashSet<String>,
    /// Names that a person cancelled or deleted.
    pub cancellations: HashSet<String>,
    /// What changed in the ledger, for people.
    pub ledger: Vec<String>,
    /// When the kit began to take the history's objects away.
    pub swept: Option<Duration>,
    /// What the operator met, for people.
    pub operator_errors: Vec<String>,
    pub closed: Duration,
}

impl Record {
    pub(crate) fn did(&mut self, operation: &'static str) {
        *self.other_operations.entry(operation).or_default() += 1;
    }

    /// Takes the phases of the objects for the work of real controllers. Work whose claim was taken by force has until then.
    pub(crate) fn work_by_phases(&mut self) {
        self.settle_rests();
        for life in self.lives.values() {
            let Some(began) = life.began else { continue };
            let ends = [life.over(), self.releases.get(&life.uid).copied()];
            let end = ends.into_iter().flatten().min_by_key(|at| at.revision);
            for Span { from, until } in life.awake(began, end) {
                let (uid, object) = (life.uid.clone(), life.object.clone());
                let end = until.map(|at| at.time);
                self.work.push(Work { uid, object, token: None, begin: from.time, end });
            }
        }
    }

    /// A backup that rested marks itself, then asks for its claim, and rests again where it is refused: until it has the claim it
    /// has not stopped resting.
    fn settle_rests(&mut self) {
        for life in self.lives.values_mut() {
            let spans = self.standings.get(&life.uid).map_or(&[][..], |standing| &standing.spans);
            let claimed = |from: At, until: At| {
                let stood = |span: &&Span| {
                    let ended = span.until.is_some_and(|end| end.revision <= from.revision);
                    span.from.revision < until.revision && !ended
                };
                spans.iter().filter(stood).map(|span| span.from).min_by_key(|at| at.revision)
            };
            let mut rests: Vec<Span> = Vec::new();
            for rest in life.rests.drain(..) {
                let last = rests.last_mut().and_then(|last| Some((last.until?, last)));
                match last.map(|(woke, last)| (claimed(woke, rest.from), woke, last)) {
                    Some((None, _, last)) => last.until = rest.until,
                    Some((Some(claim), woke, last)) => {
                        last.until = Some(if claim.revision > woke.revision { claim } else { woke });
                        rests.push(rest);
                    }
                    None => rests.push(rest),
                }
            }
            life.rests = rests;
        }
    }

    /// The name of a restore that can be taken back to life.
    pub(crate) fn failed_restore(&self) -> Option<String> {
        let failed =
            |life: &&Life| life.phase == "Error" && life.object.kind == Kind::Restore && life.gone.is_none();
        self.lives.values().find(failed).map(|life| life.object.name.clone())
    }

    /// Names and phases of what is stored and not over, and the last error of its operator.
    pub(crate) fn unended(&self) -> String {
        let lives = self.lives.values().filter(|life| life.over().is_none());
        let names: Vec<_> = lives.map(|life| format!("{} {:?}", life.object.name, life.phase)).collect();
        format!("{}; operator: {:?}", names.join(", "), self.operator_errors.last())
    }

    /// Whether something may still be on its way.
    pub(crate) fn is_unsure(&self) -> bool {
        self.attempts.iter().any(Attempt::is_unsure)
    }
}

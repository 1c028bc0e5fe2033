//! The record of a history: requests and answers of its clients and of the webhook, work and when
//! it was done, and what etcd held at which revision. The checker sees nothing else.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use super::plan::{Kind, Object};

/// A moment: an etcd revision, which orders all writes, and the time at which the kit saw it, since
/// the start of the run on one monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct At {
    pub revision: u64,
    /// When the kit saw it.
    pub time: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The object was created, or exists.
    Done {
        uid: String,
    },
    /// 403 by our webhook.
    Refused {
        /// The message and all causes.
        text: String,
    },
    /// Refused for another reason, or failed: code and message.
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

/// A creation that our webhook reviewed.
#[derive(Clone, Debug)]
pub(crate) struct Review {
    /// The attempt that it came from.
    pub attempt: u64,
    pub uid: String,
    pub dry_run: bool,
    /// The answer; `None` without one.
    pub allowed: Option<bool>,
    pub answered: Option<Duration>,
    pub code: u16,
}

/// A time during which the operator worked on an object.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub uid: String,
    /// With the area that the claim was for.
    pub object: Object,
    /// Uid of the ledger and epoch: the fencing token; `None` without a lock.
    pub token: Option<(String, u64)>,
    pub begin: Duration,
    /// When it ended; `None`: not yet.
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
    /// Whether it belongs to a guarded operator. Such an object has another life when it is
    /// revived.
    pub guarded: bool,
    pub created: At,
    /// When its work began, by its phase.
    pub began: Option<At>,
    /// When it reached a terminal phase.
    pub ended: Option<At>,
    pub gone: Option<At>,
    pub phase: String,
    /// Every phase that it was in, and when it reached it.
    pub phases: Vec<(String, At)>,
    /// When it needed nothing from the cluster and so no claim: a backup of ours of which only the
    /// upload to its bucket was left (`docs/design/lock.md`).
    pub rests: Vec<Span>,
    /// What the bucket held when its terminal phase was seen; `None` where that was not checked.
    pub stored: Option<StoredEnd>,
    /// Reason of its failure, from its status.
    pub failure_reason: String,
    /// When its deletion was requested.
    pub deleted: Option<At>,
    /// Whether its status says that it never ends unless it is deleted: its claim was released by
    /// force, and it would have to collect again.
    pub stuck: bool,
    pub finalizer: bool,
    /// Its resourceVersion: the revision of its last write.
    pub version: u64,
}

/// The stored state of a backup in a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredEnd {
    /// From the metadata; empty without metadata.
    pub uid: String,
    pub phase: String,
    /// Whether the contents are stored.
    pub contents: bool,
}

impl Life {
    /// Whether it was created in a terminal phase: imported from a bucket.
    pub(crate) fn is_imported(&self) -> bool {
        self.ended
            .is_some_and(|ended| ended.revision == self.created.revision)
    }

    /// The first moment at which it could no longer work: ended, or gone.
    pub(crate) fn over(&self) -> Option<At> {
        [self.ended, self.gone]
            .into_iter()
            .flatten()
            .min_by_key(|at| at.revision)
    }

    /// Whether both were stored, not over and not resting (see `rests`) at the same revision.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        let meet = |one: &Span, other: &Span| {
            let before = |from: At, until: Option<At>| {
                until.is_none_or(|until| from.revision < until.revision)
            };
            before(one.from, other.until) && before(other.from, one.until)
        };
        let (own, others) = (
            self.awake(self.created, self.over()),
            other.awake(other.created, other.over()),
        );
        own.iter()
            .any(|one| others.iter().any(|other| meet(one, other)))
    }

    /// This time without the spans in `rests`.
    fn awake(&self, from: At, until: Option<At>) -> Vec<Span> {
        let begins = std::iter::once(Some(from)).chain(self.rests.iter().map(|rest| rest.until));
        let ends = self.rests.iter().map(|rest| Some(rest.from)).chain([None]);
        let awake = |(from, end): (Option<At>, Option<At>)| {
            let until = [end, until]
                .into_iter()
                .flatten()
                .min_by_key(|at| at.revision);
            let from =
                from.filter(|from| until.is_none_or(|until| from.revision < until.revision))?;
            Some(Span { from, until })
        };
        begins.zip(ends).filter_map(awake).collect()
    }
}

/// A time during which an entry of a uid was in the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first ledger version with it.
    pub from: At,
    /// The first version without it.
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
    /// When it was in the ledger and held a place for its object.
    pub spans: Vec<Span>,
}

impl Standing {
    pub(crate) fn at(&self, revision: u64) -> bool {
        self.spans.iter().any(|span| span.holds(revision))
    }
}

impl Attempt {
    /// Whether its outcome is unknown.
    pub(crate) fn is_unsure(&self) -> bool {
        match &self.answer {
            Answer::Lost => true,
            Answer::Other { code, .. } => *code >= 500,
            Answer::Done { .. } | Answer::Refused { .. } => false,
        }
    }
}

/// The whole record of one history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The creations, in the order in which they were sent.
    pub attempts: Vec<Attempt>,
    pub reviews: Vec<Review>,
    pub work: Vec<Work>,
    /// By uid; earlier lives of revived objects by uid and end.
    pub lives: HashMap<String, Life>,
    /// Objects with a place in the ledger.
    pub standings: HashMap<String, Standing>,
    /// Other entries of the ledger: intents, waiting objects, deletions.
    pub marks: HashMap<String, Standing>,
    /// When the claim of a uid was released by force.
    pub releases: HashMap<String, At>,
    /// When the Lease of an installation's leader was missing, by the namespace of the
    /// installation.
    pub leaderless: Vec<(String, Span)>,
    /// Items that restores wrote, where real controllers work.
    pub writes: Vec<Write>,
    /// Operations that create no checked object, by type.
    pub other_operations: BTreeMap<&'static str, u64>,
    /// Names of backups whose deletion with their files a user requested.
    pub deletions: HashSet<String>,
    /// Names that a user cancelled or deleted.
    pub cancellations: HashSet<String>,
    /// Changes of the ledger, for readers.
    pub ledger: Vec<String>,
    /// When the kit began to remove the history's objects.
    pub swept: Option<Duration>,
    /// Errors of the operator, for readers.
    pub operator_errors: Vec<String>,
    pub closed: Duration,
}

impl Record {
    pub(crate) fn did(&mut self, operation: &'static str) {
        *self.other_operations.entry(operation).or_default() += 1;
    }

    /// Derives the work of real controllers from the phases of the objects. Work whose claim was
    /// released by force ends with that release.
    pub(crate) fn work_by_phases(&mut self) {
        self.settle_rests();
        for life in self.lives.values() {
            let Some(began) = life.began else { continue };
            let ends = [life.over(), self.releases.get(&life.uid).copied()];
            let end = ends.into_iter().flatten().min_by_key(|at| at.revision);
            for Span { from, until } in life.awake(began, end) {
                let (uid, object) = (life.uid.clone(), life.object.clone());
                let end = until.map(|at| at.time);
                self.work.push(Work {
                    uid,
                    object,
                    token: None,
                    begin: from.time,
                    end,
                });
            }
        }
    }

    /// A backup in `rests` marks itself, then requests its claim, and rests again if that is
    /// refused: a rest ends only when the claim is granted.
    fn settle_rests(&mut self) {
        for life in self.lives.values_mut() {
            let spans = self
                .standings
                .get(&life.uid)
                .map_or(&[][..], |standing| &standing.spans);
            let claimed = |from: At, until: At| {
                let stood = |span: &&Span| {
                    let ended = span.until.is_some_and(|end| end.revision <= from.revision);
                    span.from.revision < until.revision && !ended
                };
                spans
                    .iter()
                    .filter(stood)
                    .map(|span| span.from)
                    .min_by_key(|at| at.revision)
            };
            let mut rests: Vec<Span> = Vec::new();
            for rest in life.rests.drain(..) {
                let last = rests.last_mut().and_then(|last| Some((last.until?, last)));
                match last.map(|(woke, last)| (claimed(woke, rest.from), woke, last)) {
                    Some((None, _, last)) => last.until = rest.until,
                    Some((Some(claim), woke, last)) => {
                        last.until = Some(if claim.revision > woke.revision {
                            claim
                        } else {
                            woke
                        });
                        rests.push(rest);
                    }
                    None => rests.push(rest),
                }
            }
            life.rests = rests;
        }
    }

    /// The name of a restore that can be revived.
    pub(crate) fn failed_restore(&self) -> Option<String> {
        let failed = |life: &&Life| {
            life.phase == "Error" && life.object.kind == Kind::Restore && life.gone.is_none()
        };
        self.lives
            .values()
            .find(failed)
            .map(|life| life.object.name.clone())
    }

    /// Names and phases of stored objects that are not over, and the last error of their operator.
    pub(crate) fn unended(&self) -> String {
        let lives = self.lives.values().filter(|life| life.over().is_none());
        let names: Vec<_> = lives
            .map(|life| format!("{} {:?}", life.object.name, life.phase))
            .collect();
        format!(
            "{}; operator: {:?}",
            names.join(", "),
            self.operator_errors.last()
        )
    }

    /// Whether the outcome of an attempt is unknown: its object may still be stored.
    pub(crate) fn is_unsure(&self) -> bool {
        self.attempts.iter().any(Attempt::is_unsure)
    }
}

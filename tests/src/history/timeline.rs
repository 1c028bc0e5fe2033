//! All versions of the stored objects and the ledger, sorted by history.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use backup_core::labels::{BLOCKED_ANNOTATION, COLLECTS_AGAIN_ANNOTATION};
use backup_lock::{Ledger, ObjectKind, State};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{
    buckets::Buckets,
    etcd::Change,
    plan::{self, Area, Kind, Object},
    record::{At, Life, Record, Span, Standing, Write},
};

const OURS: &str = "/registry/velero.io/";
const GUARDED: &str = "/registry/ps.percona.com/";
/// Items that restores of real controllers write.
const ITEMS: &str = "/registry/configmaps/";
/// The label with the restore that wrote an item (Velero
/// `pkg/apis/velero/v1/labels_annotations.go`, v1.18).
const RESTORE_LABEL: &[u8] = b"velero.io/restore-name";
const LEDGERS: &str = "/registry/leases/velero/backup-lock-";
const LEASES: &str = "/registry/leases/";
/// The leader's Lease of an installation, after its namespace.
const LEADER: &str = "/backup-controller";
/// Phases that end the work, of both kinds (Velero `pkg/apis/velero/v1`, v1.18), and states that do
/// (Percona's operator for MySQL).
const OVER: [&str; 7] = [
    "FailedValidation",
    "Completed",
    "PartiallyFailed",
    "Failed",
    "Deleting",
    "Succeeded",
    "Error",
];
/// States of an entry that keeps others out for the sake of its object.
const PLACES: [&str; 3] = ["Reserved", "Active", "Settling"];

/// All that was seen in etcd.
pub(crate) struct Timeline {
    start: Instant,
    seen: Mutex<Seen>,
    /// Uids of objects that changed: of ours for the engine, and of the guarded operator's for that
    /// operator.
    changed: [mpsc::UnboundedSender<String>; 2],
}

#[derive(Default)]
struct Seen {
    /// The stored objects: key in etcd to history and uid.
    stored: HashMap<String, (u64, String)>,
    /// Every object that was ever stored: uid to history.
    histories: HashMap<String, u64>,
    /// Where the ends of backups are stored; `None`: not checked.
    buckets: Option<Buckets>,
    /// By key in etcd.
    ledgers: HashMap<String, LastLedger>,
    versions: u64,
    largest: usize,
    trouble: Vec<String>,
    records: HashMap<u64, Record>,
}

/// The newest version of a ledger.
#[derive(Default)]
struct LastLedger {
    text: String,
    /// Open spans: uid, and whether it is a place, to history and state.
    standing: HashMap<(String, bool), (u64, String)>,
}

impl Timeline {
    /// An empty timeline. The receivers get every object that changes: our objects, and objects of
    /// the guarded operator.
    pub(crate) fn new(buckets: Option<Buckets>) -> (Self, [mpsc::UnboundedReceiver<String>; 2]) {
        let (tell, ours) = mpsc::unbounded_channel();
        let (tell_operator, guarded) = mpsc::unbounded_channel();
        let changed = [tell, tell_operator];
        let seen = Mutex::new(Seen {
            buckets,
            ..Seen::default()
        });
        (
            Self {
                start: Instant::now(),
                seen,
                changed,
            },
            [ours, guarded],
        )
    }

    /// Time since the start of the run: the one clock of all records.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn take(&self, change: &Change) {
        let at = At {
            revision: change.revision,
            time: self.now(),
        };
        {
            let mut seen = self.seen.lock();
            if change.key.starts_with(LEDGERS) {
                seen.ledger(&change.key, change.value.as_deref(), at);
            } else if let Some(lease) = change.key.strip_prefix(LEASES) {
                seen.lease(lease, change.value.is_some(), at);
            } else if let Some(item) = change.key.strip_prefix(ITEMS) {
                seen.item(item, change.value.as_deref(), at);
            } else if let Some(uid) = seen.object(&change.key, change.value.as_deref(), at) {
                let _ = self.changed[usize::from(change.key.starts_with(GUARDED))].send(uid);
            }
        }
    }

    /// Records that the watch broke: no more changes are seen.
    pub(crate) fn broke(&self, why: &str) {
        self.seen.lock().trouble.push(why.to_owned());
    }

    /// Adds to the record of a history.
    pub(crate) fn record<T>(&self, history: u64, add: impl FnOnce(&mut Record) -> T) -> T {
        add(self.seen.lock().records.entry(history).or_default())
    }

    /// Removes the record of a history, to judge it.
    pub(crate) fn close(&self, history: u64) -> Record {
        let now = self.now();
        let mut seen = self.seen.lock();
        seen.histories.retain(|_, of| *of != history);
        let mut record = seen.records.remove(&history).unwrap_or_default();
        record.closed = now;
        record
    }

    /// The object of this uid, and its history.
    pub(crate) fn life(&self, uid: &str) -> Option<(u64, Life)> {
        let seen = self.seen.lock();
        let history = seen.histories.get(uid)?;
        Some((*history, seen.records.get(history)?.lives.get(uid)?.clone()))
    }

    /// All stored objects that have not ended: our objects, or objects of the guarded operator.
    pub(crate) fn unfinished(&self, guarded: bool) -> Vec<String> {
        let seen = self.seen.lock();
        let unfinished = |(history, uid): &&(u64, String)| {
            seen.records
                .get(history)
                .and_then(|record| record.lives.get(uid))
                .is_some_and(|life| life.guarded == guarded && life.over().is_none())
        };
        seen.stored
            .values()
            .filter(unfinished)
            .map(|(_, uid)| uid.clone())
            .collect()
    }

    /// Number of stored objects of a history, and number of those that are not over and will be.
    pub(crate) fn left(&self, history: u64) -> (usize, usize) {
        let seen = self.seen.lock();
        let Some(record) = seen.records.get(&history) else {
            return (0, 0);
        };
        let stored = || record.lives.values().filter(|life| life.gone.is_none());
        (
            stored().count(),
            stored()
                .filter(|life| life.ended.is_none() && !life.stuck)
                .count(),
        )
    }

    /// The histories with a record.
    pub(crate) fn open(&self) -> Vec<u64> {
        self.seen.lock().records.keys().copied().collect()
    }

    /// Whether an entry of a ledger names this history.
    pub(crate) fn in_ledger(&self, prefix: &str) -> bool {
        self.seen
            .lock()
            .ledgers
            .values()
            .any(|ledger| ledger.text.contains(prefix))
    }

    /// The entries of the ledgers that name this history, for users who investigate it.
    pub(crate) fn ledger_entries(&self, prefix: &str) -> String {
        let seen = self.seen.lock();
        let mut entries: Vec<&str> = Vec::new();
        for ledger in seen.ledgers.values() {
            entries.extend(
                ledger
                    .text
                    .split_inclusive('}')
                    .filter(|entry| entry.contains(prefix)),
            );
        }
        entries.join(" ")
    }

    /// Number of ledger versions seen, the largest size, and parse errors.
    pub(crate) fn ledger_seen(&self) -> (u64, usize, Vec<String>) {
        let seen = self.seen.lock();
        (seen.versions, seen.largest, seen.trouble.clone())
    }
}

impl Seen {
    fn object(&mut self, key: &str, value: Option<&[u8]>, at: At) -> Option<String> {
        let (guarded, rest) = match key.strip_prefix(OURS) {
            Some(rest) => (false, rest),
            None => (true, key.strip_prefix(GUARDED)?),
        };
        let mut parts = rest.split('/');
        let kind = match parts.next()? {
            "backups" | "perconaservermysqlbackups" => Kind::Backup,
            "restores" | "perconaservermysqlrestores" => Kind::Restore,
            _ => return None,
        };
        let (home, name) = (parts.next()?, parts.next()?);
        let Some(value) = value else {
            let (history, uid) = self.stored.remove(key)?;
            let life = self.records.get_mut(&history)?.lives.get_mut(&uid)?;
            life.gone = Some(at);
            return Some(uid);
        };
        let history = plan::number_of(name)?;
        let object: Value = serde_json::from_slice(value).ok()?;
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        let status = &object["status"][if guarded { "state" } else { "phase" }];
        let phase = status.as_str().unwrap_or_default();
        let prefix = plan::prefix(history);
        // A database cluster is indivisible.
        let area = if guarded {
            Area(1)
        } else {
            plan::area_of(&prefix, &object["spec"])
        };
        self.stored.insert(key.to_owned(), (history, uid.clone()));
        self.histories.insert(uid.clone(), history);
        let lives = &mut self.records.entry(history).or_default().lives;
        let revived = guarded
            && !OVER.contains(&phase)
            && lives.get(&uid).is_some_and(|life| life.ended.is_some());
        if revived && let Some(over) = lives.remove(&uid) {
            lives.insert(format!("{uid} until {}", over.version), over);
        }
        let life = lives.entry(uid.clone()).or_insert_with(|| Life {
            uid: uid.clone(),
            object: Object {
                kind,
                name: name.to_owned(),
                area,
            },
            guarded,
            created: at,
            began: None,
            ended: None,
            gone: None,
            phase: String::new(),
            phases: Vec::new(),
            rests: Vec::new(),
            stored: None,
            failure_reason: String::new(),
            deleted: None,
            stuck: false,
            finalizer: false,
            version: 0,
        });
        life.version = at.revision;
        if life.phases.last().is_none_or(|(last, _)| last != phase) {
            life.phases.push((phase.to_owned(), at));
        }
        phase.clone_into(&mut life.phase);
        let deleting = object["metadata"]["deletionTimestamp"].is_string();
        life.deleted = life.deleted.or_else(|| deleting.then_some(at));
        let blocked = object["metadata"]["annotations"][BLOCKED_ANNOTATION]
            .as_str()
            .unwrap_or_default();
        life.stuck =
            blocked.contains("released by force") && blocked.ends_with("; delete the backup");
        life.finalizer = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one == kind.work_finalizer()));
        let collects = object["metadata"]["annotations"][COLLECTS_AGAIN_ANNOTATION].is_string();
        let rests =
            kind == Kind::Backup && !guarded && phase.starts_with("Finalizing") && !collects;
        match life.rests.last_mut().filter(|last| last.until.is_none()) {
            None if rests => life.rests.push(Span {
                from: at,
                until: None,
            }),
            Some(last) if !rests => last.until = Some(at),
            _ => {}
        }
        if life.began.is_none() && phase == "InProgress" {
            life.began = Some(at);
        }
        if life.ended.is_none() && OVER.contains(&phase) {
            life.ended = Some(at);
            object["status"]["failureReason"]
                .as_str()
                .unwrap_or_default()
                .clone_into(&mut life.failure_reason);
            if kind == Kind::Backup && !guarded {
                // At once: later files must not be taken for those written before the phase.
                life.stored = self
                    .buckets
                    .as_ref()
                    .map(|buckets| buckets.stored(home, name));
            }
        }
        Some(uid)
    }

    fn item(&mut self, item: &str, value: Option<&[u8]>, at: At) {
        if let Some(history) = plan::number_of(item)
            && let Some(restore) = value.and_then(restore_of)
        {
            let write = Write {
                restore,
                item: item.to_owned(),
                at,
            };
            self.records.entry(history).or_default().writes.push(write);
        }
    }

    /// Records a change of a leader's Lease in all running histories.
    fn lease(&mut self, lease: &str, is_there: bool, at: At) {
        let Some(home) = lease.strip_suffix(LEADER) else {
            return;
        };
        for record in self.records.values_mut() {
            let open = record
                .leaderless
                .iter_mut()
                .find(|(of, span)| of == home && span.until.is_none());
            match open {
                Some((_, span)) if is_there => span.until = Some(at),
                None if !is_there => {
                    record.leaderless.push((
                        home.to_owned(),
                        Span {
                            from: at,
                            until: None,
                        },
                    ));
                }
                _ => {}
            }
        }
    }

    /// Compares the entries of a ledger version with the version before.
    fn ledger(&mut self, key: &str, value: Option<&[u8]>, at: At) {
        self.versions += 1;
        let text = value.and_then(ledger_text).unwrap_or_default();
        self.largest = self.largest.max(text.len());
        let entries = match entries(&text) {
            Ok(entries) => entries,
            Err(error) => {
                return self
                    .trouble
                    .push(format!("revision {}: {error}", at.revision));
            }
        };
        let mut last = self.ledgers.remove(key).unwrap_or_default();
        last.text = text;
        let mut gone = std::mem::take(&mut last.standing);
        for Seat {
            history,
            place,
            released,
            state,
            mut standing,
        } in entries
        {
            if released {
                let releases = &mut self.records.entry(history).or_default().releases;
                releases.entry(standing.uid.clone()).or_insert(at);
            }
            let seat = (standing.uid.clone(), place);
            let before = gone.remove(&seat);
            let stood = before.is_some();
            let record = self.records.entry(history).or_default();
            if before.is_none_or(|(_, before)| before != state) {
                record.ledger.push(told(at, &standing, &state));
            }
            let known = if place {
                &mut record.standings
            } else {
                &mut record.marks
            };
            if let Some(known) = known.get_mut(&standing.uid) {
                known.object.area = standing.object.area;
                if !stood {
                    known.spans.push(Span {
                        from: at,
                        until: None,
                    });
                }
            } else {
                standing.spans.push(Span {
                    from: at,
                    until: None,
                });
                known.insert(standing.uid.clone(), standing);
            }
            last.standing.insert(seat, (history, state));
        }
        self.ledgers.insert(key.to_owned(), last);
        for ((uid, place), (history, state)) in gone {
            let Some(record) = self.records.get_mut(&history) else {
                continue;
            };
            record
                .ledger
                .push(format!("{at:?}: {uid} is no longer {state}"));
            let known = if place {
                &mut record.standings
            } else {
                &mut record.marks
            };
            if let Some(span) = known
                .get_mut(&uid)
                .and_then(|standing| standing.spans.last_mut())
            {
                span.until = Some(at);
            }
        }
    }
}

/// The restore in an object's label: in protobuf, a pair is its key, then a tag, a length and the
/// value.
fn restore_of(value: &[u8]) -> Option<String> {
    let begin = value
        .windows(RESTORE_LABEL.len())
        .position(|window| window == RESTORE_LABEL)?;
    let rest = &value[begin + RESTORE_LABEL.len() + 1..];
    let length = usize::from(*rest.first()?);
    String::from_utf8(rest.get(1..=length)?.to_vec()).ok()
}

/// The annotation, from the API server's own encoding (protobuf, which stores texts unchanged).
fn ledger_text(value: &[u8]) -> Option<String> {
    let begin = value.windows(5).position(|window| window == b"{\"v\":")?;
    let mut values = serde_json::Deserializer::from_slice(&value[begin..])
        .into_iter::<&serde_json::value::RawValue>();
    Some(values.next()?.ok()?.get().to_owned())
}

fn told(at: At, standing: &Standing, state: &str) -> String {
    format!(
        "{at:?}: {} {} ({}) is {state}",
        standing.object.kind, standing.object.name, standing.uid
    )
}

/// An entry of the ledger; `place`: it keeps conflicting objects out for the sake of its object.
struct Seat {
    history: u64,
    place: bool,
    released: bool,
    state: String,
    standing: Standing,
}

/// The entries of histories in a ledger version. Intents, waiting objects, tombstones, holds and
/// deletions are no places: they may be beside conflicting entries.
fn entries(text: &str) -> anyhow::Result<Vec<Seat>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let ledger = Ledger::from_json(text)?;
    let mut all = Vec::new();
    for claim in &ledger.claims {
        let Some(history) = plan::number_of(&claim.key.name) else {
            continue;
        };
        let kind = if claim.key.kind == ObjectKind::Restore {
            Kind::Restore
        } else {
            Kind::Backup
        };
        let of_object = matches!(claim.key.kind, ObjectKind::Backup | ObjectKind::Restore);
        let prefix = plan::prefix(history);
        for entry in &claim.entries {
            let area = Area::of(&prefix, |namespace| entry.footprint.includes(namespace));
            let object = Object {
                kind,
                name: claim.key.name.clone(),
                area,
            };
            let standing = Standing {
                uid: entry.uid.clone(),
                object,
                spans: Vec::new(),
            };
            let state = entry.state.to_string();
            let place = of_object && PLACES.contains(&state.as_str());
            let released = entry.state == State::Released;
            all.push(Seat {
                history,
                place,
                released,
                state,
                standing,
            });
        }
    }
    Ok(all)
}

//! The locks of installations: holders, waiting objects and irregularities. Pure.

pub(crate) mod changes;
pub(crate) mod screen;

use backup_core::profile::Profile;
use backup_lock::{
    Footprint, Ledger, ObjectKey, State, VELERO_SCOPE,
    claim::{Entry, Word},
    ledger::Status,
    observe::ObservedObject,
};
use serde::Serialize;

use crate::print::{Tone, plain};

/// A ledger, or why it cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct FoundLedger {
    /// Namespace of the Lease: that of the installation.
    pub(crate) namespace: String,
    /// Scope; empty if the Lease does not name one.
    pub(crate) scope: String,
    pub(crate) lease: String,
    /// Empty if the Lease is gone.
    pub(crate) lease_uid: String,
    /// Finalizers of the Lease, all set by other programs: ours set none.
    pub(crate) finalizers: Vec<String>,
    pub(crate) profile: Profile,
    /// Whether this program knows the profile, or only its name.
    pub(crate) is_known: bool,
    pub(crate) ledger: Result<Ledger, Damage>,
}

/// A ledger that cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// One word: Unreadable, Newer, BeingDeleted, Lost.
    pub(crate) status: &'static str,
    pub(crate) problem: String,
    pub(crate) remedy: String,
}

/// A stored object that has not ended, and its footprint.
#[derive(Clone, Debug)]
pub(crate) struct UnendedObject {
    pub(crate) object: ObservedObject,
    pub(crate) footprint: Footprint,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LockList {
    pub(crate) namespace: String,
    pub(crate) scopes: Vec<ScopeView>,
    /// Checks that could not be made, one sentence each.
    pub(crate) unchecked: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScopeView {
    /// Namespace of the ledger, or where the ledger would be.
    pub(crate) namespace: String,
    pub(crate) scope: String,
    pub(crate) profile: String,
    /// Name of the Lease that holds the ledger; null if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    /// Open, Opening, Rebuilding, Closed; Unreadable, Newer, BeingDeleted, Lost; None.
    pub(crate) status: String,
    /// Increases at every exclusive grant and every forced release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<u64>,
    /// A problem or an unusual state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
    /// Holders and waiting objects, in the order of their arrival.
    pub(crate) entries: Vec<EntryView>,
    /// Objects that have not ended, and have no entry in a ledger.
    pub(crate) unclaimed: Vec<UnclaimedView>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryView {
    /// Backup, Restore, DeleteBackupRequest, Deletion or Hold.
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Released, Intent, Collected, Waiting, Reserved, Settling or Active.
    pub(crate) state: String,
    /// The word of an intent.
    #[serde(skip)]
    pub(crate) word: Word,
    pub(crate) since: String,
    pub(crate) epoch: u64,
    /// Footprint, in words.
    pub(crate) touches: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits_for: Vec<String>,
    /// Holders with which the entry conflicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) beside: Vec<String>,
    /// The object was not found for a while; the next check frees the claim.
    pub(crate) suspect: bool,
    pub(crate) forced: bool,
    /// Who holds it and why, why it was forced, or who released it and why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

/// An object that runs, or waits to run, without a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UnclaimedView {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) phase: String,
    /// Creation time, RFC 3339.
    pub(crate) created: String,
    pub(crate) touches: String,
    /// Holders with which the object conflicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) beside: Vec<String>,
}

/// The found locks, and objects without a claim although a ledger could hold one; restricted to
/// `scope`, if given.
pub(crate) fn locks(
    namespace: &str,
    found: &[FoundLedger],
    seen: &[UnendedObject],
    unchecked: Vec<String>,
    only: Option<&str>,
) -> LockList {
    let mut scopes: Vec<ScopeView> = found.iter().map(|found| scope(found, seen)).collect();
    let missing = seen.iter().filter_map(|seen| seen.object.scope.as_deref());
    for name in missing {
        if scopes.iter().all(|scope| scope.scope != plain(name)) {
            let profile = profile_of(name).to_owned();
            let of = seen
                .iter()
                .filter(|seen| seen.object.scope.as_deref() == Some(name));
            scopes.push(ScopeView {
                namespace: namespace.to_owned(),
                scope: plain(name),
                profile,
                status: "None".to_owned(),
                problem: Some("it has no ledger yet".to_owned()),
                remedy: Some(
                    "It gets one with the next creation of a backup or restore.".to_owned(),
                ),
                unclaimed: of.map(|seen| unclaimed(seen, None)).collect(),
                ..ScopeView::default()
            });
        }
    }
    scopes.retain(|scope| only.is_none_or(|only| scope.scope == only));
    scopes.sort_by_cached_key(|scope| {
        (
            scope.namespace.clone(),
            scope.scope != VELERO_SCOPE,
            scope.scope.clone(),
        )
    });
    LockList {
        namespace: namespace.to_owned(),
        scopes,
        unchecked,
    }
}

/// The name of the profile to which a scope belongs: the first part of the scope's name.
pub(crate) fn profile_of(scope: &str) -> &str {
    if scope == VELERO_SCOPE {
        "velero"
    } else {
        scope.split('/').next().unwrap_or_default()
    }
}

fn scope(found: &FoundLedger, seen: &[UnendedObject]) -> ScopeView {
    let mut view = ScopeView {
        namespace: plain(&found.namespace),
        scope: if found.scope.is_empty() {
            "?".to_owned()
        } else {
            plain(&found.scope)
        },
        profile: plain(&found.profile.name),
        lease: Some(plain(&found.lease)),
        ..ScopeView::default()
    };
    match &found.ledger {
        Err(damage) => {
            damage.status.clone_into(&mut view.status);
            view.problem = Some(plain(&damage.problem));
            view.remedy = Some(damage.remedy.clone());
        }
        Ok(ledger) => {
            let ledger = &ledger.without_lapsed();
            view.status = format!("{:?}", ledger.status);
            view.epoch = Some(ledger.epoch);
            (view.problem, view.remedy) = unusual(ledger.status);
            let all = ledger
                .claims
                .iter()
                .flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)));
            view.entries = all
                .map(|(claim, entry)| entry_view(&claim.key, entry, ledger, &found.scope))
                .collect();
            // A ledger that is being rebuilt will have these entries later.
            if ledger.status == Status::Open {
                view.unclaimed = seen
                    .iter()
                    .filter(|seen| seen.object.scope.as_deref() == Some(&found.scope))
                    .filter(|seen| !is_claimed(ledger, &seen.object))
                    .map(|seen| unclaimed(seen, Some(ledger)))
                    .collect();
            }
        }
    }
    view
}

/// Whether an object has a claim, waits for one, or must not get one because of a forced release.
pub(crate) fn is_claimed(ledger: &Ledger, object: &ObservedObject) -> bool {
    ledger
        .entry(&object.key, &object.uid)
        .is_some_and(Entry::has_its_place)
}

impl FoundLedger {
    /// Why the ledger grants nothing, and the remedy; `None` if it grants, at the latest with the
    /// next creation.
    pub(crate) fn grants_nothing(&self) -> Option<(String, String)> {
        match &self.ledger {
            Err(Damage {
                problem, remedy, ..
            }) => Some((plain(problem), remedy.clone())),
            Ok(ledger) if ledger.status == Status::Rebuilding => {
                let (problem, remedy) = unusual(ledger.status);
                problem.zip(remedy)
            }
            Ok(_) => None,
        }
    }
}

fn unusual(status: Status) -> (Option<String>, Option<String>) {
    let (problem, remedy) = match status {
        Status::Open => return (None, None),
        Status::Opening => (
            "it is being made",
            "The next creation of a backup or restore opens it.",
        ),
        Status::Rebuilding => (
            "it was lost or damaged, and nothing is granted until it is rebuilt",
            "backup-controller rebuilds it from what is stored, a grace (2 minutes by default) after it has found out: \
             check that it runs.",
        ),
        Status::Closed => (
            "it is idle and about to be removed",
            "The next creation makes a new one.",
        ),
    };
    (Some(problem.to_owned()), Some(remedy.to_owned()))
}

fn entry_view(key: &ObjectKey, entry: &Entry, ledger: &Ledger, scope: &str) -> EntryView {
    let waits = entry.state == State::Waiting;
    let ahead = if waits {
        ledger.behind(key, &entry.uid).holders
    } else {
        Vec::new()
    };
    let placed = entry.state >= State::Reserved;
    EntryView {
        kind: key.kind.to_string(),
        namespace: plain(&key.namespace),
        name: plain(&key.name),
        uid: plain(&entry.uid),
        state: entry.state.to_string(),
        word: entry.word,
        since: plain(&entry.since),
        epoch: entry.epoch,
        touches: touches(&entry.footprint, scope),
        waits_for: ahead.iter().map(|claim| named(&claim.key)).collect(),
        beside: if placed {
            beside(ledger, key, &entry.footprint)
        } else {
            Vec::new()
        },
        suspect: entry.suspect,
        forced: entry.forced,
        note: plain(&entry.note),
    }
}

/// Holders whose claims conflict with this object and footprint.
fn beside(ledger: &Ledger, key: &ObjectKey, footprint: &Footprint) -> Vec<String> {
    ledger
        .claims
        .iter()
        .filter(|claim| {
            claim.entries.iter().any(|entry| {
                entry.state >= State::Reserved
                    && ledger.rules.conflicts(key, footprint, claim, entry)
            })
        })
        .map(|claim| named(&claim.key))
        .collect()
}

fn unclaimed(seen: &UnendedObject, ledger: Option<&Ledger>) -> UnclaimedView {
    let UnendedObject { object, footprint } = seen;
    UnclaimedView {
        kind: object.key.kind.to_string(),
        namespace: plain(&object.key.namespace),
        name: plain(&object.key.name),
        uid: plain(&object.uid),
        phase: plain(&object.phase),
        created: plain(&object.created),
        touches: touches(footprint, object.scope.as_deref().unwrap_or_default()),
        beside: ledger
            .map(|ledger| beside(ledger, &object.key, footprint))
            .unwrap_or_default(),
    }
}

/// A footprint in words; a scope that is one database cluster is always touched as a whole.
pub(crate) fn touches(footprint: &Footprint, scope: &str) -> String {
    if scope.contains('/') {
        "all of the scope".to_owned()
    } else {
        plain(&footprint.to_string())
    }
}

/// Kind, namespace and name, safe for a terminal.
pub(crate) fn named(key: &ObjectKey) -> String {
    plain(&key.to_string())
}

impl ScopeView {
    pub(crate) fn tone(&self) -> Tone {
        match self.status.as_str() {
            "Open" if self.unclaimed.is_empty() => Tone::Good,
            "Open" | "Opening" | "Closed" | "None" => Tone::Warn,
            _ => Tone::Bad,
        }
    }
}

impl EntryView {
    /// The argument for `locks release`: `restore/velero/back-again`.
    pub(crate) fn handle(&self) -> String {
        format!(
            "{}/{}/{}",
            self.kind.to_lowercase(),
            self.namespace,
            self.name
        )
    }

    /// The objects for which the entry waits, and irregularities.
    pub(crate) fn remarks(&self) -> String {
        let mut parts = Vec::new();
        if !self.waits_for.is_empty() {
            parts.push(format!("waits for {}", few(&self.waits_for)));
        }
        match self.state.as_str() {
            "Intent" => parts.push(intent(self.word).to_owned()),
            "Collected" => parts.push("never came; keeps restores out for a while".to_owned()),
            "Released" => parts.push("was released by force, and is not claimed again".to_owned()),
            "Settling" => parts.push("has ended; what it worked on settles".to_owned()),
            _ => {}
        }
        if self.suspect {
            parts.push("its object is missing; freed at the next look".to_owned());
        }
        if !self.beside.is_empty() {
            parts.push(format!("beside {}", few(&self.beside)));
        }
        if self.forced {
            parts.push(format!(
                "forced: {}",
                if self.note.is_empty() {
                    "no reason given"
                } else {
                    &self.note
                }
            ));
        } else if !self.note.is_empty() {
            parts.push(self.note.clone());
        }
        parts.join("; ")
    }
}

/// How long the intent of a refused restore keeps new backups out. The times are from the lock's
/// design.
fn intent(word: Word) -> &'static str {
    match word {
        Word::Refused => {
            "was refused; blocks new backups until 30s after what is in its way has ended"
        }
        Word::Expected => "was refused; blocks new backups for 30s at most",
        Word::Insisting => "was refused, and comes again; blocks new backups while it does",
        Word::Remembered => "was refused; blocks nothing",
    }
}

impl UnclaimedView {
    /// The phase, and the conflicting holders.
    pub(crate) fn remarks(&self) -> String {
        let beside = if self.beside.is_empty() {
            String::new()
        } else {
            format!("; beside {}", few(&self.beside))
        };
        format!("{}{beside}", self.phase)
    }
}

/// The first three names, and the number of the others.
pub(crate) fn few(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(3)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > 3 {
        format!("{shown} and {} more", names.len() - 3)
    } else {
        shown
    }
}

#[cfg(test)]
mod tests;

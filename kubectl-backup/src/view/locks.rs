//! The locks of installations: who holds, who waits, and what is odd about it. Pure.

pub mod changes;

use backup_lock::{
    Claim, Footprint, Ledger, ObjectKey, State, VELERO_SCOPE, claim::Entry, ledger::Status, observe::Observed,
};
use serde::Serialize;

use super::description::API_VERSION;
use crate::print::{style::Tone, table::plain};

/// A ledger as it was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Namespace of its Lease: that of its installation.
    pub namespace: String,
    /// Its scope; empty if its Lease does not say.
    pub scope: String,
    /// Name of its Lease.
    pub lease: String,
    /// Name of its profile.
    pub profile: String,
    /// The ledger, or what is wrong with it and what to do.
    pub ledger: Result<Ledger, Damage>,
}

/// A ledger that can't be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// One word: Unreadable, Newer, BeingDeleted, Lost.
    pub status: &'static str,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// A stored object whose work has not ended, and what it touches.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The object.
    pub object: Observed,
    /// What it touches.
    pub footprint: Footprint,
}

/// All locks, as `-o json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LockList {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `LockList`.
    pub kind: &'static str,
    /// Namespace of the installation.
    pub namespace: String,
    /// The scopes, by namespace and name.
    pub scopes: Vec<ScopeView>,
    /// What could not be looked for, one sentence each.
    pub unchecked: Vec<String>,
}

/// A scope.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeView {
    /// Namespace of its ledger, or where one would be.
    pub namespace: String,
    /// Its name.
    pub scope: String,
    /// Name of the profile.
    pub profile: String,
    /// Name of the Lease that is its ledger; nothing: it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Open, Opening, Rebuilding, Closed; Unreadable, Newer, BeingDeleted, Lost; None.
    pub status: String,
    /// One more at every exclusive grant and every forced release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// What is wrong, or not as usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Who holds and who waits, in the order in which they came.
    pub entries: Vec<EntryView>,
    /// Objects that have not ended, and stand in no ledger.
    pub unclaimed: Vec<UnclaimedView>,
}

/// One entry of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// Backup, Restore, DeleteBackupRequest, Deletion or Hold.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Uid of the object.
    pub uid: String,
    /// Intent, Collected, Waiting, Reserved, Settling or Active.
    pub state: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// The epoch in which it was granted.
    pub epoch: u64,
    /// What it reads or writes, in words.
    pub touches: String,
    /// Whom it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
    /// Who has a place beside it that it conflicts with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Its object was not found for a while; it is freed at the next look.
    pub suspect: bool,
    /// It was admitted although others were in its way.
    pub forced: bool,
    /// Who holds and why, or why it was forced.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// An object that runs, or wants to, without a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnclaimedView {
    /// Backup or Restore.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its phase.
    pub phase: String,
    /// When it was created, RFC 3339.
    pub created: String,
    /// What it touches, in words.
    pub touches: String,
    /// Who has a place that it conflicts with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

/// The locks that were found, and what has no claim though a ledger could have one; with a scope, only that one.
pub fn locks(
    namespace: &str,
    found: &[Found],
    seen: &[Seen],
    unchecked: Vec<String>,
    only: Option<&str>,
) -> LockList {
    let mut scopes: Vec<ScopeView> = found.iter().map(|found| scope(found, seen)).collect();
    let missing = seen.iter().filter_map(|seen| seen.object.scope.as_deref());
    for name in missing {
        if scopes.iter().all(|scope| scope.scope != plain(name)) {
            let profile = profile_of(name).to_owned();
            let of = seen.iter().filter(|seen| seen.object.scope.as_deref() == Some(name));
            scopes.push(ScopeView {
                namespace: namespace.to_owned(),
                scope: plain(name),
                profile,
                lease: None,
                status: "None".to_owned(),
                epoch: None,
                problem: Some("it has no ledger yet".to_owned()),
                remedy: Some("It gets one with the next creation of a backup or restore.".to_owned()),
                entries: Vec::new(),
                unclaimed: of.map(|seen| unclaimed(seen, None)).collect(),
            });
        }
    }
    scopes.retain(|scope| only.is_none_or(|only| scope.scope == only));
    let place =
        |scope: &ScopeView| (scope.namespace.clone(), scope.scope != VELERO_SCOPE, scope.scope.clone());
    scopes.sort_by_cached_key(place);
    LockList {
        api_version: API_VERSION,
        kind: "LockList",
        namespace: namespace.to_owned(),
        scopes,
        unchecked,
    }
}

/// The name of the profile that a scope belongs to, as its name tells.
pub fn profile_of(scope: &str) -> &str {
    if scope == VELERO_SCOPE { "velero" } else { scope.split('/').next().unwrap_or_default() }
}

fn scope(found: &Found, seen: &[Seen]) -> ScopeView {
    let mut view = ScopeView {
        namespace: plain(&found.namespace),
        scope: if found.scope.is_empty() { "?".to_owned() } else { plain(&found.scope) },
        profile: plain(&found.profile),
        lease: Some(plain(&found.lease)),
        status: String::new(),
        epoch: None,
        problem: None,
        remedy: None,
        entries: Vec::new(),
        unclaimed: Vec::new(),
    };
    let of_scope = || seen.iter().filter(|seen| seen.object.scope.as_deref() == Some(&found.scope));
    match &found.ledger {
        Err(damage) => {
            damage.status.clone_into(&mut view.status);
            view.problem = Some(plain(&damage.problem));
            view.remedy = Some(damage.remedy.clone());
        }
        Ok(ledger) => {
            view.status = format!("{:?}", ledger.status);
            view.epoch = Some(ledger.epoch);
            (view.problem, view.remedy) = unusual(ledger.status);
            let all =
                ledger.claims.iter().flat_map(|claim| claim.entries.iter().map(move |entry| (claim, entry)));
            view.entries =
                all.map(|(claim, entry)| entry_view(&claim.key, entry, ledger, &found.scope)).collect();
            // What a ledger that is rebuilt lacks will be found by then.
            if ledger.status == Status::Open {
                let open = of_scope().filter(|seen| !is_claimed(ledger, &seen.object));
                view.unclaimed = open.map(|seen| unclaimed(seen, Some(ledger))).collect();
            }
        }
    }
    view
}

/// Whether an object has a place, or waits for one.
pub fn is_claimed(ledger: &Ledger, object: &Observed) -> bool {
    ledger.entry(&object.key, &object.uid).is_some_and(|entry| entry.state >= State::Waiting)
}

fn unusual(status: Status) -> (Option<String>, Option<String>) {
    let (problem, remedy) = match status {
        Status::Open => return (None, None),
        Status::Opening => ("it is being made", "The next creation of a backup or restore opens it."),
        Status::Rebuilding => (
            "it was lost or damaged, and nothing is granted until it is rebuilt",
            "backup-controller rebuilds it from what is stored, a grace (2 minutes by default) after it has found out: \
             check that it runs.",
        ),
        Status::Closed => ("it is idle and about to be removed", "The next creation makes a new one."),
    };
    (Some(problem.to_owned()), Some(remedy.to_owned()))
}

/// One entry, as it is shown.
pub fn entry_view(key: &ObjectKey, entry: &Entry, ledger: &Ledger, scope: &str) -> EntryView {
    let waits = entry.state == State::Waiting;
    let ahead = if waits { ledger.behind(key, &entry.uid).holders } else { Vec::new() };
    let placed = entry.state >= State::Reserved;
    EntryView {
        kind: key.kind.to_string(),
        namespace: plain(&key.namespace),
        name: plain(&key.name),
        uid: plain(&entry.uid),
        state: entry.state.to_string(),
        since: plain(&entry.since),
        epoch: entry.epoch,
        touches: touches(&entry.footprint, scope),
        waits_for: ahead.iter().map(|claim| named(&claim.key)).collect(),
        beside: if placed { beside(ledger, key, &entry.footprint) } else { Vec::new() },
        suspect: entry.suspect,
        forced: entry.forced,
        note: plain(&entry.note),
    }
}

/// Who has a place that something of this name and footprint conflicts with.
fn beside(ledger: &Ledger, key: &ObjectKey, footprint: &Footprint) -> Vec<String> {
    let conflicts = |claim: &&Claim| {
        claim.entries.iter().any(|entry| {
            entry.state >= State::Reserved && ledger.rules.conflicts(key, footprint, claim, entry)
        })
    };
    ledger.claims.iter().filter(conflicts).map(|claim| named(&claim.key)).collect()
}

fn unclaimed(seen: &Seen, ledger: Option<&Ledger>) -> UnclaimedView {
    let Seen { object, footprint } = seen;
    UnclaimedView {
        kind: object.key.kind.to_string(),
        namespace: plain(&object.key.namespace),
        name: plain(&object.key.name),
        uid: plain(&object.uid),
        phase: plain(&object.phase),
        created: plain(&object.created),
        touches: touches(footprint, object.scope.as_deref().unwrap_or_default()),
        beside: ledger.map(|ledger| beside(ledger, &object.key, footprint)).unwrap_or_default(),
    }
}

/// What a footprint is, in words; where a scope is one database cluster, it is all of it.
pub fn touches(footprint: &Footprint, scope: &str) -> String {
    if scope.contains('/') { "all of the scope".to_owned() } else { plain(&footprint.to_string()) }
}

/// Kind, namespace and name, harmless to a terminal.
pub fn named(key: &ObjectKey) -> String {
    plain(&key.to_string())
}

impl ScopeView {
    /// How it stands.
    pub fn tone(&self) -> Tone {
        match self.status.as_str() {
            "Open" if self.unclaimed.is_empty() => Tone::Good,
            "Open" | "Opening" | "Closed" | "None" => Tone::Warn,
            _ => Tone::Bad,
        }
    }
}

impl EntryView {
    /// The word that `locks release` takes: `restore/velero/back-again`.
    pub fn handle(&self) -> String {
        format!("{}/{}/{}", self.kind.to_lowercase(), self.namespace, self.name)
    }

    /// Whom it waits for, and what is odd about it.
    pub fn remarks(&self) -> String {
        let mut parts = Vec::new();
        if !self.waits_for.is_empty() {
            parts.push(format!("waits for {}", few(&self.waits_for)));
        }
        match self.state.as_str() {
            "Intent" => parts.push("was refused; keeps new backups out for a while".to_owned()),
            "Collected" => parts.push("never came; keeps restores out for a while".to_owned()),
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
                if self.note.is_empty() { "no reason given" } else { &self.note }
            ));
        } else if !self.note.is_empty() {
            parts.push(self.note.clone());
        }
        parts.join("; ")
    }
}

impl UnclaimedView {
    /// Its phase, and whom it stands beside.
    pub fn remarks(&self) -> String {
        let beside =
            if self.beside.is_empty() { String::new() } else { format!("; beside {}", few(&self.beside)) };
        format!("{}{beside}", self.phase)
    }
}

/// The first three, and how many more.
pub fn few(names: &[String]) -> String {
    let shown = names.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 3 { format!("{shown} and {} more", names.len() - 3) } else { shown }
}

#[cfg(test)]
mod tests;

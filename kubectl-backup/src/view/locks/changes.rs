//! Changes of ledgers, line by line, for `locks -w`. Pure.

use serde::Serialize;

use super::{EntryView, LockList, ScopeView};

/// A ledger or one of its entries: in its current state, or in its last state if it is gone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LockChange {
    pub(crate) namespace: String,
    pub(crate) scope: String,
    pub(crate) gone: bool,
    #[serde(flatten)]
    pub(crate) what: ChangeSubject,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ChangeSubject {
    Ledger {
        /// Open, Opening, Rebuilding, Closed; Unreadable, Newer, BeingDeleted, Lost.
        status: String,
        /// A problem or an unusual state.
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// An entry, holding or waiting.
    Entry(Box<EntryView>),
}

impl LockChange {
    fn new(scope: &ScopeView, what: ChangeSubject) -> Self {
        Self {
            namespace: scope.namespace.clone(),
            scope: scope.scope.clone(),
            gone: false,
            what,
        }
    }

    /// The argument for `locks release`; for a ledger, its scope.
    pub(crate) fn handle(&self) -> String {
        match &self.what {
            ChangeSubject::Ledger { .. } => self.scope.clone(),
            ChangeSubject::Entry(entry) => entry.handle(),
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        let is_same = match (&self.what, &other.what) {
            (ChangeSubject::Ledger { .. }, ChangeSubject::Ledger { .. }) => true,
            (ChangeSubject::Entry(one), ChangeSubject::Entry(other)) => {
                one.uid == other.uid && one.handle() == other.handle()
            }
            _ => false,
        };
        is_same && (&self.namespace, &self.scope) == (&other.namespace, &other.scope)
    }
}

/// A line for each ledger, and for each of its entries.
pub(crate) fn lines(list: &LockList) -> Vec<LockChange> {
    list.scopes.iter().flat_map(scope_lines).collect()
}

fn scope_lines(scope: &ScopeView) -> Vec<LockChange> {
    let ledger = ChangeSubject::Ledger {
        status: scope.status.clone(),
        problem: scope.problem.clone(),
    };
    let entries = scope
        .entries
        .iter()
        .map(|entry| ChangeSubject::Entry(Box::new(entry.clone())));
    std::iter::once(ledger)
        .chain(entries)
        .map(|subject| LockChange::new(scope, subject))
        .collect()
}

/// Lines that are gone, and lines that are new or have changed.
pub(crate) fn changes(before: &[LockChange], now: &[LockChange]) -> Vec<LockChange> {
    let gone = before
        .iter()
        .filter(|line| !now.iter().any(|other| other.is_of(line)))
        .map(|line| LockChange {
            gone: true,
            ..line.clone()
        });
    let new = now.iter().filter(|line| !before.contains(line)).cloned();
    gone.chain(new).collect()
}

//! Turns errors about ledgers into problems for the user.

use backup_lock::{LedgerError, lease::UpdateError, ledger::FormatError, observe::ObserveError};

use crate::{
    commands::prelude::*,
    error::{Role, slow},
    view::locks::Damage,
};

/// The purpose of the request: it determines the role that the user needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockRole {
    View,
    Operate,
}

impl LockRole {
    pub(crate) fn remedy(self, namespace: &str) -> String {
        let role = match self {
            Self::View => Role::LockView,
            Self::Operate => Role::LockOperator,
        };
        role.remedy(namespace)
    }

    /// Adds the required role to a refusal by RBAC; returns any other problem unchanged.
    pub(crate) fn explain(self, problem: Problem, namespace: &str) -> Problem {
        match problem.kind {
            ProblemKind::Forbidden => {
                let kind = ProblemKind::Other;
                Problem { kind, ..problem }.with_remedy(self.remedy(namespace))
            }
            _ => problem,
        }
    }
}

/// The problem for a ledger that could not be read or written.
pub(crate) fn of_ledger(error: LedgerError, session: &Session, role: LockRole) -> Problem {
    match error {
        LedgerError::Denied { what, source } | LedgerError::Unreachable { what, source } => {
            of_request(&what, *source, session, role)
        }
        LedgerError::Observe(ObserveError::Api { what, source }) => {
            of_request(&format!("read {what}"), *source, session, role)
        }
        LedgerError::Timeout { what } => slow(
            &format!("cannot {what}"),
            &session.server,
            backup_lock::observe::REQUEST_TIMEOUT,
        ),
        error @ (LedgerError::Format { .. } | LedgerError::BeingDeleted { .. }) => {
            let remedy = damage(&error, &session.namespace).remedy;
            Problem::other(error.to_string()).with_remedy(remedy)
        }
        error => Problem::other(error.to_string())
            .with_remedy("Look at it with `kubectl backup locks`, and try again in a moment."),
    }
}

/// The problem for a failed request; `what` was to be done by it.
fn of_request(what: &str, source: kube::Error, session: &Session, role: LockRole) -> Problem {
    let mut problem = session.explain(&About::called("use", "ledger", "ledgers", ""), source);
    if !problem.doing.is_empty() {
        problem.doing = format!("cannot {what}");
    }
    role.explain(problem, &session.namespace)
}

pub(crate) fn of_update(error: UpdateError<Problem>, session: &Session) -> Problem {
    match error {
        UpdateError::Refused(problem) => problem,
        UpdateError::Ledger(error) => of_ledger(error, session, LockRole::Operate),
    }
}

/// Describes why an existing ledger cannot be read.
pub(crate) fn damage(error: &LedgerError, namespace: &str) -> Damage {
    let rebuilt = "Nothing is granted until backup-controller has rebuilt it from what is stored, which it does by \
                   itself: check that it runs. Don't repair it by hand.";
    let (status, problem, remedy) = match error {
        LedgerError::Format {
            source: source @ FormatError::Newer { .. },
            ..
        } => {
            let newer = "Nothing was changed. If backup-webhook and backup-controller are of the version that wrote it, update \
                         kubectl-backup; if they are as old as kubectl-backup, apply the newer version of all again.";
            ("Newer", source.to_string(), newer)
        }
        LedgerError::Format { source, .. } => ("Unreadable", source.to_string(), rebuilt),
        LedgerError::BeingDeleted { lease, finalizers } => {
            if !finalizers.is_empty() {
                let remedy = format!(
                    "{} backup-controller makes it again then.",
                    without_finalizers(lease, namespace)
                );
                return Damage {
                    status: "BeingDeleted",
                    problem: error.to_string(),
                    remedy,
                };
            }
            ("BeingDeleted", error.to_string(), rebuilt)
        }
        other => ("Unreadable", other.to_string(), rebuilt),
    };
    Damage {
        status,
        problem,
        remedy: remedy.to_owned(),
    }
}

/// How the user removes the finalizers of other programs from a ledger.
pub(crate) fn without_finalizers(lease: &str, namespace: &str) -> String {
    format!(
        "See which program put the finalizer there, and take it off: `kubectl --namespace={} patch lease {} --type=merge \
         --patch='{{\"metadata\":{{\"finalizers\":null}}}}'`, which needs the ClusterRole backup-lock-operator.",
        plain(namespace),
        plain(lease)
    )
}

/// Describes a ledger that is missing while its marker exists.
pub(crate) fn lost() -> Damage {
    Damage {
        status: "Lost",
        problem: "the ledger is gone, and its marker is there: it was deleted".to_owned(),
        remedy: "Nothing is granted until backup-controller has rebuilt it from what is stored, which it does by itself: \
                 check that it runs."
            .to_owned(),
    }
}

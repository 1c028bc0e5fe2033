//! What goes wrong with ledgers, told to people.

use backup_lock::{LedgerError, lease::UpdateError, ledger::FormatError, observe::ObserveError};

use crate::{
    client::Session,
    error::{About, Problem},
    view::locks::Damage,
};

/// What was to be done, for the role that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Reading ledgers.
    View,
    /// Releasing and holding.
    Operate,
}

impl Wish {
    fn role(self) -> &'static str {
        match self {
            Self::View => "backup-lock-view",
            Self::Operate => "backup-lock-operator",
        }
    }

    /// What to ask for.
    pub fn remedy(self, namespace: &str) -> String {
        let role = self.role();
        format!(
            "It takes the ClusterRole {role} in namespace {namespace}. An administrator gives it: \
             kubectl -n {namespace} create rolebinding {role}-NAME --clusterrole={role} --user=NAME"
        )
    }

    /// A refusal of RBAC with the role that it takes; any other problem as it is.
    pub fn explain(self, problem: Problem, namespace: &str) -> Problem {
        match problem {
            Problem::Forbidden { doing, message } => Problem::Other {
                message: format!("{doing}: {message}"),
                remedy: Some(self.remedy(namespace)),
            },
            other => other,
        }
    }
}

/// The problem behind a ledger that could not be read or written.
pub fn of_ledger(error: LedgerError, session: &Session, wish: Wish) -> Problem {
    let about = About { verb: "use", kind: "ledger", plural: "ledgers", name: "" };
    let answer = |what: &str, source: kube::Error| {
        let problem = match about.explain(source, &session.server, &session.namespace) {
            Problem::Forbidden { message, .. } => {
                Problem::Forbidden { doing: format!("cannot {what}"), message }
            }
            Problem::Api { code, retry_after, message, .. } => {
                Problem::Api { doing: format!("cannot {what}"), code, retry_after, message }
            }
            other => other,
        };
        wish.explain(problem, &session.namespace)
    };
    let later = || Some("Look at it with `kubectl backup locks`, and try again in a moment.".to_owned());
    match error {
        LedgerError::Denied { what, source } | LedgerError::Unreachable { what, source } => {
            answer(&what, *source)
        }
        LedgerError::Observe(ObserveError::Api { what, source }) => answer(&format!("read {what}"), *source),
        LedgerError::Timeout { what } => Problem::Slow {
            doing: format!("cannot {what}"),
            server: session.server.clone(),
            after: backup_lock::observe::REQUEST_TIMEOUT,
        },
        error @ (LedgerError::Format { .. } | LedgerError::BeingDeleted { .. }) => {
            let remedy = damage(&error).remedy;
            Problem::Other { message: error.to_string(), remedy: Some(remedy) }
        }
        error => Problem::Other { message: error.to_string(), remedy: later() },
    }
}

/// The problem behind a change that was not made.
pub fn of_update(error: UpdateError<Problem>, session: &Session) -> Problem {
    match error {
        UpdateError::Refused(problem) => problem,
        UpdateError::Ledger(error) => of_ledger(error, session, Wish::Operate),
    }
}

/// What is wrong with a ledger that is there and can't be read.
pub fn damage(error: &LedgerError) -> Damage {
    let rebuilt = "Nothing is granted until backup-controller has rebuilt it from what is stored, which it does by \
                   itself: check that it runs. Don't repair it by hand.";
    let (status, problem, remedy) = match error {
        LedgerError::Format { source: source @ FormatError::Newer { .. }, .. } => {
            ("Newer", source.to_string(), "Update kubectl-backup; nothing was changed.")
        }
        LedgerError::Format { source, .. } => ("Unreadable", source.to_string(), rebuilt),
        LedgerError::BeingDeleted { .. } => ("BeingDeleted", error.to_string(), rebuilt),
        other => ("Unreadable", other.to_string(), rebuilt),
    };
    Damage { status, problem, remedy: remedy.to_owned() }
}

/// What is wrong with a ledger that is gone while its marker is there.
pub fn lost() -> Damage {
    Damage {
        status: "Lost",
        problem: "the ledger is gone, and its marker is there: it was deleted".to_owned(),
        remedy: "Nothing is granted until backup-controller has rebuilt it from what is stored, which it does by itself: \
                 check that it runs."
            .to_owned(),
    }
}

//! Problems, each a sentence with its remedy, and the exit codes.

mod explain;
mod roles;

use std::{fmt, io, time::Duration};

pub(crate) use explain::{About, no_credentials, slow};
pub(crate) use roles::Role;

/// The result of a command. The codes are stable: `kubectl backup options` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// An error, a refusal, something broken that `doctor` has found (a check that it could not
    /// make leaves 0), a namespace that is not protected (`status`), a difference that `diff` has
    /// found, or something that a move would lose or that is not known (`migrate --check`).
    Failed = 1,
    /// Invalid arguments; of `diff`, any error.
    Usage = 2,
    /// What was waited for or watched has ended, but is not `Completed`, or has saved or restored
    /// nothing; a restore that was planned would not be `Completed`; what `verify` has read is
    /// damaged; a drill has failed.
    NotGood = 3,
    /// Time ran out while waiting.
    TimedOut = 124,
    /// Interrupted by Ctrl-C; what was started continues in the cluster.
    Interrupted = 130,
}

impl Exit {
    /// The exit code for the end of an object.
    pub(crate) const fn of_end(completed: bool) -> Self {
        if completed { Self::Done } else { Self::NotGood }
    }

    /// The process's exit code.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

pub(crate) type CommandResult = Result<Exit, Problem>;

/// Why a command failed: a sentence for the user, and a remedy.
#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) kind: ProblemKind,
    /// The failed request: `cannot get backup "nightly"`. Empty if the message contains it.
    pub(crate) doing: String,
    pub(crate) message: String,
    pub(crate) remedy: Option<String>,
}

/// Kinds of problems that commands and tests distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// The arguments are valid one by one but not together.
    Usage,
    /// The API server cannot be reached.
    Unreachable,
    /// The API server does not answer in time.
    Slow,
    /// The custom resources are not installed.
    NotServed,
    NotFound,
    /// The installation's namespace does not exist.
    NoNamespace,
    /// The API server does not accept the user's credentials.
    Unauthorized,
    /// RBAC refuses the request.
    Forbidden,
    /// An admission webhook or policy refused the request; with a time if a retry may succeed. The
    /// message is shown unchanged.
    Refused {
        retry_after: Option<Duration>,
    },
    /// The creation was still refused when the time for retries ended.
    StillRefused,
    /// An object with the name exists.
    Exists,
    /// Any other answer of the API server; code 0 means no answer.
    Api {
        code: u16,
        retry_after: Option<Duration>,
    },
    /// Writing to stdout failed.
    Output(io::ErrorKind),
    /// The API server answers, but the controller does not.
    Unanswered,
    /// The server delivers no file, and does not say that the file is missing.
    NotGiven,
    /// The store has no such file.
    NoFile,
    /// A file in the store is not in the expected format.
    BadFile,
    /// A file in the store is no longer the one that was read before.
    Changed,
    /// The comparison failed; needs a different exit code from that for a difference.
    NotCompared,
    /// The planned restore would not start.
    WouldNotStart,
    Other,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            doing: String::new(),
            message: message.into(),
            remedy: None,
        }
    }

    pub(crate) fn other(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::Other, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::Usage, message)
    }

    pub(crate) fn bad_file(message: impl Into<String>) -> Self {
        Self::new(ProblemKind::BadFile, message).with_remedy("The file in the store is damaged.")
    }

    #[must_use]
    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }

    pub(crate) const fn exit(&self) -> Exit {
        match self.kind {
            ProblemKind::Usage | ProblemKind::NotCompared => Exit::Usage,
            ProblemKind::StillRefused => Exit::TimedOut,
            ProblemKind::WouldNotStart => Exit::NotGood,
            _ => Exit::Failed,
        }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == ProblemKind::NotFound
    }

    /// Whether a retry may succeed soon: the API server or the controller is away, starting or
    /// overloaded.
    pub(crate) const fn is_transient(&self) -> bool {
        match self.kind {
            ProblemKind::Unreachable | ProblemKind::Slow | ProblemKind::Unanswered => true,
            ProblemKind::Api { code, .. } => matches!(code, 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// Whether an API server may answer this shortly after its start, before its authorizer and
    /// CRDs are loaded.
    pub(crate) const fn is_of_start(&self) -> bool {
        matches!(
            self.kind,
            ProblemKind::Forbidden | ProblemKind::Unauthorized | ProblemKind::NotServed
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { doing, message, .. } = self;
        if doing.is_empty() {
            f.write_str(message)
        } else {
            write!(f, "{doing}: {message}")
        }
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::new(
            ProblemKind::Output(error.kind()),
            format!("cannot write the output: {error}"),
        )
    }
}

/// Returns the value, or `None` if the object does not exist.
pub(crate) fn optional<T>(result: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match result {
        Err(problem) if problem.is_not_found() => Ok(None),
        other => other.map(Some),
    }
}

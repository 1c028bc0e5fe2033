//! What can go wrong, told in one sentence with its remedy, and the exit codes.

mod explain;

use std::time::Duration;

use backup_core::api::GoDuration;

pub use explain::{About, causes};

/// The kind of another operator's objects, in messages.
pub const GUARDED: &str = "guarded object";

/// How a command ended. The numbers are a promise: `--help` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: done.
    Done,
    /// 1: an error.
    Failed,
    /// 2: the arguments make no sense.
    Usage,
    /// 3: what was waited for has ended, but is not Completed.
    NotCompleted,
    /// 124: time ran out while waiting.
    TimedOut,
    /// 130: interrupted by Ctrl-C.
    Interrupted,
}

impl Exit {
    /// The process's exit code.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotCompleted => 3,
            Self::TimedOut => 124,
            Self::Interrupted => 130,
        }
    }
}

/// Why a command could not do what it was asked. The text is the sentence a person reads.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The arguments parse but make no sense together.
    #[error("{message}")]
    Usage {
        /// What is wrong.
        message: String,
        /// What to type instead.
        remedy: Option<String>,
    },
    /// No usable kubeconfig.
    #[error("{message}")]
    Kubeconfig {
        /// Which file, and what is wrong with it.
        message: String,
        /// What to do.
        remedy: String,
    },
    /// No answer from the API server.
    #[error("cannot reach the cluster at {server}: {why}")]
    Unreachable {
        /// URL of the API server.
        server: String,
        /// What the connection said.
        why: String,
    },
    /// No answer in time.
    #[error("{doing}: no answer from {server} within {after:?}")]
    Slow {
        /// What was asked.
        doing: String,
        /// URL of the API server.
        server: String,
        /// How long was waited.
        after: Duration,
    },
    /// The custom resources are not installed.
    #[error("velero.io/v1 {plural} are not served by this cluster")]
    NotServed {
        /// Plural name of the kind.
        plural: String,
    },
    /// No such object.
    #[error("{kind} {name:?} was not found in namespace {namespace}")]
    NotFound {
        /// Kind in lower case, "backup".
        kind: &'static str,
        /// Its name.
        name: String,
        /// Where it was looked for.
        namespace: String,
    },
    /// The installation's namespace does not exist.
    #[error("namespace {namespace} does not exist")]
    NoNamespace {
        /// The namespace.
        namespace: String,
    },
    /// The API server does not know who asks.
    #[error("the cluster at {server} did not accept your credentials")]
    Unauthorized {
        /// URL of the API server.
        server: String,
    },
    /// RBAC says no.
    #[error("{doing}: {message}")]
    Forbidden {
        /// What was asked.
        doing: String,
        /// The API server's sentence.
        message: String,
    },
    /// An admission webhook or policy said no; the message stands alone.
    #[error("{message}")]
    Refused {
        /// The refusal, without what the API server puts in front.
        message: String,
        /// When it may be worth another try, if that was said.
        retry_after: Option<Duration>,
    },
    /// It was tried again for as long as was asked for.
    #[error("{last} (tried for {after})")]
    StillRefused {
        /// The last answer.
        last: String,
        /// How long.
        after: GoDuration,
    },
    /// The name is taken.
    #[error("{kind} {name:?} already exists in namespace {namespace}")]
    Exists {
        /// Kind in lower case.
        kind: &'static str,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
    },
    /// The spec can't be right; every finding on a line.
    #[error("{kind} {name:?} is not valid:{}", findings.iter().fold(String::new(), |all, one| all + "\n  " + one))]
    Invalid {
        /// Kind in lower case.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, with the field's path.
        findings: Vec<String>,
    },
    /// The object is stored, but is not what its kind should be.
    #[error("{kind} {name:?} cannot be read: {why}")]
    Unreadable {
        /// Kind in lower case.
        kind: &'static str,
        /// Plural name in the API.
        plural: String,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// What the decoder said.
        why: String,
    },
    /// Any other answer of the API server.
    #[error("{doing}: {message}")]
    Api {
        /// What was asked.
        doing: String,
        /// HTTP code; 0 if there was none.
        code: u16,
        /// When it may be worth another try, if that was said.
        retry_after: Option<Duration>,
        /// What the API server said.
        message: String,
    },
    /// stdout can't be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
    /// The API server answers, and the controller does not.
    #[error("the controller has not answered downloadrequest {request:?} within {after:?}")]
    Unanswered {
        /// Name of the request.
        request: String,
        /// Namespace of the installation.
        namespace: String,
        /// How long was waited.
        after: Duration,
    },
    /// The server gives no file, and does not say that there is none.
    #[error("{message}")]
    NotGiven {
        /// Its sentence.
        message: String,
    },
    /// There is no such file.
    #[error("{message}")]
    NoFile {
        /// Its sentence.
        message: String,
    },
    /// A file in the store is not what it should be.
    #[error("{message}")]
    BadFile {
        /// Which one, and what is wrong with it.
        message: String,
    },
    /// Anything else.
    #[error("{message}")]
    Other {
        /// The sentence.
        message: String,
        /// What to do.
        remedy: Option<String>,
    },
}

impl Problem {
    /// The exit code that belongs to it.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Usage { .. } => Exit::Usage,
            Self::StillRefused { .. } => Exit::TimedOut,
            _ => Exit::Failed,
        }
    }

    /// A bounded name, for tests and metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Usage { .. } => "usage",
            Self::Kubeconfig { .. } => "kubeconfig",
            Self::Unreachable { .. } | Self::Slow { .. } => "unreachable",
            Self::NotServed { .. } => "not_served",
            Self::NotFound { .. } => "not_found",
            Self::NoNamespace { .. } => "no_namespace",
            Self::Unauthorized { .. } => "unauthorized",
            Self::Forbidden { .. } => "forbidden",
            Self::Refused { .. } | Self::StillRefused { .. } => "refused",
            Self::Exists { .. } => "exists",
            Self::Invalid { .. } => "invalid",
            Self::Unreadable { .. } => "unreadable",
            Self::Api { .. } => "api",
            Self::Output(_) => "output",
            Self::Unanswered { .. } => "unanswered",
            Self::NotGiven { .. } => "not_given",
            Self::NoFile { .. } | Self::BadFile { .. } => "file",
            Self::Other { .. } => "other",
        }
    }

    /// Whether the same request may succeed a moment later: the API server or the controller is away, starting or overloaded.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Slow { .. } | Self::Unanswered { .. } => true,
            Self::Api { code, .. } => matches!(code, 429 | 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::Usage { remedy, .. } | Self::Other { remedy, .. } => return remedy.clone(),
            Self::Kubeconfig { remedy, .. } => remedy.clone(),
            Self::Unreachable { why, .. } if why.contains("certificate") => {
                "Check the cluster's certificate-authority in the kubeconfig, or that --server names the right host.".to_owned()
            }
            Self::Unreachable { .. } | Self::Slow { .. } => {
                "Check that it runs and that --context, --kubeconfig or --server name the cluster you mean.".to_owned()
            }
            Self::NotServed { .. } => {
                "Install the CRDs from deploy/crds (kubectl apply -k deploy/crds), or choose another cluster with --context.".to_owned()
            }
            Self::NotFound { kind: "restore", .. } => "`kubectl backup restore get` lists the restores; -n chooses another installation.".to_owned(),
            Self::NotFound { kind: "backupstoragelocation", .. } => "`kubectl backup locations` lists them; -n chooses another installation.".to_owned(),
            Self::NotFound { kind: "volumesnapshotlocation", .. } => "`kubectl backup locations snapshots` lists them; -n chooses another installation.".to_owned(),
            Self::NotFound { kind: "schedule", .. } => "`kubectl backup schedules` lists them; -n chooses another installation.".to_owned(),
            Self::NotFound { kind: GUARDED, .. } => "`kubectl backup get --kind=KIND` lists those of all namespaces.".to_owned(),
            Self::NotFound { .. } => "`kubectl backup get` lists the backups; -n chooses another installation.".to_owned(),
            Self::NoNamespace { .. } => "Install from deploy/base first, or choose the installation's namespace with -n.".to_owned(),
            Self::Unauthorized { .. } => "Log in again, or choose another user with --user or --context.".to_owned(),
            Self::Forbidden { .. } => "Ask an administrator of the cluster for this permission, or choose another user with --user or --as.".to_owned(),
            Self::Exists { kind: "restore", name, .. } => format!("Choose another name, or see what it is with `kubectl backup restore describe {name}`."),
            Self::Exists { name, .. } => format!("Choose another name, or see what it is with `kubectl backup describe {name}`."),
            Self::Unreadable { plural, name, namespace, .. } => {
                format!("Correct it: kubectl -n {namespace} edit {plural}.velero.io {name}")
            }
            Self::Api { code: 500.., message, .. } if message.contains("failed calling webhook") => {
                "See what is wrong with it: kubectl backup doctor".to_owned()
            }
            Self::Api { code: 500.., .. } => "The API server or a webhook has a problem of its own: try again in a moment.".to_owned(),
            Self::Unanswered { namespace, .. } => {
                format!("Check that it runs: kubectl -n {namespace} get pods -l app.kubernetes.io/name=backup-controller")
            }
            Self::BadFile { .. } => "The file in the store is damaged.".to_owned(),
            Self::Refused { .. }
            | Self::StillRefused { .. }
            | Self::Invalid { .. }
            | Self::Api { .. }
            | Self::Output(_)
            | Self::NotGiven { .. }
            | Self::NoFile { .. } => return None,
        })
    }
}

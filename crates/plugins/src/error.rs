//! Errors of plugins.

use std::time::Duration;

use tonic::Code;

use crate::{connection::Failure, wire::name_of};

/// Why a plugin call failed. Names the binary, and the plugin and the call where there is one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    #[error("the plugin binary {binary} does not run: {reason}")]
    Down {
        binary: String,
        /// Why it could not be started, or how it ended.
        reason: String,
    },
    /// The process, or the connection to it, ended before the answer.
    #[error("the plugin binary {binary} ended in the middle of {call} of {plugin}: {reason}")]
    Ended {
        binary: String,
        plugin: String,
        call: &'static str,
        reason: String,
    },
    #[error("the plugin binary {binary} has not answered {call} of {plugin} within {limit:?}")]
    Late {
        binary: String,
        plugin: String,
        call: &'static str,
        limit: Duration,
    },
    #[error("the plugin binary {binary} answers {call} of {plugin} with an error: {reason}")]
    Refused {
        binary: String,
        plugin: String,
        call: &'static str,
        reason: String,
        /// Whether the same call will fail the same way next time.
        lasting: bool,
    },
    #[error("the plugin binary {binary} answers {call} of {plugin} with nonsense: {reason}")]
    Nonsense {
        binary: String,
        plugin: String,
        call: &'static str,
        reason: String,
    },
}

impl PluginError {
    /// Converts the failure of a call with the time limit `limit`.
    pub(crate) fn of_call(
        failure: Failure,
        binary: String,
        plugin: &str,
        method: &'static str,
        limit: Duration,
    ) -> Self {
        let plugin = plugin.to_owned();
        let call = name_of(method);
        match failure {
            Failure::Late => Self::Late {
                binary,
                plugin,
                call,
                limit,
            },
            Failure::Broken(reason) => Self::Ended {
                binary,
                plugin,
                call,
                reason,
            },
            Failure::Status(code, reason) => {
                let lasting = is_lasting(code, &reason);
                Self::Refused {
                    binary,
                    plugin,
                    call,
                    reason,
                    lasting,
                }
            }
        }
    }

    pub fn category(&self) -> &'static str {
        match self {
            Self::Down { .. } => "down",
            Self::Ended { .. } => "ended",
            Self::Late { .. } => "late",
            Self::Refused { .. } => "refused",
            Self::Nonsense { .. } => "nonsense",
        }
    }

    /// Whether the same call will fail the same way next time.
    pub(crate) fn is_lasting(&self) -> bool {
        matches!(self, Self::Refused { lasting: true, .. })
    }

    /// Whether the call may have had an effect despite the error: its progress is unknown.
    pub fn leaves_outcome_unknown(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Late { .. })
    }
}

/// Whether a plugin will give the same answer next time. Velero's framework gives every error one
/// code, so its own errors are recognized by their text (`framework/common/server_mux.go`,
/// `velero/backupitemaction/v2`, v1.18).
fn is_lasting(code: Code, message: &str) -> bool {
    let words = [
        "was not found or has an invalid name format",
        "Plugin does not support asynchronous operations",
    ];
    let unknown_operation =
        message.starts_with("operation ID ") && message.ends_with(" is invalid");
    code == Code::Unimplemented
        || code == Code::Unknown
            && (unknown_operation || words.iter().any(|word| message.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case(Code::Unimplemented, "unknown service v2.BackupItemAction", true)]
    #[case(
        Code::Unknown,
        "BackupItemActionV2 plugin: a/b was not found or has an invalid name format",
        true
    )]
    #[case(Code::Unknown, "operation ID x is invalid", true)]
    #[case(Code::Unknown, "Plugin does not support asynchronous operations", true)]
    #[case(Code::Unknown, "connection refused", false)]
    #[case(Code::Aborted, "plugin panicked: operation ID x is invalid", false)]
    #[case(Code::ResourceExhausted, "message larger than max", false)]
    fn what_will_not_pass_is_told_from_what_may(
        #[case] code: Code,
        #[case] message: &str,
        #[case] lasting: bool,
    ) {
        assert_eq!(is_lasting(code, message), lasting);
    }

    #[test]
    fn an_error_names_binary_plugin_and_call() {
        let error = PluginError::Late {
            binary: "/plugins/b".into(),
            plugin: "example.io/p".into(),
            call: "Execute",
            limit: Duration::from_secs(3),
        };
        assert_eq!(
            error.to_string(),
            "the plugin binary /plugins/b has not answered Execute of example.io/p within 3s"
        );
        assert_eq!(error.category(), "late");
        assert!(error.leaves_outcome_unknown() && !error.is_lasting());
    }
}

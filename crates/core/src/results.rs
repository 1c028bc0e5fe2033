//! Warnings and errors of a backup or restore, in the format of `-results.gz`.
//!
//! Velero: `pkg/util/results/result.go`, v1.18.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::null_default;

/// Maximum number of messages of each kind. The lists are held in memory; the log has all messages.
const MAX_MESSAGES: i64 = 10_000;
/// Last message of a full list.
const FULL: &str = "there are more than these; all of them are in the log";

/// Warnings and errors. The counts in a status are the lengths of these lists, never stored
/// separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    #[serde(default)]
    pub warnings: ResultSet,
    /// Failures because of which something is missing.
    #[serde(default)]
    pub errors: ResultSet,
}

/// Messages by subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultSet {
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_default"
    )]
    pub velero: Vec<String>,
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_default"
    )]
    pub cluster: Vec<String>,
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "null_default"
    )]
    pub namespaces: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    Velero,
    Cluster,
    Namespace(&'a str),
}

impl Results {
    pub fn warn(&mut self, scope: Scope<'_>, message: impl Into<String>) {
        self.warnings.add(scope, message.into());
    }

    pub fn error(&mut self, scope: Scope<'_>, message: impl Into<String>) {
        self.errors.add(scope, message.into());
    }

    /// Number of warnings, for `status.warnings`.
    pub fn warnings(&self) -> i64 {
        self.warnings.len()
    }

    /// Number of errors, for `status.errors`.
    pub fn errors(&self) -> i64 {
        self.errors.len()
    }
}

impl ResultSet {
    fn add(&mut self, scope: Scope<'_>, message: String) {
        let (scope, message) = match self.len() {
            len if len < MAX_MESSAGES => (scope, message),
            MAX_MESSAGES => (Scope::Velero, FULL.to_owned()),
            _ => return,
        };
        match scope {
            Scope::Velero => self.velero.push(message),
            Scope::Cluster => self.cluster.push(message),
            Scope::Namespace(namespace) => {
                self.namespaces
                    .entry(namespace.to_owned())
                    .or_default()
                    .push(message);
            }
        }
    }

    fn len(&self) -> i64 {
        let all = self.velero.len()
            + self.cluster.len()
            + self.namespaces.values().map(Vec::len).sum::<usize>();
        i64::try_from(all).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_keys_are_left_out() {
        let mut results = Results::default();
        assert_eq!(
            serde_json::to_string(&results).unwrap(),
            r#"{"warnings":{},"errors":{}}"#
        );
        results.warn(Scope::Cluster, "w");
        results.error(Scope::Velero, "v");
        results.error(Scope::Namespace("ns"), "a");
        results.error(Scope::Namespace("ns"), "b");
        assert_eq!(
            serde_json::to_string(&results).unwrap(),
            r#"{"warnings":{"cluster":["w"]},"errors":{"velero":["v"],"namespaces":{"ns":["a","b"]}}}"#
        );
    }

    #[test]
    fn counts_are_the_lengths_of_the_lists() {
        let mut results = Results::default();
        for scope in [
            Scope::Velero,
            Scope::Cluster,
            Scope::Namespace("a"),
            Scope::Namespace("b"),
        ] {
            results.error(scope, "x");
        }
        results.warn(Scope::Velero, "y");
        assert_eq!((results.warnings(), results.errors()), (1, 4));
    }

    #[test]
    fn a_list_of_very_many_errors_ends_with_a_word_about_the_rest() {
        let mut results = Results::default();
        for n in 0..3 * MAX_MESSAGES {
            results.error(Scope::Namespace("ns"), format!("e{n}"));
        }
        assert_eq!(
            results.errors(),
            MAX_MESSAGES + 1,
            "counts are the lengths of the lists"
        );
        assert_eq!(results.errors.velero, [FULL]);
    }

    #[test]
    fn what_velero_wrote_is_read() {
        let text = r#"{"errors":{"velero":null,"namespaces":{"a":["x"]}},"warnings":{}}"#;
        assert_eq!(serde_json::from_str::<Results>(text).unwrap().errors(), 1);
    }
}

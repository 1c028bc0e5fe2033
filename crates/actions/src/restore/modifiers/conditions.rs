//! The conditions of a rule.

use std::fmt::Write as _;

use backup_core::selection::{IncludesExcludes, LabelFilter};
use regex::Regex;
use serde_json::Value;

use super::json_patch::{JsonPatch, JsonPatchOutcome};
use crate::restore::json::{self, Object};

/// All conditions must match.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    /// Pattern for group resources such as `deployments.apps`.
    pub(super) group_resource: Regex,
    /// Namespaces of the backup. Cluster-scoped items always match.
    pub(super) namespaces: IncludesExcludes,
    /// May match anywhere in the name.
    pub(super) name: Option<Regex>,
    pub(super) labels: LabelFilter,
    /// Only test operations.
    pub(super) matches: JsonPatch,
}

impl Conditions {
    pub(super) fn apply_to(
        &self,
        item: &Object,
        group_resource: &str,
        namespace: Option<&str>,
    ) -> bool {
        self.group_resource.is_match(group_resource)
            && namespace.is_none_or(|namespace| self.namespaces.includes(namespace))
            && self.name.as_ref().is_none_or(|pattern| {
                pattern.is_match(json::text(item, &["metadata"], "name").unwrap_or_default())
            })
            && (self.labels.everything() || self.labels.matches(&json::labels(item)))
            && self.matches_hold(item)
    }

    /// A missing value, or one within a missing object, does not match.
    fn matches_hold(&self, item: &Object) -> bool {
        self.matches.is_empty()
            || matches!(
                self.matches.apply(&mut Value::Object(item.clone())),
                Ok(JsonPatchOutcome::Done)
            )
    }
}

/// A pattern of group resources: `*` is any text without dots, `**` any text, `?` any character
/// except a dot, `[a-z]` and `[!a]` one character, `{a,b}` one of these (`github.com/gobwas/glob`
/// with the separator `.`, as in Velero).
pub(super) fn pattern(glob: &str) -> Result<Regex, String> {
    let mut regex = "^".to_owned();
    let mut depth = 0_u32;
    let mut chars = glob.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '*' if chars.next_if_eq(&'*').is_some() => regex.push_str(".*"),
            '*' => regex.push_str("[^.]*"),
            '?' => regex.push_str("[^.]"),
            '[' => {
                regex.push('[');
                if chars.next_if_eq(&'!').is_some() {
                    regex.push('^');
                }
            }
            ']' => regex.push(']'),
            '{' => {
                depth += 1;
                regex.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                regex.push(')');
            }
            ',' if depth > 0 => regex.push('|'),
            '-' => regex.push('-'),
            '\\' => {
                let next = chars.next().ok_or("it ends with a backslash")?;
                regex.push_str(&regex::escape(&next.to_string()));
            }
            other => {
                // Writing into a String cannot fail.
                let _ = write!(regex, "{}", regex::escape(&other.to_string()));
            }
        }
    }
    regex.push('$');
    Regex::new(&regex).map_err(|_| "its brackets or braces do not fit together".to_owned())
}

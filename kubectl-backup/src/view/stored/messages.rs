//! Errors and warnings, those of the same text as one.

use backup_core::results::{ResultSet, Results};
use serde::Serialize;

use crate::print::table::plain;

/// All errors and warnings.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Messages {
    /// Why something is missing.
    pub errors: Vec<Message>,
    /// What a person should know.
    pub warnings: Vec<Message>,
}

/// One text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message {
    /// The text.
    pub text: String,
    /// How often it was told.
    pub count: usize,
    /// Namespaces that it was told about, in order; none if it is about something else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

impl From<&Results> for Messages {
    fn from(results: &Results) -> Self {
        Self { errors: grouped(&results.errors), warnings: grouped(&results.warnings) }
    }
}

/// The most frequent first; those told as often in the order in which they were told, the whole before its parts.
fn grouped(set: &ResultSet) -> Vec<Message> {
    let whole = set.velero.iter().chain(&set.cluster).map(|text| (None, text));
    let namespaced =
        set.namespaces.iter().flat_map(|(name, all)| all.iter().map(move |text| (Some(name), text)));
    let mut messages: Vec<Message> = Vec::new();
    let mut places = std::collections::HashMap::new();
    for (namespace, text) in whole.chain(namespaced) {
        let place = *places.entry(text).or_insert(messages.len());
        if place == messages.len() {
            messages.push(Message { text: plain(text), count: 0, namespaces: Vec::new() });
        }
        let Some(message) = messages.get_mut(place) else { continue };
        message.count += 1;
        if let Some(name) = namespace.filter(|name| message.namespaces.last() != Some(*name)) {
            message.namespaces.push(plain(name));
        }
    }
    messages.sort_by_key(|message| std::cmp::Reverse(message.count));
    messages
}

#[cfg(test)]
mod tests {
    use backup_core::results::Scope;

    use super::*;

    #[test]
    fn what_was_told_often_is_one_line_that_says_where() {
        let mut results = Results::default();
        results.error(Scope::Namespace("a"), "once");
        for namespace in ["a", "b", "b"] {
            results.error(Scope::Namespace(namespace), "often");
        }
        results.error(Scope::Velero, "whole\u{1b}[2J");
        let Messages { errors, warnings } = Messages::from(&results);
        let seen: Vec<_> =
            errors.iter().map(|one| (one.text.as_str(), one.count, one.namespaces.join(","))).collect();
        let expected =
            [("often", 3, "a,b".to_owned()), ("whole [2J", 1, String::new()), ("once", 1, "a".to_owned())];
        assert_eq!(seen, expected);
        assert!(warnings.is_empty());
    }
}

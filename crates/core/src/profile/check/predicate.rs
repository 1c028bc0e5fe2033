//! Rules for predicates.

use std::collections::BTreeSet;

use crate::{
    profile::{MAX_DEPTH, Predicate},
    validate::Findings,
};

/// Checks paths, values and depth of a predicate. Findings name the part:
/// `backup.over.any[1].in.values`.
pub(super) fn check(field: &str, whole: &Predicate, found: &mut Findings) {
    let depth = whole.depth();
    if depth > MAX_DEPTH {
        found.say(
            field,
            format!("is nested {depth} deep; expected at most {MAX_DEPTH}"),
        );
    } else {
        part(field, whole, found);
    }
}

fn part(field: &str, predicate: &Predicate, found: &mut Findings) {
    match predicate {
        Predicate::In { path, values } => {
            found.path(&format!("{field}.in.path"), path);
            texts(&format!("{field}.in.values"), values, found);
            if values.is_empty() {
                found.say(format!("{field}.in.values"), "is empty; name the values");
            }
        }
        Predicate::Condition {
            path,
            type_,
            status,
            reasons,
        } => {
            found.path(&format!("{field}.condition.path"), path);
            if type_.is_empty() {
                found.say(
                    format!("{field}.condition.type"),
                    "is empty; name the type, such as \"Completed\"",
                );
            }
            if !["True", "False", "Unknown"].contains(&status.as_str()) {
                found.say(
                    format!("{field}.condition.status"),
                    format!(
                        "{status:?} is no status of a condition; expected \"True\", \"False\" or \"Unknown\""
                    ),
                );
            }
            texts(&format!("{field}.condition.reasons"), reasons, found);
        }
        Predicate::Set { path } => found.path(&format!("{field}.set.path"), path),
        Predicate::All(parts) => list(&format!("{field}.all"), parts, found),
        Predicate::Any(parts) => list(&format!("{field}.any"), parts, found),
        Predicate::Not(inner) => part(&format!("{field}.not"), inner, found),
    }
}

fn list(field: &str, parts: &[Predicate], found: &mut Findings) {
    if parts.is_empty() {
        found.say(field, "is empty; name at least one predicate");
    }
    for (i, inner) in parts.iter().enumerate() {
        part(&format!("{field}[{i}]"), inner, found);
    }
}

/// Values must be unique and not empty.
fn texts(field: &str, values: &[String], found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for value in values {
        if value.is_empty() {
            found.say(
                field,
                "holds an empty text; an object without a value is never meant by it",
            );
        } else if !seen.insert(value) {
            found.say(field, format!("{value:?} is named twice"));
        }
    }
}

//! Rules for one kind in a profile.
//!
//! `over` is tested on objects that cannot be over: one that has just been created, one in each
//! phase that the profile calls active, and one in an unknown phase.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{kind_names, predicate};
use crate::{
    profile::{KindRule, Predicate, Role, path},
    validate::Findings,
};

/// A phase that no operator uses.
const MADE_UP: &str = "a phase that no profile knows";

/// All errors in the rule for one kind.
pub(super) fn check(role: Role, kind: &KindRule, found: &mut Findings) {
    kind_names(&format!("{role}."), &kind.kind, &kind.plural, found);
    let before = found.0.len();
    predicate::check(&format!("{role}.over"), &kind.over, found);
    let phase = format!("{role}.phase");
    if kind.phase.is_empty() {
        for (field, given) in [
            ("initial", !kind.initial.is_empty()),
            ("active", !kind.active.is_empty()),
            ("revivals", !kind.revivals.is_empty()),
        ] {
            if given {
                found.say(
                    format!("{role}.{field}"),
                    format!("names phases, but {phase} gives no path of a phase"),
                );
            }
        }
    } else {
        found.path(&phase, &kind.phase);
        phases(role, kind, found);
    }
    if found.0.len() == before {
        probe(role, kind, found);
        revivals(role, kind, found);
    }
}

fn phases(role: Role, kind: &KindRule, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (field, list) in [("initial", &kind.initial), ("active", &kind.active)] {
        for phase in list {
            if phase.is_empty() {
                found.say(
                    format!("{role}.{field}"),
                    "an empty text is no phase; no phase always counts as not begun",
                );
            } else if !seen.insert(phase) {
                found.say(
                    format!("{role}.{field}"),
                    format!("{phase:?} is named twice"),
                );
            }
        }
    }
}

/// `over` must be false for objects that cannot be over.
fn probe(role: Role, kind: &KindRule, found: &mut Findings) {
    let field = format!("{role}.over");
    let created = json!({
        "apiVersion": "group/v1",
        "kind": kind.kind,
        "metadata": {
            "name": "name", "namespace": "namespace", "uid": "uid", "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {},
    });
    if kind.over.holds(&created) {
        found.say(
            field,
            "holds of an object that has just been created; name what the end looks like",
        );
        return;
    }
    if kind.phase.is_empty() {
        return;
    }
    for phase in kind.initial.iter().chain(&kind.active) {
        if kind.over.holds(&at_phase(kind, phase)) {
            found.say(
                &field,
                format!("holds in phase {phase:?}, which is listed as not over"),
            );
        }
    }
    if kind.over.holds(&at_phase(kind, MADE_UP)) {
        found.say(
            field,
            "holds in phases that it does not name; an unknown phase counts as active, so list the ends with `in`",
        );
    }
}

fn at_phase(kind: &KindRule, phase: &str) -> Value {
    path::only(&kind.phase, phase.into())
}

/// A revival leads from an end back to a phase that is not final.
fn revivals(role: Role, kind: &KindRule, found: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (i, revival) in kind.revivals.iter().enumerate() {
        let field = format!("{role}.revivals[{i}]");
        if !names_value(&kind.over, &kind.phase, &revival.from) {
            found.say(
                format!("{field}.from"),
                format!("{:?} is no phase that {role}.over names", revival.from),
            );
        }
        if !seen.insert(&revival.from) {
            found.say(
                format!("{field}.from"),
                format!("{:?} is named twice", revival.from),
            );
        }
        if revival.to.is_empty() {
            found.say(
                format!("{field}.to"),
                "is empty; name the phases that may follow (\"\" for none)",
            );
        }
        let ended = revival
            .to
            .iter()
            .filter(|to| !to.is_empty() && !kind.initial.contains(to) && !kind.active.contains(to));
        for to in ended {
            found.say(
                format!("{field}.to"),
                format!("{to:?} is neither in {role}.initial nor in {role}.active"),
            );
        }
    }
}

/// Whether a predicate tests this field for this value.
fn names_value(predicate: &Predicate, path: &str, value: &str) -> bool {
    match predicate {
        Predicate::In {
            path: asked,
            values,
        } => asked == path && values.iter().any(|v| v == value),
        Predicate::Condition { .. } | Predicate::Set { .. } => false,
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().any(|p| names_value(p, path, value))
        }
        Predicate::Not(inner) => names_value(inner, path, value),
    }
}

//! All errors in a spec that can be found without a cluster.
//!
//! [`backup`], [`restore`] and [`schedule()`] check the fields of a decoded object;
//! [`engine_backup`], [`engine_restore`] and [`engine_schedule`] also find what this engine does
//! not support. [`raw_backup`], [`raw_restore`] and [`raw_schedule`] do all of it for an object in
//! JSON, and name each field that cannot be decoded. Rules are Velero's (v1.18:
//! `pkg/controller/{backup,restore}_controller.go`, `pkg/util/collections`, `pkg/util/wildcard`)
//! unless said otherwise.
//!
//! Admission, controllers and the command use only these functions, so all of them refuse the same
//! spec for the same reasons. If another operator runs the backups, admission refuses only what
//! [`undecodable_backup`], [`undecodable_restore`] and [`undecodable_schedule`] find: that operator
//! cannot read such objects either.

mod backup;
mod copies;
mod drill;
mod engine;
mod keep_rules;
mod lists;
mod prune;
mod raw;
mod restore;
mod schedule;
mod selectors;

use std::fmt;

pub use backup::backup;
pub use engine::{engine_backup, engine_restore};
pub(crate) use lists::namespace_pattern;
pub use raw::{raw_backup, raw_restore, undecodable_backup, undecodable_restore};
pub use restore::restore;
pub use schedule::{
    drill_of_installation, engine_schedule, keep, raw_schedule, schedule, undecodable_schedule,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::{
    api::{GoDuration, common::LocalReference},
    names::is_object_name,
};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the field, such as `spec.ttl`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Adds findings that are not in the list yet: rules with a cluster repeat findings of rules
/// without one.
pub fn add_new(found: &mut Vec<Finding>, more: impl IntoIterator<Item = Finding>) {
    for finding in more {
        if !found.contains(&finding) {
            found.push(finding);
        }
    }
}

impl Finding {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// The findings so far.
#[derive(Default)]
pub(crate) struct Findings(pub(crate) Vec<Finding>);

impl Findings {
    pub(crate) fn say(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding::new(field, message));
    }

    /// A time span must not be negative (our own rule: Velero accepts a negative `ttl` and deletes
    /// the backup at once).
    fn not_negative(&mut self, field: &str, duration: Option<GoDuration>) {
        if let Some(duration) = duration.filter(|duration| *duration < GoDuration::default()) {
            self.say(
                field,
                format!("{duration} is negative; give a span such as \"720h\""),
            );
        }
    }

    /// Policies and modifiers are read from ConfigMaps only.
    fn is_config_map(&mut self, field: &str, reference: Option<&LocalReference>) {
        let Some(LocalReference { kind, name, .. }) = reference else {
            return;
        };
        if !kind.eq_ignore_ascii_case("configmap") {
            self.say(
                format!("{field}.kind"),
                format!("{kind:?} is not supported; name a ConfigMap"),
            );
        }
        if !is_object_name(name) {
            self.say(
                format!("{field}.name"),
                format!("{name:?} cannot be the name of a ConfigMap"),
            );
        }
    }
}

/// Errors in a label selector, by the rules of Kubernetes.
pub fn label_selector(field: &str, selector: &LabelSelector) -> Vec<Finding> {
    let mut found = Findings::default();
    selectors::check_one(field, selector, &mut found);
    found.0
}

/// Errors in a reference to a ConfigMap.
pub fn config_map(field: &str, reference: &LocalReference) -> Vec<Finding> {
    let mut found = Findings::default();
    found.is_config_map(field, Some(reference));
    found.0
}

#[cfg(test)]
mod tests;

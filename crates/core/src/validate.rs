//! Everything that can be found wrong in a spec without looking at a cluster.
//!
//! Two steps, as an object comes in as JSON: [`raw_backup`] and [`raw_restore`] name each field that cannot be decoded;
//! if there is none, [`backup`] and [`restore`] check what the decoded fields say. Rules are Velero's (v1.18:
//! `pkg/controller/{backup,restore}_controller.go`, `pkg/util/collections`, `pkg/util/wildcard`) unless said otherwise.

mod backup;
mod lists;
mod raw;
mod restore;
mod selectors;

use std::fmt;

pub use backup::backup;
pub use raw::{raw_backup, raw_restore};
pub use restore::restore;

use crate::api::{BackupSpec, GoDuration, common::LocalReference};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the field, such as `spec.ttl`.
    pub field: String,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Finding {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// Whether a Backup filters resources by the older fields, which know no scopes.
pub fn uses_combined_filters(spec: &BackupSpec) -> bool {
    crate::resources::uses_combined_fields(spec)
}

/// A time span cannot be negative (our own rule: Velero takes a negative `ttl` and deletes the backup at once).
fn not_negative(field: &str, duration: Option<GoDuration>, findings: &mut Vec<Finding>) {
    if let Some(duration) = duration.filter(|duration| *duration < GoDuration::default()) {
        findings.push(Finding::new(field, format!("{duration} is negative; give a span such as \"720h\"")));
    }
}

/// Policies and modifiers are read from ConfigMaps only.
fn is_config_map(field: &str, reference: Option<&LocalReference>, findings: &mut Vec<Finding>) {
    let Some(reference) = reference else { return };
    if !reference.kind.eq_ignore_ascii_case("configmap") {
        findings.push(Finding::new(
            format!("{field}.kind"),
            format!("{:?} is not supported; name a ConfigMap", reference.kind),
        ));
    }
}

#[cfg(test)]
mod tests;

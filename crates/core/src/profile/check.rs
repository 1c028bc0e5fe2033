//! Rules for a profile beyond being well-formed.
//!
//! They exclude profiles that would free a place too early, or never.

mod engine;
mod kind_rule;
mod predicate;

use super::{
    ForeignLease, OnConflict, Policy, Profile, ReleaseRule, Role, ScopeRule, foreign::CLUSTER, path,
};
use crate::{
    names,
    validate::{Finding, Findings},
};

/// All errors in a profile.
pub(super) fn findings(profile: &Profile) -> Vec<Finding> {
    let mut found = Findings::default();
    if !names::is_dns_label(&profile.name) {
        found.say(
            "name",
            format!("{:?} is no DNS label, such as \"percona-ps\"", profile.name),
        );
    }
    group("group", &profile.group, &mut found);
    version("version", &profile.version, &mut found);
    scope(profile, &mut found);
    kind_rule::check(Role::Backup, &profile.backup, &mut found);
    kind_rule::check(Role::Restore, &profile.restore, &mut found);
    if profile.backup.kind == profile.restore.kind
        || profile.backup.plural == profile.restore.plural
    {
        found.say(
            "restore.kind",
            "backup and restore are one kind; profiles tell them apart by kind",
        );
    }
    engine::check(profile, &mut found);
    policy(profile.engine, &profile.policy, &mut found);
    if let Some(lease) = &profile.foreign_lease {
        foreign_lease(lease, &mut found);
    }
    if let Some(rule) = &profile.release {
        release(rule, &mut found);
    }
    found.0
}

impl Findings {
    fn path(&mut self, field: &str, text: &str) {
        if !path::is_path(text) {
            self.say(
                field,
                format!("{text:?} is no path of field names, such as \"status.state\""),
            );
        }
    }
}

fn group(field: &str, text: &str, found: &mut Findings) {
    if !names::is_object_name(text) {
        found.say(
            field,
            format!("{text:?} is no API group, such as \"ps.percona.com\""),
        );
    }
}

fn version(field: &str, text: &str, found: &mut Findings) {
    let numbered = text
        .strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if !numbered || !names::is_dns_label(text) {
        found.say(
            field,
            format!("{text:?} is no API version, such as \"v1\" or \"v1alpha1\""),
        );
    }
}

fn kind_names(field: &str, kind: &str, plural: &str, found: &mut Findings) {
    if !kind.starts_with(|c: char| c.is_ascii_uppercase())
        || !kind.chars().all(|c| c.is_ascii_alphanumeric())
    {
        found.say(
            format!("{field}kind"),
            format!("{kind:?} is no kind, such as \"Backup\""),
        );
    }
    if !names::is_dns_label(plural) {
        found.say(
            format!("{field}plural"),
            format!("{plural:?} is no resource name in the plural, such as \"backups\""),
        );
    }
}

fn scope(profile: &Profile, found: &mut Findings) {
    match &profile.scope {
        ScopeRule::Field { backup, restore } => {
            found.path("scope.field.backup", backup);
            found.path("scope.field.restore", restore);
        }
        ScopeRule::Cluster => {
            let needs = "needs the name of a database cluster: give scope.field";
            if profile.foreign_lease.is_some() {
                found.say("foreignLease", needs);
            }
            if profile.release.is_some() {
                found.say("release", needs);
            }
        }
    }
}

fn policy(engine: bool, policy: &Policy, found: &mut Findings) {
    if policy.on_conflict_restore == OnConflict::Queue && !engine {
        found.say(
            "policy.onConflictRestore",
            "only our own engine waits in a queue; expected deny or wait",
        );
    }
    if policy.on_conflict_backup == OnConflict::Queue {
        found.say(
            "policy.onConflictBackup",
            "backups do not queue; expected deny or wait",
        );
    }
}

fn foreign_lease(lease: &ForeignLease, found: &mut Findings) {
    let named = lease.name.contains(CLUSTER);
    if !named || !names::is_object_name(&lease.name.replace(CLUSTER, "c")) {
        found.say(
            "foreignLease.name",
            format!(
                "{:?} is no name with {CLUSTER} in it, such as \"restore-lock-{CLUSTER}\"",
                lease.name
            ),
        );
    }
}

fn release(rule: &ReleaseRule, found: &mut Findings) {
    group("release.target.group", &rule.target.group, found);
    version("release.target.version", &rule.target.version, found);
    kind_names(
        "release.target.",
        &rule.target.kind,
        &rule.target.plural,
        found,
    );
    predicate::check("release.when", &rule.when, found);
    if rule.within.is_zero() {
        found.say(
            "release.within",
            "is no time at all; leave `release` out to free the place at once",
        );
    }
}

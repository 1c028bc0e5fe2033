//! Profiles, what a cluster serves of them, and the policy in force. Pure.

use std::time::Duration;

use backup_core::profile::{KindRule, Mode, OnConflict, Policy, Profile, ScopeRule};
use jiff::SignedDuration;
use serde::Serialize;

use super::{description::API_VERSION, part::Part};
use crate::print::table::plain;

/// The profiles, as `-o json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileList {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `ProfileList`.
    pub kind: &'static str,
    /// The profiles, Velero's first.
    pub profiles: Vec<ProfileView>,
    /// What could not be known, one sentence each.
    pub notes: Vec<String>,
}

/// One profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProfileView {
    /// Its name.
    pub name: String,
    /// Its kinds.
    pub kinds: Vec<KindView>,
    /// Whether the webhook keeps its objects apart.
    pub is_guarded: Part<bool>,
    /// What becomes of conflicts; where `policyFrom` names no flags, as the profile says.
    pub policy: PolicyView,
    /// Where the policy comes from: `profile`, and flags of the webhook that go over it.
    pub policy_from: Part<Vec<String>>,
    /// The profile itself.
    pub definition: Profile,
}

/// A kind of a profile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KindView {
    /// Plural and group.
    pub resource: String,
    /// Whether the cluster serves it.
    pub is_served: Part<bool>,
}

/// What becomes of conflicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyView {
    /// Whether a conflict is refused or only told.
    pub mode: Mode,
    /// What becomes of a restore that meets one.
    pub on_conflict_restore: OnConflict,
    /// What becomes of a backup that meets one.
    pub on_conflict_backup: OnConflict,
    /// Whether two backups of one scope are one.
    pub backups_exclude_each_other: bool,
    /// Seconds for which what is over still keeps its place.
    pub settle_seconds: u64,
    /// Seconds for which a refused restore keeps new backups out.
    pub intent_seconds: u64,
}

/// The document. With a doubt, there may be other profiles, or others in the place of these.
pub fn list(profiles: Vec<ProfileView>, doubt: Option<String>) -> ProfileList {
    let note = |doubt| format!("{doubt}; these are the profiles that this program knows");
    let notes = doubt.map(note).into_iter().collect();
    ProfileList { api_version: API_VERSION, kind: "ProfileList", profiles, notes }
}

/// One profile, with the plurals that the cluster serves of it and the flags of the webhook.
pub fn profile(definition: Profile, served: &Part<Vec<String>>, flags: &Part<Vec<String>>) -> ProfileView {
    let kind = |rule: &KindRule| KindView {
        resource: format!("{}.{}", rule.plural, definition.group),
        is_served: served.clone().map(|all| all.contains(&rule.plural)),
    };
    let mut policy = definition.policy.clone();
    let policy_from = flags.clone().map(|flags| {
        let over = apply(&mut policy, &flags, definition.engine && !is_named(&definition, &flags));
        std::iter::once("profile".to_owned()).chain(over).collect()
    });
    ProfileView {
        name: definition.name.clone(),
        kinds: vec![kind(&definition.backup), kind(&definition.restore)],
        is_guarded: flags.clone().map(|flags| definition.is_velero() || is_named(&definition, &flags)),
        policy: PolicyView::of(&policy),
        policy_from,
        definition,
    }
}

fn is_named(profile: &Profile, flags: &[String]) -> bool {
    values(flags, "--guard").any(|name| name == profile.name)
}

/// Puts flags over a policy, by the webhook's own rules (its `Args::profiles`); those that did.
fn apply(policy: &mut Policy, flags: &[String], runs_here: bool) -> Vec<String> {
    let mut over = Vec::new();
    let last =
        |name: &'static str| values(flags, name).last().map(|value| (format!("{name}={value}"), value));
    if let Some((flag, value)) = last("--mode") {
        policy.mode = if value == "warn" { Mode::Warn } else { Mode::Enforce };
        over.push(flag);
    }
    if let Some((flag, value)) = last("--on-conflict-restore") {
        let wish = match value {
            "deny" => Some(OnConflict::Deny),
            "wait" => Some(OnConflict::Wait),
            "queue" => Some(OnConflict::Queue),
            _ => None,
        };
        if wish.is_some_and(|wish| policy.wish_for_restores(wish, runs_here)) {
            over.push(flag);
        }
    }
    if let Some((flag, value)) = last("--intent")
        && let Some(intent) = span(value)
    {
        policy.intent = intent;
        over.push(flag);
    }
    over
}

fn span(text: &str) -> Option<Duration> {
    text.parse::<SignedDuration>().ok().and_then(|span| Duration::try_from(span).ok())
}

/// The values of a flag, as `--name=value` or in two words.
pub fn values<'a>(flags: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
    flags.iter().enumerate().filter_map(move |(at, word)| match word.strip_prefix(name)? {
        "" => flags.get(at + 1).map(String::as_str),
        rest => rest.strip_prefix('='),
    })
}

impl PolicyView {
    fn of(policy: &Policy) -> Self {
        Self {
            mode: policy.mode,
            on_conflict_restore: policy.on_conflict_restore,
            on_conflict_backup: policy.on_conflict_backup,
            backups_exclude_each_other: policy.backups_exclude_each_other,
            settle_seconds: policy.settle.as_secs(),
            intent_seconds: policy.intent.as_secs(),
        }
    }
}

/// Of all of them: `?` if one is not known.
fn yes_or_no<'a>(mut all: impl Iterator<Item = &'a Part<bool>> + Clone) -> &'static str {
    if all.clone().any(|one| one.known().is_none()) {
        return "?";
    }
    if all.all(|one| one.known() == Some(&true)) { "yes" } else { "no" }
}

impl ProfileView {
    /// Whether its kinds are there.
    pub fn installed(&self) -> &'static str {
        yes_or_no(self.kinds.iter().map(|kind| &kind.is_served))
    }

    /// Whether its objects are kept apart.
    pub fn guarded(&self) -> &'static str {
        yes_or_no([&self.is_guarded].into_iter())
    }

    /// Where its policy comes from.
    pub fn from(&self) -> String {
        match &self.policy_from {
            Part::Known(from) => plain(&from.join(", ")),
            Part::Missing { .. } => "profile, perhaps flags".to_owned(),
        }
    }

    /// How its scopes are cut.
    pub fn scope(&self) -> &'static str {
        match self.definition.scope {
            ScopeRule::Cluster => "namespaces",
            ScopeRule::Field { .. } => "one database cluster",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(flags: &[&str], runs_here: bool) -> (PolicyView, Vec<String>) {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut policy = Policy::default();
        let over = apply(&mut policy, &flags, runs_here);
        (PolicyView::of(&policy), over)
    }

    #[test]
    fn flags_go_over_the_policy_by_the_rules_of_the_webhook() {
        let plain = PolicyView::of(&Policy::default());
        let restore = |on_conflict_restore| PolicyView { on_conflict_restore, ..plain.clone() };
        for (flags, runs_here, expected) in [
            (&["--listen=x", "--models=warn"][..], true, plain.clone()),
            (&["--mode=warn"], true, PolicyView { mode: Mode::Warn, ..plain.clone() }),
            (&["--mode", "warn", "--mode=enforce"], true, plain.clone()),
            (&["--on-conflict-restore=queue"], true, restore(OnConflict::Queue)),
            (&["--on-conflict-restore=queue"], false, plain.clone()),
            (&["--on-conflict-restore", "wait"], false, restore(OnConflict::Wait)),
            (&["--intent=30s"], true, PolicyView { intent_seconds: 30, ..plain.clone() }),
            (&["--intent=soon"], true, plain.clone()),
        ] {
            assert_eq!(policy(flags, runs_here).0, expected, "{flags:?}");
        }
        assert_eq!(policy(&["--mode", "warn"], true).1, ["--mode=warn"]);
        assert_eq!(policy(&["--on-conflict-restore=queue"], false).1, Vec::<String>::new());
    }
}

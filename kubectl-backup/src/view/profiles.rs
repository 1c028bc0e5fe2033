//! Profiles, what a cluster serves of them, and the policy in force. Pure.

use std::{fmt::Write as _, time::Duration};

use backup_core::profile::{KindRule, Mode, OnConflict, Policy, Profile, ScopeRule};
use jiff::SignedDuration;
use serde::Serialize;

use super::API_VERSION;
use crate::{
    cli::Output,
    error::Problem,
    fetched::Fetched,
    print::{Style, json, plain, table},
};

/// The profiles, as `-o json` prints them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProfileList {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) profiles: Vec<ProfileView>,
    /// What could not be known, one sentence each.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProfileView {
    pub(crate) name: String,
    pub(crate) kinds: Vec<KindView>,
    /// Whether the webhook keeps its objects apart.
    pub(crate) is_guarded: Fetched<bool>,
    /// What becomes of conflicts; where `policyFrom` names no flags, as the profile says.
    pub(crate) policy: PolicyView,
    /// Where the policy comes from: `profile`, and flags of the webhook that go over it.
    pub(crate) policy_from: Fetched<Vec<String>>,
    pub(crate) definition: Profile,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KindView {
    pub(crate) resource: String,
    pub(crate) is_served: Fetched<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyView {
    pub(crate) mode: Mode,
    pub(crate) on_conflict_restore: OnConflict,
    pub(crate) on_conflict_backup: OnConflict,
    pub(crate) backups_exclude_each_other: bool,
    /// Seconds for which what is over still keeps its place.
    pub(crate) settle_seconds: u64,
    /// Seconds for which a refused restore keeps new backups out.
    pub(crate) intent_seconds: u64,
}

/// The document. With a doubt, there may be other profiles, or others in the place of these.
pub(crate) fn list(profiles: Vec<ProfileView>, doubt: Option<String>) -> ProfileList {
    let note = |doubt| format!("{doubt}; these are the profiles that this program knows");
    let notes = doubt.map(note).into_iter().collect();
    ProfileList { api_version: API_VERSION, kind: "ProfileList", profiles, notes }
}

/// One profile, with the plurals that the cluster serves of it and the flags of the webhook.
pub(crate) fn profile(
    definition: Profile,
    served: &Fetched<Vec<String>>,
    flags: &Fetched<Vec<String>>,
) -> ProfileView {
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
pub(crate) fn values<'a>(flags: &'a [String], name: &'a str) -> impl Iterator<Item = &'a str> {
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
fn yes_or_no<'a>(mut all: impl Iterator<Item = &'a Fetched<bool>> + Clone) -> &'static str {
    if all.clone().any(|one| one.known().is_none()) {
        return "?";
    }
    if all.all(|one| one.known() == Some(&true)) { "yes" } else { "no" }
}

impl ProfileView {
    pub(crate) fn installed(&self) -> &'static str {
        yes_or_no(self.kinds.iter().map(|kind| &kind.is_served))
    }

    pub(crate) fn guarded(&self) -> &'static str {
        yes_or_no([&self.is_guarded].into_iter())
    }

    pub(crate) fn from(&self) -> String {
        match &self.policy_from {
            Fetched::Known(from) => plain(&from.join(", ")),
            Fetched::Missing { .. } => "profile, perhaps flags".to_owned(),
        }
    }

    pub(crate) fn scope(&self) -> &'static str {
        match self.definition.scope {
            ScopeRule::Cluster => "namespaces",
            ScopeRule::Field { .. } => "one database cluster",
        }
    }
}

const HEADERS: [&str; 10] =
    ["NAME", "INSTALLED", "GUARDED", "MODE", "RESTORES", "BACKUPS", "SETTLE", "INTENT", "FROM", "KINDS"];
const NARROW: usize = 9;

pub(crate) fn rows(list: &ProfileList, wide: bool, headers: bool) -> std::io::Result<String> {
    let columns = if wide { HEADERS.len() } else { NARROW };
    let rows: Vec<Vec<String>> = list.profiles.iter().map(|one| row(one)[..columns].to_vec()).collect();
    table(headers.then_some(&HEADERS[..columns]), &rows)
}

fn row(profile: &ProfileView) -> Vec<String> {
    let policy = &profile.policy;
    vec![
        profile.name.clone(),
        profile.installed().to_owned(),
        profile.guarded().to_owned(),
        word(&policy.mode),
        word(&policy.on_conflict_restore),
        word(&policy.on_conflict_backup),
        format!("{}s", policy.settle_seconds),
        format!("{}s", policy.intent_seconds),
        profile.from(),
        profile.kinds.iter().map(|kind| kind.resource.clone()).collect::<Vec<_>>().join(", "),
    ]
}

pub(crate) fn one(profile: &ProfileView, style: Style) -> Result<String, Problem> {
    let mut text = format!("{}\n\n", style.title(&profile.name));
    for (title, fact) in facts(profile) {
        let _ = writeln!(text, "  {title:<16}{fact}");
    }
    let _ = writeln!(text, "\n{}", style.title("DEFINITION"));
    let definition = json::object(&profile.definition, Output::Yaml)?;
    Ok(definition.lines().fold(text, |text, line| text + "  " + line + "\n"))
}

fn facts(profile: &ProfileView) -> Vec<(&'static str, String)> {
    let PolicyView { mode, on_conflict_restore, on_conflict_backup, .. } = &profile.policy;
    let PolicyView { backups_exclude_each_other, settle_seconds, intent_seconds, .. } = profile.policy;
    let kinds = profile.kinds.iter().map(|kind| kind.resource.clone()).collect::<Vec<_>>().join(", ");
    let beside = if backups_exclude_each_other { "not beside each other" } else { "beside each other" };
    vec![
        ("Kinds", kinds),
        ("Installed", profile.installed().to_owned()),
        ("Guarded", profile.guarded().to_owned()),
        ("Kept apart by", profile.scope().to_owned()),
        ("Mode", word(mode)),
        (
            "Conflicts",
            format!("restores: {}, backups: {}", word(on_conflict_restore), word(on_conflict_backup)),
        ),
        ("Two backups", beside.to_owned()),
        ("Settles", format!("{settle_seconds}s after the end")),
        ("Intent", format!("{intent_seconds}s for a restore that was refused")),
        ("Policy from", profile.from()),
    ]
}

/// As the profile's file says it.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
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

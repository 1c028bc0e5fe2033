//! `profiles`: the rules for each operator, which of its kinds the cluster serves, and the
//! webhook's policy for them.

pub(crate) mod check;

use backup_core::profile::{
    KindRule, Mode, OnConflict, Policy, Profile, ScopeRule, published::PublishedProfile,
};
use serde::Serialize;

use super::{known_profiles::known_profiles, prelude::*};
use crate::{
    cli::{Output, ShowProfilesArgs},
    print::{Screen, Style, table},
};

pub(crate) async fn run(args: ShowProfilesArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let known = known_profiles(&session).await;
    let mut all = Vec::new();
    for one in &known.all {
        if args
            .profile
            .as_ref()
            .is_some_and(|name| one.profile.name != *name)
        {
            continue;
        }
        let served = fetched(&session, served_plurals(&session, &one.profile)).await;
        all.push(view(one, &served, known.unavailable.as_deref()));
    }
    let doubt = known.doubt();
    if let Some(name) = &args.profile
        && all.is_empty()
    {
        let known = known
            .all
            .iter()
            .map(|one| one.profile.name.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let remedy = match doubt {
            Some(doubt) => format!("It knows {known}; {doubt}"),
            None => format!("It knows {known}."),
        };
        return Err(
            Problem::other(format!("this program knows no profile {name:?}")).with_remedy(remedy),
        );
    }
    let list = ProfileList {
        profiles: all,
        notes: doubt
            .map(|doubt| format!("{doubt}; these are the profiles that this program knows"))
            .into_iter()
            .collect(),
    };
    let output = &args.output;
    json::show_list(
        "ProfileList",
        &list,
        output,
        terminal,
        || {
            list.profiles
                .iter()
                .map(|one| one.name.clone() + "\n")
                .collect()
        },
        |_, style| {
            if let [one] = list.profiles.as_slice()
                && args.profile.is_some()
            {
                return one_text(one, style);
            }
            let headers = if output.is_wide() {
                &HEADERS[..]
            } else {
                &HEADERS[..NARROW_COLUMNS]
            };
            Ok(table(
                headers,
                !output.no_headers,
                list.profiles.iter().map(row),
            )?)
        },
    )?;
    for note in &list.notes {
        terminal.say(&format!("note: {note}"));
    }
    Ok(Exit::Done)
}

/// The plurals that the cluster serves in the profile's group.
async fn served_plurals(session: &Session, profile: &Profile) -> Result<Vec<String>, Problem> {
    let version = format!("{}/{}", profile.group, profile.version);
    let about = About::called("list", "kind", &version, "");
    match session
        .call(about, session.client.list_api_group_resources(&version))
        .await
    {
        Ok(list) => Ok(list.resources.into_iter().map(|one| one.name).collect()),
        Err(problem) if problem.kind == ProblemKind::NotServed => Ok(Vec::new()),
        Err(problem) => Err(problem),
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProfileList {
    profiles: Vec<ProfileView>,
    /// Facts that could not be determined, one sentence each.
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ProfileView {
    name: String,
    kinds: Vec<KindView>,
    /// Whether the webhook guards the kinds of this profile.
    is_guarded: FetchResult<bool>,
    /// What happens on conflicts; the profile's policy if `policyFrom` names no flags.
    policy: PolicyView,
    /// Sources of the policy: `profile`, and flags of the webhook that override it.
    policy_from: FetchResult<Vec<String>>,
    definition: Profile,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct KindView {
    resource: String,
    is_served: FetchResult<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct PolicyView {
    mode: Mode,
    on_conflict_restore: OnConflict,
    on_conflict_backup: OnConflict,
    backups_exclude_each_other: bool,
    /// Time for which an ended object keeps its claim (seconds).
    settle_seconds: u64,
    /// Time for which a refused restore keeps new backups out (seconds).
    intent_seconds: u64,
}

/// The view of a profile, with the plurals that the cluster serves. `unavailable` says why guarded
/// kinds and flags are unknown.
fn view(
    one: &PublishedProfile,
    served: &FetchResult<Vec<String>>,
    unavailable: Option<&str>,
) -> ProfileView {
    let PublishedProfile {
        profile: definition,
        guarded,
        over,
    } = one;
    let told = unavailable.map_or(FetchResult::Known(()), FetchResult::missing);
    ProfileView {
        name: definition.name.clone(),
        kinds: vec![
            KindView::of(&definition.backup, &definition.group, served),
            KindView::of(&definition.restore, &definition.group, served),
        ],
        is_guarded: told.clone().map(|()| *guarded),
        policy: PolicyView::of(&definition.policy),
        policy_from: told.map(|()| {
            std::iter::once("profile")
                .chain(over.iter().map(String::as_str))
                .map(str::to_owned)
                .collect()
        }),
        definition: definition.clone(),
    }
}

impl KindView {
    fn of(rule: &KindRule, group: &str, served: &FetchResult<Vec<String>>) -> Self {
        Self {
            resource: format!("{}.{group}", rule.plural),
            is_served: served.clone().map(|all| all.contains(&rule.plural)),
        }
    }
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

/// Whether all are true; `?` if one is unknown.
fn yes_or_no<'a>(all: impl IntoIterator<Item = &'a FetchResult<bool>>) -> &'static str {
    match all
        .into_iter()
        .try_fold(true, |all, one| Some(*one.known()? && all))
    {
        None => "?",
        Some(true) => "yes",
        Some(false) => "no",
    }
}

impl ProfileView {
    fn resources(&self) -> String {
        self.kinds
            .iter()
            .map(|kind| kind.resource.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn installed(&self) -> &'static str {
        yes_or_no(self.kinds.iter().map(|kind| &kind.is_served))
    }

    fn guarded(&self) -> &'static str {
        yes_or_no([&self.is_guarded])
    }

    fn from(&self) -> String {
        match &self.policy_from {
            FetchResult::Known(from) => plain(&from.join(", ")),
            FetchResult::Missing { .. } => "profile, perhaps flags".to_owned(),
        }
    }

    fn scope(&self) -> &'static str {
        match self.definition.scope {
            ScopeRule::Cluster => "namespaces",
            ScopeRule::Field { .. } => "one database cluster",
        }
    }
}

const HEADERS: [&str; 10] = [
    "NAME",
    "INSTALLED",
    "GUARDED",
    "MODE",
    "RESTORES",
    "BACKUPS",
    "SETTLE",
    "INTENT",
    "FROM",
    "KINDS",
];
const NARROW_COLUMNS: usize = 9;

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
        profile.resources(),
    ]
}

fn one_text(profile: &ProfileView, style: Style) -> Result<String, Problem> {
    let mut screen = Screen {
        text: format!("{}\n\n", style.title(&profile.name)),
        style,
    };
    screen.facts(16, facts(profile));
    screen.section("DEFINITION");
    screen.lines(json::object(&profile.definition, Output::Yaml)?.lines());
    Ok(screen.text)
}

fn facts(profile: &ProfileView) -> Vec<(&'static str, String)> {
    let PolicyView {
        mode,
        on_conflict_restore,
        on_conflict_backup,
        ..
    } = &profile.policy;
    let PolicyView {
        backups_exclude_each_other,
        settle_seconds,
        intent_seconds,
        ..
    } = profile.policy;
    let beside = if backups_exclude_each_other {
        "not beside each other"
    } else {
        "beside each other"
    };
    vec![
        ("Kinds", profile.resources()),
        ("Installed", profile.installed().to_owned()),
        ("Guarded", profile.guarded().to_owned()),
        ("Kept apart by", profile.scope().to_owned()),
        ("Mode", word(mode)),
        (
            "Conflicts",
            format!(
                "restores: {}, backups: {}",
                word(on_conflict_restore),
                word(on_conflict_backup)
            ),
        ),
        ("Two backups", beside.to_owned()),
        ("Settles", format!("{settle_seconds}s after the end")),
        (
            "Intent",
            format!("{intent_seconds}s for a restore that was refused"),
        ),
        ("Policy from", profile.from()),
    ]
}

/// The value in the notation of a profile's file.
fn word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

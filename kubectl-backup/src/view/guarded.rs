//! Objects of other operators, from their own fields and their place in the lock. Pure.

use std::{collections::BTreeMap, fmt::Write as _};

use backup_core::profile::Profile;
use backup_lock::{ObjectKind, observe::Observed};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::Value;

use super::{
    API_VERSION,
    locks::{EntryView, FoundLedger, entry_view},
    table_kind::dash,
};
use crate::{
    fetched::Fetched,
    print::{Style, Tone, plain, since},
};

pub(crate) const HEADERS: [&str; 9] =
    ["NAME", "STATE", "ENDED", "SCOPE", "AGE", "CLAIM", "SINCE", "NOTE", "UID"];
pub(crate) const NARROW: usize = 8;
/// Columns that need the object alone.
pub(crate) const WITHOUT_CLAIMS: usize = 5;

/// One object of another operator, as `describe` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GuardedDescription {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) profile: String,
    pub(crate) resource: String,
    pub(crate) object_kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its state, in the operator's words; none yet is New.
    pub(crate) state: String,
    /// Whether the profile knows this state. One that it does not know counts as running.
    pub(crate) is_known_state: bool,
    /// Whether its work is over, by the profile's rules.
    pub(crate) has_ended: bool,
    pub(crate) is_deleting: bool,
    /// What must not be backed up and restored at once with it; none if it does not say.
    pub(crate) scope: Option<String>,
    /// When it was created, RFC 3339.
    pub(crate) created: String,
    /// What else its status says in single words and numbers.
    pub(crate) status: BTreeMap<String, String>,
    /// Its place in the lock; null: it has none.
    pub(crate) claim: Fetched<Option<EntryView>>,
}

pub(crate) fn describe(
    profile: &Profile,
    kind: ObjectKind,
    resource: &ApiResource,
    object: &DynamicObject,
    found: &Fetched<Vec<FoundLedger>>,
) -> GuardedDescription {
    let observed = Observed::of(profile, kind, object);
    GuardedDescription {
        api_version: API_VERSION,
        kind: "GuardedDescription",
        profile: profile.name.clone(),
        resource: format!("{}.{}", resource.plural, resource.group),
        object_kind: resource.kind.clone(),
        namespace: observed.key.namespace.clone(),
        name: observed.key.name.clone(),
        uid: observed.uid.clone(),
        state: plain(&observed.phase),
        is_known_state: observed.known,
        has_ended: observed.over,
        is_deleting: observed.deleting,
        scope: observed.scope.as_deref().map(plain),
        created: observed.created.clone(),
        status: words(object.data.get("status")),
        claim: claim(found, &observed),
    }
}

fn words(status: Option<&Value>) -> BTreeMap<String, String> {
    let word = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(plain(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        _ => None,
    };
    let fields = status.and_then(Value::as_object).into_iter().flatten();
    fields.filter_map(|(name, value)| Some((plain(name), word(value)?))).collect()
}

/// The place of an object in the ledger of its scope.
pub(crate) fn claim(found: &Fetched<Vec<FoundLedger>>, object: &Observed) -> Fetched<Option<EntryView>> {
    let all = match found {
        Fetched::Known(all) => all,
        Fetched::Missing { unavailable } => return Fetched::missing(unavailable.clone()),
    };
    let Some(scope) = &object.scope else { return Fetched::Known(None) };
    match all.iter().find(|found| found.scope == *scope).map(|found| &found.ledger) {
        None => Fetched::Known(None),
        Some(Err(damage)) => Fetched::missing(plain(&damage.problem)),
        Some(Ok(ledger)) => Fetched::Known(
            ledger.entry(&object.key, &object.uid).map(|entry| entry_view(&object.key, entry, ledger, scope)),
        ),
    }
}

pub(crate) fn row(
    object: &Observed,
    claim: &Fetched<Option<EntryView>>,
    now: Timestamp,
    style: Style,
) -> Vec<String> {
    let state = if object.deleting { "Deleting".to_owned() } else { plain(&object.phase) };
    let tone = if object.known && !object.over { Tone::Busy } else { Tone::Unknown };
    let (place, entered, mut note) = match claim {
        Fetched::Missing { unavailable } => ("?".to_owned(), dash(), unavailable.clone()),
        Fetched::Known(Some(entry)) => (entry.state.clone(), since(&entry.since, now), entry.remarks()),
        Fetched::Known(None) if object.over => (dash(), dash(), String::new()),
        Fetched::Known(None) => (style.tone(Tone::Warn, "no claim"), dash(), String::new()),
    };
    if !object.known {
        let unknown = "a state that its profile does not know counts as running";
        note = if note.is_empty() { unknown.to_owned() } else { format!("{unknown}; {note}") };
    }
    vec![
        object.key.name.clone(),
        style.tone(tone, &state),
        if object.over { "yes" } else { "no" }.to_owned(),
        object.scope.as_deref().map_or_else(dash, plain),
        since(&object.created, now),
        place,
        entered,
        note,
        object.uid.clone(),
    ]
}

pub(crate) fn text(view: &GuardedDescription, now: Timestamp, style: Style) -> String {
    let end = if view.has_ended { "ended" } else { "not ended" };
    let going = if view.is_deleting { ", its deletion was asked for" } else { "" };
    let mut text = format!(
        "{}   {}, {end}{going}   created {} ago\n",
        style.title(&view.name),
        view.state,
        since(&view.created, now)
    );
    if !view.is_known_state {
        let _ = writeln!(
            text,
            "  Profile {} does not know the state {}: it counts as running.",
            view.profile, view.state
        );
    }
    let scope = view.scope.as_deref().unwrap_or("none: it does not say what it is about");
    let kind = format!("{} in namespace {}, by profile {}", view.object_kind, view.namespace, view.profile);
    text += "\n";
    for (title, fact) in [("Kind", kind.as_str()), ("Scope", scope), ("Claim", &claim_text(view, now))] {
        let _ = writeln!(text, "  {title:<12}{fact}");
    }
    if !view.status.is_empty() {
        let _ = writeln!(text, "\n{}", style.title("STATUS"));
    }
    for (name, word) in &view.status {
        let _ = writeln!(text, "  {name}: {word}");
    }
    let _ = writeln!(text, "\n{}", style.title("NEXT"));
    if let Some(scope) = &view.scope {
        let _ = writeln!(text, "  kubectl backup locks {scope}");
    }
    let _ = writeln!(text, "  kubectl -n {} get {} {} -o yaml", view.namespace, view.resource, view.name);
    text
}

fn claim_text(view: &GuardedDescription, now: Timestamp) -> String {
    match &view.claim {
        Fetched::Missing { unavailable } => format!("unavailable: {unavailable}"),
        Fetched::Known(Some(entry)) => place(entry, now),
        Fetched::Known(None) if view.has_ended => "none, as it has ended".to_owned(),
        Fetched::Known(None) => "none: the lock does not protect it".to_owned(),
    }
}

fn place(entry: &EntryView, now: Timestamp) -> String {
    let remarks = entry.remarks();
    let remarks = if remarks.is_empty() { remarks } else { format!(": {remarks}") };
    format!("{} for {}{remarks}", entry.state, since(&entry.since, now))
}

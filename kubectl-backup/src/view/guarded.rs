//! Objects of other operators, from their own fields and their place in the lock. Pure.

use std::collections::BTreeMap;

use backup_core::profile::Profile;
use backup_lock::{ObjectKind, observe::Observed};
use jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject};
use serde::Serialize;
use serde_json::Value;

use super::{
    description::API_VERSION,
    locks::{EntryView, Found, entry_view},
    part::Part,
};
use crate::print::{
    locks::since,
    style::{Style, Tone},
    table::plain,
};

/// Headers of rows.
pub const HEADERS: [&str; 9] = ["NAME", "STATE", "ENDED", "SCOPE", "AGE", "CLAIM", "SINCE", "NOTE", "UID"];
/// Columns unless wide.
pub const NARROW: usize = 8;
/// Columns that the object alone tells.
pub const WITHOUT_CLAIMS: usize = 5;

/// One object of another operator, as `describe` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardedDescription {
    /// The version of the document.
    pub api_version: &'static str,
    /// Always `GuardedDescription`.
    pub kind: &'static str,
    /// Name of the profile.
    pub profile: String,
    /// Plural and group of its kind.
    pub resource: String,
    /// Its kind.
    pub object_kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its state, in the operator's words; none yet is New.
    pub state: String,
    /// Whether the profile knows this state. One that it does not know counts as running.
    pub is_known_state: bool,
    /// Whether its work is over, as the profile tells.
    pub has_ended: bool,
    /// Whether its deletion was asked for.
    pub is_deleting: bool,
    /// What must not be backed up and restored at once with it; none if it does not say.
    pub scope: Option<String>,
    /// When it was created, RFC 3339.
    pub created: String,
    /// What else its status says in single words and numbers.
    pub status: BTreeMap<String, String>,
    /// Its place in the lock; null: it has none.
    pub claim: Part<Option<EntryView>>,
}

/// Everything about one object.
pub fn describe(
    profile: &Profile,
    kind: ObjectKind,
    resource: &ApiResource,
    object: &DynamicObject,
    found: &Part<Vec<Found>>,
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
pub fn claim(found: &Part<Vec<Found>>, object: &Observed) -> Part<Option<EntryView>> {
    let all = match found {
        Part::Known(all) => all,
        Part::Missing { unavailable } => return Part::missing(unavailable.clone()),
    };
    let Some(scope) = &object.scope else { return Part::Known(None) };
    match all.iter().find(|found| found.scope == *scope).map(|found| &found.ledger) {
        None => Part::Known(None),
        Some(Err(damage)) => Part::missing(plain(&damage.problem)),
        Some(Ok(ledger)) => Part::Known(
            ledger.entry(&object.key, &object.uid).map(|entry| entry_view(&object.key, entry, ledger, scope)),
        ),
    }
}

/// A row of `get`, all columns.
pub fn row(object: &Observed, claim: &Part<Option<EntryView>>, now: Timestamp, style: Style) -> Vec<String> {
    let state = if object.deleting { "Deleting".to_owned() } else { plain(&object.phase) };
    let tone = if object.known && !object.over { Tone::Busy } else { Tone::Unknown };
    let (place, entered, mut note) = match claim {
        Part::Missing { unavailable } => ("?".to_owned(), dash(), unavailable.clone()),
        Part::Known(Some(entry)) => (entry.state.clone(), since(&entry.since, now), entry.remarks()),
        Part::Known(None) if object.over => (dash(), dash(), String::new()),
        Part::Known(None) => (style.tone(Tone::Warn, "no claim"), dash(), String::new()),
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

fn dash() -> String {
    "-".to_owned()
}

//! `get --kind` and `describe --kind`: objects of other operators, for whose kinds there are
//! profiles.

pub(crate) mod kinds;

use std::collections::BTreeMap;

use backup_lock::observe::ObservedObject;
use serde::{Deserialize as _, Serialize};

use self::kinds::ServedKind;
use super::{
    get::{check, list},
    known_profiles::{KnownProfiles, known_profiles},
    locks::fetch::{Ledgers, Within},
    prelude::*,
};
use crate::{
    cli::{DescribeBackupArgs, GetBackupsArgs},
    error::GUARDED,
    print::{Screen, Style, Tone, since},
    view::{
        Columns, KindTable,
        locks::{EntryView, FoundLedger, entry_view},
        table_kind::dash,
    },
};

pub(crate) async fn get(
    kind: &str,
    args: &GetBackupsArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    check(&args.get)?;
    let session = Session::connect(terminal).await?;
    let known = known_profiles(&session).await;
    let served = kinds::find(&session, &known, kind).await?;
    let mut get = args.get.clone();
    let mut place = args.guarded.in_namespace.clone();
    if get.list.all_namespaces && place.is_some() {
        return Err(Problem::usage("-A and --in cannot be given together")
            .with_remedy("Without --in all namespaces are listed."));
    }
    if let [name] = get.names.as_mut_slice() {
        let (namespace, alone) = placed(name, place.as_deref())?;
        let namespace = namespace.to_owned();
        let alone = alone.to_owned();
        place = Some(namespace);
        *name = alone;
    }
    for name in &get.names {
        placed(name, place.as_deref())?;
    }
    get.list.all_namespaces = place.is_none();
    // Claims change without a change of the object: with -w the output would be out of date.
    let mut found = if get.list.watch || !get.output.form.is_table() {
        None
    } else {
        Some(ledgers(&session, &known).await)
    };
    if let Some(FetchResult::Missing { unavailable }) = &mut found {
        // The reason is printed once, not in each row.
        let why = std::mem::replace(unavailable, "not known".to_owned());
        terminal.say(&format!("note: the claims are not known: {why}"));
    }
    let there = Session {
        namespace: place.unwrap_or_else(|| session.namespace.clone()),
        ..session
    };
    list(&there, &table(served, found), &get, terminal).await
}

pub(crate) async fn describe(
    kind: &str,
    args: &DescribeBackupArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    if args.describe.watch || args.describe.details {
        return Err(
            Problem::usage("-w and --details are not for the objects of other operators")
                .with_remedy(format!(
                    "Follow them with: kubectl backup get --kind={kind} -w"
                )),
        );
    }
    let Some(name) = &args.describe.name else {
        return Err(
            Problem::usage("an object of another operator is described by its name")
                .with_remedy(format!("List them: kubectl backup get --kind={kind}")),
        );
    };
    let session = Session::connect(terminal).await?;
    let (namespace, name) = placed(name, args.guarded.in_namespace.as_deref())?;
    let known = known_profiles(&session).await;
    let served = kinds::find(&session, &known, kind).await?;
    let found = ledgers(&session, &known).await;
    let there = Session {
        namespace: namespace.to_owned(),
        ..session
    };
    let table = table(served.clone(), None);
    let api: Api<DynamicObject> =
        Api::namespaced_with(there.client.clone(), &there.namespace, &table.resource);
    let object = there.call(table.about("get", name), api.get(name)).await?;
    let view = description(&served, &object, &found);
    json::show(
        "GuardedDescription",
        &view,
        args.describe.document,
        terminal,
        |now, style| Ok(text(&view, now, style)),
    )?;
    Ok(Exit::Done)
}

/// All ledgers of the installation, or why they cannot be read.
async fn ledgers(session: &Session, known: &KnownProfiles) -> FetchResult<Vec<FoundLedger>> {
    let read = fetched(session, Ledgers::read(session, known, Within::Installation)).await;
    read.map(|ledgers| ledgers.all)
}

/// Namespace and name, from `NAMESPACE/NAME` or from a name and a given namespace.
fn placed<'a>(name: &'a str, namespace: Option<&'a str>) -> Result<(&'a str, &'a str), Problem> {
    match (name.split_once('/'), namespace) {
        (Some((namespace, name)), None) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace, name))
        }
        (None, Some(namespace)) => Ok((namespace, name)),
        _ => Err(Problem::usage(format!(
            "{name:?} does not say which object of which namespace"
        ))
        .with_remedy("Name it as NAMESPACE/NAME, or as NAME with --in=NAMESPACE.")),
    }
}

/// The table for a kind; with a column for claims if the ledgers are given.
fn table(
    ServedKind {
        profile,
        kind,
        resource,
        ..
    }: ServedKind,
    found: Option<FetchResult<Vec<FoundLedger>>>,
) -> KindTable {
    let columns = if found.is_some() {
        HEADERS.len()
    } else {
        COLUMNS_WITHOUT_CLAIMS
    };
    let found = found.unwrap_or_else(|| FetchResult::Known(Vec::new()));
    KindTable {
        resource,
        word: GUARDED,
        is_ours: false,
        columns: Columns {
            headers: &HEADERS[..columns],
            narrow: columns.min(NARROW_COLUMNS),
            status: 1,
        },
        row: Box::new(move |object, now, style| {
            let observed = ObservedObject::of(&profile, kind, &DynamicObject::deserialize(object)?);
            let mut row = row(&observed, &claim(&found, &observed), now, style);
            row.truncate(columns);
            Ok(row)
        }),
        document: None,
    }
}

const HEADERS: [&str; 9] = [
    "NAME", "STATE", "ENDED", "SCOPE", "AGE", "CLAIM", "SINCE", "NOTE", "UID",
];
const NARROW_COLUMNS: usize = 8;
/// Number of columns that need only the object.
const COLUMNS_WITHOUT_CLAIMS: usize = 5;

/// An object of another operator, as `describe` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct GuardedDescription {
    profile: String,
    resource: String,
    object_kind: String,
    namespace: String,
    name: String,
    uid: String,
    /// State in the operator's words; `New` if there is none yet.
    state: String,
    /// Whether the profile knows this state. An unknown state counts as running.
    is_known_state: bool,
    /// Whether the work has ended, by the profile's rules.
    has_ended: bool,
    is_deleting: bool,
    /// The object's scope; null if the object does not name one.
    scope: Option<String>,
    /// When it was created, RFC 3339.
    created: String,
    /// Other fields of the status that are single words or numbers.
    status: BTreeMap<String, String>,
    /// The object's claim; null if there is none.
    claim: FetchResult<Option<EntryView>>,
}

fn description(
    ServedKind {
        profile,
        kind,
        resource,
        ..
    }: &ServedKind,
    object: &DynamicObject,
    found: &FetchResult<Vec<FoundLedger>>,
) -> GuardedDescription {
    let observed = ObservedObject::of(profile, *kind, object);
    GuardedDescription {
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
    let fields = status.and_then(Value::as_object).into_iter().flatten();
    fields
        .filter_map(|(name, value)| Some((plain(name), word(value)?)))
        .collect()
}

/// The text of a single word or number; `None` for any other value.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => (!text.is_empty()).then(|| plain(text)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        _ => None,
    }
}

/// The claim of an object in the ledger of its scope.
fn claim(
    found: &FetchResult<Vec<FoundLedger>>,
    object: &ObservedObject,
) -> FetchResult<Option<EntryView>> {
    let all = match found {
        FetchResult::Known(all) => all,
        FetchResult::Missing { unavailable } => return FetchResult::missing(unavailable.clone()),
    };
    let Some(scope) = &object.scope else {
        return FetchResult::Known(None);
    };
    match all
        .iter()
        .find(|found| found.scope == *scope)
        .map(|found| &found.ledger)
    {
        None => FetchResult::Known(None),
        Some(Err(damage)) => FetchResult::missing(plain(&damage.problem)),
        Some(Ok(ledger)) => FetchResult::Known(
            ledger
                .entry(&object.key, &object.uid)
                .map(|entry| entry_view(&object.key, entry, ledger, scope)),
        ),
    }
}

fn row(
    object: &ObservedObject,
    claim: &FetchResult<Option<EntryView>>,
    now: Timestamp,
    style: Style,
) -> Vec<String> {
    let state = if object.deleting {
        "Deleting".to_owned()
    } else {
        plain(&object.phase)
    };
    let tone = if object.known && !object.over {
        Tone::Busy
    } else {
        Tone::Unknown
    };
    let (place, entered, mut note) = match claim {
        FetchResult::Missing { unavailable } => ("?".to_owned(), dash(), unavailable.clone()),
        FetchResult::Known(Some(entry)) => (
            entry.state.clone(),
            since(&entry.since, now),
            entry.remarks(),
        ),
        FetchResult::Known(None) => {
            let place = if object.over {
                dash()
            } else {
                style.tone(Tone::Warn, "no claim")
            };
            (place, dash(), String::new())
        }
    };
    if !object.known {
        let unknown = "a state that its profile does not know counts as running";
        note = if note.is_empty() {
            unknown.to_owned()
        } else {
            format!("{unknown}; {note}")
        };
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

fn text(view: &GuardedDescription, now: Timestamp, style: Style) -> String {
    let end = if view.has_ended { "ended" } else { "not ended" };
    let going = if view.is_deleting {
        ", its deletion was asked for"
    } else {
        ""
    };
    let GuardedDescription {
        profile,
        resource,
        object_kind,
        namespace,
        name,
        state,
        scope,
        ..
    } = view;
    let mut screen = Screen {
        text: String::new(),
        style,
    };
    let title = style.title(name);
    let age = since(&view.created, now);
    screen.line(&format!(
        "{title}   {state}, {end}{going}   created {age} ago"
    ));
    if !view.is_known_state {
        screen.line(&format!(
            "  Profile {profile} does not know the state {state}: it counts as running."
        ));
    }
    screen.line("");
    let place = scope
        .as_deref()
        .unwrap_or("none: it does not say what it is about");
    screen.facts(
        12,
        [
            (
                "Kind",
                format!("{object_kind} in namespace {namespace}, by profile {profile}"),
            ),
            ("Scope", place.to_owned()),
            ("Claim", claim_text(view, now)),
        ],
    );
    if !view.status.is_empty() {
        screen.section("STATUS");
    }
    screen.lines(
        view.status
            .iter()
            .map(|(name, word)| format!("{name}: {word}")),
    );
    screen.section("NEXT");
    screen.lines(
        scope
            .iter()
            .map(|scope| format!("kubectl backup locks {scope}")),
    );
    screen.lines([format!(
        "kubectl -n {namespace} get {resource} {name} -o yaml"
    )]);
    screen.text
}

fn claim_text(view: &GuardedDescription, now: Timestamp) -> String {
    let text = view.claim.shown(|claim| {
        Some(if let Some(entry) = claim {
            place(entry, now)
        } else if view.has_ended {
            "none, as it has ended".to_owned()
        } else {
            "none: the lock does not protect it".to_owned()
        })
    });
    text.unwrap_or_default()
}

fn place(entry: &EntryView, now: Timestamp) -> String {
    let remarks = entry.remarks();
    let remarks = if remarks.is_empty() {
        remarks
    } else {
        format!(": {remarks}")
    };
    format!("{} for {}{remarks}", entry.state, since(&entry.since, now))
}

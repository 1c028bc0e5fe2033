//! `get --kind` and `describe --kind`: objects of other operators, whose kinds profiles name.

pub(crate) mod kinds;

use backup_lock::observe::Observed;
use serde::Deserialize as _;

use self::kinds::Served;
use super::{
    get::{check, list},
    known_profiles::{KnownProfiles, known_profiles},
    locks::fetch::{Ledgers, Within},
    prelude::*,
};
use crate::{
    cli::{DescribeBackupArgs, GetBackupsArgs},
    error::GUARDED,
    view::{Columns, KindTable, guarded as view, locks::FoundLedger},
};

pub(crate) async fn get(kind: &str, args: &GetBackupsArgs, terminal: &mut Terminal) -> CommandResult {
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
        let object = placed(name, place.as_deref())?;
        (place, *name) = (Some(object.namespace), object.name);
    }
    for name in &get.names {
        placed(name, place.as_deref())?;
    }
    get.list.all_namespaces = place.is_none();
    // Claims change without a change of the object: with -w they would be out of date.
    let mut found = if get.list.watch || !get.output.form.is_table() {
        None
    } else {
        Some(ledgers(&session, &known).await)
    };
    if let Some(Fetched::Missing { unavailable }) = &mut found {
        // Once, and not in each row.
        let why = std::mem::replace(unavailable, "not known".to_owned());
        terminal.say(&format!("note: the claims are not known: {why}"));
    }
    let there = Session { namespace: place.unwrap_or_else(|| session.namespace.clone()), ..session };
    list(&there, &table(served, found), &get, terminal).await
}

pub(crate) async fn describe(
    kind: &str,
    args: &DescribeBackupArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    if args.describe.watch || args.describe.details {
        return Err(Problem::usage("-w and --details are not for the objects of other operators")
            .with_remedy(format!("Follow them with: kubectl backup get --kind={kind} -w")));
    }
    let session = Session::connect(terminal).await?;
    let NamedObject { namespace, name } = placed(&args.describe.name, args.guarded.in_namespace.as_deref())?;
    let known = known_profiles(&session).await;
    let served = kinds::find(&session, &known, kind).await?;
    let found = ledgers(&session, &known).await;
    let there = Session { namespace, ..session };
    let table = table(served.clone(), None);
    let api: Api<DynamicObject> =
        Api::namespaced_with(there.client.clone(), &there.namespace, &table.resource);
    let object = there.call(table.about("get", &name), api.get(&name)).await?;
    let view = view::describe(&served.profile, served.kind, &table.resource, &object, &found);
    let screen = || Ok(view::text(&view, terminal.now(), terminal.out_style()));
    terminal.data(&json::document_or(&view, args.describe.document.output, screen)?)?;
    Ok(Exit::Done)
}

/// Every ledger of the installation, or why they are not known.
async fn ledgers(session: &Session, known: &KnownProfiles) -> Fetched<Vec<FoundLedger>> {
    let read = fetched(Ledgers::read(session, known, Within::Installation)).await;
    read.map(|ledgers| ledgers.found())
}

/// An object as a person names it.
struct NamedObject {
    namespace: String,
    name: String,
}

/// Reads `NAMESPACE/NAME`, or a name in a namespace that was given.
fn placed(name: &str, namespace: Option<&str>) -> Result<NamedObject, Problem> {
    let of = |namespace: &str, name: &str| NamedObject { namespace: namespace.into(), name: name.into() };
    match (name.split_once('/'), namespace) {
        (Some((namespace, name)), None) if !namespace.is_empty() && !name.is_empty() => {
            Ok(of(namespace, name))
        }
        (None, Some(namespace)) => Ok(of(namespace, name)),
        _ => Err(Problem::usage(format!("{name:?} does not say which object of which namespace"))
            .with_remedy("Name it as NAMESPACE/NAME, or as NAME with --in=NAMESPACE.")),
    }
}

/// How they are listed; with the ledgers, beside their claims.
fn table(
    Served { profile, kind, resource, .. }: Served,
    found: Option<Fetched<Vec<FoundLedger>>>,
) -> KindTable {
    let columns = if found.is_some() { view::HEADERS.len() } else { view::WITHOUT_CLAIMS };
    let found = found.unwrap_or_else(|| Fetched::Known(Vec::new()));
    KindTable {
        resource,
        word: GUARDED,
        is_ours: false,
        columns: Columns { headers: &view::HEADERS[..columns], narrow: columns.min(view::NARROW), status: 1 },
        row: Box::new(move |object, now, style| {
            let observed = Observed::of(&profile, kind, &DynamicObject::deserialize(object)?);
            let mut row = view::row(&observed, &view::claim(&found, &observed), now, style);
            row.truncate(columns);
            Ok(row)
        }),
        document: None,
    }
}

//! `get --kind` and `describe --kind`: objects of other operators, whose kinds profiles tell.

pub mod kinds;

use backup_lock::observe::Observed;
use kube::{Api, api::DynamicObject};
use serde::Deserialize as _;

use self::kinds::Served;
use super::{
    get::{check, list},
    known::{Known, known},
    listed::Listing,
    locks::fetch::{Ledgers, Within},
    part::part,
};
use crate::{
    Terminal,
    cli::{DescribeBackupArgs, GetBackupsArgs, GlobalArgs, Output},
    client::Session,
    error::{Exit, GUARDED, Problem},
    print::{guarded as print, json},
    view::{guarded as view, locks::Found, part::Part},
};

/// `get --kind`
pub async fn get(
    global: &GlobalArgs,
    kind: &str,
    args: &GetBackupsArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    check(&args.get)?;
    let session = Session::connect(global, terminal).await?;
    let known = known(&session).await;
    let served = kinds::find(&session, &known, kind).await?;
    let mut get = args.get.clone();
    let mut place = args.guarded.in_namespace.clone();
    if get.list.all_namespaces && place.is_some() {
        return Err(Problem::Usage {
            message: "-A and --in cannot be given together".to_owned(),
            remedy: Some("Without --in all namespaces are listed.".to_owned()),
        });
    }
    if let [name] = get.names.as_mut_slice() {
        let (namespace, only) = placed(name, place.as_deref())?;
        (place, *name) = (Some(namespace), only);
    }
    for name in &get.names {
        placed(name, place.as_deref())?;
    }
    get.list.all_namespaces = place.is_none();
    // Claims change without a change of the object: who follows objects is not shown old ones.
    let mut found = if get.list.watch || !get.output.form.is_table() {
        None
    } else {
        Some(ledgers(&session, &known).await)
    };
    if let Some(Part::Missing { unavailable }) = &mut found {
        // Once, and not in each row.
        let why = std::mem::replace(unavailable, "not known".to_owned());
        terminal.say(&format!("note: the claims are not known: {why}"));
    }
    let there = Session { namespace: place.unwrap_or_else(|| session.namespace.clone()), ..session };
    list(&there, &listing(served, found), &get, terminal).await
}

/// `describe --kind`
pub async fn describe(
    global: &GlobalArgs,
    kind: &str,
    args: &DescribeBackupArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    if args.describe.watch || args.describe.details {
        return Err(Problem::Usage {
            message: "-w and --details are not for the objects of other operators".to_owned(),
            remedy: Some(format!("Follow them with: kubectl backup get --kind={kind} -w")),
        });
    }
    let session = Session::connect(global, terminal).await?;
    let (namespace, name) = placed(&args.describe.name, args.guarded.in_namespace.as_deref())?;
    let known = known(&session).await;
    let served = kinds::find(&session, &known, kind).await?;
    let found = ledgers(&session, &known).await;
    let there = Session { namespace, ..session };
    let listing = listing(served.clone(), None);
    let api: Api<DynamicObject> =
        Api::namespaced_with(there.client.clone(), &there.namespace, &listing.resource);
    let object = there.call(listing.about("get", &name), api.get(&name)).await?;
    let view = view::describe(&served.profile, served.kind, &listing.resource, &object, &found);
    let text = match args.describe.output {
        Some(form) => json::object(&view, Output::from(form))?,
        None => print::text(&view, terminal.now(), terminal.out_style()),
    };
    terminal.data(&text)?;
    Ok(Exit::Done)
}

/// Every ledger of the installation, or why they are not known.
async fn ledgers(session: &Session, known: &Known) -> Part<Vec<Found>> {
    let read = part(Ledgers::read(session, known, Within::Installation)).await;
    read.map(|ledgers| ledgers.found())
}

/// Namespace and name of `NAMESPACE/NAME`, or of a name in a namespace that was said.
fn placed(name: &str, namespace: Option<&str>) -> Result<(String, String), Problem> {
    match (name.split_once('/'), namespace) {
        (Some((namespace, name)), None) if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        (None, Some(namespace)) => Ok((namespace.to_owned(), name.to_owned())),
        _ => Err(Problem::Usage {
            message: format!("{name:?} does not say which object of which namespace"),
            remedy: Some("Name it as NAMESPACE/NAME, or as NAME with --in=NAMESPACE.".to_owned()),
        }),
    }
}

/// How they are listed; with the ledgers, beside their claims.
fn listing(Served { profile, kind, resource, .. }: Served, found: Option<Part<Vec<Found>>>) -> Listing {
    let columns = if found.is_some() { view::HEADERS.len() } else { view::WITHOUT_CLAIMS };
    let found = found.unwrap_or_else(|| Part::Known(Vec::new()));
    Listing {
        resource,
        word: GUARDED,
        is_ours: false,
        headers: &view::HEADERS[..columns],
        narrow: columns.min(view::NARROW),
        status_column: 1,
        row: Box::new(move |object, now, style| {
            let observed = Observed::of(&profile, kind, &DynamicObject::deserialize(object)?);
            let mut row = view::row(&observed, &view::claim(&found, &observed), now, style);
            row.truncate(columns);
            Ok(row)
        }),
        document: None,
    }
}

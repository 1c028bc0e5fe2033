//! `locks`: reads every ledger, and what is stored without a claim.

pub mod fetch;
pub mod hold;
pub mod problem;
pub mod release;
mod tell;
mod watch;
pub mod who;

use std::collections::BTreeSet;

use backup_lock::{VELERO_SCOPE, observe::Observed};

use self::fetch::{Ledgers, Within};
use super::known::{Known, known};
use crate::{
    Terminal,
    cli::{GlobalArgs, ListArgs, Output, output::Form},
    client::Session,
    error::{Exit, Problem},
    jsonpath,
    print::{form, locks as print, table::plain},
    view::locks::{self as view, LockList, Seen},
};

/// Every ledger, what runs without a claim, and what could not be looked for.
pub async fn unclaimed(
    session: &Session,
    known: &Known,
    within: Within,
) -> Result<(Ledgers, Vec<Observed>, Vec<String>), Problem> {
    let mut ledgers = Ledgers::read(session, known, within).await?;
    let profiles: BTreeSet<String> = ledgers.all.iter().map(|ledger| ledger.profile.name.clone()).collect();
    let (mut unclaimed, unchecked) = fetch::running(session, known, &profiles, &ledgers).await;
    unclaimed.retain(|object| !ledgers.claims(object));
    if !unclaimed.is_empty() {
        // It may have been claimed since the ledgers were read.
        ledgers = Ledgers::read(session, known, within).await?;
        unclaimed.retain(|object| !ledgers.claims(object));
    }
    Ok((ledgers, unclaimed, unchecked))
}

/// `locks`
pub async fn list(global: &GlobalArgs, args: ListArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    if args.list.watch {
        return watch::run(&session, &args, terminal).await;
    }
    let mut list = read(&session, &args).await?;
    if let Some(path) = &args.list.sort_by {
        list.scopes.iter_mut().for_each(|scope| jsonpath::sort(&mut scope.entries, path));
    }
    show(&list, &args, terminal)?;
    Ok(Exit::Done)
}

/// Where to look.
const fn within(args: &ListArgs) -> Within {
    if args.list.all_namespaces { Within::Cluster } else { Within::Installation }
}

/// Every ledger that is asked for, and what runs without a claim.
async fn read(session: &Session, args: &ListArgs) -> Result<LockList, Problem> {
    let known = known(session).await;
    let (ledgers, unclaimed, unchecked) = unclaimed(session, &known, within(args)).await?;
    let mut seen = Vec::new();
    for object in unclaimed {
        let (profile, _) = known.profile(view::profile_of(object.scope.as_deref().unwrap_or(VELERO_SCOPE)));
        let store = fetch::store(session, profile);
        let footprint = store.objects().footprint(&object.key, &object.spec).await;
        let footprint = footprint.unwrap_or_else(|_| backup_lock::Footprint::everything());
        seen.push(Seen { object, footprint });
    }
    Ok(view::locks(&session.namespace, &ledgers.found(), &seen, unchecked, args.scope.as_deref()))
}

fn show(list: &LockList, args: &ListArgs, terminal: &mut Terminal) -> Result<(), Problem> {
    let output = &args.output;
    if let Some(document) = form::document(list, "scopes", &output.form, output.no_headers)? {
        return Ok(terminal.data(&document)?);
    }
    if output.form == Form::Plain(Output::Name) {
        terminal.data(&print::names(list))?;
    } else {
        let how = print::How {
            wide: output.form == Form::Plain(Output::Wide),
            headers: !output.no_headers,
            namespaces: args.list.all_namespaces,
        };
        terminal.data(&print::text(list, how, terminal.now(), terminal.out_style())?)?;
    }
    if list.scopes.is_empty() {
        let place = match within(args) {
            Within::Installation => format!("in namespace {}", list.namespace),
            Within::Cluster => "in any namespace".to_owned(),
        };
        terminal.say(&match &args.scope {
            Some(scope) => {
                format!("Nothing holds or waits in scope {}: it has no ledger {place}.", plain(scope))
            }
            None => format!("Nothing holds or waits: there is no ledger {place}."),
        });
    }
    for sentence in &list.unchecked {
        terminal.say(&format!("note: {sentence}"));
    }
    Ok(())
}

//! `locks`: reads every ledger of the installation, and what is stored without a claim.

pub mod fetch;
pub mod hold;
pub mod problem;
pub mod release;
mod tell;
pub mod who;

use std::collections::BTreeSet;

use backup_lock::{VELERO_SCOPE, observe::Observed};

use self::fetch::{Ledgers, profile};
use crate::{
    Terminal,
    cli::{GlobalArgs, ListArgs, Output, output::Form},
    client::Session,
    error::{Exit, Problem},
    print::{form, locks as print, table::plain},
    view::locks::{self as view, Seen},
};

/// Every ledger, what runs without a claim, and what could not be looked for.
pub async fn unclaimed(session: &Session) -> Result<(Ledgers, Vec<Observed>, Vec<String>), Problem> {
    let mut ledgers = Ledgers::read(session).await?;
    let profiles: BTreeSet<String> = ledgers.all.iter().map(|ledger| ledger.profile.name.clone()).collect();
    let (mut unclaimed, unchecked) = fetch::running(session, &profiles, &ledgers).await;
    unclaimed.retain(|object| !ledgers.claims(object));
    if !unclaimed.is_empty() {
        // It may have been claimed since the ledgers were read.
        ledgers = Ledgers::read(session).await?;
        unclaimed.retain(|object| !ledgers.claims(object));
    }
    Ok((ledgers, unclaimed, unchecked))
}

/// `locks`
pub async fn list(global: &GlobalArgs, args: ListArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let (ledgers, unclaimed, unchecked) = unclaimed(&session).await?;
    let mut seen = Vec::new();
    for object in unclaimed {
        let store = fetch::store(
            &session,
            profile(view::profile_of(object.scope.as_deref().unwrap_or(VELERO_SCOPE))).0,
        );
        let footprint = store.objects().footprint(&object.key, &object.spec).await;
        let footprint = footprint.unwrap_or_else(|_| backup_lock::Footprint::everything());
        seen.push(Seen { object, footprint });
    }
    let found: Vec<view::Found> = ledgers.all.iter().map(fetch::LedgerRead::found).collect();
    let list = view::locks(&session.namespace, &found, &seen, unchecked, args.scope.as_deref());
    let output = &args.output;
    if let Some(document) = form::document(&list, "scopes", &output.form, output.no_headers)? {
        terminal.data(&document)?;
        return Ok(Exit::Done);
    }
    if output.form == Form::Plain(Output::Name) {
        terminal.data(&print::names(&list))?;
    } else {
        let how = print::How { wide: output.form == Form::Plain(Output::Wide), headers: !output.no_headers };
        terminal.data(&print::text(&list, how, terminal.now(), terminal.out_style())?)?;
    }
    if list.scopes.is_empty() {
        terminal.say(&match &args.scope {
            Some(scope) => format!(
                "Nothing holds or waits in scope {}: it has no ledger in namespace {}.",
                plain(scope),
                session.namespace
            ),
            None => format!("Nothing holds or waits: there is no ledger in namespace {}.", session.namespace),
        });
    }
    for sentence in &list.unchecked {
        terminal.say(&format!("note: {sentence}"));
    }
    Ok(Exit::Done)
}

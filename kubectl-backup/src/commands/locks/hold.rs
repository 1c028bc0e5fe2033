//! `locks hold`: a person keeps others out of a scope, with their own credentials.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use backup_core::profile::ScopeRule;
use backup_lock::{
    Footprint, Ledger, LedgerStore, ObjectKey, ObjectKind, State, claim::Entry, ledger::Grant,
};
use tokio::time::Instant;

use super::{
    fetch,
    problem::{self, Wish},
    who,
};
use crate::{
    Terminal,
    cli::{GlobalArgs, HoldArgs},
    client::Session,
    commands::{
        known::known,
        wait::{Look, Waited, poll},
    },
    error::{Exit, Problem},
    print::{locks::since, table::plain},
    view::locks::{few, named, profile_of, touches},
};

/// For the write, tries included.
const BUDGET: Duration = Duration::from_secs(20);

/// `locks hold`
pub async fn run(global: &GlobalArgs, args: HoldArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let HoldArgs { name, scope, .. } = &args;
    let (store, footprint) = place(&session, scope, &args.namespaces).await?;
    let user = who::am_i(&session).await?;
    let key = ObjectKey::new(ObjectKind::Hold, &session.namespace, name);
    let (uid, by) = (random_uid(), format!("{user}: {}", args.reason));
    let now = terminal.now();
    let change = |ledger: &mut Ledger| {
        // Another uid of the name is another hold; our own is a try before this one whose answer was lost.
        let other = ledger.claim(&key).and_then(|claim| claim.entries.iter().find(|entry| entry.uid != uid));
        if let Some(other) = other {
            return Err(exists(name, scope, other, now));
        }
        let grant = ledger.hold(&key, &uid, &footprint, &now.to_string(), &by);
        grant.map_err(|refusal| Problem::Other {
            message: format!("cannot hold scope {}: {refusal}", plain(scope)),
            remedy: Some("`kubectl backup locks` shows what is in the ledger.".to_owned()),
        })
    };
    let written = store.update(scope, Instant::now() + BUDGET, change).await;
    let (grant, _) = written.map_err(|error| problem::of_update(error, &session))?;
    let (touched, shown_scope) = (touches(&footprint, scope), plain(scope));
    let end = format!("kubectl backup locks release hold/{name} --scope={shown_scope} --reason=done");
    let (Grant::Waiting(conflict) | Grant::Forced(conflict)) = grant else {
        terminal.data(&format!("hold/{name} holds\n"))?;
        terminal.say(&format!("Scope {shown_scope}: {touched}. End it with: {end}"));
        return Ok(Exit::Done);
    };
    let holders: Vec<String> = conflict.holders.iter().map(|claim| named(&claim.key)).collect();
    terminal.say(&format!(
        "hold/{name} waits for {}. New backups and restores of {touched} in scope {shown_scope} are kept out from now on.",
        few(&holders)
    ));
    let Some(timeout) = args.wait else {
        terminal.data(&format!("hold/{name} waits\n"))?;
        terminal.say("See when it holds with: kubectl backup locks");
        terminal.say(&format!("End it with: {end}"));
        return Ok(Exit::Done);
    };
    let mut told = holders;
    let waited = poll(&session, terminal, timeout.as_std(), async |terminal: &mut Terminal| {
        let (state, holders) = look(&session, &store, scope, &key, &uid).await?;
        if state >= State::Reserved {
            return Ok(Look::Over(()));
        }
        if holders == told {
            return Ok(Look::Same);
        }
        terminal.say(&format!("hold/{name} waits for {}", few(&holders)));
        told = holders;
        Ok(Look::Changed)
    })
    .await?;
    match waited {
        Waited::Over(()) => {
            terminal.data(&format!("hold/{name} holds\n"))?;
            terminal.say(&format!("Scope {shown_scope}: {touched}. End it with: {end}"));
            Ok(Exit::Done)
        }
        Waited::TimedOut => {
            terminal.say(&format!(
                "error: hold/{name} does not hold after {timeout}; it keeps waiting, and keeps newcomers out"
            ));
            terminal.say(&format!("  Give it up with: {end}"));
            Ok(Exit::TimedOut)
        }
        Waited::Interrupted => {
            terminal.say(&format!("interrupted: hold/{name} keeps waiting, and keeps newcomers out"));
            terminal.say(&format!("  Give it up with: {end}"));
            Ok(Exit::Interrupted)
        }
    }
}

/// The ledgers that the scope is among, and what is meant of it.
pub async fn place(
    session: &Session,
    scope: &str,
    namespaces: &[String],
) -> Result<(LedgerStore, Footprint), Problem> {
    let name = profile_of(scope);
    let known = known(session).await;
    let (profile, is_known) = known.profile(name);
    let cluster = matches!(profile.scope, ScopeRule::Cluster) && is_known;
    if cluster != (scope == backup_lock::VELERO_SCOPE) || !cluster && scope.split('/').count() != 3 {
        return Err(Problem::Usage {
            message: format!("{scope:?} is no scope: expected velero.io or PROFILE/NAMESPACE/CLUSTER"),
            remedy: Some("`kubectl backup locks` lists those that are in use.".to_owned()),
        });
    }
    if !cluster && !namespaces.is_empty() {
        return Err(Problem::Usage {
            message: "--namespaces is for scope velero.io: any other is one database cluster, and is held as a whole".to_owned(),
            remedy: None,
        });
    }
    let store = fetch::store(session, profile);
    if !is_known {
        // A first ledger would have to be filled with what runs, and this program can't tell what that is.
        let stored = store.read(scope).await;
        if stored.map_err(|error| problem::of_ledger(error, session, Wish::Operate))?.is_none() {
            return Err(Problem::Other {
                message: format!("scope {scope:?} has no ledger, and {}", known.misses(name)),
                remedy: Some(
                    "It gets one with the first backup or restore of that database cluster.".to_owned(),
                ),
            });
        }
    }
    let footprint = match namespaces {
        [] => Footprint::everything(),
        names => Footprint::namespaces(names),
    };
    Ok((store, footprint))
}

/// How the hold stands, and for whom it waits.
async fn look(
    session: &Session,
    store: &LedgerStore,
    scope: &str,
    key: &ObjectKey,
    uid: &str,
) -> Result<(State, Vec<String>), Problem> {
    let stored = store.read(scope).await.map_err(|error| problem::of_ledger(error, session, Wish::View))?;
    let ledger = stored.map(|stored| stored.ledger);
    let entry = ledger.as_ref().and_then(|ledger| Some((ledger, ledger.entry(key, uid)?)));
    let Some((ledger, entry)) = entry else {
        return Err(Problem::Other {
            message: format!("hold {:?} was taken away while it waited", key.name),
            remedy: Some("`kubectl backup locks` shows how things stand.".to_owned()),
        });
    };
    let holders = ledger.behind(key, uid).holders;
    Ok((entry.state, holders.iter().map(|claim| named(&claim.key)).collect()))
}

fn exists(name: &str, scope: &str, other: &Entry, now: jiff::Timestamp) -> Problem {
    let state = if other.state == State::Waiting { "waits" } else { "holds" };
    Problem::Other {
        message: format!(
            "hold {name:?} exists already in scope {}: it {state} for {}, touches {} ({})",
            plain(scope),
            since(&other.since, now),
            touches(&other.footprint, scope),
            plain(&other.note)
        ),
        remedy: Some(format!(
            "Choose another name, or end it first: kubectl backup locks release hold/{name} --reason=TEXT"
        )),
    }
}

/// A uid that no other hold has.
fn random_uid() -> String {
    // The hasher's keys are random in every process and differ at every call.
    let (a, b) = (RandomState::new().hash_one(1), RandomState::new().hash_one(2));
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0xfff,
        b & 0xffff_ffff_ffff
    )
}

//! `locks hold`: a user keeps backups and restores out of a scope, with their own credentials.

use backup_core::profile::ScopeRule;
use backup_lock::{
    Footprint, Ledger, LedgerStore, ObjectKey, ObjectKind, State, claim::Entry, ledger::Grant,
};
use tokio::time::Instant;

use super::{
    BUDGET, fetch,
    problem::{self, LockRole},
    user_name,
};
use crate::{
    cli::HoldArgs,
    commands::{
        known_profiles::known_profiles,
        poll::{Look, poll},
        prelude::*,
    },
    print::since,
    view::locks::{few, named, profile_of, touches},
};

pub(crate) async fn run(args: HoldArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let HoldArgs { name, scope, .. } = &args;
    let (store, footprint) = scope_part(&session, scope, &args.namespaces).await?;
    let user = user_name(&session).await?;
    let key = ObjectKey::new(ObjectKind::Hold, &session.namespace, name);
    let uid = random_uid();
    let by = format!("{user}: {}", args.reason);
    let now = terminal.now();
    let deadline = Instant::now() + BUDGET;
    let written = store
        .update(scope, deadline, |ledger: &mut Ledger| {
            if let Some(other) = other_hold(ledger, &key, &uid) {
                return Err(exists(name, scope, other, now));
            }
            let grant = ledger.hold(&key, &uid, &footprint, &now.to_string(), &by);
            grant.map_err(|refusal| {
                Problem::other(format!("cannot hold scope {}: {refusal}", plain(scope)))
                    .with_remedy("`kubectl backup locks` shows what is in the ledger.")
            })
        })
        .await;
    let (grant, _) = written.map_err(|error| problem::of_update(error, &session))?;
    let touched = touches(&footprint, scope);
    let shown_scope = plain(scope);
    let end =
        format!("kubectl backup locks release hold/{name} --scope={shown_scope} --reason=done");
    let details = format!("Scope {shown_scope}: {touched}. End it with: {end}");
    let (Grant::Waiting(conflict) | Grant::Forced(conflict)) = grant else {
        return report_hold(name, &details, terminal);
    };
    let holders: Vec<String> = conflict
        .holders
        .iter()
        .map(|claim| named(&claim.key))
        .collect();
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
    let mut shown = holders;
    let waited = poll(
        &session,
        terminal,
        timeout.as_std(),
        async |terminal: &mut Terminal| {
            let (state, holders) = look(&session, &store, scope, &key, &uid).await?;
            if state >= State::Reserved {
                return Ok(Look::Found(()));
            }
            if holders == shown {
                return Ok(Look::Same);
            }
            terminal.say(&format!("hold/{name} waits for {}", few(&holders)));
            shown = holders;
            Ok(Look::Changed)
        },
    )
    .await?;
    let Err(exit) = waited else {
        return report_hold(name, &details, terminal);
    };
    let what = match exit {
        Exit::TimedOut => format!("error: hold/{name} does not hold after {timeout}; it"),
        _ => format!("interrupted: hold/{name}"),
    };
    terminal.say(&format!(
        "{what} keeps waiting, and keeps newcomers out\n  Give it up with: {end}"
    ));
    Ok(exit)
}

/// Another hold with this key. An entry with our uid was written by an earlier try whose answer was
/// lost.
fn other_hold<'a>(ledger: &'a Ledger, key: &ObjectKey, uid: &str) -> Option<&'a Entry> {
    let claim = ledger.claim(key)?;
    claim.entries.iter().find(|entry| entry.uid != uid)
}

fn report_hold(name: &str, details: &str, terminal: &mut Terminal) -> CommandResult {
    terminal.data(&format!("hold/{name} holds\n"))?;
    terminal.say(details);
    Ok(Exit::Done)
}

/// The store of a scope's ledger, and the footprint that the user means.
pub(crate) async fn scope_part(
    session: &Session,
    scope: &str,
    namespaces: &[String],
) -> Result<(LedgerStore, Footprint), Problem> {
    let name = profile_of(scope);
    let known = known_profiles(session).await;
    let profile = known.get_or_stand_in(name);
    let is_known = known.get(name).is_some();
    let cluster = matches!(profile.scope, ScopeRule::Cluster) && is_known;
    if cluster != (scope == backup_lock::VELERO_SCOPE) || !cluster && scope.split('/').count() != 3
    {
        let message =
            format!("{scope:?} is no scope: expected velero.io or PROFILE/NAMESPACE/CLUSTER");
        return Err(Problem::usage(message)
            .with_remedy("`kubectl backup locks` lists those that are in use."));
    }
    if !cluster && !namespaces.is_empty() {
        return Err(Problem::usage(
            "--namespaces is for scope velero.io: any other is one database cluster, and is held as a whole",
        ));
    }
    let store = fetch::store(session, profile);
    if !is_known {
        // A new ledger would need claims for the running objects, and this program cannot find them
        // without the profile.
        let stored = store.read(scope).await;
        if stored
            .map_err(|error| problem::of_ledger(error, session, LockRole::Operate))?
            .is_none()
        {
            return Err(Problem::other(format!(
                "scope {scope:?} has no ledger, and {}",
                known.misses(name)
            ))
            .with_remedy(
                "It gets one with the first backup or restore of that database cluster.",
            ));
        }
    }
    let footprint = match namespaces {
        [] => Footprint::everything(),
        names => Footprint::namespaces(names),
    };
    Ok((store, footprint))
}

/// The state of the hold, and the claims for which it waits.
async fn look(
    session: &Session,
    store: &LedgerStore,
    scope: &str,
    key: &ObjectKey,
    uid: &str,
) -> Result<(State, Vec<String>), Problem> {
    let stored = store
        .read(scope)
        .await
        .map_err(|error| problem::of_ledger(error, session, LockRole::View))?;
    let ledger = stored.map(|stored| stored.ledger);
    let entry = ledger
        .as_ref()
        .and_then(|ledger| Some((ledger, ledger.entry(key, uid)?)));
    let Some((ledger, entry)) = entry else {
        return Err(Problem::other(format!(
            "hold {:?} was taken away while it waited",
            key.name
        ))
        .with_remedy("`kubectl backup locks` shows how things stand."));
    };
    let holders = ledger.behind(key, uid).holders;
    Ok((
        entry.state,
        holders.iter().map(|claim| named(&claim.key)).collect(),
    ))
}

fn exists(name: &str, scope: &str, other: &Entry, now: jiff::Timestamp) -> Problem {
    let state = if other.state == State::Waiting {
        "waits"
    } else {
        "holds"
    };
    let since = since(&other.since, now);
    let touched = touches(&other.footprint, scope);
    let scope = plain(scope);
    let note = plain(&other.note);
    Problem::other(format!(
        "hold {name:?} exists already in scope {scope}: it {state} for {since}, touches {touched} ({note})"
    ))
    .with_remedy(format!(
        "Choose another name, or end it first: kubectl backup locks release hold/{name} --reason=TEXT"
    ))
}

/// A new random uid (version 4).
fn random_uid() -> String {
    let a = fastrand::u64(..);
    let b = fastrand::u64(..);
    format!(
        "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
        a >> 32,
        a >> 16 & 0xffff,
        a & 0xfff,
        b >> 48 & 0xfff,
        b & 0xffff_ffff_ffff
    )
}

//! `wait`: for objects that exist already, or until nobody holds a scope.

use std::time::Duration;

use backup_lock::ledger::Status;
use tokio::time::{Instant, sleep};

use super::{
    locks::{
        hold::place,
        problem::{self, Wish},
    },
    pause::pause,
    subject::Subject,
    wait::{Goal, Look, Time, Waited, poll, until_reached},
};
use crate::{
    Terminal,
    cli::{GlobalArgs, Until, UntilArgs, WaitForArgs},
    client::Session,
    error::{Exit, Problem},
    print::table::plain,
    view::locks::{few, named, touches},
};

/// An API server that restarts at this very moment is waited for.
const STARTING: Duration = Duration::from_secs(30);

/// `wait`
pub async fn backups(
    global: &GlobalArgs,
    args: WaitForArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let usage = |message: &str, remedy: &str| Problem::Usage {
        message: message.to_owned(),
        remedy: Some(remedy.to_owned()),
    };
    let is_free = args.until.until == Until::Free;
    if is_free && !args.until.names.is_empty() {
        return Err(usage(
            "--for=free is about a scope, not about a backup",
            "kubectl backup wait --for=free",
        ));
    }
    if !is_free && !args.namespaces.is_empty() {
        return Err(usage(
            "--namespaces belongs to --for=free",
            "kubectl backup wait --for=free --namespaces=NAMES",
        ));
    }
    if is_free {
        let session = Session::connect(global, terminal).await?;
        return free(&session, &args, terminal).await;
    }
    objects::<backup_core::api::Backup>(global, &args.until, terminal).await
}

/// Waits for each; the worst of what came of them. All have the same time.
pub async fn objects<K: Subject>(
    global: &GlobalArgs,
    args: &UntilArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    if args.names.is_empty() || args.until == Until::Free {
        return Err(Problem::Usage {
            message: format!("which {} is to be waited for?", K::KIND),
            remedy: Some("Give a name; or --for=free to `kubectl backup wait`.".to_owned()),
        });
    }
    let goal = match &args.until {
        Until::Phase(phase) => Goal::Phase(phase.clone()),
        Until::End | Until::Free => Goal::End,
    };
    let time = Time { deadline: Instant::now() + args.timeout.as_std(), told: args.timeout };
    super::names::each(
        &Session::connect(global, terminal).await?,
        &args.names,
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            let object = first_look::<K>(session, name, time.deadline).await?;
            let (exit, _) = until_reached(session, terminal, &object, &goal, time).await?;
            Ok(exit)
        },
    )
    .await
}

/// The object as it is now. Only an API server that is away for a moment is asked again.
async fn first_look<K: Subject>(session: &Session, name: &str, deadline: Instant) -> Result<K, Problem> {
    let (api, start) = (session.api::<K>(), Instant::now());
    for tries in 0.. {
        match session.call(K::about("get", name), api.get(name)).await {
            Err(problem)
                if problem.is_transient() && start.elapsed() < STARTING && Instant::now() < deadline =>
            {
                sleep(pause(tries, Duration::from_millis(200), Duration::from_secs(2))).await;
            }
            other => return other,
        }
    }
    Err(Problem::Other { message: format!("cannot get {} {name:?}", K::KIND), remedy: None })
}

/// Until no claim in the scope touches what was asked about.
async fn free(session: &Session, args: &WaitForArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let (store, footprint) = place(session, &args.scope, &args.namespaces).await?;
    let subject = format!("scope {}, {}", plain(&args.scope), touches(&footprint, &args.scope));
    let timeout = args.until.timeout;
    let mut told = Vec::new();
    let waited = poll(session, terminal, timeout.as_std(), async |terminal: &mut Terminal| {
        let stored =
            store.read(&args.scope).await.map_err(|error| problem::of_ledger(error, session, Wish::View))?;
        let Some(stored) = stored else { return Ok(Look::Over(())) };
        let ledger = &stored.ledger;
        let in_the_way = |claim: &&backup_lock::claim::Claim| {
            args.namespaces.is_empty()
                || claim.entries.iter().any(|entry| entry.footprint.overlaps(&footprint))
        };
        let mut holders: Vec<String> =
            ledger.claims.iter().filter(in_the_way).map(|claim| named(&claim.key)).collect();
        if ledger.status == Status::Rebuilding {
            holders.push("the ledger to be rebuilt".to_owned());
        }
        if holders.is_empty() {
            return Ok(Look::Over(()));
        }
        if holders == told {
            return Ok(Look::Same);
        }
        terminal.say(&format!("{subject}: waiting for {}", few(&holders)));
        told = holders;
        Ok(Look::Changed)
    })
    .await?;
    match waited {
        Waited::Over(()) => {
            terminal.say(&format!("{subject}: free"));
            Ok(Exit::Done)
        }
        Waited::TimedOut => {
            terminal.say(&format!("error: {subject}: not free after {timeout}"));
            terminal.say("  `kubectl backup locks` shows who holds it.");
            Ok(Exit::TimedOut)
        }
        Waited::Interrupted => Ok(Exit::Interrupted),
    }
}

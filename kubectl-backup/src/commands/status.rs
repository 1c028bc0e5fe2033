//! `status`: one page for a cluster.

use backup_lock::{State, ledger::Status};
use futures::try_join;
use k8s_openapi::api::core::v1::Namespace;
use tokio::time::Instant;

use super::{
    describe::read_ledger,
    poll::{LONGEST, Look, poll},
    prelude::*,
};
use crate::{
    cli::StatusArgs,
    print::page,
    view::{
        locks::named,
        status::{self as view, Asked, BackupFacts, ClusterStatus, Observed, WorkLine},
    },
};

/// Between two pages of `-w`: each takes lists of everything.
const PERIOD: Duration = Duration::from_secs(10);

pub(super) async fn run(args: StatusArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.watch {
        return watch(&session, &args, terminal).await;
    }
    let status = Box::pin(read(&session, &args, terminal.now())).await?;
    let text = text(&status, &args, terminal)?;
    terminal.data(&text)?;
    Ok(if status.protected { Exit::Done } else { Exit::Failed })
}

async fn watch(session: &Session, args: &StatusArgs, terminal: &mut Terminal) -> CommandResult {
    let mut due = Instant::now();
    let watched = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        if Instant::now() < due {
            return Ok(Look::<()>::Same);
        }
        let status = Box::pin(read(session, args, terminal.now())).await?;
        let text = text(&status, args, terminal)?;
        let size = (terminal.size)().filter(|_| args.output.form.is_table());
        terminal.data(&if terminal.out_is_terminal { page(&text, "", size) } else { text })?;
        due = Instant::now() + PERIOD;
        Ok(Look::Same)
    });
    Ok(watched.await?.err().unwrap_or(Exit::Done))
}

fn text(status: &ClusterStatus, args: &StatusArgs, terminal: &Terminal) -> Result<String, Problem> {
    let output = &args.output;
    // Those that are not protected: what a script wants to go through.
    let names = || {
        let bad = status.namespaces.iter().filter(|one| !one.protected);
        bad.fold(String::new(), |all, one| all + "namespace/" + &one.name + "\n")
    };
    json::list_text("ClusterStatus", ("namespaces", status), output, terminal, names, |now, style| {
        Ok(view::text(status, now, style, output.is_wide())?)
    })
}

/// Lists everything side by side, and keeps little of it.
async fn read(session: &Session, args: &StatusArgs, now: Timestamp) -> Result<ClusterStatus, Problem> {
    let all = ListParams::default;
    let backups = session.list_readable(all(), |one: Backup| Some(BackupFacts::of(&one, now)));
    let restores = session.list_readable(all(), |one: Restore| WorkLine::of(&one, now));
    let schedules = session.list_readable(all(), Some::<Schedule>);
    let locations = session.list_readable(all(), Some::<BackupStorageLocation>);
    let namespaces = async { Ok(fetched(session, namespaces(session)).await) };
    let lock = async { Ok(fetched(session, lock(session)).await) };
    let (backups, restores, schedules, locations, namespaces, lock) =
        try_join!(backups, restores, schedules, locations, namespaces, lock)?;
    let seen = Observed { namespaces, backups, restores, schedules, locations, lock };
    let asked =
        Asked { rpo: args.rpo.and_then(|rpo| rpo.as_std().try_into().ok()), except: &args.except_namespaces };
    Ok(view::status(&session.namespace, seen, &asked, now))
}

async fn namespaces(session: &Session) -> Result<Vec<String>, Problem> {
    let api: Api<Namespace> = Api::all(session.client.clone());
    let about = About::called("list", "namespace", "namespaces", "");
    session.list(about, &api, ListParams::default(), |one| Some(one.name_any())).await
}

/// Who holds the lock between backups and restores, and who waits, in words.
async fn lock(session: &Session) -> Result<Vec<String>, Problem> {
    let Some(ledger) = read_ledger(session).await? else { return Ok(Vec::new()) };
    let mut held: Vec<String> = ledger
        .claims
        .iter()
        .map(|claim| {
            let holds = claim.entries.iter().any(|entry| entry.state > State::Waiting);
            let how = if holds { "holds it" } else { "waits" };
            format!("{} {how}", named(&claim.key))
        })
        .collect();
    if ledger.status == Status::Rebuilding {
        held.push("its ledger is being rebuilt".to_owned());
    }
    Ok(held)
}

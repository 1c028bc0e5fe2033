//! `doctor`: is everything in place? Every check is asked at the same time, has two seconds, and says what to do.

mod cluster;
mod installation;
mod webhook;

use std::path::PathBuf;

use futures::future::{BoxFuture, join_all};

use super::{
    known_profiles::known_profiles,
    locks::{fetch::Within, unclaimed},
    prelude::*,
};
use crate::{
    cli::{self, DocumentArgs},
    view::{
        doctor::{Finding, Report},
        locks::named,
    },
};

const CHECK: Duration = Duration::from_secs(2);

type Check<'session> = (&'static str, BoxFuture<'session, Result<Vec<Finding>, Problem>>);

pub(crate) async fn run(args: DocumentArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let (session, now) = (&session, terminal.now());
    let checks: [Check<'_>; 8] = [
        ("API server", Box::pin(cluster::api_server(session, now))),
        ("definitions", Box::pin(cluster::definitions(session))),
        ("permissions", Box::pin(cluster::permissions(session))),
        ("registration", Box::pin(webhook::registration(session, now))),
        ("webhook", Box::pin(webhook::answers(session))),
        ("controller", Box::pin(installation::controller(session, now))),
        ("locations", Box::pin(installation::locations(session, now))),
        ("lock", Box::pin(slipped_past(session))),
    ];
    let mut findings: Vec<Finding> = join_all(checks.map(within)).await.into_iter().flatten().collect();
    findings.extend(shadows(terminal));
    let report = Report::new(&session.namespace, findings);
    terminal.data(&json::document_or(&report, args.output, || Ok(report.text(terminal.out_style())))?)?;
    Ok(if report.broken { Exit::Failed } else { Exit::Done })
}

async fn within((name, check): Check<'_>) -> Vec<Finding> {
    match tokio::time::timeout(CHECK, check).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(problem)) => {
            let (what, remedy) = (plain(&problem.to_string()), problem.remedy);
            // What cannot be reached is broken for the person who asks; what may not be asked is not known.
            let is_broken = matches!(
                problem.kind,
                ProblemKind::Unreachable
                    | ProblemKind::NoNamespace
                    | ProblemKind::NotServed
                    | ProblemKind::Unauthorized
            );
            vec![if is_broken {
                Finding::bad(name, what, remedy.unwrap_or_default())
            } else {
                Finding::unknown(name, &what, remedy)
            }]
        }
        Err(_) => vec![Finding::unknown(name, &format!("no answer within {CHECK:?}"), None)],
    }
}

/// What runs without a claim: created while the lock was off, or released by hand.
async fn slipped_past(session: &Session) -> Result<Vec<Finding>, Problem> {
    let found = unclaimed(session, &known_profiles(session).await, Within::Installation).await?;
    let mut findings: Vec<Finding> = found
        .objects
        .iter()
        .map(|object| {
            let text = format!("{} runs without a claim: it was created past the lock", named(&object.key));
            Finding::warn(
                "lock",
                text,
                "See `kubectl backup locks`; don't start a restore before it has ended.",
            )
        })
        .collect();
    findings.extend(found.unchecked.iter().map(|why| Finding::unknown("lock", why, None)));
    if findings.is_empty() {
        findings.push(Finding::good("lock", "nothing runs without a claim"));
    }
    Ok(findings)
}

/// Programs on the PATH that kubectl would run in our place: it takes the longest name that matches.
fn shadows(terminal: &Terminal) -> Vec<Finding> {
    let path = terminal.var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let root = cli::command();
    let shadow = |command: &clap::Command| {
        let program = format!("kubectl-backup-{}", command.get_name());
        let found = folders.iter().map(|folder| folder.join(&program)).find(|file| file.is_file())?;
        let text =
            format!("{} answers `kubectl backup {}`, not this program", found.display(), command.get_name());
        Some(Finding::bad("plugins", text, "Remove it from the PATH, or rename it."))
    };
    let mut findings: Vec<Finding> = root.get_subcommands().filter_map(shadow).collect();
    let mut ours: Vec<PathBuf> =
        folders.iter().map(|folder| folder.join("kubectl-backup")).filter(|file| file.is_file()).collect();
    ours.dedup();
    if let [first, second, ..] = ours.as_slice() {
        let text = format!("{} is on the PATH before {}", first.display(), second.display());
        findings.push(Finding::warn(
            "plugins",
            text,
            "Remove the one that is older: kubectl backup version --client",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::good("plugins", "no other program stands in the way on the PATH"));
    }
    findings
}

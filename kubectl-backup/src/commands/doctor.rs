//! `doctor`: is everything in place? Every check is asked at the same time, has two seconds, and says what to do.

mod client;
mod cluster;
mod controller;
mod locations;
mod webhook;

use std::time::Duration;

use futures::future::{BoxFuture, join_all};

use super::{
    known::known,
    locks::{fetch::Within, unclaimed},
};
use crate::{
    Terminal,
    cli::{DoctorArgs, GlobalArgs, Output},
    client::Session,
    error::{Exit, Problem},
    print::{json, table::plain},
    view::{
        doctor::{Finding, Report},
        locks::named,
    },
};

/// How long a check may take.
const CHECK: Duration = Duration::from_secs(2);

type Check<'session> = (&'static str, BoxFuture<'session, Result<Vec<Finding>, Problem>>);

/// `doctor`
pub async fn run(global: &GlobalArgs, args: DoctorArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let (session, now) = (&session, terminal.now());
    let checks: [Check<'_>; 8] = [
        ("API server", Box::pin(cluster::api_server(session, now))),
        ("definitions", Box::pin(cluster::definitions(session))),
        ("permissions", Box::pin(cluster::permissions(session))),
        ("registration", Box::pin(webhook::registration(session, now))),
        ("webhook", Box::pin(webhook::answers(session))),
        ("controller", Box::pin(controller::leads(session, now))),
        ("locations", Box::pin(locations::usable(session, now))),
        ("lock", Box::pin(slipped_past(session))),
    ];
    let mut findings: Vec<Finding> = join_all(checks.map(within)).await.into_iter().flatten().collect();
    findings.extend(client::shadows(terminal));
    let report = Report::new(&session.namespace, findings);
    terminal.data(&match args.output {
        Some(form) => json::object(&report, Output::from(form))?,
        None => report.text(terminal.out_style()),
    })?;
    Ok(if report.broken { Exit::Failed } else { Exit::Done })
}

async fn within((name, check): Check<'_>) -> Vec<Finding> {
    match tokio::time::timeout(CHECK, check).await {
        Ok(Ok(findings)) => findings,
        // Who can't be reached is broken for whoever asks; what may not be asked is not known.
        Ok(Err(
            problem @ (Problem::Unreachable { .. }
            | Problem::NoNamespace { .. }
            | Problem::NotServed { .. }
            | Problem::Unauthorized { .. }),
        )) => {
            vec![Finding::bad(name, plain(&problem.to_string()), problem.remedy().unwrap_or_default())]
        }
        Ok(Err(problem)) => vec![Finding::unknown(name, &plain(&problem.to_string()), problem.remedy())],
        Err(_) => vec![Finding::unknown(name, &format!("no answer within {CHECK:?}"), None)],
    }
}

/// What runs without a claim: created while the lock was off, or released by hand.
async fn slipped_past(session: &Session) -> Result<Vec<Finding>, Problem> {
    let (_, objects, unchecked) = unclaimed(session, &known(session).await, Within::Installation).await?;
    let mut findings: Vec<Finding> = objects
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
    findings.extend(unchecked.iter().map(|why| Finding::unknown("lock", why, None)));
    if findings.is_empty() {
        findings.push(Finding::good("lock", "nothing runs without a claim"));
    }
    Ok(findings)
}

//! `doctor`: is everything in place? Every check is asked at the same time, has two seconds, and says what to do.

pub(super) mod cluster;
mod installation;
mod replicas;
pub(super) mod webhook;

use std::{fmt::Write as _, path::PathBuf};

use futures::future::{BoxFuture, join_all};
use serde::Serialize;

use super::{
    known_profiles::known_profiles,
    locks::{fetch::Within, unclaimed},
    prelude::*,
};
use crate::{
    cli::{self, DocumentArgs},
    print::{Style, Tone},
    view::locks::named,
};

const CHECK: Duration = Duration::from_secs(2);

type Check<'session> = (&'static str, BoxFuture<'session, Result<Vec<Finding>, Problem>>);

pub(crate) async fn run(args: DocumentArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let (session, now) = (&session, terminal.now());
    let checks: [Check<'_>; 10] = [
        ("API server", Box::pin(cluster::api_server(session, now))),
        ("CRDs", Box::pin(cluster::definitions(session))),
        ("permissions", Box::pin(cluster::permissions(session))),
        ("webhook configuration", Box::pin(webhook::registration(session, now))),
        ("replicas", Box::pin(replicas::served(session, now))),
        ("webhook", Box::pin(webhook::answers(session))),
        ("controller", Box::pin(installation::controller(session, now))),
        ("locations", Box::pin(installation::locations(session, now))),
        ("lock", Box::pin(slipped_past(session))),
        ("profiles", Box::pin(installation::profiles(session))),
    ];
    let mut findings: Vec<Finding> = join_all(checks.map(within)).await.into_iter().flatten().collect();
    findings.extend(shadows(terminal));
    let broken = findings.iter().any(|finding| finding.tone == Tone::Bad);
    let report = Report { namespace: session.namespace.clone(), broken, findings };
    json::show("DoctorReport", &report, args, terminal, |_, style| Ok(report.text(style)))?;
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
                Topic(name).bad(what, remedy.unwrap_or_default())
            } else {
                Topic(name).unknown(&what, remedy)
            }]
        }
        Err(_) => vec![Topic(name).unknown(&format!("no answer within {CHECK:?}"), None)],
    }
}

/// What runs without the lock: created while the lock was off, or released by hand.
async fn slipped_past(session: &Session) -> Result<Vec<Finding>, Problem> {
    let found = unclaimed(session, &known_profiles(session).await, Within::Installation).await?;
    let on = Topic("lock");
    let mut findings: Vec<Finding> = found
        .objects
        .iter()
        .map(|object| {
            let text = format!("{} runs without the lock: it was created past it", named(&object.key));
            on.warn(text, "See `kubectl backup locks`; don't start a restore before it has ended.")
        })
        .collect();
    findings.extend(found.unchecked.iter().map(|why| on.unknown(why, None)));
    if findings.is_empty() {
        findings.push(on.good("nothing runs without the lock"));
    }
    Ok(findings)
}

/// Programs on the PATH that kubectl would run in our place: it takes the longest name that matches.
fn shadows(terminal: &Terminal) -> Vec<Finding> {
    let on = Topic("plugins");
    let path = terminal.var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let root = cli::command();
    let shadow = |command: &clap::Command| {
        let program = format!("kubectl-backup-{}", command.get_name());
        let found = folders.iter().map(|folder| folder.join(&program)).find(|file| file.is_file())?;
        let text =
            format!("{} answers `kubectl backup {}`, not this program", found.display(), command.get_name());
        Some(on.bad(text, "Remove it from the PATH, or rename it."))
    };
    let mut findings: Vec<Finding> = root.get_subcommands().filter_map(shadow).collect();
    let mut ours: Vec<PathBuf> =
        folders.iter().map(|folder| folder.join("kubectl-backup")).filter(|file| file.is_file()).collect();
    ours.dedup();
    if let [first, second, ..] = ours.as_slice() {
        let text = format!("{} is on the PATH before {}", first.display(), second.display());
        findings.push(on.warn(text, "Remove the one that is older: kubectl backup version --client"));
    }
    if findings.is_empty() {
        findings.push(on.good("no other program stands in the way on the PATH"));
    }
    findings
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) namespace: String,
    pub(crate) broken: bool,
    pub(crate) findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// What was looked at: a fixed word.
    pub(crate) check: &'static str,
    /// `good`, `warn` (worth a look), `bad` (broken) or `unknown` (could not be asked).
    pub(crate) tone: Tone,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    /// A line, and its remedy below.
    pub(crate) fn lines(&self, style: Style) -> String {
        let Self { check, tone, text, remedy } = self;
        let sign = style.tone(*tone, tone.sign());
        let text = if *tone == Tone::Bad { style.bad(text) } else { text.clone() };
        let remedy = remedy.as_ref().map_or_else(String::new, |remedy| format!("  {:<23}{remedy}\n", ""));
        format!("{sign} {check:<23}{text}\n{remedy}")
    }
}

/// What findings are about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Topic(pub(crate) &'static str);

impl Topic {
    pub(crate) fn good(self, text: impl Into<String>) -> Finding {
        Finding { check: self.0, tone: Tone::Good, text: text.into(), remedy: None }
    }

    pub(crate) fn warn(self, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { tone: Tone::Warn, remedy: Some(remedy.into()), ..self.good(text) }
    }

    pub(crate) fn bad(self, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { tone: Tone::Bad, ..self.warn(text, remedy) }
    }

    pub(crate) fn unknown(self, why: &str, remedy: Option<String>) -> Finding {
        Finding { tone: Tone::Unknown, remedy, ..self.good(format!("not known: {why}")) }
    }
}

impl Report {
    /// A line each, and its remedy below.
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text += &finding.lines(style);
        }
        let count = |tone: Tone| self.findings.iter().filter(|finding| finding.tone == tone).count();
        let (bad, warn, unknown) = (count(Tone::Bad), count(Tone::Warn), count(Tone::Unknown));
        let verdict = match (bad, warn) {
            (0, 0) => "Nothing is broken.".to_owned(),
            (0, warn) => format!("Nothing is broken; {warn} worth a look."),
            (bad, 0) => format!("Broken: {bad}."),
            (bad, warn) => format!("Broken: {bad}; worth a look: {warn}."),
        };
        let _ = match unknown {
            0 => writeln!(text, "\n{verdict}"),
            unknown => writeln!(text, "\n{verdict} Not known: {unknown}."),
        };
        text
    }
}

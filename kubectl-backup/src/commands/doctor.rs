//! `doctor`: is everything in place? All checks run concurrently, each with a timeout of two
//! seconds, and say what to do.

pub(super) mod cluster;
mod copies;
mod installation;
mod moved_data;
mod notifications;
mod replicas;
pub(super) mod schedules;
mod secrets;
mod snapshot_locations;
mod stopped_copies;
mod volumes;
pub(super) mod webhook;

use std::{fmt::Write as _, path::PathBuf};

use futures::future::{BoxFuture, join_all};
use serde::Serialize;

use super::{
    finding::{Finding, Topic},
    known_profiles::known_profiles,
    locks::{fetch::Within, problem::without_finalizers, unclaimed},
    prelude::*,
};
use crate::{
    cli::{self, DocumentArgs},
    print::{Style, Tone},
    view::locks::named,
};

const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

type Check<'session> = (
    &'static str,
    BoxFuture<'session, Result<Vec<Finding>, Problem>>,
);

pub(crate) async fn run(args: DocumentArgs, terminal: &mut Terminal) -> CommandResult {
    let session = &Session::connect(terminal).await?;
    let now = terminal.now();
    let checks: [Check<'_>; 18] = [
        ("API server", Box::pin(cluster::api_server(session, now))),
        ("CRDs", Box::pin(cluster::definitions(session))),
        ("permissions", Box::pin(cluster::permissions(session))),
        (
            "webhook configuration",
            Box::pin(webhook::registration(session, now)),
        ),
        ("replicas", Box::pin(replicas::served(session, now))),
        ("webhook", Box::pin(webhook::answers(session))),
        (
            "controller",
            Box::pin(installation::controller(session, now)),
        ),
        ("locations", Box::pin(installation::locations(session, now))),
        ("schedules", Box::pin(schedules::schedules(session, now))),
        ("copies", Box::pin(copies::copies(session))),
        ("volumes", Box::pin(volumes::saved(session))),
        ("volumes", Box::pin(volumes::would_be_saved(session, now))),
        ("volumes", Box::pin(snapshot_locations::usable(session))),
        ("volumes", Box::pin(moved_data::would_be_moved(session))),
        ("volumes", Box::pin(moved_data::can_be_read(session, now))),
        (
            "notifications",
            Box::pin(notifications::authorization(session)),
        ),
        ("lock", Box::pin(slipped_past(session))),
        ("profiles", Box::pin(installation::profiles(session))),
    ];
    let mut findings: Vec<Finding> = join_all(checks.map(within))
        .await
        .into_iter()
        .flatten()
        .collect();
    findings.extend(shadows(terminal));
    let broken = findings.iter().any(|finding| finding.tone == Tone::Bad);
    let report = Report {
        namespace: session.namespace.clone(),
        broken,
        findings,
    };
    json::show("DoctorReport", &report, args, terminal, |_, style| {
        Ok(report.text(style))
    })?;
    Ok(if report.broken {
        Exit::Failed
    } else {
        Exit::Done
    })
}

async fn within((name, check): Check<'_>) -> Vec<Finding> {
    match tokio::time::timeout(CHECK_TIMEOUT, check).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(problem)) => {
            let what = plain(&problem.to_string());
            let remedy = problem.remedy;
            // A component that the user cannot reach counts as broken; one that the user may not
            // read is unknown.
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
        Err(_) => vec![Topic(name).unknown(&format!("no answer within {CHECK_TIMEOUT:?}"), None)],
    }
}

/// Ledgers that grant nothing, and objects that run without a claim: created while the lock was
/// off, or released by hand.
async fn slipped_past(session: &Session) -> Result<Vec<Finding>, Problem> {
    let found = unclaimed(
        session,
        &known_profiles(session).await,
        Within::Installation,
    )
    .await?;
    let on = Topic("lock");
    let closed = found.ledgers.all.iter().filter_map(|found| {
        let (problem, remedy) = found.grants_nothing()?;
        let scope = if found.scope.is_empty() {
            &found.lease
        } else {
            &found.scope
        };
        let text = format!(
            "no Backup or Restore of {} can be created: {problem}",
            plain(scope)
        );
        Some(on.bad(text, remedy))
    });
    let mut findings: Vec<Finding> = closed.collect();
    let kept = found
        .ledgers
        .all
        .iter()
        .filter(|found| found.ledger.is_ok() && !found.finalizers.is_empty());
    findings.extend(kept.map(|found| {
        let lease = plain(&found.lease);
        let finalizers = plain(&found.finalizers.join(", "));
        let text = format!(
            "the ledger {lease} has the finalizer {finalizers} of another program: if it is deleted, no Backup or Restore can be \
             created until that is taken off"
        );
        on.warn(text, without_finalizers(&found.lease, &found.namespace))
    }));
    let past = found.objects.iter().map(|object| {
        let text = format!(
            "{} runs without the lock: it was created past it",
            named(&object.key)
        );
        on.warn(
            text,
            "See `kubectl backup locks`; don't start a restore before it has ended.",
        )
    });
    findings.extend(past);
    findings.extend(found.unchecked.iter().map(|why| on.unknown(why, None)));
    if findings.is_empty() {
        findings.push(on.good("nothing runs without the lock"));
    }
    Ok(findings)
}

/// Programs on the PATH that kubectl would run instead of this one: it runs the one with the
/// longest matching name.
fn shadows(terminal: &Terminal) -> Vec<Finding> {
    let on = Topic("plugins");
    let path = terminal.var("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let root = cli::command();
    let mut findings: Vec<Finding> = root
        .get_subcommands()
        .filter_map(|command| shadowing_program(on, &folders, command.get_name()))
        .collect();
    let mut ours: Vec<PathBuf> = folders
        .iter()
        .map(|folder| folder.join("kubectl-backup"))
        .filter(|file| file.is_file())
        .collect();
    ours.dedup();
    if let [first, second, ..] = ours.as_slice() {
        let text = format!(
            "{} is on the PATH before {}",
            first.display(),
            second.display()
        );
        findings.push(on.warn(
            text,
            "Remove the one that is older: kubectl backup version --client",
        ));
    }
    if findings.is_empty() {
        findings.push(on.good("no other program on the PATH takes its place"));
    }
    findings
}

/// A finding if a program in these folders answers instead of the command.
fn shadowing_program(on: Topic, folders: &[PathBuf], command: &str) -> Option<Finding> {
    let program = format!("kubectl-backup-{command}");
    let found = folders
        .iter()
        .map(|folder| folder.join(&program))
        .find(|file| file.is_file())?;
    let text = format!(
        "{} answers `kubectl backup {command}`, not this program",
        found.display()
    );
    Some(on.bad(text, "Remove it from the PATH, or rename it."))
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) namespace: String,
    pub(crate) broken: bool,
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    /// One line for each finding, with its remedy below.
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            text += &finding.lines(style);
        }
        let bad = self.count(Tone::Bad);
        let warn = self.count(Tone::Warn);
        let unknown = self.count(Tone::Unknown);
        let good = if unknown == 0 {
            "Nothing is broken"
        } else {
            "Nothing is broken in what could be checked"
        };
        let verdict = match (bad, warn) {
            (0, 0) => format!("{good}."),
            (0, warn) => format!("{good}; {warn} worth a look."),
            (bad, 0) => format!("Broken: {bad}."),
            (bad, warn) => format!("Broken: {bad}; worth a look: {warn}."),
        };
        let _ = match unknown {
            0 => writeln!(text, "\n{verdict}"),
            unknown => writeln!(text, "\n{verdict} Not known: {unknown}."),
        };
        text
    }

    fn count(&self, tone: Tone) -> usize {
        self.findings
            .iter()
            .filter(|finding| finding.tone == tone)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    fn read(path: &str) -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
    }

    /// The topics of all findings, read from the sources of `doctor`.
    fn topics() -> BTreeSet<String> {
        let mut sources = read("kubectl-backup/src/commands/doctor.rs");
        for file in
            fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/doctor")).unwrap()
        {
            sources += &fs::read_to_string(file.unwrap().path()).unwrap();
        }
        let begin = concat!("Topic", "(\"");
        let topics = sources
            .split(begin)
            .skip(1)
            .filter_map(|rest| rest.split_once('"'));
        topics.map(|(topic, _)| topic.to_owned()).collect()
    }

    #[test]
    fn each_check_has_an_alert_or_a_reason_why_it_has_none() {
        let alerts = read("deploy/monitoring/alerts.yaml");
        let alerts: BTreeSet<&str> = alerts
            .lines()
            .filter_map(|line| line.trim().strip_prefix("- alert: "))
            .collect();
        let page = read("docs/operate/monitoring.md");
        let (_, chapter) = page.split_once("\n## What doctor looks at").unwrap();
        let rows = chapter.lines().skip_while(|line| !line.starts_with("| `"));
        let mut listed = BTreeSet::new();
        for row in rows.take_while(|line| line.starts_with('|')) {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [topic, finds, answer] = cells.as_slice() else {
                panic!("{row}")
            };
            assert!(!finds.is_empty(), "{row}");
            listed.insert(topic.trim_matches('`').to_owned());
            let named: Vec<&str> = answer
                .split('`')
                .filter(|word| word.starts_with("Backup"))
                .collect();
            let unknown: Vec<_> = named
                .iter()
                .filter(|name| !alerts.contains(*name))
                .collect();
            assert!(unknown.is_empty(), "{unknown:?} are no alerts: {row}");
            let reason = answer
                .split_once("o alert")
                .is_some_and(|(_, why)| why.len() > 20);
            assert!(
                !named.is_empty() || reason,
                "neither an alert nor a reason: {row}"
            );
        }
        assert_eq!(listed, topics());
    }
}

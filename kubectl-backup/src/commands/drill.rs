//! `drill`: creates the Restore of a drill, and with `--wait` follows it to its result.

use std::collections::BTreeSet;

use backup_core::{
    api::{
        DrillSettings, DrillSpec, download_request::DownloadTargetKind, schedule::ScheduledDrill,
    },
    drill::{self, DrillState},
    labels::{DRILL_SCHEDULE_LABEL, valid_value},
    validate,
};

use super::{
    create::{Connection, CreationOutcome, SpecErrors, finish, make, print},
    poll::{Look, in_vain, poll},
    prelude::*,
    restore::{can_be_restored, latest, tried},
    spec::{self, over, set},
};
use crate::{
    cli::{CreationArgs, DrillArgs, DrillFlags, Output},
    stored::{StoredFile, document},
    view::{self, ResourceList},
};

/// Maximum wait for the list of a backup's items where the namespaces are named.
const MAX_LIST_WAIT: Duration = Duration::from_secs(5);

pub(super) async fn run(args: DrillArgs, terminal: &mut Terminal) -> CommandResult {
    let connection = Connection::new();
    let session = connection.session(terminal).await?;
    let (name, schedule) = match &args.drilled.schedule {
        Some(schedule) => {
            let newest = latest(schedule, false, session).await?;
            (newest, optional(session.get::<Schedule>(schedule).await)?)
        }
        None => (args.drilled.name.clone().unwrap_or_default(), None),
    };
    let backup = get_named::<Backup>(session, "drill", &name).await?;
    can_be_restored(&backup)?;
    let of_schedule = schedule.as_ref().and_then(|one| one.spec.drill.clone());
    // The result counts for the schedule if it asks for drills.
    let label = schedule
        .filter(|_| of_schedule.is_some())
        .map(|one| valid_value(&one.name_any()));
    let ScheduledDrill {
        included_namespaces,
        mut settings,
        ..
    } = match &args.file {
        Some(path) => spec::drill(path, terminal)?,
        None => of_schedule.unwrap_or_default(),
    };
    let mut asked = included_namespaces;
    set(&mut asked, &args.include_namespaces);
    let held = if args.include_namespaces.is_empty() {
        held(session, &backup).await?
    } else {
        held_if_known(session, &backup, &asked).await
    };
    let namespaces = drill::namespaces(&held, &asked, &session.namespace).map_err(|why| {
        Problem::other(format!("no drill of backup {name:?} is possible: {why}"))
            .with_remedy("--include-namespaces=NAMES says which namespaces are restored.")
    })?;
    let id = drill::id(&[&name, &terminal.now().to_string()]);
    fill(&mut settings, &args.flags);
    let drill = DrillSpec {
        settings,
        ..DrillSpec::default()
    };
    let mut restore = Restore::new(
        &drill::restore_name(&name, &id),
        drill::restore_spec(&name, &id, &namespaces, drill),
    );
    let labels = label.map(|label| (DRILL_SCHEDULE_LABEL.to_owned(), label));
    restore.metadata.labels = labels.map(|label| [label].into());
    let creation = &args.creation;
    spec::describe_object(&mut restore.metadata, &creation.object);
    let checked = SpecErrors::new(
        validate::restore(&restore.spec),
        validate::engine_restore(&restore.spec),
    );
    if creation.dry_run.is_none() {
        knows_drills(&restore, &checked, creation, &connection, terminal).await?;
    }
    if !creation.wait.wait {
        return Box::pin(finish(restore, &checked, creation, &connection, terminal)).await;
    }
    let made = Box::pin(make(restore, &checked, creation, &connection, terminal)).await?;
    let (CreationOutcome::Dry(created, _) | CreationOutcome::Stored(created)) = made;
    let is_whole = matches!(creation.output, Some(Output::Json | Output::Yaml));
    if !is_whole {
        print(&created, creation.output, "", terminal)?;
    }
    let (exit, ended) = until_result(session, &created, creation.wait.timeout, terminal).await?;
    if is_whole {
        print(
            ended.as_ref().unwrap_or(&created),
            creation.output,
            "",
            terminal,
        )?;
    }
    Ok(exit)
}

/// The namespaces of which the backup holds items.
async fn held(session: &Session, backup: &Backup) -> Result<BTreeSet<String>, Problem> {
    let file = StoredFile::of(DownloadTargetKind::BackupResourceList, &backup.metadata);
    let list: ResourceList = match Box::pin(document(session, &file)).await {
        Err(problem) if matches!(problem.kind, ProblemKind::NoFile | ProblemKind::Forbidden) => {
            let remedy = "--include-namespaces=NAMES says which namespaces are restored.";
            return Err(problem.with_remedy(remedy));
        }
        read => read?,
    };
    let names = list.iter().flat_map(|(kind, items)| {
        items
            .iter()
            .filter_map(|item| drill::listed_namespace(kind, item))
    });
    Ok(names.map(str::to_owned).collect())
}

/// The namespaces of which the backup holds items, or those that are asked for if its list of items
/// cannot be read in time: a user who names them needs no right to read the list.
async fn held_if_known(session: &Session, backup: &Backup, asked: &[String]) -> BTreeSet<String> {
    match tokio::time::timeout(MAX_LIST_WAIT, held(session, backup)).await {
        Ok(Ok(held)) => held,
        Ok(Err(_)) | Err(_) => asked.iter().cloned().collect(),
    }
}

/// Sets what the flags name. A check takes the place of the one of its name.
pub(super) fn fill<const OF_SCHEDULE: bool>(
    settings: &mut DrillSettings,
    flags: &DrillFlags<OF_SCHEDULE>,
) {
    settings.quota.extend(flags.quota.iter().cloned());
    set(
        &mut settings.additional_resources,
        &flags.additional_resources,
    );
    settings.volumes = flags.volumes.unwrap_or(settings.volumes);
    settings.hooks = flags.hooks.unwrap_or(settings.hooks);
    settings.require_ready = flags.require_ready.unwrap_or(settings.require_ready);
    over(&mut settings.ready_timeout, flags.ready_timeout.as_ref());
    for check in &flags.checks {
        let checks = &mut settings.checks;
        if let Some(same) = checks.iter_mut().find(|one| one.name == check.name) {
            same.clone_from(check);
        } else {
            checks.push(check.clone());
        }
    }
}

/// A definition without `spec.drill` would drop the field: the namespaces would be restored under
/// their other names, and nothing would remove them.
async fn knows_drills(
    restore: &Restore,
    checked: &SpecErrors,
    creation: &CreationArgs,
    connection: &Connection,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let kept = tried(restore, checked, creation, connection, terminal).await?;
    if kept.spec.drill.is_some() {
        return Ok(());
    }
    Err(Problem::other(
        "the definition of restores.velero.io in this cluster does not know spec.drill, so nothing would remove what is restored",
    )
    .with_remedy("Bring the definitions up to date: `kubectl backup upgrade`. A Velero server makes no drills."))
}

/// Waits for the result of the drill, and prints each stage on stderr.
async fn until_result(
    session: &Session,
    created: &Restore,
    timeout: GoDuration,
    terminal: &mut Terminal,
) -> Result<(Exit, Option<Restore>), Problem> {
    let name = created.name_any();
    let mut shown = String::new();
    let waited = poll(
        session,
        terminal,
        timeout.as_std(),
        async |terminal: &mut Terminal| {
            let now = optional(session.get::<Restore>(&name).await)?;
            let same = now.filter(|now| now.metadata.uid == created.metadata.uid);
            let Some(restore) = same else {
                let message = format!("restore {name:?} was deleted while it was waited for");
                return Err(Problem::other(message));
            };
            let stage = view::drill::stage(&restore).unwrap_or_default();
            let is_new = stage != shown;
            if is_new {
                terminal.say(&format!("drill {name}: {stage}"));
                shown = stage;
            }
            Ok(match DrillState::of(&restore).result {
                Some(_) => Look::Found(restore),
                None if is_new => Look::Changed,
                None => Look::Same,
            })
        },
    )
    .await?;
    match waited {
        Ok(restore) => {
            let result = DrillState::of(&restore).result;
            let has_failed = result.is_none_or(|result| result.has_failed());
            Ok((Exit::of_end(!has_failed), Some(restore)))
        }
        Err(exit) => {
            let what = format!("drill {name} has no result");
            terminal.say(&in_vain(exit, &what, timeout));
            terminal.say(&format!("  {} describe {name}", Restore::COMMAND));
            Ok((exit, None))
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(words: &[&str]) -> DrillArgs {
        let command = ["kubectl backup", "drill", "nightly"];
        let cli = Cli::try_parse_from(command.iter().chain(words)).unwrap();
        match cli.command {
            Command::Drill(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_go_over_the_settings() {
        let settings: DrillSettings = serde_json::from_value(json!({
            "quota": { "pods": "5", "requests.cpu": "1" }, "readyTimeout": "1m", "additionalResources": ["a.b"],
            "requireReady": true,
            "checks": [{ "name": "a", "namespace": "shop", "resource": "pods", "expression": "true" }],
        }))
        .unwrap();
        let filled = |words: &[&str]| {
            let mut settings = settings.clone();
            fill(&mut settings, &args(words).flags);
            settings
        };
        assert_eq!(filled(&[]), settings);
        let words = [
            "--quota=pods=9",
            "--volumes",
            "--hooks",
            "--require-ready=false",
            "--ready-timeout=2m",
            "--additional-resources=c.d",
            "--check={name: a, namespace: db, resource: pods, expression: 'false'}",
            "--check={name: b, namespace: db, job: {}}",
        ];
        let expected = json!({
            "quota": { "pods": "9", "requests.cpu": "1" }, "readyTimeout": "2m0s", "additionalResources": ["c.d"],
            "volumes": true, "hooks": true,
            "checks": [{ "name": "a", "namespace": "db", "resource": "pods", "expression": "false" },
                { "name": "b", "namespace": "db", "job": {} }],
        });
        assert_eq!(serde_json::to_value(filled(&words)).unwrap(), expected);
    }

    #[test]
    fn a_backup_or_a_schedule_is_named() {
        for (line, is_valid) in [
            ("nightly", true),
            ("--schedule=nightly", true),
            ("", false),
            ("a --schedule=b", false),
        ] {
            let words = ["kubectl backup", "drill"].into_iter();
            let line = line.split(' ').filter(|word| !word.is_empty());
            let parsed = Cli::try_parse_from(words.chain(line));
            assert_eq!(parsed.is_ok(), is_valid);
        }
    }
}

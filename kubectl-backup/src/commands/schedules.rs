//! `schedules`: backups at times.

use backup_core::{
    api::{Backup, Schedule},
    cron::{Cron, Dialect},
    labels::{SCHEDULE_NAME, valid_value},
    validate::Finding,
};
use jiff::{Timestamp, tz::TimeZone};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
    core::DeserializeGuard,
};
use serde_json::{Value, json};

use super::{
    create::{self, Connection, Made, New},
    delete, get,
    listed::Listed,
    names,
    part::part,
    spec,
};
use crate::{
    Terminal,
    cli::{
        ChosenArgs, CreateArgs, GlobalArgs, Output,
        schedules::{ScheduleArgs, ScheduleCreateArgs, ScheduleDeleteArgs, SchedulesCommand, TriggerArgs},
    },
    client::Session,
    error::{Exit, Problem},
    print::{json, schedule as print, style::Style},
    view::{part::Part, schedule as view},
};

/// Backups read at most: a screen shows a few.
const FEW: u32 = 500;

impl Listed for Schedule {
    const KIND: &'static str = "schedule";
    const PLURAL: &'static str = "schedules";
    const HEADERS: &'static [&'static str] = &view::HEADERS;
    const NARROW: usize = view::NARROW;
    const STATUS_COLUMN: usize = 1;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        view::row(self, now, style)
    }
}

/// `schedules`
pub async fn run(
    global: &GlobalArgs,
    command: SchedulesCommand,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    match command {
        SchedulesCommand::Get(args) => get::run::<Schedule>(global, args, terminal).await,
        SchedulesCommand::Describe(args) => describe(global, &args, terminal).await,
        SchedulesCommand::Create(args) => Box::pin(make(global, *args, terminal)).await,
        SchedulesCommand::Pause(args) => {
            change(global, &args.chosen, &json!({"paused": true}), "paused", terminal).await
        }
        SchedulesCommand::Unpause(args) => {
            let spec = if args.skip_immediately {
                json!({"paused": false, "skipImmediately": true})
            } else {
                json!({"paused": false})
            };
            change(global, &args.chosen, &spec, "unpaused", terminal).await
        }
        SchedulesCommand::Trigger(args) => Box::pin(trigger(global, args, terminal)).await,
        SchedulesCommand::Delete(args) => remove(global, &args, terminal).await,
    }
}

async fn describe(
    global: &GlobalArgs,
    args: &ScheduleArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let name = &args.name;
    let schedule: Schedule =
        session.call(Schedule::about("get", name), session.api::<Schedule>().get(name)).await?;
    let view = view::describe(&schedule, backups(&session, name).await, terminal.now());
    let text = match args.output {
        Some(form) => json::object(&view, Output::from(form))?,
        None => print::text(&view, terminal.now(), terminal.out_style())?,
    };
    terminal.data(&text)?;
    Ok(Exit::Done)
}

/// Its backups, by their label; those that can't be read are left out here.
pub(super) async fn backups(session: &Session, name: &str) -> Part<Vec<Backup>> {
    let api: Api<DeserializeGuard<Backup>> = session.api();
    let params = ListParams::default().labels(&format!("{SCHEDULE_NAME}={}", valid_value(name))).limit(FEW);
    part(async {
        let page = session.call(Backup::about("list", ""), api.list(&params)).await?;
        Ok(page.items.into_iter().filter_map(|item| item.0.ok()).collect())
    })
    .await
}

async fn make(
    global: &GlobalArgs,
    args: ScheduleCreateArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let mut schedule: Schedule = spec::start(&args.file, terminal)?;
    if args.name.is_some() {
        schedule.metadata.name.clone_from(&args.name);
    }
    if schedule.metadata.name.is_none() {
        return Err(Problem::Usage {
            message: "the schedule has no name".to_owned(),
            remedy: Some("kubectl backup schedules create NAME --schedule=CRON".to_owned()),
        });
    }
    spec::describe_object(&mut schedule.metadata, &args.object);
    spec::fill(&mut schedule.spec.template, &args.template);
    if let Some(cron) = &args.schedule {
        schedule.spec.schedule.clone_from(cron);
    }
    schedule.spec.paused |= args.paused;
    spec::over(&mut schedule.spec.skip_immediately, args.skip_immediately.as_ref());
    let owner = args.use_owner_references_in_backup;
    spec::over(&mut schedule.spec.use_owner_references_in_backup, owner.as_ref());
    let findings = findings(&schedule);
    let new = New { findings, dry_run: args.dry_run, output: args.output, retry_for: None };
    match create::make(schedule, &new, &mut Connection::new(global), terminal).await? {
        Made::Dry(schedule, how) => create::print(&schedule, args.output, how, terminal)?,
        Made::Stored(schedule) => {
            create::print(&schedule, args.output, "", terminal)?;
            if args.output.is_none() {
                let name = schedule.metadata.name.unwrap_or_default();
                terminal.say(&format!("When it runs: kubectl backup schedules describe {name}"));
            }
        }
    }
    Ok(Exit::Done)
}

/// An expression that one of Velero's libraries reads is left to the server.
fn findings(schedule: &Schedule) -> Vec<Finding> {
    let mut findings: Vec<Finding> = backup_core::validate::backup(&schedule.spec.template)
        .into_iter()
        .map(|one| Finding::new(one.field.replacen("spec", "spec.template", 1), one.message))
        .collect();
    let read = |dialect| Cron::parse(&schedule.spec.schedule, dialect, &TimeZone::UTC).err();
    if let (Some(why), Some(_)) = (read(Dialect::Robfig), read(Dialect::Netresearch)) {
        findings.push(Finding::new("spec.schedule", why.to_string()));
    }
    findings
}

/// Idempotent, and for this very object only: the API server refuses a patch with another uid.
async fn change(
    global: &GlobalArgs,
    args: &ChosenArgs,
    spec: &Value,
    done: &str,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let all = names::chosen::<Schedule>(&session, args, terminal).await?;
    names::each(&session, &all, terminal, async |session: &Session, name: &str, terminal: &mut Terminal| {
        let api = session.api::<Schedule>();
        let found = session.call(Schedule::about("get", name), api.get_metadata(name)).await?;
        let patch = Patch::Merge(json!({"metadata": {"uid": found.metadata.uid}, "spec": spec}));
        let params =
            PatchParams { field_manager: Some("kubectl-backup".to_owned()), ..PatchParams::default() };
        session.call(Schedule::about("patch", name), api.patch_metadata(name, &params, &patch)).await?;
        terminal.data(&format!("schedule.velero.io/{name} {done}\n"))?;
        Ok(Exit::Done)
    })
    .await
}

async fn trigger(global: &GlobalArgs, args: TriggerArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let create = CreateArgs {
        from_schedule: Some(args.name),
        output: args.output,
        wait: args.wait,
        ..CreateArgs::default()
    };
    Box::pin(create::run(global, create, terminal)).await
}

/// The backups stay, unless the schedule owns them.
async fn remove(
    global: &GlobalArgs,
    args: &ScheduleDeleteArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let what = "; backups stay, unless useOwnerReferencesInBackup is set";
    delete::each::<Schedule, _>(
        global,
        &args.chosen,
        args.yes,
        what,
        terminal,
        async |session: &Session, name: &str, terminal: &mut Terminal| {
            let api = session.api::<Schedule>();
            let found = session.call(Schedule::about("get", name), api.get_metadata(name)).await?;
            // Only the object that was asked about: another of the same name stays (precondition on the uid).
            let preconditions = Preconditions { uid: found.metadata.uid, resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match session.call(Schedule::about("delete", name), api.delete(name, &params)).await {
                Ok(_) | Err(Problem::NotFound { .. }) => {}
                Err(problem) => return Err(problem),
            }
            terminal.data(&format!("schedule.velero.io/{name} deleted\n"))?;
            Ok(Exit::Done)
        },
    )
    .await
}

//! `schedules`: backups at scheduled times.

use backup_core::{
    api::{
        BackupSpec,
        schedule::{KeepRules, ScheduleSpec, ScheduledCopy, ScheduledDrill},
    },
    cron::Dialect,
    keep::Rule,
    labels::{SCHEDULE_NAME, valid_value},
    validate,
};
use serde_json::Map;

use super::{
    absent_namespaces::absent,
    create::{self, Connection, CreationOutcome, SpecErrors},
    delete, drill, get,
    locations::change::patch_spec,
    prelude::*,
    retained, selection, spec,
};
use crate::{
    cli::{
        AftercareFlags, CreateArgs, CreationArgs, DeleteArgs, DescribeOneArgs, KeepArgs, KeepFlags,
        ScheduleCreateArgs, ScheduleSetArgs, ScheduledDrillFlags, SchedulesCommand, SelectionArgs,
        TriggerArgs,
    },
    view::{keep::PlannedSchedule, schedule as view},
};

pub(crate) async fn run(command: SchedulesCommand, terminal: &mut Terminal) -> CommandResult {
    match command {
        SchedulesCommand::Get(args) => get::run::<Schedule>(args, terminal).await,
        SchedulesCommand::Describe(args) => describe(&args, terminal).await,
        SchedulesCommand::Create(args) => Box::pin(make(*args, terminal)).await,
        SchedulesCommand::Set(args) => Box::pin(set(&args, terminal)).await,
        SchedulesCommand::Keep(args) => Box::pin(keep(args, terminal)).await,
        SchedulesCommand::Pause(args) => {
            change(&args, "pause", &json!({"paused": true}), terminal).await
        }
        SchedulesCommand::Unpause(args) => {
            let spec = if args.skip_immediately {
                json!({"paused": false, "skipImmediately": true})
            } else {
                json!({"paused": false})
            };
            change(&args.selection, "unpause", &spec, terminal).await
        }
        SchedulesCommand::Trigger(args) => Box::pin(trigger(args, terminal)).await,
        SchedulesCommand::Delete(deletion) => {
            let what = "; backups stay, unless useOwnerReferencesInBackup is set";
            let args = DeleteArgs {
                deletion,
                wait: false,
                timeout: GoDuration::default(),
            };
            delete::objects::<Schedule>(args, async |_, _| what.to_owned(), terminal).await
        }
    }
}

async fn describe(args: &DescribeOneArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let name = &args.name;
    let schedule = get_named::<Schedule>(&session, "describe", name).await?;
    let (backups, places, absent) = futures::join!(
        backups(&session, name),
        get::places(&session),
        absent(&session, &schedule.spec.template.included_namespaces)
    );
    let view = view::describe(&schedule, backups, &places, &absent, terminal.now());
    json::show(
        "ScheduleDescription",
        &view,
        args.document,
        terminal,
        |now, style| view::text(&view, now, style),
    )?;
    Ok(Exit::Done)
}

/// The schedule's backups, found by label; backups that cannot be decoded are left out.
pub(super) async fn backups(session: &Session, name: &str) -> FetchResult<Vec<Backup>> {
    let params = ListParams::default().labels(&format!("{SCHEDULE_NAME}={}", valid_value(name)));
    // Reads all pages: the list is sorted by name, so the newest backups come last.
    fetched(session, session.list_readable(params, Some)).await
}

async fn make(args: ScheduleCreateArgs, terminal: &mut Terminal) -> CommandResult {
    let mut schedule: Schedule = spec::start(&args.file, terminal)?;
    if args.name.is_some() {
        schedule.metadata.name.clone_from(&args.name);
    }
    if schedule.metadata.name.is_none() {
        return Err(Problem::usage("the schedule has no name")
            .with_remedy("kubectl backup schedules create NAME --schedule=CRON"));
    }
    spec::describe_object(&mut schedule.metadata, &args.object);
    spec::fill(&mut schedule.spec.template, &args.template);
    care_for(&mut schedule.spec, &args.aftercare);
    spec::explain_zero_ttl(&args.template, terminal);
    if let Some(cron) = &args.schedule {
        schedule.spec.schedule.clone_from(cron);
    }
    schedule.spec.paused |= args.paused;
    spec::over(
        &mut schedule.spec.skip_immediately,
        args.skip_immediately.as_ref(),
    );
    let owner = args.use_owner_references_in_backup;
    spec::over(
        &mut schedule.spec.use_owner_references_in_backup,
        owner.as_ref(),
    );
    keep_by(&mut schedule.spec.keep, &args.keep);
    drill_by(&mut schedule.spec.drill, &args.drill);
    let checked = checked(&schedule);
    let creation = CreationArgs {
        dry_run: args.dry_run,
        output: args.output,
        ..CreationArgs::default()
    };
    let connection = Connection::new();
    match create::make(schedule, &checked, &creation, &connection, terminal).await? {
        CreationOutcome::Dry(schedule, how) => {
            create::print(&schedule, args.output, how, terminal)?;
        }
        CreationOutcome::Stored(schedule) => {
            create::print(&schedule, args.output, "", terminal)?;
            let session = connection.session(terminal).await?;
            let places = get::places(session).await;
            let obstacle = view::Obstacle::of(&schedule, Some(&places), terminal.now());
            if let Some(obstacle) = obstacle.filter(|obstacle| *obstacle != view::Obstacle::Paused)
            {
                terminal.say(&format!(
                    "warning: schedule {} {obstacle}",
                    schedule.name_any()
                ));
            }
            if args.output.is_none() {
                let name = schedule.metadata.name.unwrap_or_default();
                terminal.say(&format!(
                    "When it runs: kubectl backup schedules describe {name}"
                ));
            }
        }
    }
    Ok(Exit::Done)
}

/// Changes the fields that flags name. Other fields keep their value, even if another client
/// changes it in the meantime.
async fn set(args: &ScheduleSetArgs, terminal: &mut Terminal) -> CommandResult {
    let mut flags = BackupSpec::default();
    spec::fill(&mut flags, &args.template);
    let changes_rules = has_rules(&args.keep);
    if args.aftercare == AftercareFlags::default()
        && flags == BackupSpec::default()
        && args.schedule.is_none()
        && args.use_owner_references_in_backup.is_none()
        && !changes_rules
        && args.drill == ScheduledDrillFlags::default()
    {
        return Err(Problem::usage("nothing is to be changed")
            .with_remedy("kubectl backup schedules set --help"));
    }
    let session = Session::connect(terminal).await?;
    let name = &args.name;
    let before = get_named::<Schedule>(&session, "set", name).await?;
    let mut after = before.clone();
    spec::fill(&mut after.spec.template, &args.template);
    care_for(&mut after.spec, &args.aftercare);
    spec::explain_zero_ttl(&args.template, terminal);
    if let Some(cron) = &args.schedule {
        after.spec.schedule.clone_from(cron);
    }
    let owner = args.use_owner_references_in_backup;
    spec::over(
        &mut after.spec.use_owner_references_in_backup,
        owner.as_ref(),
    );
    keep_by(&mut after.spec.keep, &args.keep);
    drill_by(&mut after.spec.drill, &args.drill);
    create::check_invalid(
        &format!("schedule {name:?} would not be valid"),
        &checked(&after),
    )?;
    let changes = changes(&spec_value(&before)?, &spec_value(&after)?);
    if changes.is_empty() {
        terminal.data(&format!("{} unchanged\n", full_name::<Schedule>(name)))?;
        return Ok(Exit::Done);
    }
    patch_spec::<Schedule>(&session, name, &changes, terminal).await?;
    terminal.say(&format!(
        "Backups that exist stay as they are. When it runs: kubectl backup schedules describe {name}"
    ));
    if changes_rules {
        terminal.say(&format!(
            "How long they are kept has changed: kubectl backup schedules keep {name} --dry-run"
        ));
    }
    Ok(Exit::Done)
}

/// Changes the verifications and copies of a schedule's backups that flags name. A time of 0 between
/// verifications ends them; a copy in a location that is named again has the same rules as before.
fn care_for(spec: &mut ScheduleSpec, flags: &AftercareFlags) {
    if flags.verify_every.is_some_and(GoDuration::is_zero) {
        spec.verify = None;
    } else if flags.verify_every.is_some() || flags.verify_which.is_some() {
        let verify = spec.verify.get_or_insert_default();
        spec::over(&mut verify.every, flags.verify_every.as_ref());
        spec::over(&mut verify.which, flags.verify_which.as_ref());
    }
    if flags.copy_to.is_empty() {
        return;
    }
    let before = std::mem::take(&mut spec.copies);
    spec.copies = flags
        .copy_to
        .iter()
        .map(|copy| {
            let same = before.iter().find(|one| one.copy.location == copy.location);
            ScheduledCopy {
                copy: copy.clone(),
                keep: same.and_then(|one| one.keep.clone()),
            }
        })
        .collect();
}

fn has_rules(flags: &KeepFlags) -> bool {
    Rule::ALL.iter().any(|rule| flags.of(*rule).is_some())
}

/// Changes the rules that flags name. Without any rule left there are none.
fn keep_by(rules: &mut Option<KeepRules>, flags: &KeepFlags) {
    let given = Rule::ALL
        .into_iter()
        .filter_map(|rule| Some((rule, flags.of(rule)?)));
    let mut changed = rules.clone().unwrap_or_default();
    let mut is_changed = false;
    for (rule, periods) in given {
        *rule.periods_mut(&mut changed) = periods;
        is_changed = true;
    }
    if is_changed {
        *rules = Some(changed).filter(|rules| *rules != KeepRules::default());
    }
}

/// Changes the fields of a schedule's drills that flags name. A time of 0 between drills ends them.
fn drill_by(drill: &mut Option<ScheduledDrill>, flags: &ScheduledDrillFlags) {
    if flags.every.is_some_and(GoDuration::is_zero) {
        *drill = None;
        return;
    }
    if *flags == ScheduledDrillFlags::default() {
        return;
    }
    let changed = drill.get_or_insert_default();
    spec::over(&mut changed.every, flags.every.as_ref());
    spec::over(&mut changed.which, flags.which.as_ref());
    spec::set(&mut changed.included_namespaces, &flags.include_namespaces);
    drill::fill(&mut changed.settings, &flags.settings);
}

/// Sets rules, or shows what they would keep. Without rules among the flags, those of the schedule
/// are shown.
async fn keep(args: KeepArgs, terminal: &mut Terminal) -> CommandResult {
    let KeepArgs {
        name,
        keep,
        dry_run,
        document,
    } = args;
    if !dry_run && has_rules(&keep) {
        if document.output.is_some() {
            return Err(
                Problem::usage("-o shows what would be kept, and takes --dry-run").with_remedy(
                    format!("kubectl backup schedules keep {name} --dry-run -o json"),
                ),
            );
        }
        let set = ScheduleSetArgs {
            name,
            keep,
            ..ScheduleSetArgs::default()
        };
        return Box::pin(self::set(&set, terminal)).await;
    }
    let session = Session::connect(terminal).await?;
    let mut schedule = get_named::<Schedule>(&session, "keep", &name).await?;
    keep_by(&mut schedule.spec.keep, &keep);
    let (backups, places) = futures::join!(retained::facts(&session), get::places(&session));
    let backups = backups?;
    let planned = PlannedSchedule {
        schedule: &schedule,
        backups: &backups,
        places: &places,
    };
    let rules = schedule.spec.keep.clone().unwrap_or_default();
    let plan = planned.plan(&rules, terminal.now());
    json::show("KeepPlan", &plan, document, terminal, |now, style| {
        plan.text(now, style)
    })?;
    Ok(Exit::Done)
}

fn spec_value(schedule: &Schedule) -> Result<Value, Problem> {
    serde_json::to_value(&schedule.spec).map_err(|error| Problem::other(error.to_string()))
}

/// The merge patch (RFC 7386) that turns `before` into `after`.
fn changes(before: &Value, after: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().cloned().unwrap_or_default();
    let gone = before
        .keys()
        .filter(|key| !after.contains_key(*key))
        .map(|key| (key.clone(), Value::Null));
    let mut changed: Map<String, Value> = gone.collect();
    for (key, value) in after {
        let earlier = before.get(&key);
        if earlier == Some(&value) {
            continue;
        }
        let change = if let Some(earlier) = earlier
            && earlier.is_object()
            && value.is_object()
        {
            Value::Object(changes(earlier, &value))
        } else {
            value
        };
        changed.insert(key, change);
    }
    changed
}

/// An expression that at least one of Velero's libraries accepts is left to the server.
fn checked(schedule: &Schedule) -> SpecErrors {
    let invalid = validate::schedule(&schedule.spec, &Dialect::ALL);
    SpecErrors::new(
        invalid,
        validate::engine_schedule(&schedule.spec, &Dialect::ALL),
    )
}

async fn change(
    args: &SelectionArgs,
    verb: &str,
    spec: &Value,
    terminal: &mut Terminal,
) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let all = selection::selected::<Schedule>(&session, args, terminal).await?;
    selection::each(
        &all,
        terminal,
        async |name: &str, terminal: &mut Terminal| {
            let meta = get_named_metadata::<Schedule>(&session, verb, name).await?;
            session
                .patch::<Schedule>(name, meta.uid.as_ref(), json!({ "spec": spec }))
                .await?;
            terminal.data(&format!("{} {verb}d\n", full_name::<Schedule>(name)))?;
            Ok(Exit::Done)
        },
    )
    .await
}

async fn trigger(args: TriggerArgs, terminal: &mut Terminal) -> CommandResult {
    let create = CreateArgs {
        from_schedule: Some(args.name),
        creation: CreationArgs {
            output: args.output,
            wait: args.wait,
            ..CreationArgs::default()
        },
        ..CreateArgs::default()
    };
    Box::pin(create::run(create, terminal)).await
}

#[cfg(test)]
mod tests {
    use backup_core::api::schedule::BackupChoice;
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn a_merge_patch_has_what_changed_and_nothing_else() {
        let before = json!({ "schedule": "@daily", "paused": false,
            "template": { "ttl": "1h", "labelSelector": { "matchLabels": { "a": "1" } }, "includedNamespaces": ["a"] } });
        let after = json!({ "schedule": "@daily", "paused": false,
            "template": { "ttl": "2h", "includedNamespaces": ["a", "b"], "snapshotVolumes": true } });
        let patch = changes(&before, &after);
        let expected = json!({ "template": { "ttl": "2h", "labelSelector": null, "includedNamespaces": ["a", "b"],
            "snapshotVolumes": true } });
        assert_eq!(Value::Object(patch.clone()), expected);
        let mut merged = before.clone();
        json_patch::merge(&mut merged, &Value::Object(patch));
        assert_eq!(merged, after);
        assert!(changes(&before, &before).is_empty());
    }

    /// The drills of a schedule after `schedules set` with these flags.
    fn drills_by(flags: &[&str], before: &Value) -> Value {
        let command = ["kubectl backup", "schedules", "set", "nightly"];
        let cli = Cli::try_parse_from(command.iter().chain(flags)).unwrap();
        let Command::Schedules(group) = cli.command else {
            panic!("{flags:?}");
        };
        let SchedulesCommand::Set(args) = group.or_list(SchedulesCommand::Get) else {
            panic!("{flags:?}");
        };
        let mut drill = serde_json::from_value(before.clone()).unwrap();
        drill_by(&mut drill, &args.drill);
        serde_json::to_value(drill).unwrap()
    }

    #[test]
    fn flags_change_the_drills_that_they_name() {
        let before = json!({ "every": "24h0m0s", "which": "all", "includedNamespaces": ["shop"], "quota": { "pods": "5" },
            "checks": [{ "name": "a", "namespace": "shop", "resource": "pods", "expression": "true" }] });
        let merged = |change: Value| {
            let mut merged = before.clone();
            json_patch::merge(&mut merged, &change);
            merged
        };
        let cases: [(&[&str], Value); 5] = [
            (&[], json!({})),
            (&["--drill-every=12h"], json!({ "every": "12h0m0s" })),
            (
                &["--drill-which=random", "--drill-include-namespaces=shop,db"],
                json!({ "which": "random", "includedNamespaces": ["shop", "db"] }),
            ),
            (
                &[
                    "--drill-quota=requests.cpu=4",
                    "--drill-volumes",
                    "--drill-hooks",
                    "--drill-require-ready",
                    "--drill-ready-timeout=1m",
                ],
                json!({ "quota": { "requests.cpu": "4" }, "volumes": true, "hooks": true, "requireReady": true, "readyTimeout": "1m0s" }),
            ),
            (
                &[
                    "--drill-additional-resources=a.b",
                    "--drill-check={name: a, namespace: shop, job: {}}",
                ],
                json!({ "additionalResources": ["a.b"], "checks": [{ "name": "a", "namespace": "shop", "job": {} }] }),
            ),
        ];
        for (flags, change) in cases {
            assert_eq!(drills_by(flags, &before), merged(change), "{flags:?}");
        }
        assert_eq!(drills_by(&["--drill-every=0"], &before), Value::Null);
        assert_eq!(drills_by(&[], &Value::Null), Value::Null);
        let new = json!({ "every": "24h0m0s", "requireReady": true });
        let flags = ["--drill-every=1d", "--drill-require-ready"];
        assert_eq!(drills_by(&flags, &Value::Null), new);
    }

    #[test]
    fn every_choice_of_a_backup_has_its_word() {
        for which in BackupChoice::KNOWN {
            let flag = format!("--drill-which={which}");
            assert_eq!(drills_by(&[&flag], &Value::Null)["which"], *which);
        }
    }
}

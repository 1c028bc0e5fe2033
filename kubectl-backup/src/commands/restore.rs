//! `restore create`; the word `create` may be omitted.

use std::collections::BTreeSet;

use backup_core::{
    api::{RestoreSpec, restore::RestoreStatusSpec},
    labels::{SCHEDULE_NAME, valid_value},
    names,
    phase::Stage,
    selection::ObjectName,
    validate,
};

use super::{
    create::{Connection, CreationOutcome, SpecErrors, finish, make},
    plan,
    prelude::*,
    prune,
    spec::{self, config_map, over, select, set},
};
use crate::{
    cli::{CreationArgs, DryRun, FileArgs, Output, RestoreCreateArgs},
    view::verdict,
};

pub(crate) async fn run(
    positional: Option<String>,
    mut args: RestoreCreateArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    if args.plan {
        if args.creation.output == Some(Output::Name) {
            return Err(Problem::usage(
                "--plan has no names: expected -o json or yaml",
            ));
        }
        args.creation.dry_run = Some(DryRun::Server);
    }
    let connection = Connection::new();
    if let Some(backup) = &args.source.from_backup
        && args.creation.dry_run != Some(DryRun::Client)
    {
        check_backup(backup, connection.session(terminal).await?).await?;
    }
    let file = FileArgs {
        file: args.source.file.clone(),
    };
    let mut restore: Restore = spec::start(&file, terminal)?;
    let source = args
        .source
        .from_backup
        .as_deref()
        .or(args.source.from_schedule.as_deref())
        .unwrap_or("restore");
    let name = positional
        .or_else(|| args.name.clone())
        .or(restore.metadata.name.take());
    restore.metadata.name = Some(name.unwrap_or_else(|| names::unnamed(source, terminal.now())));
    spec::describe_object(&mut restore.metadata, &args.creation.object);
    fill(&mut restore.spec, &args);
    if let Some(schedule) = &args.source.from_schedule
        && (args.allow_partially_failed || args.creation.dry_run != Some(DryRun::Client))
    {
        let session = connection.session(terminal).await?;
        let newest = latest(schedule, args.allow_partially_failed, session).await;
        // For Completed backups the server itself selects the newest, also for namespace owners,
        // who may not list backups.
        if args.allow_partially_failed {
            restore.spec.backup_name = Some(newest?);
            restore.spec.schedule_name = None;
        } else if let Err(problem) = newest
            && problem.kind != ProblemKind::Forbidden
        {
            return Err(problem);
        }
    }
    let checked = SpecErrors::new(
        validate::restore(&restore.spec),
        validate::engine_restore(&restore.spec),
    );
    let is_planned = args.creation.output.is_none() || args.plan;
    if args.creation.dry_run == Some(DryRun::Server) && is_planned {
        let made = make(restore, &checked, &args.creation, &connection, terminal).await?;
        let (CreationOutcome::Dry(restore, _) | CreationOutcome::Stored(restore)) = made;
        let session = connection.session(terminal).await?;
        return plan::run(session, &restore, args.creation.output, terminal).await;
    }
    if args.creation.dry_run.is_none() {
        let spec = &restore.spec;
        if !spec.included_objects.is_empty() || spec.prune == Some(true) {
            keeps_fields(&restore, &checked, &args.creation, &connection, terminal).await?;
        }
        if !prune::confirmed(spec, &args.yes_prune, terminal)? {
            terminal.say("no restore was created");
            return Ok(Exit::Failed);
        }
    }
    Box::pin(finish(
        restore,
        &checked,
        &args.creation,
        &connection,
        terminal,
    ))
    .await
}

/// Velero's definition has neither `includedObjects` nor `prune`: an API server would drop the
/// field, and the restore would cover far more objects, or remove none.
async fn keeps_fields(
    restore: &Restore,
    checked: &SpecErrors,
    creation: &CreationArgs,
    connection: &Connection,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let kept = tried(restore, checked, creation, connection, terminal).await?;
    let (field, consequence) = if kept.spec.included_objects != restore.spec.included_objects {
        (
            "spec.includedObjects",
            "all of the namespaces would be restored",
        )
    } else if kept.spec.prune != restore.spec.prune {
        ("spec.prune", "nothing would be removed")
    } else {
        return Ok(());
    };
    let message = format!(
        "the definition of restores.velero.io in this cluster does not know {field}, so {consequence}"
    );
    Err(Problem::other(message).with_remedy(
        "Bring the definitions up to date: `kubectl backup upgrade`. That of a Velero server cannot do it.",
    ))
}

/// What a server would store of a restore.
pub(super) async fn tried(
    restore: &Restore,
    checked: &SpecErrors,
    creation: &CreationArgs,
    connection: &Connection,
    terminal: &mut Terminal,
) -> Result<Restore, Problem> {
    let tried = CreationArgs {
        dry_run: Some(DryRun::Server),
        retry_for: creation.retry_for,
        ..CreationArgs::default()
    };
    let made = Box::pin(make(restore.clone(), checked, &tried, connection, terminal)).await?;
    let (CreationOutcome::Dry(kept, _) | CreationOutcome::Stored(kept)) = made;
    Ok(kept)
}

/// Reports at once what the server would report later. A backup in an unknown phase is left to the
/// server.
async fn check_backup(name: &str, session: &Session) -> Result<(), Problem> {
    let backup = match get_named::<Backup>(session, "restore", name).await {
        Err(problem)
            if problem.is_not_found()
                && optional(session.get_metadata::<Schedule>(name).await)?.is_some() =>
        {
            return Err(problem.with_remedy(format!(
                "There is a schedule of this name; of its newest backup: kubectl backup restore --from-schedule={name}"
            )));
        }
        // Of a backup of many namespaces, owners of one restore that without seeing the others.
        Err(Problem {
            kind: ProblemKind::Forbidden | ProblemKind::Refused { .. },
            ..
        }) => return Ok(()),
        found => found?,
    };
    can_be_restored(&backup)
}

/// Fails if the backup's phase says that it cannot be restored, or not yet.
pub(super) fn can_be_restored(backup: &Backup) -> Result<(), Problem> {
    let name = backup.name_any();
    let status = backup.status();
    match status.stage {
        Stage::Completed | Stage::PartiallyFailed | Stage::Unknown => Ok(()),
        stage if stage.is_terminal() => {
            let why = verdict(backup, jiff::Timestamp::UNIX_EPOCH).sentence;
            Err(
                Problem::other(format!("backup {name:?} cannot be restored: {why}"))
                    .with_remedy("`kubectl backup get` lists the others."),
            )
        }
        _ => Err(Problem::other(format!(
            "backup {name:?} cannot be restored yet: it is {}",
            status.phase
        ))
        .with_remedy(format!("Wait for its end: kubectl backup describe {name}"))),
    }
}

/// The newest Completed backup of a schedule (or PartiallyFailed, if allowed), selected as by
/// velero's own command. The schedule's backups may exist without it.
pub(super) async fn latest(
    schedule: &str,
    allow_partially: bool,
    session: &Session,
) -> Result<String, Problem> {
    let params =
        ListParams::default().labels(&format!("{SCHEDULE_NAME}={}", valid_value(schedule)));
    let ended = session
        .list_readable(params, |backup: Backup| {
            let status = backup.status();
            let is_good = status.stage == Stage::Completed || allow_partially && status.is_whole();
            is_good.then(|| (status.started, backup.name_any()))
        })
        .await?;
    if let Some((_, name)) = ended.into_iter().max() {
        return Ok(name);
    }
    get_named::<Schedule>(session, "restore", schedule).await?;
    let wanted = if allow_partially {
        "Completed or PartiallyFailed"
    } else {
        "Completed"
    };
    Err(Problem::other(format!(
        "schedule {schedule:?} has no backup that is {wanted}"
    ))
    .with_remedy(format!("kubectl backup schedules describe {schedule}")))
}

fn fill(spec: &mut RestoreSpec, args: &RestoreCreateArgs) {
    over(&mut spec.backup_name, args.source.from_backup.as_ref());
    over(&mut spec.schedule_name, args.source.from_schedule.as_ref());
    let items = &args.items;
    set(&mut spec.included_namespaces, &items.include_namespaces);
    set(&mut spec.excluded_namespaces, &items.exclude_namespaces);
    set(&mut spec.included_resources, &items.include_resources);
    set(&mut spec.excluded_resources, &items.exclude_resources);
    over(
        &mut spec.include_cluster_resources,
        items.include_cluster_resources.as_ref(),
    );
    select(
        &mut spec.label_selector,
        &mut spec.or_label_selectors,
        items,
    );
    if !args.objects.is_empty() {
        select_objects(spec, &args.objects);
    }
    if !args.namespace_mappings.is_empty() {
        spec.namespace_mapping = args.namespace_mappings.iter().cloned().collect();
    }
    if !args.hooks.is_empty() {
        spec.hooks
            .get_or_insert_default()
            .resources
            .clone_from(&args.hooks);
    }
    over(&mut spec.restore_pvs, args.restore_volumes.as_ref());
    if !args.status_include_resources.is_empty() || !args.status_exclude_resources.is_empty() {
        spec.restore_status = Some(RestoreStatusSpec {
            included_resources: args.status_include_resources.clone(),
            excluded_resources: args.status_exclude_resources.clone(),
            ..RestoreStatusSpec::default()
        });
    }
    over(
        &mut spec.preserve_node_ports,
        args.preserve_nodeports.as_ref(),
    );
    over(
        &mut spec.existing_resource_policy,
        args.existing_resource_policy.as_ref(),
    );
    over(&mut spec.prune, args.prune.as_ref());
    over(
        &mut spec.existing_volume_data_policy,
        args.existing_volume_data_policy.as_ref(),
    );
    over(
        &mut spec.item_operation_timeout,
        args.item_operation_timeout.as_ref(),
    );
    over(
        &mut spec.resource_modifier,
        args.resource_modifier_configmap
            .as_deref()
            .map(config_map)
            .as_ref(),
    );
    over(
        &mut spec.resource_policy,
        args.resource_policies_configmap
            .as_deref()
            .map(config_map)
            .as_ref(),
    );
    over(
        &mut spec.skip_default_resource_modifier,
        args.skip_default_resource_modifier.as_ref(),
    );
    if args.write_sparse_files.is_some()
        || args.parallel_files_download.is_some()
        || args.delete_extra_files.is_some()
    {
        let config = spec.uploader_config.get_or_insert_default();
        over(
            &mut config.write_sparse_files,
            args.write_sparse_files.as_ref(),
        );
        over(
            &mut config.delete_extra_files,
            args.delete_extra_files.as_ref(),
        );
        config.parallel_files_download = args
            .parallel_files_download
            .unwrap_or(config.parallel_files_download);
    }
}

/// Restricts the spec to these objects and their namespaces.
fn select_objects(spec: &mut RestoreSpec, objects: &[String]) {
    let names: Vec<ObjectName<'_>> = objects
        .iter()
        .filter_map(|text| ObjectName::parse(text))
        .collect();
    let namespaces: BTreeSet<&str> = names.iter().filter_map(|name| name.namespace).collect();
    spec.included_namespaces = namespaces.into_iter().map(str::to_owned).collect();
    if names.iter().any(|name| name.namespace.is_none()) {
        spec.include_cluster_resources.get_or_insert(true);
    }
    spec.included_objects = objects.to_vec();
}

//! `restore create`, also without the word `create`.

use backup_core::{
    api::{Backup, BackupPhase, Restore, RestoreSpec, restore::RestoreStatusSpec},
    names,
};

use super::{
    create::{Connection, Plan, add_labels, finish},
    listed::Listed as _,
    subject::Subject,
};
use crate::{
    Terminal,
    cli::{DryRun, GlobalArgs, RestoreCreateArgs},
    client::Session,
    error::{Exit, Problem},
};

/// Creates a restore.
pub async fn run(
    global: &GlobalArgs,
    positional: Option<String>,
    args: RestoreCreateArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let mut connection = Connection::new(global);
    if let (Some(backup), false) = (&args.source.from_backup, args.dry_run == Some(DryRun::Client)) {
        check_backup(backup, connection.session(terminal).await?).await?;
    }
    let source =
        args.source.from_backup.as_deref().or(args.source.from_schedule.as_deref()).unwrap_or("restore");
    let name = positional
        .or_else(|| args.name.clone())
        .unwrap_or_else(|| names::timestamped(source, terminal.now()));
    let mut restore = Restore::new(&name, spec(&args));
    add_labels(&mut restore.metadata, &args.labels);
    let findings = backup_core::validate::restore(&restore.spec);
    let plan = Plan { findings, dry_run: args.dry_run, output: args.output, wait: args.wait };
    finish(restore, plan, connection, terminal).await
}

/// Says at once what the server would say only after a while. A phase that we don't know is left to the server.
async fn check_backup(name: &str, session: &Session) -> Result<(), Problem> {
    let backup: Backup = session.call(Backup::about("get", name), session.api::<Backup>().get(name)).await?;
    if backup.ended().is_none() && !matches!(backup.phase(), BackupPhase::Unknown(_)) {
        return Err(Problem::Other {
            message: format!("backup {name:?} can not be restored yet: it is {}", backup.phase_name()),
            remedy: Some(format!("Wait for its end: kubectl backup describe {name}")),
        });
    }
    let verdict = backup.verdict(jiff::Timestamp::UNIX_EPOCH);
    if matches!(backup.phase_name().as_str(), "Failed" | "FailedValidation" | "Deleting") {
        return Err(Problem::Other {
            message: format!("backup {name:?} can not be restored: {}", verdict.sentence),
            remedy: Some("`kubectl backup get` lists the others.".to_owned()),
        });
    }
    Ok(())
}

fn spec(args: &RestoreCreateArgs) -> RestoreSpec {
    let has_status = !args.status_include_resources.is_empty() || !args.status_exclude_resources.is_empty();
    RestoreSpec {
        backup_name: args.source.from_backup.clone(),
        schedule_name: args.source.from_schedule.clone(),
        included_namespaces: args.include_namespaces.clone(),
        excluded_namespaces: args.exclude_namespaces.clone(),
        included_resources: args.include_resources.clone(),
        excluded_resources: args.exclude_resources.clone(),
        namespace_mapping: args.namespace_mappings.iter().cloned().collect(),
        label_selector: args.selector.clone(),
        or_label_selectors: args.or_selector.as_ref().map(|alternatives| alternatives.0.clone()),
        restore_pvs: args.restore_volumes,
        restore_status: has_status.then(|| RestoreStatusSpec {
            included_resources: args.status_include_resources.clone(),
            excluded_resources: args.status_exclude_resources.clone(),
            ..RestoreStatusSpec::default()
        }),
        preserve_node_ports: args.preserve_nodeports,
        include_cluster_resources: args.include_cluster_resources,
        existing_resource_policy: args.existing_resource_policy.clone(),
        item_operation_timeout: args.item_operation_timeout,
        ..RestoreSpec::default()
    }
}

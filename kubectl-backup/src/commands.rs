//! What the commands do: read, ask the views, print.

pub mod cancel;
pub mod create;
pub mod delete;
pub mod describe;
pub mod doctor;
pub mod get;
pub mod guarded;
pub mod known;
pub mod listed;
pub mod locations;
pub mod locks;
pub mod logs;
pub mod names;
pub mod operations;
pub mod part;
pub mod pause;
pub mod profiles;
pub mod restore;
pub mod retry;
pub mod schedules;
pub mod spec;
pub mod stored;
pub mod subject;
pub mod sync;
pub mod verify;
pub mod version;
pub mod wait;
pub mod wait_for;

use backup_core::api::{Backup, Restore};

use crate::{
    Terminal,
    cli::{
        Cli, Command, GetArgs, GlobalArgs, LocksCommand, RestoreCommand, locations::LocationsCommand,
        schedules::SchedulesCommand,
    },
    error::{Exit, Problem},
};

/// Runs the command.
pub async fn dispatch(cli: Cli, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let Cli { global, command } = cli;
    match command {
        Command::Create(args) => Box::pin(create::run(&global, *args, terminal)).await,
        Command::Get(args) => match &args.guarded.kind {
            None => get::run::<Backup>(&global, args.get, terminal).await,
            Some(kind) => Box::pin(guarded::get(&global, kind, &args, terminal)).await,
        },
        Command::Describe(args) => match &args.guarded.kind {
            None => Box::pin(describe::backup(&global, args.describe, terminal)).await,
            Some(kind) => Box::pin(guarded::describe(&global, kind, &args, terminal)).await,
        },
        Command::Logs(args) => Box::pin(logs::of_backup(&global, args, terminal)).await,
        Command::Operations(args) => Box::pin(operations::run::<Backup>(&global, args, terminal)).await,
        Command::Verify(args) => Box::pin(verify::run(&global, args, terminal)).await,
        Command::Download(args) => Box::pin(stored::download(&global, args, terminal)).await,
        Command::Cancel(args) => cancel::run::<Backup>(&global, args, terminal).await,
        Command::Wait(args) => Box::pin(wait_for::backups(&global, args, terminal)).await,
        Command::Schedules(args) => {
            let command = args.command.unwrap_or_else(|| SchedulesCommand::Get(GetArgs::default()));
            Box::pin(schedules::run(&global, command, terminal)).await
        }
        Command::Locations(args) => {
            let command = args.command.unwrap_or_else(|| LocationsCommand::Get(GetArgs::default()));
            Box::pin(locations::run(&global, command, terminal)).await
        }
        Command::Delete(args) => delete::backups(&global, args, terminal).await,
        Command::Sync(args) => Box::pin(sync::run(&global, args, terminal)).await,
        Command::Locks(args) => match args.command {
            None => Box::pin(locks::list(&global, args.list, terminal)).await,
            Some(LocksCommand::Release(args)) => Box::pin(locks::release::run(&global, args, terminal)).await,
            Some(LocksCommand::Hold(args)) => Box::pin(locks::hold::run(&global, args, terminal)).await,
        },
        Command::Profiles(args) => Box::pin(profiles::run(&global, args, terminal)).await,
        Command::Doctor(args) => Box::pin(doctor::run(&global, args, terminal)).await,
        Command::Version(args) => Box::pin(version::run(&global, args, terminal)).await,
        Command::Completion(args) => {
            terminal.data(crate::complete::script(args.shell))?;
            Ok(Exit::Done)
        }
        Command::Restore(args) => {
            let direct = &args.create;
            let Some(command) = args.command else {
                return Box::pin(restore::run(&global, None, args.create, terminal)).await;
            };
            if direct.source.from_backup.is_some() || direct.source.from_schedule.is_some() {
                return Err(Problem::Usage {
                    message: "--from-backup and --from-schedule belong after `create`, or without a command after `restore`".to_owned(),
                    remedy: Some("kubectl backup restore create --from-backup=NAME".to_owned()),
                });
            }
            restores(&global, command, terminal).await
        }
        Command::Restores(args) => {
            let command = args.command.unwrap_or_else(|| RestoreCommand::Get(GetArgs::default()));
            restores(&global, command, terminal).await
        }
    }
}

async fn restores(
    global: &GlobalArgs,
    command: RestoreCommand,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    match command {
        RestoreCommand::Create { positional, args } => {
            Box::pin(restore::run(global, positional, *args, terminal)).await
        }
        RestoreCommand::Get(args) => get::run::<Restore>(global, args, terminal).await,
        RestoreCommand::Describe(args) => Box::pin(describe::restore(global, args, terminal)).await,
        RestoreCommand::Logs(args) => Box::pin(logs::of_restore(global, args, terminal)).await,
        RestoreCommand::Operations(args) => {
            Box::pin(operations::run::<Restore>(global, args, terminal)).await
        }
        RestoreCommand::Cancel(args) => cancel::run::<Restore>(global, args, terminal).await,
        RestoreCommand::Wait(args) => Box::pin(wait_for::objects::<Restore>(global, &args, terminal)).await,
        RestoreCommand::Delete(args) => delete::restores(global, args, terminal).await,
    }
}

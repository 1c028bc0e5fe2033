//! The commands: they read, build views and print them.

mod absent_namespaces;
mod backup_volumes;
mod cancel;
mod changes;
mod copy;
mod create;
mod damage;
mod debug;
mod delete;
mod describe;
mod diff;
mod doctor;
mod download;
mod drill;
mod finding;
mod get;
mod install;
mod items;
mod known_profiles;
mod locations;
mod locks;
mod logs;
mod messages;
mod migrate;
mod named;
mod operations;
mod plan;
mod poll;
mod prelude;
mod profiles;
mod prune;
mod repositories;
mod restore;
mod retained;
mod schedules;
mod selection;
mod spec;
mod status;
mod transfers;
mod uninstall;
mod verify;
mod version;
mod volumes;
mod wait;

use self::prelude::*;
use crate::cli::{
    self, Command, LocationsCommand, LocksCommand, ProfilesCommand, RepositoriesCommand,
    RestoreCommand, SchedulesCommand, global_options,
};

pub(crate) async fn dispatch(command: Command, terminal: &mut Terminal) -> CommandResult {
    match command {
        Command::Create(args) => Box::pin(create::run(*args, terminal)).await,
        Command::Get(args) => match &args.containing {
            None => get::run::<Backup>(args.get, terminal).await,
            Some(namespace) => Box::pin(get::containing::run(namespace, &args.get, terminal)).await,
        },
        Command::Describe(args) => Box::pin(describe::run::<Backup>(args, terminal)).await,
        Command::Logs(args) => Box::pin(logs::run::<Backup>(args, terminal)).await,
        Command::Operations(args) => Box::pin(operations::run::<Backup>(args, terminal)).await,
        Command::Volumes(args) => Box::pin(backup_volumes::run(args, terminal)).await,
        Command::Verify(args) => Box::pin(verify::run(args, terminal)).await,
        Command::Drill(args) => Box::pin(drill::run(*args, terminal)).await,
        Command::Diff(args) => Box::pin(diff::run(*args, terminal)).await,
        Command::Ls(args) => Box::pin(items::ls(args, terminal)).await,
        Command::Cat(args) => Box::pin(items::cat(args, terminal)).await,
        Command::Search(args) => Box::pin(items::search::run(args, terminal)).await,
        Command::Download(args) => Box::pin(download::run(args, terminal)).await,
        Command::Cancel(args) => Box::pin(cancel::run::<Backup>(args, terminal)).await,
        Command::Copy(args) => Box::pin(copy::run(args, terminal)).await,
        Command::Wait(args) => Box::pin(wait::backups(args, terminal)).await,
        Command::Schedules(args) => {
            let command = args.or_list(SchedulesCommand::Get);
            Box::pin(schedules::run(command, terminal)).await
        }
        Command::Locations(args) => {
            let command = args.or_list(LocationsCommand::Get);
            Box::pin(locations::run(command, terminal)).await
        }
        Command::Repositories(args) => {
            let command = args.or_list(RepositoriesCommand::Get);
            Box::pin(repositories::run(command, terminal)).await
        }
        Command::Delete(args) => Box::pin(delete::backups(args, terminal)).await,
        Command::Locks(args) => match args.command {
            None => Box::pin(locks::list(args.list, terminal)).await,
            Some(LocksCommand::Release(args)) => {
                Box::pin(locks::release::run(args, terminal)).await
            }
            Some(LocksCommand::Hold(args)) => Box::pin(locks::hold::run(args, terminal)).await,
        },
        Command::Profiles(args) => match args.command {
            None => Box::pin(profiles::run(args.show, terminal)).await,
            Some(ProfilesCommand::Check(args)) => profiles::check::run(&args, terminal),
        },
        Command::Status(args) => Box::pin(status::run(args, terminal)).await,
        Command::Install(args) => Box::pin(install::install(*args, terminal)).await,
        Command::Upgrade(args) => Box::pin(install::upgrade(*args, terminal)).await,
        Command::Uninstall(args) => Box::pin(uninstall::run(args, terminal)).await,
        Command::Migrate(args) => Box::pin(migrate::run(args, terminal)).await,
        Command::Doctor(args) => Box::pin(doctor::run(args, terminal)).await,
        Command::Debug(args) => Box::pin(debug::run(args, terminal)).await,
        Command::Version(args) => Box::pin(version::run(args, terminal)).await,
        Command::Completion(args) => {
            terminal.data(crate::complete::script(args.shell))?;
            Ok(Exit::Done)
        }
        Command::Options => {
            terminal.data(&global_options(terminal.width))?;
            Ok(Exit::Done)
        }
        Command::Restore(args) => {
            let cli::RestoreArgs {
                backup,
                create: mut direct,
                command,
            } = *args;
            let Some(command) = command else {
                direct.source.from_backup = direct.source.from_backup.or(backup);
                return Box::pin(restore::run(None, direct, terminal)).await;
            };
            if direct.source.from_backup.is_some() || direct.source.from_schedule.is_some() {
                return Err(Problem::usage(
                    "--from-backup and --from-schedule belong after `create`, or without a command after `restore`",
                )
                .with_remedy("kubectl backup restore create --from-backup=NAME"));
            }
            Box::pin(restores(command, terminal)).await
        }
        Command::Restores(args) => {
            let command = args.or_list(RestoreCommand::Get);
            Box::pin(restores(command, terminal)).await
        }
    }
}

async fn restores(command: RestoreCommand, terminal: &mut Terminal) -> CommandResult {
    match command {
        RestoreCommand::Create { positional, args } => {
            Box::pin(restore::run(positional, *args, terminal)).await
        }
        RestoreCommand::Get(args) => get::run::<Restore>(args, terminal).await,
        RestoreCommand::Describe(args) => Box::pin(describe::run::<Restore>(args, terminal)).await,
        RestoreCommand::Logs(args) => Box::pin(logs::run::<Restore>(args, terminal)).await,
        RestoreCommand::Operations(args) => {
            Box::pin(operations::run::<Restore>(args, terminal)).await
        }
        RestoreCommand::Cancel(args) => Box::pin(cancel::run::<Restore>(args, terminal)).await,
        RestoreCommand::Wait(args) => Box::pin(wait::objects::<Restore>(&args, terminal)).await,
        RestoreCommand::Delete(args) => {
            delete::objects::<Restore>(
                args,
                async |_, _| "; what it restored stays".to_owned(),
                terminal,
            )
            .await
        }
    }
}

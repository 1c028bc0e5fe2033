//! `locations snapshots`: where plugins store volume snapshots.

use backup_core::api::{
    VolumeSnapshotLocation, volume_snapshot_location::VolumeSnapshotLocationSpec,
};

use super::change::{merged, patch_spec, provider_changes};
use crate::{
    cli::{
        CreationArgs, DeleteArgs, SnapshotLocationCreateArgs, SnapshotLocationSetArgs,
        SnapshotLocationsArgs, SnapshotLocationsCommand,
    },
    commands::{
        create::{self, Connection, CreationOutcome, SpecErrors},
        delete, get,
        prelude::*,
        spec,
    },
};

pub(super) async fn run(args: SnapshotLocationsArgs, terminal: &mut Terminal) -> CommandResult {
    match args.command {
        None => get::run::<VolumeSnapshotLocation>(args.get, terminal).await,
        Some(SnapshotLocationsCommand::Create(args)) => create(args, terminal).await,
        Some(SnapshotLocationsCommand::Set(args)) => set(&args, terminal).await,
        Some(SnapshotLocationsCommand::Delete(deletion)) => {
            let what = "; the snapshots stay, and cannot be restored or deleted without it";
            let args = DeleteArgs {
                deletion,
                wait: false,
                timeout: GoDuration::default(),
            };
            delete::objects::<VolumeSnapshotLocation>(args, async |_, _| what.to_owned(), terminal)
                .await
        }
    }
}

async fn create(args: SnapshotLocationCreateArgs, terminal: &mut Terminal) -> CommandResult {
    let spec = VolumeSnapshotLocationSpec {
        provider: args.provider,
        ..VolumeSnapshotLocationSpec::default()
    };
    let spec = merged(&spec, &provider_changes(&args.flags))?;
    let mut location = VolumeSnapshotLocation::new(&args.name, spec);
    spec::describe_object(&mut location.metadata, &args.object);
    let creation = CreationArgs {
        dry_run: args.dry_run,
        ..CreationArgs::default()
    };
    match create::make(
        location,
        &SpecErrors::default(),
        &creation,
        &Connection::new(),
        terminal,
    )
    .await?
    {
        CreationOutcome::Dry(location, how) => {
            create::print(&location, args.output, how, terminal)?;
        }
        CreationOutcome::Stored(location) => {
            create::print(&location, args.output, "", terminal)?;
        }
    }
    Ok(Exit::Done)
}

async fn set(args: &SnapshotLocationSetArgs, terminal: &mut Terminal) -> CommandResult {
    let changes = provider_changes(&args.flags);
    if changes.is_empty() {
        let remedy = "kubectl backup locations snapshots set --help";
        return Err(Problem::usage("nothing is to be changed").with_remedy(remedy));
    }
    let session = Session::connect(terminal).await?;
    patch_spec::<VolumeSnapshotLocation>(&session, &args.name, &changes, terminal).await?;
    Ok(Exit::Done)
}

//! `locations`: where backups are stored, and snapshots of volumes kept.

use backup_core::api::{BackupStorageLocation, VolumeSnapshotLocation};
use jiff::Timestamp;

use super::{get, listed::Listed};
use crate::{
    Terminal,
    cli::{
        GlobalArgs, Output,
        locations::{LocationArgs, LocationsCommand},
    },
    client::Session,
    error::{Exit, Problem},
    print::{json, style::Style},
    view::{
        location::{self as view, describe},
        snapshot_location,
    },
};

impl Listed for BackupStorageLocation {
    const KIND: &'static str = "backupstoragelocation";
    const PLURAL: &'static str = "backupstoragelocations";
    const HEADERS: &'static [&'static str] = &view::HEADERS;
    const NARROW: usize = view::NARROW;
    const STATUS_COLUMN: usize = 1;

    fn row(&self, now: Timestamp, style: Style) -> Vec<String> {
        view::row(self, now, style)
    }
}

impl Listed for VolumeSnapshotLocation {
    const KIND: &'static str = "volumesnapshotlocation";
    const PLURAL: &'static str = "volumesnapshotlocations";
    const HEADERS: &'static [&'static str] = &snapshot_location::HEADERS;
    const NARROW: usize = snapshot_location::NARROW;
    // They have none: nobody looks whether they can be used before a backup does.
    const STATUS_COLUMN: usize = 1;

    fn row(&self, now: Timestamp, _: Style) -> Vec<String> {
        snapshot_location::row(self, now)
    }
}

/// `locations`
pub async fn run(
    global: &GlobalArgs,
    command: LocationsCommand,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    match command {
        LocationsCommand::Get(args) => get::run::<BackupStorageLocation>(global, args, terminal).await,
        LocationsCommand::Snapshots(args) => get::run::<VolumeSnapshotLocation>(global, args, terminal).await,
        LocationsCommand::Describe(args) => one(global, &args, terminal).await,
    }
}

async fn one(global: &GlobalArgs, args: &LocationArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    let api = session.api::<BackupStorageLocation>();
    let location = session.call(BackupStorageLocation::about("get", &args.name), api.get(&args.name)).await?;
    let view = describe(&location);
    let text = match args.output {
        Some(form) => json::object(&view, Output::from(form))?,
        None => view.text(terminal.now(), terminal.out_style()),
    };
    terminal.data(&text)?;
    Ok(Exit::Done)
}

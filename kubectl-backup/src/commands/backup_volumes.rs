//! `volumes`: how the data of each volume of a backup is saved, from its stored files, and from its
//! DataUploads while it runs.

use std::collections::BTreeSet;

use super::{damage, prelude::*, transfers, verify};
use crate::{
    cli::VolumesArgs,
    stored::{StoredFile, document},
    view::{
        stored::volumes::{Keeper, VolumeView},
        volume_list::{SavedVolume, VolumeList, running, stored},
    },
};

pub(super) async fn run(args: VolumesArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let backup = get_named::<Backup>(&session, "volumes", &args.name).await?;
    let is_running = !backup.status().stage.is_terminal();
    let items = match verify::has_files(&backup) {
        Ok(()) => Box::pin(of_files(&session, &backup)).await?,
        Err(_) if is_running => running(&transfers::read(&session, &backup).await?),
        Err(problem) => return Err(problem),
    };
    if items.is_empty() && args.output.form.is_table() {
        terminal.say(&nothing(&backup, is_running));
        return Ok(Exit::Done);
    }
    let list = VolumeList {
        of: args.name.clone(),
        items,
    };
    json::show_list(
        "BackupVolumeList",
        &list,
        &args.output,
        terminal,
        || list.names(),
        |_, style| Ok(list.rows(args.output.is_wide(), !args.output.no_headers, style)?),
    )?;
    Ok(Exit::Done)
}

/// The volumes by the stored files. Its DataUploads only add to that, so they may be missing.
async fn of_files(session: &Session, backup: &Backup) -> Result<Vec<SavedVolume>, Problem> {
    let file = StoredFile::of(Backup::FILES.volumes, &backup.metadata);
    let (volumes, transfers) = futures::join!(
        document::<Vec<VolumeView>>(session, &file),
        fetched(session, transfers::read(session, backup))
    );
    let transfers = transfers.known().map_or(&[][..], Vec::as_slice);
    let volumes = volumes?;
    let mut keepers = volumes.iter().map(|one| one.keeper);
    let damaged = if keepers.any(|keeper| keeper == Keeper::Repository) {
        damage::in_location_of(session, backup).await
    } else {
        Vec::new()
    };
    let damaged: BTreeSet<String> = damaged.into_iter().map(|one| one.folder).collect();
    Ok(stored(&volumes, transfers, &damaged))
}

fn nothing(backup: &Backup, is_running: bool) -> String {
    let name = backup.name_any();
    if is_running {
        let phase = backup.status().phase;
        format!(
            "backup {name} has not ended ({phase}), and moves no data into the bucket so far; all its volumes are listed at its end."
        )
    } else {
        format!("backup {name} has no volumes.")
    }
}

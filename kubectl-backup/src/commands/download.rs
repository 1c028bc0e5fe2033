//! `download`: the tarball of a backup, through the API server.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use backup_core::api::download_request::DownloadTargetKind;

use super::prelude::*;
use crate::{
    cli::DownloadArgs,
    new_file::NewFile,
    print::size,
    stored::{StoredFile, read},
};

pub(super) async fn run(args: DownloadArgs, terminal: &mut Terminal) -> CommandResult {
    let name = &args.name;
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && terminal.out_is_terminal {
        return Err(
            Problem::usage("refusing to write binary data to a terminal")
                .with_remedy(format!("kubectl backup download {name} -o - | tar tz")),
        );
    }
    let path = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{name}-data.tar.gz")));
    if !to_stdout {
        NewFile::check(&path, args.force)?;
    }
    let session = Session::connect(terminal).await?;
    let meta = get_named_metadata::<Backup>(&session, "download", name).await?;
    let contents = StoredFile::of(DownloadTargetKind::BackupContents, &meta);
    if to_stdout {
        let Terminal { out, err, .. } = &mut *terminal;
        let reading = read(
            &session,
            &contents,
            |bytes| out.write_all(bytes).map_err(Problem::from),
            |line| drop(writeln!(err, "{line}")),
        );
        tokio::select! {
            read = reading => read?,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        };
        terminal.data("")?;
        return Ok(Exit::Done);
    }
    let mut file = NewFile::create(path.clone(), args.force)?;
    let reading = read(
        &session,
        &contents,
        |bytes| file.write(bytes),
        |line| terminal.say(line),
    );
    let length = tokio::select! {
        read = reading => read?.length,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    file.keep()?;
    let path = path.display();
    let size = size(length);
    terminal.say(&format!(
        "{path} ({size}): everything of backup {name}, Secrets included"
    ));
    Ok(Exit::Done)
}

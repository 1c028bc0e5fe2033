//! `download`: the tarball of a backup, through the API server.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use backup_core::api::download_request::DownloadTargetKind;

use super::prelude::*;
use crate::{
    cli::DownloadArgs,
    stored::{StoredFile, read},
};

pub(super) async fn run(args: DownloadArgs, terminal: &mut Terminal) -> CommandResult {
    let name = &args.name;
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && terminal.out_is_terminal {
        return Err(Problem::usage("refusing to write binary data to a terminal")
            .with_remedy(format!("kubectl backup download {name} -o - | tar tz")));
    }
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}-data.tar.gz")));
    let failed = |error: &std::io::Error| {
        Problem::other(format!("cannot write {}: {error}", path.display()))
            .with_remedy("Choose another file with -o FILE.")
    };
    let taken = || {
        Problem::other(format!("{} exists", path.display()))
            .with_remedy("Choose another file with -o FILE, or overwrite it with --force.")
    };
    if !to_stdout && !args.force && path.exists() {
        return Err(taken());
    }
    let session = Session::connect(terminal).await?;
    let meta = session.get_metadata::<Backup>(name).await?.metadata;
    let contents = StoredFile::of(DownloadTargetKind::BackupContents, &meta);
    if to_stdout {
        let Terminal { out, err, .. } = &mut *terminal;
        let sink = |bytes: &[u8]| out.write_all(bytes).map_err(Problem::from);
        tokio::select! {
            length = read(&session, &contents, sink, |line| drop(writeln!(err, "{line}"))) => length?,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        };
        terminal.data("")?;
        return Ok(Exit::Done);
    }
    // Beside its place, readable by its owner alone, and removed if it does not become whole.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".kubectl-backup-")
        .tempfile_in(folder)
        // The text of the error names a temporary file.
        .map_err(|error| failed(&error.kind().into()))?;
    let sink = |bytes: &[u8]| file.write_all(bytes).map_err(|error| failed(&error));
    let length = tokio::select! {
        length = read(&session, &contents, sink, |line| terminal.say(line)) => length?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    file.as_file().sync_all().map_err(|error| failed(&error))?;
    let kept = if args.force { file.persist(&path) } else { file.persist_noclobber(&path) };
    kept.map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => taken(),
        _ => failed(&error.error),
    })?;
    terminal
        .say(&format!("{} ({length} bytes): everything of backup {name}, Secrets included", path.display()));
    Ok(Exit::Done)
}

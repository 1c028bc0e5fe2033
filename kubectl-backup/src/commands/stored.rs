//! `logs`, `restore logs` and `download`: what is stored of a backup or restore, through the API server.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use backup_core::api::{Backup, Restore, download_request::DownloadTargetKind};
use flate2::write::MultiGzDecoder;
use kube::core::PartialObjectMeta;

use super::subject::Subject;
use crate::{
    Terminal,
    cli::{DownloadArgs, GlobalArgs, LogsArgs},
    client::Session,
    error::{Exit, Problem},
    stored::{Wanted, read},
};

/// `logs`
pub async fn backup_log(
    global: &GlobalArgs,
    args: LogsArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    log::<Backup>(global, &args, DownloadTargetKind::BackupLog, terminal).await
}

/// `restore logs`
pub async fn restore_log(
    global: &GlobalArgs,
    args: LogsArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    log::<Restore>(global, &args, DownloadTargetKind::RestoreLog, terminal).await
}

async fn log<K: Subject>(
    global: &GlobalArgs,
    args: &LogsArgs,
    kind: DownloadTargetKind,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let LogsArgs { name, errors } = args;
    let session = Session::connect(global, terminal).await?;
    let uid = uid::<K>(&session, name).await?;
    let wanted = Wanted { kind, name, uid: &uid };
    let Terminal { out, err, out_is_terminal, .. } = terminal;
    let mut text = MultiGzDecoder::new(Vec::new());
    let unreadable = |error: std::io::Error| Problem::BadFile {
        message: format!("the log of {name} cannot be read: {error}"),
    };
    let mut show = |text: &mut Vec<u8>, is_last: bool| -> Result<(), Problem> {
        // The end of a line may not have come yet.
        let rest = if *errors && !is_last { text.split_off(whole_lines(text)) } else { Vec::new() };
        if *errors {
            *text = text
                .split_inclusive(|byte| *byte == b'\n')
                .filter(|line| is_error(line))
                .flatten()
                .copied()
                .collect();
        }
        if *out_is_terminal {
            text.iter_mut()
                .filter(|byte| byte.is_ascii_control() && !b"\n\t".contains(byte))
                .for_each(|byte| *byte = b'?');
        }
        out.write_all(text)?;
        *text = rest;
        Ok(())
    };
    let sink = |bytes: &[u8]| {
        text.write_all(bytes).map_err(unreadable)?;
        show(text.get_mut(), false)
    };
    let mut talk = |line: &str| drop(writeln!(err, "{line}"));
    tokio::select! {
        length = read(&session, &wanted, sink, &mut talk) => length?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    };
    text.try_finish().map_err(unreadable)?;
    show(text.get_mut(), true)?;
    terminal.data("")?;
    Ok(Exit::Done)
}

/// How many bytes are lines with an end.
fn whole_lines(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// Whether a line of a log is of an error, by the level that Velero and we write into each.
fn is_error(line: &[u8]) -> bool {
    [&b"level=error"[..], b"level=fatal", b"level=panic"]
        .iter()
        .any(|level| line.windows(level.len()).any(|part| part == *level))
}

/// `download`
pub async fn download(
    global: &GlobalArgs,
    args: DownloadArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let name = &args.name;
    if args.output.as_deref() == Some(Path::new("-")) {
        if terminal.out_is_terminal {
            return Err(Problem::Usage {
                message: "a tarball is nothing for a terminal".to_owned(),
                remedy: Some(format!("kubectl backup download {name} -o - | tar tz")),
            });
        }
        let session = Session::connect(global, terminal).await?;
        let uid = uid::<Backup>(&session, name).await?;
        let wanted = Wanted { kind: DownloadTargetKind::BackupContents, name, uid: &uid };
        let Terminal { out, err, .. } = &mut *terminal;
        let sink = |bytes: &[u8]| out.write_all(bytes).map_err(Problem::from);
        tokio::select! {
            length = read(&session, &wanted, sink, |line| drop(writeln!(err, "{line}"))) => length?,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
        };
        terminal.data("")?;
        return Ok(Exit::Done);
    }
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}-data.tar.gz")));
    let failed = |error: &std::io::Error| Problem::Other {
        message: format!("cannot write {}: {error}", path.display()),
        remedy: Some("Choose another file with -o FILE.".to_owned()),
    };
    let taken = || Problem::Other {
        message: format!("{} exists", path.display()),
        remedy: Some("Choose another file with -o FILE, or overwrite it with --force.".to_owned()),
    };
    if !args.force && path.exists() {
        return Err(taken());
    }
    let session = Session::connect(global, terminal).await?;
    let uid = uid::<Backup>(&session, name).await?;
    let wanted = Wanted { kind: DownloadTargetKind::BackupContents, name, uid: &uid };
    // Beside its place, readable by nobody else, and gone again if it does not become whole.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".kubectl-backup-")
        .tempfile_in(folder)
        // Its text names a file that nobody has asked for.
        .map_err(|error| failed(&error.kind().into()))?;
    let sink = |bytes: &[u8]| file.write_all(bytes).map_err(|error| failed(&error));
    let length = tokio::select! {
        length = read(&session, &wanted, sink, |line| terminal.say(line)) => length?,
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

/// Only the metadata is read: one that can not be decoded has files, too.
async fn uid<K: Subject>(session: &Session, name: &str) -> Result<String, Problem> {
    let found: PartialObjectMeta<K> =
        session.call(K::about("get", name), session.api::<K>().get_metadata(name)).await?;
    Ok(found.metadata.uid.unwrap_or_default())
}

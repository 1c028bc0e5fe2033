//! `download`: the tarball of a backup, through the API server.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use backup_core::api::{Backup, download_request::DownloadTargetKind};
use kube::core::PartialObjectMeta;

use super::subject::Subject;
use crate::{
    Terminal,
    cli::{DownloadArgs, GlobalArgs},
    client::Session,
    error::{Exit, Problem},
    stored::{Wanted, read},
};

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
pub(super) async fn uid<K: Subject>(session: &Session, name: &str) -> Result<String, Problem> {
    let found: PartialObjectMeta<K> =
        session.call(K::about("get", name), session.api::<K>().get_metadata(name)).await?;
    Ok(found.metadata.uid.unwrap_or_default())
}

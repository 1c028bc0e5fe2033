//! `logs` and `restore logs`: the log of a backup or restore, through the API server; with `-f` until its end.

use std::io::Write as _;

use backup_core::api::{Backup, Restore, download_request::DownloadTargetKind};
use flate2::write::MultiGzDecoder;

use super::{
    describe::get,
    stored::uid,
    subject::Subject,
    wait::{LONGEST, Look, Waited, poll},
};
use crate::{
    Terminal,
    cli::{GlobalArgs, LogsArgs},
    client::Session,
    error::{Exit, Problem},
    stored::{Wanted, read},
};

/// `logs`
pub async fn of_backup(
    global: &GlobalArgs,
    args: LogsArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    log::<Backup>(global, &args, DownloadTargetKind::BackupLog, terminal).await
}

/// `restore logs`
pub async fn of_restore(
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
    let session = Session::connect(global, terminal).await?;
    if args.follow {
        return follow::<K>(&session, args, kind, terminal).await;
    }
    let uid = uid::<K>(&session, &args.name).await?;
    let (wanted, mut shown) = (Wanted { kind, name: &args.name, uid: &uid }, 0);
    tokio::select! {
        done = show(&session, &wanted, args.errors, &mut shown, terminal) => done?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    }
    Ok(Exit::Done)
}

/// The log is read once in each phase: it grows while items are worked on, which is before it is stored, and at the end.
async fn follow<K: Subject>(
    session: &Session,
    args: &LogsArgs,
    kind: DownloadTargetKind,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let (mut shown, mut uid, mut seen) = (0, None, String::new());
    let followed = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        let object = get::<K>(session, &args.name).await?;
        let (now, phase, ended) =
            (object.meta().uid.clone().unwrap_or_default(), object.phase_name(), object.ended());
        if *uid.get_or_insert_with(|| now.clone()) != now {
            let message = format!("{} {:?} was deleted while its log was followed", K::KIND, args.name);
            return Err(Problem::Other { message, remedy: None });
        }
        if phase == seen {
            return Ok(Look::Same);
        }
        let wanted = Wanted { kind: kind.clone(), name: &args.name, uid: &now };
        match show(session, &wanted, args.errors, &mut shown, terminal).await {
            Ok(()) => {}
            // Not yet; or it has failed before there was one.
            Err(Problem::NoFile { message }) if ended != Some(true) => terminal.say(&message),
            Err(problem) => return Err(problem),
        }
        seen = phase;
        Ok(ended.map_or(Look::Changed, Look::Over))
    });
    Ok(match followed.await? {
        Waited::Over(true) => Exit::Done,
        Waited::Over(false) => {
            terminal.say(&format!("{} {} has ended: {seen}", K::KIND, args.name));
            Exit::NotCompleted
        }
        Waited::TimedOut => Exit::TimedOut,
        Waited::Interrupted => Exit::Interrupted,
    })
}

/// Shows a log from byte `shown` of its text on, and counts on.
async fn show(
    session: &Session,
    wanted: &Wanted<'_>,
    errors: bool,
    shown: &mut u64,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let Terminal { out, err, out_is_terminal, .. } = &mut *terminal;
    let mut text = MultiGzDecoder::new(Vec::new());
    let unreadable = |error: std::io::Error| Problem::BadFile {
        message: format!("the log of {} cannot be read: {error}", wanted.name),
    };
    let mut skip = *shown;
    let mut print = |text: &mut Vec<u8>, is_last: bool| -> Result<(), Problem> {
        let known = usize::try_from(skip).unwrap_or(usize::MAX).min(text.len());
        text.drain(..known);
        skip -= known as u64;
        // The end of a line may not have come yet.
        let rest = if errors && !is_last { text.split_off(whole_lines(text)) } else { Vec::new() };
        *shown += text.len() as u64;
        if errors {
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
        print(text.get_mut(), false)
    };
    read(session, wanted, sink, |line| drop(writeln!(err, "{line}"))).await?;
    text.try_finish().map_err(unreadable)?;
    print(text.get_mut(), true)?;
    terminal.data("")?;
    Ok(())
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

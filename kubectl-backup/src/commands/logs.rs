//! `logs` and `restore logs`: the log of a backup or restore, through the API server; with `-f` until its end.

mod tail;

use std::{io::Write as _, time::Duration};

use backup_core::api::{Backup, Restore, download_request::DownloadTargetKind};
use flate2::write::MultiGzDecoder;
use tokio::time::Instant;

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
use tail::{Piece, Tail};

/// A log that grows is read as a whole each time: the pause after it is so many times as long as that took.
const SPARING: u32 = 10;
/// Where there was no log, a request is made for nothing.
const NOTHING_YET: Duration = Duration::from_secs(10);

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
    let (wanted, mut tail) = (Wanted { kind, name: &args.name, uid: &uid }, Tail::default());
    tokio::select! {
        done = show(&session, &wanted, args.errors, &mut tail, terminal) => done?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    }
    Ok(Exit::Done)
}

/// The log is read in each phase, and while items are worked on, again and again: then it grows.
async fn follow<K: Subject>(
    session: &Session,
    args: &LogsArgs,
    kind: DownloadTargetKind,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let (mut tail, mut uid, mut seen, mut again) = (Tail::default(), None, String::new(), Instant::now());
    let followed = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        let object = get::<K>(session, &args.name).await?;
        let (now, phase, ended) =
            (object.meta().uid.clone().unwrap_or_default(), object.phase_name(), object.ended());
        if *uid.get_or_insert_with(|| now.clone()) != now {
            let message = format!("{} {:?} was deleted while its log was followed", K::KIND, args.name);
            return Err(Problem::Other { message, remedy: None });
        }
        let is_news = phase != seen;
        let grows = object.is_working() && Instant::now() >= again;
        if !is_news && !grows {
            return Ok(Look::Same);
        }
        let wanted = Wanted { kind: kind.clone(), name: &args.name, uid: &now };
        let began = Instant::now();
        let pause = match show(session, &wanted, args.errors, &mut tail, terminal).await {
            Ok(()) => began.elapsed() * SPARING,
            // Not yet; or it has failed before there was one.
            Err(Problem::NoFile { message } | Problem::NotGiven { message }) if ended != Some(true) => {
                if is_news {
                    terminal.say(&message);
                }
                NOTHING_YET
            }
            Err(problem) => return Err(problem),
        };
        again = Instant::now() + pause;
        seen = phase;
        Ok(ended.map_or(if is_news { Look::Changed } else { Look::Same }, Look::Over))
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

/// Shows what is new in a log.
async fn show(
    session: &Session,
    wanted: &Wanted<'_>,
    errors: bool,
    tail: &mut Tail,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let Terminal { out, err, out_is_terminal, .. } = &mut *terminal;
    let mut text = MultiGzDecoder::new(Vec::new());
    let unreadable = |error: std::io::Error| Problem::BadFile {
        message: format!("the log of {} cannot be read: {error}", wanted.name),
    };
    let (mut reading, mut is_another) = (tail.read(), false);
    let mut print = |text: &mut Vec<u8>, is_last: bool| -> Result<(), Problem> {
        match reading.take(text, is_last) {
            Piece::Unknown => return Ok(()),
            Piece::Anew => is_another = true,
            Piece::New => {}
        }
        // The end of a line may not have come yet.
        let rest = if errors && !is_last { text.split_off(whole_lines(text)) } else { Vec::new() };
        reading.shown(text.len());
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
    if is_another {
        terminal.say(&format!("the work on {} has begun again, and its log with it", wanted.name));
    }
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

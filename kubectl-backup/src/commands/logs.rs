//! `logs` and `restore logs`: the log of a backup or restore, read through the API server; `-f`
//! follows it to the end.

mod tail;

use std::io::Write as _;

use backup_core::phase::Stage;
use flate2::write::MultiGzDecoder;
use tokio::time::Instant;

use super::{
    poll::{Look, MAX_WAIT, poll},
    prelude::*,
};
use crate::{
    cli::LogsArgs,
    stored::{StoredFile, read},
};
use tail::{Piece, Tail};

/// Each reading of a growing log transfers all of it: the next pause is the duration of the reading
/// times this factor.
const READ_PAUSE_FACTOR: u32 = 10;
/// Pause after a reading that found no log.
const NO_LOG_PAUSE: Duration = Duration::from_secs(10);

pub(super) async fn run<W: Workload>(args: LogsArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    if args.follow {
        return follow::<W>(&session, &args, terminal).await;
    }
    // An object that cannot be decoded has a log, too.
    let meta = get_named_metadata::<W>(&session, "logs", &args.name).await?;
    let file = StoredFile::of(W::FILES.log, &meta);
    let mut tail = Tail::default();
    tokio::select! {
        done = show(&session, &file, args.errors, &mut tail, terminal) => done?,
        _ = tokio::signal::ctrl_c() => return Ok(Exit::Interrupted),
    }
    Ok(Exit::Done)
}

/// Reads the log in each new phase, and repeatedly in phase InProgress, while the log grows.
async fn follow<W: Workload>(
    session: &Session,
    args: &LogsArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let mut tail = Tail::default();
    let mut uid = None;
    let mut seen = String::new();
    let mut again = Instant::now();
    let followed = poll(
        session,
        terminal,
        MAX_WAIT,
        async |terminal: &mut Terminal| {
            let work = session.get::<W>(&args.name).await?;
            let status = work.status();
            let now = work.meta().uid.clone();
            if *uid.get_or_insert_with(|| now.clone()) != now {
                let message = format!(
                    "{} {:?} was deleted while its log was followed",
                    W::KIND,
                    args.name
                );
                return Err(Problem::other(message));
            }
            let ended = status.ended();
            let is_news = status.phase != seen;
            let grows = status.stage == Stage::InProgress && Instant::now() >= again;
            if !is_news && !grows {
                return Ok(Look::Same);
            }
            let file = StoredFile::of(W::FILES.log, work.meta());
            let began = Instant::now();
            let pause = match show(session, &file, args.errors, &mut tail, terminal).await {
                Ok(()) => began.elapsed() * READ_PAUSE_FACTOR,
                // There is no log yet, or the object failed before one was written.
                Err(problem)
                    if matches!(problem.kind, ProblemKind::NoFile | ProblemKind::NotGiven)
                        && ended != Some(true) =>
                {
                    if is_news {
                        terminal.say(&problem.message);
                    }
                    NO_LOG_PAUSE
                }
                Err(problem) => return Err(problem),
            };
            again = Instant::now() + pause;
            seen = status.phase;
            Ok(ended.map_or(
                if is_news { Look::Changed } else { Look::Same },
                Look::Found,
            ))
        },
    );
    let followed = followed.await;
    Ok(
        match hinted::<W, _>(session, "logs", &args.name, followed).await? {
            Ok(true) => Exit::Done,
            Ok(false) => {
                terminal.say(&format!("{} {} has ended: {seen}", W::KIND, args.name));
                Exit::NotGood
            }
            Err(exit) => exit,
        },
    )
}

async fn show(
    session: &Session,
    file: &StoredFile<'_>,
    errors: bool,
    tail: &mut Tail,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let Terminal {
        out,
        err,
        out_is_terminal,
        ..
    } = &mut *terminal;
    let mut text = MultiGzDecoder::new(Vec::new());
    let mut reading = tail.read();
    let mut is_another = false;
    let mut print = |text: &mut Vec<u8>, is_last: bool| -> Result<(), Problem> {
        match reading.take(text, is_last) {
            Piece::Unknown => return Ok(()),
            Piece::Restarted => is_another = true,
            Piece::New => {}
        }
        // The last line may be incomplete.
        let rest = if errors && !is_last {
            text.split_off(whole_lines(text))
        } else {
            Vec::new()
        };
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
    read(
        session,
        file,
        |bytes| {
            text.write_all(bytes)
                .map_err(|error| unreadable(file.name, &error))?;
            print(text.get_mut(), false)
        },
        |line| drop(writeln!(err, "{line}")),
    )
    .await?;
    text.try_finish()
        .map_err(|error| unreadable(file.name, &error))?;
    print(text.get_mut(), true)?;
    terminal.data("")?;
    if is_another {
        terminal.say(&format!(
            "the work on {} has begun again, and its log with it",
            file.name
        ));
    }
    Ok(())
}

fn unreadable(name: &str, error: &std::io::Error) -> Problem {
    Problem::bad_file(format!("the log of {name} cannot be read: {error}"))
}

fn whole_lines(text: &[u8]) -> usize {
    text.iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1)
}

/// Whether a log line reports an error, by the level that Velero and we write into each line.
fn is_error(line: &[u8]) -> bool {
    [&b"level=error"[..], b"level=fatal", b"level=panic"]
        .iter()
        .any(|level| line.windows(level.len()).any(|part| part == *level))
}

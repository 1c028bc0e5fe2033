//! `describe -w`: on a terminal the screen is drawn anew while it runs; elsewhere changes are told, and the end is shown.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{Described, get, show};
use crate::{
    Terminal,
    cli::DescribeArgs,
    client::Session,
    commands::wait::{LONGEST, Look, Waited, poll, until_ended},
    error::{Exit, Problem},
    print::{describe::text, progress},
    view::progress::{Share, share},
};

/// From the upper left corner on, and nothing of what was there before.
const ANEW: &str = "\x1b[H\x1b[2J";

pub(super) async fn run<K: Described>(
    session: &Session,
    args: &DescribeArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    if !terminal.out_is_terminal {
        let object = get::<K>(session, &args.name).await?;
        let (exit, ended) = match object.ended() {
            Some(_) => (Exit::Done, Some(object)),
            None => until_ended(session, terminal, &object, LONGEST.into()).await?,
        };
        if let Some(object) = ended {
            show(&Box::pin(object.describe(session, terminal.now())).await, args, terminal)?;
        }
        return Ok(exit);
    }
    let mut first: Option<(Share, Timestamp)> = None;
    let waited = poll(session, terminal, LONGEST, async |terminal: &mut Terminal| {
        let object = get::<K>(session, &args.name).await?;
        // Large: many requests at a time.
        let description = Box::pin(object.describe(session, terminal.now())).await;
        let now = terminal.now();
        let mut screen = ANEW.to_owned() + &text(&description, now, terminal.out_style(), args.details);
        if let Some(share) = share(&description) {
            // How fast it goes is measured from the first look at this stage.
            let (begin, at) = *first.get_or_insert((share, now));
            if begin.unit != share.unit {
                first = Some((share, now));
            }
            let passed = now.duration_since(at).as_secs_f64();
            let _ = writeln!(
                screen,
                "
  {}",
                progress::bar(share, begin, passed)
            );
        }
        terminal.data(&screen)?;
        Ok(match object.ended() {
            Some(completed) => Look::Over(completed),
            None => Look::Same,
        })
    })
    .await?;
    Ok(match waited {
        Waited::Over(true) => Exit::Done,
        Waited::Over(false) => Exit::NotCompleted,
        Waited::TimedOut => Exit::TimedOut,
        Waited::Interrupted => Exit::Interrupted,
    })
}

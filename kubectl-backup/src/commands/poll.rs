//! Looks again and again until something is there, whatever happens to the API server meanwhile.
//!
//! Small requests with growing pauses (at most 2 s) survive restarts, load balancers and idle time-outs alike, where a watch
//! needs a fallback for each. What a watch has seen only ends a pause earlier.

use tokio::time::Instant;

use super::prelude::*;
use crate::backoff::{self, SLOWEST};

/// For so long an API server may answer as one that has just started.
pub(super) const STARTING: Duration = Duration::from_secs(30);

/// Where a person sets no time.
pub(super) const LONGEST: Duration = Duration::from_hours(24 * 365);

/// What was found; or the exit code, where time ran out or a person interrupted.
pub(super) type Polled<T> = Result<T, Exit>;

/// What is said of something that was waited for in vain: `what` is how it is.
pub(super) fn in_vain(exit: Exit, what: &str, timeout: GoDuration) -> String {
    match exit {
        Exit::TimedOut => format!("error: {what} after {timeout}"),
        _ => format!("interrupted: {what}"),
    }
}

pub(super) enum Look<T> {
    Found(T),
    Changed,
    Same,
}

/// Looks until `look` finds something, time runs out or a person interrupts. A look that fails is repeated while the API
/// server is away.
pub(super) async fn poll<T, F>(
    session: &Session,
    terminal: &mut Terminal,
    timeout: Duration,
    mut look: F,
) -> Result<Polled<T>, Problem>
where
    F: AsyncFnMut(&mut Terminal) -> Result<Look<T>, Problem>,
{
    let never = std::future::pending::<()>;
    poll_on(session, terminal, timeout, never, async |terminal, _| look(terminal).await).await
}

/// The same, and a pause is over as soon as there is a `change`, which the next look is given.
pub(super) async fn poll_on<T, C, F>(
    session: &Session,
    terminal: &mut Terminal,
    timeout: Duration,
    mut change: impl AsyncFnMut() -> C,
    mut look: F,
) -> Result<Polled<T>, Problem>
where
    F: AsyncFnMut(&mut Terminal, Option<C>) -> Result<Look<T>, Problem>,
{
    let mut changed = None;
    let deadline = Instant::now() + timeout;
    let mut away: Option<Instant> = None;
    let mut pauses = backoff::pauses();
    // One listener for the whole time: an interrupt between two awaits is not lost.
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let looked = tokio::select! {
            biased;
            // First: it listens from its first poll on, and an interrupt may come as soon as a request is sent.
            _ = &mut interrupted => return Ok(Err(Exit::Interrupted)),
            looked = tokio::time::timeout_at(deadline, look(terminal, changed.take())) => looked,
        };
        match looked {
            Err(_) => return Ok(Err(Exit::TimedOut)),
            Ok(Ok(look)) => {
                if away.take().is_some() {
                    terminal.say(&format!("{} answers again", session.server));
                }
                match look {
                    Look::Found(value) => return Ok(Ok(value)),
                    Look::Changed => pauses = backoff::pauses(),
                    Look::Same => {}
                }
            }
            Ok(Err(problem)) => {
                let since = away.unwrap_or_else(Instant::now);
                let may_pass = problem.is_transient() || problem.is_of_start() && since.elapsed() < STARTING;
                if !may_pass {
                    return Err(problem);
                }
                if away.replace(since).is_none() {
                    terminal.say(&format!("{problem}; still waiting"));
                }
            }
        }
        let next = Instant::now() + pauses.next().unwrap_or(SLOWEST);
        tokio::select! {
            () = tokio::time::sleep_until(next.min(deadline)) => {}
            change = change() => {
                changed = Some(change);
                continue;
            }
            _ = &mut interrupted => return Ok(Err(Exit::Interrupted)),
        }
        if next >= deadline {
            return Ok(Err(Exit::TimedOut));
        }
    }
}

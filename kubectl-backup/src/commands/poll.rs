//! Polls until a result is there, and tolerates failures of the API server in the meantime.
//!
//! Small requests with growing pauses (at most 2 s) survive restarts, load balancers and idle
//! time-outs, where a watch needs a fallback for each. An event of a watch only shortens a pause.

use tokio::time::Instant;

use super::prelude::*;
use crate::backoff::{self, MAX_POLL_INTERVAL};

/// Grace period for start-up errors of the API server (403 until RBAC is loaded).
pub(super) const START_UP_GRACE: Duration = Duration::from_secs(30);

/// Timeout if the user sets none.
pub(super) const MAX_WAIT: Duration = Duration::from_hours(24 * 365);

/// The result, or the exit code after a timeout or an interrupt.
pub(super) type Polled<T> = Result<T, Exit>;

/// The message after a timeout or an interrupt; `what` describes the current state.
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

/// Calls `look` until it finds something, the timeout passes or the user interrupts. A failed call
/// is repeated while the API server is away.
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
    poll_on(session, terminal, timeout, never, async |terminal, _| {
        look(terminal).await
    })
    .await
}

/// Like [`poll`], but a `change` ends a pause early and is passed to the next `look`.
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
    // A single listener for the whole time, so that an interrupt between two awaits is not lost.
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let looked = tokio::select! {
            biased;
            // First: it listens from its first poll on, and an interrupt may come as soon as a
            // request is sent.
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
                let may_pass = problem.is_transient()
                    || problem.is_of_start() && since.elapsed() < START_UP_GRACE;
                if !may_pass {
                    return Err(problem);
                }
                if away.replace(since).is_none() {
                    terminal.say(&format!("{problem}; still waiting"));
                }
            }
        }
        let next = Instant::now() + pauses.next().unwrap_or(MAX_POLL_INTERVAL);
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

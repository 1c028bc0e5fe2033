//! `--wait`: until an object has ended, whatever happens to the API server meanwhile.
//!
//! It polls: one small GET at a time with growing pauses (at most 2 s) survives restarts, load balancers and idle
//! time-outs alike, where a watch needs a fallback for each. A phase that we don't know is shown, and is no end.

use std::time::Duration;

use backup_core::api::GoDuration;
use tokio::time::Instant;

use super::{pause::pause, subject::Subject};
use crate::{
    Terminal,
    client::Session,
    error::{Exit, Problem},
};

/// The longest pause between two looks.
const SLOWEST: Duration = Duration::from_secs(2);
/// The first pause, and the one after a change.
const FASTEST: Duration = Duration::from_millis(200);
/// An API server that has just started refuses what it will allow in a moment (its authorizer and CRDs are not loaded
/// yet): such answers end the waiting only when they persist.
const STARTING: Duration = Duration::from_secs(30);
/// Without a terminal, a line about items comes at most this often; one about a phase always.
const QUIET: Duration = Duration::from_secs(10);

/// Nobody looks at one object for longer.
pub const LONGEST: Duration = Duration::from_hours(24 * 365);

/// How waiting ended.
pub enum Waited<T> {
    /// What was waited for is there.
    Over(T),
    /// Time ran out.
    TimedOut,
    /// Ctrl-C.
    Interrupted,
}

/// Looks until `look` gives something, time runs out or a person interrupts. A look that fails is repeated while the
/// API server is away.
pub async fn poll<T, F>(
    session: &Session,
    terminal: &mut Terminal,
    timeout: Duration,
    mut look: F,
) -> Result<Waited<T>, Problem>
where
    F: AsyncFnMut(&mut Terminal) -> Result<Look<T>, Problem>,
{
    let deadline = Instant::now() + timeout;
    let mut away: Option<Instant> = None;
    let mut quiet_looks = 0;
    // One listener for the whole time: an interrupt between two awaits is not lost.
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let looked = tokio::select! {
            looked = tokio::time::timeout_at(deadline, look(terminal)) => looked,
            _ = &mut interrupted => return Ok(Waited::Interrupted),
        };
        match looked {
            Err(_) => return Ok(Waited::TimedOut),
            Ok(Ok(Look::Over(value))) => return Ok(Waited::Over(value)),
            Ok(Ok(look)) => {
                if away.take().is_some() {
                    terminal.say(&format!("{} answers again", session.server));
                }
                quiet_looks = if matches!(look, Look::Changed) { 0 } else { quiet_looks + 1 };
            }
            Ok(Err(problem)) => {
                let starting = matches!(problem.category(), "forbidden" | "unauthorized" | "not_served");
                let since = away.unwrap_or_else(Instant::now);
                let may_pass = problem.is_transient() || starting && since.elapsed() < STARTING;
                if !may_pass {
                    return Err(problem);
                }
                if away.replace(since).is_none() {
                    terminal.say(&format!("{problem}; still waiting"));
                }
                quiet_looks += 1;
            }
        }
        let next = Instant::now() + pause(quiet_looks, FASTEST, SLOWEST);
        if next >= deadline {
            tokio::select! {
                () = tokio::time::sleep_until(deadline) => return Ok(Waited::TimedOut),
                _ = &mut interrupted => return Ok(Waited::Interrupted),
            }
        }
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            _ = &mut interrupted => return Ok(Waited::Interrupted),
        }
    }
}

/// What one look saw.
pub enum Look<T> {
    /// What was waited for.
    Over(T),
    /// Something new: look again soon.
    Changed,
    /// Nothing new.
    Same,
}

/// What an object is to come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Its end.
    End,
    /// This phase; another end is an end, too.
    Phase(String),
}

/// Until when, and what was typed for it.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Until when.
    pub deadline: Instant,
    /// For messages.
    pub told: GoDuration,
}

/// Waits until the object of this uid has ended, and tells every change on stderr. Gives the object where it ended.
pub async fn until_ended<K: Subject>(
    session: &Session,
    terminal: &mut Terminal,
    created: &K,
    timeout: GoDuration,
) -> Result<(Exit, Option<K>), Problem> {
    let time = Time { deadline: Instant::now() + timeout.as_std(), told: timeout };
    until_reached(session, terminal, created, &Goal::End, time).await
}

/// The same for any goal.
pub async fn until_reached<K: Subject>(
    session: &Session,
    terminal: &mut Terminal,
    created: &K,
    goal: &Goal,
    time: Time,
) -> Result<(Exit, Option<K>), Problem> {
    let is_there = |object: &K| matches!(goal, Goal::Phase(phase) if *phase == object.phase_name());
    let name = created.meta().name.clone().unwrap_or_default();
    let uid = created.meta().uid.clone();
    let api = session.api::<K>();
    let mut talk = Talk::new(K::KIND, &name, terminal);
    let waited = poll(
        session,
        terminal,
        time.deadline.saturating_duration_since(Instant::now()),
        async |terminal: &mut Terminal| {
            let object = match session.call(K::about("get", &name), api.get(&name)).await {
                Ok(object) if object.meta().uid == uid => object,
                Ok(_) | Err(Problem::NotFound { .. }) => {
                    return Err(Problem::Other {
                        message: format!("{} {name:?} was deleted while it was waited for", K::KIND),
                        remedy: None,
                    });
                }
                Err(problem) => return Err(problem),
            };
            let changed = talk.about(&object, terminal);
            Ok(match object.ended() {
                Some(_) => Look::Over(object),
                None if is_there(&object) => Look::Over(object),
                None if changed => Look::Changed,
                None => Look::Same,
            })
        },
    )
    .await;
    talk.finish(terminal);
    Ok(match waited? {
        Waited::Over(object) if is_there(&object) => {
            terminal.say(&format!("{} {name}: {}", K::KIND, object.phase_name()));
            (Exit::Done, Some(object))
        }
        Waited::Over(object) => {
            let completed = object.ended() == Some(true);
            let verdict = object.verdict(terminal.now());
            let style = terminal.err_style();
            let phase = style.tone(verdict.tone, &object.phase_name());
            terminal.say(&format!("{} {name}: {phase}. {}", K::KIND, verdict.sentence));
            for cause in &verdict.causes {
                terminal.say(&format!("  {cause}"));
            }
            if !completed {
                terminal.say(&format!("More about it: {} {name}", K::DESCRIBE));
            }
            (if completed && *goal == Goal::End { Exit::Done } else { Exit::NotCompleted }, Some(object))
        }
        Waited::TimedOut => {
            terminal.say(&format!(
                "error: {} {name} {} after {}; it goes on in the cluster",
                K::KIND,
                match goal {
                    Goal::End => "has not ended".to_owned(),
                    Goal::Phase(phase) => format!("is not {phase}"),
                },
                time.told
            ));
            terminal.say(&format!("  {} {name}", K::DESCRIBE));
            (Exit::TimedOut, None)
        }
        Waited::Interrupted => {
            terminal.say(&format!("interrupted: {} {name} goes on in the cluster", K::KIND));
            terminal.say(&format!("  {} {name}", K::DESCRIBE));
            (Exit::Interrupted, None)
        }
    })
}

/// Tells changes: a line for each, or on a terminal one line that is written over.
struct Talk {
    subject: String,
    rewrite: bool,
    phase: String,
    items: Option<(i64, i64)>,
    told: Instant,
}

impl Talk {
    fn new(kind: &str, name: &str, terminal: &Terminal) -> Self {
        Self {
            subject: format!("{kind} {name}"),
            rewrite: terminal.err_is_terminal,
            phase: String::new(),
            items: None,
            told: Instant::now(),
        }
    }

    /// Whether something is new.
    fn about<K: Subject>(&mut self, object: &K, terminal: &mut Terminal) -> bool {
        let (phase, items) = (object.phase_name(), object.progress());
        let new_phase = phase != self.phase;
        if !new_phase && items == self.items {
            return false;
        }
        self.items = items;
        if object.ended().is_some() {
            return true; // the end is told with its verdict
        }
        if !new_phase && !self.rewrite && self.told.elapsed() < QUIET {
            return true;
        }
        self.phase = phase;
        self.told = Instant::now();
        let items = items
            .filter(|(_, total)| *total > 0)
            .map_or_else(String::new, |(done, total)| format!(", {done} of {total} items"));
        let line = format!("{}: {}{items}", self.subject, self.phase);
        if self.rewrite {
            terminal.talk_raw(&format!("\r{line}\x1b[K"));
        } else {
            terminal.say(&line);
        }
        true
    }

    /// Leaves the line that was written over empty.
    fn finish(&self, terminal: &mut Terminal) {
        if self.rewrite && !self.phase.is_empty() {
            terminal.talk_raw("\r\x1b[K");
        }
    }
}

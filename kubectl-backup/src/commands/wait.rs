//! `wait`, and `--wait` of other commands: until an object has ended or is in a phase, or a scope is free. A phase that we
//! don't know is shown, and is no end.

use backup_lock::{claim::Claim, ledger::Status};
use tokio::time::{Instant, sleep};

use super::{
    locks::{
        hold::{ScopePart, scope_part},
        problem::{self, LockRole},
    },
    poll::{Look, Polled, STARTING, poll},
    prelude::*,
    selection,
};
use crate::{
    backoff::backoff,
    cli::{Until, UntilArgs, WaitForArgs},
    view::{
        Count, WorkStatus,
        locks::{few, named, touches},
        verdict,
    },
};

/// Without a terminal, a line about items comes at most this often; one about a phase always.
const QUIET: Duration = Duration::from_secs(10);

/// What an object is to come to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Goal {
    End,
    /// This phase; another end is an end, too.
    Phase(String),
}

/// Until when, and what was typed for it.
#[derive(Clone, Copy, Debug)]
struct WaitLimit {
    deadline: Instant,
    typed: GoDuration,
}

impl From<GoDuration> for WaitLimit {
    fn from(typed: GoDuration) -> Self {
        Self { deadline: Instant::now() + typed.as_std(), typed }
    }
}

pub(super) async fn backups(args: WaitForArgs, terminal: &mut Terminal) -> CommandResult {
    let is_free = args.until.until == Until::Free;
    if is_free && !args.until.names.is_empty() {
        return Err(Problem::usage("--for=free is about a scope, not about a backup")
            .with_remedy("kubectl backup wait --for=free"));
    }
    if !is_free && !args.namespaces.is_empty() {
        return Err(Problem::usage("--namespaces belongs to --for=free")
            .with_remedy("kubectl backup wait --for=free --namespaces=NAMES"));
    }
    if is_free {
        let session = Session::connect(terminal).await?;
        return free(&session, &args, terminal).await;
    }
    objects::<Backup>(&args.until, terminal).await
}

/// Waits for each; the worst of what came of them. All have the same time.
pub(super) async fn objects<W: Workload>(args: &UntilArgs, terminal: &mut Terminal) -> CommandResult {
    if args.names.is_empty() || args.until == Until::Free {
        return Err(Problem::usage(format!("which {} is to be waited for?", W::KIND))
            .with_remedy("Give a name; or --for=free to `kubectl backup wait`."));
    }
    let goal = match &args.until {
        Until::Phase(phase) => Goal::Phase(phase.clone()),
        Until::End | Until::Free => Goal::End,
    };
    let limit = WaitLimit::from(args.timeout);
    let session = Session::connect(terminal).await?;
    selection::each(&args.names, terminal, async |name: &str, terminal: &mut Terminal| {
        let work = first_look::<W>(&session, name, limit.deadline).await?;
        Ok(until_reached::<W>(&session, terminal, work.meta(), &goal, limit).await?.exit)
    })
    .await
}

/// The object as it is now. An API server that is away for a moment is asked again.
async fn first_look<W: Workload>(session: &Session, name: &str, deadline: Instant) -> Result<W, Problem> {
    let (start, mut pauses) = (Instant::now(), backoff(Duration::from_millis(200), Duration::from_secs(2)));
    loop {
        let found = session.get::<W>(name).await;
        let may_pass = start.elapsed() < STARTING && Instant::now() < deadline;
        match (found, pauses.next()) {
            (Err(problem), Some(pause)) if problem.is_transient() && may_pass => sleep(pause).await,
            (found, _) => return found,
        }
    }
}

pub(super) struct Waited<W> {
    pub(super) exit: Exit,
    /// The workload, where it came to an end or to the phase.
    pub(super) work: Option<W>,
}

/// Waits until the object of this name and uid has ended, and shows every change on stderr.
pub(super) async fn until_ended<W: Workload>(
    session: &Session,
    terminal: &mut Terminal,
    meta: &ObjectMeta,
    timeout: GoDuration,
) -> Result<Waited<W>, Problem> {
    until_reached(session, terminal, meta, &Goal::End, timeout.into()).await
}

async fn until_reached<W: Workload>(
    session: &Session,
    terminal: &mut Terminal,
    meta: &ObjectMeta,
    goal: &Goal,
    time: WaitLimit,
) -> Result<Waited<W>, Problem> {
    let is_there = |status: &WorkStatus<'_>| matches!(goal, Goal::Phase(phase) if *phase == status.phase);
    let name = meta.name.as_deref().unwrap_or_default();
    let mut progress = ProgressLine::new(W::KIND, name, terminal);
    let left = time.deadline.saturating_duration_since(Instant::now());
    let waited = poll(session, terminal, left, async |terminal: &mut Terminal| {
        let found = optional(session.get::<W>(name).await)?.filter(|work| work.meta().uid == meta.uid);
        let Some(work) = found else {
            let message = format!("{} {name:?} was deleted while it was waited for", W::KIND);
            return Err(Problem::other(message));
        };
        let status = work.status();
        let changed = progress.show(&status, terminal);
        let is_over = status.ended().is_some() || is_there(&status);
        Ok(match changed {
            _ if is_over => Look::Found(work),
            true => Look::Changed,
            false => Look::Same,
        })
    })
    .await;
    progress.clear(terminal);
    let describe = format!("{} describe {name}", W::COMMAND);
    Ok(match waited? {
        Polled::Found(work) => {
            let status = work.status();
            let completed = status.ended() == Some(true);
            if is_there(&status) {
                terminal.say(&format!("{} {name}: {}", W::KIND, status.phase));
                return Ok(Waited { exit: Exit::Done, work: Some(work) });
            }
            let verdict = verdict(&work, terminal.now());
            let phase = terminal.err_style().tone(verdict.tone, &status.phase);
            terminal.say(&format!("{} {name}: {phase}. {}", W::KIND, verdict.sentence));
            for cause in &verdict.causes {
                terminal.say(&format!("  {cause}"));
            }
            if !completed {
                terminal.say(&format!("More about it: {describe}"));
            }
            let exit = if completed && *goal == Goal::End { Exit::Done } else { Exit::NotCompleted };
            Waited { exit, work: Some(work) }
        }
        Polled::TimedOut => {
            let missed = match goal {
                Goal::End => "has not ended".to_owned(),
                Goal::Phase(phase) => format!("is not {phase}"),
            };
            terminal.say(&format!(
                "error: {} {name} {missed} after {}; it goes on in the cluster\n  {describe}",
                W::KIND,
                time.typed
            ));
            Waited { exit: Exit::TimedOut, work: None }
        }
        Polled::Interrupted => {
            let kind = W::KIND;
            terminal.say(&format!("interrupted: {kind} {name} goes on in the cluster\n  {describe}"));
            Waited { exit: Exit::Interrupted, work: None }
        }
    })
}

/// Shows progress: a line for each change, or on a terminal one line that is written over.
struct ProgressLine {
    subject: String,
    rewrite: bool,
    phase: String,
    items: Option<Count>,
    shown: Instant,
}

impl ProgressLine {
    fn new(kind: &str, name: &str, terminal: &Terminal) -> Self {
        Self {
            subject: format!("{kind} {name}"),
            rewrite: terminal.err_is_terminal,
            phase: String::new(),
            items: None,
            shown: Instant::now(),
        }
    }

    fn show(&mut self, status: &WorkStatus<'_>, terminal: &mut Terminal) -> bool {
        let WorkStatus { phase, items, .. } = status;
        let new_phase = *phase != self.phase;
        if !new_phase && *items == self.items {
            return false;
        }
        self.items = *items;
        if status.ended().is_some() {
            return true; // the end is shown with its verdict
        }
        if !new_phase && !self.rewrite && self.shown.elapsed() < QUIET {
            return true;
        }
        self.phase.clone_from(phase);
        self.shown = Instant::now();
        let items = items
            .filter(|items| items.total > 0)
            .map_or_else(String::new, |items| format!(", {} of {} items", items.done, items.total));
        let line = format!("{}: {}{items}", self.subject, self.phase);
        if self.rewrite {
            terminal.talk_raw(&format!("\r{line}\x1b[K"));
        } else {
            terminal.say(&line);
        }
        true
    }

    /// Leaves the line that was written over empty.
    fn clear(&self, terminal: &mut Terminal) {
        if self.rewrite && !self.phase.is_empty() {
            terminal.talk_raw("\r\x1b[K");
        }
    }
}

/// Until no claim in the scope touches what was asked about.
async fn free(session: &Session, args: &WaitForArgs, terminal: &mut Terminal) -> CommandResult {
    let ScopePart { store, footprint } = scope_part(session, &args.scope, &args.namespaces).await?;
    let subject = format!("scope {}, {}", plain(&args.scope), touches(&footprint, &args.scope));
    let timeout = args.until.timeout;
    let mut waited_for = Vec::new();
    let waited = poll(session, terminal, timeout.as_std(), async |terminal: &mut Terminal| {
        let stored = store.read(&args.scope).await;
        let stored = stored.map_err(|error| problem::of_ledger(error, session, LockRole::View))?;
        let Some(stored) = stored else { return Ok(Look::Found(())) };
        let ledger = &stored.ledger;
        let in_the_way = |claim: &&Claim| {
            args.namespaces.is_empty()
                || claim.entries.iter().any(|entry| entry.footprint.overlaps(&footprint))
        };
        let mut holders: Vec<String> =
            ledger.claims.iter().filter(in_the_way).map(|claim| named(&claim.key)).collect();
        if ledger.status == Status::Rebuilding {
            holders.push("the ledger to be rebuilt".to_owned());
        }
        if holders.is_empty() {
            return Ok(Look::Found(()));
        }
        if holders == waited_for {
            return Ok(Look::Same);
        }
        terminal.say(&format!("{subject}: waiting for {}", few(&holders)));
        waited_for = holders;
        Ok(Look::Changed)
    })
    .await?;
    match waited {
        Polled::Found(()) => {
            terminal.say(&format!("{subject}: free"));
            Ok(Exit::Done)
        }
        Polled::TimedOut => {
            terminal.say(&format!(
                "error: {subject}: not free after {timeout}\n  `kubectl backup locks` shows who holds it."
            ));
            Ok(Exit::TimedOut)
        }
        Polled::Interrupted => Ok(Exit::Interrupted),
    }
}

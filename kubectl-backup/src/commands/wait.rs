//! `wait`, and `--wait` of other commands: until an object has ended or is in a phase, or a scope is free. A phase that we
//! don't know is shown, and is no end.

use backup_lock::{claim::Claim, ledger::Status};
use tokio::time::{Instant, sleep};

use super::{
    changes::Changes,
    locks::{
        hold::scope_part,
        problem::{self, LockRole},
    },
    poll::{Look, STARTING, poll, poll_on},
    prelude::*,
    selection,
};
use crate::{
    backoff::pauses,
    cli::{Until, UntilArgs, WaitForArgs},
    view::{
        Count, WorkStatus,
        locks::{few, named, touches},
        verdict,
    },
};

/// Without a terminal, a line about items comes at most this often; one about a phase always.
const QUIET: Duration = Duration::from_secs(10);

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
    let phase = match &args.until {
        Until::Phase(phase) => Some(phase.as_str()),
        Until::End | Until::Free => None,
    };
    let deadline = Instant::now() + args.timeout.as_std();
    let session = Session::connect(terminal).await?;
    selection::each(&args.names, terminal, async |name: &str, terminal: &mut Terminal| {
        let work = first_look::<W>(&session, name, deadline).await?;
        let reached = until_reached::<W>(&session, terminal, work.meta(), phase, deadline, args.timeout);
        Ok(reached.await?.0)
    })
    .await
}

/// The object as it is now. An API server that is away for a moment is asked again.
async fn first_look<W: Workload>(session: &Session, name: &str, deadline: Instant) -> Result<W, Problem> {
    let (start, mut pauses) = (Instant::now(), pauses());
    loop {
        let found = session.get::<W>(name).await;
        let may_pass = start.elapsed() < STARTING && Instant::now() < deadline;
        match (found, pauses.next()) {
            (Err(problem), Some(pause)) if problem.is_transient() && may_pass => sleep(pause).await,
            (found, _) => return found,
        }
    }
}

/// Waits until the object of this name and uid has ended, and shows every change on stderr. The exit code, and the workload where it
/// has ended.
pub(super) async fn until_ended<W: Workload>(
    session: &Session,
    terminal: &mut Terminal,
    meta: &ObjectMeta,
    timeout: GoDuration,
) -> Result<(Exit, Option<W>), Problem> {
    until_reached(session, terminal, meta, None, Instant::now() + timeout.as_std(), timeout).await
}

/// The same for a phase, if one is given; another end is an end, too. `timeout` is what was typed for the deadline.
async fn until_reached<W: Workload>(
    session: &Session,
    terminal: &mut Terminal,
    meta: &ObjectMeta,
    phase: Option<&str>,
    deadline: Instant,
    timeout: GoDuration,
) -> Result<(Exit, Option<W>), Problem> {
    let is_there = |status: &WorkStatus<'_>| phase == Some(status.phase.as_str());
    let name = meta.name.as_deref().unwrap_or_default();
    let mut progress = ProgressLine::new(W::KIND, name, terminal);
    let left = deadline.saturating_duration_since(Instant::now());
    let mut changes = Changes::of(session.api::<W>(), name);
    let waited = poll_on(
        session,
        terminal,
        left,
        async || changes.next().await,
        async |terminal| {
            let found = optional(session.get::<W>(name).await)?.filter(|work| work.meta().uid == meta.uid);
            let Some(work) = found else {
                let message = format!("{} {name:?} was deleted while it was waited for", W::KIND);
                return Err(Problem::other(message));
            };
            let status = work.status();
            let is_new = progress.show(&status, terminal);
            let is_over = status.ended().is_some() || is_there(&status);
            Ok(match is_new {
                _ if is_over => Look::Found(work),
                true => Look::Changed,
                false => Look::Same,
            })
        },
    )
    .await;
    progress.clear(terminal);
    let (kind, describe) = (W::KIND, format!("{} describe {name}", W::COMMAND));
    let work = match waited? {
        Ok(work) => work,
        Err(exit) => {
            let missed = phase.map_or_else(|| "has not ended".to_owned(), |phase| format!("is not {phase}"));
            let what = match exit {
                Exit::TimedOut => format!("error: {kind} {name} {missed} after {timeout}; it"),
                _ => format!("interrupted: {kind} {name}"),
            };
            terminal.say(&format!("{what} goes on in the cluster\n  {describe}"));
            return Ok((exit, None));
        }
    };
    let status = work.status();
    let completed = status.ended() == Some(true);
    if is_there(&status) {
        terminal.say(&format!("{kind} {name}: {}", status.phase));
        return Ok((Exit::Done, Some(work)));
    }
    let verdict = verdict(&work, terminal.now());
    let shown = terminal.err_style().tone(verdict.tone, &status.phase);
    terminal.say(&format!("{kind} {name}: {shown}. {}", verdict.sentence));
    for cause in &verdict.causes {
        terminal.say(&format!("  {cause}"));
    }
    if !completed {
        terminal.say(&format!("More about it: {describe}"));
    }
    let exit = if completed && phase.is_none() { Exit::Done } else { Exit::NotCompleted };
    Ok((exit, Some(work)))
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
    let (store, footprint) = scope_part(session, &args.scope, &args.namespaces).await?;
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
        Ok(()) => terminal.say(&format!("{subject}: free")),
        Err(Exit::TimedOut) => terminal.say(&format!(
            "error: {subject}: not free after {timeout}\n  `kubectl backup locks` shows who holds it."
        )),
        Err(_) => {}
    }
    Ok(waited.err().unwrap_or(Exit::Done))
}

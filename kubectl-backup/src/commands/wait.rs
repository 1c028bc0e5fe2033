//! `wait`, and `--wait` of other commands: waits until an object has ended or is in a phase, or a
//! scope is free. An unknown phase is shown, and does not count as an end.

use backup_core::restorability::{Answer, Evidence, Place, Restorability};
use backup_lock::ledger::Status;
use futures::{FutureExt as _, future::select_all};
use tokio::time::{Instant, sleep};

use super::{
    changes::Changes,
    get::places,
    locks::{
        hold::scope_part,
        problem::{self, LockRole},
        velero::read_ledger,
    },
    messages::stored_messages,
    poll::{Look, START_UP_GRACE, poll, poll_on},
    prelude::*,
    selection::Worst,
};
use crate::{
    backoff::pauses,
    cli::{Until, UntilArgs, WaitForArgs},
    owned,
    print::{Tone, describe::message_lines, row},
    view::{
        Verdict, WorkStatus,
        locks::{few, named, touches},
        progress::{self, Meter, Share},
        verdict, workload,
    },
};

/// Without a terminal: minimum interval between lines about items. Lines about phases are always
/// printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum time between two questions of a namespace owner, each of which is an object that the
/// controller answers.
const OWNER_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of errors and warnings of an ended object that are shown.
const MAX_MESSAGES: usize = 5;

pub(super) async fn backups(args: WaitForArgs, terminal: &mut Terminal) -> CommandResult {
    let is_free = args.until.until == Until::Free;
    if is_free && !args.until.names.is_empty() {
        return Err(
            Problem::usage("--for=free is about a scope, not about a backup")
                .with_remedy("kubectl backup wait --for=free"),
        );
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

/// Waits for all objects concurrently, with a common deadline. Returns the worst result.
pub(super) async fn objects<W: Workload>(
    args: &UntilArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    if args.names.is_empty() || args.until == Until::Free {
        return Err(
            Problem::usage(format!("which {} is to be waited for?", W::KIND))
                .with_remedy("Give a name; or --for=free to `kubectl backup wait`."),
        );
    }
    let phase = match &args.until {
        Until::Phase(phase) => Some(phase.as_str()),
        Until::End | Until::Free => None,
    };
    let deadline = Instant::now() + args.timeout.as_std();
    let session = Session::connect(terminal).await?;
    let mut found = Vec::new();
    let mut worst = Worst::default();
    for name in &args.names {
        match first_look::<W>(&session, name, deadline).await {
            Ok(work) => found.push(work),
            Err(problem) => worst.take(Err(problem), terminal),
        }
    }
    for reached in until_reached(&session, terminal, found, phase, deadline, args.timeout).await? {
        worst.take(reached.map(|(exit, _)| exit), terminal);
    }
    worst.result()
}

/// Reads the object. Retries if the API server is away for a moment.
async fn first_look<W: Workload>(
    session: &Session,
    name: &str,
    deadline: Instant,
) -> Result<W, Problem> {
    let start = Instant::now();
    let mut pauses = pauses();
    loop {
        let found = readable::<W>(session, name).await.map(|(work, _)| work);
        let may_pass = start.elapsed() < START_UP_GRACE && Instant::now() < deadline;
        match (found, pauses.next()) {
            (Err(problem), Some(pause)) if problem.is_transient() && may_pass => sleep(pause).await,
            (found, _) => return hinted::<W, _>(session, "wait", name, found).await,
        }
    }
}

/// The current object, and whether the controller gave it to a namespace owner, who may not read it
/// directly.
async fn readable<W: Workload>(session: &Session, name: &str) -> Result<(W, bool), Problem> {
    match session.get::<W>(name).await {
        Err(problem) if problem.kind == ProblemKind::Forbidden => {
            let owned = Box::pin(owned::get(session, name)).await;
            owned.unwrap_or(Err(problem)).map(|work| (work, true))
        }
        read => read.map(|work| (work, false)),
    }
}

/// The result of waiting for an object: the exit code, and the object if it has ended.
type Reached<W> = Result<(Exit, Option<W>), Problem>;

/// Waits until exactly this object has ended, and prints every change on stderr.
pub(super) async fn until_ended<W: Workload>(
    session: &Session,
    terminal: &mut Terminal,
    work: W,
    timeout: GoDuration,
) -> Reached<W> {
    let deadline = Instant::now() + timeout.as_std();
    let reached = until_reached(session, terminal, vec![work], None, deadline, timeout).await?;
    reached.into_iter().next().unwrap_or(Ok((Exit::Done, None)))
}

/// An object for whose end the command waits.
struct AwaitedObject<W> {
    name: String,
    uid: Option<String>,
    progress: ProgressLine,
    /// The `resourceVersion` of the state that was shown last.
    version: Option<u64>,
    /// When the controller was last asked for it; `None` if the user may read it directly.
    asked: Option<Instant>,
    reached: Option<Reached<W>>,
}

/// Waits for several objects to end, or to reach or pass the given phase. Any other end stops the
/// waiting, too. `timeout` is the value that the user typed.
async fn until_reached<W: Workload>(
    session: &Session,
    terminal: &mut Terminal,
    works: Vec<W>,
    phase: Option<&str>,
    deadline: Instant,
    timeout: GoDuration,
) -> Result<Vec<Reached<W>>, Problem> {
    if works.is_empty() {
        return Ok(Vec::new());
    }
    let rewrite = works.len() == 1 && terminal.err_is_terminal;
    let mut changes: Vec<_> = works
        .iter()
        .map(|work| Changes::after(session.api::<W>(), work))
        .collect();
    let mut all: Vec<AwaitedObject<W>> = works
        .into_iter()
        .map(|work| AwaitedObject::new(&work, rewrite))
        .collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let waited = poll_on(
        session,
        terminal,
        left,
        async || {
            let next = changes.iter_mut().map(|changes| changes.next().boxed());
            let (work, index, _) = select_all(next).await;
            (index, work)
        },
        async |terminal, change| {
            let mut is_new = false;
            if let Some((index, work)) = change {
                let one = &mut all[index];
                if one.reached.is_none() {
                    is_new = one.look(session, Some(work), phase, terminal).await;
                }
            } else {
                for one in all.iter_mut().filter(|one| one.is_to_be_read()) {
                    let work = optional(one.read(session).await)?;
                    is_new |= one.look(session, work, phase, terminal).await;
                }
            }
            Ok(if all.iter().all(|one| one.reached.is_some()) {
                Look::Found(())
            } else if is_new {
                Look::Changed
            } else {
                Look::Same
            })
        },
    )
    .await;
    let exit = waited?.err().unwrap_or(Exit::Done);
    Ok(all
        .into_iter()
        .map(|one| one.into_result(phase, exit, timeout, terminal))
        .collect())
}

impl<W: Workload> AwaitedObject<W> {
    fn new(work: &W, rewrite: bool) -> Self {
        let name = work.name_any();
        let progress = ProgressLine::new(W::KIND, &name, rewrite);
        Self {
            name,
            uid: work.meta().uid.clone(),
            progress,
            version: None,
            asked: None,
            reached: None,
        }
    }

    fn is_to_be_read(&self) -> bool {
        let asked = self.asked;
        self.reached.is_none() && asked.is_none_or(|asked| asked.elapsed() >= OWNER_INTERVAL)
    }

    async fn read(&mut self, session: &Session) -> Result<W, Problem> {
        let (work, is_owner) = readable(session, &self.name).await?;
        self.asked = is_owner.then(Instant::now);
        Ok(work)
    }

    /// The result, or `exit` and a message if the waiting stopped before the object was ready.
    fn into_result(
        mut self,
        phase: Option<&str>,
        exit: Exit,
        timeout: GoDuration,
        terminal: &mut Terminal,
    ) -> Reached<W> {
        self.progress.clear(terminal);
        if let Some(reached) = self.reached {
            return reached;
        }
        let kind = W::KIND;
        let name = &self.name;
        let missed = phase.map_or_else(
            || "has not ended".to_owned(),
            |phase| format!("is not {phase}"),
        );
        let what = match exit {
            Exit::TimedOut => format!("error: {kind} {name} {missed} after {timeout}; it"),
            _ => format!("interrupted: {kind} {name}"),
        };
        terminal.say(&format!("{what} continues in the cluster"));
        if let Some(cause) = &self.progress.blocked {
            terminal.say(&format!("  {cause}"));
        }
        terminal.say(&format!("  {} describe {name}", W::COMMAND));
        Ok((exit, None))
    }

    /// Updates the state; returns true if it is new.
    async fn look(
        &mut self,
        session: &Session,
        now: Option<W>,
        phase: Option<&str>,
        terminal: &mut Terminal,
    ) -> bool {
        let Some(work) = now.filter(|work| work.meta().uid == self.uid) else {
            self.progress.clear(terminal);
            let message = format!(
                "{} {:?} was deleted while it was waited for",
                W::KIND,
                self.name
            );
            self.reached = Some(Err(Problem::other(message)));
            return true;
        };
        // A watch may deliver a state older than the last one read. Versions of an object are
        // ordered (KEP-5504).
        let version = work
            .meta()
            .resource_version
            .as_deref()
            .and_then(|version| version.parse().ok());
        if version < self.version {
            return false;
        }
        self.version = version;
        let waits = waits_for(session, &work).await;
        let status = work.status();
        let is_new = self.progress.show(&status, waits, terminal);
        let is_there = phase == Some(status.phase.as_str());
        if is_there || work.ended().is_some() {
            self.progress.clear(terminal);
            if is_there {
                let name = &self.name;
                terminal.say(&format!("{} {name}: {}", W::KIND, status.phase));
                self.reached = Some(Ok((Exit::Done, Some(work))));
                return is_new;
            }
            let judged = judge(session, &work).await;
            let completed = tell_end(&work, judged.as_ref(), terminal);
            let exit = Exit::of_end(completed && phase.is_none());
            let reached = self.reached.insert(Ok((exit, Some(work))));
            // The end is known from here on, also if time runs out while the messages are read.
            if let Ok((_, Some(work))) = reached {
                tell_messages(session, work, completed, terminal).await;
            }
        }
        is_new
    }
}

/// What the work waits for: from its status, or from the ledger if the work has not begun. Not
/// every user may read the ledger.
async fn waits_for<W: Workload>(session: &Session, work: &W) -> Option<String> {
    if work.blocked().is_some() || !workload::has_not_begun(work.status().stage) {
        return work.blocked();
    }
    workload::turn(work, Box::pin(read_ledger(session)).await.ok()?.as_ref())
}

/// Whether a stored backup can be restored, by its phase. If its location cannot be read, the
/// location is ignored: not every user may read locations, and for a backup that ran here the phase
/// suffices.
async fn judge<W: Workload>(session: &Session, work: &W) -> Option<Restorability> {
    let backup = work.as_backup().filter(|_| work.status().is_whole())?;
    let evidence = Evidence::of(backup);
    let place = places(session).await.of_backup(&evidence);
    let is_read = !matches!(place, Place::Unread(_));
    Some(evidence.judge(is_read.then_some(&place)))
}

/// Prints how the work has ended. Returns whether it is Completed, and can be restored.
fn tell_end<W: Workload>(
    work: &W,
    judged: Option<&Restorability>,
    terminal: &mut Terminal,
) -> bool {
    let kind = W::KIND;
    let name = work.name_any();
    let status = work.status();
    let mut completed = work.ended() == Some(true);
    let mut verdict = verdict(work, terminal.now());
    if let Some(judged) = judged.filter(|judged| completed && !judged.is_good) {
        completed = false;
        let doubt = match judged.answer {
            Answer::No => "But it cannot be restored",
            _ => "But whether it can be restored is not known",
        };
        verdict = Verdict {
            tone: Tone::Bad,
            ..verdict
        }
        .because([plain(&format!("{doubt}: {}.", judged.reasons.join("; ")))]);
    }
    let shown = terminal.err_style().tone(verdict.tone, &status.phase);
    terminal.say(&format!("{kind} {name}: {shown}. {}", verdict.sentence));
    for cause in &verdict.causes {
        terminal.say(&format!("  {cause}"));
    }
    completed
}

/// Prints the first errors and warnings of work that has ended, and the command that shows all.
async fn tell_messages<W: Workload>(
    session: &Session,
    work: &W,
    completed: bool,
    terminal: &mut Terminal,
) {
    let describe = format!("{} describe {}", W::COMMAND, work.name_any());
    let read = stored_messages(session, work).await;
    let style = terminal.err_style();
    let lines = read
        .value()
        .map(|messages| message_lines(messages, style))
        .unwrap_or_default();
    for line in lines.iter().take(MAX_MESSAGES) {
        terminal.say(&format!("  {line}"));
    }
    if lines.len() > MAX_MESSAGES {
        let rest = lines.len() - MAX_MESSAGES;
        terminal.say(&format!("  and {rest} more: {describe} --details"));
    } else if !completed || lines.is_empty() && work.status().warnings > 0 {
        terminal.say(&format!("More about it: {describe}"));
    }
}

/// Shows progress: a line for each change, or on a terminal one line with a bar that is
/// overwritten.
struct ProgressLine {
    subject: String,
    rewrite: bool,
    phase: String,
    share: Option<Share>,
    blocked: Option<String>,
    meter: Meter,
    shown: Instant,
}

impl ProgressLine {
    fn new(kind: &str, name: &str, rewrite: bool) -> Self {
        Self {
            subject: format!("{kind} {name}"),
            rewrite,
            phase: String::new(),
            share: None,
            blocked: None,
            meter: Meter::default(),
            shown: Instant::now(),
        }
    }

    /// `blocked` is the reason for which the work waits, printed on a separate line.
    fn show(
        &mut self,
        status: &WorkStatus<'_>,
        blocked: Option<String>,
        terminal: &mut Terminal,
    ) -> bool {
        let is_new = self.show_progress(status, terminal);
        if blocked == self.blocked {
            return is_new;
        }
        if let Some(blocked) = &blocked {
            self.clear(terminal);
            terminal.say(&format!("{}: {blocked}", self.subject));
        }
        self.blocked = blocked;
        true
    }

    fn show_progress(&mut self, status: &WorkStatus<'_>, terminal: &mut Terminal) -> bool {
        let phase = &status.phase;
        let share = if self.rewrite {
            progress::share(status)
        } else {
            progress::items(status)
        };
        let new_phase = *phase != self.phase;
        if !new_phase && share == self.share {
            return false;
        }
        self.share = share;
        if status.ended().is_some() {
            return true; // the end is shown with its verdict
        }
        if !new_phase && !self.rewrite && self.shown.elapsed() < PROGRESS_INTERVAL {
            return true;
        }
        self.phase.clone_from(phase);
        self.shown = Instant::now();
        let line = format!("{}: {}", self.subject, self.phase);
        if self.rewrite {
            let bar = share.map(|share| format!("  {}", self.meter.bar(share, terminal.now())));
            let line = row(&(line + &bar.unwrap_or_default()), (terminal.size)());
            terminal.talk_raw(&format!("\r{line}\x1b[K"));
        } else {
            let items = share.map(|share| format!(", {share}"));
            terminal.say(&(line + &items.unwrap_or_default()));
        }
        true
    }

    /// Clears the overwritten line.
    fn clear(&mut self, terminal: &mut Terminal) {
        if self.rewrite && !std::mem::take(&mut self.phase).is_empty() {
            terminal.talk_raw("\r\x1b[K");
        }
    }
}

/// Waits until no claim in the scope touches the given footprint.
async fn free(session: &Session, args: &WaitForArgs, terminal: &mut Terminal) -> CommandResult {
    let (store, footprint) = scope_part(session, &args.scope, &args.namespaces).await?;
    let subject = format!(
        "scope {}, {}",
        plain(&args.scope),
        touches(&footprint, &args.scope)
    );
    let timeout = args.until.timeout;
    let mut waited_for = Vec::new();
    let waited = poll(
        session,
        terminal,
        timeout.as_std(),
        async |terminal: &mut Terminal| {
            let stored = store.read(&args.scope).await;
            let stored =
                stored.map_err(|error| problem::of_ledger(error, session, LockRole::View))?;
            let Some(stored) = stored else {
                return Ok(Look::Found(()));
            };
            let ledger = stored.ledger.without_lapsed();
            let mut holders: Vec<String> = ledger
                .claims
                .iter()
                .filter(|claim| {
                    args.namespaces.is_empty()
                        || claim
                            .entries
                            .iter()
                            .any(|entry| entry.footprint.overlaps(&footprint))
                })
                .map(|claim| named(&claim.key))
                .collect();
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
        },
    )
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

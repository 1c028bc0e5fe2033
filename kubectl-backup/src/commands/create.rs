//! `create`, and the code that creating a backup and creating a restore share. With `--retry-for` a
//! creation that is refused because of a conflict is retried, at the pace that the refusal names.

use backup_core::{
    names, scheduled_backup,
    validate::{self, Finding},
};
use tokio::time::{Instant, sleep, timeout};

use super::{prelude::*, spec, wait};
use crate::{
    backoff::pauses,
    cli::{CreateArgs, CreationArgs, DryRun, Output},
    client::installation_namespace,
};

/// Maximum number of tries of a creation that gets no answer.
const MAX_ATTEMPTS: usize = 5;

pub(crate) async fn run(args: CreateArgs, terminal: &mut Terminal) -> CommandResult {
    let connection = Connection::new();
    let mut backup: Backup = match &args.from_schedule {
        Some(schedule) => start_from(schedule, connection.session(terminal).await?).await?,
        None => spec::start(&args.file, terminal)?,
    };
    let prefix = args.from_schedule.as_deref().unwrap_or("backup");
    let name = args.name.clone().or(backup.metadata.name.take());
    backup.metadata.name = Some(name.unwrap_or_else(|| names::unnamed(prefix, terminal.now())));
    spec::describe_object(&mut backup.metadata, &args.creation.object);
    spec::fill(&mut backup.spec, &args.spec);
    spec::explain_zero_ttl(&args.spec, terminal);
    let checked = SpecErrors::new(
        validate::backup(&backup.spec),
        validate::engine_backup(&backup.spec),
    );
    Box::pin(finish(
        backup,
        &checked,
        &args.creation,
        &connection,
        terminal,
    ))
    .await
}

/// The Backup that the schedule would make now, still without a name.
async fn start_from(name: &str, session: &Session) -> Result<Backup, Problem> {
    let schedule = get_named::<Schedule>(session, "trigger", name).await?;
    let mut backup = scheduled_backup::backup_of(&schedule, "");
    backup.metadata.name = None;
    Ok(backup)
}

/// A session that is created when it is first needed: `--dry-run=client` needs none.
#[derive(Default)]
pub(crate) struct Connection(tokio::sync::OnceCell<Session>);

impl Connection {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) async fn session(&self, terminal: &Terminal) -> Result<&Session, Problem> {
        self.0.get_or_try_init(|| Session::connect(terminal)).await
    }
}

/// Errors in a spec that can be found without a cluster.
#[derive(Default)]
pub(crate) struct SpecErrors {
    /// Every server refuses these.
    invalid: Vec<Finding>,
    /// Errors for which only our controller refuses the spec: a Velero server (guard mode) may
    /// accept it, so the cluster decides.
    unsupported: Vec<Finding>,
}

impl SpecErrors {
    /// `by_engine` holds all findings of our controller, including `invalid`.
    pub(crate) fn new(invalid: Vec<Finding>, mut by_engine: Vec<Finding>) -> Self {
        by_engine.retain(|finding| !invalid.contains(finding));
        Self {
            invalid,
            unsupported: by_engine,
        }
    }
}

fn listed(findings: &[Finding]) -> String {
    findings
        .iter()
        .fold(String::new(), |all, one| format!("{all}\n  {one}"))
}

/// Fails with all findings of `invalid`; `what` is the start of the message.
pub(crate) fn check_invalid(what: &str, checked: &SpecErrors) -> Result<(), Problem> {
    if checked.invalid.is_empty() {
        return Ok(());
    }
    Err(Problem::other(format!(
        "{what}:{}",
        listed(&checked.invalid)
    )))
}

pub(crate) enum CreationOutcome<K> {
    /// Not stored; the second field says how it was checked.
    Dry(K, &'static str),
    Stored(K),
}

pub(crate) async fn make<K: TableKind>(
    mut object: K,
    checked: &SpecErrors,
    args: &CreationArgs,
    connection: &Connection,
    terminal: &mut Terminal,
) -> Result<CreationOutcome<K>, Problem> {
    let name = object.meta().name.clone().unwrap_or_default();
    if !names::is_object_name(&name) {
        return Err(Problem::usage(format!(
            "{name:?} is no name: expected lower-case letters, digits, - and ., with a letter or digit at both ends"
        )));
    }
    check_invalid(&format!("{} {name:?} is not valid", K::KIND), checked)?;
    if args.dry_run == Some(DryRun::Client) {
        if !checked.unsupported.is_empty() {
            let unsupported = listed(&checked.unsupported);
            let message = format!(
                "warning: backup-controller refuses {} {name:?}:{unsupported}",
                K::KIND
            );
            terminal.say(&message);
        }
        object.meta_mut().namespace = Some(installation_namespace(terminal));
        return Ok(CreationOutcome::Dry(object, " (dry run)"));
    }
    let session = connection.session(terminal).await?;
    object.meta_mut().namespace = Some(session.namespace.clone());
    let dry_run = args.dry_run == Some(DryRun::Server);
    let created = create(session, &object, dry_run, args.retry_for, terminal).await?;
    terminal.say_api_warnings();
    Ok(if dry_run {
        CreationOutcome::Dry(created, " (server dry run)")
    } else {
        CreationOutcome::Stored(created)
    })
}

pub(crate) async fn finish<K: Workload>(
    object: K,
    checked: &SpecErrors,
    args: &CreationArgs,
    connection: &Connection,
    terminal: &mut Terminal,
) -> CommandResult {
    let created = match make(object, checked, args, connection, terminal).await? {
        CreationOutcome::Dry(object, how) => {
            print(&object, args.output, how, terminal)?;
            return Ok(Exit::Done);
        }
        CreationOutcome::Stored(created) => created,
    };
    if !args.wait.wait {
        print(&created, args.output, "", terminal)?;
        if args.output.is_none() {
            let name = created.meta().name.as_deref().unwrap_or_default();
            terminal.say(&format!("Follow it with: {} describe {name}", K::COMMAND));
        }
        return Ok(Exit::Done);
    }
    // JSON and YAML are printed once the object is final; a line is printed at once.
    let whole = matches!(args.output, Some(Output::Json | Output::Yaml));
    if !whole {
        print(&created, args.output, "", terminal)?;
    }
    let session = connection.session(terminal).await?;
    let (exit, work) =
        wait::until_ended(session, terminal, created.clone(), args.wait.timeout).await?;
    if whole {
        print(work.as_ref().unwrap_or(&created), args.output, "", terminal)?;
    }
    Ok(exit)
}

pub(crate) fn print<K: TableKind>(
    object: &K,
    output: Option<Output>,
    how: &str,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let name = object.meta().name.as_deref().unwrap_or_default();
    let text = match output {
        None => format!("{} created{how}\n", full_name::<K>(name)),
        Some(Output::Name) => format!("{}\n", full_name::<K>(name)),
        Some(form) => {
            let mut object = object.clone();
            object.meta_mut().managed_fields = None; // as kubectl does
            let mut whole = serde_json::to_value(&object).unwrap_or_default();
            let status = whole
                .as_object_mut()
                .and_then(|fields| fields.remove("status"));
            let is_manifest = status
                .as_ref()
                .and_then(Value::as_object)
                .is_none_or(serde_json::Map::is_empty);
            if is_manifest {
                json::object(&whole, form)?
            } else {
                json::object(&object, form)?
            }
        }
    };
    Ok(terminal.data(&text)?)
}

fn spec_of<K: TableKind>(object: &K) -> Value {
    serde_json::to_value(object)
        .map(|mut whole| whole["spec"].take())
        .unwrap_or_default()
}

/// Creates an object under its fixed name.
///
/// The write is create-only, and the name does not change between tries: a try whose answer was
/// lost cannot create a second object. `AlreadyExists` after such a try is a success if the stored
/// object has all requested fields.
async fn create_only<K: TableKind>(
    session: &Session,
    object: &K,
    dry_run: bool,
) -> Result<K, Problem> {
    let name = object.meta().name.clone().unwrap_or_default();
    let params = PostParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    };
    let mut pauses = pauses().take(MAX_ATTEMPTS - 1);
    let mut is_first = true;
    let mut lost = false;
    loop {
        let problem = match session.create(object, &params).await {
            Ok(created) => return Ok(created),
            Err(problem) => problem,
        };
        if problem.kind == ProblemKind::Exists && lost {
            let stored = session.get::<K>(&name).await?;
            if is_within(&spec_of(object), &spec_of(&stored)) {
                return Ok(stored);
            }
            return Err(About::of::<K>("create", &name).exists(&session.namespace));
        }
        // A failure to connect means a wrong address more often than a restart: two tries are
        // enough.
        let never_sent =
            problem.kind == ProblemKind::Unreachable && problem.message.contains("(Connect)");
        let Some(pause) = pauses.next().filter(|_| problem.is_transient()) else {
            return Err(problem);
        };
        if never_sent && !lost && !is_first {
            return Err(problem);
        }
        lost |= !never_sent;
        is_first = false;
        sleep(pause).await;
    }
}

/// Whether the stored object has everything that was requested. A server adds default values and
/// appends to lists.
fn is_within(asked: &Value, stored: &Value) -> bool {
    match (asked, stored) {
        (Value::Object(asked), Value::Object(stored)) => asked
            .iter()
            .all(|(key, value)| stored.get(key).is_some_and(|other| is_within(value, other))),
        (Value::Array(asked), Value::Array(stored)) => {
            asked.len() <= stored.len()
                && asked
                    .iter()
                    .zip(stored)
                    .all(|(one, other)| is_within(one, other))
        }
        (asked, stored) => asked == stored,
    }
}

/// Time without an answer after which stderr says what the command waits for.
const SLOW_ANSWER_DELAY: Duration = Duration::from_secs(4);

/// Runs `work`; calls `tell` after [`SLOW_ANSWER_DELAY`].
async fn told_if_slow<T>(work: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = timeout(SLOW_ANSWER_DELAY, &mut work).await {
        return done;
    }
    tell();
    work.await
}

/// Pause after a transient error that names no time.
const DEFAULT_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Creates an object. A permanent refusal (one without a time) ends the retries at once.
async fn create<K: TableKind>(
    session: &Session,
    object: &K,
    dry_run: bool,
    retry_for: Option<GoDuration>,
    terminal: &mut Terminal,
) -> Result<K, Problem> {
    let subject = format!(
        "{} {}",
        K::KIND,
        object.meta().name.as_deref().unwrap_or_default()
    );
    let waits = format!(
        "{subject}: no answer so far; the API server asks admission webhooks before it stores anything. `kubectl backup doctor` \
         checks whether ours answers"
    );
    let Some(after) = retry_for else {
        return told_if_slow(create_only(session, object, dry_run), || {
            terminal.say(&waits);
        })
        .await;
    };
    let deadline = Instant::now() + after.as_std();
    loop {
        let created = told_if_slow(create_only(session, object, dry_run), || {
            terminal.say(&waits);
        })
        .await;
        let problem = match created {
            Err(problem) => problem,
            created => return created,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(wait) = wait(&problem, left) else {
            return Err(problem);
        };
        if left.is_zero() {
            let message = format!("{problem} (tried for {after})");
            return Err(Problem::new(ProblemKind::StillRefused, message));
        }
        terminal.say(&format!(
            "{problem}; trying again in {}s",
            wait.as_secs().max(1)
        ));
        sleep(wait).await;
    }
}

/// The pause before the next try, at most `left`; `None` if the problem is permanent. The pause is
/// the time that the answer names plus up to a third, so that clients refused together do not retry
/// together. The last try is at the deadline.
fn wait(problem: &Problem, left: Duration) -> Option<Duration> {
    let asked = if let ProblemKind::Refused { retry_after } = problem.kind {
        retry_after?
    } else if !problem.is_transient() {
        return None;
    } else if let ProblemKind::Api {
        retry_after: Some(pause),
        ..
    } = problem.kind
    {
        pause
    } else {
        DEFAULT_RETRY_PAUSE
    };
    let asked = asked.min(left);
    Some((asked + (asked / 3).mul_f64(fastrand::f64())).min(left))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_adds_does_not_make_it_another_request() {
        let asked = json!({"includedNamespaces": ["a"], "ttl": "1h0m0s"});
        for (stored, same) in [
            (
                json!({"includedNamespaces": ["a"], "ttl": "1h0m0s", "storageLocation": "default"}),
                true,
            ),
            (
                json!({"includedNamespaces": ["a", "b"], "ttl": "1h0m0s"}),
                true,
            ),
            (json!({"includedNamespaces": ["b"], "ttl": "1h0m0s"}), false),
            (json!({"ttl": "1h0m0s"}), false),
        ] {
            assert_eq!(is_within(&asked, &stored), same, "{stored}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_told_of_once_and_waited_for() {
        for (seconds, expected) in [(1, 0), (52, 1)] {
            let mut told = 0;
            let work = async {
                sleep(Duration::from_secs(seconds)).await;
                seconds
            };
            assert_eq!(told_if_slow(work, || told += 1).await, seconds);
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn the_seconds_that_an_answer_names_are_waited_for() {
        let refused = |seconds: Option<u64>| {
            Problem::new(
                ProblemKind::Refused {
                    retry_after: seconds.map(Duration::from_secs),
                },
                "r",
            )
        };
        let api = |code, seconds: Option<u64>| {
            Problem::new(
                ProblemKind::Api {
                    code,
                    retry_after: seconds.map(Duration::from_secs),
                },
                "m",
            )
        };
        let left = Duration::from_mins(10);
        for (problem, seconds) in [
            (refused(Some(30)), Some(30)),
            (refused(Some(300)), Some(300)),
            (refused(None), None),
            (api(429, Some(7)), Some(7)),
            (api(503, Some(120)), Some(120)),
            (api(503, None), Some(5)),
            (api(422, Some(7)), None),
            (refused(Some(u64::MAX)), Some(600)),
        ] {
            let waited = wait(&problem, left);
            let Some(asked) = seconds.map(Duration::from_secs) else {
                assert_eq!(waited, None, "{problem:?}");
                continue;
            };
            assert!(
                waited.is_some_and(|waited| asked <= waited && waited <= asked * 4 / 3),
                "{problem:?}: {waited:?}"
            );
            assert!(
                wait(&problem, Duration::from_secs(1)) == Some(Duration::from_secs(1)),
                "{problem:?}"
            );
        }
    }
}

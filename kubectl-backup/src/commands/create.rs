//! `create`, and what creating a backup and a restore have in common.

use std::time::Duration;

use backup_core::{
    api::{Backup, GoDuration, Schedule},
    labels, names,
    validate::Finding,
};
use kube::api::PostParams;
use serde_json::Value;

use super::{listed::Listed, pause::pause, retry, spec, subject::Subject, wait};
use crate::{
    Terminal,
    cli::{CreateArgs, DryRun, GlobalArgs, ObjectOutput, Output, WaitArgs},
    client::{Session, installation_namespace},
    error::{Exit, Problem},
    print::json::{self, Manifest},
};

/// Tries of a creation whose answer did not come.
const TRIES: u32 = 5;

/// `create`
pub async fn run(global: &GlobalArgs, args: CreateArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let mut connection = Connection::new(global);
    let mut backup: Backup = spec::start(&args.file, terminal)?;
    if let Some(schedule) = &args.from_schedule {
        start_from(schedule, &mut backup, connection.session(terminal).await?).await?;
    }
    let prefix = args.from_schedule.as_deref().unwrap_or("backup");
    let name = args.name.clone().or(backup.metadata.name.take());
    backup.metadata.name = Some(name.unwrap_or_else(|| names::timestamped(prefix, terminal.now())));
    spec::describe_object(&mut backup.metadata, &args.object);
    spec::fill(&mut backup.spec, &args.spec);
    let findings = backup_core::validate::backup(&backup.spec);
    let new = New { findings, dry_run: args.dry_run, output: args.output, retry_for: args.retry_for };
    finish(backup, new, args.wait, connection, terminal).await
}

/// Everything from the schedule's template (Velero `pkg/cmd/cli/backup/create.go`): the labels are those of the
/// template, or else of the schedule itself.
async fn start_from(name: &str, backup: &mut Backup, session: &Session) -> Result<(), Problem> {
    let schedule = session.call(Schedule::about("get", name), session.api::<Schedule>().get(name)).await?;
    backup.spec = schedule.spec.template;
    let template = backup.spec.metadata.take();
    let (template_labels, annotations) =
        template.map(|all| (all.labels, all.annotations)).unwrap_or_default();
    let mut all = template_labels.or(schedule.metadata.labels).unwrap_or_default();
    all.insert(labels::SCHEDULE_NAME.to_owned(), labels::valid_value(name));
    backup.metadata.labels = Some(all);
    backup.metadata.annotations = annotations;
    Ok(())
}

/// A session that is made when it is first needed: `--dry-run=client` needs none.
pub struct Connection<'a> {
    global: &'a GlobalArgs,
    session: Option<Session>,
}

impl<'a> Connection<'a> {
    /// Not connected yet.
    pub fn new(global: &'a GlobalArgs) -> Self {
        Self { global, session: None }
    }

    /// The session.
    pub async fn session(&mut self, terminal: &Terminal) -> Result<&Session, Problem> {
        match &mut self.session {
            Some(session) => Ok(session),
            empty => {
                let session = Session::connect(self.global, terminal).await?;
                Ok(empty.insert(session))
            }
        }
    }
}

/// What is to become of a new object.
pub struct New {
    /// What is wrong with its spec.
    pub findings: Vec<Finding>,
    /// How far to go.
    pub dry_run: Option<DryRun>,
    /// How to print it.
    pub output: Option<ObjectOutput>,
    /// For how long a refusal is no end.
    pub retry_for: Option<GoDuration>,
}

/// What has become of it.
pub enum Made<K> {
    /// Nothing was stored; how it was checked.
    Dry(K, &'static str),
    /// It is stored.
    Stored(K),
}

/// Checks and creates.
pub async fn make<K: Listed>(
    mut object: K,
    new: &New,
    connection: &mut Connection<'_>,
    terminal: &mut Terminal,
) -> Result<Made<K>, Problem> {
    let name = object.meta().name.clone().unwrap_or_default();
    if !names::is_object_name(&name) {
        return Err(Problem::Usage {
            message: format!(
                "{name:?} is no name: expected lower-case letters, digits, - and ., with a letter or digit at both ends"
            ),
            remedy: None,
        });
    }
    if !new.findings.is_empty() {
        let findings = new.findings.iter().map(ToString::to_string).collect();
        return Err(Problem::Invalid { kind: K::KIND, name, findings });
    }
    if new.dry_run == Some(DryRun::Client) {
        object.meta_mut().namespace = Some(installation_namespace(connection.global, terminal));
        return Ok(Made::Dry(object, " (dry run)"));
    }
    let session = connection.session(terminal).await?;
    object.meta_mut().namespace = Some(session.namespace.clone());
    let dry_run = new.dry_run == Some(DryRun::Server);
    let created = retry::create(session, &object, dry_run, new.retry_for, terminal).await?;
    Ok(if dry_run { Made::Dry(created, " (server dry run)") } else { Made::Stored(created) })
}

/// Checks, creates, prints, waits.
pub async fn finish<K: Subject>(
    object: K,
    new: New,
    wait: WaitArgs,
    mut connection: Connection<'_>,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let created = match make(object, &new, &mut connection, terminal).await? {
        Made::Dry(object, how) => {
            print(&object, new.output, how, terminal)?;
            return Ok(Exit::Done);
        }
        Made::Stored(created) => created,
    };
    if !wait.wait {
        print(&created, new.output, "", terminal)?;
        if new.output.is_none() {
            let name = created.meta().name.as_deref().unwrap_or_default();
            terminal.say(&format!("Follow it with: {} {name}", K::DESCRIBE));
        }
        return Ok(Exit::Done);
    }
    // An object is printed when it is final; a line at once.
    let whole = matches!(new.output, Some(ObjectOutput::Json | ObjectOutput::Yaml));
    if !whole {
        print(&created, new.output, "", terminal)?;
    }
    let session = connection.session(terminal).await?;
    let (exit, ended) = wait::until_ended(session, terminal, &created, wait.timeout).await?;
    if whole {
        print(ended.as_ref().unwrap_or(&created), new.output, "", terminal)?;
    }
    Ok(exit)
}

/// Prints a new object, or a line about it.
pub fn print<K: Listed>(
    object: &K,
    output: Option<ObjectOutput>,
    how: &str,
    terminal: &mut Terminal,
) -> Result<(), Problem> {
    let name = object.meta().name.as_deref().unwrap_or_default();
    let text = match output {
        None => format!("{}.velero.io/{name} created{how}\n", K::KIND),
        Some(ObjectOutput::Name) => format!("{}.velero.io/{name}\n", K::KIND),
        Some(form) => {
            let mut object = object.clone();
            object.meta_mut().managed_fields = None; // as kubectl does: nobody reads them
            let whole = serde_json::to_value(&object).unwrap_or_default();
            let empty = whole.get("status").and_then(Value::as_object).is_none_or(serde_json::Map::is_empty);
            let (api_version, kind) = (K::api_version(&()), K::kind(&()));
            if empty {
                let spec = spec_of(&object);
                let manifest =
                    Manifest { api_version: &api_version, kind: &kind, metadata: object.meta(), spec: &spec };
                json::object(&manifest, Output::from(form))?
            } else {
                json::object(&object, Output::from(form))?
            }
        }
    };
    Ok(terminal.data(&text)?)
}

/// The spec as JSON.
fn spec_of<K: Listed>(object: &K) -> Value {
    serde_json::to_value(object).map(|mut whole| whole["spec"].take()).unwrap_or_default()
}

/// Creates an object under its fixed name.
///
/// The write is create-only, and the name does not change between tries: a try whose answer was lost can not make a
/// second object. `AlreadyExists` after such a try is success if what is there is what was asked for.
pub async fn create_only<K: Listed>(session: &Session, object: &K, dry_run: bool) -> Result<K, Problem> {
    let api = session.api::<K>();
    let name = object.meta().name.clone().unwrap_or_default();
    let params = PostParams { dry_run, field_manager: Some("kubectl-backup".to_owned()) };
    let mut lost = false;
    for tries in 0..TRIES {
        match session.call(K::about("create", &name), api.create(&params, object)).await {
            Err(Problem::Exists { .. }) if lost => {
                let stored = session.call(K::about("get", &name), api.get(&name)).await?;
                if is_within(&spec_of(object), &spec_of(&stored)) {
                    return Ok(stored);
                }
                return Err(Problem::Exists { kind: K::KIND, name, namespace: session.namespace.clone() });
            }
            Err(problem) if problem.is_transient() && tries + 1 < TRIES => {
                // No connection at all means a wrong address more often than a restart: two tries are enough.
                let never_sent =
                    matches!(&problem, Problem::Unreachable { why, .. } if why.contains("(Connect)"));
                if never_sent && !lost && tries > 0 {
                    return Err(problem);
                }
                lost |= !never_sent;
                tokio::time::sleep(pause(tries, Duration::from_millis(200), Duration::from_secs(2))).await;
            }
            other => return other,
        }
    }
    Err(Problem::Other { message: format!("cannot create {} {name:?}", K::KIND), remedy: None })
}

/// Whether everything that was asked for is in what is stored. A server fills in what was left out and adds to lists.
fn is_within(asked: &Value, stored: &Value) -> bool {
    match (asked, stored) {
        (Value::Object(asked), Value::Object(stored)) => {
            asked.iter().all(|(key, value)| stored.get(key).is_some_and(|other| is_within(value, other)))
        }
        (Value::Array(asked), Value::Array(stored)) => {
            asked.len() <= stored.len() && asked.iter().zip(stored).all(|(one, other)| is_within(one, other))
        }
        (asked, stored) => asked == stored,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_adds_does_not_make_it_another_request() {
        let asked = json!({"includedNamespaces": ["a"], "ttl": "1h0m0s"});
        for (stored, same) in [
            (json!({"includedNamespaces": ["a"], "ttl": "1h0m0s", "storageLocation": "default"}), true),
            (json!({"includedNamespaces": ["a", "b"], "ttl": "1h0m0s"}), true),
            (json!({"includedNamespaces": ["b"], "ttl": "1h0m0s"}), false),
            (json!({"ttl": "1h0m0s"}), false),
        ] {
            assert_eq!(is_within(&asked, &stored), same, "{stored}");
        }
    }
}

//! `create`, and what creating a backup and a restore have in common.

use std::{collections::BTreeMap, time::Duration};

use backup_core::{
    api::{Backup, BackupSpec, Schedule},
    labels, names,
    validate::Finding,
};
use kube::api::PostParams;
use serde_json::Value;

use super::{pause::pause, subject::Subject, wait};
use crate::{
    Terminal,
    cli::{CreateArgs, DryRun, GlobalArgs, ObjectOutput, Output, WaitArgs},
    client::{Session, installation_namespace},
    error::{About, Exit, Problem},
    print::json::{self, Manifest},
};

/// Tries of a creation whose answer did not come.
const TRIES: u32 = 5;

/// `create`
pub async fn run(global: &GlobalArgs, args: CreateArgs, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let mut connection = Connection::new(global);
    let mut backup = Backup::default();
    if let Some(schedule) = &args.from_schedule {
        start_from(schedule, &mut backup, connection.session(terminal).await?).await?;
    }
    let prefix = args.from_schedule.as_deref().unwrap_or("backup");
    let name = args.name.clone().unwrap_or_else(|| names::timestamped(prefix, terminal.now()));
    backup.metadata.name = Some(name);
    add_labels(&mut backup.metadata, &args.labels);
    fill(&mut backup.spec, &args);
    let findings = backup_core::validate::backup(&backup.spec);
    let plan = Plan { findings, dry_run: args.dry_run, output: args.output, wait: args.wait };
    finish(backup, plan, connection, terminal).await
}

/// Everything from the schedule's template (Velero `pkg/cmd/cli/backup/create.go`): the labels are those of the
/// template, or else of the schedule itself.
async fn start_from(name: &str, backup: &mut Backup, session: &Session) -> Result<(), Problem> {
    let about = About { verb: "get", kind: "schedule", plural: "schedules", name };
    let schedule = match session.call(about, session.api::<Schedule>().get(name)).await {
        Err(Problem::NotFound { namespace, .. }) => {
            return Err(Problem::Other {
                message: format!("schedule {name:?} was not found in namespace {namespace}"),
                remedy: Some(format!("`kubectl -n {namespace} get schedules.velero.io` lists them.")),
            });
        }
        other => other?,
    };
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

/// What the flags say goes over what is there.
fn fill(spec: &mut BackupSpec, args: &CreateArgs) {
    fn set(field: &mut Vec<String>, flag: &[String]) {
        if !flag.is_empty() {
            *field = flag.to_vec();
        }
    }
    set(&mut spec.included_namespaces, &args.include_namespaces);
    set(&mut spec.excluded_namespaces, &args.exclude_namespaces);
    set(&mut spec.included_resources, &args.include_resources);
    set(&mut spec.excluded_resources, &args.exclude_resources);
    set(&mut spec.included_cluster_scoped_resources, &args.include_cluster_scoped_resources);
    set(&mut spec.excluded_cluster_scoped_resources, &args.exclude_cluster_scoped_resources);
    set(&mut spec.included_namespace_scoped_resources, &args.include_namespace_scoped_resources);
    set(&mut spec.excluded_namespace_scoped_resources, &args.exclude_namespace_scoped_resources);
    if args.include_cluster_resources.is_some() {
        spec.include_cluster_resources = args.include_cluster_resources;
    }
    if args.selector.is_some() {
        spec.label_selector.clone_from(&args.selector);
        spec.or_label_selectors = None;
    }
    if let Some(alternatives) = &args.or_selector {
        spec.or_label_selectors = Some(alternatives.0.clone());
        spec.label_selector = None;
    }
    if args.storage_location.is_some() {
        spec.storage_location.clone_from(&args.storage_location);
    }
    if args.ttl.is_some() {
        spec.ttl = args.ttl;
    }
}

/// Adds labels given as flags.
pub fn add_labels(meta: &mut kube::core::ObjectMeta, given: &[(String, String)]) {
    if !given.is_empty() {
        let all: &mut BTreeMap<String, String> = meta.labels.get_or_insert_default();
        all.extend(given.iter().cloned());
    }
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
pub struct Plan {
    /// What is wrong with its spec.
    pub findings: Vec<Finding>,
    /// How far to go.
    pub dry_run: Option<DryRun>,
    /// How to print it.
    pub output: Option<ObjectOutput>,
    /// Whether to wait.
    pub wait: WaitArgs,
}

/// Checks, creates, prints, waits.
pub async fn finish<K: Subject>(
    mut object: K,
    plan: Plan,
    mut connection: Connection<'_>,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let name = object.meta().name.clone().unwrap_or_default();
    if !names::is_object_name(&name) {
        return Err(Problem::Usage {
            message: format!(
                "{name:?} is no name: expected lower-case letters, digits, - and ., with a letter or digit at both ends"
            ),
            remedy: None,
        });
    }
    if !plan.findings.is_empty() {
        let findings = plan.findings.iter().map(ToString::to_string).collect();
        return Err(Problem::Invalid { kind: K::KIND, name, findings });
    }
    if plan.dry_run == Some(DryRun::Client) {
        object.meta_mut().namespace = Some(installation_namespace(connection.global, terminal));
        print(&object, plan.output, " (dry run)", terminal)?;
        return Ok(Exit::Done);
    }
    let session = connection.session(terminal).await?;
    object.meta_mut().namespace = Some(session.namespace.clone());
    let dry_run = plan.dry_run == Some(DryRun::Server);
    let created = create_only(session, &object, dry_run).await?;
    if dry_run {
        print(&created, plan.output, " (server dry run)", terminal)?;
        return Ok(Exit::Done);
    }
    if !plan.wait.wait {
        print(&created, plan.output, "", terminal)?;
        if plan.output.is_none() {
            terminal.say(&format!("Follow it with: {} {name}", K::DESCRIBE));
        }
        return Ok(Exit::Done);
    }
    // An object is printed when it is final; a line at once.
    let whole = matches!(plan.output, Some(ObjectOutput::Json | ObjectOutput::Yaml));
    if !whole {
        print(&created, plan.output, "", terminal)?;
    }
    let (exit, ended) = wait::until_ended(session, terminal, &created, plan.wait.timeout).await?;
    if whole {
        print(ended.as_ref().unwrap_or(&created), plan.output, "", terminal)?;
    }
    Ok(exit)
}

fn print<K: Subject>(
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
                let spec = object.spec();
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

/// Creates an object under its fixed name.
///
/// The write is create-only, and the name does not change between tries: a try whose answer was lost can not make a
/// second object. `AlreadyExists` after such a try is success if what is there is what was asked for.
pub async fn create_only<K: Subject>(session: &Session, object: &K, dry_run: bool) -> Result<K, Problem> {
    let api = session.api::<K>();
    let name = object.meta().name.clone().unwrap_or_default();
    let params = PostParams { dry_run, field_manager: Some("kubectl-backup".to_owned()) };
    let mut lost = false;
    for tries in 0..TRIES {
        match session.call(K::about("create", &name), api.create(&params, object)).await {
            Err(Problem::Exists { .. }) if lost => {
                let stored = session.call(K::about("get", &name), api.get(&name)).await?;
                if is_within(&object.spec(), &stored.spec()) {
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

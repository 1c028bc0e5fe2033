//! `diff`: the differences between a backup and the cluster, shown by the program that `kubectl
//! diff` would use.
//!
//! Before the comparison both sides are rewritten as a restore rewrites objects, so that values
//! which a cluster fills in are no difference. The cluster is read with the user's permissions.

mod external;

use std::sync::Arc;

use backup_actions::restore::{self, RestoreRules, equality, json::Object, transform};
use backup_core::{
    api::download_request::DownloadTargetKind,
    labels,
    resources::{NAMESPACES, NON_RESTORABLE},
    selection::{IncludesExcludes, glob_match, is_glob},
    text::counted,
};
use backup_store::{Contents, ItemRef, Limits, StoreError};
use futures::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::{Value, json};

use super::{prelude::*, verify};
use crate::{
    cli::DiffArgs,
    print::json as documents,
    stored::{StoredFile, archive::ItemName, piped},
    type_names::TypeQuery,
};
use external::Sides;

/// Maximum number of concurrent requests.
const MAX_CONCURRENT_REQUESTS: usize = 16;
const HIDDEN: &str = "***";

pub(crate) async fn run(args: DiffArgs, terminal: &mut Terminal) -> CommandResult {
    tokio::select! {
        done = compare(args, terminal) => done.map_err(|problem| match problem.kind {
            ProblemKind::Usage | ProblemKind::Output(_) => problem,
            _ => Problem { kind: ProblemKind::NotCompared, ..problem },
        }),
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
}

async fn compare(args: DiffArgs, terminal: &mut Terminal) -> CommandResult {
    let session = Session::connect(terminal).await?;
    let backup = get_named::<Backup>(&session, "diff", &args.name).await?;
    verify::has_files(&backup)?;
    let contents = contents(&session, &backup, terminal).await?;
    let mut comparison = Comparison::new(&session, &args);
    comparison.find_types(&args, &contents, terminal).await?;
    has_namespaces(&args, &contents)?;
    let items = named(&contents)?;
    let selected = items.iter().filter(|(item, _)| comparison.selects(item));
    let mut compared = stream::iter(selected)
        .map(|(item, place)| comparison.pair(&contents, item, place))
        .buffered(MAX_CONCURRENT_REQUESTS);
    let mut sides = Sides::new()?;
    let mut found = BackupDiff {
        of: args.name.clone(),
        ..BackupDiff::default()
    };
    while let Some(result) = compared.next().await {
        let Some(ObjectPair {
            kind,
            namespace,
            name,
            backup,
            cluster,
        }) = result?
        else {
            continue;
        };
        found.compared += 1;
        let state = if let Some(cluster) = &cluster {
            if equality::same_objects(cluster, &backup) {
                continue;
            }
            State::Differs
        } else {
            State::Missing
        };
        if args.document.output.is_none() {
            sides.add(&kind, namespace.as_deref(), &name, cluster, backup)?;
        }
        found.objects.push(Difference {
            kind,
            namespace,
            name,
            state,
        });
    }
    let differs = !found.objects.is_empty();
    if args.document.output.is_some() {
        documents::show("BackupDiff", &found, args.document, terminal, |_, _| {
            Ok(String::new())
        })?;
    } else {
        let program = terminal.var("KUBECTL_EXTERNAL_DIFF");
        if differs {
            terminal.data(&sides.diff(program.as_deref())?)?;
        }
        terminal.say(&found.summary());
    }
    Ok(if differs {
        Exit::Failed
    } else if found.compared == 0 {
        // A wrong argument must not look like no differences.
        Exit::Usage
    } else {
        Exit::Done
    })
}

/// Reads the tarball of a backup into a temporary file.
async fn contents(
    session: &Session,
    backup: &Backup,
    terminal: &mut Terminal,
) -> Result<Contents, Problem> {
    let file = StoredFile::of(DownloadTargetKind::BackupContents, &backup.metadata);
    let title = format!("the tarball of {}", backup.name_any());
    let (contents, _) = piped(
        session,
        &file,
        move |source| Contents::index(&title, source, Limits::LOOSE),
        |line| terminal.say(line),
    )
    .await?;
    contents.map_err(|error| unread(&error))
}

fn unread(error: &StoreError) -> Problem {
    Problem::bad_file(error.to_string())
}

/// All items, ordered by type.
fn named(contents: &Contents) -> Result<Vec<(ItemName, ItemRef)>, Problem> {
    let mut all = Vec::new();
    for group_resource in contents.types() {
        for place in contents.items(&group_resource) {
            let name = contents.name_of(place).map_err(|error| unread(&error))?;
            let namespace = contents.namespace_of(place).map(str::to_owned);
            all.push((
                ItemName {
                    group_resource: group_resource.clone(),
                    namespace,
                    name,
                },
                *place,
            ));
        }
    }
    Ok(all)
}

/// Fails if a named namespace is not in the backup: a wrong name must not look like no differences.
fn has_namespaces(args: &DiffArgs, contents: &Contents) -> Result<(), Problem> {
    let held = contents.namespaces();
    let named = args.include_namespaces.iter().filter(|name| !is_glob(name));
    for name in named.chain(args.namespace_mappings.iter().map(|(from, _)| from)) {
        if !held.contains(name) && contents.find(NAMESPACES, None, name).is_none() {
            let message = format!(
                "backup {} holds no namespace {name:?}: nothing can be compared",
                args.name
            );
            return Err(
                Problem::new(ProblemKind::NotFound, message).with_remedy(format!(
                    "`kubectl backup ls {}` lists its namespaces.",
                    args.name
                )),
            );
        }
    }
    Ok(())
}

/// The scope and the rules of a comparison.
pub(super) struct Comparison<'a> {
    session: &'a Session,
    namespaces: IncludesExcludes,
    /// Full names of types; `None` means all.
    types: Option<Vec<String>>,
    rules: RestoreRules,
    all: bool,
}

/// An item and the object of its name in the cluster, both rewritten.
pub(super) struct ObjectPair {
    kind: String,
    namespace: Option<String>,
    name: String,
    pub(super) backup: Object,
    pub(super) cluster: Option<Object>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(session: &'a Session, args: &DiffArgs) -> Self {
        Self {
            session,
            namespaces: IncludesExcludes::new(&args.include_namespaces, &[]),
            types: None,
            rules: RestoreRules {
                namespaces: Arc::new(args.namespace_mappings.iter().cloned().collect()),
                ..RestoreRules::default()
            },
            all: args.all,
        }
    }

    /// Completes the names of types. Fails for a type of which the backup has no items, so that a
    /// wrong name does not look like no differences.
    async fn find_types(
        &mut self,
        args: &DiffArgs,
        contents: &Contents,
        terminal: &mut Terminal,
    ) -> Result<(), Problem> {
        let held = contents.types();
        let mut types = Vec::new();
        for name in &args.include_resources {
            if is_glob(name) {
                let pattern = name.to_lowercase();
                let meant: Vec<String> = held
                    .iter()
                    .filter(|full| {
                        glob_match(&pattern, full)
                            || glob_match(&pattern, full.split('.').next().unwrap_or(full))
                    })
                    .cloned()
                    .collect();
                if meant.is_empty() {
                    terminal.say(&format!(
                        "warning: no type in backup {} matches {name}",
                        args.name
                    ));
                }
                types.extend(meant);
                continue;
            }
            let query = TypeQuery::new(self.session, name).await;
            let meant: Vec<String> = held.iter().filter(|full| query.is(full)).cloned().collect();
            if meant.is_empty() {
                let what = if query.is_known() {
                    "holds nothing of the type"
                } else {
                    "knows no type called"
                };
                let message = format!(
                    "backup {} {what} {name:?}: nothing can be compared",
                    args.name
                );
                return Err(
                    Problem::new(ProblemKind::NotFound, message).with_remedy(format!(
                        "`kubectl backup ls {} NAMESPACE` lists the types.",
                        args.name
                    )),
                );
            }
            types.extend(meant);
        }
        self.types = (!args.include_resources.is_empty()).then_some(types);
        Ok(())
    }

    fn selects(&self, item: &ItemName) -> bool {
        let of_type = self
            .types
            .as_ref()
            .is_none_or(|types| types.contains(&item.group_resource));
        let of_namespace = match (&item.namespace, item.group_resource.as_str()) {
            (Some(namespace), _) => self.namespaces.includes(namespace),
            (None, NAMESPACES) => self.namespaces.includes(&item.name),
            (None, _) => self.namespaces.everything(),
        };
        of_type && of_namespace && !NON_RESTORABLE.contains(&item.group_resource.as_str())
    }

    /// Like [`Self::item`], for an item that is stored at this place.
    async fn pair(
        &self,
        contents: &Contents,
        item: &ItemName,
        place: &ItemRef,
    ) -> Result<Option<ObjectPair>, Problem> {
        let object = contents.object(place).map_err(|error| unread(&error))?;
        self.item(item, object).await
    }

    /// Returns `None` for items that a restore skips or that a controller creates.
    pub(super) async fn item(
        &self,
        item: &ItemName,
        object: Object,
    ) -> Result<Option<ObjectPair>, Problem> {
        let mut rules = self.rules.clone();
        // A volume is compared even if a restore would not keep it.
        rules.kept_volumes = Arc::new([item.name.clone()].into());
        if restore::skip_reason(&object, &item.group_resource, &rules).is_some()
            || !self.all && is_controlled(&object)
        {
            return Ok(None);
        }
        let api_version = text(&object, "apiVersion");
        let kind = text(&object, "kind");
        let target = item
            .namespace
            .as_deref()
            .map(|source| rules.target(source).to_owned());
        let name = match item.group_resource.as_str() {
            NAMESPACES => rules.target(&item.name).to_owned(),
            _ => item.name.clone(),
        };
        let cluster = self
            .read(item, &api_version, &kind, target.as_deref(), &name)
            .await?;
        let backup = rewritten(&object, item, target.as_deref(), &rules);
        let cluster =
            cluster.map(|object| rewritten(&object, item, target.as_deref(), &rules.in_place()));
        Ok(Some(ObjectPair {
            kind,
            namespace: target,
            name,
            backup,
            cluster,
        }))
    }

    /// The object in the cluster; `None` if the object or its type does not exist there.
    async fn read(
        &self,
        item: &ItemName,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Object>, Problem> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let plural = item.group_resource.split('.').next().unwrap_or_default();
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let client = self.session.client.clone();
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        let about = About::called("get", kind, plural, name);
        let found = self.session.call(about, api.get_opt(name)).await;
        let found = match found {
            Err(problem) if problem.kind == ProblemKind::NotServed => None,
            found => found?,
        };
        let value = found.map(|object| serde_json::to_value(object).unwrap_or_default());
        Ok(value.and_then(|value| match value {
            Value::Object(object) => Some(object),
            _ => None,
        }))
    }
}

/// The string in a field of the object, or an empty one.
fn text(object: &Object, key: &str) -> String {
    object
        .get(key)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

/// Rewrites an object as a restore into the target namespace does, without the labels of a restore.
fn rewritten(
    object: &Object,
    item: &ItemName,
    target: Option<&str>,
    rules: &RestoreRules,
) -> Object {
    let mut object = transform::rewritten(object, &item.group_resource, target, rules);
    restore::json::remove(
        &mut object,
        &["metadata", "labels"],
        &[labels::BACKUP_NAME, labels::RESTORE_NAME],
    );
    object
}

/// Whether another object controls this one, and would create it again.
fn is_controlled(object: &Object) -> bool {
    let owners = restore::json::object(object, &["metadata"])
        .and_then(|metadata| metadata.get("ownerReferences"));
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    owners.into_iter().any(|owner| owner["controller"] == true)
}

/// kubectl's annotation with the last applied object: it contains the values of a Secret, too.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Hides the values of a Secret.
pub(super) fn hide_values(secret: &mut Object) {
    for field in ["data", "stringData"] {
        let values = secret.get_mut(field).and_then(Value::as_object_mut);
        values
            .into_iter()
            .flat_map(|values| values.values_mut())
            .for_each(|value| *value = json!(HIDDEN));
    }
    hide_applied(secret);
}

fn hide_applied(secret: &mut Object) {
    if let Some(metadata) = secret.get_mut("metadata")
        && let Some(applied) = metadata
            .pointer_mut("/annotations")
            .and_then(|all| all.get_mut(APPLIED))
    {
        *applied = json!(HIDDEN);
    }
}

/// Hides the values of Secrets, so that the output shows only which values differ, as `kubectl
/// diff` does.
fn hide_secrets(cluster: &mut Option<Object>, backup: &mut Object) {
    cluster.iter_mut().for_each(hide_applied);
    hide_applied(backup);
    for field in ["data", "stringData"] {
        let before = cluster
            .as_ref()
            .and_then(|object| object.get(field))
            .cloned()
            .unwrap_or_default();
        let after = backup.get(field).cloned().unwrap_or_default();
        hide_field(backup, field, &before, "in the backup");
        if let Some(cluster) = cluster {
            hide_field(cluster, field, &after, "in the cluster");
        }
    }
}

/// Hides the values of the field, and marks those that differ from the values of `other`.
fn hide_field(object: &mut Object, field: &str, other: &Value, place: &str) {
    let Some(values) = object.get_mut(field).and_then(Value::as_object_mut) else {
        return;
    };
    for (key, value) in values {
        let same = other.get(key) == Some(value);
        *value = json!(if same {
            HIDDEN.to_owned()
        } else {
            format!("{HIDDEN} ({place})")
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
    Differs,
    /// The cluster does not have this item.
    Missing,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Difference {
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    state: State,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct BackupDiff {
    of: String,
    compared: usize,
    objects: Vec<Difference>,
}

impl BackupDiff {
    fn summary(&self) -> String {
        let missing = self
            .objects
            .iter()
            .filter(|object| object.state == State::Missing)
            .count();
        let differ = self.objects.len() - missing;
        if self.compared == 0 {
            return "nothing was compared: the backup holds no object that could be compared"
                .to_owned();
        }
        let compared = counted(self.compared, "object");
        let differ = if differ == 1 {
            "1 differs".to_owned()
        } else {
            format!("{differ} differ")
        };
        let missing = if missing == 1 {
            "1 is".to_owned()
        } else {
            format!("{missing} are")
        };
        format!("{compared} compared: {differ}, {missing} not in the cluster")
    }
}

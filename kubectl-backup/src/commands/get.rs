//! `get` for every kind: lists objects, or shows the named ones.

pub(super) mod containing;
mod follow;
mod lines;

use std::collections::{BTreeMap, BTreeSet};

use backup_core::restorability::{Place, Places};

use self::lines::Lines;
use super::prelude::*;
use crate::{
    cli::GetArgs,
    owned,
    readable::Readable,
    session::PAGE_SIZE,
    view::{InstallationPlaces, KindTable},
};

const HINT_TIMEOUT: Duration = Duration::from_secs(2);

/// Lists the objects of a kind, or shows the named ones.
pub(crate) async fn run<K: TableKind>(args: GetArgs, terminal: &mut Terminal) -> CommandResult {
    check(&args)?;
    let session = Session::connect(terminal).await?;
    let is_wanted = K::HAS_LOCATION && args.output.form.is_table();
    let places = if is_wanted {
        Some(installation_places(&session, &args).await)
    } else {
        None
    };
    list(&session, &KindTable::among::<K>(places), &args, terminal).await
}

/// All locations of the installation, or why they cannot be listed.
pub(super) async fn places(session: &Session) -> Places {
    let all = session.list_readable(ListParams::default(), |one: BackupStorageLocation| {
        Some((one.name_any(), Place::of(&one)))
    });
    match fetched(session, all).await {
        FetchResult::Known(all) => Places(Ok(all.into_iter().collect())),
        FetchResult::Missing { unavailable } => Places(Err(unavailable)),
    }
}

/// The locations of each installation that has objects in the list.
async fn installation_places(session: &Session, args: &GetArgs) -> InstallationPlaces {
    let mut by_namespace = BTreeMap::<_, Places>::new();
    let none = Places(Ok(BTreeMap::new()));
    if !args.list.all_namespaces {
        for namespace in named_namespaces(session, &args.names) {
            let there = session.in_namespace(namespace);
            by_namespace.insert(namespace.to_owned(), places(&there).await);
        }
        return InstallationPlaces {
            by_namespace,
            elsewhere: none,
        };
    }
    let api: Api<Readable<BackupStorageLocation>> = Api::all(session.client.clone());
    let about = About::of::<BackupStorageLocation>("list", "");
    let all = session.list(about, &api, ListParams::default(), |one| {
        let one = one.object?;
        Some((one.namespace()?, one.name_any(), Place::of(&one)))
    });
    match fetched(session, all).await {
        FetchResult::Known(all) => {
            let mut found = BTreeMap::<String, BTreeMap<String, Place>>::new();
            for (namespace, name, place) in all {
                found.entry(namespace).or_default().insert(name, place);
            }
            by_namespace.extend(
                found
                    .into_iter()
                    .map(|(namespace, all)| (namespace, Places(Ok(all)))),
            );
            InstallationPlaces {
                by_namespace,
                elsewhere: none,
            }
        }
        FetchResult::Missing { unavailable } => InstallationPlaces {
            by_namespace,
            elsewhere: Places(Err(unavailable)),
        },
    }
}

fn check(args: &GetArgs) -> Result<(), Problem> {
    if args.list.watch && args.names.len() > 1 {
        return Err(Problem::usage("-w follows all, or one name")
            .with_remedy("Choose several by their labels: -l SELECTOR"));
    }
    Ok(())
}

pub(crate) async fn list(
    session: &Session,
    table: &KindTable,
    args: &GetArgs,
    terminal: &mut Terminal,
) -> CommandResult {
    let api: Api<DynamicObject> = if args.list.all_namespaces {
        Api::all_with(session.client.clone(), &table.resource)
    } else {
        Api::namespaced_with(session.client.clone(), &session.namespace, &table.resource)
    };
    let mut lines = Lines::new(args, table, terminal);
    if args.list.watch {
        return follow::run(session, &api, lines, terminal).await;
    }
    let problems = if args.names.is_empty() {
        let listed = session.list(table.about("list", ""), &api, chosen(args), |object| {
            Some(lines.line(object, None))
        });
        let all = match listed.await {
            Err(problem) if problem.kind == ProblemKind::Forbidden => {
                let owned = Box::pin(of_own_namespace(session, table, args, terminal)).await;
                let all = owned.unwrap_or(Err(problem))?.into_iter();
                all.map(|object| lines.line(object, None)).collect()
            }
            all => all?,
        };
        lines.set(all);
        Vec::new()
    } else {
        named(session, table, &args.names, |object| {
            lines.take(object);
        })
        .await?
    };
    lines.warn(terminal);
    if lines.is_empty() && problems.is_empty() && args.output.form.is_table() {
        nothing_found(session, table, args, terminal).await;
        return Ok(Exit::Done);
    }
    if !(lines.is_empty() && args.output.form.is_table()) {
        let text = lines.text()?;
        terminal.data(&text)?;
    }
    report(problems, terminal)
}

/// The objects that a namespace owner sees, in place of a list that the user may not have; `None`
/// if the user is no owner, or asks for a part that cannot be chosen so.
async fn of_own_namespace(
    session: &Session,
    table: &KindTable,
    args: &GetArgs,
    terminal: &mut Terminal,
) -> Option<Result<Vec<DynamicObject>, Problem>> {
    let is_chosen = args.selector.is_some() || args.field_selector.is_some();
    if is_chosen || args.list.all_namespaces {
        return None;
    }
    let owned = owned::list(session, &table.resource).await?;
    if owned.is_ok() {
        let plural = &table.resource.plural;
        let namespace = &session.own_namespace;
        terminal.say(&format!(
            "You may not list all {plural}: these are about no other namespace than {namespace}, \
             which is that of the kubeconfig's context."
        ));
    }
    Some(owned)
}

fn chosen(args: &GetArgs) -> ListParams {
    ListParams {
        label_selector: args.selector.clone(),
        field_selector: args.field_selector.clone(),
        ..ListParams::default()
    }
}

/// Where objects with these names, as NAME or NAMESPACE/NAME, are.
fn named_namespaces<'a>(session: &'a Session, names: &'a [String]) -> BTreeSet<&'a str> {
    names
        .iter()
        .filter_map(|name| Some(name.split_once('/')?.0))
        .chain([session.namespace.as_str()])
        .collect()
}

/// Gets the named objects, as NAME or NAMESPACE/NAME. A missing object does not hide the others: the problems are returned.
async fn named(
    session: &Session,
    table: &KindTable,
    names: &[String],
    mut take: impl FnMut(DynamicObject),
) -> Result<Vec<Problem>, Problem> {
    let mut problems = Vec::new();
    for name in names {
        let (namespace, name) = name.split_once('/').unwrap_or((&session.namespace, name));
        let there = session.in_namespace(namespace);
        let api = Api::namespaced_with(session.client.clone(), namespace, &table.resource);
        match there.call(table.about("get", name), api.get(name)).await {
            Ok(object) => take(object),
            Err(problem) if problem.is_not_found() => problems.push(problem),
            Err(problem) if problem.kind == ProblemKind::Forbidden => {
                let owned = Box::pin(owned::named(&there, &table.resource, name)).await;
                take(owned.unwrap_or(Err(problem))?);
            }
            Err(problem) => return Err(problem),
        }
    }
    Ok(problems)
}

async fn nothing_found(
    session: &Session,
    table: &KindTable,
    args: &GetArgs,
    terminal: &mut Terminal,
) {
    let plural = &table.resource.plural;
    if args.list.all_namespaces {
        terminal.say(&format!("No {plural} found."));
        return;
    }
    terminal.say(&format!(
        "No {plural} found in namespace {}.",
        session.namespace
    ));
    if let Some(other) = only_other_installation(session).await {
        terminal.say(&format!(
            "The installation in this cluster is in namespace {other}: use -n {other}."
        ));
    }
}

/// The only namespace with storage locations, unless it is ours. Only a hint: the list may be
/// forbidden or slow.
async fn only_other_installation(session: &Session) -> Option<String> {
    let kind = ApiResource::erase::<BackupStorageLocation>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &kind);
    let params = ListParams::default().limit(PAGE_SIZE);
    let list = tokio::time::timeout(HINT_TIMEOUT, api.list_metadata(&params))
        .await
        .ok()?
        .ok()?;
    let mut namespaces = list
        .items
        .into_iter()
        .filter_map(|item| item.metadata.namespace);
    let other = namespaces
        .next()
        .filter(|first| *first != session.namespace)?;
    namespaces.all(|one| one == other).then_some(other)
}

/// Prints all but the last, which is the command's result.
fn report(mut problems: Vec<Problem>, terminal: &mut Terminal) -> CommandResult {
    let Some(last) = problems.pop() else {
        return Ok(Exit::Done);
    };
    for problem in problems {
        terminal.say(&format!("error: {problem}"));
    }
    Err(last)
}

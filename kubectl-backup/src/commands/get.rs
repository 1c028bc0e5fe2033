//! `get` and `restore get`.

use std::time::Duration;

use backup_core::api::BackupStorageLocation;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
    core::DeserializeGuard,
};

use super::subject::Subject;
use crate::{
    Terminal,
    cli::{GetArgs, GlobalArgs, Output},
    client::Session,
    error::{Exit, Problem},
    print::{
        json,
        table::{plain, table},
    },
    view::list,
};

/// Objects in one page of a list.
const PAGE: u32 = 500;
/// How long looking for a hint may take.
const HINT: Duration = Duration::from_secs(2);

/// Lists objects, or shows those that are named.
pub async fn run<K: Subject>(
    global: &GlobalArgs,
    args: GetArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let session = Session::connect(global, terminal).await?;
    match args.output {
        Output::Json | Output::Yaml => objects::<K>(&session, &args, terminal).await,
        Output::Name | Output::Table | Output::Wide => rows::<K>(&session, &args, terminal).await,
    }
}

/// The objects as they are stored, whether we can read them or not.
async fn objects<K: Subject>(
    session: &Session,
    args: &GetArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(session.client.clone(), &session.namespace, &kind);
    let mut all: Vec<DynamicObject> = Vec::new();
    let problems = if args.names.is_empty() {
        each_page::<K, _>(session, args, &api, |object| all.push(object)).await?;
        Vec::new()
    } else {
        each_name::<K, _>(session, args, &api, |object| all.push(object)).await?
    };
    for object in &mut all {
        // Items of a list do not always say what they are.
        object.types.get_or_insert_with(|| kube::core::TypeMeta::resource::<K>());
        object.metadata.managed_fields = None;
    }
    all.sort_by(|a, b| list::order(&a.name_any(), &b.name_any()));
    let text = match (args.names.len(), all.as_slice()) {
        (1, [one]) => json::object(one, args.output)?,
        (1, []) => String::new(),
        _ => json::object(&json::List::from(all), args.output)?,
    };
    terminal.data(&text)?;
    tell(problems, terminal)
}

/// A row for each object, or its name.
async fn rows<K: Subject>(
    session: &Session,
    args: &GetArgs,
    terminal: &mut Terminal,
) -> Result<Exit, Problem> {
    let (now, style) = (terminal.now(), terminal.out_style());
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    let mut unreadable = Vec::new();
    let api: Api<DeserializeGuard<K>> = session.api();
    let take = |object: DeserializeGuard<K>| {
        let name = object.meta_name();
        let row = match &object.0 {
            Ok(object) => object.row(now, style),
            Err(error) => {
                let (kind, plural, namespace) = (K::KIND, K::PLURAL, &session.namespace);
                unreadable.push(format!("warning: {kind} {name} cannot be read: {}", plain(&error.error)));
                unreadable
                    .push(format!("  Correct it: kubectl -n {namespace} edit {plural}.velero.io {name}"));
                list::unreadable(&name, K::HEADERS.len(), K::STATUS_COLUMN)
            }
        };
        rows.push((name, row));
    };
    let problems = if args.names.is_empty() {
        each_page::<K, _>(session, args, &api, take).await?;
        Vec::new()
    } else {
        each_name::<K, _>(session, args, &api, take).await?
    };
    rows.sort_by(|(a, _), (b, _)| list::order(a, b));
    for line in &unreadable {
        terminal.say(line);
    }
    if rows.is_empty() && problems.is_empty() {
        terminal.say(&format!("No {} found in namespace {}.", K::PLURAL, session.namespace));
        if let Some(other) = only_other_installation(session).await {
            terminal
                .say(&format!("The installation in this cluster is in namespace {other}: use -n {other}."));
        }
        return Ok(Exit::Done);
    }
    let text = if args.output == Output::Name {
        rows.iter().fold(String::new(), |all, (name, _)| all + K::KIND + ".velero.io/" + name + "\n")
    } else if rows.is_empty() {
        String::new()
    } else {
        let columns = if args.output == Output::Wide { K::HEADERS.len() } else { K::NARROW };
        let rows: Vec<Vec<String>> = rows.into_iter().map(|(_, row)| row[..columns].to_vec()).collect();
        table((!args.no_headers).then_some(&K::HEADERS[..columns]), &rows)?
    };
    terminal.data(&text)?;
    tell(problems, terminal)
}

/// The one namespace with storage locations, if that is not ours. Only a hint: it may be forbidden or slow.
async fn only_other_installation(session: &Session) -> Option<String> {
    let kind = ApiResource::erase::<BackupStorageLocation>(&());
    let api: Api<DynamicObject> = Api::all_with(session.client.clone(), &kind);
    let params = ListParams::default().limit(PAGE);
    let list = tokio::time::timeout(HINT, api.list_metadata(&params)).await.ok()?.ok()?;
    let mut namespaces: Vec<String> =
        list.items.into_iter().filter_map(|item| item.metadata.namespace).collect();
    namespaces.sort();
    namespaces.dedup();
    match namespaces.as_slice() {
        [one] if *one != session.namespace => Some(one.clone()),
        _ => None,
    }
}

trait Named {
    fn meta_name(&self) -> String;
}

impl<K: Subject> Named for DeserializeGuard<K> {
    fn meta_name(&self) -> String {
        match &self.0 {
            Ok(object) => object.meta().name.clone(),
            Err(error) => error.metadata.name.clone(),
        }
        .unwrap_or_default()
    }
}

/// Lists page by page, and hands over one object after the other. A list that expires between two pages is read on from
/// the API server's newer state, which its answer offers.
async fn each_page<K: Subject, T>(
    session: &Session,
    args: &GetArgs,
    api: &Api<T>,
    mut take: impl FnMut(T),
) -> Result<(), Problem>
where
    T: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut params =
        ListParams { label_selector: args.selector.clone(), limit: Some(PAGE), ..ListParams::default() };
    loop {
        let page = session.call(K::about("list", ""), api.list(&params)).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Gets those that are named. One that is missing does not hide the others: what was wrong is returned.
async fn each_name<K: Subject, T>(
    session: &Session,
    args: &GetArgs,
    api: &Api<T>,
    mut take: impl FnMut(T),
) -> Result<Vec<Problem>, Problem>
where
    T: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let mut problems = Vec::new();
    for name in &args.names {
        match session.call(K::about("get", name), api.get(name)).await {
            Ok(object) => take(object),
            Err(problem @ Problem::NotFound { .. }) => problems.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    Ok(problems)
}

/// All but the last are told here; the last is told as the command's end.
fn tell(mut problems: Vec<Problem>, terminal: &mut Terminal) -> Result<Exit, Problem> {
    let Some(last) = problems.pop() else { return Ok(Exit::Done) };
    for problem in problems {
        terminal.say(&format!("error: {problem}"));
    }
    Err(last)
}

//! `search`: which backups have an item, and whether it is in them as it is in the cluster.

use backup_actions::restore::existing;
use backup_core::{api::download_request::DownloadTargetKind, selection::ObjectName, text::counted};
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;

use super::{is, is_type, item_name, plurals};
use crate::{
    cli::{DiffArgs, SearchArgs},
    commands::{diff::Comparison, prelude::*},
    print::table,
    stored::{StoredFile, archive, document},
    view::{ResourceList, related::began, table_kind::age},
};

/// Lists of items that are read at a time.
const AT_A_TIME: usize = 8;
/// Fields that are named.
const FIELDS: usize = 5;

#[derive(Debug, Serialize)]
struct SearchResult {
    item: String,
    items: Vec<Hit>,
}

/// A backup that has the item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hit {
    backup: String,
    phase: String,
    began: Option<Timestamp>,
    /// `same`, `missing` in the cluster, or which fields differ; none if it was not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
}

pub(crate) async fn run(args: SearchArgs, terminal: &mut Terminal) -> CommandResult {
    tokio::select! {
        done = search(&args, terminal) => done,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
}

async fn search(args: &SearchArgs, terminal: &mut Terminal) -> CommandResult {
    let wanted = item_name(&args.item)?;
    let session = Session::connect(terminal).await?;
    let keep = |backup: Backup| backup.status().is_whole().then_some(backup);
    let mut backups = session.list_readable(ListParams::default(), keep).await?;
    if backups.is_empty() {
        let message = format!("there is no backup in namespace {}", session.namespace);
        return Err(Problem::new(ProblemKind::NotFound, message).with_remedy(
            "-n names the installation; the namespace of an item stands before its type, as in shop/configmaps/web.",
        ));
    }
    backups.sort_by_key(|backup| std::cmp::Reverse(began(backup)));
    let has_it = |list: &ResourceList| has(list, &wanted);
    let looked_into: Vec<_> = look_into(&session, &backups, &has_it).collect().await;
    let mut found = SearchResult { item: args.item.clone(), items: Vec::new() };
    for (backup, has_it) in looked_into {
        let name = backup.name_any();
        let has_it = match has_it {
            Ok(has_it) => has_it,
            Err(problem) => {
                terminal.say(&format!("warning: backup {name} was not searched: {problem}"));
                continue;
            }
        };
        if !has_it {
            continue;
        }
        let cluster =
            if args.compare { Some(compared(&session, backup, &wanted, terminal).await?) } else { None };
        let phase = plain(backup.phase().as_str());
        found.items.push(Hit { backup: name, phase, began: began(backup), cluster });
    }
    if found.items.is_empty() {
        let message = format!("none of {} has {}", counted(backups.len(), "backup"), args.item);
        return Err(Problem::new(ProblemKind::NotFound, message)
            .with_remedy("`kubectl backup ls NAME` lists what is in a backup."));
    }
    let names =
        || found.items.iter().fold(String::new(), |all, hit| all + "backup.velero.io/" + &hit.backup + "\n");
    json::show_list("SearchResult", ("items", &found), &args.output, terminal, names, |now, _| {
        Ok(rows(&found.items, args.compare, !args.output.no_headers, now)?)
    })?;
    Ok(Exit::Done)
}

/// Whether the list of items of each backup has something, in the order of the backups. No more than a few lists are in memory.
pub(in crate::commands) fn look_into<'a>(
    session: &'a Session,
    backups: &'a [Backup],
    has: &'a dyn Fn(&ResourceList) -> bool,
) -> impl Stream<Item = (&'a Backup, Result<bool, Problem>)> {
    let look = move |backup: &'a Backup| async move {
        let file = StoredFile::of(DownloadTargetKind::BackupResourceList, &backup.metadata);
        let list = document::<ResourceList>(session, &file).await;
        (backup, list.map(|list| has(&list)))
    };
    stream::iter(backups).map(look).buffered(AT_A_TIME)
}

fn rows(hits: &[Hit], compared: bool, with_headers: bool, now: Timestamp) -> std::io::Result<String> {
    let headers = ["BACKUP", "STATUS", "AGE", "IN THE CLUSTER"];
    let headers = &headers[..if compared { 4 } else { 3 }];
    let row = |hit: &Hit| {
        let Hit { backup, phase, began, cluster } = hit;
        vec![backup.clone(), phase.clone(), age(*began, now), cluster.clone().unwrap_or_default()]
    };
    table(headers, with_headers, hits.iter().map(row))
}

/// Whether the list, which has names by `group/version/Kind`, has the item.
fn has(list: &ResourceList, wanted: &ObjectName<'_>) -> bool {
    let name = match wanted.namespace {
        Some(namespace) => format!("{namespace}/{}", wanted.name),
        None => wanted.name.to_owned(),
    };
    list.iter().any(|(kind, names)| is_kind(wanted.of_type, kind) && names.contains(&name))
}

/// Whether a person means this type, which the list calls `apps/v1/Deployment`.
fn is_kind(typed: &str, kind: &str) -> bool {
    let (version, kind) = kind.rsplit_once('/').unwrap_or(("", kind));
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let kind = kind.to_lowercase();
    let called = plurals(&kind).into_iter().chain([kind]);
    called.into_iter().any(|name| {
        let full = if group.is_empty() { name } else { format!("{name}.{group}") };
        is_type(typed, &full)
    })
}

/// How the item of a backup stands to the object in the cluster.
async fn compared(
    session: &Session,
    backup: &Backup,
    wanted: &ObjectName<'_>,
    terminal: &mut Terminal,
) -> Result<String, Problem> {
    let found = archive::object(session, backup, |item| is(wanted, item), terminal).await?;
    let Some((item, object)) = found else {
        return Ok("not in the tarball of the backup".to_owned());
    };
    let args = DiffArgs { all: true, ..DiffArgs::default() };
    let Some(both) = Comparison::new(session, &args).item(&item, object).await? else {
        return Ok("not compared: a restore leaves it out".to_owned());
    };
    Ok(match &both.cluster {
        None => "missing".to_owned(),
        Some(cluster) if existing::same_objects(cluster, &both.backup) => "same".to_owned(),
        Some(cluster) => {
            let mut fields = Vec::new();
            differing(&Value::Object(cluster.clone()), &Value::Object(both.backup.clone()), "", &mut fields);
            let more = if fields.len() > FIELDS { ", ..." } else { "" };
            fields.truncate(FIELDS);
            format!("differs: {}{more}", fields.join(", "))
        }
    })
}

/// The paths of fields that are not the same.
fn differing(a: &Value, b: &Value, path: &str, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { plain(key) } else { format!("{path}.{}", plain(key)) };
                differing(
                    one.get(key).unwrap_or(&Value::Null),
                    other.get(key).unwrap_or(&Value::Null),
                    &path,
                    found,
                );
            }
        }
        _ if a == b => {}
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_found_in_a_list_by_what_people_call_it() {
        let list: ResourceList = [
            ("apps/v1/Deployment".to_owned(), vec!["shop/web".to_owned()]),
            ("v1/PersistentVolume".to_owned(), vec!["pv-1".to_owned()]),
        ]
        .into();
        for (text, expected) in [
            ("shop/deployments/web", true),
            ("shop/deployment.apps/web", true),
            ("shop/deployments.extensions/web", false),
            ("shop/deployments/other", false),
            ("deployments/web", false),
            ("pv/pv-1", false),
            ("persistentvolume/pv-1", true),
        ] {
            assert_eq!(has(&list, &item_name(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn fields_that_differ_are_named() {
        let mut found = Vec::new();
        let (a, b) = (
            json!({"data": {"a": 1, "b": 2}, "c": [1]}),
            json!({"data": {"a": 1, "b": 3}, "c": [2], "d": 1}),
        );
        differing(&a, &b, "", &mut found);
        assert_eq!(found, ["c", "d", "data.b"]);
    }
}

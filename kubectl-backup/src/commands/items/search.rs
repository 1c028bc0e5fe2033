//! `search`: which backups contain an item, and whether the item is the same there as in the
//! cluster.

use backup_actions::restore::equality;
use backup_core::{api::download_request::DownloadTargetKind, text::counted};
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;

use super::{ItemQuery, item_name, no_type};
use crate::{
    cli::{DiffArgs, SearchArgs},
    commands::{diff::Comparison, prelude::*},
    print::table,
    stored::{StoredFile, archive, document},
    view::{ResourceList, related::began, table_kind::age},
};

/// Maximum number of item lists that are read concurrently.
const MAX_CONCURRENT_READS: usize = 8;
/// Maximum number of fields named.
const MAX_NAMED_FIELDS: usize = 5;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SearchResult {
    item: String,
    items: Vec<Hit>,
    /// Number of backups whose item list was read.
    searched: usize,
    /// The other backups: whether they contain the item is unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_searched: Vec<NotSearched>,
}

#[derive(Debug, Serialize)]
struct NotSearched {
    backup: String,
    reason: String,
}

/// A backup that contains the item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hit {
    backup: String,
    phase: String,
    began: Option<Timestamp>,
    /// `same`, `missing` in the cluster, or the differing fields; `None` if it was not compared.
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
    let name = item_name(&args.item)?;
    let session = Session::connect(terminal).await?;
    let mut backups = session
        .list_readable(ListParams::default(), |backup: Backup| {
            backup.status().is_whole().then_some(backup)
        })
        .await?;
    if backups.is_empty() {
        let message = format!("there is no backup in namespace {}", session.namespace);
        return Err(Problem::new(ProblemKind::NotFound, message).with_remedy(
            "-n names the installation; the namespace of an item comes before its type, as in shop/configmaps/web.",
        ));
    }
    backups.sort_by_key(|backup| std::cmp::Reverse(began(backup)));
    let wanted = ItemQuery::new(&session, name).await;
    let looked_into: Vec<_> = look_into(&session, &backups, |list| wanted.is_in(list))
        .collect()
        .await;
    let mut found = SearchResult {
        item: args.item.clone(),
        items: Vec::new(),
        searched: 0,
        not_searched: Vec::new(),
    };
    let mut remedy = None;
    for (backup, has_it) in looked_into {
        let name = backup.name_any();
        let has_it = match has_it {
            Ok(has_it) => has_it,
            Err(problem) => {
                let reason = plain(&problem.to_string());
                terminal.say(&format!(
                    "warning: backup {name} was not searched: {reason}"
                ));
                found.not_searched.push(NotSearched {
                    backup: name,
                    reason,
                });
                remedy = remedy.or(problem.remedy);
                continue;
            }
        };
        found.searched += 1;
        if !has_it {
            continue;
        }
        let cluster = if args.compare {
            Some(compared(&session, backup, &wanted, terminal).await?)
        } else {
            None
        };
        let phase = plain(backup.phase().as_str());
        found.items.push(Hit {
            backup: name,
            phase,
            began: began(backup),
            cluster,
        });
    }
    if found.items.is_empty() {
        return Err(found.nothing(&wanted, remedy));
    }
    json::show_list(
        "SearchResult",
        &found,
        &args.output,
        terminal,
        || name_lines(&found.items),
        |now, _| {
            Ok(rows(
                &found.items,
                args.compare,
                !args.output.no_headers,
                now,
            )?)
        },
    )?;
    if found.not_searched.is_empty() {
        return Ok(Exit::Done);
    }
    terminal.say(&format!(
        "{}: whether they have it is not known.",
        found.unsearched()
    ));
    Ok(Exit::Failed)
}

/// The names of the backups, one a line.
fn name_lines(hits: &[Hit]) -> String {
    hits.iter().fold(String::new(), |all, hit| {
        all + "backup.velero.io/" + &hit.backup + "\n"
    })
}

impl SearchResult {
    fn unsearched(&self) -> String {
        let all = self.searched + self.not_searched.len();
        let unsearched = self.not_searched.len();
        let was = if unsearched == 1 { "was" } else { "were" };
        format!(
            "{unsearched} of {} {was} not searched",
            counted(all, "backup")
        )
    }

    /// No backup was found. Unsearched backups may still have the item.
    fn nothing(&self, wanted: &ItemQuery<'_>, remedy: Option<String>) -> Problem {
        let item = &self.item;
        let searched = self.searched;
        let others = self.not_searched.len();
        let problem = if searched == 0 {
            Problem::other(format!(
                "whether a backup has {item} is not known: none of {} was searched",
                counted(others, "backup")
            ))
        } else if !wanted.is_type_known() {
            let places = format!("any of {}", counted(searched, "backup"));
            let places = if others == 0 {
                places
            } else {
                format!("{places} that were searched; {}", self.unsearched())
            };
            no_type(wanted.name.of_type, &places)
        } else if others == 0 {
            let message = format!("none of {} has {item}", counted(searched, "backup"));
            Problem::new(ProblemKind::NotFound, message)
        } else {
            Problem::other(format!(
                "none of {} that were searched has {item}; {}",
                counted(searched, "backup"),
                self.unsearched()
            ))
        };
        match remedy {
            Some(remedy) => problem.with_remedy(remedy),
            None => problem.with_remedy("`kubectl backup ls NAME` lists what is in a backup."),
        }
    }
}

impl ItemQuery<'_> {
    /// Whether the list, which has names by `group/version/Kind`, contains the item.
    fn is_in(&self, list: &ResourceList) -> bool {
        let name = match self.name.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name.name),
            None => self.name.name.to_owned(),
        };
        let mut of_type = list
            .iter()
            .filter(|(kind, _)| self.of_type.is_kind(kind))
            .peekable();
        self.met.set(self.met.get() || of_type.peek().is_some());
        of_type.any(|(_, names)| names.contains(&name))
    }
}

/// Applies a predicate to the item list of each backup, in the order of the backups. Only a few
/// lists are in memory at once.
pub(in crate::commands) fn look_into<'a>(
    session: &'a Session,
    backups: &'a [Backup],
    has: impl Fn(&ResourceList) -> bool + Copy,
) -> impl Stream<Item = (&'a Backup, Result<bool, Problem>)> {
    stream::iter(backups)
        .map(move |backup: &'a Backup| async move {
            let file = StoredFile::of(DownloadTargetKind::BackupResourceList, &backup.metadata);
            let list = document::<ResourceList>(session, &file).await;
            (backup, list.map(|list| has(&list)))
        })
        .buffered(MAX_CONCURRENT_READS)
}

fn rows(
    hits: &[Hit],
    compared: bool,
    with_headers: bool,
    now: Timestamp,
) -> std::io::Result<String> {
    let headers = ["BACKUP", "STATUS", "AGE", "IN THE CLUSTER"];
    let headers = &headers[..if compared { 4 } else { 3 }];
    table(headers, with_headers, hits.iter().map(|hit| row(hit, now)))
}

fn row(hit: &Hit, now: Timestamp) -> Vec<String> {
    vec![
        hit.backup.clone(),
        hit.phase.clone(),
        age(hit.began, now),
        hit.cluster.clone().unwrap_or_default(),
    ]
}

/// Compares the item of a backup with the object in the cluster.
async fn compared(
    session: &Session,
    backup: &Backup,
    wanted: &ItemQuery<'_>,
    terminal: &mut Terminal,
) -> Result<String, Problem> {
    let found = archive::object(session, backup, |item| wanted.is(item), terminal).await?;
    let Some((item, object)) = found else {
        return Ok("not in the tarball of the backup".to_owned());
    };
    let args = DiffArgs {
        all: true,
        ..DiffArgs::default()
    };
    let Some(both) = Comparison::new(session, &args).item(&item, object).await? else {
        return Ok("not compared: a restore leaves it out".to_owned());
    };
    let Some(cluster) = &both.cluster else {
        return Ok("missing".to_owned());
    };
    if equality::same_objects(cluster, &both.backup) {
        return Ok("same".to_owned());
    }
    let mut fields = Vec::new();
    differing(
        &Value::Object(cluster.clone()),
        &Value::Object(both.backup.clone()),
        "",
        &mut fields,
    );
    let more = if fields.len() > MAX_NAMED_FIELDS {
        ", ..."
    } else {
        ""
    };
    fields.truncate(MAX_NAMED_FIELDS);
    Ok(format!("differs: {}{more}", fields.join(", ")))
}

/// The paths of fields that differ.
fn differing(a: &Value, b: &Value, path: &str, found: &mut Vec<String>) {
    if let (Value::Object(one), Value::Object(other)) = (a, b) {
        let keys: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        for key in keys {
            let path = if path.is_empty() {
                plain(key)
            } else {
                format!("{path}.{}", plain(key))
            };
            differing(
                one.get(key).unwrap_or(&Value::Null),
                other.get(key).unwrap_or(&Value::Null),
                &path,
                found,
            );
        }
    } else if a != b {
        found.push(path.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::type_names::TypeQuery;

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
            ("shop/deploy/web", true),
            ("pv/pv-1", true),
            ("pvc/pv-1", false),
            ("persistentvolume/pv-1", true),
        ] {
            let name = item_name(text).unwrap();
            let of_type = TypeQuery::offline(name.of_type);
            let wanted = ItemQuery {
                name,
                of_type,
                met: Cell::default(),
            };
            assert_eq!(wanted.is_in(&list), expected, "{text}");
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

//! Completion in shells. kubectl runs `kubectl_complete-backup WORD...` and reads output in cobra's
//! format (kubectl `pkg/cmd/plugin/plugin_completion.go`): one candidate a line, with a tab before
//! its description, and a last line `:DIRECTIVE`. Our scripts for bash, zsh and fish read the same
//! format. If names cannot be read in time, they are left out silently.

mod question;

use std::{ffi::OsString, fmt::Write as _, time::Duration};

use backup_core::api::{
    Backup, BackupRepository, BackupStorageLocation, Restore, Schedule, VolumeSnapshotLocation,
};
use clap::FromArgMatches as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};

use self::question::Noun;
use crate::{
    Terminal,
    cli::{self, GlobalArgs, Shell},
    client::kubeconfig,
    error::Exit,
    session::Session,
    type_names::{ServedType, served_types},
    view::table_kind::order,
};

/// The hidden first word that requests completions.
pub(crate) const WORD: &str = "__complete";

/// Directives of cobra (`completions.go`): file names may be offered or not; no space after the
/// word.
const FILES: u8 = 0;
const NO_FILES: u8 = 4;
const NO_SPACE: u8 = 2;

/// Prints the candidates for the last word.
pub(crate) async fn run(words: &[OsString], terminal: &mut Terminal) -> Exit {
    let words: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let command = built();
    let question = question::ask(&command, &words);
    let mut directive = if question.files { FILES } else { NO_FILES };
    let mut all = question.fixed;
    if let Some(noun) = question.noun {
        let names = names(noun, &words, terminal).await;
        all.extend(
            names
                .into_iter()
                .map(|(name, about)| (name + question.ending, about)),
        );
    }
    all.retain(|(candidate, _)| {
        candidate.starts_with(&question.typed) && !question.taken.contains(candidate)
    });
    if all.len() == 1
        && all
            .iter()
            .all(|(candidate, _)| candidate.ends_with(['=', '/']))
    {
        directive |= NO_SPACE;
    }
    let mut text = String::new();
    for (candidate, description) in all {
        let _ = match description.as_str() {
            "" => writeln!(text, "{}{candidate}", question.prefix),
            _ => writeln!(text, "{}{candidate}\t{description}", question.prefix),
        };
    }
    let _ = writeln!(text, ":{directive}");
    terminal.data(&text).map_or(Exit::Failed, |()| Exit::Done)
}

fn built() -> clap::Command {
    let mut command = cli::command();
    command.build();
    command
}

pub(crate) const fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("complete/bash.sh"),
        Shell::Zsh => include_str!("complete/zsh.sh"),
        Shell::Fish => include_str!("complete/fish.fish"),
        Shell::Kubectl => include_str!("complete/kubectl.sh"),
    }
}

const NAMES_TIMEOUT: Duration = Duration::from_millis(1500);
const MAX_NAMES: u32 = 500;

/// Names and their descriptions; empty if they cannot be read in time.
async fn names(noun: Noun, words: &[String], terminal: &mut Terminal) -> Vec<(String, String)> {
    terminal.flags = flags(words);
    if matches!(noun, Noun::Context | Noun::Cluster | Noun::User) {
        let Some(config) = kubeconfig(terminal) else {
            return Vec::new();
        };
        return match noun {
            Noun::Context => undescribed(config.contexts.into_iter().map(|one| one.name)),
            Noun::Cluster => undescribed(config.clusters.into_iter().map(|one| one.name)),
            _ => undescribed(config.auth_infos.into_iter().map(|one| one.name)),
        };
    }
    tokio::time::timeout(NAMES_TIMEOUT, from_cluster(noun, terminal))
        .await
        .ok()
        .flatten()
        .unwrap_or_default()
}

fn undescribed(names: impl IntoIterator<Item = String>) -> Vec<(String, String)> {
    names
        .into_iter()
        .map(|name| (name, String::new()))
        .collect()
}

/// The flags among the previous words that choose the connection. Errors in other words are
/// ignored.
fn flags(words: &[String]) -> GlobalArgs {
    let typed = words.split_last().map_or(&[][..], |(_, before)| before);
    let all = std::iter::once("kubectl-backup").chain(typed.iter().map(String::as_str));
    let matches = built().ignore_errors(true).try_get_matches_from(all);
    matches
        .ok()
        .and_then(|matches| GlobalArgs::from_arg_matches(&matches).ok())
        .unwrap_or_default()
}

async fn from_cluster(noun: Noun, terminal: &Terminal) -> Option<Vec<(String, String)>> {
    let session = Session::connect(terminal).await.ok()?;
    let api = match noun {
        Noun::Backup => ours::<Backup>(&session),
        Noun::Restore => ours::<Restore>(&session),
        Noun::Schedule => ours::<Schedule>(&session),
        Noun::Location => ours::<BackupStorageLocation>(&session),
        Noun::SnapshotLocation => ours::<VolumeSnapshotLocation>(&session),
        Noun::Repository => ours::<BackupRepository>(&session),
        Noun::Type => return Some(types(&session, |_| true).await),
        Noun::ClusterType => return Some(types(&session, |one| !one.is_namespaced).await),
        Noun::NamespacedType => return Some(types(&session, |one| one.is_namespaced).await),
        Noun::PathStart => {
            let of_cluster = types(&session, |one| !one.is_namespaced);
            let (namespaces, types) = tokio::join!(listed(namespaces(&session)), of_cluster);
            return Some(namespaces.into_iter().flatten().chain(types).collect());
        }
        Noun::Namespace | Noun::Context | Noun::Cluster | Noun::User => namespaces(&session),
    };
    listed(api).await
}

async fn listed(api: Api<DynamicObject>) -> Option<Vec<(String, String)>> {
    let list = api
        .list_metadata(&ListParams::default().limit(MAX_NAMES))
        .await
        .ok()?;
    let mut names: Vec<String> = list
        .items
        .into_iter()
        .filter_map(|item| item.metadata.name)
        .collect();
    names.sort_by(|a, b| order(a, b));
    Some(undescribed(names))
}

fn namespaces(session: &Session) -> Api<DynamicObject> {
    Api::all_with(
        session.client.clone(),
        &ApiResource::erase::<Namespace>(&()),
    )
}

/// Names of types with their kinds, and short names with the types they stand for.
async fn types(
    session: &Session,
    is_wanted: impl Fn(&ServedType) -> bool,
) -> Vec<(String, String)> {
    let mut all: Vec<ServedType> = served_types(session).await;
    all.retain(is_wanted);
    let short: Vec<_> = all.iter().flat_map(short_names).collect();
    all.into_iter()
        .map(|one| (one.group_resource, one.kind))
        .chain(short)
        .collect()
}

/// The short names of a type, each with the type's full name.
fn short_names(served: &ServedType) -> Vec<(String, String)> {
    served
        .short_names
        .iter()
        .map(|short| (short.clone(), served.group_resource.clone()))
        .collect()
}

fn ours<K: Resource<DynamicType = ()>>(session: &Session) -> Api<DynamicObject> {
    Api::namespaced_with(
        session.client.clone(),
        &session.namespace,
        &ApiResource::erase::<K>(&()),
    )
}

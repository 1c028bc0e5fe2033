//! Names from the cluster and the kubeconfig, for completion: within two seconds, or none.

use std::time::Duration;

use backup_core::api::{Backup, BackupStorageLocation, Restore, Schedule, VolumeSnapshotLocation};
use clap::FromArgMatches as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Resource,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::{built, question::Noun};
use crate::{
    Terminal,
    cli::GlobalArgs,
    client::{Session, kubeconfig},
};

/// A person who has pressed a key waits.
const PATIENCE: Duration = Duration::from_millis(1500);
/// More would not fit on a screen.
const MOST: u32 = 500;

/// The names; none where they can't be had.
pub async fn names(noun: Noun, words: &[String], terminal: &Terminal) -> Vec<String> {
    let flags = flags(words);
    if matches!(noun, Noun::Context | Noun::Cluster | Noun::User) {
        let Some(config) = kubeconfig(&flags, terminal) else { return Vec::new() };
        return match noun {
            Noun::Context => config.contexts.into_iter().map(|one| one.name).collect(),
            Noun::Cluster => config.clusters.into_iter().map(|one| one.name).collect(),
            _ => config.auth_infos.into_iter().map(|one| one.name).collect(),
        };
    }
    tokio::time::timeout(PATIENCE, from_cluster(noun, &flags, terminal))
        .await
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// The connection that the words so far choose; what is wrong with the others is not asked here.
fn flags(words: &[String]) -> GlobalArgs {
    let typed = words.split_last().map_or(&[][..], |(_, before)| before);
    let all = std::iter::once("kubectl-backup").chain(typed.iter().map(String::as_str));
    let matches = built().ignore_errors(true).try_get_matches_from(all);
    matches.ok().and_then(|matches| GlobalArgs::from_arg_matches(&matches).ok()).unwrap_or_default()
}

async fn from_cluster(noun: Noun, flags: &GlobalArgs, terminal: &Terminal) -> Option<Vec<String>> {
    let session = Session::connect(flags, terminal).await.ok()?;
    let api = match noun {
        Noun::Backup => ours::<Backup>(&session),
        Noun::Restore => ours::<Restore>(&session),
        Noun::Schedule => ours::<Schedule>(&session),
        Noun::Location => ours::<BackupStorageLocation>(&session),
        Noun::SnapshotLocation => ours::<VolumeSnapshotLocation>(&session),
        _ => Api::all_with(session.client.clone(), &ApiResource::erase::<Namespace>(&())),
    };
    let list = api.list_metadata(&ListParams::default().limit(MOST)).await.ok()?;
    let mut names: Vec<String> = list.items.into_iter().filter_map(|item| item.metadata.name).collect();
    names.sort_by(|a, b| crate::view::list::order(a, b));
    Some(names)
}

fn ours<K: Resource<DynamicType = ()>>(session: &Session) -> Api<DynamicObject> {
    Api::namespaced_with(session.client.clone(), &session.namespace, &ApiResource::erase::<K>(&()))
}

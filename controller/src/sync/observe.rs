//! What is known of the cluster when a pass begins. Lists are fresh, and of each Backup only what is compared is kept.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use backup_core::{
    api::{
        Backup, BackupPhase, BackupStorageLocation, DeleteBackupRequest, DeleteBackupRequestPhase, Schedule,
    },
    labels::{BACKUP_UID, SYNC_PENDING_ANNOTATION},
};
use backup_runtime::{errors::found, list, path, retry};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt as _,
    api::ListParams,
    core::{DeserializeGuard, ListMeta, Request},
};
use serde::Deserialize;
use serde_json::Value;

use crate::context::Context;

/// How long one page is tried for.
const PAGE_BUDGET: Duration = Duration::from_secs(10);

/// A Backup in the cluster, as far as it is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Its BackupStorageLocation; empty if it has none yet.
    pub(super) location: String,
    /// Whether it is stored: Completed or PartiallyFailed.
    pub(super) stored: bool,
    /// When it may be deleted.
    pub(super) expiration: Option<Timestamp>,
    /// Whether its deletion was asked for.
    pub(super) leaves: bool,
    /// Whether objects that belong to it are to be created still.
    pub(super) pending: bool,
}

/// The Backups of the cluster, by name.
pub(super) type Cluster = HashMap<String, Known>;

pub(super) async fn location(
    ctx: &Context,
    name: &str,
) -> Result<Option<BackupStorageLocation>, kube::Error> {
    let api: Api<BackupStorageLocation> = ctx.cluster.api();
    found(retry::read(PAGE_BUDGET, || api.get(name)).await, name)
}

/// All locations that can be read.
pub(super) async fn locations(ctx: &Context) -> Result<Vec<BackupStorageLocation>, kube::Error> {
    let api: Api<DeserializeGuard<BackupStorageLocation>> = ctx.cluster.api();
    let all = ListParams::default(); // a cluster has a handful
    let list = retry::read(PAGE_BUDGET, || api.list(&all)).await?;
    Ok(list.items.into_iter().filter_map(|guard| guard.0.ok()).collect())
}

/// All Backups, in whatever phase.
pub(super) async fn backups(ctx: &Context) -> Result<Cluster, kube::Error> {
    let url = path::collection("velero.io/v1", "backups", Some(&ctx.cluster.namespace));
    let mut all = Cluster::new();
    let mut params = ListParams::default().limit(ctx.args.client_page_size);
    loop {
        let page: Page = retry::read(PAGE_BUDGET, || async {
            let request = Request::new(&url).list(&params).map_err(kube::Error::BuildRequest)?;
            ctx.cluster.client.request(request).await
        })
        .await?;
        all.extend(page.items.into_iter().map(|listed| (listed.metadata.name.clone(), known(&listed))));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// A page of Backups. Nothing is decoded but what is compared, so an object that is no good Backup is seen, too.
#[derive(Deserialize)]
struct Page {
    metadata: ListMeta,
    items: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    metadata: ListedMeta,
    #[serde(default)]
    spec: Part,
    #[serde(default)]
    status: Part,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedMeta {
    name: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

/// The fields of spec and status that are compared, whatever type they have in a bad object.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Part {
    storage_location: Value,
    phase: Value,
    expiration: Value,
}

fn known(listed: &Listed) -> Known {
    let phase = listed.status.phase.as_str().map_or(BackupPhase::New, BackupPhase::from);
    let annotations = listed.metadata.annotations.as_ref();
    Known {
        location: listed.spec.storage_location.as_str().unwrap_or_default().to_owned(),
        stored: is_stored(&phase),
        expiration: listed.status.expiration.as_str().and_then(|text| text.parse().ok()),
        leaves: listed.metadata.deletion_timestamp.is_some(),
        pending: annotations.is_some_and(|all| all.contains_key(SYNC_PENDING_ANNOTATION)),
    }
}

/// The phases of a backup that is in its bucket as a whole; others may have ended without anything there.
pub(super) fn is_stored(phase: &BackupPhase) -> bool {
    matches!(phase, BackupPhase::Completed | BackupPhase::PartiallyFailed)
}

/// What is known when backups are created.
pub(super) struct Facts {
    /// Uids of the Schedules, by name; none if they could not be listed.
    pub(super) schedules: Option<HashMap<String, String>>,
    /// Names of backups whose deletion was asked for and may have begun.
    pub(super) deletions: BTreeSet<String>,
}

pub(super) async fn facts(ctx: &Context) -> Result<Facts, kube::Error> {
    let deletions = list::raw::<DeleteBackupRequest, _>(&ctx.cluster, |request| {
        // One that was answered with errors had begun only if it says whom it is about; ours do when they begin.
        let answered =
            request.data["status"]["phase"].as_str() == Some(DeleteBackupRequestPhase::Processed.as_str());
        let begun = !answered || request.labels().contains_key(BACKUP_UID);
        begun.then(|| request.data["spec"]["backupName"].as_str().unwrap_or_default().to_owned())
    })
    .await?;
    let schedules =
        list::raw::<Schedule, _>(&ctx.cluster, |schedule| Some((schedule.name_any(), schedule.uid()?))).await;
    let schedules = schedules.map(|list| list.into_iter().collect()).inspect_err(|error| {
        tracing::warn!(%error, "Schedules can't be listed; backups that one of them owns are left for the next pass");
    });
    Ok(Facts { schedules: schedules.ok(), deletions: deletions.into_iter().collect() })
}

/// A Backup as it is now; none if it is not there.
pub(super) async fn backup(ctx: &Context, name: &str) -> Result<Option<Backup>, kube::Error> {
    let api: Api<Backup> = ctx.cluster.api();
    found(retry::read(PAGE_BUDGET, || api.get(name)).await, name)
}

/// Whether there is a Backup of this name, also one that can't be decoded.
pub(super) async fn backup_exists(ctx: &Context, name: &str) -> Result<bool, kube::Error> {
    let api: Api<Backup> = ctx.cluster.api();
    Ok(found(retry::read(PAGE_BUDGET, || api.get_metadata(name)).await, name)?.is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_compared_is_read_from_good_objects_and_bad_ones() {
        let read = |object: Value| known(&serde_json::from_value(object).unwrap());
        let good = json!({ "metadata": { "name": "b", "annotations": { SYNC_PENDING_ANNOTATION: "" } },
            "spec": { "storageLocation": "default", "ttl": "1h" },
            "status": { "phase": "Completed", "expiration": "2026-01-01T00:00:00Z" } });
        let expected = Known {
            location: "default".to_owned(),
            stored: true,
            expiration: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            leaves: false,
            pending: true,
        };
        assert_eq!(read(good), expected);
        for bare in [
            json!({ "metadata": { "name": "b" } }),
            json!({ "metadata": { "name": "b" }, "spec": { "storageLocation": 7 }, "status": { "phase": [] } }),
        ] {
            assert_eq!(read(bare), Known::default());
        }
        let leaves = json!({ "metadata": { "name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "status": { "phase": "Failed" } });
        assert_eq!(read(leaves), Known { leaves: true, ..Known::default() });
    }
}

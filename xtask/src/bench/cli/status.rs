//! `status` of a large cluster, compared with the lists that it needs.

use backup_core::api::Schedule;
use backup_tests::{
    World,
    api::ApiExt as _,
    install::{NAMESPACE, ensure_namespace},
};
use futures::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use serde_json::json;

use super::{MAX_MEMORY_MIB, Table, compared, middle};
use crate::bench::raw;

const NAMESPACES: usize = 2_000;
pub(super) const SCHEDULES: usize = 50;
const CONNECTIONS: usize = 16;

/// The namespaces that a schedule covers.
pub(super) fn covered(schedule: usize) -> Vec<String> {
    let each = NAMESPACES / SCHEDULES;
    (schedule * each..(schedule + 1) * each)
        .map(|number| format!("tenant-{number:04}"))
        .collect()
}

pub(super) async fn measure(
    world: &World,
    backups: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    eprintln!("creating {NAMESPACES} namespaces and {SCHEDULES} schedules");
    let names: Vec<String> = (0..SCHEDULES).flat_map(covered).collect();
    let create = stream::iter(&names).map(|name| ensure_namespace(&world.client, name));
    create
        .buffer_unordered(CONNECTIONS)
        .try_collect::<()>()
        .await?;
    for number in 0..SCHEDULES {
        let schedule: Schedule = serde_json::from_value(json!({
            "apiVersion": "velero.io/v1", "kind": "Schedule",
            "metadata": { "name": format!("tenants-{number:02}"), "namespace": NAMESPACE },
            "spec": { "schedule": "0 0 1 1 *", "skipImmediately": true,
                "template": { "includedNamespaces": covered(number), "ttl": "720h0m0s" } },
        }))?;
        world.api::<Schedule>().create_object(&schedule).await?;
    }
    let person = world.kubectl_backup();
    // No namespace is protected here: the backups are partial.
    let took = middle(async || Ok(person.fails(1, &["status"]).await?.elapsed)).await?;
    let lists = middle(async || {
        let start = std::time::Instant::now();
        let velero = format!("/apis/velero.io/v1/namespaces/{NAMESPACE}");
        let kinds = ["backups", "restores", "schedules", "backupstoragelocations"];
        let paths = kinds
            .iter()
            .map(|kind| format!("{velero}/{kind}"))
            .chain(["/api/v1/namespaces".to_owned()]);
        try_join_all(paths.map(async |path| raw::list(&world.client, &path).await)).await?;
        Ok(start.elapsed())
    })
    .await?;
    table.row(&compared(
        format!("status of {NAMESPACES} namespaces, {backups} backups and {SCHEDULES} schedules"),
        took,
        "the lists",
        lists,
        "the lists, side by side, in pages of 500 as kubectl asks for them, not decoded",
    ));
    table.memory(
        format!("memory of status of {backups} backups"),
        person.peak_memory_kib(&["status"]).await?,
        "-".to_owned(),
        MAX_MEMORY_MIB,
    );
    Ok(())
}

//! Lists that change while they are read in pages.

use backup_tests::install::define_kind;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::prelude::*;

crate::tests! {
    a_list_whose_continue_token_expired_is_complete,
    a_type_deleted_while_it_is_listed_is_a_warning,
}

/// Without this flag, the API server keeps paged lists in memory for a while, even after etcd was
/// compacted.
pub const FROM_ETCD: &[&str] = &["--feature-gates=ListFromCacheSnapshot=false"];
/// More objects than a collection has read when it stops at [`POINT`].
const COUNT: usize = 2_300;
/// In the middle of the first page.
const POINT: &str = "mid-collection#25";
const DEFINITION: &str = "movings.lists.example.com";
const LAST: &str = "moving-2299";

/// Objects of a new type, and a ConfigMap beside them.
async fn movings(world: &World, namespace: &str) -> anyhow::Result<Api<DynamicObject>> {
    define_kind(&world.client, "lists.example.com", "Moving").await?;
    ensure_namespace(&world.client, namespace).await?;
    let moving = |number: usize| {
        json!({ "apiVersion": "lists.example.com/v1", "kind": "Moving",
            "metadata": { "name": format!("moving-{number:04}"), "namespace": namespace }, "now": "before" })
    };
    let beside = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "beside", "namespace": namespace } });
    create_all(
        &world.client,
        std::iter::once(beside).chain((0..COUNT).map(moving)),
    )
    .await?;
    Ok(objects_in(
        &world.client,
        namespace,
        "lists.example.com/v1",
        "Moving",
    ))
}

/// A backup that is paused while something happens.
async fn meanwhile(
    world: &mut World,
    name: &str,
    happens: impl AsyncFnOnce(&World) -> anyhow::Result<()>,
) -> anyhow::Result<Backup> {
    world.controllers[0]
        .restart_with(&[("BACKUP_PAUSE_AT", POINT)])
        .await?;
    let included_resources = vec!["configmaps".to_owned(), DEFINITION.to_owned()];
    world
        .create_backup(
            name,
            BackupSpec {
                included_resources,
                ..of_namespaces(&[name])
            },
        )
        .await?;
    world.controllers[0]
        .paused(POINT_TIMEOUT)
        .await
        .context("it was not reached")?;
    let happened = happens(world).await;
    world.controllers[0].resume()?;
    happened?;
    let backup = world.backup_ended(name).await?;
    world.controllers[0].restart().await?;
    Ok(backup)
}

/// Number of times that the API server has refused to continue a list.
async fn expired(world: &World) -> anyhow::Result<u64> {
    let metrics = world
        .client
        .request_text(http::Request::get("/metrics").body(Vec::new())?)
        .await?;
    let of = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("code=\"410\"")
            && line.contains("resource=\"movings\"")
    };
    let counts = metrics
        .lines()
        .filter(of)
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    Ok(counts.sum())
}

async fn stored(world: &World, backup: &str, name: &str) -> anyhow::Result<Value> {
    world
        .backup_item(
            backup,
            &format!("{DEFINITION}/namespaces/{backup}/{name}.json"),
        )
        .await
}

async fn listed(world: &World, backup: &str) -> anyhow::Result<usize> {
    let list = world.backup_file(backup, "resource-list.json.gz").await?;
    Ok(list["lists.example.com/v1/Moving"]
        .as_array()
        .map_or(0, Vec::len))
}

async fn a_list_whose_continue_token_expired_is_complete(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let name = "list-expired";
    let api = movings(world, name).await?;
    let before = expired(world).await?;
    let backup = meanwhile(world, name, async |world| {
        api.merge_patch(LAST, json!({ "now": "after" })).await?;
        api.delete_object("moving-2298").await?;
        world.plane.forget_the_past().await
    })
    .await?;
    ensure!(
        backup.phase() == BackupPhase::Completed,
        "{:?}",
        backup.status
    );
    ensure!(expired(world).await? > before, "no token has expired");
    ensure!(
        listed(world, name).await? == COUNT - 1,
        "{} are listed",
        listed(world, name).await?
    );
    ensure!(
        stored(world, name, LAST).await?["now"] == "after",
        "not as it is now"
    );
    stored(world, name, "moving-0000").await.map(drop)
}

async fn a_type_deleted_while_it_is_listed_is_a_warning(world: &mut World) -> TestResult {
    world.needs_debug_build()?;
    let name = "list-vanishes";
    movings(world, name).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let backup = meanwhile(world, name, async |_| {
        definitions.delete_object(DEFINITION).await?;
        definitions
            .wait_gone(DEFINITION, Duration::from_mins(3))
            .await
    })
    .await?;
    let warnings = world.backup_warnings(name).await?;
    ensure!(
        backup.phase() == BackupPhase::Completed,
        "{:?}, {warnings}",
        backup.status
    );
    says(&warnings, &["movings", "is no longer served"])?;
    let count = listed(world, name).await?;
    ensure!((25..COUNT).contains(&count), "{count} are listed");
    stored(world, name, "moving-0000").await?;
    world
        .backup_item(name, &format!("configmaps/namespaces/{name}/beside.json"))
        .await
        .map(drop)
}

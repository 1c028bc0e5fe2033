//! Items of a type that is served in two versions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::prelude::*;

crate::tests! { an_item_is_restored_in_the_version_that_the_cluster_serves }

const GROUP: &str = "versions.example.com";

/// The versions of the definition: which are served, and whether v2 is among them.
fn versions(v2_is_served: bool) -> Value {
    let version = |name: &str, served: bool, storage: bool| {
        let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        json!({ "name": name, "served": served, "storage": storage, "schema": { "openAPIV3Schema": schema } })
    };
    json!([
        version("v1", true, true),
        version("v2", v2_is_served, false)
    ])
}

async fn serve(world: &World, v2_is_served: bool) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let spec = json!({ "spec": { "versions": versions(v2_is_served) } });
    definitions
        .merge_patch(&format!("things.{GROUP}"), spec)
        .await?;
    let expected = if v2_is_served {
        vec!["v2", "v1"]
    } else {
        vec!["v1"]
    };
    eventually("the versions are served", TIMEOUT, async || {
        let groups = world.client.list_api_groups_aggregated().await?;
        let is_ours = |name: Option<&str>| name == Some(GROUP);
        let group = groups.items.into_iter().find(|group| {
            is_ours(
                group
                    .metadata
                    .as_ref()
                    .and_then(|metadata| metadata.name.as_deref()),
            )
        });
        let served: Vec<String> = group
            .into_iter()
            .flat_map(|group| group.versions)
            .filter_map(|version| version.version)
            .collect();
        anyhow::Ok(when(served == expected, format!("{served:?}")))
    })
    .await
}

/// The version in which an object was created.
async fn created_in(world: &World, namespace: &str) -> anyhow::Result<String> {
    let thing = objects_in(&world.client, namespace, &format!("{GROUP}/v1"), "Thing")
        .get("one")
        .await?;
    ensure!(thing.data["size"] == 5, "{thing:?}");
    let fields = thing.metadata.managed_fields.unwrap_or_default();
    Ok(fields
        .first()
        .and_then(|entry| entry.api_version.clone())
        .unwrap_or_default())
}

async fn an_item_is_restored_in_the_version_that_the_cluster_serves(
    world: &mut World,
) -> TestResult {
    let name = "versions";
    ensure_namespace(&world.client, name).await?;
    let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("things.{GROUP}") },
        "spec": { "group": GROUP, "scope": "Namespaced", "versions": versions(true),
            "names": { "plural": "things", "singular": "thing", "kind": "Thing" } } });
    create_all(&world.client, [definition]).await?;
    serve(world, true).await?;
    let thing = json!({ "apiVersion": format!("{GROUP}/v2"), "kind": "Thing", "size": 5,
        "metadata": { "name": "one", "namespace": name } });
    create_all(&world.client, [thing]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let entries = world.backup_entries(name).await?;
    for folder in ["", "v1/", "v2-preferredversion/"] {
        let path = format!("resources/things.{GROUP}/{folder}namespaces/{name}/one.json");
        ensure!(entries.contains(&path), "{path}: {entries:?}");
    }

    let into = |namespace: &str| RestoreSpec {
        included_namespaces: vec![name.to_owned()],
        ..into_namespace(name, namespace)
    };
    serve(world, false).await?;
    world
        .restore("versions-not-served", into("versions-not-served"))
        .await?;
    ensure!(created_in(world, "versions-not-served").await? == format!("{GROUP}/v1"));
    says(
        &world.restore_log("versions-not-served").await?,
        &[
            "things.versions.example.com are restored in v1 and not in v2: the cluster does not serve v2",
        ],
    )?;

    serve(world, true).await?;
    world
        .restore("versions-preferred", into("versions-preferred"))
        .await?;
    ensure!(created_in(world, "versions-preferred").await? == format!("{GROUP}/v2"));

    let text = format!("things.{GROUP}=v1\nno line\n");
    let asked = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "enableapigroupversions", "namespace": NAMESPACE },
        "data": { "restoreResourcesVersionPriority": text } });
    create_all(&world.client, [asked]).await?;
    let restore = world
        .restore("versions-asked", into("versions-asked"))
        .await;
    let config_maps: Api<ConfigMap> = world.api();
    config_maps.delete_object("enableapigroupversions").await?;
    ensure!(
        restore?.status.warnings == 1,
        "the line that cannot be read"
    );
    ensure!(created_in(world, "versions-asked").await? == format!("{GROUP}/v1"));
    says(
        &world.restore_log("versions-asked").await?,
        &["ConfigMap enableapigroupversions prefers it", "no line"],
    )
}

//! What a restore could leave out without a word.

use backup_tests::{
    install::{api_services, define_kind, register_unreachable_group},
    snapshots::host_path_claim,
};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

use crate::prelude::*;

crate::tests! {
    a_type_that_is_not_served_is_an_error_of_its_restore,
    a_type_whose_server_is_away_is_waited_for,
    what_is_being_deleted_is_restored_once_it_is_gone,
    a_volume_whose_claim_is_gone_is_there_for_the_restored_claim,
    namespaces_that_would_become_one_are_refused,
}

crate::tests! { WITH_OWN_ETCD: an_api_server_without_its_store_costs_no_item }

/// Backs up an object of a kind that the cluster does not know afterwards.
async fn stored_with_its_kind_gone(world: &World, name: &str) -> anyhow::Result<String> {
    let group = format!("{name}.example.com");
    let definition = define_kind(&world.client, &group, "Gadget").await?;
    world.config_maps(name, 2).await?;
    let gadget = json!({ "apiVersion": format!("{group}/v1"), "kind": "Gadget",
        "metadata": { "name": "g", "namespace": name } });
    create_all(&world.client, [gadget]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.delete_object(&definition).await?;
    definitions.wait_gone(&definition, Duration::from_mins(1)).await?;
    world.delete_namespace(name).await?;
    Ok(group)
}

fn without_definitions(backup: &str) -> RestoreSpec {
    let excluded_resources = vec!["customresourcedefinitions".to_owned()];
    RestoreSpec { excluded_resources, ..from_backup(backup) }
}

async fn a_type_that_is_not_served_is_an_error_of_its_restore(world: &mut World) -> anyhow::Result<()> {
    let name = "not-served";
    stored_with_its_kind_gone(world, name).await?;
    let restore = world.run_restore(name, without_definitions(name), RestorePhase::PartiallyFailed).await?;
    ensure!(restore.status.errors == 1, "{:?}", restore.status);
    says(&world.restore_errors(name).await?, &["gadgets.not-served.example.com", "1 items"])?;
    ensure!(world.count_config_maps(name).await? >= 2, "the rest is not there");
    Ok(())
}

async fn a_type_whose_server_is_away_is_waited_for(world: &mut World) -> anyhow::Result<()> {
    let name = "away";
    let group = stored_with_its_kind_gone(world, name).await?;
    let service = register_unreachable_group(&world.client, &group).await?;
    world.create_restore(name, without_definitions(name)).await?;
    let rest = async || anyhow::Ok(world.count_config_maps(name).await? >= 2);
    until("the rest is restored", REACHED, rest).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let phase = world.restores().get(name).await?.phase();
    ensure!(phase == RestorePhase::InProgress, "{phase}");
    api_services(&world.client).delete_object(&service).await?;
    define_kind(&world.client, &group, "Gadget").await?;
    world.restore_ends(name, RestorePhase::Completed).await?;
    let gadgets = all_objects(&world.client, &format!("{group}/v1"), "Gadget").list_all().await?;
    ensure!(gadgets.len() == 1, "{gadgets:?}");
    Ok(())
}

async fn what_is_being_deleted_is_restored_once_it_is_gone(world: &mut World) -> anyhow::Result<()> {
    let name = "going";
    world.backed_up(name, 3).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.merge_patch("item-1", json!({ "metadata": { "finalizers": ["example.com/held"] } })).await?;
    maps.delete_object("item-1").await?;
    world.create_restore(name, from_backup(name)).await?;
    world.restore_reaches(name, RestorePhase::InProgress).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let phase = world.restores().get(name).await?.phase();
    ensure!(phase == RestorePhase::InProgress, "{phase}");
    maps.merge_patch("item-1", json!({ "metadata": { "finalizers": null } })).await?;
    world.restore_ends(name, RestorePhase::Completed).await?;
    let item = maps.get("item-1").await?;
    ensure!(item.metadata.deletion_timestamp.is_none(), "{item:?}");
    Ok(())
}

async fn a_volume_whose_claim_is_gone_is_there_for_the_restored_claim(
    world: &mut World,
) -> anyhow::Result<()> {
    let (name, volume) = ("released", "pv-released-data");
    host_path_claim(&world.client, name, "data", "/data").await?;
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    volumes.merge_patch(volume, json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } })).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), name);
    claims.delete_at_once("data").await?;
    volumes.merge_patch_status(volume, json!({ "phase": "Released" })).await?;
    world.restore(name, from_backup(name)).await?;
    let reference = volumes.get(volume).await?.spec.and_then(|spec| spec.claim_ref).unwrap_or_default();
    ensure!(reference.uid.is_none() && reference.name.as_deref() == Some("data"), "{reference:?}");
    let claim = claims.get("data").await?.spec.unwrap_or_default();
    ensure!(claim.volume_name.as_deref() == Some(volume), "{claim:?}");
    Ok(())
}

async fn namespaces_that_would_become_one_are_refused(world: &mut World) -> anyhow::Result<()> {
    for name in ["one-of-two", "two-of-two"] {
        world.config_maps(name, 1).await?;
    }
    world.back_up("two-of-two", of_namespaces(&["one-of-two", "two-of-two"])).await?;
    let namespace_mapping = [("one-of-two".to_owned(), "two-of-two".to_owned())].into();
    let spec = RestoreSpec { namespace_mapping, ..from_backup("two-of-two") };
    let restore = world.run_restore("two-of-two", spec, RestorePhase::Failed).await?;
    let reason = restore.status.failure_reason.unwrap_or_default();
    says(&reason, &["nothing was restored", "one-of-two", "spec.namespaceMapping"])?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "two-of-two");
    let labels = maps.get("item-0").await?.metadata.labels.unwrap_or_default();
    ensure!(!labels.contains_key("velero.io/restore-name"), "{labels:?}");
    Ok(())
}

/// etcd is gone for longer than five tries take: the API server answers 500 to all writes meanwhile.
async fn an_api_server_without_its_store_costs_no_item(world: &mut World) -> anyhow::Result<()> {
    let (name, count) = ("no-store", 1500);
    world.backed_up(name, count).await?;
    world.delete_namespace(name).await?;
    world.create_restore(name, from_backup(name)).await?;
    let begun = async || anyhow::Ok(world.count_config_maps(name).await? > 50);
    until("it has begun", REACHED, begun).await?;
    let etcd = world.plane.etcd.as_mut().ok_or(Skip("there is no etcd of our own"))?;
    etcd.kill().await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    etcd.restart().await?;
    world.controllers_run().await?;
    let restore = world.restore_ended(name).await?;
    let errors = world.restore_errors(name).await?;
    ensure!(restore.phase() == RestorePhase::Completed, "{:?}: {errors}", restore.status);
    let there = world.count_config_maps(name).await?;
    ensure!(there >= count, "{there} of {count}");
    Ok(())
}

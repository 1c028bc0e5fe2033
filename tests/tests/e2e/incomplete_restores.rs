//! Cases in which a restore could leave items out silently.

use backup_core::{
    labels::{BLOCKED_ANNOTATION, LEFT_ITEMS_ANNOTATION, MISSING_DATA_ANNOTATION, annotation},
    left_items::LeftItems,
};
use backup_tests::{
    install::{api_services, define_kind, register_unreachable_group},
    percona::{NAMESPACE as DATABASES, RESTORE, VERSION},
    snapshots::host_path_claim,
};
use k8s_openapi::{
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Service},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

use crate::{guarded_operators::PS, percona, prelude::*};

crate::tests! {
    a_type_that_is_not_served_is_an_error_of_its_restore,
    a_type_whose_server_is_away_is_waited_for,
    what_is_being_deleted_is_restored_once_it_is_gone,
    what_keeps_a_namespace_that_terminates_is_said,
    a_volume_whose_claim_is_gone_is_there_for_the_restored_claim,
    what_differs_and_is_left_is_named_by_its_restore,
    namespaces_that_would_become_one_are_refused,
    a_server_that_fails_for_a_while_costs_no_item,
    a_status_is_restored_where_that_is_asked_for,
}

crate::tests! { BESIDE_ANOTHER_OPERATOR: what_another_operator_would_run_again_is_restored_only_by_name }

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
    definitions
        .wait_gone(&definition, Duration::from_mins(1))
        .await?;
    world.delete_namespace(name).await?;
    Ok(group)
}

fn without_definitions(backup: &str) -> RestoreSpec {
    let excluded_resources = vec!["customresourcedefinitions".to_owned()];
    RestoreSpec {
        excluded_resources,
        ..from_backup(backup)
    }
}

async fn a_type_that_is_not_served_is_an_error_of_its_restore(world: &mut World) -> TestResult {
    let name = "not-served";
    stored_with_its_kind_gone(world, name).await?;
    let restore = world
        .run_restore(
            name,
            without_definitions(name),
            RestorePhase::PartiallyFailed,
        )
        .await?;
    ensure!(restore.status.errors == 1, "{:?}", restore.status);
    says(
        &world.restore_errors(name).await?,
        &["gadgets.not-served.example.com", "1 item not restored"],
    )?;
    ensure!(
        world.count_config_maps(name).await? >= 2,
        "the rest is not there"
    );
    Ok(())
}

async fn a_type_whose_server_is_away_is_waited_for(world: &mut World) -> TestResult {
    let name = "away";
    let group = stored_with_its_kind_gone(world, name).await?;
    let service = register_unreachable_group(&world.client, &group).await?;
    world
        .create_restore(name, without_definitions(name))
        .await?;
    let rest = async || anyhow::Ok(world.count_config_maps(name).await? >= 2);
    until("the rest is restored", POINT_TIMEOUT, rest).await?;
    let says = async || {
        let restore = world.restores().get(name).await?;
        ensure!(restore.phase() == RestorePhase::InProgress);
        let said = restore
            .annotations()
            .get(BLOCKED_ANNOTATION)
            .cloned()
            .unwrap_or_default();
        anyhow::Ok(said.contains(&format!("it does not serve gadgets.{group} yet")))
    };
    until(
        "the restore says which type it waits for",
        POINT_TIMEOUT,
        says,
    )
    .await?;
    api_services(&world.client).delete_object(&service).await?;
    define_kind(&world.client, &group, "Gadget").await?;
    world.restore_ends(name, RestorePhase::Completed).await?;
    let gadgets = all_objects(&world.client, &format!("{group}/v1"), "Gadget")
        .list_all()
        .await?;
    ensure!(gadgets.len() == 1, "{gadgets:?}");
    Ok(())
}

async fn what_is_being_deleted_is_restored_once_it_is_gone(world: &mut World) -> TestResult {
    let name = "going";
    world.backed_up(name, 3).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.merge_patch(
        "item-1",
        json!({ "metadata": { "finalizers": ["example.com/held"] } }),
    )
    .await?;
    maps.delete_object("item-1").await?;
    world.create_restore(name, from_backup(name)).await?;
    world
        .restore_reaches(name, RestorePhase::InProgress)
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let phase = world.restores().get(name).await?.phase();
    ensure!(phase == RestorePhase::InProgress, "{phase}");
    maps.merge_patch("item-1", json!({ "metadata": { "finalizers": null } }))
        .await?;
    world.restore_ends(name, RestorePhase::Completed).await?;
    let item = maps.get("item-1").await?;
    ensure!(item.metadata.deletion_timestamp.is_none(), "{item:?}");
    Ok(())
}

async fn what_keeps_a_namespace_that_terminates_is_said(world: &mut World) -> TestResult {
    let name = "kept-open";
    world.backed_up(name, 2).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.merge_patch(
        "item-1",
        json!({ "metadata": { "finalizers": ["example.com/held"] } }),
    )
    .await?;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete_object(name).await?;
    world.create_restore(name, from_backup(name)).await?;
    let names_it =
        async || {
            let restore = world.restores().get(name).await?;
            let said = restore
                .annotations()
                .get(BLOCKED_ANNOTATION)
                .cloned()
                .unwrap_or_default();
            anyhow::Ok(said.contains(
                "Some content in the namespace has finalizers remaining: example.com/held",
            ))
        };
    until(
        "the restore says what keeps the namespace",
        POINT_TIMEOUT,
        names_it,
    )
    .await?;
    let shown = world
        .kubectl_backup()
        .run(&["restore", "describe", name])
        .await?
        .stdout;
    says(
        &shown,
        &[
            "namespaces \"kept-open\" to be gone",
            "configmaps. has 1 resource instances",
            "example.com/held",
        ],
    )?;
    maps.merge_patch("item-1", json!({ "metadata": { "finalizers": null } }))
        .await?;
    world.restore_ends(name, RestorePhase::Completed).await?;
    Ok(())
}

async fn a_volume_whose_claim_is_gone_is_there_for_the_restored_claim(
    world: &mut World,
) -> TestResult {
    let (name, volume) = ("released", "pv-released-data");
    host_path_claim(&world.client, name, "data", "/data").await?;
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    volumes
        .merge_patch(
            volume,
            json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }),
        )
        .await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.client.clone(), name);
    claims.delete_at_once("data").await?;
    volumes
        .merge_patch_status(volume, json!({ "phase": "Released" }))
        .await?;
    world.restore(name, from_backup(name)).await?;
    let reference = volumes
        .get(volume)
        .await?
        .spec
        .and_then(|spec| spec.claim_ref)
        .unwrap_or_default();
    let claim = claims.get("data").await?;
    // The cluster may have bound it by now.
    let free = reference.uid.is_none() || reference.uid == claim.uid();
    ensure!(
        free && reference.name.as_deref() == Some("data"),
        "{reference:?}"
    );
    let claim = claim.spec.unwrap_or_default();
    ensure!(claim.volume_name.as_deref() == Some(volume), "{claim:?}");
    Ok(())
}

async fn what_differs_and_is_left_is_named_by_its_restore(world: &mut World) -> TestResult {
    let name = "left";
    world.backed_up(name, 2).await?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.merge_patch("item-1", json!({ "data": { "changed": "since" } }))
        .await?;
    let restore = world.restore(name, from_backup(name)).await?;
    let left = LeftItems::read(annotation(&restore, LEFT_ITEMS_ANNOTATION));
    let left = left.context("nothing is said of what was left")?;
    ensure!(left.items.contains("ConfigMap left/item-1"), "{left:?}");
    ensure!(!left.items.contains("ConfigMap left/item-0"), "{left:?}");
    ensure!(
        restore.annotations().get(MISSING_DATA_ANNOTATION).is_none(),
        "{:?}",
        restore.metadata
    );
    Ok(())
}

async fn namespaces_that_would_become_one_are_refused(world: &mut World) -> TestResult {
    for name in ["one-of-two", "two-of-two"] {
        world.config_maps(name, 1).await?;
    }
    world
        .back_up("two-of-two", of_namespaces(&["one-of-two", "two-of-two"]))
        .await?;
    let namespace_mapping = [("one-of-two".to_owned(), "two-of-two".to_owned())].into();
    let spec = RestoreSpec {
        namespace_mapping,
        ..from_backup("two-of-two")
    };
    let restore = world
        .run_restore("two-of-two", spec, RestorePhase::Failed)
        .await?;
    let reason = restore.status.failure_reason.unwrap_or_default();
    says(
        &reason,
        &[
            "nothing was restored",
            "one-of-two",
            "spec.namespaceMapping",
        ],
    )?;
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "two-of-two");
    let labels = maps
        .get("item-0")
        .await?
        .metadata
        .labels
        .unwrap_or_default();
    ensure!(!labels.contains_key("velero.io/restore-name"), "{labels:?}");
    Ok(())
}

/// The API server answers 500 to every write for longer than a few retries.
async fn a_server_that_fails_for_a_while_costs_no_item(world: &mut World) -> TestResult {
    let name = "failing";
    world.backed_up(name, 20).await?;
    world.delete_namespace(name).await?;
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let hook = json!({ "name": "nobody.example.com", "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": { "url": "https://127.0.0.1:1/" },
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
        "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }] });
    hooks
        .create_json(json!({ "metadata": { "name": name }, "webhooks": [hook] }))
        .await?;
    world.create_restore(name, from_backup(name)).await?;
    world
        .restore_reaches(name, RestorePhase::InProgress)
        .await?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    hooks.delete_object(name).await?;
    world.restore_ends(name, RestorePhase::Completed).await?;
    let there = world.count_config_maps(name).await?;
    ensure!(there >= 20, "{there}");
    Ok(())
}

/// For a type with the subresource, and for one without.
async fn a_status_is_restored_where_that_is_asked_for(world: &mut World) -> TestResult {
    let (name, group) = ("with-status", "status.example.com");
    define_kind(&world.client, group, "Gadget").await?;
    ensure_namespace(&world.client, name).await?;
    let services: Api<Service> = Api::namespaced(world.client.clone(), name);
    services
        .create_json(json!({ "metadata": { "name": "s" },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] } }))
        .await?;
    let address = json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } });
    services.merge_patch_status("s", address).await?;
    let gadgets = objects_in(&world.client, name, &format!("{group}/v1"), "Gadget");
    let gadget = json!({ "apiVersion": format!("{group}/v1"), "kind": "Gadget", "metadata": { "name": "g" },
        "status": { "seen": true } });
    gadgets.create_json(gadget).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    for (number, asked) in [false, true].into_iter().enumerate() {
        world.delete_namespace(name).await?;
        let types = json!({ "includedResources": ["services", format!("gadgets.{group}")] });
        let restore_status = serde_json::from_value(if asked { types } else { Value::Null })?;
        let spec = RestoreSpec {
            restore_status,
            ..from_backup(name)
        };
        world.restore(&format!("{name}-{number}"), spec).await?;
        let service = services
            .get("s")
            .await?
            .status
            .and_then(|status| status.load_balancer);
        ensure!(
            service.and_then(|status| status.ingress).is_some() == asked,
            "of the service, {asked}"
        );
        ensure!(
            (gadgets.get("g").await?.data["status"]["seen"] == true) == asked,
            "of the gadget, {asked}"
        );
    }
    Ok(())
}

async fn what_another_operator_would_run_again_is_restored_only_by_name(
    world: &mut World,
) -> TestResult {
    percona::guard(world).await?;
    PS.create(world, RESTORE, "done", "left-out").await?;
    PS.set_state(world, RESTORE, "done", "Succeeded").await?;
    world
        .back_up("left-out", of_namespaces(&[DATABASES]))
        .await?;
    let theirs = objects_in(&world.client, DATABASES, VERSION, RESTORE);
    theirs.delete_object("done").await?;

    let restore = world.restore("left-out", from_backup("left-out")).await?;
    ensure!(restore.status.warnings >= 1, "{:?}", restore.status);
    let results = world
        .restore_file("left-out", "results.gz")
        .await?
        .to_string();
    says(
        &results,
        &[
            "perconaservermysqlrestores.ps.percona.com",
            "spec.includedResources",
        ],
    )?;
    ensure!(!theirs.exists("done").await?, "it was restored");

    let included_resources = vec!["perconaservermysqlrestores".to_owned()];
    let spec = RestoreSpec {
        included_resources,
        ..from_backup("left-out")
    };
    world.restore("asked-for", spec).await?;
    ensure!(theirs.exists("done").await?, "it was asked for");
    theirs.delete_object("done").await.map_err(Into::into)
}

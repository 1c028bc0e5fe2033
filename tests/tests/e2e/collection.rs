//! The contents of a backup, for all sorts of objects.

use backup_core::labels::EXCLUDE_FROM_BACKUP;
use backup_tests::{
    install::{api_services, define_kind, register_unreachable_group},
    snapshots::host_path_claim,
};
use k8s_openapi::{
    api::core::v1::Namespace,
    api::rbac::v1::{ClusterRole, ClusterRoleBinding},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

use crate::prelude::*;

crate::tests! {
    a_service_account_brings_its_bindings_into_the_backup,
    listed_first_is_stored_first,
    a_namespace_that_leaves_itself_out_takes_nothing_else_along,
    an_unreadable_policy_is_refused_with_all_its_errors,
    fs_backup_without_snapshots_is_an_error_of_each_claim,
    odd_names_and_large_objects_are_stored_as_they_are,
    an_api_group_that_is_down_is_an_error_and_the_rest_intact,
    what_other_namespaces_have_many_of_is_listed_in_each_namespace,
}

async fn a_service_account_brings_its_bindings_into_the_backup(world: &mut World) -> TestResult {
    world.config_maps("bound", 1).await?;
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    for name in ["bound-role", "unrelated-role"] {
        roles
            .create_json(json!({ "metadata": { "name": name } }))
            .await?;
    }
    let binding = json!({ "metadata": { "name": "bound-binding" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bound-role" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "bound" }] });
    bindings.create_json(binding).await?;
    world.service_account("bound").await?;

    world.start_backup("bound").await?;
    let backup = world.backup_ended("bound").await?;
    let names = world.backup_entries("bound").await?;
    bindings.delete_object("bound-binding").await?;
    for name in ["bound-role", "unrelated-role"] {
        roles.delete_object(name).await?;
    }
    ensure!(
        backup.phase() == BackupPhase::Completed,
        "{:?}",
        backup.status
    );
    let at = |name: &str| {
        names
            .iter()
            .position(|entry| entry == &format!("resources/{name}.json"))
    };
    let role = at("clusterroles.rbac.authorization.k8s.io/cluster/bound-role");
    let binding = at("clusterrolebindings.rbac.authorization.k8s.io/cluster/bound-binding");
    let account = at("serviceaccounts/namespaces/bound/default");
    ensure!(
        role.is_some() && role < binding && binding < account,
        "{role:?} {binding:?} {account:?}: {names:?}"
    );
    ensure!(
        !names.iter().any(|name| name.contains("unrelated-role")),
        "{names:?}"
    );
    Ok(())
}

async fn what_other_namespaces_have_many_of_is_listed_in_each_namespace(
    world: &mut World,
) -> TestResult {
    // Many more objects than the lists of two namespaces need.
    world.config_maps("beside-mine", 400).await?;
    for name in ["mine-one", "mine-two"] {
        world.config_maps(name, 3).await?;
    }
    // The API server does not count the objects after a page if labels select.
    let labels = json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist" }] });
    for (name, selector) in [("mine", Value::Null), ("mine-by-labels", labels)] {
        let spec = BackupSpec {
            label_selector: serde_json::from_value(selector)?,
            ..of_namespaces(&["mine-*"])
        };
        world.back_up(name, spec).await?;
        let mut names = world.backup_entries(name).await?;
        names.retain(|name| name.starts_with("resources/configmaps/namespaces/"));
        let of = |namespace: &str| names.iter().filter(|name| name.contains(namespace)).count();
        ensure!(
            (
                of("/mine-one/item-"),
                of("/mine-two/item-"),
                of("/beside-mine/")
            ) == (3, 3, 0),
            "{names:?}"
        );
    }
    world.delete_namespace("beside-mine").await
}

async fn listed_first_is_stored_first(world: &mut World) -> TestResult {
    world.config_maps("ordered", 20).await?;
    let mut spec = of_namespaces(&["ordered"]);
    let order = "ordered/item-7,ordered/item-3,ordered/gone,ordered/item-11";
    spec.ordered_resources = [("configmaps".to_owned(), order.to_owned())].into();
    let backup = world.back_up("ordered", spec).await?;
    ensure!(backup.status.warnings == 1, "{:?}", backup.status);
    let names = world.backup_entries("ordered").await?;
    let map = |name: &String| {
        Some(
            name.strip_prefix("resources/configmaps/namespaces/ordered/")?
                .to_owned(),
        )
    };
    let maps: Vec<String> = names.iter().filter_map(map).collect();
    ensure!(
        maps[..3] == ["item-7.json", "item-3.json", "item-11.json"],
        "{maps:?}"
    );
    // With kube-root-ca.crt.
    ensure!(maps.len() >= 20, "{maps:?}");
    Ok(())
}

async fn a_namespace_that_leaves_itself_out_takes_nothing_else_along(
    world: &mut World,
) -> TestResult {
    for name in ["left-out", "stays-in"] {
        world.config_maps(name, 1).await?;
    }
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let label = json!({ "metadata": { "labels": { EXCLUDE_FROM_BACKUP: "true" } } });
    namespaces.merge_patch("left-out", label).await?;
    let types = ["configmaps", "clusterroles.rbac.authorization.k8s.io"];
    let spec = BackupSpec {
        included_resources: types.map(ToOwned::to_owned).into(),
        ..BackupSpec::default()
    };
    world.back_up("all-but-one", spec).await?;
    let names = world.backup_entries("all-but-one").await?;
    world.delete_namespace("left-out").await?;
    let has = |part: &str| names.iter().any(|name| name.contains(part));
    ensure!(has("/stays-in/") && !has("/left-out/"), "{names:?}");
    ensure!(
        has("clusterroles.rbac.authorization.k8s.io/cluster/"),
        "no cluster-scoped type: {names:?}"
    );
    Ok(())
}

async fn an_unreadable_policy_is_refused_with_all_its_errors(world: &mut World) -> TestResult {
    let maps: Api<ConfigMap> = world.api();
    let text = "version: v2\nvolumePolicies:\n- conditions: { capacity: big, colour: red }\n  action: { type: copy }\n";
    let map = json!({ "metadata": { "name": "bad-policy" }, "data": { "policy.yaml": text } });
    maps.create_json(map).await?;
    for (name, policy) in [
        ("policy-bad", "bad-policy"),
        ("policy-gone", "no-such-policy"),
    ] {
        let mut spec = of_namespaces(&["default"]);
        spec.resource_policy = Some(serde_json::from_value(
            json!({ "kind": "ConfigMap", "name": policy }),
        )?);
        world.create_backup(name, spec).await?;
    }
    let bad = world.backup_ended("policy-bad").await?;
    let gone = world.backup_ended("policy-gone").await?;
    maps.delete_object("bad-policy").await?;
    ensure!(
        bad.phase() == BackupPhase::FailedValidation,
        "{:?}",
        bad.status
    );
    let said = bad.status.validation_errors.join("\n");
    says(
        &said,
        &[
            "version",
            "conditions.capacity",
            "conditions.colour",
            "action.type",
        ],
    )?;
    ensure!(bad.status.validation_errors.len() == 4, "{said}");
    ensure!(
        gone.status
            .validation_errors
            .join("")
            .contains("no-such-policy"),
        "{:?}",
        gone.status
    );
    Ok(())
}

/// A policy requests file system backup of volumes, and the backup wants no snapshots.
async fn fs_backup_without_snapshots_is_an_error_of_each_claim(world: &mut World) -> TestResult {
    for name in ["one", "two"] {
        host_path_claim(&world.client, "copied", name, "/tmp").await?;
    }
    let maps: Api<ConfigMap> = world.api();
    let text = "version: v1\nvolumePolicies:\n- conditions: { volumeTypes: [hostPath] }\n  action: { type: fs-backup }\n";
    let map = json!({ "metadata": { "name": "copy-policy" }, "data": { "policy.yaml": text } });
    maps.create_json(map).await?;
    let mut spec = of_namespaces(&["copied"]);
    spec.resource_policy =
        serde_json::from_value(json!({ "kind": "ConfigMap", "name": "copy-policy" }))?;
    spec.snapshot_volumes = Some(false);
    let backup = world
        .run_backup("copied", spec, BackupPhase::PartiallyFailed)
        .await?;
    maps.delete_object("copy-policy").await?;
    ensure!(backup.status.errors == 2, "{:?}", backup.status);
    let names = world.backup_entries("copied").await?;
    for name in ["one", "two"] {
        let path = format!("resources/persistentvolumeclaims/namespaces/copied/{name}.json");
        ensure!(
            names.contains(&path),
            "the claim itself is missing: {names:?}"
        );
    }
    Ok(())
}

/// An object of 1.4 MiB, and names that only some types allow.
async fn odd_names_and_large_objects_are_stored_as_they_are(world: &mut World) -> TestResult {
    let odd = "odd:name *?[x]\"'\\\\ü{}|<>&;$~^`!@#()=+,";
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    roles
        .create_json(json!({ "metadata": { "name": odd } }))
        .await?;
    // It is also included with a service account, so it is requested by name.
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let binding = json!({ "metadata": { "name": "odd-binding" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": odd },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "odd" }] });
    bindings.create_json(binding).await?;
    let crd = define_kind(&world.client, "odd.example.com", "Large").await?;
    ensure_namespace(&world.client, "odd").await?;
    world.service_account("odd").await?;
    let name = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    let large = json!({ "apiVersion": "odd.example.com/v1", "kind": "Large",
        "metadata": { "name": name, "namespace": "odd" }, "filling": "x".repeat(1_430_000) });
    create_all(&world.client, [large]).await?;

    world.start_backup("odd").await?;
    let backup = world.backup_ended("odd").await?;
    let entries = world
        .s3()?
        .inspect_tarball(BUCKET, "backups/odd/odd.tar.gz")
        .await?;
    // The client does not escape names.
    let escaped: String = odd.bytes().map(|byte| format!("%{byte:02X}")).collect();
    roles.delete_object(&escaped).await?;
    bindings.delete_object("odd-binding").await?;
    Api::<CustomResourceDefinition>::all(world.client.clone())
        .delete_object(&crd)
        .await?;
    ensure!(
        backup.phase() == BackupPhase::Completed,
        "{:?}",
        backup.status
    );
    let find = |name: &str| {
        entries
            .iter()
            .find(|entry| entry["name"] == format!("resources/{name}.json"))
    };
    ensure!(
        find(&format!(
            "clusterroles.rbac.authorization.k8s.io/cluster/{odd}"
        ))
        .is_some(),
        "no odd name"
    );
    let large = find(&format!("larges.odd.example.com/namespaces/odd/{name}"));
    ensure!(
        large
            .and_then(|entry| entry["size"].as_u64())
            .is_some_and(|size| size > 1_430_000),
        "no large object: {large:?}"
    );
    let crd = "customresourcedefinitions.apiextensions.k8s.io/cluster/larges.odd.example.com";
    ensure!(find(crd).is_some(), "its definition did not come along");
    Ok(())
}

async fn an_api_group_that_is_down_is_an_error_and_the_rest_intact(
    world: &mut World,
) -> TestResult {
    world.config_maps("beside", 3).await?;
    let service = register_unreachable_group(&world.client, "down.example.com").await?;
    let spec = of_namespaces(&["beside"]);
    let ended = world
        .run_backup("beside", spec, BackupPhase::PartiallyFailed)
        .await;
    api_services(&world.client).delete_object(&service).await?;
    let backup = ended?;
    ensure!(backup.status.errors == 1, "{:?}", backup.status);
    let results = world.backup_results("beside").await?;
    says(&results, &["down.example.com"])?;
    let names = world.backup_entries("beside").await?;
    ensure!(
        names
            .iter()
            .filter(|name| name.starts_with("resources/configmaps/namespaces/beside/item-"))
            .count()
            == 3
    );
    // A group whose objects cannot be created.
    let service = register_unreachable_group(&world.client, "metrics.k8s.io").await?;
    let ended = world
        .back_up("beside-metrics", of_namespaces(&["beside"]))
        .await;
    api_services(&world.client).delete_object(&service).await?;
    let results = ended.map(|backup| backup.status.warnings);
    ensure!(
        results? == 1,
        "{}",
        world.backup_results("beside-metrics").await?
    );
    Ok(())
}

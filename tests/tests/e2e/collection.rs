//! What a backup holds, whatever the objects are like.

use anyhow::ensure;
use backup_core::api::BackupPhase;
use backup_tests::{
    World,
    install::ensure_namespace,
    world::{BUCKET, backups::of_namespaces},
};
use k8s_openapi::api::{
    core::v1::ConfigMap,
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, PostParams},
};
use object_store::ObjectStoreExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

crate::tests! {
    a_service_account_brings_its_bindings_into_the_backup,
    listed_first_is_stored_first,
    an_unreadable_policy_is_refused_with_all_its_errors,
    fs_backup_without_snapshots_is_an_error_of_each_claim,
    odd_names_and_large_objects_are_stored_as_they_are,
    an_api_group_that_is_down_is_an_error_and_the_rest_intact,
}

fn object<K: DeserializeOwned>(value: Value) -> anyhow::Result<K> {
    Ok(serde_json::from_value(value)?)
}

async fn a_service_account_brings_its_bindings_into_the_backup(world: &mut World) -> anyhow::Result<()> {
    world.config_maps("bound", 1).await?;
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let params = PostParams::default();
    for name in ["bound-role", "unrelated-role"] {
        roles.create(&params, &object(json!({ "metadata": { "name": name } }))?).await?;
    }
    let binding = json!({ "metadata": { "name": "bound-binding" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bound-role" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "bound" }] });
    bindings.create(&params, &object(binding)?).await?;
    world.service_account("bound").await?;

    world.create_backup("bound", of_namespaces(&["bound"])).await?;
    let backup = world.backup_ended("bound").await?;
    let names = world.backup_entries("bound").await?;
    bindings.delete("bound-binding", &DeleteParams::default()).await?;
    for name in ["bound-role", "unrelated-role"] {
        roles.delete(name, &DeleteParams::default()).await?;
    }
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    let at = |name: &str| names.iter().position(|entry| entry == &format!("resources/{name}.json"));
    let role = at("clusterroles.rbac.authorization.k8s.io/cluster/bound-role");
    let binding = at("clusterrolebindings.rbac.authorization.k8s.io/cluster/bound-binding");
    let account = at("serviceaccounts/namespaces/bound/default");
    ensure!(
        role.is_some() && role < binding && binding < account,
        "{role:?} {binding:?} {account:?}: {names:?}"
    );
    ensure!(!names.iter().any(|name| name.contains("unrelated-role")), "{names:?}");
    Ok(())
}

async fn listed_first_is_stored_first(world: &mut World) -> anyhow::Result<()> {
    world.config_maps("ordered", 20).await?;
    let mut spec = of_namespaces(&["ordered"]);
    let order = "ordered/item-7,ordered/item-3,ordered/gone,ordered/item-11";
    spec.ordered_resources = [("configmaps".to_owned(), order.to_owned())].into();
    world.create_backup("ordered", spec).await?;
    let backup = world.backup_ended("ordered").await?;
    ensure!(backup.phase() == BackupPhase::Completed && backup.status.warnings == 1, "{:?}", backup.status);
    let names = world.backup_entries("ordered").await?;
    let maps: Vec<&str> = names
        .iter()
        .filter_map(|name| name.strip_prefix("resources/configmaps/namespaces/ordered/"))
        .collect();
    ensure!(maps[..3] == ["item-7.json", "item-3.json", "item-11.json"], "{maps:?}");
    // With kube-root-ca.crt.
    ensure!(maps.len() >= 20, "{maps:?}");
    Ok(())
}

async fn an_unreadable_policy_is_refused_with_all_its_errors(world: &mut World) -> anyhow::Result<()> {
    let maps: Api<ConfigMap> = world.api();
    let text = "version: v2\nvolumePolicies:\n- conditions: { capacity: big, colour: red }\n  action: { type: copy }\n";
    let map = json!({ "metadata": { "name": "bad-policy" }, "data": { "policy.yaml": text } });
    maps.create(&PostParams::default(), &object(map)?).await?;
    for (name, policy) in [("policy-bad", "bad-policy"), ("policy-gone", "no-such-policy")] {
        let mut spec = of_namespaces(&["default"]);
        spec.resource_policy = Some(object(json!({ "kind": "ConfigMap", "name": policy }))?);
        world.create_backup(name, spec).await?;
    }
    let bad = world.backup_ended("policy-bad").await?;
    let gone = world.backup_ended("policy-gone").await?;
    maps.delete("bad-policy", &DeleteParams::default()).await?;
    ensure!(bad.phase() == BackupPhase::FailedValidation, "{:?}", bad.status);
    let said = bad.status.validation_errors.join("\n");
    for field in ["version", "conditions.capacity", "conditions.colour", "action.type"] {
        ensure!(said.contains(field), "{field} is not named: {said}");
    }
    ensure!(bad.status.validation_errors.len() == 4, "{said}");
    ensure!(gone.status.validation_errors.join("").contains("no-such-policy"), "{:?}", gone.status);
    Ok(())
}

/// A policy wants the files of volumes copied, and the backup wants no snapshots.
async fn fs_backup_without_snapshots_is_an_error_of_each_claim(world: &mut World) -> anyhow::Result<()> {
    for name in ["one", "two"] {
        backup_tests::snapshots::host_path_claim(&world.client, "copied", name).await?;
    }
    let maps: Api<ConfigMap> = world.api();
    let text = "version: v1\nvolumePolicies:\n- conditions: { volumeTypes: [hostPath] }\n  action: { type: fs-backup }\n";
    let map = json!({ "metadata": { "name": "copy-policy" }, "data": { "policy.yaml": text } });
    maps.create(&PostParams::default(), &object(map)?).await?;
    let mut spec = of_namespaces(&["copied"]);
    spec.resource_policy = Some(object(json!({ "kind": "ConfigMap", "name": "copy-policy" }))?);
    spec.snapshot_volumes = Some(false);
    world.create_backup("copied", spec).await?;
    let backup = world.backup_ended("copied").await?;
    maps.delete("copy-policy", &DeleteParams::default()).await?;
    ensure!(
        backup.phase() == BackupPhase::PartiallyFailed && backup.status.errors == 2,
        "{:?}",
        backup.status
    );
    let names = world.backup_entries("copied").await?;
    for name in ["one", "two"] {
        let path = format!("resources/persistentvolumeclaims/namespaces/copied/{name}.json");
        ensure!(names.contains(&path), "the claim itself is missing: {names:?}");
    }
    Ok(())
}

/// An object of 1.4 MiB, and names that only some types may have.
async fn odd_names_and_large_objects_are_stored_as_they_are(world: &mut World) -> anyhow::Result<()> {
    let odd = "odd:name *?[x]\"'\\\\ü{}|<>&;$~^`!@#()=+,";
    let roles: Api<ClusterRole> = Api::all(world.client.clone());
    roles.create(&PostParams::default(), &object(json!({ "metadata": { "name": odd } }))?).await?;
    // It also comes along with a service account, so it is asked for by its name.
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let binding = json!({ "metadata": { "name": "odd-binding" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": odd },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "odd" }] });
    bindings.create(&PostParams::default(), &object(binding)?).await?;
    let crds: Api<DynamicObject> = Api::all_with(
        world.client.clone(),
        &ApiResource::erase::<
            k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
        >(&()),
    );
    let crd = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "larges.odd.example.com" },
        "spec": { "group": "odd.example.com", "scope": "Namespaced",
            "names": { "plural": "larges", "singular": "large", "kind": "Large", "listKind": "LargeList" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }] } });
    crds.create(&PostParams::default(), &object(crd)?).await?;
    ensure_namespace(&world.client, "odd").await?;
    world.service_account("odd").await?;
    let larges: Api<DynamicObject> = Api::namespaced_with(
        world.client.clone(),
        "odd",
        &ApiResource {
            group: "odd.example.com".into(),
            version: "v1".into(),
            api_version: "odd.example.com/v1".into(),
            kind: "Large".into(),
            plural: "larges".into(),
        },
    );
    let name = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    let large = json!({ "apiVersion": "odd.example.com/v1", "kind": "Large", "metadata": { "name": name },
        "filling": "x".repeat(1_430_000) });
    backup_tests::wait::eventually(
        "the large object is there",
        std::time::Duration::from_secs(30),
        async || {
            anyhow::Ok(match larges.create(&PostParams::default(), &object(large.clone())?).await {
                Ok(_) => backup_tests::wait::Probe::Ready(()),
                Err(error) => backup_tests::wait::Probe::NotYet(error.to_string()),
            })
        },
    )
    .await?;

    world.create_backup("odd", of_namespaces(&["odd"])).await?;
    let backup = world.backup_ended("odd").await?;
    let entries = world.s3()?.inspect_tarball(BUCKET, "backups/odd/odd.tar.gz").await?;
    // The client takes names as they are.
    let escaped: String = odd.bytes().map(|byte| format!("%{byte:02X}")).collect();
    roles.delete(&escaped, &DeleteParams::default()).await?;
    bindings.delete("odd-binding", &DeleteParams::default()).await?;
    crds.delete("larges.odd.example.com", &DeleteParams::default()).await?;
    ensure!(backup.phase() == BackupPhase::Completed, "{:?}", backup.status);
    let find = |name: &str| entries.iter().find(|entry| entry["name"] == format!("resources/{name}.json"));
    ensure!(find(&format!("clusterroles.rbac.authorization.k8s.io/cluster/{odd}")).is_some(), "no odd name");
    let large = find(&format!("larges.odd.example.com/namespaces/odd/{name}"));
    ensure!(
        large.and_then(|entry| entry["size"].as_u64()).is_some_and(|size| size > 1_430_000),
        "no large object: {large:?}"
    );
    let crd = "customresourcedefinitions.apiextensions.k8s.io/cluster/larges.odd.example.com";
    ensure!(find(crd).is_some(), "its definition did not come along");
    Ok(())
}

async fn an_api_group_that_is_down_is_an_error_and_the_rest_intact(world: &mut World) -> anyhow::Result<()> {
    world.config_maps("beside", 3).await?;
    let services: Api<DynamicObject> = Api::all_with(
        world.client.clone(),
        &ApiResource {
            group: "apiregistration.k8s.io".into(),
            version: "v1".into(),
            api_version: "apiregistration.k8s.io/v1".into(),
            kind: "APIService".into(),
            plural: "apiservices".into(),
        },
    );
    let service = json!({ "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": { "name": "v1.down.example.com" },
        "spec": { "group": "down.example.com", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": { "name": "nobody", "namespace": "default" } } });
    services.create(&PostParams::default(), &object(service)?).await?;
    // Until the API server knows that it does not answer.
    let shown =
        backup_tests::wait::eventually("it is known", std::time::Duration::from_mins(1), async || {
            let groups = world.client.list_api_groups_aggregated().await?;
            let text = serde_json::to_string(&groups)?;
            anyhow::Ok(backup_tests::wait::when(
                text.contains("down.example.com") && text.contains("Stale"),
                "not in discovery".to_owned(),
            ))
        })
        .await;
    let ended = match shown {
        Ok(()) => {
            world.create_backup("beside", of_namespaces(&["beside"])).await?;
            world.backup_ended("beside").await
        }
        Err(error) => Err(error),
    };
    services.delete("v1.down.example.com", &DeleteParams::default()).await?;
    let backup = ended?;
    ensure!(
        backup.phase() == BackupPhase::PartiallyFailed && backup.status.errors == 1,
        "{:?}",
        backup.status
    );
    let results = world.s3()?.bucket(BUCKET)?.get(&"backups/beside/beside-results.gz".into()).await?;
    let mut text = String::new();
    std::io::Read::read_to_string(
        &mut flate2::read::MultiGzDecoder::new(&results.bytes().await?[..]),
        &mut text,
    )?;
    ensure!(text.contains("down.example.com"), "{text}");
    let names = world.backup_entries("beside").await?;
    ensure!(
        names.iter().filter(|name| name.starts_with("resources/configmaps/namespaces/beside/item-")).count()
            == 3
    );
    Ok(())
}

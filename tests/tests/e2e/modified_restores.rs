//! Changes to restored items by ConfigMaps, and items that are restored with a pod.

use crate::prelude::*;

crate::tests! {
    configured_actions_and_modifiers_change_what_is_restored,
    a_modifier_that_is_wrong_or_missing_starts_nothing,
    zeros_that_a_modifier_sets_are_as_they_were_asked_for,
    a_default_modifier_is_for_restores_that_name_none_and_do_not_ask_to_be_left_alone,
}

const RULES: &str = r#"
version: v1
resourceModifierRules:
- conditions:
    groupResource: configmaps
    matches: [{path: /data/size, value: small}]
  patches:
  - {operation: test, path: /metadata/name, value: settings}
  - {operation: replace, path: /data/size, value: '"5"'}
  - {operation: copy, from: /data/size, path: /metadata/annotations/example.com~1size}
- conditions: {groupResource: services, labelSelector: {matchLabels: {app: web}}}
  mergePatches:
  - patchData: |
      metadata: {annotations: {old: null, new: "yes"}}
- conditions: {groupResource: "*.apps", resourceNameRegex: ^we}
  strategicPatches:
  - patchData: |
      spec: {template: {spec: {containers: [
        {name: main, env: [{name: LEVEL, value: low}]},
        {name: side, image: old.example/side, ports: [{containerPort: 9000}], livenessProbe: {httpGet: {port: 9000}}},
      ]}}}
"#;

fn modified_by(config_map: &str, namespace: &str) -> anyhow::Result<RestoreSpec> {
    let reference = json!({ "kind": "configmap", "name": config_map });
    let spec = into_namespace(namespace, &format!("{namespace}-back"));
    Ok(RestoreSpec {
        resource_modifier: serde_json::from_value(reference)?,
        ..spec
    })
}

/// A web server with its settings, and a pod with a claim; only the web server and the pod are
/// labelled.
fn shop(namespace: &str) -> Vec<Value> {
    let web = json!({ "app": "web" });
    let metadata = |name: &str| json!({ "name": name, "namespace": namespace, "labels": web });
    let claim = |class: &str| json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": { "requests": { "storage": "1Gi" } } });
    let container = json!({ "name": "main", "image": "old.example/shop:1", "env": [{ "name": "LEVEL", "value": "high" }] });
    let template = json!({ "metadata": { "labels": web }, "spec": { "containers": [container] } });
    let mut service = metadata("web");
    service["annotations"] = json!({ "old": "1", "kept": "1" });
    let mut settings = metadata("settings");
    settings["annotations"] = json!({ "kept": "1" });
    vec![
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": "data", "namespace": namespace }, "spec": claim("slow-modified") }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": settings, "data": { "size": "small" } }),
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": service, "spec": { "ports": [{ "port": 80 }] } }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("web"),
            "spec": { "replicas": 0, "selector": { "matchLabels": web }, "template": template } }),
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata("db"),
            "spec": { "replicas": 0, "serviceName": "db", "selector": { "matchLabels": web }, "template": template,
                "volumeClaimTemplates": [{ "metadata": { "name": "v" }, "spec": claim("slow-modified") }] } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata("once"),
            "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "main", "image": "old.example/once" }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } }),
    ]
}

fn configuration(name: &str, action: &str, data: &Value) -> Value {
    let labels = json!({ "velero.io/plugin-config": "", format!("velero.io/{action}"): "RestoreItemAction" });
    json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels }, "data": data })
}

async fn configured_actions_and_modifiers_change_what_is_restored(world: &mut World) -> TestResult {
    let name = "modified";
    ensure_namespace(&world.client, name).await?;
    create_all(&world.client, shop(name)).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let configurations = [
        configuration(
            "other-classes",
            "change-storage-class",
            &json!({ "slow-modified": "fast-modified" }),
        ),
        configuration(
            "other-images",
            "change-image-name",
            &json!({ "registry": "old.example/,new.example/" }),
        ),
    ];
    let rules = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "changes", "namespace": NAMESPACE },
        "data": { "rules.yaml": RULES } });
    let config_maps: Api<ConfigMap> = world.api();
    create_all(&world.client, configurations.into_iter().chain([rules])).await?;
    let changed = changed_restores(world, name).await;
    for one in ["other-classes", "other-images"] {
        config_maps.delete_object(one).await?;
    }
    changed
}

async fn changed_restores(world: &World, name: &str) -> anyhow::Result<()> {
    let labelled = |spec: RestoreSpec| {
        let selector = serde_json::from_value(json!({ "matchLabels": { "app": "web" } }))?;
        anyhow::Ok(RestoreSpec {
            label_selector: Some(selector),
            ..spec
        })
    };
    let spec = || labelled(modified_by("changes", name)?);
    // The class that replaces the other one is missing.
    world
        .run_restore(
            "modified-without-class",
            spec()?,
            RestorePhase::PartiallyFailed,
        )
        .await?;
    says(
        &world.restore_errors("modified-without-class").await?,
        &[
            "PersistentVolumeClaim",
            "StorageClass",
            "fast-modified",
            "which does not exist",
            "StatefulSet",
        ],
    )?;
    let class = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast-modified" },
        "provisioner": "example.com/none" });
    create_all(&world.client, [class]).await?;
    let restore = world.restore("modified-with-class", spec()?).await?;
    ensure!(
        (restore.status.errors, restore.status.warnings) == (0, 0),
        "what is there is no difference: {:?}",
        restore.status
    );

    let back = format!("{name}-back");
    let get = async |api_version: &str, kind: &str, name: &str| {
        let object = objects_in(&world.client, &back, api_version, kind)
            .get(name)
            .await?;
        anyhow::Ok(serde_json::to_value(object)?)
    };
    let claim = get("v1", "PersistentVolumeClaim", "data")
        .await
        .context("the claim comes along with its pod")?;
    ensure!(
        claim["spec"]["storageClassName"] == "fast-modified",
        "{claim}"
    );
    let set = get("apps/v1", "StatefulSet", "db").await?;
    ensure!(
        set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] == "fast-modified",
        "{set}"
    );
    let pod = get("v1", "Pod", "once").await?;
    ensure!(
        pod["spec"]["containers"][0]["image"] == "new.example/once",
        "{pod}"
    );
    let settings = get("v1", "ConfigMap", "settings").await?;
    let annotations = json!({ "kept": "1", "example.com/size": "5" });
    ensure!(
        settings["data"]["size"] == "5" && settings["metadata"]["annotations"] == annotations,
        "{settings}"
    );
    let service = get("v1", "Service", "web").await?;
    ensure!(
        service["metadata"]["annotations"] == json!({ "kept": "1", "new": "yes" }),
        "{service}"
    );
    let web = get("apps/v1", "Deployment", "web").await?;
    let containers = &web["spec"]["template"]["spec"]["containers"];
    // The actions ran before the modifier, and do not see what it sets.
    ensure!(
        containers[0]["image"] == "new.example/shop:1"
            && containers[1]["image"] == "old.example/side",
        "{containers}"
    );
    ensure!(
        containers[0]["env"] == json!([{ "name": "LEVEL", "value": "low" }]),
        "{containers}"
    );
    Ok(())
}

async fn a_modifier_that_is_wrong_or_missing_starts_nothing(world: &mut World) -> TestResult {
    let name = "unmodified";
    world.backed_up(name, 3).await?;
    let rules = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "wrong", "namespace": NAMESPACE },
        "data": { "rules.yaml": RULES.replace("operation: copy", "operation: clone") } });
    create_all(&world.client, [rules]).await?;
    for (config_map, words) in [
        ("none-such", ["spec.resourceModifier.name", "none-such"]),
        (
            "wrong",
            ["resourceModifierRules[0].patches[2].operation", "clone"],
        ),
    ] {
        let restore = format!("unmodified-{config_map}");
        let spec = modified_by(config_map, name)?;
        let status = world
            .run_restore(&restore, spec, RestorePhase::FailedValidation)
            .await?
            .status;
        says(&status.validation_errors.join("; "), &words)?;
    }
    let there = all_objects(&world.client, "v1", "Namespace")
        .exists("unmodified-back")
        .await?;
    ensure!(!there, "something was restored");
    Ok(())
}

/// The API server removes some zeros from a Deployment, and keeps others.
async fn zeros_that_a_modifier_sets_are_as_they_were_asked_for(world: &mut World) -> TestResult {
    let (name, back) = ("zeros", "zeros-back");
    ensure_namespace(&world.client, name).await?;
    create_all(&world.client, [shop(name).remove(3)]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let patch = json!({ "spec": { "template": { "spec": { "hostNetwork": false, "nodeName": "", "automountServiceAccountToken": false,
        "containers": [{ "name": "main", "image": "old.example/shop:1", "stdin": false, "args": [] }] } } } });
    let rule = json!({ "conditions": { "groupResource": "deployments.apps" }, "mergePatches": [{ "patchData": patch.to_string() }] });
    let rules = json!({ "version": "v1", "resourceModifierRules": [rule] }).to_string();
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "zeros", "namespace": NAMESPACE },
        "data": { "rules.yaml": rules } });
    create_all(&world.client, [map]).await?;
    // Created in one restore, and updated in another.
    for (restore, existing_resource_policy) in [
        ("zeros-created", None),
        ("zeros-updated", Some("update".to_owned())),
    ] {
        let spec = RestoreSpec {
            existing_resource_policy,
            ..modified_by("zeros", name)?
        };
        let status = world.restore(restore, spec).await?.status;
        let told = world.restore_file(restore, "results.gz").await?.to_string();
        ensure!((status.errors, status.warnings) == (0, 0), "{told}");
        let web = serde_json::to_value(
            objects_in(&world.client, back, "apps/v1", "Deployment")
                .get("web")
                .await?,
        )?;
        let pod = &web["spec"]["template"]["spec"];
        ensure!(
            pod["automountServiceAccountToken"] == false && pod.get("hostNetwork").is_none(),
            "{pod}"
        );
    }
    Ok(())
}

async fn a_default_modifier_is_for_restores_that_name_none_and_do_not_ask_to_be_left_alone(
    world: &mut World,
) -> TestResult {
    let name = "by-default";
    ensure_namespace(&world.client, name).await?;
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": name },
        "data": { "size": "small" } });
    create_all(&world.client, [settings]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let rules = |size: &str| {
        format!(
            "version: v1\nresourceModifierRules:\n- conditions: {{groupResource: configmaps}}\n  mergePatches:\n  \
             - patchData: '{{\"data\": {{\"size\": \"{size}\"}}}}'\n"
        )
    };
    let maps: Api<ConfigMap> = world.api();
    for (map, size) in [("default-rules", "by-default"), ("own-rules", "own")] {
        maps.create_json(
            json!({ "metadata": { "name": map }, "data": { "rules.yaml": rules(size) } }),
        )
        .await?;
    }
    world
        .controllers_with(&["--default-resource-modifier-configmap=default-rules"])
        .await?;
    let into = |to: &str| into_namespace(name, to);
    let own = serde_json::from_value(json!({ "kind": "configmap", "name": "own-rules" }))?;
    let mut ended = Vec::new();
    for (to, spec) in [
        ("by-default-1", into("by-default-1")),
        (
            "by-default-2",
            RestoreSpec {
                resource_modifier: own,
                ..into("by-default-2")
            },
        ),
        (
            "by-default-3",
            RestoreSpec {
                skip_default_resource_modifier: Some(true),
                ..into("by-default-3")
            },
        ),
    ] {
        ended.push(world.restore(to, spec).await);
    }
    world.controllers_with(&[]).await?;
    for map in ["default-rules", "own-rules"] {
        maps.delete_object(map).await?;
    }
    for (restored, (to, size)) in ended.into_iter().zip([
        ("by-default-1", "by-default"),
        ("by-default-2", "own"),
        ("by-default-3", "small"),
    ]) {
        restored?;
        let there: Api<ConfigMap> = Api::namespaced(world.client.clone(), to);
        let data = there.get("settings").await?.data.unwrap_or_default();
        ensure!(data["size"] == size, "{to}: {data:?}");
    }
    Ok(())
}

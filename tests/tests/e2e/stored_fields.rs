//! Fields of a restored object that the API server has not stored are reported, although it
//! answered that it created or changed the object.

use backup_core::{
    labels::{LEFT_ITEMS_ANNOTATION, annotation},
    left_items::LeftItems,
};
use backup_tests::{pki::Pki, taking};
use http::{
    Request,
    header::{ACCEPT, CONTENT_TYPE},
};
use http_body_util::BodyExt as _;
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::client::Body;

use crate::prelude::*;

crate::tests! {
    fields_that_a_narrower_definition_prunes_are_named,
    fields_that_a_webhook_takes_away_are_named,
    a_service_that_stays_headless_was_not_updated,
    data_without_a_schema_comes_back_byte_for_byte,
}

fn items(restore: &Restore) -> LeftItems {
    LeftItems::read(annotation(restore, LEFT_ITEMS_ANNOTATION)).unwrap_or_default()
}

async fn warnings(world: &World, restore: &str) -> anyhow::Result<String> {
    Ok(world.restore_file(restore, "results.gz").await?["warnings"].to_string())
}

/// The definition of gateways with these fields of `spec`.
fn definition(spec: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": spec },
        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } });
    json!({ "metadata": { "name": "gateways.acme.example.com" }, "spec": {
        "group": "acme.example.com", "scope": "Namespaced",
        "names": { "plural": "gateways", "singular": "gateway", "kind": "Gateway", "listKind": "GatewayList" },
        "versions": [{ "name": "v1", "served": true, "storage": true, "subresources": { "status": {} },
            "schema": { "openAPIV3Schema": schema } }] } })
}

async fn fields_that_a_narrower_definition_prunes_are_named(world: &mut World) -> TestResult {
    let (name, text) = ("pruned", json!({ "type": "string" }));
    let tls = |properties: Value| json!({ "type": "object", "properties": properties });
    let wider = json!({ "host": text, "tls": tls(json!({ "secretName": text, "minVersion": text })),
        "allowedCidrs": { "type": "array", "items": text } });
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.create_json(definition(&wider)).await?;
    ensure_namespace(&world.client, name).await?;
    let gateway = json!({ "apiVersion": "acme.example.com/v1", "kind": "Gateway",
        "metadata": { "name": "public", "namespace": name },
        "spec": { "host": "shop.example.com", "tls": { "secretName": "shop", "minVersion": "1.3" },
            "allowedCidrs": ["10.0.0.0/8"] } });
    let made = async || anyhow::Ok(create_all(&world.client, [gateway.clone()]).await.is_ok());
    until("a gateway is created", POINT_TIMEOUT, made).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    let spec = || RestoreSpec {
        excluded_resources: vec!["customresourcedefinitions".to_owned()],
        ..from_backup(name)
    };
    world.delete_namespace(name).await?;
    let whole = world.restore("pruned-whole", spec()).await?;
    ensure!(
        (items(&whole).differs(), whole.status.warnings) == (false, 0),
        "{whole:?}"
    );

    let narrower = json!({ "host": text, "tls": tls(json!({ "secretName": text })) });
    let versions = definition(&narrower)["spec"]["versions"].clone();
    let versions = json!({ "spec": { "versions": versions } });
    definitions
        .merge_patch("gateways.acme.example.com", versions)
        .await?;
    let gateways = objects_in(&world.client, name, "acme.example.com/v1", "Gateway");
    let prunes =
        async || anyhow::Ok(gateways.get("public").await?.data["spec"]["allowedCidrs"].is_null());
    until("the definition prunes", POINT_TIMEOUT, prunes).await?;
    world.delete_namespace(name).await?;
    let restore = world.restore(name, spec()).await?;
    let said = items(&restore);
    ensure!(
        said.incomplete == 1 && said.incomplete_items.contains("Gateway pruned/public"),
        "{said:?}"
    );
    let warned = warnings(world, name).await?;
    says(
        &warned,
        &[
            "Gateway \\\"public\\\" is created",
            "spec.allowedCidrs",
            "spec.tls.minVersion",
        ],
    )?;
    ensure!(restore.status.warnings == 1, "{warned}");
    says(
        &world.restore_log(name).await?,
        &["the API server, asked to create gateways", "unknown field"],
    )?;
    definitions
        .delete_object("gateways.acme.example.com")
        .await?;
    Ok(())
}

async fn fields_that_a_webhook_takes_away_are_named(world: &mut World) -> TestResult {
    let name = "taken-away";
    ensure_namespace(&world.client, name).await?;
    let map = |name: &str, taken: &str| json!({ "metadata": { "name": name, "labels": { "taken": taken } }, "data": { "kept": "a", "limit": "b" } });
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.create_json(map("settings", "yes")).await?;
    maps.create_json(map("other", "no")).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    world.delete_namespace(name).await?;

    let folder = world.folder().join("taking");
    std::fs::create_dir_all(&folder)?;
    let pki = Pki::new(&folder)?;
    let webhook = taking::start(&pki.server("taking")?, "/data/limit").await?;
    let hooks: Api<MutatingWebhookConfiguration> = Api::all(world.client.clone());
    let client = json!({ "url": format!("https://{}/mutate", webhook.address()),
        "caBundle": ByteString(pki.ca_pem().into_bytes()) });
    hooks
        .create_json(json!({ "metadata": { "name": name }, "webhooks": [{ "name": "mutate.taking.example.com",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "clientConfig": client,
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } },
            "objectSelector": { "matchLabels": { "taken": "yes" } },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }] }] }))
        .await?;
    // The API server begins to call the webhook a little later.
    ensure_namespace(&world.client, name).await?;
    until("the webhook is asked", POINT_TIMEOUT, async || {
        maps.create_json(map("settings", "yes")).await?;
        let stored = maps.get("settings").await?.data.unwrap_or_default();
        maps.delete_object("settings").await?;
        anyhow::Ok(!stored.contains_key("limit"))
    })
    .await?;
    let restore = world.restore(name, from_backup(name)).await;
    hooks.delete_object(name).await?;
    let restore = restore?;
    let said = items(&restore);
    let of = said
        .incomplete_items
        .contains("ConfigMap taken-away/settings");
    ensure!(said.incomplete == 1 && of, "{said:?}");
    let warned = warnings(world, name).await?;
    says(
        &warned,
        &["ConfigMap \\\"settings\\\" is created", "data.limit"],
    )?;
    ensure!(restore.status.warnings == 1, "{warned}");
    let stored = maps.get("settings").await?.data.unwrap_or_default();
    ensure!(stored.keys().eq(["kept"]), "{stored:?}");
    let shown = world
        .kubectl_backup()
        .stdout(&["restore", "describe", name])
        .await?;
    says(
        &shown,
        &["1 item was stored without some of its fields: ConfigMap taken-away/settings"],
    )
}

async fn a_service_that_stays_headless_was_not_updated(world: &mut World) -> TestResult {
    let name = "headless";
    ensure_namespace(&world.client, name).await?;
    let services: Api<Service> = Api::namespaced(world.client.clone(), name);
    let service = |address: Value| {
        json!({ "metadata": { "name": "svc" },
            "spec": { "clusterIP": address, "ports": [{ "port": 80 }], "selector": { "a": "b" } } })
    };
    services.create_json(service(Value::Null)).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    services.delete_object("svc").await?;
    services.create_json(service("None".into())).await?;
    for number in 0..2 {
        let restore = format!("{name}-{number}");
        let existing_resource_policy = Some("update".to_owned());
        let spec = RestoreSpec {
            existing_resource_policy,
            ..from_backup(name)
        };
        let ended = world.restore(&restore, spec).await?;
        let there = services
            .get("svc")
            .await?
            .spec
            .and_then(|spec| spec.cluster_ip);
        ensure!(there.as_deref() == Some("None"), "{there:?}");
        ensure!(
            items(&ended).items.contains("Service headless/svc"),
            "{:?}",
            ended.metadata
        );
        says(
            &warnings(world, &restore).await?,
            &["does not change this: spec.clusterIP"],
        )?;
    }
    Ok(())
}

/// Kubernetes compares the bytes of a ControllerRevision: a StatefulSet whose template has a `>` would
/// make no pod any more if that came back without Go's escape.
async fn data_without_a_schema_comes_back_byte_for_byte(world: &mut World) -> TestResult {
    const DATA: &str =
        r#"{"spec":{"template":{"command":"echo 1 \u003e /a \u0026\u0026 cat \u003c /b"}}}"#;
    let name = "raw-data";
    world.config_maps(name, 1).await?;
    let collection = format!("/apis/apps/v1/namespaces/{name}/controllerrevisions");
    let revision = format!(
        r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"web-1"}},"revision":1,"data":{DATA}}}"#
    );
    let create = Request::post(&collection)
        .header(CONTENT_TYPE, "application/json")
        .body(revision.into_bytes())?;
    world.client.request_text(create).await?;
    // As JSON the API server would escape it again.
    let has_data = async || {
        let read = Request::get(format!("{collection}/web-1"))
            .header(ACCEPT, "application/vnd.kubernetes.protobuf")
            .body(Body::empty())?;
        let answer = world.client.send(read).await?.into_body();
        let bytes = answer.collect().await?.to_bytes();
        let mut parts = bytes.windows(DATA.len());
        anyhow::Ok(parts.any(|part| part == DATA.as_bytes()))
    };
    ensure!(has_data().await?, "the API server keeps no bytes");
    world.back_up(name, of_namespaces(&[name])).await?;
    world.delete_namespace(name).await?;
    world
        .run_restore(name, from_backup(name), RestorePhase::Completed)
        .await?;
    ensure!(has_data().await?, "other bytes came back");
    Ok(())
}

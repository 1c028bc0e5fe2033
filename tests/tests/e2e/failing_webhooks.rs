//! Webhooks that fail while a restore writes: they delay neither the restore nor its claim, and
//! each error names its webhook.

use backup_core::labels::BLOCKED_ANNOTATION;
use k8s_openapi::{
    api::admissionregistration::v1::MutatingWebhookConfiguration,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

use crate::prelude::*;

crate::tests! {
    webhooks_that_are_dead_do_not_hold_a_restore,
    items_whose_type_a_dead_webhook_converts_do_not_hold_a_restore,
}

const DEAD_URL: &str = "https://127.0.0.1:9/";
/// Number of ConfigMaps for which the webhook is called, and number of others.
const MAPS_PER_CLASS: usize = 96;
/// Twice the time for which a webhook is retried; the timeout of a restore is ten minutes.
const MAX_DURATION: Duration = Duration::from_mins(2);

/// A webhook for creations in one namespace.
fn webhook(name: &str, client: &Value, namespace: &str, selected: &Value) -> Value {
    json!({ "metadata": { "name": name }, "webhooks": [{
        "name": format!("mutate.{name}.example.com"),
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 10,
        "clientConfig": client,
        "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
        "objectSelector": { "matchLabels": selected },
        "rules": [{ "apiGroups": ["", "apps"], "apiVersions": ["*"], "operations": ["CREATE"],
            "resources": ["configmaps", "deployments"] }],
    }] })
}

async fn webhooks_that_are_dead_do_not_hold_a_restore(world: &mut World) -> TestResult {
    let client = world.client.clone();
    for name in ["dead-hook", "mixed"] {
        ensure_namespace(&client, name).await?;
    }
    let map = |at: usize| {
        let (kind, inject) = if at < MAPS_PER_CLASS {
            ("bad", "yes")
        } else {
            ("good", "no")
        };
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("{kind}-{at:03}"),
            "namespace": "mixed", "labels": { "inject": inject } } })
    };
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "dead-hook" },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": "registry.example.com/c:1" }] } } } });
    create_all(
        &client,
        (0..2 * MAPS_PER_CLASS).map(map).chain([deployment]),
    )
    .await?;
    world
        .back_up("dead-hook", of_namespaces(&["dead-hook", "mixed"]))
        .await?;
    for name in ["dead-hook", "mixed"] {
        world.delete_namespace(name).await?;
    }

    let hooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let dead = json!({ "url": DEAD_URL });
    hooks
        .create_json(webhook("policy-engine", &dead, "dead-hook", &json!({})))
        .await?;
    let inject = json!({ "inject": "yes" });
    hooks
        .create_json(webhook("injector", &dead, "mixed", &inject))
        .await?;

    let done = restored(world).await;
    for name in ["policy-engine", "injector"] {
        hooks.delete_object(name).await?;
    }
    done
}

async fn restored(world: &World) -> anyhow::Result<()> {
    let (name, begin) = ("dead-hook", std::time::Instant::now());
    world.create_restore(name, from_backup(name)).await?;
    let waits = |restore: &Restore| restore.annotations().get(BLOCKED_ANNOTATION).cloned();
    let mut said = None;
    let shows = async || {
        said = waits(&world.restores().get(name).await?);
        anyhow::Ok(said.is_some())
    };
    until("the restore says what it waits for", POINT_TIMEOUT, shows).await?;
    says(
        &said.unwrap_or_default(),
        &[
            "it has waited since",
            "configmaps",
            "failed calling webhook",
        ],
    )?;
    let restore = world
        .restore_ends(name, RestorePhase::PartiallyFailed)
        .await?;
    ensure!(
        begin.elapsed() < MAX_DURATION,
        "it took {:?}",
        begin.elapsed()
    );
    ensure!(waits(&restore).is_none(), "{:?}", restore.metadata);
    // The Deployment, and perhaps the ConfigMap that its namespace has.
    let errors = restore.status.errors;
    let told = world.restore_errors(name).await?;
    ensure!((97..=98).contains(&errors), "{:?}: {told}", restore.status);
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "mixed");
    let there = maps.list_all().await?;
    let of = |kind: &str| {
        there
            .iter()
            .filter(|map| map.name_any().starts_with(kind))
            .count()
    };
    ensure!(
        (of("good-"), of("bad-")) == (MAPS_PER_CLASS, 0),
        "{} and {}",
        of("good-"),
        of("bad-")
    );
    says(
        &told,
        &[
            "ConfigMap \\\"bad-000\\\" could not be created",
            "webhook \\\"mutate.injector.example.com\\\" does not work: repair it",
            "Deployment \\\"web\\\" could not be created",
            "webhook \\\"mutate.policy-engine.example.com\\\" does not work",
        ],
    )?;
    says(
        &world.restore_log(name).await?,
        &["it has waited since", "the wait is over"],
    )
}

/// A definition whose objects are stored in one of two versions, with its conversion.
fn gauges(stored: &str, conversion: &Value) -> Value {
    let version = |name: &str| {
        json!({ "name": name, "served": true, "storage": name == stored, "schema": { "openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true } } })
    };
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "gauges.converted.example.com" },
        "spec": { "group": "converted.example.com", "scope": "Namespaced", "conversion": conversion,
            "names": { "plural": "gauges", "singular": "gauge", "kind": "Gauge", "listKind": "GaugeList" },
            "versions": [version("v1"), version("v2")] } })
}

/// Items are backed up in v2, the preferred version, and must be stored in v1.
async fn items_whose_type_a_dead_webhook_converts_do_not_hold_a_restore(
    world: &mut World,
) -> TestResult {
    let (client, name) = (world.client.clone(), "converted");
    ensure_namespace(&client, name).await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create_json(gauges("v2", &json!({ "strategy": "None" })))
        .await?;
    let gauge = |name: &str| {
        json!({ "apiVersion": "converted.example.com/v2", "kind": "Gauge",
            "metadata": { "name": name, "namespace": "converted" } })
    };
    let made = async || anyhow::Ok(create_all(&client, [gauge("g-0")]).await.is_ok());
    until("a gauge is created", POINT_TIMEOUT, made).await?;
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "beside", "namespace": name } });
    create_all(&client, [gauge("g-1"), gauge("g-2"), map]).await?;
    world.back_up(name, of_namespaces(&[name])).await?;
    world.delete_namespace(name).await?;

    let conversion = json!({ "strategy": "Webhook", "webhook": { "conversionReviewVersions": ["v1"],
        "clientConfig": { "url": DEAD_URL } } });
    definitions
        .merge_patch("gauges.converted.example.com", gauges("v1", &conversion))
        .await?;
    // For a moment the API server uses the old definition.
    ensure_namespace(&client, name).await?;
    let gauges = objects_in(&client, name, "converted.example.com/v2", "Gauge");
    until(
        "a creation needs the webhook",
        POINT_TIMEOUT,
        async || match gauges.create_json(gauge("probe")).await {
            Err(kube::Error::Api(status)) if status.message.contains("conversion webhook") => {
                anyhow::Ok(true)
            }
            Err(error) => Err(error.into()),
            Ok(_) => {
                gauges.delete_object("probe").await?;
                Ok(false)
            }
        },
    )
    .await?;
    // Stored without conversion; reading it in v2 needs the webhook.
    let there = json!({ "apiVersion": "converted.example.com/v1", "kind": "Gauge",
        "metadata": { "name": "g-1", "namespace": name } });
    objects_in(&client, name, "converted.example.com/v1", "Gauge")
        .create_json(there)
        .await?;
    let done = without_gauges(world, name).await;
    definitions
        .delete_object("gauges.converted.example.com")
        .await?;
    done
}

async fn without_gauges(world: &World, name: &str) -> anyhow::Result<()> {
    let begin = std::time::Instant::now();
    let spec = RestoreSpec {
        excluded_resources: vec!["customresourcedefinitions".to_owned()],
        ..from_backup(name)
    };
    world.create_restore(name, spec).await?;
    let restore = world
        .restore_ends(name, RestorePhase::PartiallyFailed)
        .await?;
    ensure!(
        begin.elapsed() < MAX_DURATION,
        "it took {:?}",
        begin.elapsed()
    );
    let told = world.restore_errors(name).await?;
    ensure!(restore.status.errors == 3, "{:?}: {told}", restore.status);
    let named = [
        "Gauge \\\"g-0\\\" could not be created",
        "Gauge \\\"g-1\\\" was not restored: there is one in the cluster, which could not be compared",
        "Gauge \\\"g-2\\\" could not be created",
    ];
    says(&told, &named)?;
    ensure!(
        told.matches(", Kind=Gauge does not work").count() == 3,
        "{told}"
    );
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), name);
    maps.get("beside")
        .await
        .context("what is beside them is not restored")?;
    Ok(())
}

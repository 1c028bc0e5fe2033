//! Webhooks that do not work while a restore writes: they hold neither the restore nor its claim, and each error names its webhook.

use backup_core::labels::BLOCKED_ANNOTATION;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

use crate::prelude::*;

crate::tests! { webhooks_that_are_dead_do_not_hold_a_restore }

const DEAD_URL: &str = "https://127.0.0.1:9/";
/// ConfigMaps for which the webhook is called, and others.
const EACH: usize = 96;
/// Twice the time for which a webhook is retried; a restore's patience is ten minutes.
const BOUND: Duration = Duration::from_mins(2);

/// A webhook for what is created in one namespace.
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

async fn webhooks_that_are_dead_do_not_hold_a_restore(world: &mut World) -> anyhow::Result<()> {
    let client = world.client.clone();
    for name in ["dead-hook", "mixed"] {
        ensure_namespace(&client, name).await?;
    }
    let map = |at: usize| {
        let (kind, inject) = if at < EACH { ("bad", "yes") } else { ("good", "no") };
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("{kind}-{at:03}"),
            "namespace": "mixed", "labels": { "inject": inject } } })
    };
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "dead-hook" },
        "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": {
            "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": "registry.example.com/c:1" }] } } } });
    create_all(&client, (0..2 * EACH).map(map).chain([deployment])).await?;
    world.back_up("dead-hook", of_namespaces(&["dead-hook", "mixed"])).await?;
    for name in ["dead-hook", "mixed"] {
        world.delete_namespace(name).await?;
    }

    let hooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let dead = json!({ "url": DEAD_URL });
    hooks.create_json(webhook("policy-engine", &dead, "dead-hook", &json!({}))).await?;
    let inject = json!({ "inject": "yes" });
    hooks.create_json(webhook("injector", &dead, "mixed", &inject)).await?;

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
    until("the restore says what it waits for", REACHED, shows).await?;
    says(&said.unwrap_or_default(), &["it has waited since", "configmaps", "failed calling webhook"])?;
    let restore = world.restore_ends(name, RestorePhase::PartiallyFailed).await?;
    ensure!(begin.elapsed() < BOUND, "it took {:?}", begin.elapsed());
    ensure!(waits(&restore).is_none(), "{:?}", restore.metadata);
    // The Deployment and perhaps the ConfigMap that its namespace has.
    let errors = restore.status.errors;
    let told = world.restore_errors(name).await?;
    ensure!((97..=98).contains(&errors), "{:?}: {told}", restore.status);
    let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), "mixed");
    let there = maps.list_all().await?;
    let of = |kind: &str| there.iter().filter(|map| map.name_any().starts_with(kind)).count();
    ensure!((of("good-"), of("bad-")) == (EACH, 0), "{} and {}", of("good-"), of("bad-"));
    says(
        &told,
        &[
            "ConfigMap \\\"bad-000\\\" could not be created",
            "webhook \\\"mutate.injector.example.com\\\" does not work: repair it",
            "Deployment \\\"web\\\" could not be created",
            "webhook \\\"mutate.policy-engine.example.com\\\" does not work",
        ],
    )?;
    says(&world.restore_log(name).await?, &["it has waited since", "the wait is over"])
}

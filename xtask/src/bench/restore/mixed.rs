//! `cargo xtask bench restore --mixed`: a restore of several kinds, compared with creating the same
//! over plain connections.

use std::ops::Range;

use anyhow::ensure;
use backup_tests::{
    World,
    api::{ApiExt as _, all_objects},
    install::{crds_served, ensure_namespace},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};

use super::{TIMEOUT, back_up, beside_creating};
use crate::bench::{
    objects::{self, CONNECTIONS},
    raw,
    table::Table,
};

const DEFINITIONS: usize = 20;
/// API group of the backed up custom resources; those created for comparison have other groups.
const GROUP: &str = "mixed.example.com";
/// Makes the object with a number, without its name, and the plural of its kind; the second
/// argument is the group of custom resources.
type Make = fn(usize, &str) -> (String, Value);
/// Kinds in the order in which a restore creates them: the share of each among fifty objects, and a
/// function that makes one.
const KINDS: [(Range<usize>, Make); 5] = [
    (0..1, secret),
    (1..38, config_map),
    (38..39, replica_set),
    (39..40, deployment),
    (40..PARTS, custom),
];
const PARTS: usize = 50;
/// Number of parts of 32 bytes: 96 KiB, and 1 KiB.
const LARGE_PARTS: usize = 3 * 1024;
const SMALL_PARTS: usize = 32;

pub async fn measure(world: &mut World, count: usize, table: &mut Table) -> anyhow::Result<()> {
    let client = world.client.clone();
    let names = objects::namespaces();
    create(&client, &names, GROUP, &json!({}), count).await?;
    back_up(world, &names).await?;
    // Definitions are cluster-scoped: they have to be deleted, so that the restore creates them.
    let definitions = all_objects(
        &client,
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    );
    for number in 0..DEFINITIONS {
        definitions
            .delete_object(&definition_name(number, GROUP))
            .await?;
    }
    for number in 0..DEFINITIONS {
        definitions
            .wait_gone(&definition_name(number, GROUP), TIMEOUT)
            .await?;
    }

    let what = format!("{count} objects of five kinds and {DEFINITIONS} definitions");
    beside_creating(
        world,
        table,
        &what,
        async |suffix: &str, names: &[String]| {
            let labels = objects::restored_labels(suffix);
            create(&client, names, &format!("{suffix}.{GROUP}"), &labels, count).await
        },
    )
    .await?;
    for number in [0, DEFINITIONS - 1] {
        let back = all_objects(&client, &format!("{GROUP}/v1"), &kind(number))
            .list_all()
            .await?;
        ensure!(!back.is_empty(), "no {} came back", plural(number));
    }
    Ok(())
}

/// Creates definitions, and then `count` objects with these labels, in the order in which a restore
/// creates them.
async fn create(
    client: &Client,
    namespaces: &[String],
    group: &str,
    labels: &Value,
    count: usize,
) -> anyhow::Result<()> {
    for name in namespaces {
        ensure_namespace(client, name).await?;
    }
    for number in 0..DEFINITIONS {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        raw::post(client, path, &definition(number, group)).await?;
    }
    let names: Vec<String> = (0..DEFINITIONS)
        .map(|number| definition_name(number, group))
        .collect();
    crds_served(client, &names).await?;
    for (parts, item) in KINDS {
        stream::iter((0..count).filter(|number| parts.contains(&(number % PARTS))))
            .map(async |number| {
                let namespace = &namespaces[number / PARTS % namespaces.len()];
                let (plural, mut object) = item(number, group);
                let path = collection(&object["apiVersion"], namespace, &plural);
                object["metadata"]["name"] = format!("item-{number:06}").into();
                for (key, value) in labels.as_object().into_iter().flatten() {
                    object["metadata"]["labels"][key] = value.clone();
                }
                raw::post(client, &path, &object).await.map(drop)
            })
            .buffer_unordered(CONNECTIONS)
            .try_collect::<()>()
            .await?;
    }
    Ok(())
}

/// The path of the objects of a kind in a namespace.
fn collection(version: &Value, namespace: &str, plural: &str) -> String {
    let version = version.as_str().unwrap_or_default();
    let root = if version == "v1" { "api" } else { "apis" };
    format!("/{root}/{version}/namespaces/{namespace}/{plural}")
}

fn secret(number: usize, _: &str) -> (String, Value) {
    let data = json!({ "text": objects::text(number, LARGE_PARTS) });
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "stringData": data });
    ("secrets".to_owned(), object)
}

fn config_map(number: usize, _: &str) -> (String, Value) {
    let data = json!({ "text": objects::text(number, SMALL_PARTS) });
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": data });
    ("configmaps".to_owned(), object)
}

/// The ReplicaSet that the Deployment would create: the cluster's controller adopts it.
fn replica_set(number: usize, _: &str) -> (String, Value) {
    ("replicasets".to_owned(), workload("ReplicaSet", number))
}

fn deployment(number: usize, _: &str) -> (String, Value) {
    ("deployments".to_owned(), workload("Deployment", number))
}

fn workload(kind: &str, number: usize) -> Value {
    let labels = json!({ "app": format!("app-{}", number / PARTS) });
    let template = json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "example.com/server:1" }] } });
    let spec =
        json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template });
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "labels": labels }, "spec": spec })
}

fn custom(number: usize, group: &str) -> (String, Value) {
    let definition = number % DEFINITIONS;
    let spec = json!({ "text": objects::text(number, SMALL_PARTS) });
    let object =
        json!({ "apiVersion": format!("{group}/v1"), "kind": kind(definition), "spec": spec });
    (plural(definition), object)
}

fn definition(number: usize, group: &str) -> Value {
    let spec = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": { "spec": spec } } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": definition_name(number, group) },
        "spec": {
            "group": group, "scope": "Namespaced", "names": { "plural": plural(number), "kind": kind(number) },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
        },
    })
}

fn definition_name(number: usize, group: &str) -> String {
    format!("{}.{group}", plural(number))
}

fn plural(number: usize) -> String {
    format!("widget{number:02}s")
}

fn kind(number: usize) -> String {
    format!("Widget{number:02}")
}

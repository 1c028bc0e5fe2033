//! `cargo xtask bench restore --mixed`: a restore of several kinds, beside creating the same over plain connections.

use std::{ops::Range, time::Instant};

use anyhow::ensure;
use backup_core::api::BackupSpec;
use backup_tests::{
    World,
    api::{ApiExt as _, all_objects},
    install::{crds_served, ensure_namespace},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};

use super::{
    objects::{self, CONNECTIONS},
    restore::{GONE, MEMORY, mapped, restored},
    table::{Row, Table},
};

const DEFINITIONS: usize = 20;
/// Of the custom resources that are backed up; what is created beside them has groups of its own.
const GROUP: &str = "mixed.example.com";
/// Of fifty objects, in turn, one is a large Secret, ten have one of the definitions, and so on.
const PARTS: usize = 50;
const SECRET: Range<usize> = 0..1;
const REPLICA_SET: Range<usize> = 1..2;
const DEPLOYMENT: Range<usize> = 2..3;
const CUSTOM: Range<usize> = 3..13;
const CONFIG_MAPS: Range<usize> = 13..PARTS;
/// Parts of 32 bytes: 96 KiB, and 1 KiB.
const LARGE: usize = 3 * 1024;
const SMALL: usize = 32;

pub async fn run(objects: usize) -> anyhow::Result<()> {
    super::in_world(World::builder(), async |world, table| measure(world, objects, table).await).await
}

async fn measure(world: &mut World, count: usize, table: &mut Table) -> anyhow::Result<()> {
    let (client, names) = (world.client.clone(), objects::namespaces());
    create(&client, &names, GROUP, count).await?;
    let spec = BackupSpec { included_namespaces: names.clone(), ..BackupSpec::default() };
    world.back_up("bench", spec).await?;
    // The definitions have no namespace: the restore has to find them gone to create them.
    let definitions = all_objects(&client, "apiextensions.k8s.io/v1", "CustomResourceDefinition");
    for number in 0..DEFINITIONS {
        definitions.delete_object(&definition_name(number, GROUP)).await?;
    }
    for number in 0..DEFINITIONS {
        definitions.wait_gone(&definition_name(number, GROUP), GONE).await?;
    }

    let created = async |suffix: &str| {
        let start = Instant::now();
        let names: Vec<String> = names.iter().map(|name| mapped(name, suffix)).collect();
        create(&client, &names, &format!("{suffix}.{GROUP}"), count).await?;
        anyhow::Ok(start.elapsed().as_secs_f64())
    };
    // The more there is, the longer it takes to create: the floor is the mean of before and after.
    let before = created("before").await?;
    // A fresh process, so that its peak is the restore's.
    world.renew_controller(0).await?;
    let took = restored(world, "mixed", "first").await?;
    let floor = f64::midpoint(before, created("after").await?);
    table.row(&Row {
        what: format!("restore of {count} objects of five kinds and {DEFINITIONS} definitions"),
        found: format!("{took:.2} s, {:.2} times", took / floor),
        beside: format!("creating over {CONNECTIONS} connections {floor:.2} s"),
        asked: "1.1 times".to_owned(),
        met: Some(took <= floor * 1.1),
    });
    table.peak_memory(&world.controllers[0], String::new(), MEMORY)?;
    for number in [0, DEFINITIONS - 1] {
        let back = all_objects(&client, &format!("{GROUP}/v1"), &kind(number)).list_all().await?;
        ensure!(!back.is_empty(), "no {} came back", plural(number));
    }
    Ok(())
}

/// Definitions, and then so many objects, in the order in which a restore creates them.
async fn create(client: &Client, namespaces: &[String], group: &str, count: usize) -> anyhow::Result<()> {
    for name in namespaces {
        ensure_namespace(client, name).await?;
    }
    for number in 0..DEFINITIONS {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        objects::post(client, path, &definition(number, group)).await?;
    }
    let names: Vec<String> = (0..DEFINITIONS).map(|number| definition_name(number, group)).collect();
    crds_served(client, &names).await?;
    for parts in [SECRET, CONFIG_MAPS, REPLICA_SET, DEPLOYMENT, CUSTOM] {
        stream::iter((0..count).filter(|number| parts.contains(&(number % PARTS))))
            .map(async |number| {
                let namespace = &namespaces[number / PARTS % namespaces.len()];
                let (api, plural, mut object) = object(number, group);
                let path = format!("{api}/namespaces/{namespace}/{plural}");
                object["metadata"]["name"] = format!("item-{number:06}").into();
                objects::post(client, &path, &object).await
            })
            .buffer_unordered(CONNECTIONS)
            .try_collect::<()>()
            .await?;
    }
    Ok(())
}

/// An object without its name, below which path its API is, and its type there.
fn object(number: usize, group: &str) -> (String, String, Value) {
    let core = || "/api/v1".to_owned();
    let apps = || "/apis/apps/v1".to_owned();
    let text = |parts| objects::text(number, parts);
    let part = number % PARTS;
    if SECRET.contains(&part) {
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "stringData": { "text": text(LARGE) } });
        return (core(), "secrets".to_owned(), secret);
    }
    if CUSTOM.contains(&part) {
        let definition = number % DEFINITIONS;
        let object = json!({ "apiVersion": format!("{group}/v1"), "kind": kind(definition), "spec": { "text": text(SMALL) } });
        return (format!("/apis/{group}/v1"), plural(definition), object);
    }
    if CONFIG_MAPS.contains(&part) {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "text": text(SMALL) } });
        return (core(), "configmaps".to_owned(), object);
    }
    // The cluster's controller finds the ReplicaSet that the Deployment would make, and makes it its owner.
    let labels = json!({ "app": format!("app-{}", number / PARTS) });
    let template = json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "example.com/server:1" }] } });
    let spec = json!({ "replicas": 0, "selector": { "matchLabels": labels }, "template": template });
    let (kind, plural) = if DEPLOYMENT.contains(&part) {
        ("Deployment", "deployments")
    } else {
        ("ReplicaSet", "replicasets")
    };
    let object =
        json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "labels": labels }, "spec": spec });
    (apps(), plural.to_owned(), object)
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
